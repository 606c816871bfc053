//! Responses to requests about runs that have ended or are no longer kept.

use http::StatusCode;

use super::{ApiError, RETRY_AFTER_SECONDS};
use protocol::openai::request::RequestError;

impl ApiError {
    /// 502 for a turn whose model may not be called, because a hook failed that has to agree.
    pub(super) fn hook_failed() -> Self {
        let message = "a hook of the server has to agree to the model call, and it could not be asked; try again later";
        Self::new(
            StatusCode::BAD_GATEWAY,
            "server_error",
            Some("hook_failed"),
            message,
        )
    }

    /// 400 for a response that cannot be continued.
    pub(in crate::http) fn no_previous_response() -> Self {
        let message =
            "'previous_response_id' names no stored response; send the conversation in 'input'";
        let mut error = Self::invalid(
            StatusCode::BAD_REQUEST,
            Some("previous_response_not_found"),
            message,
        );
        error.0.param = Some("previous_response_id".to_owned());
        error
    }

    /// 409 for a run that has ended.
    pub(crate) fn not_running() -> Self {
        let message = "this run has ended; there is nothing to cancel";
        Self::invalid(StatusCode::CONFLICT, Some("not_running"), message)
    }

    /// 409 for an approval that was decided or has expired.
    pub(in crate::http) fn approval_decided() -> Self {
        let message = "the approval was decided before, has expired, or its conversation went on; see GET /v1/agent/approvals";
        Self::invalid(StatusCode::CONFLICT, Some("approval_decided"), message)
    }

    /// For a decision in a request: 409 as above, or 400 for an approval that its conversation does not have.
    pub(super) fn refused_decision(param: String, is_known: bool) -> Self {
        if !is_known {
            let problem = "names no approval of this conversation; send the id of its mcp_approval_request, with the \
                           previous_response_id or the conversation";
            return RequestError::invalid(&param, problem).into();
        }
        let mut error = Self::approval_decided();
        error.0.param = Some(param);
        error
    }

    /// 410 for a run whose lines are no longer kept.
    pub(crate) fn events_expired() -> Self {
        let message = "the events of this run are no longer kept; get its answer by its id";
        Self::invalid(StatusCode::GONE, Some("events_expired"), message)
    }

    /// 410 for an idempotency key whose answer is no longer kept.
    pub(crate) fn answer_expired() -> Self {
        let message = "the answer to this idempotency-key is no longer kept; send a new key to run the request again";
        Self::invalid(StatusCode::GONE, Some("answer_expired"), message)
    }

    /// 410 for a run that the end of the process broke off.
    pub(crate) fn run_interrupted() -> Self {
        let message =
            "the server stopped before this run had an answer; its session holds what was done";
        Self::invalid(StatusCode::GONE, Some("run_interrupted"), message)
    }

    /// 400 for a request without messages, in a session of which no turn waits.
    pub(crate) fn nothing_waits(field: &str) -> Self {
        let message = format!(
            "'{field}' is empty, and no turn of the session waits to go on; send at least one message"
        );
        RequestError::field(field, message).into()
    }

    /// 410 for a run that waited, and whose turn has gone on with another request.
    pub(crate) fn run_left() -> Self {
        let message = "another request of its session has gone on with the turn of this run; the session holds what was done";
        Self::invalid(StatusCode::GONE, Some("run_interrupted"), message)
    }

    /// 503 for a run of another replica, which cannot be asked.
    pub(crate) fn replica_unreachable() -> Self {
        let message = "another replica runs this turn and cannot be reached from here; send the request again later, \
                       or get the answer by its id once the run has ended";
        let mut error = Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "server_error",
            Some("replica_unreachable"),
            message,
        );
        error.0.retry_after = Some(RETRY_AFTER_SECONDS);
        error
    }

    /// 422 for an idempotency key that came with another request before.
    pub(crate) fn idempotency_key_reused() -> Self {
        let message =
            "this idempotency-key was used with another request body or path; send a new key";
        Self::invalid(
            StatusCode::UNPROCESSABLE_ENTITY,
            Some("idempotency_key_reused"),
            message,
        )
    }
}
