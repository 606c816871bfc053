//! The stored images and files that messages name: how they are sent, and which contents of a history the model is
//! shown.
//!
//! A content is read while the request is sent. It is never in memory as a whole.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;

use super::conversation::is_long;
use super::inputs::{described, with_parts};
use super::turn_bytes::TurnBytes;
use crate::session::files::{FileError, FileStore, StoredFile};
use blobs::segments::{BinaryContent, EmbeddedContent, SegmentedText};
use net::polling::block_in_place_if;
use protocol::ids::{FileId, Owner};
use protocol::openai::message::{Message, Role};
use protocol::openai::raw::{RawObject, quoted};
use upstream::settings::Quirks;

/// Replaces an image whose file was deleted.
pub(super) const MISSING_IMAGE: &str = "[an image that is not available any more]";
/// Replaces an image for a model that takes none.
const UNSEEN: &str = "[an image that cannot be shown to this model]";
/// Replaces an image that is left out because later ones are shown.
const EARLIER: &str = "[an earlier image, which is not shown again]";
/// Replaces a file that was deleted.
pub(super) const MISSING_FILE: &str = "[a file that was sent here is not available any more]";
/// Replaces a file that is not looked up because there are enough later ones.
const EARLIER_FILE: &str = "[an earlier file, which is not shown again]";
/// The content part of an image after its base64.
pub(super) const IMAGE_AFTER: &str = r#""},"type":"image_url"}"#;
/// Most mentions of a history that are looked up; a text stands for the earlier ones.
const MOST_MENTIONS: usize = 1000;

/// The stored contents that messages name and the model is shown.
#[derive(Debug, Default)]
pub(super) struct NamedContents {
    images: HashMap<FileId, StoredImage>,
    files: HashMap<FileId, EmbeddedContent>,
}

/// An image in a file.
#[derive(Debug)]
pub(super) struct StoredImage {
    pub(super) mime_type: Cow<'static, str>,
    pub(super) content: BinaryContent,
}

/// A part of a message that names a stored content.
#[derive(Debug)]
struct Mention {
    message: usize,
    part: usize,
    named: NamedContent,
}

/// A stored content that a content part names.
#[derive(Debug)]
enum NamedContent {
    Image {
        id: FileId,
        /// The requested level of detail. Only images that a user sends have it.
        detail: Option<String>,
    },
    File(FileId),
}

/// Chooses the contents of a history that are shown, from its end.
struct Chooser<'a> {
    files: &'a FileStore,
    owner: &'a Owner,
    /// Whether the model sees images.
    takes_images: bool,
    room: TurnBytes,
    shown: NamedContents,
    /// The notes that replace earlier mentions of the files.
    earlier_files: HashMap<FileId, String>,
}

impl NamedContents {
    /// Finds the stored contents of a history. Shows the last ones within `room`, and each file once; a note replaces
    /// each of the others.
    pub(super) async fn of_history(
        files: &FileStore,
        owner: &Owner,
        quirks: &Quirks,
        history: &mut [Message],
        room: TurnBytes,
    ) -> Self {
        let bytes = history.iter().map(|message| message.json().len()).sum();
        let long = is_long(history.len(), bytes);
        let mentions = block_in_place_if(long, || mentions(history));
        let mut chooser = Chooser {
            files,
            owner,
            takes_images: quirks.images,
            room,
            shown: Self::default(),
            earlier_files: HashMap::new(),
        };
        let mut notes = Vec::new();
        for (before, mention) in mentions.into_iter().enumerate() {
            let note = chooser.note(mention.named, before < MOST_MENTIONS).await;
            notes.extend(note.map(|note| (mention.message, mention.part, note)));
        }
        block_in_place_if(long, || replace(history, &notes));
        chooser.shown
    }

    /// Adds an image of a tool.
    pub(super) fn insert(&mut self, id: FileId, image: StoredImage) {
        self.images.insert(id, image);
    }

    /// A message as the upstream is sent it.
    pub(super) fn render(&self, message: &Message) -> SegmentedText {
        let json = message.json();
        if self.images.is_empty() && self.files.is_empty() {
            return json.clone().into();
        }
        let mut text = SegmentedText::default();
        let mut done = 0;
        for part in content_parts(message) {
            let embedded = NamedContent::read(part).and_then(|named| self.embedded(named));
            let start = part.get().as_ptr().addr().checked_sub(json.as_ptr().addr());
            if let (Some(embedded), Some(start)) = (embedded, start)
                && let Some(before) = json.get(done..start)
            {
                text.push_text(json.slice_ref(before));
                text.push_embedded(embedded);
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

    /// The content part with the content itself; none if it is not shown.
    fn embedded(&self, named: NamedContent) -> Option<EmbeddedContent> {
        match named {
            NamedContent::Image { id, detail } => {
                let image = self.images.get(&id)?;
                Some(image.embedded(detail.as_deref()))
            }
            NamedContent::File(id) => self.files.get(&id).cloned(),
        }
    }
}

impl StoredImage {
    /// The content part with the image itself.
    fn embedded(&self, detail: Option<&str>) -> EmbeddedContent {
        let after = match detail {
            Some(detail) => {
                format!(r#"","detail":{}}},"type":"image_url"}}"#, quoted(detail)).into()
            }
            None => IMAGE_AFTER.into(),
        };
        EmbeddedContent {
            before: image_before(&self.mime_type).into(),
            content: self.content.clone(),
            after,
            lost: note_part(MISSING_IMAGE).into(),
        }
    }
}

impl Chooser<'_> {
    /// Admits a mention. If it is not admitted, returns the note that replaces it.
    async fn note(&mut self, named: NamedContent, looks_up: bool) -> Option<String> {
        match named {
            NamedContent::Image { id, detail } => {
                // What a user sends is for the model server to refuse.
                let is_seen = self.takes_images || detail.is_some();
                let note = match looks_up {
                    _ if !is_seen => Some(UNSEEN),
                    false => Some(EARLIER),
                    true => self.admit_image(id).await,
                };
                note.map(note_part)
            }
            NamedContent::File(id) => {
                let note = match self.earlier_files.get(&id) {
                    Some(earlier) => Some(earlier.clone()),
                    None if !looks_up => Some(EARLIER_FILE.to_owned()),
                    None => self.admit_file(id).await,
                };
                note.as_deref().map(note_part)
            }
        }
    }

    async fn admit_image(&mut self, id: FileId) -> Option<&'static str> {
        if !self.shown.images.contains_key(&id) {
            let Some(image) = self.stored_image(&id).await else {
                return Some(MISSING_IMAGE);
            };
            self.shown.images.insert(id.clone(), image);
        }
        // Every mention counts, because each is sent.
        let length = self.shown.images.get(&id)?.content.length();
        (!self.room.take_content(length)).then_some(EARLIER)
    }

    async fn admit_file(&mut self, id: FileId) -> Option<String> {
        let found = self.stored(&id).await;
        let (note, earlier) = match found {
            None => (Some(MISSING_FILE.to_owned()), MISSING_FILE.to_owned()),
            Some((stored, content)) => {
                let file = described(&stored.name, &stored.mime_type, stored.bytes);
                if self.room.take_content(stored.bytes) {
                    let content = file_content(&stored, content);
                    self.shown.files.insert(id.clone(), content);
                    (None, format!("[the file {file} is shown further below]"))
                } else {
                    let note = format!("[the file {file} cannot be shown]");
                    (Some(note.clone()), note)
                }
            }
        };
        self.earlier_files.insert(id, earlier);
        note
    }

    async fn stored_image(&self, id: &FileId) -> Option<StoredImage> {
        let (stored, content) = self.stored(id).await?;
        let is_image = stored.mime_type.starts_with("image/");
        is_image.then(|| StoredImage {
            mime_type: stored.mime_type.into(),
            content,
        })
    }

    /// A stored file, unless its content is deleted.
    async fn stored(&self, id: &FileId) -> Option<(StoredFile, BinaryContent)> {
        let files = self.files;
        let stored = match files.get(self.owner, id).await {
            Ok(stored) => stored,
            Err(FileError::NotFound) => return None,
            Err(error) => {
                tracing::error!(error = %error, "file could not be looked up");
                return None;
            }
        };
        let content = BinaryContent::Stored(files.content(&stored));
        content.exists().await.then_some((stored, content))
    }
}

/// The content part of an image up to its base64.
pub(super) fn image_before(mime_type: &str) -> String {
    let url = quoted(&format!("data:{mime_type};base64,"));
    let url = url.trim_end_matches('"');
    format!(r#"{{"image_url":{{"url":{url}"#)
}

/// The content part with the content of a file.
fn file_content(stored: &StoredFile, content: BinaryContent) -> EmbeddedContent {
    let url = quoted(&format!("data:{};base64,", stored.mime_type));
    let url = url.strip_suffix('"').unwrap_or(&url);
    let name = quoted(&stored.name);
    EmbeddedContent {
        before: format!(r#"{{"file":{{"file_data":{url}"#).into(),
        content,
        after: format!(r#"","filename":{name}}},"type":"file"}}"#).into(),
        lost: note_part(MISSING_FILE).into(),
    }
}

/// A content part with a note in the place of a content.
pub(super) fn note_part(note: &str) -> String {
    format!(r#"{{"text":{},"type":"text"}}"#, quoted(note))
}

/// The stored contents that a message names.
pub(super) fn named_in(message: &Message) -> Vec<FileId> {
    let named = content_parts(message)
        .into_iter()
        .filter_map(NamedContent::read);
    let ids = named.map(|named| match named {
        NamedContent::Image { id, .. } | NamedContent::File(id) => id,
    });
    ids.collect()
}

/// The stored images that a user sends with a message, by the number of their part.
pub(super) fn input_images(message: &Message) -> Vec<(usize, FileId)> {
    let parts = content_parts(message).into_iter().enumerate();
    let images = parts.filter_map(|(index, part)| match NamedContent::read(part)? {
        NamedContent::Image { id, detail } => detail.map(|_| (index, id)),
        NamedContent::File(_) => None,
    });
    images.collect()
}

/// The mentions of a history, from its end.
fn mentions(history: &[Message]) -> Vec<Mention> {
    let messages = history.iter().enumerate().rev();
    let mentions = messages.flat_map(|(message, stored)| {
        let parts = content_parts(stored).into_iter().enumerate().rev();
        parts.filter_map(move |(part, text)| {
            let named = NamedContent::read(text)?;
            Some(Mention {
                message,
                part,
                named,
            })
        })
    });
    mentions.collect()
}

/// Puts notes in the place of content parts. The notes of a message follow one another.
fn replace(history: &mut [Message], notes: &[(usize, usize, String)]) {
    for notes in notes.chunk_by(|one, next| one.0 == next.0) {
        let Some(message) = notes.first().and_then(|(at, ..)| history.get_mut(*at)) else {
            continue;
        };
        let parts = content_parts(message);
        let mut texts: Vec<String> = parts.iter().map(|part| part.get().to_owned()).collect();
        for (_, part, note) in notes {
            if let Some(text) = texts.get_mut(*part) {
                note.clone_into(text);
            }
        }
        let replaced = with_parts(message, &texts);
        *message = replaced;
    }
}

/// The content parts of a user's message; none if it names no stored content.
fn content_parts(message: &Message) -> Vec<&RawValue> {
    let parts = || {
        if *message.role() != Role::User {
            return None;
        }
        // An id of a file or the type of an image. Most messages have none. This search saves parsing them.
        memchr::memmem::find(message.json(), b"file_id")?;
        let object = RawObject::parse(message.json_str()).ok()?;
        serde_json::from_str(object.get_some("content")?.get()).ok()
    };
    parts().unwrap_or_default()
}

impl NamedContent {
    fn read(part: &RawValue) -> Option<Self> {
        let part = RawObject::parse(part.get()).ok()?;
        let object = |key| RawObject::parse(part.get_some(key)?.get()).ok();
        match text(&part, "type")?.as_str() {
            "image_file" => {
                let file = object("image_file")?;
                let (id, detail) = (file_id(&file)?, text(&file, "detail"));
                Some(Self::Image { id, detail })
            }
            "file" => file_id(&object("file")?).map(Self::File),
            "input_file" => file_id(&part).map(Self::File),
            _ => None,
        }
    }
}

fn file_id(object: &RawObject<'_>) -> Option<FileId> {
    FileId::parse(&text(object, "file_id")?)
}

fn text(object: &RawObject<'_>, key: &str) -> Option<String> {
    serde_json::from_str(object.get_some(key)?.get()).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::images::file_part;
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
        let images = NamedContents {
            images: HashMap::from([(shown, image)]),
            files: HashMap::new(),
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
