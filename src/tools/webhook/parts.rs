//! Content parts, images and files of an answer.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::retry::Problem;
use crate::openai::raw::RawObject;
use crate::tools::ToolFile;

/// Most images, and most files, of one answer.
const MAX_ENTRIES: usize = 100;
/// Longest file name in bytes: what file systems take.
const MAX_NAME_BYTES: usize = 255;
/// The name of a file of whose name nothing is left.
const NAMELESS: &str = "file";
/// The type of a file that comes without one.
const UNKNOWN_TYPE: &str = "application/octet-stream";

/// Content for the model.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ContentParts {
    pub(super) text: String,
    pub(super) images: Vec<String>,
}

/// One content part; the forms of the Chat Completions API, the Responses API and MCP.
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

#[derive(Deserialize)]
struct RawFile {
    name: String,
    #[serde(alias = "mimeType")]
    mime_type: Option<String>,
    data: String,
}

/// Reads a list of content parts, which may be empty; `None` for any other JSON, a list of something else included.
///
/// # Errors
/// When a part names a known type but has not its form.
pub(super) fn content(json: &RawValue) -> Result<Option<ContentParts>, Problem> {
    let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(json.get()) else {
        return Ok(None);
    };
    if !items.iter().all(|item| names_a_part(item)) {
        return Ok(None);
    }
    let (mut texts, mut images) = (Vec::new(), Vec::new());
    for (index, item) in items.iter().enumerate() {
        let wrong = || Problem::Field {
            field: format!("content[{index}]"),
            expected: "a text or image part",
        };
        match serde_json::from_str(item.get()).map_err(|_| wrong())? {
            Part::Text { text } => texts.push(text),
            Part::Image { data, mime_type } => {
                let mime_type = mime_type.unwrap_or_else(|| "image/png".to_owned());
                images.push(image_of(&mime_type, &data).ok_or_else(wrong)?);
            }
            Part::ImageUrl { image_url } | Part::InputImage { image_url } => {
                let url = image_url.into_text();
                match data_url(&url) {
                    Some((mime_type, data)) => {
                        images.push(image_of(mime_type, data).ok_or_else(wrong)?);
                    }
                    // Nothing is fetched here, but the model may make something of the address.
                    None if !url.starts_with("data:") => texts.push(url),
                    None => return Err(wrong()),
                }
            }
        }
    }
    Ok(Some(ContentParts {
        text: texts.join("\n"),
        images,
    }))
}

/// Reads a list of images: base64 PNG, or `data:` URLs.
///
/// # Errors
/// When it is none, or an image is not base64.
pub(super) fn images(json: &RawValue) -> Result<Vec<String>, Problem> {
    let list: Vec<String> = list(json, "images", "a list of base64 texts")?;
    list.iter()
        .enumerate()
        .map(|(index, image)| {
            let (mime_type, data) = data_url(image).unwrap_or(("image/png", image));
            image_of(mime_type, data).ok_or_else(|| Problem::Field {
                field: format!("images[{index}]"),
                expected: "a base64 PNG",
            })
        })
        .collect()
}

/// Reads a list of files.
///
/// # Errors
/// When it is none, or a file's data is not base64.
pub(super) fn files(json: &RawValue) -> Result<Vec<ToolFile>, Problem> {
    let list: Vec<RawFile> = list(
        json,
        "files",
        "a list of objects with the strings 'name', 'mime_type' and 'data'",
    )?;
    list.into_iter()
        .enumerate()
        .map(|(index, file)| {
            let wrong = || Problem::Field {
                field: format!("files[{index}].data"),
                expected: "base64",
            };
            let (_, content) = checked_base64(&file.data).ok_or_else(wrong)?;
            let name = plain_name(&file.name);
            Ok(ToolFile {
                path: name.clone(),
                name,
                mime_type: file
                    .mime_type
                    .filter(|mime_type| is_media_type(mime_type))
                    .unwrap_or_else(|| UNKNOWN_TYPE.to_owned()),
                content: content.into(),
            })
        })
        .collect()
}

fn list<'a, T: Deserialize<'a>>(
    json: &'a RawValue,
    field: &str,
    expected: &'static str,
) -> Result<Vec<T>, Problem> {
    serde_json::from_str::<Vec<T>>(json.get())
        .ok()
        .filter(|list| list.len() <= MAX_ENTRIES)
        .ok_or_else(|| Problem::Field {
            field: field.to_owned(),
            expected,
        })
}

/// Whether an entry of a list says that it is a content part.
fn names_a_part(item: &RawValue) -> bool {
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

/// Type and data of a base64 `data:` URL.
fn data_url(url: &str) -> Option<(&str, &str)> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    Some((head.strip_suffix(";base64")?, data))
}

/// An image as results hold it: plain base64 for PNG, a `data:` URL for any other type.
fn image_of(mime_type: &str, data: &str) -> Option<String> {
    let mime_type = mime_type.to_ascii_lowercase();
    if !mime_type.starts_with("image/") || !is_media_type(&mime_type) {
        return None;
    }
    let (data, _) = checked_base64(data)?;
    if mime_type == "image/png" {
        Some(data)
    } else {
        Some(format!("data:{mime_type};base64,{data}"))
    }
}

/// Base64 without the line ends that some encoders put in, and what it stands for.
fn checked_base64(text: &str) -> Option<(String, Vec<u8>)> {
    let data: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let content = STANDARD.decode(&data).ok()?;
    Some((data, content))
}

fn is_media_type(text: &str) -> bool {
    /// RFC 6838 allows 127 characters on each side.
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

/// A file name without folders and control characters; never one that leads anywhere.
fn plain_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let mut plain: String = last.chars().filter(|c| !c.is_control()).collect();
    plain.truncate(plain.floor_char_boundary(MAX_NAME_BYTES));
    match plain.trim() {
        "" | "." | ".." => NAMELESS.to_owned(),
        plain => plain.to_owned(),
    }
}
