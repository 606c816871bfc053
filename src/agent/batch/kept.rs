//! Stores the parts of a result, such as files and images, within the bytes of the turn.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use super::super::event::{AgentEvent, KeptImage, Notice, ProducedFile};
use super::super::images::{ShownImage, StoredPart, frames_shown};
use super::super::policy::repeat::ResultDigest;
use super::report::add_note;
use super::{Batch, BatchContext};
use tools::cap::cap_result;
use tools::{ToolFile, ToolImage, ToolOutput};

/// Longest time for which the files of a result are stored once the turn is aborted. Those that are not stored then are
/// left out.
/// Tried by `cancel::a_call_whose_files_take_too_long_to_store_has_run`.
const ABORTED_WAIT: Duration = Duration::from_secs(1);
/// The note about files that took longer.
const NOT_KEPT: &str =
    "[The turn was cancelled before all images and files of this result were stored.]";

/// The stored parts of a result besides its text.
#[derive(Debug, Default)]
pub(super) struct KeptParts {
    /// The digest of the whole result.
    pub(super) digest: ResultDigest,
    /// The files that the call made.
    pub(super) files: Vec<ProducedFile>,
    /// The images that the turn keeps.
    pub(super) images: Vec<KeptImage>,
    /// The frames of animations that the turn keeps.
    pub(super) frames: Vec<KeptImage>,
    /// The images and frames that a model that takes images gets.
    pub(super) shown: Vec<ShownImage>,
    /// The whole text of the result, if it was shortened and the turn keeps it.
    pub(super) full_text: Option<String>,
    /// Ids of files that hold images or the whole text of the result.
    pub(super) file_ids: Vec<String>,
    /// Images and frames that are stored as files only.
    stored_only: usize,
    /// Images and frames that are lost.
    dropped: usize,
    /// The whole text is stored as a file, or lost.
    text_beyond: bool,
}

impl Batch {
    /// Stores the parts of a result, but takes at most [`ABORTED_WAIT`] once the turn is aborted. The call has run, and
    /// its result says so even if its parts are lost.
    pub(super) async fn keep_result(
        &mut self,
        index: usize,
        output: &mut ToolOutput,
        aborted: &mut (impl Future<Output = ()> + Unpin),
    ) -> KeptParts {
        {
            let mut keeping = pin!(self.keep_parts(index, output));
            tokio::select! {
                biased;
                kept = &mut keeping => return kept,
                () = aborted => {}
            }
            if let Ok(kept) = timeout(ABORTED_WAIT, keeping).await {
                return kept;
            }
        }
        let most = self.context.services.max_result_chars;
        output.content = cap_result(&output.content, most).into_owned();
        add_note(&mut output.content, Some(NOT_KEPT.to_owned()));
        KeptParts::default()
    }

    /// Stores the files and images of a result and shortens its text. Images beyond the bytes of the turn are left out.
    async fn keep_parts(&mut self, index: usize, output: &mut ToolOutput) -> KeptParts {
        let mut kept = KeptParts::of(ResultDigest::of_whole(output));
        let Some(tool) = self
            .open
            .calls
            .get(index)
            .map(|call| call.call.name.clone())
        else {
            return kept;
        };
        let made = std::mem::take(&mut output.files);
        kept.files = self.store_files(&tool, made, &mut output.content).await;
        self.keep_images(&tool, output, &mut kept).await;
        let frames = std::mem::take(&mut output.frames);
        self.context.keep_frames(&tool, frames, &mut kept).await;
        let most = match output.is_bounded {
            true => usize::MAX,
            false => self.context.services.max_result_chars,
        };
        let short = cap_result(&output.content, most);
        if short.len() < output.content.len() {
            let short = short.into_owned();
            let whole = std::mem::replace(&mut output.content, short);
            self.context.keep_full_text(&tool, whole, &mut kept).await;
        }
        if kept.beyond() > 0 || kept.text_beyond {
            let notice = self.context.turn_bytes_notice();
            self.ready.push_back(AgentEvent::Notice(notice));
        }
        kept
    }

    /// Stores the files that a call made. The text of the result says which contents are lost.
    async fn store_files(
        &mut self,
        tool: &str,
        made: Vec<ToolFile>,
        text: &mut String,
    ) -> Vec<ProducedFile> {
        let (mut files, mut lost) = (Vec::with_capacity(made.len()), Vec::new());
        for file in made {
            let (file, notice) = self.context.deliver_file(tool, file).await;
            // A file that is neither stored nor inline is lost. Its notice has the reason.
            if let (Some(notice), None) = (&notice, &file.data) {
                lost.push(notice.message.clone());
            }
            files.push(file);
            self.ready.extend(notice.map(AgentEvent::Notice));
        }
        if !lost.is_empty() {
            let list = lost.join("\n- ");
            text.push_str(&format!("\n\nnot handed to the user after all:\n- {list}"));
        }
        files
    }

    /// Stores the images of a result, and keeps those that the bytes of the turn allow. What is no PNG is among the files of
    /// the call.
    async fn keep_images(&mut self, tool: &str, output: &mut ToolOutput, kept: &mut KeptParts) {
        for (number, image) in std::mem::take(&mut output.images).into_iter().enumerate() {
            let is_png = image.is_png();
            let ToolImage { mime_type, content } = image;
            let bytes = content.decode();
            let name = ("image", number);
            let stored = if is_png {
                let stored = self.context.store_image(tool, name, &mime_type, &bytes);
                let stored = stored.await;
                kept.add_id(stored.as_ref());
                stored
            } else {
                let file = image_file(name, &mime_type, &bytes);
                let files = self.store_files(tool, vec![file], &mut output.content);
                let files = files.await;
                let stored = files.first().and_then(StoredPart::of_file);
                kept.files.extend(files);
                stored
            };
            if !self.context.turn_bytes.take_base64(bytes.len()) {
                kept.count(stored.is_some() || !is_png);
                continue;
            }
            let image = KeptImage {
                mime_type,
                bytes,
                file: stored.as_ref().map(StoredPart::kept),
            };
            kept.shown.push(ShownImage::new(&image, stored));
            kept.images.push(image);
        }
    }
}

impl BatchContext {
    /// Keeps the frames that fit into the bytes of the turn. An animation has many frames, so only the frames that do
    /// not fit and the frames that the model gets are stored as files.
    async fn keep_frames(&mut self, tool: &str, frames: Vec<ToolImage>, kept: &mut KeptParts) {
        for (number, ToolImage { mime_type, content }) in frames.into_iter().enumerate() {
            let bytes = content.decode();
            if self.turn_bytes.take_base64(bytes.len()) {
                kept.frames.push(KeptImage {
                    mime_type,
                    bytes,
                    file: None,
                });
                continue;
            }
            let stored = self.store_image(tool, ("frame", number), &mime_type, &bytes);
            let stored = stored.await;
            kept.count(stored.is_some());
            kept.add_id(stored.as_ref());
        }
        if self.shows_images {
            self.show_frames(tool, kept).await;
        }
    }

    /// Stores the frames that the model gets, so that the history can name them.
    async fn show_frames(&self, tool: &str, kept: &mut KeptParts) {
        for number in frames_shown(kept.frames.len()) {
            let Some(frame) = kept.frames.get_mut(number) else {
                continue;
            };
            let stored = self.store_image(tool, ("frame", number), &frame.mime_type, &frame.bytes);
            let stored = stored.await;
            frame.file = stored.as_ref().map(StoredPart::kept);
            let id = stored.as_ref().map(|part| part.id.as_str().to_owned());
            kept.shown.push(ShownImage::new(frame, stored));
            kept.file_ids.extend(id);
        }
    }

    async fn store_image(
        &self,
        tool: &str,
        (kind, number): (&str, usize),
        mime_type: &str,
        bytes: &[u8],
    ) -> Option<StoredPart> {
        let name = image_name(kind, number, mime_type);
        self.store_part(tool, &name, mime_type, bytes).await
    }

    /// Keeps the whole text of a shortened result. Beyond the bytes of the turn it is stored as a file.
    async fn keep_full_text(&mut self, tool: &str, text: String, kept: &mut KeptParts) {
        // No request can read the messages of an unstored turn.
        if self.call.session_id.is_none() {
            return;
        }
        if self.turn_bytes.take_text(text.len()) {
            kept.full_text = Some(text);
            return;
        }
        kept.text_beyond = true;
        let mime_type = "text/plain; charset=utf-8";
        let stored = self.store_part(tool, "result.txt", mime_type, text.as_bytes());
        let stored = stored.await;
        kept.add_id(stored.as_ref());
    }

    /// The notice that the turn keeps no more.
    fn turn_bytes_notice(&self) -> Notice {
        let rest = match &self.call.session_id {
            Some(_) => "what is more comes as file ids only",
            None => "what is more is dropped, because nothing of this turn is stored",
        };
        Notice {
            kind: "turn_bytes".into(),
            message: format!(
                "images, files and results of this turn exceed max_turn_bytes ({} bytes); {rest}",
                self.services.max_turn_bytes
            ),
        }
    }
}

impl KeptParts {
    /// A result with this digest, of which nothing is stored yet.
    pub(super) fn of(digest: ResultDigest) -> Self {
        Self {
            digest,
            ..Self::default()
        }
    }

    fn add_id(&mut self, stored: Option<&StoredPart>) {
        let id = stored.map(|part| part.id.as_str().to_owned());
        self.file_ids.extend(id);
    }

    /// Images and frames that a model that takes images gets.
    pub(super) fn showable(&self) -> usize {
        self.images.len() + frames_shown(self.frames.len()).len()
    }

    /// Images and frames that the turn does not keep.
    pub(super) fn beyond(&self) -> usize {
        self.stored_only + self.dropped
    }

    /// Counts an image that the turn does not keep.
    fn count(&mut self, is_stored: bool) {
        match is_stored {
            true => self.stored_only += 1,
            false => self.dropped += 1,
        }
    }

    /// The note for the model about images that the turn does not keep.
    pub(super) fn note(&self) -> Option<String> {
        let texts = [
            (self.stored_only, "kept as files for the user only"),
            (self.dropped, "dropped"),
        ];
        let texts = texts.iter().filter(|(count, _)| *count > 0);
        let texts: Vec<String> = texts
            .map(|(count, what)| format!("{count} image(s) of this result were {what}"))
            .collect();
        let texts = Some(texts.join(", ")).filter(|texts| !texts.is_empty())?;
        Some(format!("[{texts}: the turn keeps no more images.]"))
    }
}

/// An image as a file that the call made.
fn image_file((kind, number): (&str, usize), mime_type: &str, bytes: &Bytes) -> ToolFile {
    let name = image_name(kind, number, mime_type);
    ToolFile {
        path: name.clone(),
        name,
        mime_type: mime_type.to_owned(),
        content: bytes.clone(),
    }
}

fn image_name(kind: &str, number: usize, mime_type: &str) -> String {
    let subtype = mime_type.split(['/', '+', ';']).nth(1);
    format!("{kind}_{}.{}", number + 1, subtype.unwrap_or("bin"))
}
