//! Settings of one upstream.

mod chosen;
mod key;
mod kinds;

use std::time::Duration;

use ::http::{HeaderMap, HeaderName};
use secrecy::SecretString;
use url::Url;

pub use self::chosen::ChosenQuirks;
pub use self::key::KeySource;
pub use self::kinds::ServerKind;
use super::retry::RetryPolicy;
pub use net::CaCertificates;
use protocol::ids::CallIdStyle;

/// All upstreams and the retry policy.
#[derive(Debug, Clone)]
pub struct PoolSettings {
    /// The upstreams in fail-over order.
    pub upstreams: Vec<Settings>,
    /// How failed calls are retried.
    pub retry: RetryPolicy,
}

/// One checked `[[upstreams]]` entry.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The name for logs and metrics.
    pub name: String,
    /// What the server is, if the settings or its host name say it; else it is found out.
    pub kind: Option<ServerKind>,
    /// The base URL, ending in `/v1` or wherever the OpenAI paths begin; no trailing slash.
    pub base_url: Url,
    /// The key sent as `authorization: Bearer`. Without it the caller's header is passed on, if that is allowed.
    pub api_key: Option<SecretString>,
    /// The origin of the key, for logs.
    pub key_source: KeySource,
    /// Headers added to every request.
    pub headers: HeaderMap,
    /// Model name patterns (globs) that this server takes; empty takes every model.
    pub models: Vec<String>,
    /// Renamed models: the client's name, the upstream's name.
    pub model_map: Vec<(String, String)>,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// Longest wait for the response head.
    pub first_byte_timeout: Duration,
    /// Longest silence within a response.
    pub idle_timeout: Duration,
    /// Most bytes of one streamed response in the loop.
    pub max_stream_bytes: u64,
    /// The header that carries an opaque key of the session in the calls of the loop, for a balancer in front of replicas.
    pub affinity_header: Option<HeaderName>,
    /// The known deviations of this upstream that are set; the others follow from its kind.
    pub quirks: ChosenQuirks,
    /// Certificate authorities that are trusted in addition to the system's.
    pub certificates: CaCertificates,
}

/// Known deviations of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quirks {
    /// The server can stream.
    pub streams: bool,
    /// The server takes `stream_options`.
    pub stream_options: bool,
    /// How reasoning arrives in the text.
    pub think_tags: ThinkTags,
    /// Models write calls as text, which the server does not parse.
    pub text_calls: bool,
    /// A call's name comes in pieces; otherwise a repeated name is the same name again.
    pub split_names: bool,
    /// Reasoning is sent back with the history.
    pub send_reasoning: bool,
    /// The field in which the server takes reasoning.
    pub reasoning_field: ReasoningField,
    /// What is sent as reasoning of a model's message without reasoning.
    pub missing_reasoning: MissingReasoning,
    /// How the final call prevents tool calls.
    pub final_call: FinalCall,
    /// The form of tool-call ids that the server takes.
    pub call_ids: CallIdStyle,
    /// The model takes images in its prompt.
    pub images: bool,
    /// Types of hosted tools (such as `web_search`) that the server runs itself.
    pub hosted_tools: Vec<String>,
    /// What is sent as text of an assistant message that has calls and no text.
    pub empty_content: EmptyContent,
    /// The server takes messages whose text is blank.
    pub blank_text: bool,
    /// The result of a call has the name of its tool.
    pub tool_result_name: bool,
    /// The server takes the role `developer`; otherwise it is sent as `system`.
    pub developer_role: bool,
    /// The order of roles that the server takes.
    pub roles: RoleOrder,
    /// The server takes system messages after the first message of the user.
    pub mid_system: bool,
    /// The field that limits the output of the model in one call.
    pub max_tokens_field: MaxTokensField,
    /// The server has vLLM's `/tokenize`, which counts the tokens of messages.
    pub tokenize: bool,
    /// APIs that the server supports besides chat completions.
    pub native: Vec<NativeApi>,
}

/// How reasoning arrives in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(from = "WrittenThinkTags", into = "WrittenThinkTags")]
pub enum ThinkTags {
    /// The text has no reasoning.
    #[default]
    Off,
    /// Between an opening and a closing tag.
    Both,
    /// From the start of the answer to a closing tag, because the prompt ends with the opening one.
    Open,
}

/// [`ThinkTags`] as it is written: `false`, `true` or `"open"`.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(untagged, expecting = "expected true, false or \"open\"")]
enum WrittenThinkTags {
    Switch(bool),
    Word(ThinkTagsWord),
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum ThinkTagsWord {
    Open,
}

impl From<WrittenThinkTags> for ThinkTags {
    fn from(written: WrittenThinkTags) -> Self {
        match written {
            WrittenThinkTags::Switch(false) => Self::Off,
            WrittenThinkTags::Switch(true) => Self::Both,
            WrittenThinkTags::Word(ThinkTagsWord::Open) => Self::Open,
        }
    }
}

impl From<ThinkTags> for WrittenThinkTags {
    fn from(think_tags: ThinkTags) -> Self {
        match think_tags {
            ThinkTags::Off => Self::Switch(false),
            ThinkTags::Both => Self::Switch(true),
            ThinkTags::Open => Self::Word(ThinkTagsWord::Open),
        }
    }
}

/// What is sent as text of an assistant message that has calls and no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmptyContent {
    /// There is no `content`.
    LeaveOut,
    /// `null`.
    Null,
    /// An empty string. Most servers and chat templates accept it.
    #[default]
    Empty,
}

/// The field in which a server takes reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningField {
    /// The one in which it came.
    #[default]
    AsItCame,
    /// `reasoning_content`.
    ReasoningContent,
    /// `reasoning`.
    Reasoning,
}

/// What is sent as reasoning of a model's message without reasoning.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Default,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum MissingReasoning {
    /// There is no field.
    #[default]
    LeaveOut,
    /// An empty string.
    Empty,
    /// A space, for servers to which an empty string is no reasoning.
    Space,
}

/// The order of roles that a server takes, from the loosest to the strictest.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Default,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum RoleOrder {
    /// Any order.
    #[default]
    Any,
    /// One system message, which comes first; then `user` and `assistant` in turn.
    Alternate,
    /// The same without a system message.
    AlternateWithoutSystem,
}

/// The field that limits the output of the model in one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaxTokensField {
    /// OpenAI's name.
    #[default]
    MaxCompletionTokens,
    /// The older name, which is the only one for some servers.
    MaxTokens,
}

/// An API that a server may support besides chat completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NativeApi {
    /// The Responses API.
    Responses,
}

/// How the final call prevents the model from calling tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinalCall {
    /// With `tool_choice: "none"`. The tools stay in the request, so that the server's prompt cache stays valid.
    #[default]
    ToolChoiceNone,
    /// Without `tools` and `tool_choice`.
    RemoveTools,
}

impl Settings {
    /// The upstream's name of the model that clients call `model`.
    pub fn model_name<'a>(&'a self, model: &'a str) -> &'a str {
        let known = self.model_map.iter().find(|(name, _)| name == model);
        known.map_or(model, |(_, upstream_name)| upstream_name)
    }
}

impl MaxTokensField {
    /// The name of the field.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MaxCompletionTokens => "max_completion_tokens",
            Self::MaxTokens => "max_tokens",
        }
    }
}

impl Default for Quirks {
    fn default() -> Self {
        Self {
            streams: true,
            stream_options: true,
            think_tags: ThinkTags::Off,
            text_calls: false,
            split_names: false,
            send_reasoning: true,
            reasoning_field: ReasoningField::default(),
            missing_reasoning: MissingReasoning::default(),
            final_call: FinalCall::default(),
            call_ids: CallIdStyle::default(),
            images: false,
            hosted_tools: Vec::new(),
            empty_content: EmptyContent::default(),
            blank_text: true,
            tool_result_name: false,
            developer_role: true,
            roles: RoleOrder::default(),
            mid_system: false,
            max_tokens_field: MaxTokensField::default(),
            tokenize: false,
            native: Vec::new(),
        }
    }
}
