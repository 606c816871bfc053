//! A file that is to be stored.

use tokio::io::AsyncRead;

use crate::ids::SessionId;
use crate::store::Purpose;

/// What is known of a file before it is stored.
#[derive(Debug, Clone, Copy)]
pub struct NewFile<'a> {
    /// The session that it is made for, made if there is none; without one the file stays until it is not used for
    /// long.
    pub session: Option<&'a SessionId>,
    /// Its name, as it was given.
    pub name: &'a str,
    /// The claimed media type; used where the content allows it.
    pub mime_type: Option<&'a str>,
    /// What it is for.
    pub purpose: Purpose,
    /// The tool that made it.
    pub tool: Option<&'a str>,
    /// The round in which it was made.
    pub round: Option<u32>,
}

/// Where the content of a file comes from.
pub enum FileSource<'a> {
    /// Memory.
    Bytes(&'a [u8]),
    /// Anything that is read.
    Reader(&'a mut (dyn AsyncRead + Send + Unpin)),
}

impl std::fmt::Debug for FileSource<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(formatter, "Bytes({})", bytes.len()),
            Self::Reader(_) => formatter.write_str("Reader"),
        }
    }
}
