//! `POST /v1/chat/completions`: passes the request through or runs a turn.

use std::time::Instant;

use axum::extract::{Extension, Request, State};
use axum::response::Response;
use http::header::CONTENT_ENCODING;

use super::error::ApiError;
use super::turn::Delivery;
use super::{AppState, body, caller, forward, turn};
use crate::dialects::answer::AnswerForm;
use crate::dialects::chat::decode::{DecodedChat, decode, without_rounds};
use agent::admit::Admitted;
use protocol::ids::{Owner, RequestId, RunId};

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
    let body = body::read(&state, &owner, request_body, &head.headers).await?;
    let request_head = caller::request_head(&state, &head.headers)?;
    let DecodedChat { decoded, mut reply } = decode(&body, &request_head)?;
    let caller = caller::caller(&state, owner.clone(), request_id);
    let admitted = match state.agent.admit(decoded, caller).await? {
        Admitted::Turn(admitted) => admitted,
        Admitted::PassThrough(passed) => {
            let bytes = body.into_bytes();
            let bytes = match passed.without_rounds {
                true => without_rounds(&bytes),
                false => bytes,
            };
            // The body is decoded.
            let mut head = head;
            head.headers.remove(CONTENT_ENCODING);
            return forward::chat(&state, &owner, passed, head, bytes).await;
        }
    };
    let turn = admitted.turn;
    reply.images = turn.options.images.unwrap_or_default();
    let delivery = Delivery::new((began, RunId::fresh()), &head, body)?;
    turn::answer(&state, turn, AnswerForm::Chat(reply), delivery).await
}
