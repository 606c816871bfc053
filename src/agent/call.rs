//! A call of the model, from the model's answer to the call's own. One type has it in all states, and it can be stored in
//! each of them.

mod resolve;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

pub(super) use self::resolve::{LARGE_ARGUMENTS, Resolver};
use super::images::ShownImage;
use super::policy::repeat::{AnsweredCall, ResultDigest};
use super::policy::{CallDecision, CallFacts, CallOutcome};
use net::polling::{LONG_BYTES, block_in_place_if};
use protocol::openai::citation::CitedSource;
use protocol::openai::tool::ToolCall;
use tools::gate::GateWait;
use tools::refusal::{CallRefusal, CancelledCall};
use tools::repair::Repair;
use tools::{RemoteToolName, ToolKind, ToolOutput, ToolStatus};

/// One call of the model in its batch.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Call {
    /// The call in the form that the history stores. A stored batch has it in its message.
    #[serde(skip)]
    pub(super) call: ToolCall,
    /// The input of the policies.
    pub(super) facts: CallFacts,
    /// What they have decided.
    pub(super) decision: CallDecision,
    /// The text for the model if the call cannot run; else empty.
    pub(super) problem: String,
    /// The arguments, until the call begins.
    #[serde(skip)]
    arguments: Option<Map<String, Value>>,
    /// The repairs that were made.
    pub(super) repairs: Vec<Repair>,
    /// What kind of tool it is.
    pub(super) kind: ToolKind,
    /// The MCP server of the tool, and its name there.
    pub(super) on_server: Option<RemoteToolName>,
    /// What it may do besides answering.
    pub(super) effect: CallEffect,
    /// What the hooks add to its result, if it has waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) hook_context: Option<String>,
    /// How far it is.
    pub(super) state: CallState,
}

/// What a call may do besides answering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) enum CallEffect {
    /// Nothing: its tool only reads.
    ReadOnly,
    /// Something that a second call does not repeat.
    Idempotent,
    /// Something that a second call may repeat.
    #[default]
    MayChange,
}

/// How far a call is.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) enum CallState {
    /// It has not begun. A call of the client's stays so.
    #[default]
    Pending,
    /// It is on its way through the gate to its tool.
    Running(Started),
    /// It waits for a decision, and its tool was not called.
    Waiting(Box<GateWait>),
    Answered(Box<CallAnswer>),
}

/// Whether a tool was called; clones tell of the same call.
#[derive(Debug, Clone, Default)]
pub(super) struct Started(pub(super) Arc<AtomicBool>);

/// The answer to one call.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CallAnswer {
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

impl Call {
    /// A call that has not begun, with the facts that the policies read.
    fn new(call: ToolCall, facts: CallFacts, problem: String, repairs: Vec<Repair>) -> Self {
        Self {
            call,
            facts,
            decision: CallDecision::Explain,
            problem,
            arguments: None,
            repairs,
            kind: ToolKind::default(),
            on_server: None,
            effect: CallEffect::default(),
            hook_context: None,
            state: CallState::default(),
        }
    }

    /// The answer to a call that does not run because of the decision about it.
    pub(super) fn refusal(&self) -> CallRefusal {
        match self.decision {
            CallDecision::Run | CallDecision::HandOver | CallDecision::Explain => CallRefusal {
                status: ToolStatus::Error,
                text: self.problem.clone(),
            },
            CallDecision::Deny => CallRefusal {
                status: ToolStatus::Denied,
                text: self.problem.clone(),
            },
            CallDecision::Unwritten => CallRefusal::unwritten(),
            CallDecision::Suppress => CallRefusal::repeated(&self.call.name),
            CallDecision::OverLimit => CallRefusal::over_limit(),
        }
    }

    /// The arguments to run with. The arguments of a stored call are parsed from its text.
    pub(super) fn take_arguments(&mut self) -> Option<Map<String, Value>> {
        let text = &self.call.arguments;
        let read = || {
            let long = text.len() > LONG_BYTES;
            block_in_place_if(long, || serde_json::from_str(text)).ok()
        };
        self.arguments.take().or_else(read)
    }

    /// The decision that it waits for.
    pub(super) fn wait(&self) -> Option<&GateWait> {
        match &self.state {
            CallState::Waiting(wait) => Some(wait),
            CallState::Pending | CallState::Running(_) | CallState::Answered(_) => None,
        }
    }

    /// Whether it waits for a decision.
    pub(super) fn waits(&self) -> bool {
        self.wait().is_some()
    }

    /// The answer to the call if it is cancelled.
    pub(super) fn cancelled(&self) -> CallRefusal {
        CallRefusal::cancelled_at(match (self.state.has_started(), self.effect) {
            (false, _) => CancelledCall::NotStarted,
            (true, CallEffect::ReadOnly) => CancelledCall::Reading,
            (true, CallEffect::Idempotent | CallEffect::MayChange) => CancelledCall::Running,
        })
    }

    /// The answer to a call that had started when its process ended.
    pub(super) fn interrupted(&self) -> CallRefusal {
        CallRefusal::interrupted(self.is_read_only())
    }

    /// Whether the call is reported to the client. Calls of tools that do not exist are not.
    pub(super) fn shown(&self) -> bool {
        !matches!(self.facts, CallFacts::Unknown(_) | CallFacts::Client)
    }

    /// Whether the client is to run it.
    pub(super) fn is_of_client(&self) -> bool {
        self.decision == CallDecision::HandOver
    }

    /// Whether it is to run, and has no answer.
    pub(super) fn runs(&self) -> bool {
        self.decision == CallDecision::Run && self.answer().is_none()
    }

    /// Whether it is to run and may have an effect that a second call repeats.
    pub(super) fn may_change(&self) -> bool {
        self.runs() && self.effect == CallEffect::MayChange
    }

    /// Whether its tool only reads.
    pub(super) fn is_read_only(&self) -> bool {
        self.effect == CallEffect::ReadOnly
    }

    /// Whether it has its answer, or needs none here.
    pub(super) fn is_done(&self) -> bool {
        self.is_of_client() || self.answer().is_some()
    }

    pub(super) fn answer(&self) -> Option<&CallAnswer> {
        match &self.state {
            CallState::Answered(answer) => Some(answer),
            CallState::Pending | CallState::Running(_) | CallState::Waiting(_) => None,
        }
    }

    /// The outcome of the call for the policies.
    pub(super) fn outcome(&self) -> CallOutcome {
        let answer = self.answer();
        let ran = answer.is_some_and(|answer| answer.ran);
        // An explanation is an answer that the model need not get again either.
        let counts = ran || self.decision == CallDecision::Explain;
        let call_and_answer = self.facts.signature().zip(answer);
        let answered = call_and_answer.map(|(signature, answer)| AnsweredCall {
            call: signature,
            result: answer.digest,
            may_change: ran && answer.status == ToolStatus::Ok && !self.is_read_only(),
        });
        CallOutcome {
            decision: self.decision,
            ran,
            terminate: answer.is_some_and(|answer| answer.terminate),
            answered: answered.filter(|_| counts),
        }
    }
}

impl CallAnswer {
    /// The answer to a call that does not run.
    pub(super) fn refused(refusal: &CallRefusal) -> Self {
        let output = ToolOutput {
            content: refusal.text.clone(),
            ..ToolOutput::default()
        };
        Self {
            ran: false,
            status: refusal.status,
            digest: ResultDigest::of(&output),
            content: output.content,
            is_blank: false,
            full_text: None,
            sources: Vec::new(),
            images: Vec::new(),
            terminate: false,
        }
    }
}

impl CallState {
    /// Whether the tool was called, and has not answered.
    pub(super) fn has_started(&self) -> bool {
        match self {
            Self::Running(Started(started)) => started.load(Ordering::Relaxed),
            Self::Pending | Self::Waiting(_) | Self::Answered(_) => false,
        }
    }
}

impl Serialize for Started {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.load(Ordering::Relaxed).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Started {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        bool::deserialize(deserializer).map(|started| Self(Arc::new(AtomicBool::new(started))))
    }
}
