//! Encodes a turn as a completion, and as the chunks of its stream.

use bytes::BytesMut;

use super::decode::ChatOptions;
use super::encode::{
    AnswerHead, ChunkEncoder, ChunkOptions, CompletionCollector, ProgressDelivery,
};
use crate::dialects::end::Answer;
use agent::event::AgentEvent;
use agent::unix_seconds;
use protocol::ids::RunId;

/// The encoder of a turn.
#[derive(Debug)]
pub(crate) struct ChatEncoding {
    stream: ChunkEncoder,
    /// `None` once the answer is made.
    collector: Option<CompletionCollector>,
}

impl ChatEncoding {
    pub(crate) fn new(options: &ChatOptions, run: &RunId) -> Self {
        let head = AnswerHead {
            id: run.completion_id(),
            created: unix_seconds(),
            model: options.model.clone(),
        };
        // Without a stream, the log is as a client reads it that asked for everything.
        let (delivery, include_usage) = match options.stream {
            true => (
                ProgressDelivery::choose(options.progress, options.official_sdk),
                options.include_usage,
            ),
            false => (ProgressDelivery::Named, true),
        };
        let chunks = ChunkOptions {
            delivery,
            images: options.images,
            include_usage,
        };
        Self {
            stream: ChunkEncoder::new(head.clone(), chunks),
            collector: Some(CompletionCollector::new(head, options.images)),
        }
    }

    /// Encodes one event. Returns the answer with the last one.
    pub(crate) fn encode(&mut self, event: AgentEvent, out: &mut BytesMut) -> Option<Answer> {
        self.stream.encode(&event, out);
        let ends = matches!(event, AgentEvent::Finished(_));
        self.collector.as_mut()?.take(event);
        let collector = self.collector.take_if(|_| ends)?;
        collector.finish().map(Answer::passing)
    }
}
