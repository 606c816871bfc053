//! The events of a model call, independent of the dialect of the upstream.

use super::ending::AnswerEnd;
use super::tool::{CallKind, CallMembers};
use super::usage::Usage;

/// A piece of a model's answer.
///
/// The upstream client decodes the chunks of every dialect into these events, in the order in which they arrive.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// Visible text; never empty.
    Text(String),
    /// Reasoning text. It is empty if the upstream sent an empty field; some servers want that field back.
    Reasoning {
        /// The text.
        text: String,
        /// The field that the upstream used. The history is sent with the same field.
        field: &'static str,
    },
    /// The parts of a content that is a list, as JSON texts, if they are more than plain texts. The events after it have
    /// their texts.
    Parts(Vec<Box<str>>),
    /// A piece of a tool call.
    ToolCall(ToolCallDelta),
    /// Fields of the delta that loopwright does not act on (`refusal`, `annotations`, `audio`, …): key, JSON text.
    DeltaExtra(Vec<(String, Box<str>)>),
    /// Fields of the choice that loopwright does not act on (`logprobs`, …): key, JSON text. They belong to the
    /// previous event.
    ChoiceExtra(Vec<(String, Box<str>)>),
    /// Fields of the chunk that loopwright does not act on (`system_fingerprint`, `service_tier`, …): key, JSON text.
    ChunkExtra(Vec<(String, Box<str>)>),
    /// How the upstream ended the answer. If an upstream says it several times, the last one is valid.
    Finish(AnswerEnd),
    /// Token counts of the whole call. If an upstream sends several, the last one is valid.
    Usage(Usage),
    /// The name of the model, as the upstream reports it.
    Model(String),
    /// All text of the answer so far was reasoning: only the end of the reasoning was marked.
    TextWasReasoning {
        /// The field of the reasoning.
        field: &'static str,
    },
}

/// A piece of a tool call. Upstreams differ in the members that they send with each piece.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolCallDelta {
    /// The position of the call in the message, if the upstream sent it.
    pub index: Option<u32>,
    /// The id of the call, if it was sent and is not empty.
    pub id: Option<String>,
    /// The name of the tool, or a piece of it from upstreams that split names; never empty.
    pub name: Option<String>,
    /// A piece of the arguments' JSON text.
    pub arguments: Option<String>,
    /// Whether the arguments are complete: they were an object, or the message was not streamed.
    pub whole: bool,
    /// The type of the call.
    pub kind: CallKind,
    /// How the call was written, if it was written as text.
    pub text_form: Option<TextForm>,
    /// What else the piece has.
    pub members: CallMembers,
}

/// How a call was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextForm {
    /// `<tool_call>…</tool_call>`
    ToolCallTag,
    /// `<function=…>…</function>`
    FunctionTag,
    /// `[TOOL_CALLS]…`
    ToolCallsToken,
    /// `<|python_tag|>…`
    PythonTag,
    /// A JSON object without a mark.
    BareJson,
    /// `<invoke name="…">…</invoke>`
    InvokeTag,
    /// `<｜DSML｜invoke name="…">…</｜DSML｜invoke>`
    DsmlTag,
    /// `<｜tool▁call▁begin｜>…`
    DeepSeekTokens,
    /// `<|tool_call_begin|>…`
    KimiTokens,
    /// `<|channel|>commentary to=functions.…`
    HarmonyChannel,
}

impl TextForm {
    /// The name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ToolCallTag => "tool_call_tag",
            Self::FunctionTag => "function_tag",
            Self::ToolCallsToken => "tool_calls_token",
            Self::PythonTag => "python_tag",
            Self::BareJson => "bare_json",
            Self::InvokeTag => "invoke_tag",
            Self::DsmlTag => "dsml_tag",
            Self::DeepSeekTokens => "deepseek_tokens",
            Self::KimiTokens => "kimi_tokens",
            Self::HarmonyChannel => "harmony_channel",
        }
    }
}
