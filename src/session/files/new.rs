//! The parameters of a file to be stored.

use tokio::io::AsyncRead;

use crate::ids::SessionId;
use crate::store::Purpose;

/// The metadata of a new file.
#[derive(Debug, Clone, Copy)]
pub struct NewFile<'a> {
    /// The session that the file is created for; it is created if it does not exist. A file without a session is kept
    /// until it expires.
    pub session: Option<&'a SessionId>,
    /// Its name, as it was given.
    pub name: &'a str,
    /// The claimed media type; used unless the content contradicts it.
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
    /// A reader, read to its end.
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
