//! What the head of a request says of its turn.

use protocol::ids::{ChatId, SessionId};

/// The same as `agent.progress`, for clients that can set headers only.
pub(crate) const PROGRESS_HEADER: &str = "x-loopwright-progress";

/// What the head of a request says, and how much the server takes.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestHead {
    /// The session id that a header carries.
    pub(crate) session: Option<SessionId>,
    /// The id of a chat that a header of the settings carries.
    pub(crate) chat: Option<ChatId>,
    /// How progress is to be sent, as a header says; not checked yet.
    pub(crate) progress: Option<String>,
    /// The client is an official SDK.
    pub(crate) official_sdk: bool,
    /// `user-agent`.
    pub(crate) user_agent: String,
    /// The address under which the client reaches the server, such as `http://localhost:8080`.
    pub(crate) origin: String,
    /// Most messages of a request.
    pub(crate) max_messages: usize,
}

impl RequestHead {
    /// Whether it names a session or a chat.
    pub(in crate::dialects) fn names_session(&self) -> bool {
        self.session.is_some() || self.chat.is_some()
    }
}
