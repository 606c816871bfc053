//! The answer of a run that is over, as a response.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::error::{Cause, codes};
use super::headers::upstream_rate_limits;
use agent::runs::{FirstReader, RunAnswer};

/// The answer's id.
const COMPLETION_ID: HeaderName = HeaderName::from_static("x-completion-id");
const PROCESSING_MS: HeaderName = HeaderName::from_static("openai-processing-ms");
const OVERHEAD_MS: HeaderName = HeaderName::from_static("x-loopwright-overhead-ms");

/// Names the answer in the head, where the client may never see its body.
pub(super) fn set_completion_id(headers: &mut HeaderMap, id: &str) {
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(COMPLETION_ID, id);
    }
}

/// The whole answer of a run, once it is over.
pub(super) async fn whole_of(reader: FirstReader, began: Instant) -> Response {
    let mut response = whole(reader.answer().await.as_deref(), Some(began)).await;
    let limits = reader.head().map(|head| upstream_rate_limits(&head));
    response.headers_mut().extend(limits.unwrap_or_default());
    response
}

/// The answer of a run that is over.
pub(super) async fn whole(answer: Option<&RunAnswer>, began: Option<Instant>) -> Response {
    let Some(answer) = answer else {
        return codes::INTERNAL.into_response();
    };
    let body = match answer.body.in_one_piece() {
        Some(bytes) => Body::from(bytes),
        None => Body::new(answer.body.clone().without_lost().await.into_body()),
    };
    let mut response = Response::new(body);
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers.clone();
    if let Some(cause) = &answer.cause {
        response.extensions_mut().insert(Cause(cause.clone()));
    }
    if let Some(began) = began {
        set_timing_headers(response.headers_mut(), began, answer.waited);
    }
    response
}

/// Sets the total time of the request and, if known, the part of it that was not spent waiting for models and tools.
fn set_timing_headers(headers: &mut HeaderMap, began: Instant, waited: Option<Duration>) {
    let total = began.elapsed();
    let processing = u64::try_from(total.as_millis()).unwrap_or(u64::MAX);
    headers.insert(PROCESSING_MS, HeaderValue::from(processing));
    let overhead = waited.map(|waited| total.saturating_sub(waited).as_secs_f64() * 1000.0);
    let value = overhead.and_then(|ms| HeaderValue::from_str(&format!("{ms:.3}")).ok());
    if let Some(value) = value {
        headers.insert(OVERHEAD_MS, value);
    }
}
