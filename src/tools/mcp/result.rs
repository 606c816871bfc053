//! Results of MCP tools as results of ours: text, images, files.

use bytes::Bytes;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde::Deserialize;
use serde_json::Value;

use crate::webhook::parts::{MAX_ENTRIES, decode_base64, file_base_name, image, is_media_type};
use crate::{OutputStatus, ToolFile, ToolOutput};

/// The media type of content that has none.
const DEFAULT_MEDIA_TYPE: &str = "application/octet-stream";

/// A result that may have malformed members, read member by member; `None` if the value is no result.
pub(super) fn read(value: &Value) -> Option<CallToolResult> {
    let members = value.as_object()?;
    let known = ["content", "structuredContent", "isError"];
    if !known.iter().any(|name| members.contains_key(*name)) {
        return None;
    }
    let mut result = CallToolResult::default();
    result.content = match members.get("content") {
        Some(Value::Array(blocks)) => blocks.iter().map(block).collect(),
        Some(Value::String(text)) => vec![ContentBlock::text(text)],
        Some(Value::Null) | None => Vec::new(),
        Some(one) => vec![block(one)],
    };
    result.structured_content = members.get("structuredContent").cloned();
    result.is_error = members
        .get("isError")
        .map(|is_error| is_error.as_bool().unwrap_or(false) || is_error.as_str() == Some("true"));
    Some(result)
}

/// A block of content. One that cannot be read is given as its JSON, unless it holds a file.
fn block(value: &Value) -> ContentBlock {
    if let Value::String(text) = value {
        return ContentBlock::text(text);
    }
    let read = ContentBlock::deserialize(value).or_else(|_| {
        let mut members = value.as_object().cloned().unwrap_or_default();
        members.retain(|name, _| !matches!(name.as_str(), "annotations" | "_meta" | "title"));
        ContentBlock::deserialize(Value::Object(members))
    });
    read.unwrap_or_else(|_| {
        let kind = value["type"].as_str().unwrap_or_default();
        let holds_file = ["data", "blob"]
            .iter()
            .any(|name| value[name].is_string() || value["resource"][name].is_string());
        ContentBlock::text(match holds_file {
            true => format!("(a part of the type `{kind}` could not be read and is left out)"),
            false => value.to_string(),
        })
    })
}

/// The result for the model and the client.
pub(super) fn output(result: CallToolResult) -> ToolOutput {
    let mut collected = Collected::default();
    for block in result.content {
        collected.add(block);
    }
    if let Some(structured) = result.structured_content {
        collected.add_structured(&structured);
    }
    let Collected {
        texts,
        mut output,
        left_out,
    } = collected;
    output.content = texts.join("\n");
    if left_out > 0 {
        let note = format!("({left_out} parts of the result could not be read and are left out)");
        if !output.content.is_empty() {
            output.content.push('\n');
        }
        output.content.push_str(&note);
    }
    if result.is_error == Some(true) {
        output.status = OutputStatus::Error;
    }
    output
}

#[derive(Default)]
struct Collected {
    texts: Vec<String>,
    output: ToolOutput,
    left_out: usize,
}

impl Collected {
    fn add(&mut self, block: ContentBlock) {
        match block {
            ContentBlock::Text(text) => self.texts.push(text.text),
            ContentBlock::Image(part) => match image(&part.mime_type, &part.data.into()) {
                Some(image) if self.output.images.len() < MAX_ENTRIES => {
                    self.output.images.push(image);
                }
                Some(_) | None => self.left_out += 1,
            },
            ContentBlock::Audio(part) => {
                let name = format!("audio.{}", extension(&part.mime_type));
                self.add_file(&name, Some(part.mime_type), part.data.as_bytes());
            }
            ContentBlock::Resource(part) => self.add_resource(part.resource),
            ContentBlock::ResourceLink(link) => {
                let described = link.description.as_deref().or(link.title.as_deref());
                let described = described
                    .map(|text| format!(": {text}"))
                    .unwrap_or_default();
                let text = format!("[{}]({}){described}", link.name, link.uri);
                self.texts.push(text);
            }
            _ => self.left_out += 1,
        }
    }

    fn add_resource(&mut self, resource: ResourceContents) {
        match resource {
            ResourceContents::TextResourceContents { uri, text, .. } => {
                self.texts.push(format!("{uri}\n{text}"));
            }
            ResourceContents::BlobResourceContents {
                uri,
                mime_type,
                blob,
                ..
            } => {
                let kind = mime_type.as_deref().unwrap_or_default();
                let blob = Bytes::from(blob);
                match image(kind, &blob) {
                    Some(image) if self.output.images.len() < MAX_ENTRIES => {
                        self.output.images.push(image);
                    }
                    Some(_) | None => self.add_file(&uri, mime_type, &blob),
                }
                self.texts.push(uri);
            }
            _ => self.left_out += 1,
        }
    }

    fn add_file(&mut self, name: &str, mime_type: Option<String>, data: &[u8]) {
        let content = std::str::from_utf8(data).ok().and_then(decode_base64);
        let Some(content) = content.filter(|_| self.output.files.len() < MAX_ENTRIES) else {
            self.left_out += 1;
            return;
        };
        let name = file_base_name(name);
        self.output.files.push(ToolFile {
            path: name.clone(),
            name,
            mime_type: mime_type
                .filter(|kind| is_media_type(kind))
                .unwrap_or_else(|| DEFAULT_MEDIA_TYPE.to_owned()),
            content: content.into(),
        });
    }

    /// Adds structured content, which servers should also give as text.
    fn add_structured(&mut self, structured: &Value) {
        let is_same = |text: &String| {
            serde_json::from_str::<Value>(text).is_ok_and(|value| value == *structured)
        };
        if !self.texts.iter().any(is_same) {
            self.texts.push(structured.to_string());
        }
    }
}

/// The file extension of an audio type.
fn extension(mime_type: &str) -> &'static str {
    match mime_type {
        "audio/wav" | "audio/x-wav" | "audio/wave" => "wav",
        "audio/mpeg" | "audio/mp3" => "mp3",
        "audio/ogg" => "ogg",
        "audio/flac" => "flac",
        "audio/aac" => "aac",
        "audio/mp4" => "m4a",
        "audio/webm" => "webm",
        _ => "bin",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn whole(result: Value) -> ToolOutput {
        output(serde_json::from_value(result).unwrap())
    }

    #[test]
    fn every_kind_of_content_becomes_text_an_image_or_a_file() {
        let found = whole(json!({"content": [
            {"type": "text", "text": "one"},
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "two"}},
            {"type": "resource", "resource": {"uri": "file:///b/c.bin", "blob": "aGk="}},
            {"type": "resource", "resource": {"uri": "x://p", "blob": "aGk=", "mimeType": "image/jpeg"}},
            {"type": "resource_link", "uri": "https://h/r", "name": "r", "description": "a link"},
        ]}));
        assert_eq!(
            found.content,
            "one\nfile:///a.txt\ntwo\nfile:///b/c.bin\nx://p\n[r](https://h/r): a link"
        );
        let kinds: Vec<_> = found.images.iter().map(|image| &*image.mime_type).collect();
        assert_eq!(kinds, ["image/png", "image/jpeg"]);
        let files: Vec<_> = found
            .files
            .iter()
            .map(|file| (file.name.as_str(), file.mime_type.as_str()))
            .collect();
        assert_eq!(
            files,
            [
                ("audio.wav", "audio/wav"),
                ("c.bin", "application/octet-stream")
            ]
        );
        assert_eq!(found.status, OutputStatus::Ok);
    }

    #[test]
    fn structured_content_is_given_once() {
        for (result, expected) in [
            (
                json!({"content": [], "structuredContent": {"a": 1}}),
                r#"{"a":1}"#,
            ),
            (
                json!({"content": [{"type": "text", "text": "{ \"a\": 1 }"}], "structuredContent": {"a": 1}}),
                "{ \"a\": 1 }",
            ),
            (
                json!({"content": [{"type": "text", "text": "see"}], "structuredContent": {"a": 1}}),
                "see\n{\"a\":1}",
            ),
            (json!({"content": []}), ""),
        ] {
            assert_eq!(whole(result).content, expected);
        }
    }

    #[test]
    fn one_odd_member_costs_itself_only() {
        let text = json!({"type": "text", "text": "42 rows were written"});
        for (odd, told) in [
            (
                json!({"type": "json", "json": {"a": 1}}),
                "{\"json\":{\"a\":1},\"type\":\"json\"}",
            ),
            (
                json!({"type": "text", "text": null}),
                "{\"text\":null,\"type\":\"text\"}",
            ),
            (
                json!({"type": "text", "text": "more", "annotations": "none"}),
                "more",
            ),
            (json!("more"), "more"),
            (json!(7), "7"),
            (
                json!({"type": "image", "data": "aGk="}),
                "(a part of the type `image` could not be read and is left out)",
            ),
            (
                json!({"type": "resource", "resource": {"blob": "aGk="}}),
                "(a part of the type `resource` could not be read and is left out)",
            ),
        ] {
            let result = read(&json!({"content": [text, odd], "isError": false})).unwrap();
            let found = output(result);
            assert_eq!(found.content, format!("42 rows were written\n{told}"));
            assert_eq!(found.status, OutputStatus::Ok);
        }
        for (result, content, status) in [
            (json!({"content": "plain"}), "plain", OutputStatus::Ok),
            (
                json!({"content": text}),
                "42 rows were written",
                OutputStatus::Ok,
            ),
            (
                json!({"content": null, "isError": "true"}),
                "",
                OutputStatus::Error,
            ),
            (
                json!({"content": [text], "isError": "no"}),
                "42 rows were written",
                OutputStatus::Ok,
            ),
            (
                json!({"content": {"odd": 1}, "structuredContent": {"a": 1}}),
                "{\"odd\":1}\n{\"a\":1}",
                OutputStatus::Ok,
            ),
        ] {
            let found = output(read(&result).unwrap());
            assert_eq!((found.content.as_str(), found.status), (content, status));
        }
        for result in [json!({"rows": 42}), json!(["text"]), json!("text")] {
            assert_eq!(read(&result), None);
        }
    }

    #[test]
    fn errors_and_what_cannot_be_read_are_said() {
        let found = whole(
            json!({"isError": true, "content": [{"type": "image", "data": "!", "mimeType": "image/png"}]}),
        );
        assert_eq!(found.status, OutputStatus::Error);
        assert!(found.content.contains("1 parts"), "{}", found.content);
    }
}
