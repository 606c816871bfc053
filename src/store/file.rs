//! The records of files, and what a store does with them.

use std::time::Duration;

use serde::{Serialize, Serializer};

use super::{Store, StoreError};
use crate::ids::{FileId, Owner, SessionId};
use crate::openai::file::FileObject;

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

impl Store {
    /// What is known of a file.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn file(&self, owner: &Owner, id: &FileId) -> Result<Option<StoredFile>, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.file(owner, id).await,
        }
    }

    /// A page of the owner's files.
    ///
    /// # Errors
    /// `NotFound` when `after` is none of the owner's; else when the store fails.
    pub async fn files(
        &self,
        owner: &Owner,
        filter: &FileFilter<'_>,
    ) -> Result<FilePage, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.files(owner, filter).await,
        }
    }

    /// Adds the row of a file whose bytes are in place, makes its session use it, and deletes the rows of files that
    /// must make room. A file of the owner that has the id already is used instead.
    ///
    /// # Errors
    /// When the store fails; nothing is added then.
    ///
    /// # Cancel safety
    /// A dropped future adds the row or nothing.
    pub async fn insert_file(
        &self,
        file: FileRecord,
        max_total_bytes: u64,
    ) -> Result<InsertedFile, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.insert_file(file, max_total_bytes).await,
        }
    }

    /// Makes a session use a file, which then lives at least as long. A session without messages is made if there is
    /// none.
    ///
    /// # Errors
    /// `NotFound`; else when the store fails.
    ///
    /// # Cancel safety
    /// A dropped future does it whole or not at all.
    pub async fn attach_file(
        &self,
        owner: &Owner,
        id: &FileId,
        session: &SessionId,
    ) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.attach_file(owner, id, session).await,
        }
    }

    /// Notes that a file is used now.
    ///
    /// # Errors
    /// `NotFound`; else when the store fails.
    pub async fn touch_file(&self, owner: &Owner, id: &FileId) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.touch_file(owner, id).await,
        }
    }

    /// Deletes the row of a file; says whether there was one.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn delete_file(&self, owner: &Owner, id: &FileId) -> Result<bool, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.delete_file(owner, id).await,
        }
    }

    /// Deletes the rows of files that no session uses and that were not used for so long; returns how many.
    ///
    /// # Errors
    /// When the store fails; some of them may be gone then.
    ///
    /// # Cancel safety
    /// As [`Store::expire`].
    pub async fn expire_files(&self, ttl: Duration) -> Result<u64, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.expire_files(ttl).await,
        }
    }

    /// How much is stored in files, over all owners.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn file_usage(&self) -> Result<FileUsage, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.file_usage().await,
        }
    }

    /// Some of the blobs whose rows are gone; empty when there are none.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn dead_blobs(&self) -> Result<Vec<String>, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.dead_blobs().await,
        }
    }

    /// Forgets dead blobs whose bytes are removed.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn forget_blobs(&self, blobs: Vec<String>) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.forget_blobs(blobs).await,
        }
    }

    /// Those of the blobs that have no row, once every write begun before has ended.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn blobs_without_row(&self, blobs: Vec<String>) -> Result<Vec<String>, StoreError> {
        match self {
            Self::Sqlite(sqlite) => sqlite.blobs_without_row(blobs).await,
        }
    }
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
            #[serde(flatten)]
            file: FileObject<'a>,
            session_id: Option<&'a SessionId>,
            #[serde(skip_serializing_if = "Option::is_none")]
            tool: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            round: Option<u32>,
        }
        let object = Object {
            file: FileObject {
                id: self.id.as_str(),
                bytes: self.bytes,
                created_at: self.created_at,
                name: &self.name,
                mime_type: &self.mime_type,
                purpose: self.purpose.as_str(),
            },
            session_id: self.session.as_ref(),
            tool: self.tool.as_deref(),
            round: self.round,
        };
        object.serialize(serializer)
    }
}
