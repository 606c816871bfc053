//! The images of tools that a model is shown.
//!
//! The history names a stored image by the id of its file, in a content part of the type `image_file`. Upstreams are sent
//! the image itself, as a data URL that is read from the file while the request is sent.

mod history;

use std::borrow::Cow;

pub(super) use self::history::{NamedImages, image_ids};
use super::event::KeptImage;
use crate::ids::FileId;
use crate::openai::message::Message;
use crate::openai::raw::quoted;
use crate::parted::{BinaryContent, PartedText};

/// Most frames of an animation that the model gets.
const MAX_FRAMES_SHOWN: usize = 8;

/// An image that the model is shown.
#[derive(Debug, Clone)]
pub(super) struct ShownImage {
    mime_type: Cow<'static, str>,
    content: BinaryContent,
    /// The stored file that holds it.
    file_id: Option<FileId>,
}

impl ShownImage {
    pub(super) fn new(kept: &KeptImage, file_id: Option<FileId>) -> Self {
        Self {
            mime_type: kept.mime_type.clone(),
            content: kept.clone().into_content(),
            file_id,
        }
    }

    /// Appends the content part with the image itself.
    fn push_inline(&self, text: &mut PartedText) {
        let url = quoted(&format!("data:{};base64,", self.mime_type));
        let url = url.trim_end_matches('"');
        text.push_text(format!(r#"{{"image_url":{{"url":{url}"#));
        text.push_base64(self.content.clone());
        text.push_text(r#""},"type":"image_url"}"#);
    }
}

/// The frames of an animation that the model gets: the first, the last, and others at even distances.
pub(super) fn frames_shown<T>(frames: &[T]) -> Vec<&T> {
    let (count, most) = (frames.len(), MAX_FRAMES_SHOWN);
    if count <= most {
        return frames.iter().collect();
    }
    let chosen = (0..most).filter_map(|index| frames.get(index * (count - 1) / (most - 1)));
    chosen.collect()
}

/// A user message with images, each with the name of its tool, as the history has it; and the images that it names.
/// Upstreams take no images in tool messages. Images whose files were deleted are left out.
pub(super) async fn image_message(
    images: Vec<(String, ShownImage)>,
) -> Option<(Message, NamedImages)> {
    let (mut content, mut named) = (PartedText::default(), NamedImages::default());
    for (tool, image) in images {
        if !image.content.exists().await {
            continue;
        }
        let before = if content.is_empty() { '[' } else { ',' };
        let text = quoted(&format!("Image returned by the tool '{tool}':"));
        content.push_text(format!(r#"{before}{{"text":{text},"type":"text"}},"#));
        match image.file_id.clone() {
            Some(id) => {
                content.push_text(file_part(&id));
                named.insert(id, image);
            }
            None => image.push_inline(&mut content),
        }
    }
    if content.is_empty() {
        return None;
    }
    content.push_text("]");
    // Only images in memory are inline here.
    let content = content.whole().await.ok()?;
    let message = Message::user_parts(std::str::from_utf8(&content).ok()?);
    Some((message, named))
}

/// The content part that names an image by its file.
fn file_part(id: &FileId) -> String {
    let id = quoted(id.as_str());
    format!(r#"{{"image_file":{{"file_id":{id}}},"type":"image_file"}}"#)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_model_sees_a_few_frames_of_an_animation_from_its_beginning_to_its_end() {
        let shown = |count: usize| -> Vec<usize> {
            let frames: Vec<usize> = (0..count).collect();
            frames_shown(&frames).into_iter().copied().collect()
        };
        assert_eq!(shown(8), (0..8).collect::<Vec<_>>());
        assert_eq!(shown(71), [0, 10, 20, 30, 40, 50, 60, 70]);
        assert_eq!(shown(9).len(), 8);
    }

    #[tokio::test]
    async fn the_history_names_stored_images_and_the_upstream_is_sent_all_of_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        std::fs::write(&path, [0, 0, 0]).unwrap();
        let file = |name: &str| BinaryContent::File {
            path: directory.path().join(name).into(),
            length: 3,
        };
        let image = |mime_type: &'static str, file, file_id| {
            let kept = KeptImage {
                mime_type: mime_type.into(),
                bytes: vec![0, 0, 0].into(),
                file,
            };
            ShownImage::new(&kept, file_id)
        };
        let id = FileId::fresh();
        let images = vec![
            (
                "t".to_owned(),
                image("image/png", Some(file("image")), Some(id.clone())),
            ),
            ("u".to_owned(), image("image/gif;a=\"b\"", None, None)),
            (
                "v".to_owned(),
                image("image/png", Some(file("gone")), Some(FileId::fresh())),
            ),
        ];
        let (message, images) = image_message(images).await.unwrap();
        let sent = images.render(&message).whole().await.unwrap();
        let sent: Value = serde_json::from_slice(&sent).unwrap();
        let stored: Value = serde_json::from_str(message.json_str()).unwrap();
        let text = |tool: &str| json!({"type": "text", "text": format!("Image returned by the tool '{tool}':")});
        let url = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
        let named = json!({"type": "image_file", "image_file": {"file_id": id.as_str()}});
        let gif = url("data:image/gif;a=\"b\";base64,AAAA");
        let png = url("data:image/png;base64,AAAA");
        assert_eq!(stored["content"], json!([text("t"), named, text("u"), gif]));
        assert_eq!(sent["content"], json!([text("t"), png, text("u"), gif]));
        assert_eq!(
            (&stored["role"], &sent["role"]),
            (&json!("user"), &json!("user"))
        );
        assert!(image_message(Vec::new()).await.is_none());
    }
}
