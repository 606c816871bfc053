//! Finds the input files of a turn, and rewrites the messages of the history for the model.

use std::collections::{HashMap, HashSet};

use super::super::AgentError;
use super::super::turn::NamedFile;
use super::error::{FilePosition, InputFileError, InputFileProblem};
use super::found::{FoundFiles, InputFile};
use super::part::{FilePart, InlineFile, with_parts};
use super::placeholder::{location_part, missing_part};
use super::{InputFiles, Inputs, decode, parts_of, read_part};
use crate::session::files::{FileError, Purpose, StoredFile, name};
use protocol::ids::FileId;
use protocol::openai::message::Message;
use tools::python::{EXECUTE_PYTHON, EarlierCode, NAMES};

/// Most files made by code that a new interpreter gets; of more, the last ones.
const MAX_PRODUCED: usize = 200;

impl InputFiles<'_> {
    /// Finds the input files of a turn. With `runs_code` the messages then say where in the working directory a file is.
    ///
    /// # Errors
    /// When a file that the request names besides its messages does not exist, or when the store fails.
    pub(in super::super) async fn resolve(
        self,
        mut history: Vec<Message>,
        named: &[NamedFile],
        runs_code: bool,
    ) -> Result<(Vec<Message>, Inputs), AgentError> {
        let earlier_code = match self.session {
            Some(_) => left_by_code(&history),
            None => EarlierCode::None,
        };
        let mut found = FoundFiles::default();
        if runs_code {
            self.locate(&mut history, &mut found).await;
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
            self.add_of_session(&mut found).await;
        }
        let inputs = Inputs {
            files: found.work_files(),
            earlier_code,
            _drafts: found.drafts,
        };
        Ok((history, inputs))
    }

    /// Says in the messages where in the working directory their files are.
    async fn locate(&self, history: &mut [Message], found: &mut FoundFiles) {
        for message in history {
            let Some(mut parts) = parts_of(message) else {
                continue;
            };
            let mut changed = false;
            for part in &mut parts {
                let rewritten = match read_part(part) {
                    FilePart::Stored { id, .. } => Some(self.located_part(found, &id).await),
                    FilePart::Inline(inline) => self.unstored_part(found, &inline).await,
                    FilePart::Remote(_) | FilePart::Other => None,
                };
                if let Some(rewritten) = rewritten {
                    *part = rewritten;
                    changed = true;
                }
            }
            if changed {
                *message = with_parts(message, &parts);
            }
        }
    }

    /// A stored file; `None` if it cannot be found.
    async fn look_up(&self, id: &FileId) -> Option<StoredFile> {
        match self.files.get(self.owner, id).await {
            Ok(stored) => Some(stored),
            Err(FileError::NotFound) => None,
            Err(error) => {
                tracing::error!(error = %error, "file could not be looked up");
                None
            }
        }
    }

    async fn located_part(&self, found: &mut FoundFiles, id: &FileId) -> String {
        if let Some(known) = found.known(id.as_str()) {
            return location_part(known);
        }
        match self.look_up(id).await {
            Some(stored) => location_part(&found.add(self.input_file(stored))),
            None => missing_part(),
        }
    }

    /// The content part that replaces an inline file in the messages for the model. `None` if the file cannot be
    /// decoded or written to a draft.
    async fn unstored_part(&self, found: &mut FoundFiles, inline: &InlineFile) -> Option<String> {
        let (mime_type, content) = decode(inline)?;
        let size = content.len() as u64;
        let name = name::sanitize(&inline.name);
        let id = FileId::of_content(self.owner, &name, &content)
            .as_str()
            .to_owned();
        if let Some(input) = found.known(&id) {
            return Some(location_part(input));
        }
        let written = async {
            let mut draft = self.files.draft().await?;
            draft.write(&content).await?;
            let stored = draft.flush().await?;
            Ok::<_, FileError>((draft, stored))
        };
        match written.await {
            Ok((draft, content)) => {
                let input = InputFile {
                    id,
                    mime_type: draft.media_type(&name, mime_type.as_deref()),
                    name,
                    size,
                    content,
                    is_produced: false,
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

    /// Adds the files that were uploaded for the session, and those that its code made. Those that messages name are in the
    /// list already.
    async fn add_of_session(&self, found: &mut FoundFiles) {
        let Some(session) = self.session else { return };
        match self.files.of_session(self.owner, session).await {
            Ok(files) => {
                let (produced, uploaded): (Vec<_>, Vec<_>) = files
                    .into_iter()
                    .partition(|file| file.purpose == Purpose::AssistantsOutput);
                for file in uploaded {
                    found.add(self.input_file(file));
                }
                for file in last_of_code(produced) {
                    let input = self.input_file(file);
                    let is_produced = true;
                    found.add(InputFile {
                        is_produced,
                        ..input
                    });
                }
            }
            // The turn runs without these files.
            Err(error) => tracing::error!(%error, "the files of a session could not be listed"),
        }
    }
}

/// What the code of a history has left, by the results of its calls.
fn left_by_code(history: &[Message]) -> EarlierCode {
    let (mut left, mut tools) = (EarlierCode::None, HashMap::new());
    for message in history {
        for call in message.tool_calls() {
            tools.insert(call.id.as_str(), call.name.as_str());
        }
        // Ids may come again in later rounds.
        let tool = message.tool_call_id().and_then(|id| tools.remove(id));
        if let Some(tool) = tool.filter(|tool| NAMES.contains(tool)) {
            left = left.after(tool, &message.content_text());
        }
    }
    left
}

/// Filters the files that tools made, oldest first: of files that code made, only the last of each name stays.
fn last_of_code(produced: Vec<StoredFile>) -> Vec<StoredFile> {
    let mut names = HashSet::new();
    let of_code = produced
        .into_iter()
        .rev()
        .filter(|file| file.tool.as_deref() == Some(EXECUTE_PYTHON));
    let last = of_code.filter(|file| names.insert(file.name.clone()));
    let mut last: Vec<StoredFile> = last.take(MAX_PRODUCED).collect();
    last.reverse();
    last
}
