//! The model that a forwarded request names.

use std::ops::Range;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use memchr::memmem;

use super::super::body;
use super::super::headers::media_type;
use crate::dialects::chat::decode::with_model_name;
use protocol::openai::request::{body_member, body_object};

/// Ends the head of a part of a form.
const HEAD_END: &[u8] = b"\r\n\r\n";
const LINE_END: &[u8] = b"\r\n";

/// How a body is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BodyFormat {
    /// A JSON object.
    Json,
    /// A multipart form, with this text between its parts.
    Form(String),
    /// Anything else; it names no model that loopwright could find.
    Other,
}

/// The model that a body names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedModel {
    pub(super) name: String,
    place: ModelPlace,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ModelPlace {
    Member,
    Field(Range<usize>),
}

impl BodyFormat {
    /// The format of a request's body by its head.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        if body::is_json(headers) {
            return Self::Json;
        }
        let boundary = headers
            .get(CONTENT_TYPE)
            .and_then(|value| multer::parse_boundary(value.to_str().ok()?).ok());
        match boundary {
            Some(boundary) if media_type(headers) == "multipart/form-data" => Self::Form(boundary),
            _ => Self::Other,
        }
    }

    /// The model that a body names in what has arrived of it.
    pub(super) fn model(&self, bytes: &[u8]) -> Option<NamedModel> {
        match self {
            Self::Json => {
                // What is no object, or has a model of another type, is for the upstream to refuse.
                let object = body_object(bytes).ok()?;
                Some(NamedModel {
                    name: body_member(&object, "model", "a string").ok()??,
                    place: ModelPlace::Member,
                })
            }
            Self::Form(boundary) => {
                let place = field(bytes, boundary)?;
                let name = std::str::from_utf8(bytes.get(place.clone())?).ok()?;
                Some(NamedModel {
                    name: name.to_owned(),
                    place: ModelPlace::Field(place),
                })
            }
            Self::Other => None,
        }
    }
}

impl NamedModel {
    /// The bytes in which the model was found, with another name of it.
    pub(super) fn renamed(&self, bytes: &Bytes, name: &str) -> Bytes {
        if name == self.name {
            return bytes.clone();
        }
        match &self.place {
            ModelPlace::Member => with_model_name(bytes, &self.name, name),
            ModelPlace::Field(place) => {
                let before = bytes.get(..place.start).unwrap_or_default();
                let after = bytes.get(place.end..).unwrap_or_default();
                [before, name.as_bytes(), after].concat().into()
            }
        }
    }
}

/// The place of the value of the field `model`, if it has arrived whole.
fn field(bytes: &[u8], boundary: &str) -> Option<Range<usize>> {
    let delimiter = format!("--{boundary}");
    let begins_line =
        |at: &usize| *at == 0 || bytes.get(..*at).is_some_and(|it| it.ends_with(LINE_END));
    let mut delimiters = memmem::find_iter(bytes, &delimiter).filter(begins_line);
    let mut start = delimiters.next()? + delimiter.len();
    for next in delimiters {
        let part = bytes.get(start..next)?.strip_suffix(LINE_END)?;
        if let Some(head_length) = memmem::find(part, HEAD_END)
            && part.get(..head_length).is_some_and(names_model)
        {
            return Some(start + head_length + HEAD_END.len()..start + part.len());
        }
        start = next + delimiter.len();
    }
    None
}

/// Whether the head of a part gives it the name `model`.
fn names_model(head: &[u8]) -> bool {
    let head = std::str::from_utf8(head).unwrap_or_default();
    head.lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| name.trim().eq_ignore_ascii_case("content-disposition"))
        .flat_map(|(_, value)| value.split(';'))
        .any(|parameter| matches!(parameter.trim(), "name=\"model\"" | "name=model"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"model\"\r\ncontent-type: audio/wav\r\n\r\n\0--b\r\n\r\n\r\n";
    const MODEL: &str = "--b\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nwhisper\r\n";

    fn format(kind: &str) -> BodyFormat {
        BodyFormat::of(&HeaderMap::from_iter([(
            CONTENT_TYPE,
            kind.parse().unwrap(),
        )]))
    }

    #[test]
    fn the_content_type_says_where_a_model_may_be() {
        for (kind, expected) in [
            ("application/json; charset=utf-8", BodyFormat::Json),
            (
                "multipart/form-data; boundary=b",
                BodyFormat::Form("b".into()),
            ),
            (
                "Multipart/Form-Data; charset=x; boundary=\"b c\"",
                BodyFormat::Form("b c".into()),
            ),
            ("multipart/form-data", BodyFormat::Other),
            ("multipart/mixed; boundary=b", BodyFormat::Other),
            ("audio/wav", BodyFormat::Other),
        ] {
            assert_eq!(format(kind), expected, "{kind}");
        }
        assert_eq!(BodyFormat::of(&HeaderMap::new()), BodyFormat::Other);
    }

    #[test]
    fn a_model_is_found_and_renamed() {
        let end = "--b--\r\n";
        let json = "application/json";
        let form = "multipart/form-data; boundary=b";
        for (kind, body, renamed) in [
            (
                json,
                r#"{"input":"x","model":"whisper"}"#.to_owned(),
                r#"{"model":"w2","input":"x"}"#.to_owned(),
            ),
            (
                form,
                [MODEL, FILE, end].concat(),
                [&MODEL.replace("whisper", "w2"), FILE, end].concat(),
            ),
            (
                form,
                [FILE, MODEL, end].concat(),
                [FILE, &MODEL.replace("whisper", "w2"), end].concat(),
            ),
            // Cut after the next delimiter, as in the start of a large form.
            (
                form,
                [MODEL, "--b\r\nconte"].concat(),
                [&MODEL.replace("whisper", "w2"), "--b\r\nconte"].concat(),
            ),
        ] {
            let body = Bytes::from(body);
            let model = format(kind).model(&body).unwrap();
            assert_eq!(model.name, "whisper");
            assert_eq!(model.renamed(&body, "w2"), renamed);
            assert_eq!(model.renamed(&body, "whisper"), body);
        }
    }

    #[test]
    fn without_a_model_nothing_is_found() {
        let json = "application/json";
        let form = "multipart/form-data; boundary=b";
        for (kind, body) in [
            (json, "[1]"),
            (json, r#"{"model":null}"#),
            (json, r#"{"model":7}"#),
            (json, "\u{1}"),
            (form, ""),
            (form, "--b--"),
            (form, MODEL),
            (form, FILE),
            (
                form,
                "--c\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nx\r\n--c--",
            ),
            ("text/plain", r#"{"model":"m"}"#),
        ] {
            assert_eq!(format(kind).model(body.as_bytes()), None, "{kind} {body}");
        }
    }
}
