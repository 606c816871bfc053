//! Settings of the loop.

use std::time::Duration;

use policy::rules::{Level, LevelName};
pub use protocol::openai::citation::CitationStyle;
use tools::gate::DEFAULT_APPROVAL_TIMEOUT;
use tools::set::Globs;

/// Default of `approval_wait`, in seconds.
const DEFAULT_APPROVAL_WAIT: u64 = 5 * 60;

/// The caps and rules of the server. A request can only lower the caps.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Most rounds of server-side tools in one turn.
    pub max_tool_rounds: u32,
    /// Most server-side tool calls in one turn.
    pub max_tool_calls: Option<u64>,
    /// Longest duration of one run.
    pub max_duration: Option<Duration>,
    /// Most tokens of all model calls of one turn, in and out.
    pub max_total_tokens: Option<u64>,
    /// Which identical call with identical results is held back, from 2 to 8; 0 for none.
    pub repeat_threshold: u32,
    /// Whether a request may have a looser threshold.
    pub repeat_override: bool,
    /// Most bytes of images, files and full results that one turn keeps; images and files count as base64.
    pub max_turn_bytes: u64,
    /// Models, as clients name them, that are offered no server-side tools.
    pub plain_models: Globs,
    /// Types of hosted tools that are left out of a request of the Responses API instead of refused, where the server has
    /// no such tool.
    pub ignore_tools: Globs,
    /// What server-side tools may do.
    pub permissions: Level,
    /// Longest time for which a stream waits for a person's decision.
    pub approval_wait: Duration,
    /// Longest time for which a person can decide about a call.
    pub approval_timeout: Duration,
    /// How the marks of sources are written, unless a request says otherwise.
    pub citations: CitationStyle,
    /// How images of tools are sent, unless a request says otherwise.
    pub images: ImageStyle,
}

/// How images of tools are sent, besides the fields of the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageStyle {
    /// Not at all.
    #[default]
    None,
    /// In the message.
    Inline,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_tool_rounds: 256,
            max_tool_calls: None,
            max_duration: None,
            max_total_tokens: None,
            repeat_threshold: 3,
            repeat_override: false,
            max_turn_bytes: 64 * 1024 * 1024,
            plain_models: Globs::default(),
            ignore_tools: Globs::default(),
            permissions: Level::silent(LevelName::Server),
            approval_wait: Duration::from_secs(DEFAULT_APPROVAL_WAIT),
            approval_timeout: Duration::from_secs(DEFAULT_APPROVAL_TIMEOUT),
            citations: CitationStyle::Marks,
            images: ImageStyle::None,
        }
    }
}
