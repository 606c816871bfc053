//! The images that messages name: how they are sent, and which of those of a history the model is shown again.

use std::collections::HashMap;

use serde_json::value::RawValue;

use super::super::AgentParts;
use super::super::inputs::with_parts;
use super::super::turn::TurnRequest;
use super::super::turn_bytes::TurnBytes;
use super::{MISSING, StoredImage, note_part};
use crate::ids::{FileId, Owner};
use crate::openai::message::{Message, Role};
use crate::openai::raw::RawObject;
use crate::parted::{BinaryContent, PartedText};

/// Stands for an image in the messages for a model that takes none.
const UNSEEN: &str = "[an image that cannot be shown to this model]";
/// Most images of a history that are looked up; of more, the last ones.
const MOST_MENTIONS: usize = 1000;
/// Stands for an image that is left out because later ones are shown.
const EARLIER: &str = "[an earlier image, which is not shown again]";

/// The images that messages name and the model is shown.
#[derive(Debug, Default)]
pub(in super::super) struct NamedImages {
    by_file: HashMap<FileId, StoredImage>,
}

impl NamedImages {
    /// Finds the stored images of a history. The last ones are shown, as many as a turn may keep; a text stands for each
    /// of the others.
    pub(in super::super) async fn of_history(
        parts: &AgentParts,
        request: &TurnRequest,
        history: &mut [Message],
    ) -> Self {
        let mut found = Self::default();
        let mut room = TurnBytes::new(parts.settings.max_turn_bytes);
        let mut mentions = 0;
        let owner = &request.caller.owner;
        for message in history.iter_mut().rev() {
            let content = image_parts(message);
            let mut texts: Vec<String> = content.iter().map(|part| part.get().to_owned()).collect();
            let mut is_changed = false;
            for (part, text) in content.iter().zip(&mut texts).rev() {
                let Some(image) = NamedImage::read(part) else {
                    continue;
                };
                mentions += 1;
                // What a user sends is for the model server to refuse.
                let is_shown = request.route.quirks.images || image.detail.is_some();
                let note = match mentions <= MOST_MENTIONS {
                    _ if !is_shown => Some(UNSEEN),
                    false => Some(EARLIER),
                    true => found.admit(parts, owner, image.id, &mut room).await,
                };
                if let Some(note) = note {
                    *text = note_part(note);
                    is_changed = true;
                }
            }
            drop(content);
            if is_changed {
                *message = with_parts(message, &texts);
            }
        }
        found
    }

    /// Admits a mention of an image; otherwise returns the text that stands for it.
    async fn admit(
        &mut self,
        parts: &AgentParts,
        owner: &Owner,
        id: FileId,
        room: &mut TurnBytes,
    ) -> Option<&'static str> {
        if !self.by_file.contains_key(&id) {
            let Some(image) = stored_image(parts, owner, &id).await else {
                return Some(MISSING);
            };
            self.by_file.insert(id.clone(), image);
        }
        // Every mention counts, because each is sent.
        let length = self.by_file.get(&id)?.content.length();
        (!room.take_content(length)).then_some(EARLIER)
    }

    pub(super) fn insert(&mut self, id: FileId, image: StoredImage) {
        self.by_file.insert(id, image);
    }

    /// A message as the upstream is sent it.
    pub(in super::super) fn render(&self, message: &Message) -> PartedText {
        let json = message.json();
        if self.by_file.is_empty() {
            return json.clone().into();
        }
        let mut text = PartedText::default();
        let mut done = 0;
        for part in image_parts(message) {
            let named = NamedImage::read(part);
            let image = named.as_ref().and_then(|named| self.by_file.get(&named.id));
            let detail = named.as_ref().and_then(|named| named.detail.as_deref());
            let start = part.get().as_ptr().addr().checked_sub(json.as_ptr().addr());
            if let (Some(image), Some(start)) = (image, start)
                && let Some(before) = json.get(done..start)
            {
                text.push_text(json.slice_ref(before));
                text.push_embedded(image.embedded(detail));
                done = start + part.get().len();
            }
        }
        text.push_text(
            json.get(done..)
                .map(|rest| json.slice_ref(rest))
                .unwrap_or_default(),
        );
        text
    }
}

/// The stored image with this id, unless its content is gone.
async fn stored_image(parts: &AgentParts, owner: &Owner, id: &FileId) -> Option<StoredImage> {
    let files = &parts.sessions.files;
    let stored = files.get(owner, id).await.ok()?;
    let content = BinaryContent::Stored(files.content(&stored));
    let is_image = stored.mime_type.starts_with("image/");
    (is_image && content.exists().await).then(|| StoredImage {
        mime_type: stored.mime_type.into(),
        content,
    })
}

/// The stored images that a message names.
pub(in super::super) fn image_ids(message: &Message) -> Vec<FileId> {
    image_parts(message)
        .into_iter()
        .filter_map(NamedImage::read)
        .map(|image| image.id)
        .collect()
}

/// The stored images that a user sends with a message, by the number of their part.
pub(in super::super) fn input_images(message: &Message) -> Vec<(usize, FileId)> {
    let parts = image_parts(message).into_iter().enumerate();
    let images = parts.filter_map(|(index, part)| Some((index, NamedImage::read(part)?)));
    images
        .filter(|(_, image)| image.detail.is_some())
        .map(|(index, image)| (index, image.id))
        .collect()
}

/// The content parts of a user's message; none if it names no stored image.
fn image_parts(message: &Message) -> Vec<&RawValue> {
    let parts = || {
        if *message.role() != Role::User {
            return None;
        }
        memchr::memmem::find(message.json(), b"image_file")?;
        let object = RawObject::parse(message.json_str()).ok()?;
        serde_json::from_str(object.get_some("content")?.get()).ok()
    };
    parts().unwrap_or_default()
}

/// A stored image that a content part names.
struct NamedImage {
    id: FileId,
    /// How closely the model is to look. Only images that a user sends have it.
    detail: Option<String>,
}

impl NamedImage {
    fn read(part: &RawValue) -> Option<Self> {
        let part = RawObject::parse(part.get()).ok()?;
        let text = |object: &RawObject<'_>, key: &str| -> Option<String> {
            serde_json::from_str(object.get_some(key)?.get()).ok()
        };
        if text(&part, "type")? != "image_file" {
            return None;
        }
        let file = RawObject::parse(part.get_some("image_file")?.get()).ok()?;
        Some(Self {
            id: FileId::parse(&text(&file, "file_id")?)?,
            detail: text(&file, "detail"),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::file_part;
    use super::*;

    #[tokio::test]
    async fn a_message_is_sent_with_the_images_that_it_names() {
        let [shown, other] = [FileId::fresh(), FileId::fresh()];
        let (first, second) = (file_part(&shown), file_part(&other));
        let text = r#"{"type":"text","text":"image_file"}"#;
        let json =
            format!(r#"{{"role":"user","content":[{first}, {text},{second},{first}],"name":"n"}}"#);
        let image = StoredImage {
            mime_type: "image/png".into(),
            content: BinaryContent::Memory(vec![0, 0, 0].into()),
        };
        let images = NamedImages {
            by_file: HashMap::from([(shown, image)]),
        };
        let message = Message::parse(&json).unwrap();
        let sent = images.render(&message).whole().await.unwrap();
        let sent: Value = serde_json::from_slice(&sent).unwrap();
        let mut expected: Value = serde_json::from_str(&json).unwrap();
        let url = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
        (expected["content"][0], expected["content"][3]) = (url.clone(), url);
        assert_eq!(sent, expected);
        // A message without images is the very text.
        let message = Message::text(Role::User, "image_file");
        let sent = images.render(&message);
        assert_eq!(sent.in_one_piece().as_ref(), Some(message.json()));
    }
}
