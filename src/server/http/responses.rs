//! `/v1/responses`: runs a turn and answers with a response; responses by their id.

pub(super) mod conversations;
mod history;
mod items;
mod native;
mod retry;
mod stored;

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Extension, Request, State};
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderName, HeaderValue};

use self::history::known_history;
use self::native::NativeDecision;
pub(super) use self::retry::RetriedRequests;
pub(super) use self::stored::{cancel, delete, input_items, show};
use super::body::HeldBody;
use super::error::ApiError;
use super::turn::Delivery;
use super::{AppState, body, caller, turn};
use crate::dialects::answer::AnswerForm;
use crate::dialects::responses::decode::{DecodedResponse, ResponseOptions, decode};
use crate::dialects::responses::objects::InputTokenCount;
use agent::admit::{Admitted, AdmittedTurn};
use agent::turn::{Caller, TurnRequest};
use protocol::ids::{Owner, RequestId, RunId};

/// Marks a number of tokens that was not counted by the model server.
const ESTIMATED: HeaderName = HeaderName::from_static("x-loopwright-estimated");

/// Answers a request of the Responses API.
pub(super) async fn create(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Extension(request_id): Extension<RequestId>,
    Extension(began): Extension<Instant>,
    request: Request,
) -> Result<Response, ApiError> {
    let state = &state;
    let (head, request_body) = request.into_parts();
    body::require_json(&head.headers)?;
    if state.draining.is_cancelled() {
        return Err(ApiError::shutting_down());
    }
    let body = body::read_forwardable(state, &owner, request_body, &head.headers).await?;
    let answered = native::answered(state, &owner, request_id.clone(), &head, body);
    let mut body = match Box::pin(answered).await? {
        NativeDecision::Answered(response) => return Ok(*response),
        NativeDecision::Turn(body) => body,
    };
    let decoded = decoded(state, &owner, &head, &mut body).await?;
    let run = RunId::fresh();
    if decoded.decoded.draft.options.keep
        && let Some(digest) = retry::digest(&owner, &head.headers, &body)
    {
        state.retried.insert(&owner, digest, run.clone());
    }
    let caller = caller::caller(state, owner, request_id);
    let (turn, options) = admitted(state, decoded, caller).await?;
    let delivery = Delivery::new((began, run), &head, body)?;
    let form = AnswerForm::Responses(Arc::new(options));
    turn::answer(state, turn, form, delivery).await
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
    let mut decoded = decoded(&state, &owner, &head, &mut body).await?;
    let draft = &mut decoded.decoded.draft;
    if draft.options.session_id.is_none() {
        // Nothing is answered.
        draft.input.answered_calls.clear();
    }
    let caller = caller::caller(&state, owner, request_id);
    let (turn, options) = admitted(&state, decoded, caller).await?;
    let counted = Box::pin(state.agent.input_tokens(turn)).await;
    let counted = counted
        .map_err(|error| ApiError::of_turn(error, |position| options.file_path(position)))?;
    let tokens = InputTokenCount::new(counted.tokens);
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

/// The draft that a body asks for, with what it refers to.
async fn decoded(
    state: &AppState,
    owner: &Owner,
    head: &Parts,
    body: &mut HeldBody,
) -> Result<DecodedResponse, ApiError> {
    let request_head = caller::request_head(state, &head.headers)?;
    let mut known = known_history(state, owner, body).await?;
    if known.session.is_none()
        && let Some(digest) = retry::digest(owner, &head.headers, body)
    {
        known.session = retry::failed_session(state, owner, &digest).await?;
    }
    Ok(decode(body, &request_head, &known)?)
}

/// The turn of a draft. This dialect has no request that passes through.
async fn admitted(
    state: &AppState,
    decoded: DecodedResponse,
    caller: Caller,
) -> Result<(TurnRequest, ResponseOptions), ApiError> {
    let DecodedResponse {
        decoded,
        mut options,
    } = decoded;
    let Admitted::Turn(admitted) = state.agent.admit(decoded, caller).await? else {
        return Err(ApiError::internal());
    };
    let AdmittedTurn {
        turn,
        servers,
        left_out,
    } = *admitted;
    options.take_admitted(&servers, left_out);
    Ok((turn, options))
}

/// An answer of JSON text.
fn json_answer(json: impl Into<axum::body::Body>) -> Response {
    let mut response = Response::new(json.into());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
