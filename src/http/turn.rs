//! Runs a turn and answers with its events, in the dialect of the request.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::timeout;

use super::dialect::{AnswerCollector, Reply, StreamEncoder};
use super::edge::panic_error;
use super::error::ApiError;
use super::headers::upstream_rate_limits;
use super::stream::{EventBody, StreamContext};
use super::{AppState, body, forward};
use crate::agent::RunError;
use crate::agent::driver::Run;
use crate::agent::event::AgentEvent;
use crate::agent::turn::{Caller, TurnRequest};
use crate::ids::{Owner, RequestId, fresh_traceparent};

/// The header with the session id, in requests and responses.
pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("x-session-id");
const PROCESSING_MS: HeaderName = HeaderName::from_static("openai-processing-ms");
const OVERHEAD_MS: HeaderName = HeaderName::from_static("x-loopwright-overhead-ms");

/// The events of a run.
pub(super) type Events = BoxStream<'static, Result<AgentEvent, RunError>>;

/// The owner of the request and the data of its headers.
pub(super) fn caller(
    state: &AppState,
    owner: Owner,
    request_id: RequestId,
    headers: &HeaderMap,
) -> Result<Caller, ApiError> {
    let session_header = body::session_header(headers, &state.settings.session_headers)?;
    let mut upstream = forward::upstream_headers(state, headers.clone());
    // The loop writes the bodies of its model calls and reads the responses itself.
    for name in [
        ACCEPT,
        ACCEPT_ENCODING,
        CONTENT_TYPE,
        HeaderName::from_static("idempotency-key"),
    ] {
        upstream.remove(name);
    }
    let trace = ["traceparent", "tracestate"]
        .into_iter()
        .filter_map(|name| Some((HeaderName::from_static(name), headers.get(name)?.clone())));
    let mut trace: HeaderMap = trace.collect();
    if !trace.contains_key("traceparent")
        && let Ok(fresh) = HeaderValue::from_str(&fresh_traceparent())
    {
        // `tracestate` is meaningless without `traceparent`.
        trace.clear();
        trace.insert("traceparent", fresh);
    }
    Ok(Caller {
        request_id,
        owner,
        session_header,
        trace,
        headers: Arc::new(upstream),
    })
}

/// Runs a turn and returns its answer, streamed or whole.
pub(super) async fn answer(
    state: &AppState,
    request: TurnRequest,
    reply: Reply,
    began: Instant,
) -> Result<Response, ApiError> {
    let run = state.agent.run(request).await.map_err(ApiError::from)?;
    let session = run
        .session_id()
        .and_then(|id| HeaderValue::from_str(id.as_str()).ok());
    let side_effects = run.side_effects_flag();
    let events = events(run);
    let answering = async {
        match reply.is_streamed() {
            true => streamed(state, reply.stream_encoder(), events, began).await,
            false => collected(state, reply.collector(), events, began).await,
        }
    };
    let mut response = match with_retry_advice(Box::pin(answering), &side_effects).await {
        Ok(response) => response,
        Err(failure) => {
            let mut response = failure.error.into_response();
            set_timing_headers(response.headers_mut(), began, failure.waited);
            response
        }
    };
    if let Some(session) = session {
        response.headers_mut().insert(SESSION_ID, session);
    }
    Ok(response)
}

/// Why a run has no answer.
#[derive(Debug)]
struct Failure {
    error: ApiError,
    /// The time spent waiting for models and tools; unknown after a panic.
    waited: Option<Duration>,
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self {
            error,
            waited: None,
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        Self {
            waited: Some(error.waited),
            error: error.into(),
        }
    }
}

/// Turns a panic into a failure, and adds `x-should-retry: false` to a failure after a tool has had side effects.
async fn with_retry_advice(
    answering: impl Future<Output = Result<Response, Failure>>,
    side_effects: &AtomicBool,
) -> Result<Response, Failure> {
    let answered = match AssertUnwindSafe(answering).catch_unwind().await {
        Ok(answered) => answered,
        Err(panic) => Err(panic_error(panic.as_ref()).into()),
    };
    answered.map_err(|mut failure| {
        if side_effects.load(Ordering::Relaxed) {
            failure.error = failure.error.after_side_effects();
        }
        failure
    })
}

fn events(run: Run) -> Events {
    let step = |mut run: Run| async move {
        match run.next().await {
            Ok(Some(event)) => Some((Ok(event), run)),
            Ok(None) => None,
            Err(error) => Some((Err(error), run)),
        }
    };
    futures_util::stream::unfold(run, step).boxed()
}

/// Answers with a stream. Its head is sent when the first model call has begun to answer, so that an error of that call
/// keeps its status, or after the configured wait.
async fn streamed(
    state: &AppState,
    encoder: StreamEncoder,
    mut events: Events,
    began: Instant,
) -> Result<Response, Failure> {
    let mut early = Vec::new();
    let mut headers = HeaderMap::new();
    let first = async {
        loop {
            match events.next().await {
                Some(Ok(AgentEvent::Started { headers })) => return Ok(headers),
                Some(Ok(event)) => early.push(event),
                Some(Err(error)) => return Err(Failure::from(error)),
                None => return Err(ApiError::internal().into()),
            }
        }
    };
    tokio::select! {
        () = state.stopping.cancelled() => return Err(ApiError::shutting_down().into()),
        first = timeout(state.settings.first_byte_wait, first) => match first {
            Ok(started) => headers = upstream_rate_limits(&started?),
            Err(_elapsed) => {}
        },
    }
    let context = StreamContext {
        keep_alive: state.settings.keep_alive,
        stopping: state.stopping.clone(),
        metrics: state.metrics.clone(),
        began,
    };
    let body = EventBody::new(context, encoder, early, events);
    let mut response = Response::new(Body::new(body));
    *response.headers_mut() = headers;
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream; charset=utf-8"),
    );
    response.headers_mut().insert(
        http::header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache"),
    );
    // Tells an nginx in front of this server not to buffer the stream.
    response.headers_mut().insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    Ok(response)
}

/// Answers with one body after the end of the run.
async fn collected(
    state: &AppState,
    mut collector: AnswerCollector,
    mut events: Events,
    began: Instant,
) -> Result<Response, Failure> {
    let collect = async {
        let mut headers = HeaderMap::new();
        while let Some(event) = events.next().await {
            match event? {
                AgentEvent::Started { headers: upstream } => {
                    headers = upstream_rate_limits(&upstream);
                }
                event => collector.take(event),
            }
        }
        Ok::<_, Failure>((collector, headers))
    };
    let (collector, headers) = tokio::select! {
        () = state.stopping.cancelled() => return Err(ApiError::shutting_down().into()),
        collected = collect => collected?,
    };
    let (body, waited) = collector.finish().ok_or_else(ApiError::internal)?;
    let mut response = Response::new(Body::from(body));
    response.headers_mut().extend(headers);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    set_timing_headers(response.headers_mut(), began, Some(waited));
    Ok(response)
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

#[cfg(test)]
mod tests {
    use super::super::error::SHOULD_RETRY;
    use super::*;

    #[tokio::test]
    async fn a_panic_after_side_effects_must_not_be_retried() {
        for (ran, expected) in [(true, Some("false")), (false, None)] {
            let failing = async { panic!("in a test") };
            let failure = with_retry_advice(failing, &AtomicBool::new(ran))
                .await
                .unwrap_err();
            let answer = failure.error.into_response();
            assert_eq!(answer.status(), 500);
            let header = answer.headers().get(SHOULD_RETRY);
            assert_eq!(header.map(|value| value.to_str().unwrap()), expected);
        }
    }
}
