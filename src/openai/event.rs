//! What one streamed chunk of a model says, independent of how its server spelled it.

use super::tool::CallKind;
use super::usage::{FinishReason, Usage};

/// A piece of a model's answer, in arrival order.
///
/// The upstream client turns every dialect into these; nothing past it looks at a chunk again.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// Visible text; never empty.
    Text(String),
    /// Reasoning text; never empty.
    Reasoning {
        /// The text.
        text: String,
        /// The field that the server used, so that the history carries the same one back.
        field: &'static str,
    },
    /// A piece of a tool call.
    ToolCall(ToolCallDelta),
    /// Fields of the delta that loopwright does not act on (`refusal`, `annotations`, `audio`, …): key, JSON text.
    DeltaExtra(Vec<(String, Box<str>)>),
    /// Fields of the choice that loopwright does not act on (`logprobs`, …), which belong to the event before: key, JSON text.
    ChoiceExtra(Vec<(String, Box<str>)>),
    /// Fields of the chunk that loopwright does not act on (`system_fingerprint`, `service_tier`, …): key, JSON text.
    ChunkExtra(Vec<(String, Box<str>)>),
    /// The model stopped.
    Finish(FinishReason),
    /// Token counts of the whole call; where a server sends several the last one counts.
    Usage(Usage),
    /// The model's own name for itself.
    Model(String),
}

/// A piece of a tool call, as far as the server said which call it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolCallDelta {
    /// The position that the server gave, if it did.
    pub index: Option<u32>,
    /// The id, if it was given and not empty.
    pub id: Option<String>,
    /// The name or, with servers that split names, a piece of it; never empty.
    pub name: Option<String>,
    /// A piece of the arguments' JSON text.
    pub arguments: Option<String>,
    /// The arguments came whole (as an object, or in a message that was not streamed).
    pub whole: bool,
    /// How the tool is called.
    pub kind: CallKind,
}
