//! The input files of a turn: files that users send in messages, name in a request, or upload for a session.
//!
//! Files of new messages are checked and stored before the request is joined to the history. Later all files of the
//! history get names for the working directory, and the messages for the model name them or hold them inline.
//!
//! An inline file is stored under an id made of its content. A client that sends the whole conversation again therefore
//! sends the same messages as the history holds. Without a stored session, inline files last as long as the run.

mod error;
mod named;
mod part;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::json;
use tokio::io::AsyncReadExt;

pub use self::error::{
    FileMember, FilePosition, InputFileError, InputFileProblem, PartForm, PartIndex,
};
pub use self::named::use_named_files;
use self::part::{FilePart, InlineFile, file_parts, with_parts};
use super::turn::NamedFile;
use super::{AgentError, AgentParts, block_in_place_if};
use crate::ids::{FileId, Owner, SessionId};
use crate::openai::message::Message;
use crate::session::files::{Draft, FileError, NewFile, Purpose, StoredFile, name};
use crate::tools::WorkFile;
use crate::tools::requested::Capability;

/// Largest file that is sent to a model inline, in bytes.
const MAX_INLINE_BYTES: u64 = 32 * 1024 * 1024;
/// Base64 text longer than this takes long to decode, in bytes.
const LONG_BASE64: usize = 1024 * 1024;

/// Accepts and resolves the input files of one owner and session.
#[derive(Debug, Clone, Copy)]
pub(super) struct InputFiles<'a> {
    pub(super) parts: &'a AgentParts,
    pub(super) owner: &'a Owner,
    /// None without a stored session.
    pub(super) session: Option<&'a SessionId>,
}

/// The input files of a turn.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    /// The files of the working directory.
    pub(super) files: Arc<[WorkFile]>,
    /// Unstored files, which are deleted when this is dropped.
    _drafts: Vec<Draft>,
}

/// One input file.
#[derive(Debug, Clone)]
struct InputFile {
    id: String,
    name: String,
    mime_type: String,
    size: u64,
    path: PathBuf,
}

impl InputFiles<'_> {
    /// Checks the files of a request's messages. With a stored session, inline files are stored and replaced by their ids.
    ///
    /// # Errors
    /// When a file cannot be decoded, is too large or does not exist, or when the store fails.
    pub(super) async fn accept(self, messages: Vec<Message>) -> Result<Vec<Message>, AgentError> {
        if self
            .parts
            .sources
            .snapshot()
            .tool_for(Capability::Code)
            .is_none()
        {
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

    /// Finds a stored file by its id, and attaches it to the session.
    async fn find_stored(
        &self,
        position: FilePosition,
        id: FileId,
    ) -> Result<StoredFile, AgentError> {
        let files = &self.parts.sessions.files;
        let found = async {
            if let Some(session) = self.session {
                files.attach(self.owner, &id, session).await?;
            }
            files.get(self.owner, &id).await
        };
        match found.await {
            Ok(stored) => Ok(stored),
            Err(FileError::NotFound) => {
                let problem = InputFileProblem::NotFound { id };
                Err(InputFileError { position, problem }.into())
            }
            Err(other) => Err(AgentError::Files(other)),
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
        let decoded = block_in_place_if(inline.data.len() > LONG_BASE64, || inline.decode());
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

    /// Adds the files that were uploaded for the session. Those that messages name are in the list already.
    async fn add_uploaded(&self, found: &mut FoundFiles) {
        let Some(session) = self.session else { return };
        match self
            .parts
            .sessions
            .files
            .of_session(self.owner, session)
            .await
        {
            Ok(files) => {
                let uploaded = files
                    .into_iter()
                    .filter(|file| file.purpose != Purpose::AssistantsOutput);
                for file in uploaded {
                    found.add(self.input_file(file));
                }
            }
            // The turn runs without these files.
            Err(error) => tracing::error!(%error, "the files of a session could not be listed"),
        }
    }

    /// Finds the input files of a turn, and rewrites the messages for the upstream: with `runs_code` they say where in the
    /// working directory a file is, else they hold the stored files inline.
    ///
    /// # Errors
    /// When a file that the request names besides its messages does not exist, or when the store fails.
    pub(super) async fn resolve(
        self,
        history: Vec<Message>,
        named: &[NamedFile],
        runs_code: bool,
    ) -> Result<(Vec<Message>, Inputs), AgentError> {
        let mut found = FoundFiles::default();
        let mut rewritten_history = Vec::with_capacity(history.len());
        for message in history {
            let Some(mut parts) = file_parts(&message) else {
                rewritten_history.push(message);
                continue;
            };
            let mut changed = false;
            for part in &mut parts {
                let rewritten = match FilePart::read(part) {
                    FilePart::Stored { id, .. } => {
                        Some(self.stored_part(&mut found, &id, runs_code).await)
                    }
                    FilePart::Inline(inline) if runs_code => {
                        self.unstored_part(&mut found, &inline).await
                    }
                    FilePart::Inline(_) | FilePart::Other => None,
                };
                if let Some(rewritten) = rewritten {
                    *part = rewritten;
                    changed = true;
                }
            }
            rewritten_history.push(match changed {
                true => with_parts(&message, &parts),
                false => message,
            });
        }
        for NamedFile { param, id } in named {
            let position = FilePosition::Field(param.clone());
            let Some(id) = FileId::parse(id) else {
                let problem = InputFileProblem::NotAnId;
                return Err(InputFileError { position, problem }.into());
            };
            let stored = self.find_stored(position, id).await?;
            found.add(self.input_file(stored));
        }
        if runs_code {
            self.add_uploaded(&mut found).await;
        }
        let inputs = Inputs {
            files: found.work_files(),
            _drafts: found.drafts,
        };
        Ok((rewritten_history, inputs))
    }

    /// The content part that stands for a stored file in the messages for the model.
    async fn stored_part(&self, found: &mut FoundFiles, id: &FileId, runs_code: bool) -> String {
        let stored = match self.parts.sessions.files.get(self.owner, id).await {
            Ok(stored) => stored,
            Err(error) => {
                if !matches!(error, FileError::NotFound) {
                    tracing::error!(error = %error, "file could not be looked up");
                }
                return text_part("[a file that was sent here is not available any more]");
            }
        };
        if runs_code {
            return location_part(&found.add(self.input_file(stored)));
        }
        match self.content(&stored).await {
            Some(content) => {
                let data = format!(
                    "data:{};base64,{}",
                    stored.mime_type,
                    STANDARD.encode(content)
                );
                let file = json!({"filename": stored.name, "file_data": data});
                json!({"type": "file", "file": file}).to_string()
            }
            None => text_part(&format!(
                "[the file {} cannot be shown]",
                described(&stored.name, &stored.mime_type, stored.bytes)
            )),
        }
    }

    /// The content part that stands for an inline file in the messages for the model. `None` if the file cannot be decoded or
    /// written to a draft.
    async fn unstored_part(&self, found: &mut FoundFiles, inline: &InlineFile) -> Option<String> {
        let (mime_type, content) =
            block_in_place_if(inline.data.len() > LONG_BASE64, || inline.decode())?;
        let size = content.len() as u64;
        let name = name::clean(&inline.name);
        let id = FileId::of_content(self.owner, &name, &content)
            .as_str()
            .to_owned();
        if let Some(input) = found.known(&id) {
            return Some(location_part(input));
        }
        let written = async {
            let mut draft = self.parts.sessions.files.draft().await?;
            draft.write(&content).await?;
            let path = draft.settle().await?;
            Ok::<_, FileError>((draft, path))
        };
        match written.await {
            Ok((draft, path)) => {
                let input = InputFile {
                    id,
                    mime_type: draft.media_type(&name, mime_type.as_deref()),
                    name,
                    size,
                    path,
                };
                found.drafts.push(draft);
                Some(location_part(&found.add(input)))
            }
            Err(error) => {
                tracing::error!(error = %error, "a file of the request could not be written to a draft");
                None
            }
        }
    }

    /// The content of a stored file; `None` if it is larger than [`MAX_INLINE_BYTES`] or cannot be read.
    async fn content(&self, stored: &StoredFile) -> Option<Bytes> {
        if stored.bytes > MAX_INLINE_BYTES {
            return None;
        }
        let opened = self
            .parts
            .sessions
            .files
            .open_content(self.owner, &stored.id)
            .await;
        let (_, file) = opened.ok()?;
        let mut content = Vec::new();
        let read = file.take(MAX_INLINE_BYTES).read_to_end(&mut content).await;
        read.ok().map(|_| content.into())
    }

    fn input_file(&self, stored: StoredFile) -> InputFile {
        InputFile {
            path: self.parts.sessions.files.path(&stored),
            id: stored.id.as_str().to_owned(),
            name: stored.name,
            mime_type: stored.mime_type,
            size: stored.bytes,
        }
    }
}

/// The input files found so far. Ids and names are unique.
#[derive(Debug, Default)]
struct FoundFiles {
    files: Vec<InputFile>,
    by_id: HashMap<String, usize>,
    names: HashSet<String>,
    drafts: Vec<Draft>,
}

impl FoundFiles {
    fn known(&self, id: &str) -> Option<&InputFile> {
        self.files.get(*self.by_id.get(id)?)
    }

    /// Adds a file unless its id is known, and returns it with its name. A name that another file has gets a number.
    fn add(&mut self, mut input: InputFile) -> InputFile {
        if let Some(known) = self.known(&input.id) {
            return known.clone();
        }
        input.name = self.free_name(&input.name);
        self.names.insert(input.name.clone());
        self.by_id.insert(input.id.clone(), self.files.len());
        self.files.push(input.clone());
        input
    }

    fn free_name(&self, name: &str) -> String {
        let (stem, ending) = match name.rsplit_once('.') {
            Some((stem, ending)) if !stem.is_empty() => (stem, format!(".{ending}")),
            Some(_) | None => (name, String::new()),
        };
        let numbered = (2..).map(|number: u32| format!("{stem} ({number}){ending}"));
        std::iter::once(name.to_owned())
            .chain(numbered)
            .find(|name| !self.names.contains(name))
            .unwrap_or_else(|| name.to_owned())
    }

    fn work_files(&self) -> Arc<[WorkFile]> {
        let work_file = |input: &InputFile| WorkFile {
            id: input.id.clone(),
            name: input.name.clone(),
            size: input.size,
            path: input.path.clone(),
        };
        self.files.iter().map(work_file).collect()
    }
}

/// The content part that says where in the working directory a file is.
fn location_part(input: &InputFile) -> String {
    let file = described(&input.name, &input.mime_type, input.size);
    text_part(&format!("[file {file} is in the working directory]"))
}

fn described(name: &str, mime_type: &str, size: u64) -> String {
    format!("'{name}' ({mime_type}, {} bytes)", grouped(size))
}

fn text_part(text: &str) -> String {
    json!({"type": "text", "text": text}).to_string()
}

/// A number with its digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(id: &str, name: &str) -> InputFile {
        InputFile {
            id: id.into(),
            name: name.into(),
            mime_type: "text/csv".into(),
            size: 1_234_567,
            path: PathBuf::from("/blob").join(id),
        }
    }

    #[test]
    fn no_two_files_share_a_name_and_no_file_is_there_twice() {
        let mut found = FoundFiles::default();
        let names: Vec<String> = [
            ("1", "data.csv"),
            ("2", "data.csv"),
            ("1", "data.csv"),
            ("3", "data (2).csv"),
            ("4", "data.csv"),
            ("5", ".env"),
            ("6", ".env"),
            ("7", "none"),
            ("8", "none"),
        ]
        .map(|(id, name)| found.add(input(id, name)).name)
        .to_vec();
        assert_eq!(
            names,
            [
                "data.csv",
                "data (2).csv",
                "data.csv",
                "data (2) (2).csv",
                "data (3).csv",
                ".env",
                ".env (2)",
                "none",
                "none (2)"
            ]
        );
        let files = found.work_files();
        assert_eq!(files.len(), 8);
        assert_eq!(files[1].path, PathBuf::from("/blob/2"));
    }

    #[test]
    fn a_location_part_says_where_a_file_is_and_how_large() {
        assert_eq!(
            location_part(&input("1", "sales.csv")),
            r#"{"text":"[file 'sales.csv' (text/csv, 1,234,567 bytes) is in the working directory]","type":"text"}"#
        );
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (123_456, "123,456"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }
}
