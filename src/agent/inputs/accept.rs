//! Checks the files of new messages, and stores those that are inline.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::json;

use super::super::AgentError;
use super::super::contents::input_images;
use super::error::{
    FileMember, FilePosition, InputFileError, InputFileProblem, PartForm, PartIndex,
};
use super::part::{FilePart, RemoteFile, with_parts};
use super::{InputFiles, decode, parts_of, read_part};
use crate::session::files::{FileError, NewFile, Purpose, StoredFile};
use net::polling::{LONG_BYTES, block_in_place_if};
use protocol::openai::message::Message;
use tools::requested::Capability;
use web::DownloadBudget;

/// The content of a file that a request holds or names by its URL.
#[derive(Debug)]
struct ReceivedFile {
    /// Where the request holds or names it.
    position: FilePosition,
    /// May be empty.
    name: String,
    /// The type that the sender gives.
    mime_type: Option<String>,
    content: Bytes,
}

impl InputFiles<'_> {
    /// Downloads and checks the files of a request's messages. With a stored session, they are stored and replaced by their
    /// ids where code can be executed.
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
        let sources = self.sources.snapshot();
        let keeps = sources.tool_for(Capability::Code).is_some();
        let mut budget = self.downloads.budget();
        let mut accepted = Vec::with_capacity(messages.len());
        for (message_index, message) in messages.into_iter().enumerate() {
            let Some(mut parts) = parts_of(&message) else {
                accepted.push(message);
                continue;
            };
            let mut changed = false;
            for (part_index, part) in parts.iter_mut().enumerate() {
                let index = PartIndex {
                    message: message_index,
                    part: part_index,
                };
                let rewritten = match read_part(part) {
                    FilePart::Remote(remote) => {
                        let file = self.download(index, &remote, &mut budget).await?;
                        Some(self.accept_downloaded(file, keeps).await?)
                    }
                    here if keeps => self.accept_part(index, here).await?,
                    _ => None,
                };
                if let Some(rewritten) = rewritten {
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

    /// Checks the stored images that a message names.
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
            FilePart::Other | FilePart::Remote(_) => Ok(None),
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
                let position = FilePosition::Part {
                    index,
                    form: inline.form,
                    member: FileMember::Data,
                };
                let Some((mime_type, content)) = decode(&inline) else {
                    let problem = InputFileProblem::NotBase64;
                    return Err(InputFileError { position, problem }.into());
                };
                let file = ReceivedFile {
                    position,
                    name: inline.name,
                    mime_type,
                    content: content.into(),
                };
                let stored = self.store(&file).await?;
                Ok(stored.map(|stored| part_of(&stored)))
            }
        }
    }

    async fn download(
        &self,
        index: PartIndex,
        remote: &RemoteFile,
        budget: &mut DownloadBudget,
    ) -> Result<ReceivedFile, AgentError> {
        let position = FilePosition::Part {
            index,
            form: remote.form,
            member: FileMember::Url,
        };
        let found = self.downloads.get(self.owner, &remote.url, budget).await;
        let found = found.map_err(|error| InputFileError {
            position: position.clone(),
            problem: InputFileProblem::Download {
                reason: error.to_string(),
            },
        })?;
        Ok(ReceivedFile {
            position,
            name: match remote.name.is_empty() {
                true => found.name,
                false => remote.name.clone(),
            },
            mime_type: found.media_type,
            content: found.content,
        })
    }

    /// The part that replaces the URL of a file: its id if it `keeps` files and there is a stored session, else its content.
    async fn accept_downloaded(
        &self,
        file: ReceivedFile,
        keeps: bool,
    ) -> Result<String, AgentError> {
        if keeps && let Some(stored) = self.store(&file).await? {
            return Ok(part_of(&stored));
        }
        let media_type = file
            .mime_type
            .as_deref()
            .and_then(|text| text.split(';').next());
        let media_type = media_type.unwrap_or("application/octet-stream").trim();
        let content = block_in_place_if(file.content.len() > LONG_BYTES, || {
            STANDARD.encode(&file.content)
        });
        let data = format!("data:{media_type};base64,{content}");
        Ok(json!({"type": "file", "file": {"filename": file.name, "file_data": data}}).to_string())
    }

    /// Checks a file, and stores it if there is a stored session.
    async fn store(&self, received: &ReceivedFile) -> Result<Option<StoredFile>, AgentError> {
        let refuse = |problem| {
            let position = received.position.clone();
            Err(AgentError::from(InputFileError { position, problem }))
        };
        let limits = self.files.limits();
        let limit = limits.max_file_bytes.min(limits.max_total_bytes);
        if received.content.len() as u64 > limit {
            return refuse(InputFileProblem::TooLarge { limit });
        }
        if self.session.is_none() {
            return Ok(None);
        }
        let file = NewFile {
            // It is attached to the session when the turn is written.
            session: None,
            name: &received.name,
            mime_type: received.mime_type.as_deref(),
            purpose: Purpose::UserData,
            tool: None,
            round: None,
        };
        let stored = self
            .files
            .put_inline(self.owner, file, received.content.clone());
        match stored.await {
            Ok(stored) => Ok(Some(stored)),
            Err(FileError::TooLarge { limit }) => refuse(InputFileProblem::TooLarge { limit }),
            Err(error) => Err(AgentError::Files(error)),
        }
    }
}

/// The part that names a stored file.
fn part_of(stored: &StoredFile) -> String {
    json!({"type": "file", "file": {"file_id": stored.id, "filename": stored.name}}).to_string()
}
