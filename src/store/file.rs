//! The records of files.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};

use protocol::ids::{FileId, Owner, SessionId};
use protocol::openai::file::FileObject;

/// A stored file. It is serialized as an OpenAI file object with additional fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    /// Its id.
    pub id: FileId,
    /// A session that uses it: the session of the filter, else the oldest one.
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
    /// The name of the blob with its content.
    pub blob: String,
}

/// A new row for a file whose content is on disk.
#[derive(Debug, Clone)]
pub struct FileRecord {
    /// Its id.
    pub id: FileId,
    /// Its owner.
    pub owner: Owner,
    /// The session that it is created for; created if it does not exist.
    pub session: Option<SessionId>,
    /// It is deleted with the last session that uses it, as every file that is created for a session.
    pub bound: bool,
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
    /// The name of the blob with its content.
    pub blob: String,
}

/// The outcome of inserting a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InsertedFile {
    /// The file; `None` if it was deleted immediately.
    pub file: Option<StoredFile>,
    /// The owner already had a file with this id; the new content has no row.
    pub known: bool,
    /// How many older files were deleted because of the total limit.
    pub evicted: u64,
}

/// The `purpose` of a file in OpenAI's API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Purpose {
    /// Any file of a user.
    #[default]
    UserData,
    /// A file for tools.
    Assistants,
    /// An output file of a tool.
    AssistantsOutput,
    /// An image.
    Vision,
    /// Requests of the Batch API.
    Batch,
    /// Training data.
    FineTune,
    /// Data of an evaluation.
    Evals,
}

/// The order of a list by creation time.
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
    /// Only files with this purpose.
    pub purpose: Option<Purpose>,
    /// Only files that this session uses.
    pub session: Option<&'a SessionId>,
}

/// A page of a list.
#[derive(Debug, Clone, Default)]
pub struct FilePage {
    /// The files.
    pub data: Vec<StoredFile>,
    /// Whether there are more files after the last one.
    pub has_more: bool,
}

/// The number and size of all files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileUsage {
    /// Number of files.
    pub files: u64,
    /// Their total size in bytes.
    pub bytes: u64,
}

impl Purpose {
    /// All values.
    pub const ALL: [Self; 7] = [
        Self::UserData,
        Self::Assistants,
        Self::AssistantsOutput,
        Self::Vision,
        Self::Batch,
        Self::FineTune,
        Self::Evals,
    ];

    /// The value in OpenAI's API.
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

    /// Parses a value of OpenAI's API.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|purpose| purpose.as_str() == text)
    }
}

/// What is serialized of a file.
#[derive(Serialize, JsonSchema)]
struct FileEntryMembers<'a> {
    #[serde(flatten)]
    file: FileObject<'a>,
    /// A session that uses the file.
    session_id: Option<&'a SessionId>,
    /// The tool that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<&'a str>,
    /// The round in which it was made, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    round: Option<u32>,
}

impl Serialize for StoredFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let members = FileEntryMembers {
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
        members.serialize(serializer)
    }
}

impl JsonSchema for StoredFile {
    fn schema_name() -> Cow<'static, str> {
        "File".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        FileEntryMembers::json_schema(generator)
    }
}
