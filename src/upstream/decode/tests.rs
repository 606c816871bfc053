//! Tests of the decoder, chunk by chunk.

mod chunks;
mod contents;
mod fast_path;
mod refusals;
mod tool_calls;

use serde_json::{Value, json};

use super::*;
use crate::settings::ThinkTags;
use protocol::openai::event::ToolCallDelta;
use protocol::openai::usage::FinishReason;

fn events(decoder: &mut ChunkDecoder, chunk: &Value) -> Vec<ModelEvent> {
    let mut out = Vec::new();
    decoder.decode(&chunk.to_string(), &mut out).unwrap();
    out
}

fn plain() -> ChunkDecoder {
    ChunkDecoder::new(&Quirks::default())
}

fn delta(delta: &Value) -> Vec<ModelEvent> {
    events(
        &mut plain(),
        &json!({"id":"x","object":"chat.completion.chunk","created":1,
            "choices":[{"index":0,"delta":delta,"finish_reason":null}]}),
    )
}

fn text(text: &str) -> ModelEvent {
    ModelEvent::Text(text.into())
}

fn reasoning(text: &str, field: &'static str) -> ModelEvent {
    let text = text.into();
    ModelEvent::Reasoning { text, field }
}

fn call(change: impl FnOnce(&mut ToolCallDelta)) -> ModelEvent {
    let mut call = ToolCallDelta::default();
    change(&mut call);
    ModelEvent::ToolCall(call)
}
