//! Sessions: the expanded history of a conversation, kept per owner.
//!
//! Knows nothing of the loop or of HTTP. Content never decides whose session it is; the owner and the id do.

pub mod export;
pub mod files;
pub mod lock;
pub mod repair;
pub mod settings;
pub mod splice;
pub mod store;

use std::time::Duration;

use self::files::FileStore;
use self::lock::{SessionGuard, SessionLocks};
use self::store::SessionStore;
use crate::ids::{Owner, SessionId};
use crate::openai::citation::Source;
use crate::openai::message::Message;

/// Everything about stored conversations; cheap to clone.
#[derive(Debug, Clone)]
pub struct Sessions {
    /// Where conversations are kept.
    pub store: SessionStore,
    /// The files of conversations and owners.
    pub files: FileStore,
    /// One turn at a time per conversation.
    pub locks: SessionLocks,
    /// Longest wait for another turn of the same conversation.
    pub wait: Duration,
    /// Most messages that a conversation may hold.
    pub max_messages: usize,
}

impl Sessions {
    /// The sessions of a store.
    pub fn new(store: SessionStore, settings: &settings::Settings) -> Self {
        Self {
            files: store.files().clone(),
            store,
            locks: SessionLocks::default(),
            wait: settings.wait,
            max_messages: settings.max_messages,
        }
    }

    /// Locks a session, once the turns before have ended.
    ///
    /// # Errors
    /// When they take too long.
    pub async fn lock(&self, owner: &Owner, id: &SessionId) -> Result<SessionGuard, SessionError> {
        self.locks.acquire(owner, id, self.wait).await
    }
}

/// A message of a stored conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredMessage {
    /// The message as the model saw it.
    pub message: Message,
    /// The client never saw it as a message of its own: an assistant message or a tool result inside the loop.
    pub hidden: bool,
    /// Set on the last message of a response: what the client saw of that response.
    pub view: Option<View>,
    /// A tool result's whole text, where the model was given a shortened one.
    pub full_text: Option<String>,
    /// What a tool result found, by the numbers under which an answer refers to it.
    pub sources: Vec<Source>,
}

/// What a client saw of one response: one assistant message.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct View {
    /// The text of all rounds, joined.
    pub text: String,
    /// The last round's text, which is all a client saw that asked for `agent.text: "final"`.
    pub final_text: String,
    /// The ids of the calls that the client was asked to run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub call_ids: Vec<String>,
}

/// A stored conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StoredSession {
    /// The leading system and developer messages.
    pub instructions: Vec<Message>,
    /// Everything after them, in order.
    pub messages: Vec<StoredMessage>,
    /// When it was made, in seconds since 1970.
    pub created_at: i64,
    /// When it was last written, in seconds since 1970.
    pub updated_at: i64,
}

/// How a request's messages relate to the stored history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionMode {
    /// `Append` when the request holds no assistant message and the session is not empty, else `Replay`.
    #[default]
    Auto,
    /// The request holds only what is new.
    Append,
    /// The request holds the conversation as the client sees it.
    Replay,
}

/// One change of a stored conversation, made whole or not at all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Change {
    /// The new leading instructions; `None` leaves the stored ones.
    pub instructions: Option<Vec<Message>>,
    /// How many of the stored messages stay; the rest is left behind.
    pub keep: usize,
    /// What follows them.
    pub append: Vec<StoredMessage>,
    /// Ids of calls that the client was asked to run, which lead back to this session.
    pub client_calls: Vec<String>,
}

/// Why a session could not be had.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Another turn of it is running and did not end in time.
    #[error("session is busy")]
    Busy,
    /// There is none under this id for this owner.
    #[error("session not found")]
    NotFound,
    /// There is one already.
    #[error("session exists already")]
    Exists,
    /// An import does not hold a valid session; the text names the field and the remedy.
    #[error("{message}")]
    Invalid {
        /// The field at fault.
        param: String,
        /// For the client.
        message: String,
    },
    /// The store failed.
    #[error("session store failed")]
    Store(#[source] Box<dyn std::error::Error + Send + Sync>),
}
