//! The input files of a turn: files that users send in messages, name in a request, or upload for a session.
//!
//! Files of new messages are checked and stored before the request is joined to the history. Later all files of the
//! history get names for the working directory, and the messages for the model name them or hold them inline.
//!
//! An inline file is stored under an id made of its content. A client that sends the whole conversation again therefore
//! sends the same messages as the history holds. Without a stored session, inline files last as long as the run.

mod accept;
mod error;
mod found;
mod named;
mod part;
mod placeholder;
mod resolve;

use std::sync::Arc;

pub use self::error::{
    FileMember, FilePosition, InputFileError, InputFileProblem, PartForm, PartIndex,
};
use self::found::InputFile;
pub use self::named::use_named_files;
pub(super) use self::part::with_parts;
use self::part::{FilePart, InlineFile, file_parts};
pub(super) use self::placeholder::described;
use super::AgentError;
use crate::session::files::{FileDraft, FileError, FileStore, StoredFile};
use net::polling::{LONG_BYTES, block_in_place_if};
use protocol::ids::{FileId, Owner, SessionId};
use protocol::openai::message::Message;
use tools::WorkFile;
use tools::python::EarlierCode;
use tools::source::Sources;
use web::FileDownloads;

/// Whether one of the messages names or holds a file.
pub(super) fn has_files(messages: &[Message]) -> bool {
    messages.iter().any(|message| parts_of(message).is_some())
}

/// Accepts and resolves the input files of one owner and session.
#[derive(Debug, Clone, Copy)]
pub(super) struct InputFiles<'a> {
    pub(super) files: &'a FileStore,
    pub(super) sources: &'a Sources,
    pub(super) downloads: &'a FileDownloads,
    pub(super) owner: &'a Owner,
    /// None without a stored session.
    pub(super) session: Option<&'a SessionId>,
}

/// The input files of a turn.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    /// The files of the working directory.
    pub(super) files: Arc<[WorkFile]>,
    /// What code of earlier turns of the stored conversation has left.
    pub(super) earlier_code: EarlierCode,
    /// Unstored files, which are deleted when this is dropped.
    _drafts: Vec<FileDraft>,
}

impl<'a> InputFiles<'a> {
    /// The same for a stored session.
    pub(super) fn of_session<'b>(self, session: &'b SessionId) -> InputFiles<'b>
    where
        'a: 'b,
    {
        InputFiles {
            session: Some(session),
            ..self
        }
    }

    /// Finds a stored file by its id.
    async fn find_stored(
        &self,
        position: FilePosition,
        id: FileId,
    ) -> Result<StoredFile, AgentError> {
        match self.files.get(self.owner, &id).await {
            Ok(stored) => Ok(stored),
            Err(FileError::NotFound) => {
                let problem = InputFileProblem::NotFound { id };
                Err(InputFileError { position, problem }.into())
            }
            Err(other) => Err(AgentError::Files(other)),
        }
    }

    /// The input file that a stored file becomes.
    fn input_file(&self, stored: StoredFile) -> InputFile {
        InputFile {
            content: self.files.content(&stored),
            id: stored.id.as_str().to_owned(),
            name: stored.name,
            mime_type: stored.mime_type,
            size: stored.bytes,
            is_produced: false,
        }
    }
}

/// The content parts of a message as [`file_parts`] has them, without blocking other requests if they are long.
fn parts_of(message: &Message) -> Option<Vec<String>> {
    block_in_place_if(message.json().len() > LONG_BYTES, || file_parts(message))
}

/// Reads a part, without blocking other requests if it is long.
fn read_part(json: &str) -> FilePart {
    block_in_place_if(json.len() > LONG_BYTES, || FilePart::read(json))
}

/// Decodes an inline file as [`InlineFile::decode`] does, without blocking other requests if it is long.
fn decode(inline: &InlineFile) -> Option<(Option<String>, Vec<u8>)> {
    block_in_place_if(inline.data.len() > LONG_BYTES, || inline.decode())
}
