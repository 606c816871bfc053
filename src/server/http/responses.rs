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
use serde_json::json;

use self::history::known_history;
use self::native::NativeDecision;
use self::retry::RequestDigest;
pub(super) use self::retry::RetriedRequests;
use super::body::HeldBody;
use super::error::{ApiError, codes};
use super::openapi::cases;
use super::openapi::headers::{HeaderKind, OF_LOOP};
use super::openapi::operation::Operation;
use super::routes::{ApiEndpoint, Group};
use super::turn::ResponseContext;
use super::{AppState, body, caller, turn};
use crate::dialects::answer::AnswerForm;
use crate::dialects::answer::Dialect;
use crate::dialects::fields::head::PROGRESS_HEADER;
use crate::dialects::responses::decode::ResponseRequest;
use crate::dialects::responses::decode::{DecodedResponse, ResponseOptions, decode};
use crate::dialects::responses::encode::ResponseEvent;
use crate::dialects::responses::encode::ResponseObject;
use crate::dialects::responses::objects::InputTokenCount;
use agent::admit::{Admitted, AdmittedTurn};
use agent::metrics::RouteLabel;
use agent::turn::{Caller, TurnRequest};
use protocol::ids::{Owner, RequestId, RunId};

/// Operations on a response.
const OF_ID: [&str; 4] = [
    "getResponse",
    "deleteResponse",
    "cancelResponse",
    "listResponseInputItems",
];

/// The routes of responses.
pub(super) fn group() -> Group {
    let mut endpoints = Vec::from(stored::endpoints());
    endpoints.extend([
        ApiEndpoint::post("/v1/responses", create, describe_create),
        ApiEndpoint::post(
            "/v1/responses/input_tokens",
            input_tokens,
            describe_input_tokens,
        ),
        ApiEndpoint::post("/v1/responses/compact", compact, describe_compact),
        stored::input_endpoint(),
    ]);
    Group {
        tag: "Responses",
        label: RouteLabel::Responses,
        prefix: "/v1/responses",
        is_probed: true,
        dialect: Some(Dialect::Responses),
        id: "The id of the response, such as `resp_…`.",
        endpoints,
        ..Group::default()
    }
}

/// Marks a number of tokens that was not counted by the model server.
const ESTIMATED: HeaderName = HeaderName::from_static("x-loopwright-estimated");

/// Answers a request of the Responses API.
async fn create(
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
        return Err(codes::SHUTTING_DOWN.into());
    }
    let body = body::read_forwardable(state, &owner, request_body, &head.headers).await?;
    let answered = native::answered(state, &owner, request_id.clone(), &head, body);
    let mut body = match Box::pin(answered).await? {
        NativeDecision::Answered(response) => return Ok(*response),
        NativeDecision::Turn(body) => body,
    };
    let digest = retry::digest(&owner, &head.headers, &body);
    let (decoded, continued) = decoded(state, &owner, &head, &mut body, digest.as_ref()).await?;
    let run = RunId::fresh();
    if decoded.decoded.draft.options.keep
        && let Some(digest) = digest
    {
        state.retried.insert(&owner, digest, run.clone(), continued);
    }
    let caller = caller::caller(state, owner, request_id);
    let (turn, options) = admitted(state, decoded, caller).await?;
    let context = ResponseContext::new((began, run), &head, body)?;
    let form = AnswerForm::Responses(Arc::new(options));
    turn::answer(state, turn, form, context).await
}

fn describe_create(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("createResponse", "Answers with items, running tools")
        .described(
            "OpenAI's Responses API over the same loop. Calls of server-side tools are items of hosted tools; a \
             `function_call` is always the client's to run. A request that concerns nothing here goes as it came to a model \
             server that speaks this API itself, and so does its answer.",
        )
        .keyed("A request that is sent again under the same key leads to the run of the first one.")
        .header(
            "x-session-id",
            json!({"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"}),
            "The same as `session_id` of the body, which counts more.",
        )
        .header(
            PROGRESS_HEADER,
            json!({"type": "string", "enum": ["auto", "declared", "named", "none"]}),
            "The same as `agent.progress` of the body, which counts more.",
        )
        .reads::<ResponseRequest>(true)
        .answers_or_passes_on::<ResponseObject>(200, "agent", "The response; with `stream`, its events.")
        .streams::<ResponseEvent>(200)
        .with_headers(200, &OF_LOOP)
        .fails(cases::REFERENCES)
        .fails(&[
            codes::APPROVAL_DECIDED,
        ])
        .fails_as_turn()
        .leads_to(200, &OF_ID)
}

/// `POST /v1/responses/input_tokens`
async fn input_tokens(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Extension(request_id): Extension<RequestId>,
    request: Request,
) -> Result<Response, ApiError> {
    let (head, request_body) = request.into_parts();
    body::require_json(&head.headers)?;
    let mut body = body::read(&state, &owner, request_body, &head.headers).await?;
    let digest = retry::digest(&owner, &head.headers, &body);
    let (mut decoded, _) = decoded(&state, &owner, &head, &mut body, digest.as_ref()).await?;
    let draft = &mut decoded.decoded.draft;
    if draft.options.session_id.is_none() {
        // Without a session the request answers no stored call.
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

fn describe_input_tokens(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("countResponseInputTokens", "The tokens of an input")
        .reads::<ResponseRequest>(true)
        .answers::<InputTokenCount>(200, "The number of tokens.")
        .with_headers(
            200,
            &[(
                "x-loopwright-estimated",
                HeaderKind::OptionalText,
                "`true` if the number is an estimate.",
            )],
        )
        .fails(cases::REFERENCES)
        .fails(&[codes::MODEL_NOT_FOUND, codes::SESSION_STORE_UNAVAILABLE])
}

/// `POST /v1/responses/compact`
async fn compact() -> ApiError {
    codes::NOT_FOUND.with("this server does not compact responses; go on without it")
}

fn describe_compact(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("compactResponse", "Is not available")
        .fails(&[codes::NOT_FOUND])
}

/// The draft of a body with what it refers to, and the failed run that it continues.
async fn decoded(
    state: &AppState,
    owner: &Owner,
    head: &Parts,
    body: &mut HeldBody,
    digest: Option<&RequestDigest>,
) -> Result<(DecodedResponse, Option<RunId>), ApiError> {
    let request_head = caller::request_head(state, &head.headers)?;
    let mut known = known_history(state, owner, body).await?;
    let mut continued = None;
    if known.session.is_none()
        && let Some(digest) = digest
        && let Some(failed) = retry::failed_turn(state, owner, digest).await?
    {
        (known.session, continued) = (Some(failed.session), Some(failed.run));
    }
    Ok((decode(body, &request_head, &known)?, continued))
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
        return Err(codes::INTERNAL.into());
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
