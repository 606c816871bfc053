//! The stored images that a model is shown: images of tools, and images that a user sends by the id of their file.
//!
//! The history names a stored image by the id of its file, in a content part of the type `image_file`. Upstreams are sent
//! the image itself, as a data URL that is read from the file while the request is sent.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::contents::{IMAGE_AFTER, NamedContents, StoredImage, image_before};
use super::event::{KeptFile, KeptImage, ProducedFile, base64_text};
use blobs::segments::BinaryContent;
use protocol::ids::FileId;
use protocol::openai::message::Message;
use protocol::openai::raw::quoted;

/// Most frames of an animation that the model gets, at even distances.
/// Tried by `images::the_model_sees_a_few_frames_of_an_animation_from_its_beginning_to_its_end`.
const MAX_FRAMES_SHOWN: usize = 8;
/// Memory reserved for the content part of an image and the text before it, besides its base64.
const PART_BYTES: usize = 256;

/// An image that the model is shown.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ShownImage {
    /// In a file that the history names. The content must be looked up again if the result was stored since.
    Stored(FileId, #[serde(skip)] Option<StoredImage>),
    /// In memory only. The history holds it as base64.
    Unstored(UnstoredImage),
}

/// An image that no file has.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct UnstoredImage {
    mime_type: Cow<'static, str>,
    #[serde(with = "base64_text")]
    bytes: Bytes,
}

/// An image or a text of a result that is stored as a file.
#[derive(Debug)]
pub(super) struct StoredPart {
    pub(super) id: FileId,
    /// The media type that the content was found to have.
    pub(super) mime_type: String,
    pub(super) content: BinaryContent,
}

impl StoredPart {
    /// The file as the image that it holds has it.
    pub(super) fn kept(&self) -> KeptFile {
        KeptFile {
            id: self.id.clone(),
            content: Some(self.content.clone()),
        }
    }

    /// A file of a call as a part of its result; `None` if the file is not stored.
    pub(super) fn of_file(file: &ProducedFile) -> Option<Self> {
        Some(Self {
            id: FileId::parse(&file.id)?,
            mime_type: file.mime_type.clone(),
            content: file.file.clone()?,
        })
    }
}

impl ShownImage {
    pub(super) fn new(kept: &KeptImage, stored: Option<StoredPart>) -> Self {
        let Some(StoredPart {
            id,
            mime_type,
            content,
        }) = stored
        else {
            return Self::Unstored(UnstoredImage {
                mime_type: kept.mime_type.clone(),
                bytes: kept.bytes.clone(),
            });
        };
        // The same as in later turns.
        let mime_type = match mime_type.starts_with("image/") {
            true => mime_type.into(),
            false => kept.mime_type.clone(),
        };
        Self::Stored(id, Some(StoredImage { mime_type, content }))
    }
}

/// The indexes of the frames of an animation that the model gets: the first, the last, and others at even distances.
pub(super) fn frames_shown(count: usize) -> Vec<usize> {
    let most = MAX_FRAMES_SHOWN;
    match count <= most {
        true => (0..count).collect(),
        false => (0..most)
            .map(|index| index * (count - 1) / (most - 1))
            .collect(),
    }
}

/// A user message with images, each with the name of its tool, as the history has it; and the images that it names.
/// Upstreams take no images in tool messages.
pub(super) fn image_message(images: Vec<(String, ShownImage)>) -> Option<(Message, NamedContents)> {
    let mut named = NamedContents::default();
    let mut json = String::with_capacity(images.iter().map(expected_bytes).sum());
    json.push_str(r#"{"role":"user","content":"#);
    let mut before = '[';
    for (tool, image) in images {
        let text = quoted(&format!("Image returned by the tool '{tool}':"));
        json.push_str(&format!(r#"{before}{{"text":{text},"type":"text"}},"#));
        before = ',';
        match image {
            ShownImage::Stored(id, stored) => {
                json.push_str(&file_part(&id));
                if let Some(stored) = stored {
                    named.insert(id, stored);
                }
            }
            ShownImage::Unstored(image) => {
                json.push_str(&image_before(&image.mime_type));
                STANDARD.encode_string(&image.bytes, &mut json);
                json.push_str(IMAGE_AFTER);
            }
        }
    }
    json.push_str("]}");
    // The text is shared, because it may be large. Without images it is not a message.
    let json = Bytes::from(json);
    let text = std::str::from_utf8(&json).ok().filter(|_| before == ',')?;
    let message = Message::parse_shared(text, json.clone()).ok()?;
    Some((message, named))
}

/// About how many bytes an image takes in a message.
fn expected_bytes((_, image): &(String, ShownImage)) -> usize {
    let base64 = match image {
        ShownImage::Stored(..) => 0,
        ShownImage::Unstored(image) => image.bytes.len().div_ceil(3) * 4,
    };
    base64 + PART_BYTES
}

/// The content part that names an image by its file.
pub(super) fn file_part(id: &FileId) -> String {
    let id = quoted(id.as_str());
    format!(r#"{{"image_file":{{"file_id":{id}}},"type":"image_file"}}"#)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::contents::MISSING_IMAGE;
    use super::*;
    use blobs::Blob;

    #[test]
    fn the_model_sees_a_few_frames_of_an_animation_from_its_beginning_to_its_end() {
        assert_eq!(frames_shown(8), (0..8).collect::<Vec<_>>());
        assert_eq!(frames_shown(71), [0, 10, 20, 30, 40, 50, 60, 70]);
        assert_eq!(frames_shown(9).len(), 8);
    }

    #[tokio::test]
    async fn the_history_names_stored_images_and_the_upstream_is_sent_all_of_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        std::fs::write(&path, [0, 0, 0]).unwrap();
        let file = |name: &str| BinaryContent::Stored(Blob::file(directory.path().join(name), 3));
        let image = |claimed: &'static str, stored: Option<(&str, &FileId, &str)>| {
            let kept = KeptImage {
                mime_type: claimed.into(),
                bytes: vec![0, 0, 0].into(),
                file: stored.map(|(name, id, _)| KeptFile {
                    id: id.clone(),
                    content: Some(file(name)),
                }),
            };
            let stored = stored.map(|(name, id, found)| StoredPart {
                id: id.clone(),
                mime_type: found.to_owned(),
                content: file(name),
            });
            ShownImage::new(&kept, stored)
        };
        let (id, gone) = (FileId::fresh(), FileId::fresh());
        let stored = image("image/webp", Some(("image", &id, "image/png")));
        let lost = image("image/png", Some(("gone", &gone, "text/plain")));
        let images = vec![
            ("t".to_owned(), stored),
            ("u".to_owned(), image("image/gif;a=\"b\"", None)),
            ("v".to_owned(), lost),
        ];
        let (message, images) = image_message(images).unwrap();
        let sent = images.render(&message).without_lost().await;
        let sent = sent.whole().await.unwrap();
        let sent: Value = serde_json::from_slice(&sent).unwrap();
        let stored: Value = serde_json::from_str(message.json_str()).unwrap();
        let text = |tool: &str| json!({"type": "text", "text": format!("Image returned by the tool '{tool}':")});
        let url = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
        let named =
            |id: &FileId| json!({"type": "image_file", "image_file": {"file_id": id.as_str()}});
        let missing = json!({"type": "text", "text": MISSING_IMAGE});
        let gif = url("data:image/gif;a=\"b\";base64,AAAA");
        let png = url("data:image/png;base64,AAAA");
        assert_eq!(
            stored["content"],
            json!([
                text("t"),
                named(&id),
                text("u"),
                gif,
                text("v"),
                named(&gone)
            ])
        );
        assert_eq!(
            sent["content"],
            json!([text("t"), png, text("u"), gif, text("v"), missing])
        );
        assert_eq!(
            (&stored["role"], &sent["role"]),
            (&json!("user"), &json!("user"))
        );
        assert!(image_message(Vec::new()).is_none());
    }
}
