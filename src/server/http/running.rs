//! A run that has not ended, as the endpoints of chat completions show it.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use schemars::JsonSchema;
use serde::Serialize;

use super::approvals::ListedApproval;
use crate::dialects::answer::AnswerForm;
use agent::runs::RunStatus;
use protocol::ids::SessionId;

/// The `object` of a run that has no answer yet.
pub(super) const RUN_OBJECT: &str = "chat.completion.run";
/// Seconds after which a client should ask again for an answer that is being made.
const POLL_SECONDS: &str = "1";

/// A run that has not ended.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RunningCompletion<'a> {
    /// The calls that wait for a person's decision.
    approvals: Vec<ListedApproval>,
    /// Why a suspended run cannot resume, although all is decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked: Option<String>,
    /// When it was started, in seconds since 1970.
    created: i64,
    /// The id of the run and of its answer.
    id: String,
    #[schemars(extend("const" = RUN_OBJECT))]
    object: &'static str,
    /// The round in progress, from 0.
    round: u32,
    /// The session, if the conversation is stored.
    session_id: Option<&'a SessionId>,
    #[schemars(extend("const" = "running"))]
    status: &'static str,
}

/// The answer to a request whose run continues in the background.
pub(super) fn accepted(form: &AnswerForm, status: &RunStatus) -> Response {
    match form.unfinished(&status.id, "queued") {
        Some(object) => ([(CONTENT_TYPE, "application/json")], object).into_response(),
        None => still_running(status, Vec::new(), None),
    }
}

/// The answer for a run that has not ended.
pub(super) fn still_running(
    status: &RunStatus,
    approvals: Vec<ListedApproval>,
    blocked: Option<String>,
) -> Response {
    let body = RunningCompletion {
        approvals,
        blocked,
        created: status.created,
        id: status.id.completion_id(),
        object: RUN_OBJECT,
        round: status.round,
        session_id: status.session_id.as_ref(),
        status: "running",
    };
    (
        StatusCode::ACCEPTED,
        [(RETRY_AFTER, POLL_SECONDS)],
        Json(body),
    )
        .into_response()
}
