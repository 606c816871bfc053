//! What became of the calls of a batch, as the policies are told.

use super::super::calls::ResolvedCall;
use super::super::images::ShownImage;
use super::super::policy::repeat::{AnsweredCall, ResultDigest};
use super::super::policy::{CallDecision, CallOutcome};
use super::Batch;
use crate::openai::citation::CitedSource;
use crate::polling::{LONG_BYTES, block_in_place_if};
use crate::tools::{ToolOutput, ToolStatus};

/// The answer to one call.
#[derive(Debug)]
pub(super) struct CallAnswer {
    /// The call ran.
    pub(super) ran: bool,
    /// How it ended.
    pub(super) status: ToolStatus,
    /// The digest of the whole result.
    pub(super) digest: ResultDigest,
    /// The text for the model, shortened if necessary.
    pub(super) content: String,
    /// The result has no text; `content` says so.
    pub(super) is_blank: bool,
    /// The whole text, if `content` is shortened.
    pub(super) full_text: Option<String>,
    /// The sources that it found.
    pub(super) sources: Vec<CitedSource>,
    /// The images that the model gets.
    pub(super) images: Vec<ShownImage>,
    /// Its result asks for the end of the turn.
    pub(super) terminate: bool,
}

impl Batch {
    /// What became of the calls, in their order.
    pub(in super::super) fn outcomes(&self) -> Vec<CallOutcome> {
        let calls = self.calls.iter().zip(&self.decisions).zip(&self.answers);
        let outcomes = calls.map(|((call, decision), answer)| {
            CallAnswer::outcome(answer.as_ref(), call, *decision)
        });
        outcomes.collect()
    }
}

impl CallAnswer {
    /// What became of a call; a client's call has no answer.
    fn outcome(answer: Option<&Self>, call: &ResolvedCall, decision: CallDecision) -> CallOutcome {
        let ran = answer.is_some_and(|answer| answer.ran);
        // An explanation is an answer that the model need not get again either.
        let counts = ran || decision == CallDecision::Explain;
        let call_and_answer = call.facts.signature().zip(answer);
        let answered = call_and_answer.map(|(signature, answer)| AnsweredCall {
            call: signature,
            result: answer.digest,
            may_change: ran && answer.status == ToolStatus::Ok && !call.read_only,
        });
        CallOutcome {
            decision,
            ran,
            terminate: answer.is_some_and(|answer| answer.terminate),
            answered: answered.filter(|_| counts),
        }
    }
}

/// The digest of a result before anything of it is shortened or stored.
pub(super) fn digest(output: &ToolOutput) -> ResultDigest {
    let long = output.content.len() > LONG_BYTES;
    block_in_place_if(long, || ResultDigest::of(output))
}
