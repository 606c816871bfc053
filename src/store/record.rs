//! The records of sessions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::approval::ApprovalQuestion;
use protocol::ids::{FileId, RunId, SessionId};
use protocol::openai::citation::CitedSource;
use protocol::openai::message::Message;

/// Weight of a row besides its bytes.
const ROW_WEIGHT: usize = 1024;

/// A message of a stored conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredMessage {
    /// The message as the model saw it.
    pub message: Message,
    /// Whether the client did not receive it as a separate message: an assistant message or a tool result of a round.
    pub hidden: bool,
    /// On the last message of a response: the client's view of the response.
    pub view: Option<View>,
    /// The whole text of a tool result, if the model received a shortened one.
    pub full_text: Option<String>,
    /// The sources of a tool result, with the numbers that citations use.
    pub sources: Vec<CitedSource>,
}

/// What the client received as one response: one assistant message.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct View {
    /// The text of all rounds, joined.
    pub text: String,
    /// The text of the last model call. A client that requested `agent.text: "final"` received only this text.
    pub final_text: String,
    /// The text behind the last wait for a person, if a client that had seen the text before it received only this.
    /// Exports leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub behind_wait: Option<String>,
    /// The ids of the client tool calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub call_ids: Vec<String>,
    /// The run that the response came from, where the client may name the response to continue after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The run that any other response came from. Exports leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub completion: Option<String>,
    /// The ids of the items of the response that were deleted from the conversation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
}

impl View {
    /// Whether the response came from this run.
    pub fn is_of(&self, run: &RunId) -> bool {
        let mut runs = self.run.iter().chain(&self.completion);
        runs.any(|of| of == run.as_str())
    }
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
    /// The run that wrote it last. Its record may have been deleted.
    pub last_run: Option<RunId>,
    /// The metadata of the conversation, as the JSON text of an object.
    pub metadata: Option<String>,
    /// The turn that waits for a decision, as [`crate::Store::suspend_turn`] got it.
    pub turn: Option<String>,
}

/// One change of a stored conversation. It is applied atomically.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Change {
    /// The new leading instructions; `None` leaves the stored ones.
    pub instructions: Option<Vec<Message>>,
    /// How many of the stored messages are kept, counted from the first; the others are deleted.
    pub keep: usize,
    /// The messages that are appended to them.
    pub append: Vec<StoredMessage>,
    /// Ids of pending client calls, which are assigned to this session.
    pub client_calls: Vec<String>,
    /// Files that the session uses from now on. They are attached to it after the write.
    pub files: Vec<FileId>,
    /// The title from the appended messages; used if the title message is not among the kept messages.
    pub title: Option<Title>,
    /// The run that makes the change. It becomes the session's last run, and is recorded as running if it has no record.
    pub run: Option<RunId>,
    /// If the change creates the session: who chose its id. A session that exists keeps its mark.
    pub id_origin: IdOrigin,
    /// The new metadata of the conversation, as the JSON text of an object; `None` leaves the stored one.
    pub metadata: Option<String>,
    /// How the change affects the suspended turn of the session.
    pub turn: TurnChange,
}

/// How a change affects the suspended turn of its session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TurnChange {
    /// It leaves the turn as it is, but a replacement ends it.
    #[default]
    Leave,
    /// It ends the turn. Undecided questions are closed.
    End,
    /// It stores this turn in the place of the earlier one, as [`crate::Store::suspend_turn`] does.
    Suspend {
        /// The turn.
        turn: String,
        /// The calls that wait for a decision.
        questions: Vec<ApprovalQuestion>,
    },
}

impl TurnChange {
    /// The turn that is stored, with its questions.
    pub(super) fn kept(&self) -> Option<(&str, &[ApprovalQuestion])> {
        match self {
            Self::Suspend { turn, questions } => Some((turn, questions)),
            Self::Leave | Self::End => None,
        }
    }

    /// The bytes of the turn that is stored and of its questions.
    pub(super) fn bytes(&self) -> usize {
        self.kept().map_or(0, |(turn, questions)| {
            let questions = questions.iter().map(ApprovalQuestion::bytes);
            turn.len() + questions.sum::<usize>()
        })
    }
}

impl Change {
    /// About how many bytes a write of it touches.
    pub(super) fn weight(&self) -> usize {
        let instructions = self.instructions.iter().flatten();
        let instructions = instructions.map(|message| message.json().len() + ROW_WEIGHT);
        let messages = self.append.iter();
        let messages = messages.map(|message| message.stored_bytes() + ROW_WEIGHT);
        let calls = self.client_calls.len() * ROW_WEIGHT;
        instructions.chain(messages).sum::<usize>() + calls + self.turn.bytes()
    }
}

impl IdOrigin {
    /// How a session's row records it.
    pub(super) fn as_number(self) -> i64 {
        match self {
            Self::Client => 0,
            Self::Nameless => 1,
            Self::Chat => 2,
        }
    }
}

/// Who chose the id of a session. It decides how long the session is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IdOrigin {
    /// The client.
    #[default]
    Client,
    /// This program, for a request that named no session. Such a session expires sooner, and can be evicted.
    Nameless,
    /// This program, for a chat of a front end. Such a session can be evicted.
    Chat,
}

/// The title of a session, and the message that it is taken from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Title {
    /// The index of the message in [`Change::append`].
    pub index: usize,
    /// The title; `None` if the message has no text.
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
    /// The beginning of the text of the first user message, if it has text.
    pub title: Option<String>,
    /// Whether a run holds the lease of the session.
    pub running: bool,
    /// The run that wrote it last. Its record may have been deleted.
    pub last_run: Option<RunId>,
}

/// A page of the list of sessions.
#[derive(Debug, Clone, Default)]
pub struct SessionPage {
    /// The entries, last written first.
    pub data: Vec<SessionSummary>,
    /// Whether there are more sessions after the last one.
    pub has_more: bool,
}

/// The outcome of a replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    /// There was no session.
    Created,
    /// There was a session, which was replaced.
    Replaced,
}

impl StoredMessage {
    /// A message that clients see as a separate message.
    pub fn visible(message: Message) -> Self {
        Self {
            message,
            hidden: false,
            view: None,
            full_text: None,
            sources: Vec::new(),
        }
    }

    /// A message of a round, which the client does not receive.
    pub fn hidden(message: Message) -> Self {
        Self {
            hidden: true,
            ..Self::visible(message)
        }
    }

    /// The approximate size in the store, in bytes.
    pub fn stored_bytes(&self) -> usize {
        let view = self.view.as_ref().map_or(0, |view| {
            let calls = view.call_ids.iter().map(String::len).sum::<usize>();
            let behind_wait = view.behind_wait.as_ref().map_or(0, String::len);
            view.text.len() + view.final_text.len() + behind_wait + calls
        });
        let of_source = |source: &CitedSource| source.url.len() + source.title.len();
        self.message.json().len()
            + view
            + self.full_text.as_ref().map_or(0, String::len)
            + self.sources.iter().map(of_source).sum::<usize>()
    }
}

/// What is known of a session without its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionHead {
    /// When it was created, in seconds since 1970.
    pub created_at: i64,
    /// When it was last written, in seconds since 1970.
    pub updated_at: i64,
    /// The approximate size in the store, in bytes.
    pub bytes: u64,
    /// How many messages it has, without instructions.
    pub messages: usize,
    /// See [`StoredSession::metadata`].
    pub metadata: Option<String>,
}

impl StoredSession {
    /// The approximate size, in bytes.
    pub fn stored_bytes(&self) -> usize {
        let instructions = self.instructions.iter().map(|message| message.json().len());
        let messages = self.messages.iter().map(StoredMessage::stored_bytes);
        let metadata = self.metadata.as_ref().map_or(0, String::len);
        instructions.chain(messages).sum::<usize>() + metadata
    }
}
