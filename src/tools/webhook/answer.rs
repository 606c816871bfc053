//! What the body of an answer means.

use serde_json::value::RawValue;

use super::parts::{self, ContentParts};
use super::retry::Problem;
use crate::openai::raw::RawObject;
use crate::tools::{OutputStatus, ToolOutput};

/// The key that makes an object an answer of loopwright's own form rather than plain content.
pub(super) const CONTENT: &str = "content";

/// Reads a body: the form of the contract, or any other JSON or text as the content that it is.
///
/// # Errors
/// When the body is no text, or a part of the contract's form has the wrong type.
pub(super) fn read(body: &[u8], media_type: &str) -> Result<ToolOutput, Problem> {
    if body.trim_ascii().is_empty() {
        return Ok(ToolOutput::default());
    }
    if is_binary(media_type) {
        return Err(Problem::Binary(shown_type(media_type)));
    }
    let text = match std::str::from_utf8(body) {
        Ok(text) => text.trim_start_matches('\u{feff}').into(),
        Err(_) if is_text(media_type) => String::from_utf8_lossy(body),
        Err(_) => return Err(Problem::Binary(shown_type(media_type))),
    };
    let Ok(json) = serde_json::from_str::<&RawValue>(&text) else {
        return Ok(plain(text.into_owned()));
    };
    if let Ok(object) = RawObject::parse(json.get())
        && let Some(content) = object.get(CONTENT)
    {
        return from_object(&object, content);
    }
    Ok(plain(
        scalar_text(json).unwrap_or_else(|| json.get().to_owned()),
    ))
}

fn plain(content: String) -> ToolOutput {
    ToolOutput {
        content,
        ..ToolOutput::default()
    }
}

fn from_object(object: &RawObject<'_>, content: &RawValue) -> Result<ToolOutput, Problem> {
    let ContentParts { text, mut images } = content_parts(content)?;
    if let Some(more) = object.get_some("images") {
        images.extend(parts::images(more)?);
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
            Some(files) => parts::files(files)?,
            None => Vec::new(),
        },
        ..ToolOutput::default()
    })
}

fn content_parts(content: &RawValue) -> Result<ContentParts, Problem> {
    if let Some(text) = scalar_text(content) {
        return Ok(ContentParts {
            text,
            images: Vec::new(),
        });
    }
    match parts::content(content)? {
        Some(parts) => Ok(parts),
        None => Ok(ContentParts {
            text: compact(content.get()),
            images: Vec::new(),
        }),
    }
}

/// A string without its quotes, nothing for `null`, a number or a flag as written; `None` for anything with an inside.
fn scalar_text(json: &RawValue) -> Option<String> {
    let text = json.get();
    match text.as_bytes().first()? {
        b'{' | b'[' => None,
        b'"' => serde_json::from_str(text).ok(),
        _ if text == "null" => Some(String::new()),
        _ => Some(text.to_owned()),
    }
}

fn flag(object: &RawObject<'_>, field: &'static str) -> Result<bool, Problem> {
    match object.get_some(field).map(RawValue::get) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(Problem::Field {
            field: field.to_owned(),
            expected: "true or false",
        }),
    }
}

/// JSON text without the white space between its parts; the order of keys and the form of numbers stay.
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

/// Whether a media type surely stands for something that no model can read as text.
fn is_binary(media_type: &str) -> bool {
    /// Application types that servers send pictures, archives and the like as.
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

/// Whether a media type stands for text, so that bytes which are no UTF-8 are replaced rather than refused.
fn is_text(media_type: &str) -> bool {
    media_type.is_empty()
        || media_type.starts_with("text/")
        || ["json", "xml", "yaml", "javascript"]
            .iter()
            .any(|kind| media_type.ends_with(kind))
}

/// A media type as an error text shows it; it comes from the endpoint, so nothing but its plain form is repeated.
fn shown_type(media_type: &str) -> String {
    /// Longest registered types are about this long.
    const MAX_CHARS: usize = 80;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/+.-".contains(&byte);
    if !media_type.is_empty() && media_type.len() <= MAX_CHARS && media_type.bytes().all(plain) {
        media_type.to_owned()
    } else {
        "binary data".to_owned()
    }
}

#[cfg(test)]
mod tests;
