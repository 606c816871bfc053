//! `POST /v1/sessions/{id}/fork`: a new session with the beginning of another one.

use axum::Json;
use axum::extract::{Extension, Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::error::{ApiError, codes};
use super::super::extract::Path;
use super::super::openapi::cases;
use super::super::openapi::operation::Operation;
use super::super::{AppState, body};
use super::{OF_ID, parse_id, path_id};
use agent::session::StoreError;
use agent::session::files::StoredFile;
use protocol::ids::{Owner, SessionId};
use protocol::openai::request::{RequestError, body_member, body_object, refuse_unknown};

/// A new session that was forked, without its messages.
#[derive(Debug, Serialize, JsonSchema)]
struct ForkedSession<'a> {
    /// Seconds since 1970.
    created_at: i64,
    /// The files that the session shares with the one that it was forked from.
    files: &'a [StoredFile],
    id: &'a SessionId,
    /// `null`: a new session has had no run.
    last_run: (),
    #[schemars(extend("const" = "session"))]
    object: &'static str,
    /// `null`: a new session has had no run.
    running: (),
    stats: ForkedStats,
    /// The beginning of the first message of the user.
    title: Option<&'a str>,
    /// Seconds since 1970.
    updated_at: i64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ForkedStats {
    message_count: u64,
}

/// The body of a fork.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
struct ForkRequest {
    /// The fork has the messages before the one with this index in the export; by default all.
    before_message: Option<usize>,
    /// The id of the new session; by default a fresh one.
    id: Option<SessionId>,
}

/// `POST /v1/sessions/{id}/fork`
pub(super) async fn fork(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let id = path_id(&id)?;
    let (head, request_body) = request.into_parts();
    body::require_json(&head.headers)?;
    let bytes = body::read(&state, &owner, request_body, &head.headers).await?;
    let fork = fork_body(&bytes)?;
    let lease = state.sessions.lease(&owner, &id).await?;
    let new_id = fork.id.unwrap_or_else(SessionId::fresh);
    let store = &state.sessions.store;
    let forked = store.fork(lease.fence(), fork.before_message, &new_id);
    let forked = forked.await.map_err(|error| match (error, fork.before_message) {
        (StoreError::PastEnd { messages }, Some(before)) => {
            let problem = format!(
                "before_message is {before}, but the session holds {messages} messages; send 0 to {messages}, or omit it \
                 to copy all"
            );
            RequestError::field("before_message", problem).into()
        }
        (error, _) => ApiError::from(error),
    })?;
    let files = state.sessions.files.of_session(&owner, &forked.id).await?;
    // Without the messages, which may be large and which the client has or can get. A new session has had no run.
    let body = ForkedSession {
        created_at: forked.created_at,
        files: &files,
        id: &forked.id,
        last_run: (),
        object: "session",
        running: (),
        stats: ForkedStats {
            message_count: forked.message_count,
        },
        title: forked.title.as_deref(),
        updated_at: forked.updated_at,
    };
    Ok((StatusCode::CREATED, Json(body)).into_response())
}

pub(super) fn describe(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(
            "forkSession",
            "A new session with the beginning of this one",
        )
        .reads::<ForkRequest>(true)
        .answers::<ForkedSession<'_>>(201, "The new session, without its messages.")
        .leads_to(201, &OF_ID)
        .fails(&[
            codes::NOT_FOUND,
            codes::SESSION_BUSY,
            codes::SESSION_EXISTS,
            codes::SESSION_STORE_UNAVAILABLE,
            codes::FILE_STORE_UNAVAILABLE,
        ])
        .fails(cases::STORAGE)
}

/// The body of `POST /v1/sessions/{id}/fork`.
#[derive(Default)]
struct ForkBody {
    before_message: Option<usize>,
    id: Option<SessionId>,
}

fn fork_body(bytes: &[u8]) -> Result<ForkBody, RequestError> {
    if bytes.is_empty() {
        return Ok(ForkBody::default());
    }
    let body = body_object(bytes)?;
    refuse_unknown(&body, &["before_message", "id"])?;
    let id: Option<String> = body_member(&body, "id", "a string")?;
    let index = "the index of a message, a whole number of 0 or more";
    Ok(ForkBody {
        before_message: body_member(&body, "before_message", index)?,
        id: id.map(|text| parse_id("id", &text)).transpose()?,
    })
}
