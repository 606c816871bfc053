//! Identifiers: types that hold only valid values, and how fresh ones are made.
//!
//! Ids that an operator reads (requests, sessions, completions) are ordered by time. No id that gives access to something can
//! be guessed.

mod approval;
mod chat;
mod random;
mod run;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use rand::RngExt;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

pub use self::approval::ApprovalId;
pub use self::chat::{ChatId, ChatKey};
pub use self::random::{fresh_call_id, fresh_delivery_id, fresh_traceparent, hex, random_hex};
pub use self::run::RunId;

/// Longest session or request id accepted from outside, in characters. A longer session id is a 400, and a longer
/// request id is replaced.
/// Tried by `ids::session_ids_hold_only_what_is_safe_everywhere`.
const MAX_ID_CHARS: usize = 128;
/// The beginning of file ids, the same as OpenAI's.
const FILE_ID_PREFIX: &str = "file-";
/// Number of bytes of a file id, each two hexadecimal digits.
const FILE_ID_BYTES: usize = 16;
/// Most characters of a name or word from outside that an error or the log repeats; the rest is cut.
/// Tried by `look::names_in_the_log_are_bounded_and_plain`.
const MAX_SHOWN_CHARS: usize = 100;

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text is empty or longer than 128 characters.
    #[error("must be 1 to {MAX_ID_CHARS} characters long")]
    Length,
    /// A character is not allowed.
    #[error("may only hold letters, digits and . _ : -")]
    Character,
}

/// A name or word from outside as an error or the log repeats it: not too long, and without control characters.
pub fn shown(text: &str) -> String {
    let plain = |character: char| match character.is_control() {
        true => '?',
        false => character,
    };
    let mut shown: String = text.chars().take(MAX_SHOWN_CHARS).map(plain).collect();
    if text.chars().nth(MAX_SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

/// The id of an HTTP request, in headers and logs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct RequestId(Arc<str>);

/// The id of a session; unique for one [`Owner`] only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionId(Arc<str>);

/// The name of the API key that sessions, files and interpreters belong to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(Arc<str>);

/// The id of a workspace: the interpreter and the working files of one session, or of the sessions of one chat.
///
/// Its text does not reveal the session's id or owner, and is safe as a file name. The owner is kept beside it, so that
/// interpreters can be shared fairly.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkspaceId {
    text: Arc<str>,
    owner: Owner,
}

/// The id of a stored file. It cannot be guessed; the owner is checked as well.
#[derive(
    Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String")]
#[schemars(inline)]
pub struct FileId(Arc<str>);

/// The form of the tool-call ids of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallIdStyle {
    /// `call_` and 24 random characters.
    #[default]
    Standard,
    /// Nine random characters, for servers that refuse anything else.
    Short,
}

impl CallIdStyle {
    /// Whether an id of another origin has this form.
    pub fn fits(self, id: &str) -> bool {
        match self {
            Self::Standard => !id.is_empty(),
            Self::Short => {
                id.len() == random::SHORT_CALL_ID_CHARS
                    && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
            }
        }
    }
}

impl RequestId {
    /// Makes a fresh id.
    pub fn fresh() -> Self {
        Self(format!("req_{}", Uuid::now_v7().simple()).into())
    }

    /// Reads an id that the client chose.
    ///
    /// # Errors
    /// When the text is empty, longer than 128 characters or not visible ASCII.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        check_length(text)?;
        if text.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Self(text.into()))
        } else {
            Err(IdError::Character)
        }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl SessionId {
    /// Makes a fresh id.
    pub fn fresh() -> Self {
        Self(format!("sess_{}", ordered()).into())
    }

    /// Makes a fresh id of a session that was made as a conversation. It cannot be guessed.
    pub fn fresh_conversation() -> Self {
        Self(format!("conv_{}", random_hex::<16>()).into())
    }

    /// Reads an id that the client chose: 1 to 128 characters of `A-Za-z0-9._:-`.
    ///
    /// # Errors
    /// When the text is not of that form.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        check_length(text)?;
        let allowed =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-');
        if text.bytes().all(allowed) {
            Ok(Self(text.into()))
        } else {
            Err(IdError::Character)
        }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl JsonSchema for SessionId {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "SessionId".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string", "minLength": 1, "maxLength": MAX_ID_CHARS, "pattern": "^[A-Za-z0-9._:-]+$",
        })
    }
}

impl TryFrom<String> for SessionId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        Self::parse(&text)
    }
}

impl TryFrom<String> for FileId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or("not the id of a file")
    }
}

impl From<SessionId> for String {
    fn from(id: SessionId) -> Self {
        id.as_str().to_owned()
    }
}

impl Owner {
    /// The one owner of everything where no API keys are configured.
    pub fn everybody() -> Self {
        Self("".into())
    }

    /// The owner with the name of a configured key.
    pub fn key(name: &str) -> Self {
        Self(name.into())
    }

    /// The owner of the server's own work. No key has this name, because names have no control characters.
    pub fn server() -> Self {
        Self("\u{1}server".into())
    }

    /// The name of the owner's key; `None` where no keys are configured.
    pub fn name(&self) -> Option<&str> {
        Some(self.as_str()).filter(|name| !name.is_empty())
    }

    /// The owner as text, for the store.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl WorkspaceId {
    /// The workspace of a session, the same each time. The sessions of a chat have one workspace: an edit of the first
    /// message makes a new session, and the files of the chat stay.
    pub fn of(owner: &Owner, session: &SessionId) -> Self {
        let mut digest = Sha256::new();
        // The length distinguishes pairs whose joined texts are equal.
        digest.update((owner.as_str().len() as u64).to_le_bytes());
        digest.update(owner.as_str());
        digest.update(chat::scope(session));
        Self {
            text: hex(&digest.finalize()).into(),
            owner: owner.clone(),
        }
    }

    /// A new workspace of [`Owner::everybody`].
    pub fn fresh() -> Self {
        Self::fresh_of(&Owner::everybody())
    }

    /// A new workspace, for a turn that is not stored.
    pub fn fresh_of(owner: &Owner) -> Self {
        Self {
            text: random_hex::<32>().into(),
            owner: owner.clone(),
        }
    }

    /// The owner.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The id as text: 64 hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FileId {
    /// Makes a fresh id: 128 random bits.
    pub fn fresh() -> Self {
        let mut random = [0; FILE_ID_BYTES];
        rand::rng().fill(&mut random);
        Self::of_bytes(&random)
    }

    /// The id of a file that a client sends again with every request: the same for the same owner, name and bytes.
    pub fn of_content(owner: &Owner, name: &str, content: &[u8]) -> Self {
        let mut digest = Sha256::new();
        // The lengths distinguish triples whose joined texts are equal.
        for text in [owner.as_str(), name] {
            digest.update((text.len() as u64).to_le_bytes());
            digest.update(text);
        }
        digest.update(content);
        let digest = digest.finalize();
        Self::of_bytes(
            digest
                .first_chunk::<FILE_ID_BYTES>()
                .unwrap_or(&[0; FILE_ID_BYTES]),
        )
    }

    /// Reads an id; a text of another form is the id of no file.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(FILE_ID_PREFIX)?;
        let lower_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let well_formed = digits.len() == 2 * FILE_ID_BYTES && digits.bytes().all(lower_hex);
        well_formed.then(|| Self(text.into()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn of_bytes(bytes: &[u8; FILE_ID_BYTES]) -> Self {
        Self(format!("{FILE_ID_PREFIX}{}", hex(bytes)).into())
    }
}

/// An id that is ordered by time and cannot be guessed: a UUID of version 7, and 64 more random bits. It has as many characters
/// as the ids of OpenAI's responses.
fn ordered() -> String {
    format!("{}{}", Uuid::now_v7().simple(), random_hex::<8>())
}

fn check_length(text: &str) -> Result<(), IdError> {
    if text.is_empty() || text.len() > MAX_ID_CHARS {
        Err(IdError::Length)
    } else {
        Ok(())
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_runs_and_sessions_follow_each_other_and_read_back() {
        let runs = [(); 100].map(|()| RunId::fresh());
        assert!(runs.is_sorted());
        for run in &runs {
            assert_eq!(RunId::parse(&run.response_id()).as_ref(), Ok(run));
            assert_eq!(RunId::of_item(&run.item_id("msg", 7)).as_ref(), Some(run));
            // More than 64 characters are refused by some servers and clients.
            assert!(run.item_id("msg", 999).len() <= 64);
        }
        let sessions = [(); 100].map(|()| SessionId::fresh());
        assert!(sessions.is_sorted());
        assert_eq!(
            SessionId::parse(sessions[0].as_str()).as_ref(),
            Ok(&sessions[0])
        );
        // What comes after the time and its counter is not the same twice.
        let random: std::collections::HashSet<_> =
            runs.iter().map(|run| run.as_str().split_at(32).1).collect();
        assert_eq!(random.len(), runs.len());
    }

    #[test]
    fn file_ids_of_contents_differ_by_owner_name_and_content() {
        let id = |owner: &str, name: &str, content: &str| {
            FileId::of_content(&Owner::key(owner), name, content.as_bytes())
        };
        let ids = [
            id("a", "b", "c"),
            id("ab", "", "c"),
            id("a", "bc", ""),
            id("", "ab", "c"),
            FileId::fresh(),
            FileId::fresh(),
        ];
        assert_eq!(ids[0], id("a", "b", "c"));
        let different: std::collections::HashSet<_> = ids.iter().collect();
        assert_eq!(different.len(), ids.len());
        for id in &ids {
            assert_eq!(FileId::parse(id.as_str()).as_ref(), Some(id));
        }
        for bad in [
            "",
            "file-",
            "file-1",
            "../file-1",
            "file-ABCDEF0123456789ABCDEF0123456789",
        ] {
            assert_eq!(FileId::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn session_ids_hold_only_what_is_safe_everywhere() {
        for good in [
            "a",
            "user:42/".trim_end_matches('/'),
            "A-b_c.d:9",
            &"x".repeat(128),
        ] {
            assert_eq!(SessionId::parse(good).unwrap().as_str(), good);
        }
        assert_eq!(SessionId::parse(""), Err(IdError::Length));
        assert_eq!(SessionId::parse(&"x".repeat(129)), Err(IdError::Length));
        for bad in ["a b", "a/b", "ä", "a\n", "a%"] {
            assert_eq!(SessionId::parse(bad), Err(IdError::Character), "{bad:?}");
        }
    }

    #[test]
    fn a_traceparent_has_the_four_fields() {
        let fields = fresh_traceparent();
        let lengths: Vec<usize> = fields.split('-').map(str::len).collect();
        assert_eq!(lengths, [2, 32, 16, 2]);
        assert_ne!(fields, fresh_traceparent());
    }

    #[test]
    fn call_ids_have_the_form_of_their_style() {
        let standard = fresh_call_id(CallIdStyle::Standard);
        assert_eq!(standard.len(), 29);
        assert!(standard.starts_with("call_"));
        assert_ne!(standard, fresh_call_id(CallIdStyle::Standard));
        let short = fresh_call_id(CallIdStyle::Short);
        assert_eq!(short.len(), 9);
        assert!(short.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    }
}
