//! `/v1/responses`: runs a turn and answers with a response; responses by their id.

pub(super) mod conversations;
mod history;
mod items;
mod native;
mod removal;
mod retry;
mod stored;

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Extension, Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Serialize;

pub(super) use self::conversations::{
    ConversationObject, ConversationUpdate, NewConversation, NewItems,
};
use self::history::known_history;
pub(super) use self::items::ItemPage;
use self::native::NativeDecision;
pub(super) use self::retry::RetriedRequests;
pub(super) use self::stored::{cancel, delete, input_items, show};
use super::body::HeldBody;
use super::dialect::Reply;
use super::error::{ApiError, unknown_call};
use super::headers::origin;
use super::turn::{Delivery, TurnHead};
use super::{AppState, body, turn};
use crate::dialects::responses::decode::{RequestHead, ResponseTurn, decode};
use protocol::ids::{Owner, RequestId};

/// Marks a number of tokens that was not counted by the model server.
const ESTIMATED: HeaderName = HeaderName::from_static("x-loopwright-estimated");

/// The number of tokens of an input.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct InputTokenCount {
    #[schemars(extend("const" = "response.input_tokens"))]
    object: &'static str,
    /// As the model server counts them, else an estimate: characters / 4.
    input_tokens: u64,
}

/// Answers a request of the Responses API.
pub(super) async fn create(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Extension(request_id): Extension<RequestId>,
    Extension(began): Extension<Instant>,
    request: Request,
) -> Result<Response, ApiError> {
    let asked = TurnHead::new(owner, request_id, began);
    answer(&state, asked, request).await
}

/// Answers a request of the Responses API, or lets a run go on with one.
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
    let body = body::read_forwardable(state, &owner, request_body, &head.headers).await?;
    let answered = native::answered(state, &owner, request_id.clone(), &head, body);
    let body = match Box::pin(answered).await? {
        NativeDecision::Answered(response) => return Ok(*response),
        NativeDecision::Turn(body) => body,
    };
    let mut body = body;
    let ResponseTurn { turn, options } =
        decoded(state, &owner, request_id, &head, &mut body).await?;
    if turn.options.keep
        && let Some(digest) = retry::digest(&owner, &head.headers, &body)
    {
        state.retried.insert(&owner, digest, start.run.clone());
    }
    if turn.options.session_id.is_none() {
        // With a session, the turn looks into its history.
        for call in &turn.answered_calls {
            if !state.agent.waits_for(&owner, call).await {
                return Err(unknown_call(call).into());
            }
        }
    }
    let delivery = Delivery::new(start, &turn.options, &head, body)?;
    let reply = Reply::Responses(Arc::new(options));
    turn::answer(state, *turn, reply, delivery).await
}

/// `POST /v1/responses/input_tokens`
pub(super) async fn input_tokens(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Extension(request_id): Extension<RequestId>,
    request: Request,
) -> Result<Response, ApiError> {
    let (head, request_body) = request.into_parts();
    body::require_json(&head.headers)?;
    let mut body = body::read(&state, &owner, request_body, &head.headers).await?;
    let decoded = decoded(&state, &owner, request_id, &head, &mut body).await?;
    let ResponseTurn { turn, options } = decoded;
    let counted = state.agent.input_tokens(*turn).await;
    let counted = counted
        .map_err(|error| ApiError::of_turn(error, |position| options.file_path(position)))?;
    let tokens = InputTokenCount {
        object: "response.input_tokens",
        input_tokens: counted.tokens,
    };
    let mut response = axum::Json(tokens).into_response();
    if counted.estimated {
        let headers = response.headers_mut();
        headers.insert(ESTIMATED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// `POST /v1/responses/compact`
pub(super) async fn compact() -> ApiError {
    ApiError::not_found("this server does not compact responses; go on without it")
}

/// The turn that a body asks for, with what it refers to.
async fn decoded(
    state: &AppState,
    owner: &Owner,
    request_id: RequestId,
    head: &Parts,
    body: &mut HeldBody,
) -> Result<ResponseTurn, ApiError> {
    let caller = turn::caller(state, owner.clone(), request_id, &head.headers)?;
    let mut known = known_history(state, owner, body).await?;
    if known.session.is_none()
        && let Some(digest) = retry::digest(owner, &head.headers, body)
    {
        known.session = retry::failed_session(state, owner, &digest).await?;
    }
    let offer = state.agent.offer(owner);
    let most = state.settings.max_messages;
    let head = request_head(&head.headers);
    Ok(Box::pin(decode(body, caller, offer, most, head, known)).await?)
}

fn request_head(headers: &HeaderMap) -> RequestHead {
    let agent = headers
        .get(USER_AGENT)
        .and_then(|value| value.to_str().ok());
    RequestHead {
        user_agent: agent.unwrap_or_default().to_owned(),
        origin: origin(headers),
    }
}

/// An answer of JSON text.
fn json_answer(json: impl Into<axum::body::Body>) -> Response {
    let mut response = Response::new(json.into());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
