//! Responses to failures of the stores.

use std::error::Error;

use http::header::HeaderValue;

use super::{ApiError, codes};
use agent::session::files::FileError;
use agent::session::{StorageFull, StoreError};

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Busy => codes::SESSION_BUSY.into(),
            StoreError::NotFound => codes::NOT_FOUND.with("no session has this id"),
            StoreError::Exists => codes::SESSION_EXISTS.into(),
            StoreError::SessionTooLarge { bytes, limit } => {
                codes::SESSION_TOO_LARGE.with(format!(
                    "the session would have {bytes} bytes, and session_max_bytes is {limit}; start a new session, fork \
                     this one before a large message, or raise the setting"
                ))
            }
            StoreError::Full(full) => codes::STORAGE_FULL.with(full_text(full)),
            StoreError::LeaseLost => codes::SESSION_STORE_UNAVAILABLE.with(
                "the turn lost its session, because the session store could not be reached for too long; send the \
                 request again",
            ),
            StoreError::Failed(source) => {
                codes::SESSION_STORE_UNAVAILABLE.error().caused_by(source.to_string())
            }
            error @ (StoreError::PastEnd { .. }
            | StoreError::InUse { .. }
            | StoreError::NewerSchema { .. }) => {
                codes::SESSION_STORE_UNAVAILABLE.error().caused_by(error.to_string())
            }
        }
    }
}

fn full_text(full: StorageFull) -> String {
    match full {
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
    }
}

impl From<FileError> for ApiError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::NotFound => codes::NOT_FOUND.with("no file has this id"),
            FileError::ContentMissing => codes::NOT_FOUND
                .with("the content of this file is missing on the server; upload the file again"),
            FileError::TooLarge { limit } => {
                let message = format!("'file' is larger than {limit} bytes; upload a smaller one");
                codes::REQUEST_TOO_LARGE.with(message).about("file")
            }
            FileError::Full => codes::FILE_STORE_FULL.into(),
            FileError::Storage { .. } | FileError::Io { .. } | FileError::Store(_) => {
                let source = error.source().map(|source| format!(": {source}"));
                let cause = format!("{error}{}", source.unwrap_or_default());
                codes::FILE_STORE_UNAVAILABLE.error().caused_by(cause)
            }
        }
    }
}

impl ApiError {
    /// For a range outside a file of `size` bytes.
    pub(in crate::http) fn range_not_satisfiable(size: u64) -> Self {
        let message = format!("the requested range is outside the file, which has {size} bytes");
        let mut error = codes::RANGE_NOT_SATISFIABLE.with(message);
        error.0.content_range = HeaderValue::from_str(&format!("bytes */{size}")).ok();
        error
    }
}
