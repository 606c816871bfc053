//! `POST /v1/chat/completions`: passes the request through or runs a turn.

use std::time::Instant;

use axum::extract::{Extension, Request, State};
use axum::response::Response;
use http::header::CONTENT_ENCODING;
use serde_json::json;

use super::error::{ApiError, codes};
use super::openapi::headers::{HeaderKind, OF_LOOP, REPLAYED, RETRY, SESSION};
use super::openapi::operation::Operation;
use super::routes::ApiEndpoint;
use super::running::RunningCompletion;
use super::turn::ResponseContext;
use super::{AppState, body, caller, forward, turn};
use crate::dialects::answer::AnswerForm;
use crate::dialects::chat::decode::{ChatRequest, DecodedChat, decode, without_rounds};
use crate::dialects::chat::encode::{ChatCompletion, StreamedData};
use crate::dialects::fields::head::PROGRESS_HEADER;
use agent::admit::Admitted;
use agent::metrics::RouteLabel;
use protocol::ids::{Owner, RequestId, RunId};

/// Operations on an answer.
const OF_ID: [&str; 5] = [
    "getChatCompletion",
    "deleteChatCompletion",
    "listChatCompletionMessages",
    "streamChatCompletionEvents",
    "cancelChatCompletion",
];

/// Answers a chat request.
async fn complete(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Extension(request_id): Extension<RequestId>,
    Extension(began): Extension<Instant>,
    request: Request,
) -> Result<Response, ApiError> {
    let (head, request_body) = request.into_parts();
    body::require_json(&head.headers)?;
    if state.draining.is_cancelled() {
        return Err(codes::SHUTTING_DOWN.into());
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
    let context = ResponseContext::new((began, RunId::fresh()), &head, body)?;
    turn::answer(&state, turn, AnswerForm::Chat(reply), context).await
}

/// The route of new completions.
pub(super) fn endpoint() -> ApiEndpoint {
    let path = "/v1/chat/completions";
    ApiEndpoint::post(path, complete, describe_complete).labelled(RouteLabel::ChatLoop)
}

fn describe_complete(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("createChatCompletion", "Answers a conversation, running tools")
        .described(
            "A request for which no server-side tool is offered, without a session id and without another extension, is \
             passed through: the model server gets its bytes and the client the bytes of the answer. Else the loop calls \
             the model and runs server-side tools until there is an answer. The headers that are described here come from \
             the loop; the model server's `x-ratelimit-…` come as `x-upstream-ratelimit-…`.",
        )
        .keyed("A request that is sent again under the same key leads to the run of the first one.")
        .header(
            "x-session-id",
            json!({"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"}),
            "The same as `session_id` of the body, which counts more. A header of `session_headers` names a chat instead, \
             whose session loopwright finds by its first message.",
        )
        .header(
            PROGRESS_HEADER,
            json!({"type": "string", "enum": ["auto", "named", "chunk", "none"], "default": "auto"}),
            "The same as `agent.progress` of the body, which counts more.",
        )
        .reads::<ChatRequest>(true)
        .answers_or_passes_on::<ChatCompletion>(200, "agent", "The answer; with `stream`, its events.")
        .streams::<StreamedData>(200)
        .with_headers(200, &OF_LOOP)
        .leads_to(200, &OF_ID)
        .answers::<RunningCompletion<'_>>(202, "The turn runs in the background (`agent.background`).")
        .with_headers(
            202,
            &[
                RETRY,
                ("x-completion-id", HeaderKind::Text, "The id under which the answer can be fetched."),
                SESSION,
                REPLAYED,
            ],
        )
        .leads_to(202, &OF_ID)
        .fails_as_turn()
}
