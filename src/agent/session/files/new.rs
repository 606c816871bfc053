//! The parameters of a file to be stored.

use protocol::ids::SessionId;
use store::Purpose;

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
