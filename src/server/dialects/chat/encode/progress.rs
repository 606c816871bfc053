//! Progress events on a stream: tool calls and their output, produced files, notices.
//!
//! Every event is a valid chunk with an empty delta, so that OpenAI clients accept it.

pub(super) mod members;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use self::members::{
    CallResult, FILE_PRODUCED, FileProducedEvent, NOTICE, NoticeEvent, Phase, ProgressData,
    TOOL_CALL_PROGRESS, TOOL_OUTPUT, ToolCallProgress, ToolData, ToolOutputEvent, WebArguments,
};
use super::approvals::{APPROVAL_REQUIRED, ApprovalRequiredEvent};
use super::arguments::as_json;
use super::records::ImageTexts;
use crate::dialects::chat::decode::ProgressMode;
use agent::event::{
    Calling, CodeDetail, Notice, ProducedFile, ToolCallRecord, ToolDetail, ToolKind, WaitingCall,
    WebDetail,
};
use protocol::ids::SessionId;

/// How progress is sent to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgressDelivery {
    /// As chunks with an `event:` line.
    Named,
    /// As chunks without an `event:` line.
    Chunk,
    /// Progress is not sent.
    None,
}

/// One progress event: its name and the members that it adds to the empty chunk.
#[derive(Debug)]
pub(super) struct ProgressEvent {
    pub(super) name: &'static str,
    /// A JSON object.
    pub(super) members: String,
}

impl<'a> ProgressData<'a> {
    fn calling(calling: &'a Calling) -> Self {
        let tool_data = match calling.kind {
            ToolKind::Custom => ToolData::Custom {
                arguments: as_json(&calling.arguments),
                content: None,
            },
            ToolKind::CodeExecution => ToolData::Code {
                code: code(&calling.arguments),
            },
            ToolKind::WebSearch => ToolData::Web {
                arguments: web_arguments(&calling.arguments),
                result: None,
            },
        };
        Self {
            tool_type: calling.kind,
            tool_data,
        }
    }

    fn complete(record: &'a ToolCallRecord) -> Self {
        let tool_data = match (record.kind, &record.detail) {
            (ToolKind::Custom, _) => ToolData::Custom {
                arguments: as_json(&record.arguments),
                content: Some(&record.content),
            },
            (ToolKind::CodeExecution, detail) => ToolData::CodeResult {
                detail: match detail.as_deref() {
                    Some(ToolDetail::Code(detail)) => Cow::Borrowed(detail),
                    _ => Cow::Owned(not_run(record)),
                },
                images_base64: ImageTexts(&record.images),
                video_frames_base64: ImageTexts(&record.frames),
                video_frame_count: record.frames.len(),
            },
            (ToolKind::WebSearch, detail) => ToolData::Web {
                arguments: web_arguments(&record.arguments),
                result: Some(match detail.as_deref() {
                    Some(ToolDetail::Web(detail)) => Cow::Borrowed(detail),
                    _ => Cow::Owned(WebDetail::default()),
                }),
            },
        };
        Self {
            tool_type: record.kind,
            tool_data,
        }
    }
}

/// The detail of code that was not run: the exception is the text that the model got.
fn not_run(record: &ToolCallRecord) -> CodeDetail {
    CodeDetail {
        code: code(&record.arguments).unwrap_or_default().into_owned(),
        exception: Some(record.content.clone()),
        execution_time_ms: record.duration_ms(),
        ..CodeDetail::default()
    }
}

fn web_arguments(arguments: &str) -> WebArguments<'_> {
    serde_json::from_str(arguments).unwrap_or_default()
}

fn code(arguments: &str) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Arguments<'a> {
        #[serde(borrow)]
        code: Cow<'a, str>,
    }
    let arguments: Arguments<'_> = serde_json::from_str(arguments).ok()?;
    Some(arguments.code)
}

impl ProgressDelivery {
    /// The delivery for the mode of a request. With `auto` the official SDKs get no named events, because some misread
    /// them.
    pub(crate) fn choose(mode: ProgressMode, official_sdk: bool) -> Self {
        match mode {
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
            phase: Phase::Calling,
            call_result: None,
            data: ProgressData::calling(calling),
        };
        Self::new(TOOL_CALL_PROGRESS, &progress)
    }

    pub(super) fn complete(record: &ToolCallRecord) -> Self {
        let progress = ToolCallProgress {
            kind: TOOL_CALL_PROGRESS,
            round: record.round,
            tool_name: &record.name,
            tool_call_id: &record.tool_call_id,
            phase: Phase::Complete,
            call_result: Some(CallResult {
                status: record.status,
                duration_ms: record.duration_ms(),
                file_ids: &record.file_ids,
            }),
            data: ProgressData::complete(record),
        };
        Self::new(TOOL_CALL_PROGRESS, &progress)
    }

    pub(super) fn output(of: &Calling, text: &str, stream: &str) -> Self {
        let output = ToolOutputEvent {
            kind: TOOL_OUTPUT,
            round: of.round,
            tool_name: &of.name,
            tool_call_id: &of.tool_call_id,
            text,
            stream,
        };
        Self::new(TOOL_OUTPUT, &output)
    }

    pub(super) fn approval(call: &WaitingCall, session_id: Option<&SessionId>) -> Self {
        let event = ApprovalRequiredEvent::new(call, session_id);
        Self::new(APPROVAL_REQUIRED, &event)
    }

    pub(super) fn file(file: &ProducedFile) -> Self {
        let produced = FileProducedEvent {
            kind: FILE_PRODUCED,
            file: file.into(),
        };
        Self::new(FILE_PRODUCED, &produced)
    }

    pub(super) fn notice(notice: &Notice) -> Self {
        let notice = NoticeEvent {
            kind: NOTICE,
            notice: notice.into(),
        };
        Self::new(NOTICE, &notice)
    }

    fn new(name: &'static str, members: &impl Serialize) -> Self {
        Self {
            name,
            members: serde_json::to_string(members).unwrap_or_else(|_| "{}".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use agent::event::{KeptImage, ToolStatus};

    fn data(event: &ProgressEvent) -> Value {
        let mut members: Value = serde_json::from_str(&event.members).unwrap();
        members["data"].take()
    }

    fn calling_of(kind: ToolKind, arguments: &str) -> Calling {
        Calling {
            round: 0,
            name: "t".into(),
            tool_call_id: "call_1".into(),
            arguments: arguments.into(),
            kind,
            on_server: None,
            may_wait: false,
        }
    }

    fn image(byte: u8) -> KeptImage {
        KeptImage {
            mime_type: "image/png".into(),
            bytes: vec![byte].into(),
            file: None,
        }
    }

    fn record(kind: ToolKind, detail: Option<ToolDetail>) -> ToolCallRecord {
        ToolCallRecord {
            index: 0,
            round: 0,
            tool_call_id: "call_1".into(),
            name: "t".into(),
            arguments: r#"{"code":"1+1"}"#.into(),
            content: "told".into(),
            status: ToolStatus::Ok,
            duration: Duration::from_millis(7),
            images: vec![image(0)],
            file_ids: vec!["file-1".into()],
            repairs: vec![],
            edited: false,
            kind,
            detail: detail.map(Box::new),
            frames: vec![image(1), image(2)],
        }
    }

    #[test]
    fn code_is_shown_as_code_and_other_calls_by_their_arguments() {
        let code = calling_of(ToolKind::CodeExecution, r#"{"code":"print(\"a\")"}"#);
        assert_eq!(
            data(&ProgressEvent::calling(&code)),
            json!({"tool_type": "code_execution", "code": "print(\"a\")"})
        );
        let unusable = calling_of(ToolKind::CodeExecution, "{");
        assert_eq!(
            data(&ProgressEvent::calling(&unusable)),
            json!({"tool_type": "code_execution"})
        );
        let custom = calling_of(ToolKind::Custom, r#"{"code":1}"#);
        assert_eq!(
            data(&ProgressEvent::calling(&custom)),
            json!({"tool_type": "custom", "arguments": {"code": 1}})
        );
    }

    #[test]
    fn the_result_of_code_has_no_empty_members() {
        let detail = CodeDetail {
            code: "1+1".into(),
            result: Some("2".into()),
            working_directory: "/mnt/data".into(),
            execution_time_ms: 3,
            ..CodeDetail::default()
        };
        let complete = ProgressEvent::complete(&record(
            ToolKind::CodeExecution,
            Some(ToolDetail::Code(detail)),
        ));
        assert_eq!(
            data(&complete),
            json!({
                "tool_type": "code_execution", "code": "1+1", "result": "2", "working_directory": "/mnt/data",
                "execution_time_ms": 3, "images_base64": ["AA=="], "video_frames_base64": ["AQ==", "Ag=="],
                "video_frame_count": 2,
            })
        );
        let not_run = ToolCallRecord {
            images: vec![],
            frames: vec![],
            ..record(ToolKind::CodeExecution, None)
        };
        assert_eq!(
            data(&ProgressEvent::complete(&not_run)),
            json!({"tool_type": "code_execution", "code": "1+1", "exception": "told", "execution_time_ms": 7})
        );
        assert_eq!(
            data(&ProgressEvent::complete(&record(ToolKind::Custom, None))),
            json!({"tool_type": "custom", "arguments": {"code": "1+1"}, "content": "told"})
        );
    }
}
