//! Input files that cannot be used: why, and where they are in the request.
//!
//! A position holds no path of a wire format. A dialect renders the path.

use protocol::ids::FileId;

/// An input file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an input file cannot be used: {problem}")]
pub struct InputFileError {
    /// Where the request names or holds the file.
    pub position: FilePosition,
    /// Why the file cannot be used.
    pub problem: InputFileProblem,
}

/// Where a request names or holds a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilePosition {
    /// In a content part of a message.
    Part {
        /// The message and the part.
        index: PartIndex,
        /// The form of the part.
        form: PartForm,
        /// The member of the part.
        member: FileMember,
    },
    /// In a field outside the messages, with the name that the decoder gives in
    /// [`NamedFile::param`](crate::turn::NamedFile::param).
    Field(String),
}

/// A content part of a request's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartIndex {
    /// The message, from 0.
    pub message: usize,
    /// The part of the message, from 0.
    pub part: usize,
}

/// The forms of a content part with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartForm {
    /// A part of the type `file`, whose members are in an inner object.
    File,
    /// A part of the type `input_file`, whose members are in the part itself.
    InputFile,
}

/// The member of a content part that names or holds its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileMember {
    /// The id of a stored file.
    Id,
    /// The content, in base64.
    Data,
    /// The URL of the file.
    Url,
}

/// Why an input file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputFileProblem {
    /// The owner has no file with this id.
    #[error("there is no file '{id}'")]
    NotFound {
        /// The id.
        id: FileId,
    },
    /// The file is to be shown as an image and is none.
    #[error("the file '{id}' is no image")]
    NotAnImage {
        /// The id.
        id: FileId,
    },
    /// The text does not have the form of a file id.
    #[error("the id is not a file id")]
    NotAnId,
    /// The content is not valid base64.
    #[error("the content is not base64")]
    NotBase64,
    /// The file could not be downloaded.
    #[error("the file could not be downloaded: {reason}")]
    Download {
        /// Why.
        reason: String,
    },
    /// The content is larger than a file may be.
    #[error("the file is larger than {limit} bytes")]
    TooLarge {
        /// The largest size in bytes.
        limit: u64,
    },
}
