//! Responses to failures of the session store.

use http::StatusCode;

use super::{ApiError, RETRY_AFTER_SECONDS};
use agent::session::{StorageFull, StoreError};

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Busy => {
                let message = "another turn of this session is still running; send the request again when it has ended, or use another session";
                Self::invalid(StatusCode::CONFLICT, Some("session_busy"), message)
            }
            StoreError::NotFound => Self::not_found("no session has this id"),
            StoreError::Exists => {
                let message = "a session with this id exists already; choose another id";
                Self::invalid(StatusCode::CONFLICT, Some("session_exists"), message)
            }
            StoreError::SessionTooLarge { bytes, limit } => {
                let message = format!(
                    "the session would have {bytes} bytes, and session_max_bytes is {limit}; start a new session, fork \
                     this one before a large message, or raise the setting"
                );
                Self::invalid(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    Some("session_too_large"),
                    message,
                )
            }
            StoreError::Full(full) => storage_full(full),
            StoreError::LeaseLost => unavailable(
                "the turn lost its session, because the session store could not be reached for too long; send the \
                 request again",
                None,
            ),
            StoreError::Failed(source) => store_failed(source.as_ref()),
            error @ (StoreError::PastEnd { .. }
            | StoreError::InUse { .. }
            | StoreError::NewerSchema { .. }) => store_failed(&error),
        }
    }
}

fn store_failed(cause: &dyn std::error::Error) -> ApiError {
    let message = "the session store is not available; try again later";
    unavailable(message, Some(cause.to_string()))
}

fn unavailable(message: &str, cause: Option<String>) -> ApiError {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let code = Some("session_store_unavailable");
    let mut answer = ApiError::new(status, "server_error", code, message);
    answer.0.retry_after = Some(RETRY_AFTER_SECONDS);
    answer.0.cause = cause;
    answer
}

/// 507: a retry helps only after sessions were deleted or the disk has more space.
fn storage_full(full: StorageFull) -> ApiError {
    let message = match full {
        StorageFull::Share {
            bytes,
            share,
            total,
            ..
        } => format!(
            "all sessions together have reached max_total_session_bytes ({total} bytes), and the sessions of this API key \
             would have {bytes} bytes, more than an equal share of {share}; delete sessions, or raise the setting"
        ),
        StorageFull::Disk { free, least } => format!(
            "the disk of the session store has {free} bytes left, less than min_free_disk ({least} bytes), so no new \
             session is stored; continue an existing session, or free disk space"
        ),
        StorageFull::Database => {
            "the disk of the database of the session store is full; free disk space there"
                .to_owned()
        }
    };
    let status = StatusCode::INSUFFICIENT_STORAGE;
    let mut answer = ApiError::new(status, "server_error", Some("storage_full"), message);
    answer.0.do_not_retry = true;
    answer
}
