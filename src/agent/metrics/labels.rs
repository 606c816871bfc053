//! The enums behind label values that no other module has a use for.

use ::http::StatusCode;

/// The part of the API that a request went to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteLabel {
    /// Chat completions that the loop answered.
    ChatLoop,
    /// The Responses API.
    Responses,
    /// Chat completions that were passed through.
    ChatForwarded,
    /// Any other endpoint that was passed through.
    Forwarded,
    /// The model list.
    Models,
    /// Sessions.
    Sessions,
    /// Files.
    Files,
    /// `/v1/agent/…`.
    Agent,
    /// Health, readiness, metrics and the console.
    Operations,
    /// Anything else.
    Other,
}

/// How a call of a model ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModelOutcome {
    /// The model finished.
    Completed,
    /// The server answered 429.
    RateLimited,
    /// The server answered another 4xx.
    Rejected,
    /// The server answered 5xx, or reported an error in its stream.
    Failed,
    /// No connection could be made.
    Unreachable,
    /// The server was silent for too long.
    TimedOut,
    /// The answer broke off or could not be decoded.
    Broken,
    /// The client closed its connection.
    Cancelled,
}

/// The tool that a call is counted under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolLabel<'a> {
    /// A configured tool, by its name.
    Configured(&'a str),
    /// A tool behind the dispatch URL, whatever its name.
    Dispatch,
    /// A tool of an MCP server that a request declared, whatever its name.
    McpRequest,
    /// A tool that does not exist.
    Unknown,
}

/// Why a request was refused before it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedLabel {
    /// The API key is missing or wrong.
    ApiKey,
    /// The host name is not allowed.
    Host,
    /// Web pages of the origin may not send the request.
    Origin,
    /// The key of the replicas is missing or wrong.
    ClusterKey,
}

/// Classes of status codes.
pub(super) const STATUS_CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

impl RouteLabel {
    /// Every value.
    pub(super) const ALL: [Self; 10] = [
        Self::ChatLoop,
        Self::Responses,
        Self::ChatForwarded,
        Self::Forwarded,
        Self::Models,
        Self::Sessions,
        Self::Files,
        Self::Agent,
        Self::Operations,
        Self::Other,
    ];

    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ChatLoop => "chat_loop",
            Self::Responses => "responses",
            Self::ChatForwarded => "chat_forwarded",
            Self::Forwarded => "forwarded",
            Self::Models => "models",
            Self::Sessions => "sessions",
            Self::Files => "files",
            Self::Agent => "agent",
            Self::Operations => "operations",
            Self::Other => "other",
        }
    }
}

impl RefusedLabel {
    /// Every value.
    pub const ALL: [Self; 4] = [Self::ApiKey, Self::Host, Self::Origin, Self::ClusterKey];

    /// The label value, which is the code of the error too.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ApiKey => "invalid_api_key",
            Self::Host => "host_not_allowed",
            Self::Origin => "origin_not_allowed",
            Self::ClusterKey => "invalid_cluster_key",
        }
    }

    /// What is wrong, and what to do if the request is to be allowed.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::ApiKey => "its API key is missing or not one of `[[api_keys]]`",
            Self::Host => "its host name is not allowed; add it to `allowed_hosts`",
            Self::Origin => {
                "web pages of its origin may not send it; add the origin to `cors_origins`"
            }
            Self::ClusterKey => {
                "it is not signed with the key of `cluster_key_env`, which all replicas have"
            }
        }
    }
}

impl<'a> ToolLabel<'a> {
    /// The label value.
    pub(crate) fn as_str(self) -> &'a str {
        match self {
            Self::Configured(name) => name,
            Self::Dispatch => "dispatch",
            Self::McpRequest => "mcp_request",
            Self::Unknown => "unknown",
        }
    }
}

impl ModelOutcome {
    /// Every value.
    pub(super) const ALL: [Self; 8] = [
        Self::Completed,
        Self::RateLimited,
        Self::Rejected,
        Self::Failed,
        Self::Unreachable,
        Self::TimedOut,
        Self::Broken,
        Self::Cancelled,
    ];

    /// The outcome for an error status.
    pub(crate) fn of_status(status: StatusCode) -> Self {
        if status == StatusCode::TOO_MANY_REQUESTS {
            Self::RateLimited
        } else if status.is_client_error() {
            Self::Rejected
        } else {
            Self::Failed
        }
    }

    /// The label value.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::RateLimited => "rate_limited",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed_out",
            Self::Broken => "broken",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The class of a status: `2xx` and so on.
pub(super) fn status_class(status: StatusCode) -> &'static str {
    match status.as_u16() {
        ..200 => "1xx",
        200..300 => "2xx",
        300..400 => "3xx",
        400..500 => "4xx",
        500.. => "5xx",
    }
}
