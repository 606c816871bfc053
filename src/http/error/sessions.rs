//! Responses to failures of the session store.

use http::StatusCode;

use super::{ApiError, RETRY_AFTER_SECONDS};
use crate::openai::request::RequestError;
use crate::session::{SessionError, StorageFull};

impl From<SessionError> for ApiError {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Busy => {
                let message = "another turn of this session is still running; send the request again when it has ended, or use another session";
                Self::invalid(StatusCode::CONFLICT, Some("session_busy"), message)
            }
            SessionError::NotFound => Self::not_found("no session has this id"),
            SessionError::Exists => {
                let message = "a session with this id exists already; choose another id";
                Self::invalid(StatusCode::CONFLICT, Some("session_exists"), message)
            }
            SessionError::Invalid { param, message } => RequestError::field(&param, message).into(),
            SessionError::TooLarge { bytes, limit } => {
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
            SessionError::Full(full) => storage_full(full),
            SessionError::LeaseLost => {
                let message = "the turn lost its session, because the session store could not be reached for too long; \
                               send the request again";
                let mut answer = Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "server_error",
                    Some("session_store_unavailable"),
                    message,
                );
                answer.0.retry_after = Some(RETRY_AFTER_SECONDS);
                answer
            }
            SessionError::Store(source) => {
                let message = "the session store is not available; try again later";
                let mut answer = Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "server_error",
                    Some("session_store_unavailable"),
                    message,
                );
                answer.0.retry_after = Some(RETRY_AFTER_SECONDS);
                answer.0.cause = Some(source.to_string());
                answer
            }
        }
    }
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
