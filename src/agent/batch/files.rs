//! Files that tools made: stored with the session, and sent inline with the answer within limits. Images of results and
//! full texts that the turn cannot keep are stored as files, too.

use super::super::event::{Notice, ProducedFile};
use super::super::images::StoredPart;
use super::super::unix_seconds;
use super::BatchContext;
use crate::session::files::{FileError, NewFile, Purpose, StoredFile};
use blobs::segments::BinaryContent;
use protocol::ids::FileId;
use tools::ToolFile;

/// Largest file that an answer carries inline, in bytes; a larger one is only stored.
const MAX_INLINE_FILE_BYTES: u64 = 8 * 1024 * 1024;

/// What is stored as a file.
#[derive(Debug, Clone, Copy)]
struct Content<'a> {
    name: &'a str,
    mime_type: &'a str,
    bytes: &'a [u8],
}

impl BatchContext {
    /// Stores a file, and decides whether the answer carries it inline. A problem becomes a notice.
    pub(super) async fn deliver_file(
        &mut self,
        tool: &str,
        file: ToolFile,
    ) -> (ProducedFile, Option<Notice>) {
        let size = file.content.len() as u64;
        let small = size <= MAX_INLINE_FILE_BYTES;
        let inline = small && self.turn_bytes.take_base64(file.content.len());
        let new = Content {
            name: &file.name,
            mime_type: &file.mime_type,
            bytes: &file.content,
        };
        let (stored, notice) = match self.store_file(tool, new).await {
            Ok(Some(stored)) => (Some(stored), None),
            Ok(None) if inline => (None, None),
            Ok(None) if small => (
                None,
                Some(
                    "is dropped: the turn keeps no more than max_turn_bytes, and nothing of it is stored",
                ),
            ),
            Ok(None) => (
                None,
                Some("is too large to be sent inline, and nothing of this turn is stored"),
            ),
            Err(error) => {
                tracing::error!(error = %error, cause = ?std::error::Error::source(&error), "file could not be stored");
                let problem = match (&error, inline) {
                    (FileError::TooLarge { .. }, _) => "is too large to be stored",
                    (_, true) => "could not be stored; only this answer holds it",
                    (_, false) => "could not be stored",
                };
                (None, Some(problem))
            }
        };
        let notice = notice.map(|problem| Notice {
            kind: "file_store".into(),
            message: format!("the file '{}' {problem}", file.path),
        });
        let produced = match stored {
            Some(stored) => ProducedFile {
                file: Some(self.content_of(&stored)),
                id: stored.id.as_str().to_owned(),
                created_at: stored.created_at,
                purpose: stored.purpose.as_str().into(),
                name: stored.name,
                mime_type: stored.mime_type,
                session_id: self.call.session_id.clone(),
                ..self.unstored(file, inline)
            },
            None => self.unstored(file, inline),
        };
        (produced, notice)
    }

    /// Stores an image or a text of a result as a file of the session; `None` without a stored session, or if it could not
    /// be stored.
    pub(super) async fn store_part(
        &self,
        tool: &str,
        name: &str,
        mime_type: &str,
        bytes: &[u8],
    ) -> Option<StoredPart> {
        let content = Content {
            name,
            mime_type,
            bytes,
        };
        match self.store_file(tool, content).await {
            Ok(stored) => stored.map(|stored| StoredPart {
                content: self.content_of(&stored),
                id: stored.id,
                mime_type: stored.mime_type,
            }),
            Err(error) => {
                tracing::error!(error = %error, cause = ?std::error::Error::source(&error), "a part of a result could not be stored");
                None
            }
        }
    }

    /// Stores a file; `None` without a stored session.
    async fn store_file(
        &self,
        tool: &str,
        content: Content<'_>,
    ) -> Result<Option<StoredFile>, FileError> {
        let Some(session) = &self.call.session_id else {
            return Ok(None);
        };
        let new = NewFile {
            session: Some(session),
            name: content.name,
            mime_type: Some(content.mime_type),
            purpose: Purpose::AssistantsOutput,
            tool: Some(tool),
            round: Some(self.call.round),
        };
        let files = &self.services.files;
        let stored = files.put(&self.call.owner, new, content.bytes).await?;
        Ok(Some(stored))
    }

    /// The content of a stored file.
    fn content_of(&self, file: &StoredFile) -> BinaryContent {
        BinaryContent::Stored(self.services.files.content(file))
    }

    fn unstored(&self, file: ToolFile, inline: bool) -> ProducedFile {
        let size = file.content.len() as u64;
        ProducedFile {
            id: FileId::fresh().as_str().to_owned(),
            created_at: unix_seconds(),
            purpose: Purpose::AssistantsOutput.as_str().into(),
            name: file.name,
            mime_type: file.mime_type,
            size,
            session_id: None,
            round: self.call.round,
            path: file.path,
            data: inline.then_some(file.content),
            file: None,
        }
    }
}
