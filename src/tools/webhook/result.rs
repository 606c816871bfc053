//! Parses the body of a response into a tool result.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::parts::{self, ContentParts};
use super::retry::WebhookError;
use crate::{OutputStatus, ToolOutput};
use protocol::ids::shown;
use protocol::openai::raw::RawObject;

/// The key that marks an object as a structured result; an object without it is plain content.
pub(super) const CONTENT: &str = "content";

/// Parses a body. An object with the key `content` is a structured result; any other JSON or text is the content
/// itself.
///
/// # Errors
/// When the body is not text, or a field of a structured result has the wrong type.
pub(super) fn parse(body: &Bytes, media_type: &str) -> Result<ToolOutput, WebhookError> {
    if body.trim_ascii().is_empty() {
        return Ok(ToolOutput::default());
    }
    if is_binary(media_type) {
        return Err(WebhookError::Binary(safe_media_type(media_type)));
    }
    let text = match std::str::from_utf8(body) {
        Ok(text) => text.trim_start_matches('\u{feff}').into(),
        Err(_) if is_text(media_type) => String::from_utf8_lossy(body),
        Err(_) => return Err(WebhookError::Binary(safe_media_type(media_type))),
    };
    let Ok(json) = serde_json::from_str::<&RawValue>(&text) else {
        return Ok(text_output(text.into_owned()));
    };
    if let Ok(object) = RawObject::parse(json.get())
        && let Some(content) = object.get(CONTENT)
    {
        return from_object(&object, content, body);
    }
    Ok(text_output(
        scalar_text(json).unwrap_or_else(|| json.get().to_owned()),
    ))
}

fn text_output(content: String) -> ToolOutput {
    ToolOutput {
        content,
        ..ToolOutput::default()
    }
}

fn from_object(
    object: &RawObject<'_>,
    content: &RawValue,
    body: &Bytes,
) -> Result<ToolOutput, WebhookError> {
    let ContentParts { text, mut images } = content_parts(content, body)?;
    if let Some(more) = object.get_some("images") {
        images.extend(parts::parse_images(more, body)?);
    }
    Ok(ToolOutput {
        content: text,
        status: match flag(object, "is_error")? {
            true => OutputStatus::Error,
            false => OutputStatus::Ok,
        },
        terminate: flag(object, "terminate")?,
        images,
        files: match object.get_some("files") {
            Some(files) => parts::parse_files(files)?,
            None => Vec::new(),
        },
        ..ToolOutput::default()
    })
}

fn content_parts(content: &RawValue, body: &Bytes) -> Result<ContentParts, WebhookError> {
    if let Some(text) = scalar_text(content) {
        return Ok(ContentParts {
            text,
            images: Vec::new(),
        });
    }
    match parts::parse_content(content, body)? {
        Some(parts) => Ok(parts),
        None => Ok(ContentParts {
            text: compact(content.get()),
            images: Vec::new(),
        }),
    }
}

/// The text of a JSON scalar: a string's value, the empty text for `null`, a number or boolean as written. `None` for
/// objects and arrays.
fn scalar_text(json: &RawValue) -> Option<String> {
    let text = json.get();
    match text.as_bytes().first()? {
        b'{' | b'[' => None,
        b'"' => serde_json::from_str(text).ok(),
        _ if text == "null" => Some(String::new()),
        _ => Some(text.to_owned()),
    }
}

fn flag(object: &RawObject<'_>, field: &'static str) -> Result<bool, WebhookError> {
    match object.get_some(field).map(RawValue::get) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(WebhookError::InvalidField {
            field: field.to_owned(),
            expected: "true or false",
        }),
    }
}

/// JSON text without white space between tokens. The order of keys and the notation of numbers do not change.
fn compact(json: &str) -> String {
    let (mut in_string, mut escaped) = (false, false);
    let keep = |character: &char| {
        if in_string {
            in_string = escaped || *character != '"';
            escaped = !escaped && *character == '\\';
            return true;
        }
        in_string = *character == '"';
        !matches!(character, ' ' | '\t' | '\n' | '\r')
    };
    json.chars().filter(keep).collect()
}

/// Whether a media type denotes binary data.
fn is_binary(media_type: &str) -> bool {
    /// Subtypes of `application/` for binary data.
    const BINARY: [&str; 8] = [
        "octet-stream",
        "pdf",
        "zip",
        "gzip",
        "x-tar",
        "x-7z-compressed",
        "wasm",
        "x-protobuf",
    ];
    match media_type.split_once('/') {
        Some(("image", kind)) => !kind.ends_with("+xml"),
        Some(("audio" | "video" | "font", _)) => true,
        Some(("application", kind)) => BINARY.contains(&kind),
        Some(_) | None => false,
    }
}

/// Whether a media type denotes text; invalid UTF-8 is then replaced instead of refused.
fn is_text(media_type: &str) -> bool {
    media_type.is_empty()
        || media_type.starts_with("text/")
        || ["json", "xml", "yaml", "javascript"]
            .iter()
            .any(|kind| media_type.ends_with(kind))
}

/// A media type for an error text. The endpoint supplies it, so anything other than a simple type is replaced.
fn safe_media_type(media_type: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/+.-".contains(&byte);
    if !media_type.is_empty() && media_type.bytes().all(plain) {
        shown(media_type)
    } else {
        "binary data".to_owned()
    }
}

#[cfg(test)]
mod tests;
