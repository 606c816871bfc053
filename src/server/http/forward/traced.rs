//! The span of a forwarded request to a model server. Of the bytes that pass through nothing is read for it.

use futures_util::StreamExt;
use futures_util::stream;
use http::header::CONTENT_LENGTH;

use super::ForwardHead;
use agent::traces::{Span, Traces};
use protocol::ids::shown;
use upstream::{ForwardResponse, Upstream, UpstreamError};

/// The paths of model calls, and the operation names of the conventions.
const OPERATIONS: [(&str, &str); 5] = [
    ("/chat/completions", "chat"),
    ("/responses", "chat"),
    ("/messages", "chat"),
    ("/completions", "text_completion"),
    ("/embeddings", "embeddings"),
];

/// Begins the span of a request, which names it from then on. `None` if no model is asked, or there is no collector.
pub(super) fn begin(traces: &Traces, head: &mut ForwardHead) -> Option<Span> {
    if !traces.is_on() {
        return None;
    }
    let path = head.path_and_query.split('?').next();
    let (_, operation) = OPERATIONS.iter().find(|(known, _)| path == Some(known))?;
    let model = head.model.as_deref().map(shown);
    let span = traces.model_call(&head.headers, operation, model.as_deref())?;
    span.put(&mut head.headers);
    Some(span)
}

/// The request has failed at its last model server.
pub(super) fn failed(
    span: Option<Span>,
    upstream: &dyn Upstream,
    retries: usize,
    error: &UpstreamError,
) {
    if let Some(span) = span {
        at(span, upstream, retries).fail(error.class());
    }
}

/// The answer with the span, which ends with it.
pub(super) fn answered(
    span: Option<Span>,
    upstream: &dyn Upstream,
    retries: usize,
    response: ForwardResponse,
) -> ForwardResponse {
    let Some(span) = span else {
        return response;
    };
    let span = at(span, upstream, retries);
    let status = response.status;
    if status.is_client_error() || status.is_server_error() {
        span.fail(status.as_u16().to_string());
        return response;
    }
    let announced = response.headers.get(CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced == Some(0) {
        span.end();
        return response;
    }
    let parts = (response.body, announced, Some(span));
    let body = stream::unfold(parts, |(mut body, mut left, mut span)| async move {
        let item = body.next().await;
        if let (Some(left), Some(Ok(data))) = (&mut left, &item) {
            *left = left.saturating_sub(data.len());
        }
        match (&item, span.take()) {
            // A body whose length is known is not read beyond it.
            (Some(Ok(_)), Some(span)) if left == Some(0) => span.end(),
            (Some(Ok(_)), kept) => span = kept,
            (Some(Err(error)), Some(span)) => span.fail(error.class()),
            (None, Some(span)) => span.end(),
            (Some(Err(_)) | None, None) => {}
        }
        item.map(|item| (item, (body, left, span)))
    });
    ForwardResponse {
        body: body.boxed(),
        ..response
    }
}

fn at(mut span: Span, upstream: &dyn Upstream, retries: usize) -> Span {
    span.at_upstream(upstream.name(), upstream.address(), upstream.provider());
    span.retried(retries);
    span
}
