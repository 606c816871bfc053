//! The facts about a turn's caller, and about its turn in the headers of a request.

use std::sync::Arc;

use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST,
    USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::error::ApiError;
use super::headers::{chat_header, origin, session_header};
use super::{AppState, forward, idempotency};
use crate::dialects::fields::head::{PROGRESS_HEADER, RequestHead};
use agent::traces::{TRACEPARENT, TRACESTATE};
use agent::turn::{Caller, TurnRecord};
use protocol::ids::{Owner, RequestId, fresh_traceparent};
use upstream::headers::strip_headers;

/// The header by which the official SDKs are recognised.
const STAINLESS: HeaderName = HeaderName::from_static("x-stainless-lang");

/// The caller of a turn. What model and tool calls get of the headers is added when the turn begins.
pub(super) fn caller(state: &AppState, owner: Owner, request_id: RequestId) -> Caller {
    let key = state.access.get().defaults(&owner);
    Caller {
        request_id,
        owner,
        trace: HeaderMap::new(),
        is_resumed: false,
        headers: Arc::default(),
        key,
        record: TurnRecord::default(),
    }
}

/// What the headers of a request say of its turn.
///
/// # Errors
/// When a header is not valid.
pub(super) fn request_head(state: &AppState, headers: &HeaderMap) -> Result<RequestHead, ApiError> {
    let text = |name: HeaderName| {
        let value = headers.get(name)?;
        Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let agent = headers.get(USER_AGENT);
    let agent = agent.and_then(|value| value.to_str().ok());
    Ok(RequestHead {
        session: session_header(headers)?,
        chat: chat_header(headers, &state.settings.session_headers)?,
        progress: text(HeaderName::from_static(PROGRESS_HEADER)),
        official_sdk: headers.contains_key(STAINLESS),
        user_agent: agent.unwrap_or_default().to_owned(),
        origin: origin(headers),
        max_messages: state.settings.max_messages,
    })
}

/// Sets the headers that model and tool calls get. If spans are exported, the request gets the headers of its span.
pub(super) fn set_forwarded_headers(state: &AppState, caller: &mut Caller, headers: &HeaderMap) {
    let mut upstream = forward::upstream_headers(state, headers.clone());
    // The loop writes the bodies of its model calls and reads the responses itself.
    strip_headers(&mut upstream, |name| {
        [
            HOST,
            CONTENT_LENGTH,
            EXPECT,
            ACCEPT,
            ACCEPT_ENCODING,
            CONTENT_ENCODING,
            CONTENT_TYPE,
            idempotency::IDEMPOTENCY_KEY,
        ]
        .contains(name)
    });
    caller.headers = Arc::new(upstream);
    caller.trace = trace_of(state, headers);
}

/// The headers of a request with which its calls are traced. Without a collector there is always a trace.
pub(super) fn trace_of(state: &AppState, headers: &HeaderMap) -> HeaderMap {
    let names = [TRACEPARENT, TRACESTATE].into_iter();
    let given = names.filter_map(|name| Some((name.clone(), headers.get(name)?.clone())));
    let mut trace: HeaderMap = given.collect();
    if !trace.contains_key(TRACEPARENT)
        && !state.traces.is_on()
        && let Ok(fresh) = HeaderValue::from_str(&fresh_traceparent())
    {
        // `tracestate` is meaningless without `traceparent`.
        trace.clear();
        trace.insert(TRACEPARENT, fresh);
    }
    trace
}
