//! `POST /v1/chat/completions`: decides between pass-through and loop.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Extension, Request, State};
use axum::response::Response;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::dialect::Reply;
use super::error::ApiError;
use super::{AppState, body, forward, turn};
use crate::agent::turn::Caller;
use crate::chat::decode::{ChatTurn, Decision, decode};
use crate::ids::{Owner, RequestId, fresh_traceparent};

/// Marks the official SDKs.
const STAINLESS: HeaderName = HeaderName::from_static("x-stainless-lang");

/// Answers a chat request.
pub(super) async fn complete(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Extension(request_id): Extension<RequestId>,
    Extension(began): Extension<Instant>,
    request: Request,
) -> Result<Response, ApiError> {
    let (head, request_body) = request.into_parts();
    body::require_json(&head.headers)?;
    if state.draining.is_cancelled() {
        return Err(ApiError::shutting_down());
    }
    let bytes = body::read(request_body, &head.headers, &state.settings).await?;
    let caller = caller(&state, owner, request_id, &head.headers)?;
    let offer = state.agent.offer();
    let turn = match decode(&bytes, caller, offer, state.settings.max_messages)? {
        Decision::Turn(turn) => turn,
        Decision::PassThrough(request) => {
            let waiting = match request.answered_call() {
                Some(call) => state.agent.waits_for(request.owner(), &call).await,
                None => false,
            };
            if !waiting {
                let path_and_query = head.uri.path_and_query().map_or("", |whole| whole.as_str());
                let (model, edited) = (request.model().to_owned(), request.edited_body());
                drop(request);
                let bytes = edited.unwrap_or(bytes);
                return forward::chat(&state, &model, path_and_query, head.headers, bytes).await;
            }
            request.into_turn()?
        }
    };
    let official_sdk = head.headers.contains_key(STAINLESS);
    let ChatTurn { turn, reply } = *turn;
    let reply = Reply::Chat {
        options: reply,
        official_sdk,
    };
    turn::answer(&state, turn, reply, began).await
}

fn caller(
    state: &AppState,
    owner: Owner,
    request_id: RequestId,
    headers: &HeaderMap,
) -> Result<Caller, ApiError> {
    let session_header = body::session_header(headers, &state.settings.session_headers)?;
    let mut upstream = forward::upstream_headers(state, headers.clone());
    // The loop makes its own bodies, several of them, and reads the answers itself.
    for name in [
        ACCEPT,
        ACCEPT_ENCODING,
        CONTENT_TYPE,
        HeaderName::from_static("idempotency-key"),
    ] {
        upstream.remove(name);
    }
    let trace = ["traceparent", "tracestate"]
        .into_iter()
        .filter_map(|name| Some((HeaderName::from_static(name), headers.get(name)?.clone())));
    let mut trace: HeaderMap = trace.collect();
    if !trace.contains_key("traceparent")
        && let Ok(fresh) = HeaderValue::from_str(&fresh_traceparent())
    {
        // A state without its parent belongs to no trace.
        trace.clear();
        trace.insert("traceparent", fresh);
    }
    Ok(Caller {
        request_id,
        owner,
        session_header,
        trace,
        headers: Arc::new(upstream),
    })
}
