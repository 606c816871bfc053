//! What can go wrong with a provider. The texts are for the model: what happened and what to do, nothing secret.

use std::time::Duration;

use ::http::StatusCode;

/// Rest of a provider that refused, where it does not say for how long.
const REST: Duration = Duration::from_secs(60);
/// Rest of a provider that does not answer at all: each search would wait for it again.
const SHORT_REST: Duration = Duration::from_secs(20);
/// Longest rest, whatever a provider asks for.
const LONGEST_REST: Duration = Duration::from_secs(600);

/// A provider that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{provider} could not be used ({problem})")]
pub(in crate::web) struct ProviderError {
    /// Which.
    pub(in crate::web) provider: &'static str,
    /// Why.
    pub(in crate::web) problem: Problem,
}

/// Why a provider gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::web) enum Problem {
    /// The key is wrong, or may not do this.
    #[error("it refused its API key: the operator must check it")]
    KeyRefused,
    /// The account has nothing left.
    #[error("its quota is used up: the operator must renew it")]
    Quota,
    /// Too many requests, it says.
    #[error("it asks for fewer requests: try again later")]
    RateLimited {
        /// How long it wants to be left alone.
        retry_after: Option<Duration>,
    },
    /// Too many requests, the operator says.
    #[error("its configured rate of requests is used up: try again in a minute")]
    Paced,
    /// It takes the proxy for a robot.
    #[error(
        "it takes this server for a robot and wants a captcha solved: try again much later; the operator can configure \
         another provider"
    )]
    Blocked,
    /// SearXNG gives out HTML only.
    #[error(
        "it does not give out JSON: the operator must add json to search.formats of its settings"
    )]
    FormatOff,
    /// SearXNG found nothing because the engines behind it failed.
    #[error("its engines did not answer: {0}; try again later")]
    Engines(String),
    /// Something else than a search answer.
    #[error("its answer cannot be used: {0}")]
    Malformed(&'static str),
    /// More than is read of an answer.
    #[error("its answer is longer than {} MiB", .0 >> 20)]
    TooLarge(usize),
    /// No answer within the time.
    #[error("it did not answer within {} s: try again later", .0.as_secs_f64())]
    TimedOut(Duration),
    /// No connection.
    #[error("it cannot be reached: try again later; the operator must check the connection to it")]
    Unreachable {
        /// What the system says, for the operator.
        cause: String,
    },
    /// The connection broke.
    #[error("the connection to it broke off: try again later")]
    Broken {
        /// What the system says, for the operator.
        cause: String,
    },
    /// It sends requests elsewhere.
    #[error(
        "it redirects to another address, which is not followed: the operator must check its URL"
    )]
    Redirect,
    /// It does not like the request.
    #[error("it refused the request with status {}: try a simpler query", .0.as_u16())]
    Refused(StatusCode),
    /// Any other status.
    #[error("it answered with status {}: try again later", .0.as_u16())]
    Status(StatusCode),
}

/// Why a provider cannot be set up. The texts are for the operator and hold neither URL nor key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::web) enum SetupError {
    /// There is no public address to fall back to.
    #[error("the search provider {0} needs a URL")]
    NoUrl(&'static str),
    /// It cannot be used.
    #[error("the URL of the search provider {0} must be an http or https URL")]
    Url(&'static str),
    /// They would end up in logs.
    #[error(
        "the URL of the search provider {0} must not hold credentials; give them as its API key"
    )]
    Credentials(&'static str),
    /// It is needed.
    #[error("the search provider {0} needs an API key")]
    NoKey(&'static str),
    /// No header can carry it.
    #[error("the API key of the search provider {0} holds characters that a header cannot carry")]
    Key(&'static str),
    /// Most likely for want of root certificates.
    #[error("could not set up the client of the search providers: {0}")]
    Client(String),
}

impl Problem {
    /// What a status means where the provider has no meaning of its own for it.
    pub(super) fn of_status(status: StatusCode) -> Self {
        match status.as_u16() {
            401 | 403 => Self::KeyRefused,
            402 => Self::Quota,
            429 => Self::RateLimited { retry_after: None },
            400 | 422 => Self::Refused(status),
            300..=399 => Self::Redirect,
            _ => Self::Status(status),
        }
    }

    /// For how long the provider is better not asked again.
    pub(in crate::web) fn rest(&self) -> Option<Duration> {
        match self {
            Self::KeyRefused | Self::Quota | Self::Blocked | Self::FormatOff => Some(REST),
            Self::RateLimited { retry_after } => {
                Some(retry_after.map_or(REST, |delay| delay.min(LONGEST_REST)))
            }
            Self::TimedOut(_) | Self::Unreachable { .. } => Some(SHORT_REST),
            Self::Paced
            | Self::Engines(_)
            | Self::Malformed(_)
            | Self::TooLarge(_)
            | Self::Broken { .. }
            | Self::Redirect
            | Self::Refused(_)
            | Self::Status(_) => None,
        }
    }

    /// What only the operator is told.
    pub(in crate::web) fn cause(&self) -> Option<&str> {
        match self {
            Self::Unreachable { cause } | Self::Broken { cause } => Some(cause),
            Self::KeyRefused
            | Self::Quota
            | Self::RateLimited { .. }
            | Self::Paced
            | Self::Blocked
            | Self::FormatOff
            | Self::Engines(_)
            | Self::Malformed(_)
            | Self::TooLarge(_)
            | Self::TimedOut(_)
            | Self::Redirect
            | Self::Refused(_)
            | Self::Status(_) => None,
        }
    }
}
