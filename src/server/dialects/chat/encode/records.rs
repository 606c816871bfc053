//! The members that loopwright adds to an answer: `agentic_tool_calls`, `files`, `agent`.

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::approvals::PendingApproval;
use agent::event::{KeptImage, Notice, Outcome, ProducedFile, ToolCallRecord, ToolStatus};
use agent::stop::StopReason;
use blobs::segments::{BinaryContent, SegmentedText};
use protocol::ids::SessionId;
use protocol::openai::file::FileObject;
use protocol::openai::raw::quoted;
use protocol::openai::usage::Usage;

/// An entry of `agentic_tool_calls`: a call that the server ran.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AgenticToolCall")]
pub(super) struct ToolCallEntry<'a> {
    /// The round, from 0.
    round: u32,
    /// The id of the call.
    tool_call_id: &'a str,
    /// The name of the tool.
    name: &'a str,
    /// The text that the tool was given and that the history holds.
    arguments: &'a str,
    /// The text that the model was given.
    result_content: &'a str,
    /// How the call ended.
    status: ToolStatus,
    /// How long it took, in milliseconds.
    duration_ms: u64,
    /// The PNG images of the result as base64. Other types are among the files of the call.
    #[serde(skip_serializing_if = "ImageTexts::is_empty")]
    result_images_base64: ImageTexts<'a>,
    /// Ids of the files that the call made.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    file_ids: &'a [String],
    /// What was mended in the model's own text of the arguments.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    repairs: &'a [String],
    /// A person has changed the arguments before the call ran; absent if not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    edited: bool,
}

/// An entry of `files`: an OpenAI file object with additional members.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ProducedFile")]
pub(crate) struct FileEntry<'a> {
    #[serde(flatten)]
    file: FileObject<'a>,
    /// The session of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    /// The round that made the file, from 0.
    round: u32,
    /// The content as base64, up to 8 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    data: Option<Base64<'a>>,
}

/// What the client should know about the turn: `agentic_notice`, and an entry of `agent.notices`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Notice")]
pub(super) struct NoticeEntry<'a> {
    /// The class, such as `retry` or `limit_reached`.
    kind: &'a str,
    /// A text for people.
    message: &'a str,
}

/// What happened in the turn: `agent` of an answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AgentSummary<'a> {
    /// Why the turn ended.
    stop_reason: StopReason,
    /// The rounds in which server-side tools ran.
    rounds: u32,
    /// The calls of the model.
    model_calls: u32,
    /// The `usage` of each model call; `null` where the upstream reported none.
    #[schemars(with = "Vec<Option<Map<String, Value>>>")]
    usage_by_round: Vec<Option<Value>>,
    /// The calls that wait for a person's decision.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    approvals: Vec<PendingApproval<'a>>,
    /// What the client should know about the turn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notices: Vec<NoticeEntry<'a>>,
}

/// The PNG images as base64. Other types are among the files of the call.
#[derive(Debug, Clone, Copy, JsonSchema)]
#[schemars(inline)]
pub(super) struct ImageTexts<'a>(#[schemars(with = "Vec<String>")] pub(super) &'a [KeptImage]);

/// The images of calls as OpenRouter has them in a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessageImages<'a>(pub(super) &'a [ToolCallRecord]);

/// An image of a tool, as a content part.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct MessageImage<'a> {
    #[serde(rename = "type")]
    #[schemars(extend("const" = "image_url"))]
    kind: &'static str,
    image_url: ImageUrl<'a>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct ImageUrl<'a> {
    /// A `data:` URL.
    #[schemars(with = "String")]
    url: DataUrl<'a>,
}

#[derive(Debug)]
struct DataUrl<'a>(&'a KeptImage);

/// Bytes that are serialized as base64, without a copy of the encoded text in memory.
#[derive(Debug)]
struct Base64<'a>(&'a [u8]);

/// An entry of `agentic_tool_calls` with the images of the call.
pub(super) fn call_text(record: ToolCallRecord) -> SegmentedText {
    let mut text = open_call_text(record);
    text.push_text("}");
    text
}

/// The same without its closing brace.
pub(super) fn open_call_text(mut record: ToolCallRecord) -> SegmentedText {
    let images = std::mem::take(&mut record.images);
    let mut text = object_text(&ToolCallEntry::from(&record));
    let mut before = ",\"result_images_base64\":[\"";
    for kept in images.into_iter().filter(KeptImage::is_png) {
        text.push_text(before);
        before = "\",\"";
        text.push_base64(kept.into_content());
    }
    if !before.starts_with(',') {
        text.push_text("\"]");
    }
    text
}

/// The images of a call as [`MessageImages`] has them.
pub(super) fn message_images(record: &ToolCallRecord) -> impl Iterator<Item = SegmentedText> {
    record.images.iter().map(|kept| {
        let url = url_prefix(kept);
        let before = format!(r#"{{"type":"image_url","image_url":{{"url":"{url}"#);
        let mut text = SegmentedText::from(before);
        text.push_base64(kept.clone().into_content());
        text.push_text(r#""}}"#);
        text
    })
}

/// What is before the base64 in the `data:` URL of an image, as a part of a JSON string.
fn url_prefix(image: &KeptImage) -> String {
    let url = quoted(&format!("data:{};base64,", image.mime_type));
    url.trim_matches('"').to_owned()
}

/// An entry of `files` with the content of the file.
pub(super) fn file_text(mut file: ProducedFile) -> SegmentedText {
    let data = file.data.take();
    let content = data.map(|bytes| file.file.take().unwrap_or(BinaryContent::Memory(bytes)));
    let mut text = object_text(&FileEntry::from(&file));
    if let Some(content) = content {
        text.push_text(",\"data\":\"");
        text.push_base64(content);
        text.push_text("\"");
    }
    text.push_text("}");
    text
}

/// The JSON text of an object without its closing brace.
fn object_text(entry: &impl Serialize) -> SegmentedText {
    let mut json = serde_json::to_string(entry).unwrap_or_else(|_| "{}".to_owned());
    json.pop();
    json.into()
}

impl<'a> From<&'a ToolCallRecord> for ToolCallEntry<'a> {
    fn from(record: &'a ToolCallRecord) -> Self {
        Self {
            round: record.round,
            tool_call_id: &record.tool_call_id,
            name: &record.name,
            arguments: &record.arguments,
            result_content: &record.content,
            status: record.status,
            duration_ms: record.duration_ms(),
            // Only `call_text` writes them.
            result_images_base64: ImageTexts(&[]),
            file_ids: &record.file_ids,
            repairs: &record.repairs,
            edited: record.edited,
        }
    }
}

impl<'a> From<&'a ProducedFile> for FileEntry<'a> {
    fn from(file: &'a ProducedFile) -> Self {
        Self {
            file: FileObject {
                id: &file.id,
                bytes: file.size,
                created_at: file.created_at,
                name: &file.name,
                mime_type: &file.mime_type,
                purpose: &file.purpose,
            },
            session_id: file.session_id.as_ref().map(SessionId::as_str),
            round: file.round,
            data: file.data.as_deref().map(Base64),
        }
    }
}

impl<'a> From<&'a Notice> for NoticeEntry<'a> {
    fn from(notice: &'a Notice) -> Self {
        Self {
            kind: &notice.kind,
            message: &notice.message,
        }
    }
}

impl<'a> From<&'a Outcome> for AgentSummary<'a> {
    fn from(outcome: &'a Outcome) -> Self {
        let usage = |usage: &Option<Usage>| usage.as_ref().map(Usage::to_value);
        let session = outcome.session_id.as_ref();
        let approvals = outcome.approvals.iter();
        Self {
            stop_reason: outcome.stop_reason,
            rounds: outcome.rounds,
            model_calls: outcome.model_calls,
            usage_by_round: outcome.usage_by_round.iter().map(usage).collect(),
            approvals: approvals
                .map(|call| PendingApproval::new(call, session))
                .collect(),
            notices: outcome.notices.iter().map(NoticeEntry::from).collect(),
        }
    }
}

impl ImageTexts<'_> {
    pub(super) fn is_empty(&self) -> bool {
        !self.0.iter().any(KeptImage::is_png)
    }
}

impl Serialize for ImageTexts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let images = self.0.iter().filter(|image| image.is_png());
        serializer.collect_seq(images.map(|image| Base64(&image.bytes)))
    }
}

impl MessageImages<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|record| record.images.is_empty())
    }
}

impl Serialize for MessageImages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let images = self.0.iter().flat_map(|record| &record.images);
        serializer.collect_seq(images.map(|image| MessageImage {
            kind: "image_url",
            image_url: ImageUrl {
                url: DataUrl(image),
            },
        }))
    }
}

impl Serialize for DataUrl<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let data = Base64Display::new(&self.0.bytes, &STANDARD);
        let mime_type = &self.0.mime_type;
        serializer.collect_str(&format_args!("data:{mime_type};base64,{data}"))
    }
}

impl Serialize for Base64<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(self.0, &STANDARD))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use agent::event::{CodeDetail, ToolDetail, ToolKind, ToolStatus};

    fn image(mime_type: &'static str, byte: u8) -> KeptImage {
        KeptImage {
            mime_type: mime_type.into(),
            bytes: vec![byte].into(),
            file: None,
        }
    }

    #[tokio::test]
    async fn an_entry_of_a_call_has_the_documented_fields_only() {
        let record = ToolCallRecord {
            index: 0,
            round: 0,
            tool_call_id: "call_1".into(),
            name: "t".into(),
            arguments: "{}".into(),
            content: "text".into(),
            status: ToolStatus::Ok,
            duration: Duration::from_millis(7),
            images: vec![image("image/png", 0), image("image/gif", 1)],
            frames: vec![],
            file_ids: vec!["file-1".into()],
            repairs: vec![],
            edited: false,
            kind: ToolKind::CodeExecution,
            detail: Some(Box::new(ToolDetail::Code(CodeDetail::default()))),
        };
        let text = call_text(record).whole().await.unwrap();
        let entry: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(entry["result_images_base64"], serde_json::json!(["AA=="]));
        let mut keys: Vec<&String> = entry.as_object().unwrap().keys().collect();
        keys.sort_unstable();
        assert_eq!(
            keys,
            [
                "arguments",
                "duration_ms",
                "file_ids",
                "name",
                "result_content",
                "result_images_base64",
                "round",
                "status",
                "tool_call_id"
            ]
        );
    }
}
