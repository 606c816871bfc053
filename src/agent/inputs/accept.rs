//! Checks the files of new messages, and stores those that are inline.

use serde_json::json;

use super::super::AgentError;
use super::super::images::input_images;
use super::error::{
    FileMember, FilePosition, InputFileError, InputFileProblem, PartForm, PartIndex,
};
use super::part::{FilePart, InlineFile, file_parts, with_parts};
use super::{InputFiles, decode};
use crate::openai::message::Message;
use crate::session::files::{FileError, NewFile, Purpose, StoredFile};
use crate::tools::requested::Capability;

impl InputFiles<'_> {
    /// Checks the files of a request's messages. With a stored session, inline files are stored and replaced by their ids.
    ///
    /// # Errors
    /// When a file cannot be decoded, is too large or does not exist, or when the store fails.
    pub(in super::super) async fn accept(
        self,
        messages: Vec<Message>,
    ) -> Result<Vec<Message>, AgentError> {
        for (index, message) in messages.iter().enumerate() {
            self.check_images(index, message).await?;
        }
        let sources = self.parts.sources.snapshot();
        if sources.tool_for(Capability::Code).is_none() {
            return Ok(messages);
        }
        let mut accepted = Vec::with_capacity(messages.len());
        for (message_index, message) in messages.into_iter().enumerate() {
            let Some(mut parts) = file_parts(&message) else {
                accepted.push(message);
                continue;
            };
            let mut changed = false;
            for (part_index, part) in parts.iter_mut().enumerate() {
                let index = PartIndex {
                    message: message_index,
                    part: part_index,
                };
                if let Some(rewritten) = self.accept_part(index, FilePart::read(part)).await? {
                    *part = rewritten;
                    changed = true;
                }
            }
            accepted.push(match changed {
                true => with_parts(&message, &parts),
                false => message,
            });
        }
        Ok(accepted)
    }

    /// Checks the stored images that a message brings, and attaches them to the session.
    async fn check_images(&self, message: usize, brings: &Message) -> Result<(), AgentError> {
        for (part, id) in input_images(brings) {
            let index = PartIndex { message, part };
            let position = FilePosition::Part {
                index,
                form: PartForm::InputFile,
                member: FileMember::Id,
            };
            let stored = self.find_stored(position.clone(), id.clone()).await?;
            if !stored.mime_type.starts_with("image/") {
                let problem = InputFileProblem::NotAnImage { id };
                return Err(InputFileError { position, problem }.into());
            }
        }
        Ok(())
    }

    /// Checks one content part, and stores its file if there is a stored session. Returns the part that replaces it, if any.
    async fn accept_part(
        &self,
        index: PartIndex,
        part: FilePart,
    ) -> Result<Option<String>, AgentError> {
        match part {
            FilePart::Other => Ok(None),
            FilePart::Stored { id, form } => {
                let position = FilePosition::Part {
                    index,
                    form,
                    member: FileMember::Id,
                };
                let stored = self.find_stored(position, id).await?;
                let part = json!({"type": "file", "file": {"file_id": stored.id}});
                Ok(self.session.map(|_| part.to_string()))
            }
            FilePart::Inline(inline) => {
                let stored = self.store_inline(index, &inline).await?;
                let part = |stored: StoredFile| json!({"type": "file", "file": {"file_id": stored.id, "filename": stored.name}});
                Ok(stored.map(|stored| part(stored).to_string()))
            }
        }
    }

    /// Checks an inline file, and stores it if there is a stored session.
    async fn store_inline(
        &self,
        index: PartIndex,
        inline: &InlineFile,
    ) -> Result<Option<StoredFile>, AgentError> {
        let refuse = |problem| {
            let position = FilePosition::Part {
                index,
                form: inline.form,
                member: FileMember::Data,
            };
            Err(AgentError::from(InputFileError { position, problem }))
        };
        let decoded = decode(inline);
        let Some((mime_type, content)) = decoded else {
            return refuse(InputFileProblem::NotBase64);
        };
        let limits = self.parts.sessions.files.limits();
        let limit = limits.max_file_bytes.min(limits.max_total_bytes);
        if content.len() as u64 > limit {
            return refuse(InputFileProblem::TooLarge { limit });
        }
        if self.session.is_none() {
            return Ok(None);
        }
        let file = NewFile {
            session: self.session,
            name: &inline.name,
            mime_type: mime_type.as_deref(),
            purpose: Purpose::UserData,
            tool: None,
            round: None,
        };
        let stored = self
            .parts
            .sessions
            .files
            .put_inline(self.owner, file, content.into());
        match stored.await {
            Ok(stored) => Ok(Some(stored)),
            Err(FileError::TooLarge { limit }) => refuse(InputFileProblem::TooLarge { limit }),
            Err(error) => Err(AgentError::Files(error)),
        }
    }
}
