//! Content parts that hold a file: OpenAI's `file` and `input_file`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;

use super::error::PartForm;
use protocol::ids::FileId;
use protocol::openai::message::{FieldChange, Message, Role};
use protocol::openai::raw::RawObject;

/// The file of a content part.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FilePart {
    /// It has no file, or names one of another server.
    Other,
    /// It names a file by an id of this server's form.
    Stored { id: FileId, form: PartForm },
    /// It holds a file.
    Inline(InlineFile),
    /// It names a file by its URL.
    Remote(RemoteFile),
}

/// A file that has to be downloaded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RemoteFile {
    /// The file name as the client gave it; may be empty.
    pub(super) name: String,
    pub(super) url: String,
    pub(super) form: PartForm,
}

/// A file whose content is in the message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InlineFile {
    /// The file name as the client gave it; may be empty.
    pub(super) name: String,
    /// Base64, with or without the head of a data URL.
    pub(super) data: String,
    pub(super) form: PartForm,
}

impl FilePart {
    pub(super) fn read(json: &str) -> Self {
        Self::find(json).unwrap_or(Self::Other)
    }

    fn find(json: &str) -> Option<Self> {
        let part = RawObject::parse(json).ok()?;
        let inner;
        let (file, form) = match text(&part, "type")?.as_str() {
            "file" => {
                inner = RawObject::parse(part.get_some("file")?.get()).ok()?;
                (&inner, PartForm::File)
            }
            "input_file" => (&part, PartForm::InputFile),
            _ => return None,
        };
        if let Some(id) = text(file, "file_id") {
            let id = FileId::parse(&id)?;
            return Some(Self::Stored { id, form });
        }
        let name = text(file, "filename").unwrap_or_default();
        if let Some(url) = text(file, "file_url") {
            return Some(Self::Remote(RemoteFile { name, url, form }));
        }
        Some(Self::Inline(InlineFile {
            name,
            data: text(file, "file_data")?,
            form,
        }))
    }
}

impl InlineFile {
    /// The media type that the data URL names, and the content; `None` if the data is not base64.
    pub(super) fn decode(&self) -> Option<(Option<String>, Vec<u8>)> {
        let (mime_type, data) = match self.data.strip_prefix("data:") {
            Some(url) => {
                let (head, data) = url.split_once(',')?;
                let head = head.strip_suffix(";base64")?;
                let mime_type = head.split(';').next().filter(|text| !text.is_empty());
                (mime_type.map(str::to_owned), data)
            }
            None => (None, &*self.data),
        };
        let content = match STANDARD.decode(data) {
            Ok(content) => content,
            // Some encoders insert line breaks.
            Err(_) => {
                let data: String = data.chars().filter(|c| !c.is_ascii_whitespace()).collect();
                STANDARD.decode(data).ok()?
            }
        };
        Some((mime_type, content))
    }
}

/// The content parts of a user's message, as JSON text; `None` if none of them names or holds a file.
pub(super) fn file_parts(message: &Message) -> Option<Vec<String>> {
    if *message.role() != Role::User {
        return None;
    }
    // Most messages have no files. This search saves parsing them.
    memchr::memmem::find(message.json(), b"file")?;
    let object = RawObject::parse(message.json_str()).ok()?;
    let parts: Vec<&RawValue> = serde_json::from_str(object.get_some("content")?.get()).ok()?;
    let parts: Vec<String> = parts.iter().map(|part| part.get().to_owned()).collect();
    let holds_file = parts
        .iter()
        .any(|part| FilePart::read(part) != FilePart::Other);
    holds_file.then_some(parts)
}

/// The same message with other content parts.
pub(in super::super) fn with_parts(message: &Message, parts: &[String]) -> Message {
    message.with_fields(|key| match key {
        "content" => FieldChange::Set(format!("[{}]", parts.join(","))),
        _ => FieldChange::Keep,
    })
}

fn text(object: &RawObject<'_>, key: &str) -> Option<String> {
    serde_json::from_str(object.get_some(key)?.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "file-0123456789abcdef0123456789abcdef";

    #[test]
    fn both_forms_of_a_file_part_are_read_and_others_are_left_alone() {
        let stored = |form| FilePart::Stored {
            id: FileId::parse(ID).unwrap(),
            form,
        };
        let inline = |form| {
            FilePart::Inline(InlineFile {
                name: "a.csv".into(),
                data: "data:text/csv;base64,YQ==".into(),
                form,
            })
        };
        for (json, expected) in [
            (
                format!(r#"{{"type":"file","file":{{"file_id":"{ID}"}}}}"#),
                stored(PartForm::File),
            ),
            (
                format!(r#"{{"type":"input_file","file_id":"{ID}"}}"#),
                stored(PartForm::InputFile),
            ),
            (
                r#"{"type":"file","file":{"filename":"a.csv","file_data":"data:text/csv;base64,YQ=="}}"#.into(),
                inline(PartForm::File),
            ),
            (
                r#"{"type":"input_file","filename":"a.csv","file_data":"data:text/csv;base64,YQ=="}"#.into(),
                inline(PartForm::InputFile),
            ),
            (
                r#"{"type":"file","file":{"file_id":"file-abc"}}"#.into(),
                FilePart::Other,
            ),
            (r#"{"type":"file"}"#.into(), FilePart::Other),
            (
                r#"{"type":"input_file","filename":"b","file_url":"http://a"}"#.into(),
                FilePart::Remote(RemoteFile {
                    name: "b".into(),
                    url: "http://a".into(),
                    form: PartForm::InputFile,
                }),
            ),
            (r#"{"type":"text","text":"file"}"#.into(), FilePart::Other),
            ("3".into(), FilePart::Other),
        ] {
            assert_eq!(FilePart::read(&json), expected, "{json}");
        }
    }

    #[test]
    fn data_is_base64_with_or_without_a_data_url() {
        let decode = |data: &str| {
            let inline = InlineFile {
                name: String::new(),
                data: data.into(),
                form: PartForm::File,
            };
            inline.decode()
        };
        let csv = Some("text/csv".to_owned());
        assert_eq!(
            decode("data:text/csv;base64,YQ=="),
            Some((csv.clone(), b"a".to_vec()))
        );
        assert_eq!(
            decode("data:text/csv;charset=utf-8;base64,YW\nFh"),
            Some((csv, b"aaa".to_vec()))
        );
        assert_eq!(decode("YQ=="), Some((None, b"a".to_vec())));
        assert_eq!(decode("data:;base64,"), Some((None, vec![])));
        for wrong in ["data:text/csv,a", "data:text/csv;base64", "%%%", "YQ"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_users_messages_with_files_are_parsed_into_parts() {
        let parts = |json: &str| file_parts(&Message::parse(json).unwrap());
        let file = format!(r#"{{"type":"file","file":{{"file_id":"{ID}"}}}}"#);
        let text = r#"{"type":"text", "text":"see file"}"#;
        let json =
            |role: &str| format!(r#"{{"role":"{role}","name":"n","content":[{text},{file}]}}"#);
        assert_eq!(
            parts(&json("user")),
            Some(vec![text.to_owned(), file.clone()])
        );
        assert_eq!(parts(&json("assistant")), None);
        assert_eq!(parts(r#"{"role":"user","content":"file"}"#), None);
        assert_eq!(
            parts(&format!(r#"{{"role":"user","content":[{text}]}}"#)),
            None
        );
        let message = Message::parse(&json("user")).unwrap();
        let changed = with_parts(&message, &[text.to_owned()]);
        assert_eq!(
            changed.json_str(),
            format!(r#"{{"role":"user","name":"n","content":[{text}]}}"#)
        );
    }
}
