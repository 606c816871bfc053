//! The records of files, and what can be asked about them.

use serde::{Serialize, Serializer};

use crate::ids::{FileId, Owner, SessionId};

/// A stored file. It is written as OpenAI's file object, with more fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    /// Its id.
    pub id: FileId,
    /// The session that uses it; the oldest of several, unless one was asked about.
    pub session: Option<SessionId>,
    /// Its name: one path component.
    pub name: String,
    /// Its media type, without parameters.
    pub mime_type: String,
    /// Its size.
    pub bytes: u64,
    /// What it is for.
    pub purpose: Purpose,
    /// The tool that made it.
    pub tool: Option<String>,
    /// The round in which it was made.
    pub round: Option<u32>,
    /// When it was stored, in seconds since 1970.
    pub created_at: i64,
    /// The name of its bytes.
    pub(crate) blob: String,
}

/// The row of a file whose bytes are in place.
#[derive(Debug, Clone)]
pub struct FileRecord {
    /// Its id.
    pub id: FileId,
    /// Whose it is.
    pub owner: Owner,
    /// The session that it is made for, made if there is none.
    pub session: Option<SessionId>,
    /// Its name: one path component.
    pub name: String,
    /// Its media type, without parameters.
    pub mime_type: String,
    /// Its size.
    pub bytes: u64,
    /// What it is for.
    pub purpose: Purpose,
    /// The tool that made it.
    pub tool: Option<String>,
    /// The round in which it was made.
    pub round: Option<u32>,
    /// The name of its bytes.
    pub blob: String,
}

/// What came of inserting a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InsertedFile {
    /// The file; `None` where it was deleted again at once.
    pub file: Option<StoredFile>,
    /// The owner had a file with that id already, and the new bytes have no row.
    pub known: bool,
    /// How many older files had to go to make room.
    pub evicted: u64,
}

/// What a file is for, in OpenAI's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Purpose {
    /// Anything that a user gives.
    #[default]
    UserData,
    /// A file for tools.
    Assistants,
    /// A file that tools have made.
    AssistantsOutput,
    /// An image.
    Vision,
    /// Requests of a batch.
    Batch,
    /// Examples to train with.
    FineTune,
    /// Data of an evaluation.
    Evals,
}

/// The order of a list, by the time when files were stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileOrder {
    /// Oldest first.
    Ascending,
    /// Newest first.
    #[default]
    Descending,
}

/// Which files to list.
#[derive(Debug, Clone, Copy)]
pub struct FileFilter<'a> {
    /// Most files.
    pub limit: usize,
    /// The last file of the page before.
    pub after: Option<&'a FileId>,
    /// The order.
    pub order: FileOrder,
    /// Only those for that.
    pub purpose: Option<Purpose>,
    /// Only those that the session uses.
    pub session: Option<&'a SessionId>,
}

/// A page of a list.
#[derive(Debug, Clone, Default)]
pub struct FilePage {
    /// The files.
    pub data: Vec<StoredFile>,
    /// More follow after the last one.
    pub has_more: bool,
}

/// How much is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileUsage {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Purpose {
    /// Every one.
    pub const ALL: [Self; 7] = [
        Self::UserData,
        Self::Assistants,
        Self::AssistantsOutput,
        Self::Vision,
        Self::Batch,
        Self::FineTune,
        Self::Evals,
    ];

    /// OpenAI's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UserData => "user_data",
            Self::Assistants => "assistants",
            Self::AssistantsOutput => "assistants_output",
            Self::Vision => "vision",
            Self::Batch => "batch",
            Self::FineTune => "fine-tune",
            Self::Evals => "evals",
        }
    }

    /// Reads OpenAI's word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|purpose| purpose.as_str() == text)
    }
}

impl Serialize for StoredFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Object<'a> {
            id: &'a FileId,
            object: &'static str,
            bytes: u64,
            created_at: i64,
            filename: &'a str,
            purpose: &'static str,
            status: &'static str,
            name: &'a str,
            mime_type: &'a str,
            size: u64,
            session_id: Option<&'a SessionId>,
            #[serde(skip_serializing_if = "Option::is_none")]
            tool: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            round: Option<u32>,
        }
        let object = Object {
            id: &self.id,
            object: "file",
            bytes: self.bytes,
            created_at: self.created_at,
            filename: &self.name,
            purpose: self.purpose.as_str(),
            status: "processed",
            name: &self.name,
            mime_type: &self.mime_type,
            size: self.bytes,
            session_id: self.session.as_ref(),
            tool: self.tool.as_deref(),
            round: self.round,
        };
        object.serialize(serializer)
    }
}
