//! A suspended turn as a value: it is stored in the middle of a batch, and another process can resume it.
//!
//! It does not contain the prompt, which is built from the session. The last message of the session asks for the calls.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::call::Call;
use super::draft::TurnDraft;
use super::limits::TurnLimits;
use super::machine::Machine;
use super::open_batch::OpenBatch;
use super::said::Said;
use super::turn_bytes::TurnBytes;
use crate::session::StoredMessage;
use protocol::openai::message::Message;
use tools::gate::{ApprovalAnswer, Approvals, TurnPermissions};

/// Number of the form in which turns are stored. One in another form cannot be read.
const FORM: u32 = 2;

/// What a turn has decided, used and made so far, and its limits.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TurnState {
    pub(super) machine: Machine,
    pub(super) permissions: TurnPermissions,
    /// The questions of the session, which the store has.
    #[serde(skip)]
    pub(super) approvals: Arc<Approvals>,
    /// Bytes that the turn may still keep.
    pub(super) turn_bytes: TurnBytes,
    /// Tokens that the model has written.
    pub(super) output_tokens: u64,
    /// How often hooks have sent the model back.
    #[serde(default)]
    pub(super) sent_back: u32,
    /// Paths of the files that the tools made.
    pub(super) produced: HashSet<String>,
    /// The limits with which it began.
    pub(super) limits: TurnLimits,
    /// How long it ran in other processes. The time that it was stored does not count.
    pub(super) age: Duration,
}

/// How a suspended turn resumes by itself once all its questions are decided.
#[derive(Debug, Clone)]
pub struct RunResumption {
    /// The run that resumes, as [`RunId::as_str`](protocol::ids::RunId::as_str) has it.
    pub run: Arc<str>,
    /// How its answer is encoded, as the dialects read it.
    pub reply: Box<RawValue>,
    /// The `traceparent` of the request that began the run.
    pub first_span: Option<Arc<str>>,
}

/// What a process needs to resume the run of a suspended turn.
#[derive(Debug)]
pub enum StoredResumption {
    /// The turn has its draft.
    Draft {
        /// The draft.
        draft: Box<TurnDraft>,
        /// How its run resumes.
        resumption: RunResumption,
    },
    /// An earlier version has stored the request in its place.
    Request {
        /// The request, in a form of the edge.
        request: Arc<str>,
    },
}

/// Why this process cannot resume a suspended turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SuspendedTurnError {
    /// Another version has stored it.
    #[error("another version of the server has stored the turn, and this one cannot read it")]
    OtherVersion,
    /// It declares MCP servers, whose secrets are not stored.
    #[error(
        "the request declares MCP servers, whose secrets are not stored; send a request in its session that declares all its tools again"
    )]
    LacksServers,
}

/// A turn in the middle of a batch.
#[derive(Debug)]
pub(super) struct SuspendedTurn {
    pub(super) state: TurnState,
    pub(super) batch: OpenBatch,
    /// The answer so far.
    pub(super) said: Said,
    /// The part of the answer that the client of the resuming request has.
    pub(super) shown: ShownPart,
    /// The texts of the results, by their calls.
    pub(super) results: HashMap<String, String>,
    pub(super) draft: Option<Box<TurnDraft>>,
    /// The run that resumes by itself.
    pub(super) run: Option<Arc<str>>,
    pub(super) resumption: Option<RunResumption>,
}

/// The part of the answer so far that the client of a resuming request has, as its messages show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShownPart {
    /// The client has nothing: it gets the whole answer.
    Nothing,
    /// Its client has the answer so far.
    Earlier,
    /// The client has it, and adds a message of the user. The answer to that message contains nothing from before it.
    NewMessage,
}

/// The stored form of a turn.
#[derive(Serialize)]
struct Written<'a> {
    /// The first member, because the store reads it at this place.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<&'a str>,
    form: u32,
    /// The digest of the message that asks for the calls.
    message: [u8; 32],
    state: &'a TurnState,
    calls: &'a [Call],
    said: &'a Said,
    #[serde(skip_serializing_if = "Option::is_none")]
    draft: Option<&'a TurnDraft>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_span: Option<&'a str>,
}

/// The number of the form, which is read first.
#[derive(Deserialize)]
struct Form {
    form: u32,
}

#[derive(Deserialize)]
struct Read {
    run: Option<Arc<str>>,
    request: Option<Arc<str>>,
    message: [u8; 32],
    state: TurnState,
    calls: Vec<Call>,
    /// A turn that an earlier version has stored has no answer here.
    #[serde(default)]
    said: Said,
    draft: Option<Box<TurnDraft>>,
    reply: Option<Box<RawValue>>,
    first_span: Option<Arc<str>>,
}

impl Read {
    /// Parses the stored text.
    fn of(text: &str) -> Result<Self, SuspendedTurnError> {
        let unreadable = |error: serde_json::Error| {
            tracing::debug!(%error, "a stored turn cannot be read");
            SuspendedTurnError::OtherVersion
        };
        let Form { form } = serde_json::from_str(text).map_err(unreadable)?;
        match form {
            FORM => serde_json::from_str(text).map_err(unreadable),
            _ => Err(SuspendedTurnError::OtherVersion),
        }
    }

    fn resumption(&mut self) -> Option<RunResumption> {
        Some(RunResumption {
            run: self.run.clone()?,
            reply: self.reply.take()?,
            first_span: self.first_span.take(),
        })
    }
}

impl StoredResumption {
    /// Reads a turn that the store has.
    ///
    /// # Errors
    /// When this process cannot resume it.
    pub fn read(text: &str) -> Result<Self, SuspendedTurnError> {
        let mut read = Read::of(text)?;
        if let Some(request) = read.request {
            return Ok(Self::Request { request });
        }
        let resumption = read.resumption();
        match read.draft.zip(resumption) {
            Some((draft, resumption)) => Ok(Self::Draft { draft, resumption }),
            None => Err(SuspendedTurnError::OtherVersion),
        }
    }
}

impl SuspendedTurn {
    /// Whether a person has decided about one of its calls that wait.
    pub(super) fn has_decision(&self) -> bool {
        let waiting = self.batch.calls.iter().filter_map(Call::wait);
        let mut answers = waiting.filter_map(|wait| self.state.approvals.answer(&wait.id));
        answers.any(|answer| *answer != ApprovalAnswer::Waiting)
    }

    /// Takes the texts of the results from the session and from the batch.
    pub(super) fn find_results(&mut self, messages: &[StoredMessage]) {
        let of_messages = messages.iter().filter_map(|stored| {
            let call = stored.message.tool_call_id()?;
            Some((call.to_owned(), stored.message.content_text()))
        });
        let of_batch = self.batch.calls.iter().filter_map(|call| {
            let answer = call.answer()?;
            Some((call.call.id.clone(), answer.content.clone()))
        });
        self.results = of_messages.chain(of_batch).collect();
    }

    /// Marks all undecided questions as abandoned.
    pub(super) fn leave_waiting(&mut self) {
        let approvals = std::mem::take(&mut self.state.approvals);
        if let Some(approvals) = Arc::into_inner(approvals) {
            self.state.approvals = Arc::new(approvals.left());
        }
    }

    /// The value of a turn as text.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub(super) fn write(
        state: &TurnState,
        batch: &OpenBatch,
        said: &Said,
        (draft, resumption): (Option<&TurnDraft>, Option<&RunResumption>),
    ) -> serde_json::Result<String> {
        let draft = draft.map(TurnDraft::without_servers);
        serde_json::to_string(&Written {
            run: resumption.map(|it| &*it.run),
            form: FORM,
            message: digest(&batch.message),
            state,
            calls: &batch.calls,
            said,
            draft: draft.as_deref(),
            reply: resumption.map(|it| &*it.reply),
            first_span: resumption.and_then(|it| it.first_span.as_deref()),
        })
    }

    /// Reads the suspended turn of a session. `None` unless the last message of the session asks for its calls: the
    /// conversation may have continued without the turn.
    pub(super) fn read(text: &str, messages: &[StoredMessage]) -> Option<Self> {
        let message = &messages.last()?.message;
        let read = Read::of(text);
        let read = read.inspect_err(|error| tracing::error!(%error, "a turn is not continued"));
        let mut read = read.ok()?;
        let resumption = read.resumption();
        let Read {
            run,
            message: asked,
            state,
            mut calls,
            said,
            draft,
            ..
        } = read;
        if digest(message) != asked || calls.len() != message.tool_calls().len() {
            return None;
        }
        for (call, asked) in calls.iter_mut().zip(message.tool_calls()) {
            call.call = asked.clone();
        }
        let message = message.clone();
        let batch = OpenBatch { message, calls };
        Some(Self {
            state,
            batch,
            said,
            shown: ShownPart::Nothing,
            results: HashMap::new(),
            draft,
            run,
            resumption,
        })
    }
}

fn digest(message: &Message) -> [u8; 32] {
    Sha256::digest(message.json()).into()
}
