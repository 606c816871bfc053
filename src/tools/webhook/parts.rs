//! Parses the content parts, images and files of a structured result.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::retry::WebhookError;
use crate::{ImageData, ToolFile, ToolImage};
use protocol::media::MAX_NAME_BYTES;
use protocol::openai::raw::{RawObject, slice_of};

/// Most images, and most files, of one result. A longer list of a webhook is an error; of an MCP server the others are
/// left out, and a note counts them.
/// Tried by `webhook::result::an_error_names_the_invalid_field_but_not_its_value`.
pub(crate) const MAX_ENTRIES: usize = 100;
/// The name of a file whose given name has no usable characters.
const DEFAULT_NAME: &str = "file";
/// The media type of a file that has none or an invalid one.
const DEFAULT_MEDIA_TYPE: &str = "application/octet-stream";

/// Content for the model.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ContentParts {
    pub(super) text: String,
    pub(super) images: Vec<ToolImage>,
}

/// One content part, as in the Chat Completions API, the Responses API or MCP.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part {
    #[serde(alias = "input_text", alias = "output_text")]
    Text {
        text: String,
    },
    ImageUrl {
        image_url: ImageUrl,
    },
    InputImage {
        image_url: ImageUrl,
    },
    Image {
        data: String,
        #[serde(alias = "mimeType", alias = "media_type")]
        mime_type: Option<String>,
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ImageUrl {
    Plain(String),
    Object { url: String },
}

/// A text that is copied only if it contains escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct RawFile<'a> {
    name: String,
    #[serde(alias = "mimeType")]
    mime_type: Option<String>,
    #[serde(borrow)]
    data: Cow<'a, str>,
}

/// Parses a list of content parts of a body, which may be empty. `None` if the JSON is not a list of content parts.
///
/// # Errors
/// When a part has a known `type` but not the fields of that type.
pub(super) fn parse_content(
    json: &RawValue,
    body: &Bytes,
) -> Result<Option<ContentParts>, WebhookError> {
    let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(json.get()) else {
        return Ok(None);
    };
    if !items.iter().all(|item| is_content_part(item)) {
        return Ok(None);
    }
    let (mut texts, mut images) = (Vec::new(), Vec::new());
    for (index, item) in items.iter().enumerate() {
        let invalid = || WebhookError::InvalidField {
            field: format!("content[{index}]"),
            expected: "a text or image part",
        };
        match serde_json::from_str(item.get()).map_err(|_| invalid())? {
            Part::Text { text } => texts.push(text),
            Part::Image { data, mime_type } => {
                let mime_type = mime_type.unwrap_or_else(|| "image/png".to_owned());
                images.push(image(&mime_type, &data.into()).ok_or_else(invalid)?);
            }
            Part::ImageUrl { image_url } | Part::InputImage { image_url } => {
                let url = image_url.into_text();
                match data_url(&url) {
                    Some((mime_type, data)) => {
                        images.push(image(mime_type, &slice_of(body, data)).ok_or_else(invalid)?);
                    }
                    // The image is not fetched; the model gets the URL as text.
                    None if !url.starts_with("data:") => texts.push(url),
                    None => return Err(invalid()),
                }
            }
        }
    }
    Ok(Some(ContentParts {
        text: texts.join("\n"),
        images,
    }))
}

/// Parses a list of images of a body: base64 PNG, or `data:` URLs.
///
/// # Errors
/// When the JSON is not such a list, the list is too long, or an image is not base64.
pub(super) fn parse_images(json: &RawValue, body: &Bytes) -> Result<Vec<ToolImage>, WebhookError> {
    let list: Vec<Text<'_>> = parse_list(json, "images", "a list of base64 texts")?;
    list.iter()
        .enumerate()
        .map(|(index, Text(text))| {
            let (mime_type, data) = data_url(text).unwrap_or(("image/png", text));
            image(mime_type, &slice_of(body, data)).ok_or_else(|| WebhookError::InvalidField {
                field: format!("images[{index}]"),
                expected: "a base64 PNG",
            })
        })
        .collect()
}

/// Parses a list of files.
///
/// # Errors
/// When the JSON is not such a list, the list is too long, or a file's data is not base64.
pub(super) fn parse_files(json: &RawValue) -> Result<Vec<ToolFile>, WebhookError> {
    let list: Vec<RawFile<'_>> = parse_list(
        json,
        "files",
        "a list of objects with the strings 'name', 'mime_type' and 'data'",
    )?;
    list.into_iter()
        .enumerate()
        .map(|(index, file)| {
            let invalid = || WebhookError::InvalidField {
                field: format!("files[{index}].data"),
                expected: "base64",
            };
            let content = decode_base64(&file.data).ok_or_else(invalid)?;
            let name = file_base_name(&file.name);
            Ok(ToolFile {
                path: name.clone(),
                name,
                mime_type: file
                    .mime_type
                    .filter(|mime_type| is_media_type(mime_type))
                    .unwrap_or_else(|| DEFAULT_MEDIA_TYPE.to_owned()),
                content: content.into(),
            })
        })
        .collect()
}

fn parse_list<'a, T: Deserialize<'a>>(
    json: &'a RawValue,
    field: &str,
    expected: &'static str,
) -> Result<Vec<T>, WebhookError> {
    serde_json::from_str::<Vec<T>>(json.get())
        .ok()
        .filter(|list| list.len() <= MAX_ENTRIES)
        .ok_or_else(|| WebhookError::InvalidField {
            field: field.to_owned(),
            expected,
        })
}

/// Whether the `type` of a list entry is a content part's.
fn is_content_part(item: &RawValue) -> bool {
    let kind = RawObject::parse(item.get())
        .ok()
        .and_then(|object| serde_json::from_str::<String>(object.get("type")?.get()).ok());
    kind.is_some_and(|kind| {
        matches!(
            kind.as_str(),
            "text" | "input_text" | "output_text" | "image_url" | "input_image" | "image"
        )
    })
}

impl ImageUrl {
    fn into_text(self) -> String {
        match self {
            Self::Plain(url) | Self::Object { url } => url,
        }
    }
}

/// The media type and the data of a base64 `data:` URL.
fn data_url(url: &str) -> Option<(&str, &str)> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    Some((head.strip_suffix(";base64")?, data))
}

/// An image of this media type from its base64 text.
pub(crate) fn image(mime_type: &str, data: &Bytes) -> Option<ToolImage> {
    let mime_type = mime_type.to_ascii_lowercase();
    if !mime_type.starts_with("image/") || !is_media_type(&mime_type) {
        return None;
    }
    let content = match ImageData::from_base64(data.clone()) {
        Some(content) => content,
        None => decode_base64(std::str::from_utf8(data).ok()?)?.into(),
    };
    let mime_type = match &*mime_type {
        "image/png" => Cow::Borrowed("image/png"),
        _ => Cow::Owned(mime_type),
    };
    Some(ToolImage { mime_type, content })
}

/// The bytes of a base64 text, which may have line breaks.
pub(crate) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    if let Ok(content) = STANDARD.decode(text) {
        return Some(content);
    }
    // Some encoders insert line breaks.
    let data: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    STANDARD.decode(&data).ok()
}

/// Whether a text has the form of a media type.
pub(crate) fn is_media_type(text: &str) -> bool {
    /// Longest media type, in characters: RFC 6838 allows 127 on each side. A longer one is an error.
    const MAX_CHARS: usize = 255;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+/".contains(&byte);
    let (main, rest) = text.split_once(';').unwrap_or((text, ""));
    text.len() <= MAX_CHARS
        && main.bytes().all(allowed)
        && main
            .split_once('/')
            .is_some_and(|(kind, sub)| !kind.is_empty() && !sub.is_empty())
        && rest.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// The last component of a path without control characters; never `.` or `..`.
pub(crate) fn file_base_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let mut plain: String = last.chars().filter(|c| !c.is_control()).collect();
    plain.truncate(plain.floor_char_boundary(MAX_NAME_BYTES));
    match plain.trim() {
        "" | "." | ".." => DEFAULT_NAME.to_owned(),
        plain => plain.to_owned(),
    }
}
