//! `POST /v1/chat/completions`: passes the request through or runs a turn.

use std::time::Instant;

use axum::extract::{Extension, Request, State};
use axum::response::Response;
use http::HeaderName;
use http::header::CONTENT_ENCODING;

use super::dialect::Reply;
use super::error::ApiError;
use super::turn::{Delivery, TurnHead};
use super::{AppState, body, forward, turn};
use crate::dialects::chat::decode::{ChatTurn, Decision, decode};
use protocol::ids::{Owner, RequestId};

/// The header by which the official SDKs are recognised.
pub(super) const STAINLESS: HeaderName = HeaderName::from_static("x-stainless-lang");

/// Answers a chat request.
pub(super) async fn complete(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Extension(request_id): Extension<RequestId>,
    Extension(began): Extension<Instant>,
    request: Request,
) -> Result<Response, ApiError> {
    let asked = TurnHead::new(owner, request_id, began);
    answer(&state, asked, request).await
}

/// Answers a chat request, or lets a run go on with one.
pub(super) async fn answer(
    state: &AppState,
    asked: TurnHead,
    request: Request,
) -> Result<Response, ApiError> {
    let TurnHead {
        owner,
        request_id,
        start,
    } = asked;
    let (head, request_body) = request.into_parts();
    body::require_json(&head.headers)?;
    if state.draining.is_cancelled() {
        return Err(ApiError::shutting_down());
    }
    let body = body::read(state, &owner, request_body, &head.headers).await?;
    let caller = turn::caller(state, owner, request_id, &head.headers)?;
    let offer = state.agent.offer(&caller.owner);
    let decoded = match decode(&body, caller, offer, state.settings.max_messages)? {
        Decision::Turn(turn) => turn,
        Decision::Servers(request) => Box::pin(request.into_turn()).await?,
        Decision::PassThrough(request) => {
            let waiting = match request.answered_call() {
                Some(call) => state.agent.waits_for(request.owner(), &call).await,
                None => false,
            };
            if !waiting {
                let (model, edited) = (request.model().to_owned(), request.edited_body());
                let owner = request.owner().clone();
                drop(request);
                let bytes = body.into_bytes();
                let bytes = edited.unwrap_or(bytes);
                // The body is decoded.
                let mut head = head;
                head.headers.remove(CONTENT_ENCODING);
                return forward::chat(state, &owner, &model, head, bytes).await;
            }
            request.into_turn()?
        }
    };
    let official_sdk = head.headers.contains_key(STAINLESS);
    let ChatTurn { turn, reply, .. } = *decoded;
    let reply = Reply::Chat {
        options: reply,
        official_sdk,
    };
    let delivery = Delivery::new(start, &turn.options, &head, body)?;
    turn::answer(state, turn, reply, delivery).await
}
