//! Content parts that hold a file: OpenAI's `file` and `input_file`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;

use crate::ids::FileId;
use crate::openai::message::{FieldChange, Message, Role};
use crate::openai::raw::RawObject;

/// What a content part has to do with files.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FilePart {
    /// Nothing, or its file is not ours to deal with.
    Other,
    /// It names a file by an id of our form.
    Stored {
        id: FileId,
        /// Where in the part the id stands.
        field: &'static str,
    },
    /// It holds a file.
    Inline(Inline),
}

/// A file as it came.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Inline {
    pub(super) name: String,
    pub(super) data: String,
    /// Where in the part the data stands.
    pub(super) field: &'static str,
}

impl FilePart {
    /// Reads a part.
    pub(super) fn read(json: &str) -> Self {
        Self::find(json).unwrap_or(Self::Other)
    }

    fn find(json: &str) -> Option<Self> {
        let part = RawObject::parse(json).ok()?;
        let inner;
        let (file, id_field, data_field) = match text(&part, "type")?.as_str() {
            "file" => {
                inner = RawObject::parse(part.get_some("file")?.get()).ok()?;
                (&inner, ".file.file_id", ".file.file_data")
            }
            "input_file" => (&part, ".file_id", ".file_data"),
            _ => return None,
        };
        if let Some(id) = text(file, "file_id") {
            let id = FileId::parse(&id)?;
            let field = id_field;
            return Some(Self::Stored { id, field });
        }
        Some(Self::Inline(Inline {
            name: text(file, "filename").unwrap_or_default(),
            data: text(file, "file_data")?,
            field: data_field,
        }))
    }
}

impl Inline {
    /// The media type that is claimed, and the content; `None` when it is no base64.
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
            // Some encoders break lines.
            Err(_) => {
                let data: String = data.chars().filter(|c| !c.is_ascii_whitespace()).collect();
                STANDARD.decode(data).ok()?
            }
        };
        Some((mime_type, content))
    }
}

/// The content parts of a user's message, as JSON text; `None` where none of them can hold a file.
pub(super) fn file_parts(message: &Message) -> Option<Vec<String>> {
    if *message.role() != Role::User {
        return None;
    }
    // Most messages hold no files, and are not read any further here.
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
pub(super) fn with_parts(message: &Message, parts: &[String]) -> Message {
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
        let stored = |field| FilePart::Stored {
            id: FileId::parse(ID).unwrap(),
            field,
        };
        let inline = |field| {
            FilePart::Inline(Inline {
                name: "a.csv".into(),
                data: "data:text/csv;base64,YQ==".into(),
                field,
            })
        };
        for (json, expected) in [
            (
                format!(r#"{{"type":"file","file":{{"file_id":"{ID}"}}}}"#),
                stored(".file.file_id"),
            ),
            (
                format!(r#"{{"type":"input_file","file_id":"{ID}"}}"#),
                stored(".file_id"),
            ),
            (
                r#"{"type":"file","file":{"filename":"a.csv","file_data":"data:text/csv;base64,YQ=="}}"#.into(),
                inline(".file.file_data"),
            ),
            (
                r#"{"type":"input_file","filename":"a.csv","file_data":"data:text/csv;base64,YQ=="}"#.into(),
                inline(".file_data"),
            ),
            (
                r#"{"type":"file","file":{"file_id":"file-abc"}}"#.into(),
                FilePart::Other,
            ),
            (r#"{"type":"file"}"#.into(), FilePart::Other),
            (r#"{"type":"input_file","file_url":"http://a"}"#.into(), FilePart::Other),
            (r#"{"type":"text","text":"file"}"#.into(), FilePart::Other),
            ("3".into(), FilePart::Other),
        ] {
            assert_eq!(FilePart::read(&json), expected, "{json}");
        }
    }

    #[test]
    fn data_is_base64_with_or_without_a_data_url() {
        let decode = |data: &str| {
            let inline = Inline {
                name: String::new(),
                data: data.into(),
                field: "",
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
    fn only_users_messages_with_files_are_taken_apart() {
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
