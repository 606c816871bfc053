//! Headers: facts about the body of a request, ids of sessions, and which headers of an upstream's response the client gets.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, IF_NONE_MATCH, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue};

use protocol::ids::{ChatId, IdError, SessionId};
use protocol::openai::request::RequestError;

/// Headers of answers that the web pages of `cors_origins` may read: loopwright's own, the headers of OpenAI's API in
/// answers that are passed through, and the headers of the content of files.
pub(super) const EXPOSED: [&str; 31] = [
    "x-request-id",
    "x-session-id",
    "x-completion-id",
    "idempotency-replayed",
    "x-should-retry",
    "retry-after",
    "retry-after-ms",
    "openai-processing-ms",
    "openai-model",
    "openai-organization",
    "openai-version",
    "x-loopwright-error-source",
    "x-loopwright-estimated",
    "x-loopwright-overhead-ms",
    "x-loopwright-replica",
    "x-ratelimit-limit-requests",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
    "x-upstream-ratelimit-limit-requests",
    "x-upstream-ratelimit-limit-tokens",
    "x-upstream-ratelimit-remaining-requests",
    "x-upstream-ratelimit-remaining-tokens",
    "x-upstream-ratelimit-reset-requests",
    "x-upstream-ratelimit-reset-tokens",
    "accept-ranges",
    "content-disposition",
    "content-range",
    "etag",
];

/// The header with the session id, in requests and responses.
pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("x-session-id");
/// Says whose an error is that an upstream has answered with and that is passed on.
const ERROR_SOURCE: HeaderName = HeaderName::from_static("x-loopwright-error-source");

/// Marks an answer as an upstream's error.
pub(super) fn mark_upstream_error(headers: &mut HeaderMap) {
    headers.insert(ERROR_SOURCE, HeaderValue::from_static("upstream"));
}

/// The session id of the header for it.
pub(super) fn session_header(headers: &HeaderMap) -> Result<Option<SessionId>, RequestError> {
    let value = headers.get(SESSION_ID);
    let parsed = value.map(|value| header_id(&SESSION_ID, value, SessionId::parse));
    parsed.transpose()
}

/// The chat id in the first of these headers with a value. An empty header is ignored: front ends send one before they
/// have the id.
pub(super) fn chat_header(
    headers: &HeaderMap,
    names: &[HeaderName],
) -> Result<Option<ChatId>, RequestError> {
    let found = names
        .iter()
        .filter_map(|name| Some((name, headers.get(name)?)))
        .find(|(_, value)| !value.is_empty());
    let parsed = found.map(|(name, value)| header_id(name, value, ChatId::parse));
    parsed.transpose()
}

fn header_id<T>(
    name: &HeaderName,
    value: &HeaderValue,
    parse: impl Fn(&str) -> Result<T, IdError>,
) -> Result<T, RequestError> {
    parse(value.to_str().unwrap_or_default()).map_err(|problem| {
        let message = format!("the session id in the header '{name}' {problem}");
        RequestError::field(name.as_str(), message)
    })
}

/// The length of the body that the head of a request declares.
pub(super) fn declared_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The content type without its parameters, in lower case; empty if there is none.
pub(super) fn media_type(headers: &HeaderMap) -> String {
    let kind = headers.get(CONTENT_TYPE);
    let kind = kind.and_then(|value| value.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next());
    kind.unwrap_or_default().trim().to_ascii_lowercase()
}

/// Scheme and authority by which the client reaches this server, if the request shows them.
pub(super) fn origin(headers: &HeaderMap) -> String {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok();
    let forwarded = text(HeaderName::from_static("x-forwarded-proto"));
    let scheme = match forwarded {
        Some("https") => "https",
        _ => "http",
    };
    format!("{scheme}://{}", text(HOST).unwrap_or_default())
}

/// Whether `if-none-match` names this entity tag, so that the client has the content already.
pub(super) fn if_none_match_holds(headers: &HeaderMap, etag: &str) -> bool {
    let values = headers.get_all(IF_NONE_MATCH).iter();
    let mut tags = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim);
    tags.any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}

/// For a forwarded response: all headers except the CORS headers, which this server sets itself.
pub(super) fn forwarded_headers(mut headers: HeaderMap) -> HeaderMap {
    let cors: Vec<_> = headers
        .keys()
        .filter(|name| name.as_str().starts_with("access-control-"))
        .cloned()
        .collect();
    for name in cors {
        headers.remove(name);
    }
    headers
}

/// For an error response to a model call: the content type, `retry-after` and the renamed rate limits.
pub(super) fn error_headers(headers: &HeaderMap) -> HeaderMap {
    let mut kept = upstream_rate_limits(headers);
    for name in [CONTENT_TYPE, RETRY_AFTER] {
        if let Some(value) = headers.get(&name) {
            kept.insert(name, value.clone());
        }
    }
    kept
}

/// The rate limits of the upstream, renamed to `x-upstream-ratelimit-*` because they are not limits of this server.
pub(super) fn upstream_rate_limits(headers: &HeaderMap) -> HeaderMap {
    let renamed = |(name, value): (&HeaderName, &HeaderValue)| {
        let rest = name.as_str().strip_prefix("x-ratelimit-")?;
        let name = HeaderName::try_from(format!("x-upstream-ratelimit-{rest}")).ok()?;
        Some((name, value.clone()))
    };
    headers.iter().filter_map(renamed).collect()
}
