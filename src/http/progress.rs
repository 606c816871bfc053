//! What the client hears of tools while they run: `agentic_tool_call_progress` and its siblings.
//!
//! Every event is a valid chunk with an empty delta, so that no OpenAI client breaks on it.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::agent::event::{Calling, Notice, ProducedFile, ToolCallRecord, as_json};
use crate::agent::options::ProgressMode;
use crate::tools::ToolStatus;

/// How progress reaches this client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    /// With an `event:` line.
    Named,
    /// Without one.
    Chunk,
    /// Not at all.
    None,
}

/// One progress event: its name and the members that it adds to the empty chunk.
#[derive(Debug)]
pub(super) struct ProgressEvent {
    pub(super) name: &'static str,
    /// A JSON object.
    pub(super) members: String,
}

#[derive(Serialize)]
struct ToolCallProgress<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    round: u32,
    tool_name: &'a str,
    tool_call_id: &'a str,
    phase: &'static str,
    #[serde(flatten)]
    ended: Option<Ended<'a>>,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Ended<'a> {
    status: ToolStatus,
    duration_ms: u64,
    file_ids: &'a [String],
}

#[derive(Serialize)]
struct Data<'a> {
    tool_type: &'static str,
    arguments: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
}

#[derive(Serialize)]
struct ToolOutput<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    round: u32,
    tool_name: &'a str,
    tool_call_id: &'a str,
    text: &'a str,
    stream: &'a str,
}

#[derive(Serialize)]
struct Named<'a, T> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notice: Option<&'a T>,
}

const TOOL_CALL_PROGRESS: &str = "agentic_tool_call_progress";
const TOOL_OUTPUT: &str = "agentic_tool_output";
const FILE_PRODUCED: &str = "file_produced";
const NOTICE: &str = "agentic_notice";

impl Delivery {
    /// The delivery that a request asks for; `auto` spares the official SDKs, some of which misread named events.
    pub(super) fn choose(asked: ProgressMode, official_sdk: bool) -> Self {
        match asked {
            ProgressMode::Auto if official_sdk => Self::Chunk,
            ProgressMode::Auto | ProgressMode::Named => Self::Named,
            ProgressMode::Chunk => Self::Chunk,
            ProgressMode::None => Self::None,
        }
    }
}

impl ProgressEvent {
    pub(super) fn calling(calling: &Calling) -> Self {
        let progress = ToolCallProgress {
            kind: TOOL_CALL_PROGRESS,
            round: calling.round,
            tool_name: &calling.name,
            tool_call_id: &calling.tool_call_id,
            phase: "calling",
            ended: None,
            data: Data {
                tool_type: "custom",
                arguments: as_json(&calling.arguments),
                content: None,
            },
        };
        Self::new(TOOL_CALL_PROGRESS, &progress)
    }

    pub(super) fn complete(record: &ToolCallRecord) -> Self {
        let progress = ToolCallProgress {
            kind: TOOL_CALL_PROGRESS,
            round: record.round,
            tool_name: &record.name,
            tool_call_id: &record.tool_call_id,
            phase: "complete",
            ended: Some(Ended {
                status: record.status,
                duration_ms: record.duration_ms,
                file_ids: &record.file_ids,
            }),
            data: Data {
                tool_type: "custom",
                arguments: as_json(&record.arguments),
                content: Some(&record.result_content),
            },
        };
        Self::new(TOOL_CALL_PROGRESS, &progress)
    }

    pub(super) fn output(of: &Calling, text: &str, stream: &str) -> Self {
        let output = ToolOutput {
            kind: TOOL_OUTPUT,
            round: of.round,
            tool_name: &of.name,
            tool_call_id: &of.tool_call_id,
            text,
            stream,
        };
        Self::new(TOOL_OUTPUT, &output)
    }

    pub(super) fn file(file: &ProducedFile) -> Self {
        Self::new(
            FILE_PRODUCED,
            &Named {
                kind: FILE_PRODUCED,
                file: Some(file),
                notice: None,
            },
        )
    }

    pub(super) fn notice(notice: &Notice) -> Self {
        Self::new(
            NOTICE,
            &Named {
                kind: NOTICE,
                file: None,
                notice: Some(notice),
            },
        )
    }

    fn new(name: &'static str, members: &impl Serialize) -> Self {
        Self {
            name,
            members: serde_json::to_string(members).unwrap_or_else(|_| "{}".to_owned()),
        }
    }
}
