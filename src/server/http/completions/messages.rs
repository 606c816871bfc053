//! `GET /v1/chat/completions/{id}/messages`: the stored messages up to the end of an answer.

use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use schemars::JsonSchema;
use serde_json::json;

use super::super::AppState;
use super::super::error::{ApiError, codes};
use super::super::extract::DEFAULT_LIMIT;
use super::super::extract::MAX_LIMIT;
use super::super::extract::{Order, OrderedQuery, Path, Query};
use super::super::openapi::operation::Operation;
use super::super::reads::{self, ReadSession};
use super::super::routes::ApiEndpoint;
use super::{look_up, run_id};
use agent::runs::RunRecordState;
use agent::session::{StoredMessage, StoredSession};
use net::polling::taking_apart;
use protocol::ids::{Owner, RunId};
use protocol::openai::message::Message;
use protocol::openai::raw::{RawObject, quoted};

/// The stored messages up to the end of an answer.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in super::super) struct CompletionMessages {
    #[schemars(extend("const" = "list"))]
    object: String,
    /// Chat messages, each with an id.
    data: Vec<IdentifiedMessage>,
    /// The id of the first message of the page.
    first_id: Option<String>,
    /// The id of the last message of the page.
    last_id: Option<String>,
    /// Whether another page follows.
    has_more: bool,
}

/// A chat message with an id; its other members are those of the message.
#[derive(Debug, JsonSchema)]
#[schemars(extend("additionalProperties" = true))]
#[expect(dead_code, reason = "only its schema is used")]
struct IdentifiedMessage {
    id: String,
    role: String,
}

/// `GET /v1/chat/completions/{id}/messages`
async fn list(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
    Query(query): Query<OrderedQuery>,
) -> Result<Response, ApiError> {
    let id = run_id(&id)?;
    let found = look_up(&state, &owner, &id).await?;
    let is_running = matches!(
        found.state,
        RunRecordState::Running | RunRecordState::RunningElsewhere | RunRecordState::Suspended
    );
    let session = found.session_id;
    // The list grows while the run lasts. A turn that has no session stores nothing.
    let is_whole = is_running || session.is_none();
    let stored = match session {
        Some(session) => reads::session(&state, &owner, &session, reads::TEXT_FACTOR).await?,
        None => None,
    };
    let (stored, memory) = match stored.map(ReadSession::into_parts) {
        Some((stored, memory)) => (Some(stored), Some(memory)),
        None => (None, None),
    };
    let stored = stored.or_else(|| is_whole.then(StoredSession::default));
    let stored = stored.ok_or_else(not_stored)?;
    let end = end_of(&stored, &id, is_whole).ok_or_else(not_stored)?;
    let of_turns = stored.messages.iter().take(end);
    let messages = stored.instructions.iter();
    let messages = messages.chain(of_turns.map(|stored| &stored.message));
    let prefix = id.completion_id();
    let entries: Vec<(String, &Message)> = messages
        .enumerate()
        .map(|(index, message)| (format!("{prefix}-{index}"), message))
        .collect();
    let (page, has_more) = query.page(entries, Order::Ascending, |(id, _), asked| id == asked)?;
    let bytes = page.iter().map(|(_, message)| message.json().len()).sum();
    let response = taking_apart(bytes, || page_of(&page, has_more));
    Ok(match memory {
        Some(memory) => reads::counted(response, memory),
        None => response,
    })
}

/// The route of the messages of an answer.
pub(in crate::http) fn endpoint() -> ApiEndpoint {
    let path = "/v1/chat/completions/{id}/messages";
    ApiEndpoint::get(path, list, describe_list)
}

fn describe_list(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("listChatCompletionMessages",
            "The stored messages up to the end of an answer",
        )
        .described(
            "Those of later turns of its session are not in it; while the run lasts, those so far are. It is empty if the \
             turn was not stored in a session, and a 404 if the session was deleted or rewritten before the end of the \
             answer since.",
        )
        .query(
            "limit",
            json!({"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}),
            "Most messages of the page.",
        )
        .query(
            "order",
            json!({"type": "string", "enum": ["asc", "desc"], "default": "asc"}),
            "The order of the messages.",
        )
        .query(
            "after",
            json!({"type": "string"}),
            "The id of the last message of the page before.",
        )
        .answers::<CompletionMessages>(200, "A page of messages.")
        .fails(&[codes::INVALID, codes::NOT_FOUND, codes::ANSWERS_OVERLOADED, codes::SESSION_STORE_UNAVAILABLE])
}

/// How many messages the session had when a run ended. `None` if they are not there any more.
fn end_of(session: &StoredSession, run: &RunId, is_whole: bool) -> Option<usize> {
    let messages = &session.messages;
    let ends_answer =
        |stored: &StoredMessage| stored.view.as_ref().is_some_and(|view| view.is_of(run));
    match messages.iter().position(ends_answer) {
        Some(last) => Some(last + 1),
        // It ended without an answer, and no other run came after it.
        None if is_whole || session.last_run.as_ref() == Some(run) => Some(messages.len()),
        None => None,
    }
}

fn page_of(page: &[(String, &Message)], has_more: bool) -> Response {
    let data: Vec<String> = page
        .iter()
        .map(|(id, message)| {
            let object = RawObject::parse(message.json_str()).unwrap_or_default();
            let members = object.members_without(&["id"]);
            let separator = if members.is_empty() { "" } else { "," };
            format!("{{\"id\":{}{separator}{members}}}", quoted(id))
        })
        .collect();
    let id = |entry: Option<&(String, &Message)>| json!(entry.map(|(id, _)| id));
    let body = format!(
        r#"{{"object":"list","data":[{}],"first_id":{},"last_id":{},"has_more":{has_more}}}"#,
        data.join(","),
        id(page.first()),
        id(page.last()),
    );
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

fn not_stored() -> ApiError {
    codes::NOT_FOUND.with(
        "the messages of this answer are no longer stored, because its session was deleted or has changed since",
    )
}
