//! The answer of a run, in each form. A dialect has a variant of each enum here, and an arm of each `match`; no other
//! module distinguishes dialects.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use super::chat::answer::ChatEncoding;
use super::chat::decode::ChatOptions;
use super::chat::encode::CallCollector;
use super::end::{Answer, ErrorForm, Failure};
use super::responses::answer::ResponseEncoding;
use super::responses::decode::ResponseOptions;
use super::{chat, responses};
use agent::event::AgentEvent;
use agent::inputs::FilePosition;
use protocol::ids::RunId;

/// A dialect, as a route names it. The error of a run is written in the form of its answer's dialect, any other error in
/// that of the route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Chat,
    Responses,
}

impl Dialect {
    /// The dialect's own form of errors; `None` where that is OpenAI's envelope.
    pub(crate) fn error_form(self) -> Option<ErrorForm> {
        match self {
            Self::Chat | Self::Responses => None,
        }
    }
}

/// The form of an answer: its dialect, with the options of the request.
///
/// It is stored with a suspended run, and read by other versions.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AnswerForm {
    /// A chat completion.
    Chat(ChatOptions),
    Responses(Arc<ResponseOptions>),
    /// The entry of a call outside of a turn.
    Call,
}

impl Default for AnswerForm {
    fn default() -> Self {
        Self::Chat(ChatOptions::default())
    }
}

impl AnswerForm {
    pub(crate) fn is_streamed(&self) -> bool {
        match self {
            Self::Chat(options) => options.stream,
            Self::Responses(options) => options.stream,
            Self::Call => false,
        }
    }

    /// The form in which an error of the run is written, if it is not OpenAI's envelope.
    pub(crate) fn error_form(&self) -> Option<ErrorForm> {
        match self {
            Self::Chat(_) => Dialect::Chat.error_form(),
            Self::Responses(_) => Dialect::Responses.error_form(),
            Self::Call => None,
        }
    }

    /// The id of the answer, as the dialect writes it.
    pub(crate) fn id_of(&self, run: &RunId) -> String {
        match self {
            Self::Chat(_) | Self::Call => run.completion_id(),
            Self::Responses(_) => run.response_id(),
        }
    }

    /// What a run is shown as while it runs, where the dialect has an object for that.
    pub(crate) fn unfinished(&self, run: &RunId, status: &str) -> Option<Bytes> {
        match self {
            Self::Chat(_) | Self::Call => None,
            Self::Responses(options) => Some(responses::answer::unfinished(run, status, options)),
        }
    }

    /// A whole answer as a stream, for a client that asks again for an answer whose events were dropped.
    pub(crate) fn replay(&self, body: &[u8]) -> Bytes {
        let mut out = BytesMut::new();
        let body = std::str::from_utf8(body).unwrap_or_default();
        match self {
            Self::Chat(options) => chat::encode::replay(body, options.include_usage, &mut out),
            Self::Responses(_) => responses::encode::replay(body, &mut out),
            // It has no stream.
            Self::Call => {}
        }
        out.freeze()
    }

    /// What encodes the events of a run.
    pub(crate) fn encoder(&self, run: &RunId) -> AnswerEncoder {
        match self {
            Self::Chat(options) => AnswerEncoder::Chat(Box::new(ChatEncoding::new(options, run))),
            Self::Responses(options) => {
                AnswerEncoder::Responses(Box::new(ResponseEncoding::new(options, run)))
            }
            Self::Call => AnswerEncoder::Call(CallCollector::default()),
        }
    }
}

/// Encodes the events of a run as the lines of its stream and as one answer.
#[derive(Debug)]
pub(crate) enum AnswerEncoder {
    Chat(Box<ChatEncoding>),
    Responses(Box<ResponseEncoding>),
    Call(CallCollector),
}

impl AnswerEncoder {
    /// Encodes one event. Returns the answer with the last one.
    pub(crate) fn encode(&mut self, event: AgentEvent, out: &mut BytesMut) -> Option<Answer> {
        match self {
            Self::Chat(encoder) => encoder.encode(event, out),
            Self::Responses(encoder) => encoder.encode(event, out),
            Self::Call(encoder) => encoder.take(event).map(Answer::passing),
        }
    }

    /// Ends the lines with an error. Returns an answer if the dialect has one for errors.
    pub(crate) fn fail(&mut self, failure: &Failure, out: &mut BytesMut) -> Option<Answer> {
        match self {
            Self::Chat(_) => {
                chat::encode::fail(&failure.envelope, out);
                None
            }
            Self::Responses(encoder) => encoder.fail(failure, out),
            // It has no stream.
            Self::Call(_) => None,
        }
    }

    /// The field of the request that has its messages.
    pub(crate) fn input_field(&self) -> &'static str {
        match self {
            Self::Chat(_) => "messages",
            Self::Responses(_) => "input",
            Self::Call(_) => "arguments",
        }
    }

    /// The path of an input file in the request.
    pub(crate) fn file_path(&self, position: &FilePosition) -> String {
        match self {
            Self::Chat(_) => chat::position::file_path(position),
            Self::Responses(encoder) => encoder.file_path(position),
            Self::Call(_) => "session_id".to_owned(),
        }
    }
}
