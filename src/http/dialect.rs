//! The API dialects in which a turn can be answered. Each has an encoder for streams and a collector for whole answers.

use std::time::Duration;

use bytes::BytesMut;

use super::error::ApiError;
use crate::agent::event::AgentEvent;
use crate::agent::unix_seconds;
use crate::chat::decode::ReplyOptions;
use crate::chat::encode::{self, AnswerHead, ChunkEncoder, CompletionCollector, ProgressDelivery};
use crate::ids::fresh_completion_id;

/// The dialect of an answer, with the options of its request.
#[derive(Debug)]
pub(super) enum Reply {
    /// As a chat completion.
    Chat {
        /// What the request asked for.
        options: ReplyOptions,
        /// Whether the client is an official SDK.
        official_sdk: bool,
    },
}

/// The encoder of a streamed answer.
#[derive(Debug)]
pub(super) enum StreamEncoder {
    Chat(ChunkEncoder),
}

/// The collector of an answer in one piece.
#[derive(Debug)]
pub(super) enum AnswerCollector {
    Chat(CompletionCollector),
}

impl Reply {
    /// Whether the answer is streamed.
    pub(super) fn is_streamed(&self) -> bool {
        match self {
            Self::Chat { options, .. } => options.stream,
        }
    }

    /// The encoder of a streamed answer.
    pub(super) fn stream_encoder(&self) -> StreamEncoder {
        match self {
            Self::Chat {
                options,
                official_sdk,
            } => {
                let delivery = ProgressDelivery::choose(options.progress, *official_sdk);
                let encoder = ChunkEncoder::new(head(options), delivery, options.include_usage);
                StreamEncoder::Chat(encoder)
            }
        }
    }

    /// The collector of an answer in one piece.
    pub(super) fn collector(&self) -> AnswerCollector {
        match self {
            Self::Chat { options, .. } => {
                AnswerCollector::Chat(CompletionCollector::new(head(options)))
            }
        }
    }
}

impl StreamEncoder {
    /// Encodes one event.
    pub(super) fn encode(&mut self, event: AgentEvent, out: &mut BytesMut) {
        match self {
            Self::Chat(encoder) => encoder.encode(event, out),
        }
    }

    /// Ends the stream with an error.
    pub(super) fn fail(&self, error: &ApiError, out: &mut BytesMut) {
        match self {
            Self::Chat(_) => encode::fail(&error.envelope(), out),
        }
    }
}

impl AnswerCollector {
    /// Adds one event.
    pub(super) fn take(&mut self, event: AgentEvent) {
        match self {
            Self::Chat(collector) => collector.take(event),
        }
    }

    /// The JSON body of the answer, and the time spent waiting for models and tools; `None` without a `Finished` event.
    pub(super) fn finish(self) -> Option<(String, Duration)> {
        match self {
            Self::Chat(collector) => collector.finish(),
        }
    }
}

fn head(options: &ReplyOptions) -> AnswerHead {
    AnswerHead {
        id: fresh_completion_id(),
        created: unix_seconds(),
        model: options.model.clone(),
    }
}
