//! The options of a turn, in the form that all dialects decode to.

pub use super::limits::{OnLimit, TurnLimits};
pub use super::settings::{CitationStyle, ImageStyle};
use serde::{Deserialize, Serialize};

use crate::session::SessionMode;
use protocol::ids::{ChatId, RunId, SessionId};

/// The options of a turn. In a draft they lack the server's own, which [`super::admit`] merges into them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// The session to continue, if the request names one.
    pub session_id: Option<SessionId>,
    /// The chat that a header names, if the request names no session. Its first message then decides on the session.
    #[serde(skip)]
    pub chat: Option<ChatId>,
    /// Most rounds of server-side tools; with 0 none are offered.
    pub max_tool_rounds: u32,
    /// Limits on calls, time and tokens.
    pub limits: TurnLimits,
    /// What happens when a limit is reached.
    pub on_limit: OnLimit,
    /// How the messages relate to the stored history.
    pub session_mode: SessionMode,
    /// Whether the calls of one batch run at the same time.
    pub tool_execution: ToolExecution,
    /// Which identical call with identical results is held back; 0 for none.
    pub repeat_threshold: Option<u32>,
    /// Which rounds' text the answer has.
    pub text: TextMode,
    /// How the marks of sources are written in the text of the answer.
    pub citations: Option<CitationStyle>,
    /// How images of tools are sent.
    pub images: Option<ImageStyle>,
    /// Whether the answer is streamed. If not, a model call that breaks off can be retried at any time.
    pub streamed: bool,
    /// The client gets the arguments of its own calls as they arrive.
    pub streams_arguments: bool,
    /// Calls of MCP servers that the request declares end the turn when they wait: its answer asks the client.
    pub asks_client: bool,
    /// What the end of the client's connection does to the turn.
    pub on_disconnect: OnDisconnect,
    /// The answer is not waited for.
    pub background: bool,
    /// `store: false`: the session is not stored.
    pub ephemeral: bool,
    /// The turn is stored whether or not a server-side call starts, and its answer can be continued by its id.
    pub keep: bool,
    /// The run whose answer the turn follows. Where it is not the last one of the session, the session is forked there.
    #[serde(skip)]
    pub previous: Option<RunId>,
    /// The oldest turns are left out of a prompt that is too long for the model.
    pub truncates: bool,
    /// The session in whose workspace the tools run; `None` for the workspace of the turn.
    pub container: Option<SessionId>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            session_id: None,
            chat: None,
            max_tool_rounds: u32::MAX,
            limits: TurnLimits::default(),
            on_limit: OnLimit::default(),
            session_mode: SessionMode::default(),
            tool_execution: ToolExecution::default(),
            repeat_threshold: None,
            text: TextMode::default(),
            citations: None,
            images: None,
            streamed: false,
            streams_arguments: false,
            asks_client: false,
            on_disconnect: OnDisconnect::default(),
            background: false,
            ephemeral: false,
            keep: false,
            previous: None,
            truncates: false,
            container: None,
        }
    }
}

/// How the calls of one batch run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ToolExecution {
    /// At the same time.
    #[default]
    Parallel,
    /// One after another.
    Sequential,
}

/// Which rounds' text the answer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum TextMode {
    /// All rounds' text, joined.
    #[default]
    All,
    /// The last round's text only.
    Final,
}

/// What the end of the client's connection does to the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum OnDisconnect {
    /// The turn continues if the request may be sent again under an idempotency key, else it is cancelled.
    #[default]
    Auto,
    /// The turn is cancelled.
    Cancel,
    /// The turn continues.
    Finish,
}
