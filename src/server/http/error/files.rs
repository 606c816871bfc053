//! Responses to failures of the file store.

use std::error::Error;

use http::StatusCode;
use http::header::HeaderValue;

use super::{ApiError, RETRY_AFTER_SECONDS};
use agent::session::files::FileError;

impl ApiError {
    /// 415 for an upload that is not a multipart form.
    pub(crate) fn not_a_form() -> Self {
        let message = "the content type must be multipart/form-data; send the file as the field 'file' of a form";
        Self::invalid(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Some("unsupported_media_type"),
            message,
        )
    }

    /// 416 for a range outside a file of `size` bytes.
    pub(crate) fn range_not_satisfiable(size: u64) -> Self {
        let message = format!("the requested range is outside the file, which has {size} bytes");
        let mut error = Self::invalid(
            StatusCode::RANGE_NOT_SATISFIABLE,
            Some("range_not_satisfiable"),
            message,
        );
        error.0.content_range = HeaderValue::from_str(&format!("bytes */{size}")).ok();
        error
    }
}

impl From<FileError> for ApiError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::NotFound => Self::not_found("no file has this id"),
            FileError::ContentMissing => Self::not_found(
                "the content of this file is missing on the server; upload the file again",
            ),
            FileError::TooLarge { limit } => {
                let message = format!("'file' is larger than {limit} bytes; upload a smaller one");
                let mut answer = Self::invalid(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    Some("request_too_large"),
                    message,
                );
                answer.0.param = Some("file".to_owned());
                answer
            }
            FileError::Full => unavailable(
                "file_store_full",
                "the uploads that are running would exceed the storage for files; try again later",
            ),
            FileError::Storage { .. } | FileError::Io { .. } | FileError::Store(_) => {
                let message = "the file store is not available; try again later";
                let mut answer = unavailable("file_store_unavailable", message);
                let source = error.source().map(|source| format!(": {source}"));
                answer.0.cause = Some(format!("{error}{}", source.unwrap_or_default()));
                answer
            }
        }
    }
}

fn unavailable(code: &'static str, message: &str) -> ApiError {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let mut answer = ApiError::new(status, "server_error", Some(code), message);
    answer.0.retry_after = Some(RETRY_AFTER_SECONDS);
    answer
}
