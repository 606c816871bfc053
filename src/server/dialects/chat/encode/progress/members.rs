//! The members that progress events add to an empty chunk.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::records::{FileEntry, ImageTexts, NoticeEntry};
use agent::event::{CodeDetail, ToolKind, ToolStatus, WebDetail};

pub(super) const TOOL_CALL_PROGRESS: &str = "agentic_tool_call_progress";
pub(super) const TOOL_OUTPUT: &str = "agentic_tool_output";
pub(super) const FILE_PRODUCED: &str = "file_produced";
pub(super) const NOTICE: &str = "agentic_notice";

/// A call starts or has ended.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::dialects::chat::encode) struct ToolCallProgress<'a> {
    #[serde(rename = "type")]
    #[schemars(extend("const" = TOOL_CALL_PROGRESS))]
    pub(super) kind: &'static str,
    /// The round, from 0.
    pub(super) round: u32,
    /// The name of the tool.
    pub(super) tool_name: &'a str,
    /// The id of the call.
    pub(super) tool_call_id: &'a str,
    /// Whether the call starts or has ended.
    pub(super) phase: Phase,
    #[serde(flatten)]
    pub(super) call_result: Option<CallResult<'a>>,
    /// What the call does, and with `complete` what it has brought.
    pub(super) data: ProgressData<'a>,
}

/// How far a call is.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// It starts.
    Calling,
    /// It has ended.
    Complete,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CallResult<'a> {
    /// With `complete`: how the call ended.
    pub(super) status: ToolStatus,
    /// With `complete`: how long it took, in milliseconds.
    pub(super) duration_ms: u64,
    /// With `complete`: ids of the files that it made.
    pub(super) file_ids: &'a [String],
}

/// What a call does or has brought, by the kind of its tool.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ProgressData<'a> {
    /// The kind of the tool.
    pub(super) tool_type: ToolKind,
    #[serde(flatten)]
    pub(super) tool_data: ToolData<'a>,
}

/// The members of `data` that depend on the kind of the tool.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum ToolData<'a> {
    Custom {
        /// The arguments: a parsed value, or their text if it is not JSON.
        #[schemars(with = "Value")]
        arguments: Box<RawValue>,
        /// With `complete`: the text that the model was given.
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<&'a str>,
    },
    Code {
        /// The code.
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<Cow<'a, str>>,
    },
    CodeResult {
        #[serde(flatten)]
        detail: Cow<'a, CodeDetail>,
        /// PNG images as base64. Other types are among the files of the call.
        #[serde(skip_serializing_if = "ImageTexts::is_empty")]
        images_base64: ImageTexts<'a>,
        /// Frames of animations, in the form of images.
        #[serde(skip_serializing_if = "ImageTexts::is_empty")]
        video_frames_base64: ImageTexts<'a>,
        /// How many frames there are.
        #[serde(skip_serializing_if = "is_zero")]
        video_frame_count: usize,
    },
    Web {
        #[serde(flatten)]
        arguments: WebArguments<'a>,
        #[serde(skip_serializing_if = "Option::is_none", flatten)]
        result: Option<Cow<'a, WebDetail>>,
    },
}

/// The arguments of a web tool that are shown.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
pub(super) struct WebArguments<'a> {
    /// What is searched for.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) query: Option<Cow<'a, str>>,
    /// The page that is read.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(super) url: Option<Cow<'a, str>>,
}

/// Live output of a running tool.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::dialects::chat::encode) struct ToolOutputEvent<'a> {
    #[serde(rename = "type")]
    #[schemars(extend("const" = TOOL_OUTPUT))]
    pub(super) kind: &'static str,
    /// The round, from 0.
    pub(super) round: u32,
    /// The name of the tool.
    pub(super) tool_name: &'a str,
    /// The id of the call.
    pub(super) tool_call_id: &'a str,
    /// The output.
    pub(super) text: &'a str,
    /// `stdout`, `stderr` or `progress`.
    pub(super) stream: &'a str,
}

/// A tool has made a file.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::dialects::chat::encode) struct FileProducedEvent<'a> {
    #[serde(rename = "type")]
    #[schemars(extend("const" = FILE_PRODUCED))]
    pub(super) kind: &'static str,
    /// The file.
    pub(super) file: FileEntry<'a>,
}

/// What the client should know.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::dialects::chat::encode) struct NoticeEvent<'a> {
    #[serde(rename = "type")]
    #[schemars(extend("const" = NOTICE))]
    pub(super) kind: &'static str,
    /// The notice.
    pub(super) notice: NoticeEntry<'a>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands the field over by reference"
)]
fn is_zero(count: &usize) -> bool {
    *count == 0
}
