//! The records of sessions.

use crate::ids::SessionId;
use crate::openai::citation::CitedSource;
use crate::openai::message::Message;

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
    pub sources: Vec<CitedSource>,
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

/// One change of a stored conversation, made whole or not at all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Change {
    /// The new leading instructions; `None` leaves the stored ones.
    pub instructions: Option<Vec<Message>>,
    /// How many of the stored messages stay; the rest is deleted.
    pub keep: usize,
    /// What follows them.
    pub append: Vec<StoredMessage>,
    /// Ids of calls that the client was asked to run, which lead back to this session.
    pub client_calls: Vec<String>,
    /// The title that the new messages give, used where no title is among the messages that stay.
    pub title: Option<Title>,
}

/// The title of a session, and the message that gives it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Title {
    /// The place of the message among those appended.
    pub index: usize,
    /// The title, where the message has any text.
    pub text: Option<String>,
}

/// One entry of the list of sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSummary {
    /// The session.
    pub id: SessionId,
    /// When it was made, in seconds since 1970.
    pub created_at: i64,
    /// When it was last written, in seconds since 1970.
    pub updated_at: i64,
    /// Stored messages, hidden ones and instructions included.
    pub message_count: u64,
    /// The beginning of the first user message's text, if it has any.
    pub title: Option<String>,
    /// A turn of it holds the lease.
    pub running: bool,
}

/// A page of the list of sessions.
#[derive(Debug, Clone, Default)]
pub struct SessionPage {
    /// The entries, last written first.
    pub data: Vec<SessionSummary>,
    /// More follow after the last one.
    pub has_more: bool,
}

/// What a replacement found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    /// There was no session.
    Created,
    /// There was one, which is gone.
    Replaced,
}

impl StoredMessage {
    /// A message that the client sees as such.
    pub fn visible(message: Message) -> Self {
        Self {
            message,
            hidden: false,
            view: None,
            full_text: None,
            sources: Vec::new(),
        }
    }

    /// A message inside the loop, which the client does not see.
    pub fn hidden(message: Message) -> Self {
        Self {
            hidden: true,
            ..Self::visible(message)
        }
    }

    /// About how many bytes it takes in the store.
    pub fn stored_bytes(&self) -> usize {
        let view = self.view.as_ref().map_or(0, |view| {
            let calls = view.call_ids.iter().map(String::len).sum::<usize>();
            view.text.len() + view.final_text.len() + calls
        });
        let of_source = |source: &CitedSource| source.url.len() + source.title.len();
        self.message.json().len()
            + view
            + self.full_text.as_ref().map_or(0, String::len)
            + self.sources.iter().map(of_source).sum::<usize>()
    }
}

impl StoredSession {
    /// About how many bytes it takes.
    pub fn stored_bytes(&self) -> usize {
        let instructions = self.instructions.iter().map(|message| message.json().len());
        let messages = self.messages.iter().map(StoredMessage::stored_bytes);
        instructions.chain(messages).sum()
    }
}
