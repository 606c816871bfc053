//! Pass-through: bytes in, bytes out, head and body as they are but for hop-by-hop headers.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream::{BoxStream, Stream};
use futures_util::{StreamExt, TryStreamExt};
use http::header::{AUTHORIZATION, CONTENT_LENGTH, EXPECT, HOST};
use http::{HeaderMap, Method};
use http_body::Frame;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::auth::foreign_origin;
use super::error::ApiError;
use super::headers::passed_on;
use super::path::{self, Fate};
use super::{AppState, body};
use crate::chat::decode::renamed;
use crate::upstream::headers::strip_hop_by_hop;
use crate::upstream::{
    ForwardBody, ForwardRequest, ForwardResponse, MAX_ERROR_BODY_BYTES, Upstream, UpstreamError,
};

/// The prefix of our own paths, which a configured base URL brings itself.
const PREFIX: &str = "/v1";

/// Forwards any endpoint that loopwright does not have itself, streaming both ways.
pub(super) async fn forward(
    State(state): State<AppState>,
    request: Request,
) -> Result<Response, ApiError> {
    let refused = match path::fate(request.uri().path()) {
        Fate::Forward => return pass(&state, request).await,
        Fate::Reserved => "this endpoint is not available in this version of loopwright",
        Fate::Ambiguous => {
            "this path has more than one reading; send it without empty or dot segments, a trailing slash, encoded slashes or invalid percent-encoding"
        }
    };
    let mut answer = ApiError::not_found(refused).into_response();
    answer
        .extensions_mut()
        .insert(crate::metrics::RouteLabel::Other);
    Ok(answer)
}

async fn pass(state: &AppState, request: Request) -> Result<Response, ApiError> {
    let (head, request_body) = request.into_parts();
    if state.draining.is_cancelled() {
        return Err(ApiError::shutting_down());
    }
    let changes = !matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS);
    let simple = changes && !body::is_json(&head.headers);
    if simple && foreign_origin(&head.headers) && !known_origin(state, &head.headers) {
        return Err(ApiError::origin_not_allowed());
    }
    let upstream = state.router.default();
    let length = head
        .headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    let chunked = head.headers.contains_key(http::header::TRANSFER_ENCODING);
    let forwarded = match length {
        None | Some(0) if !chunked => ForwardBody::Full(Bytes::new()),
        _ => ForwardBody::Stream {
            stream: request_body
                .into_data_stream()
                .map_err(io::Error::other)
                .boxed(),
            length,
        },
    };
    let path_and_query = head.uri.path_and_query().map_or("", |whole| whole.as_str());
    let request = ForwardRequest {
        method: head.method,
        path_and_query: below_prefix(path_and_query),
        headers: upstream_headers(state, head.headers),
        body: forwarded,
    };
    let forwarded = upstream.forward(request).await;
    let response = forwarded.map_err(ApiError::passed_through)?;
    Ok(respond(state, response))
}

/// Passes a chat request through, with retries and fail-over as long as nothing has been answered.
pub(super) async fn chat(
    state: &AppState,
    model: &str,
    path_and_query: &str,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Response, ApiError> {
    let route = state
        .router
        .candidates(model)
        .ok_or_else(ApiError::internal)?;
    let path_and_query = below_prefix(path_and_query);
    let headers = upstream_headers(state, headers);
    let mut fail_over = state.router.fail_over(route);
    let response = loop {
        let upstream = fail_over.upstream().clone();
        let request = ForwardRequest {
            method: Method::POST,
            path_and_query: path_and_query.clone(),
            headers: headers.clone(),
            body: ForwardBody::Full(renamed(&bytes, model, upstream.model_name(model))),
        };
        match attempt(upstream.as_ref(), request).await {
            Ok(response) => break response,
            Err(error) => {
                let recovered = fail_over.recover(error).await;
                recovered.map_err(ApiError::passed_through)?;
                state.metrics.upstream_retried(upstream.name());
            }
        }
    };
    let mut answer = respond(state, response);
    answer
        .extensions_mut()
        .insert(crate::metrics::RouteLabel::ChatForwarded);
    Ok(answer)
}

/// Headers of a request that an upstream should see: hop-by-hop ones and those about our own hop are taken out, and
/// so are ids of sessions and a key of our own.
pub(super) fn upstream_headers(state: &AppState, mut headers: HeaderMap) -> HeaderMap {
    strip_hop_by_hop(&mut headers);
    for name in [HOST, CONTENT_LENGTH, EXPECT] {
        headers.remove(name);
    }
    for name in &state.settings.session_headers {
        headers.remove(name);
    }
    if state.gatekeeper.has_keys() {
        headers.remove(AUTHORIZATION);
    }
    headers
}

/// One try. An error status that may be tried again comes back as an error, with its body.
async fn attempt(
    upstream: &dyn Upstream,
    request: ForwardRequest,
) -> Result<ForwardResponse, UpstreamError> {
    let mut response = upstream.forward(request).await?;
    if !(response.status.is_server_error() || response.status.is_client_error()) {
        return Ok(response);
    }
    let mut kept: Vec<Bytes> = Vec::new();
    let mut size = 0;
    while let Some(data) = response.body.next().await {
        let data = data?;
        size += data.len();
        kept.push(data);
        if size > MAX_ERROR_BODY_BYTES {
            // Too large to be looked at: it goes on as it is.
            let begun = futures_util::stream::iter(kept.into_iter().map(Ok));
            response.body = begun.chain(response.body).boxed();
            return Ok(response);
        }
    }
    Err(UpstreamError::Status {
        upstream: upstream.name().into(),
        status: response.status,
        headers: Box::new(response.headers),
        body: kept.concat().into(),
    })
}

fn below_prefix(path_and_query: &str) -> String {
    path_and_query
        .strip_prefix(PREFIX)
        .unwrap_or(path_and_query)
        .to_owned()
}

/// Whether a web page of a configured origin sends the request.
pub(super) fn known_origin(state: &AppState, headers: &HeaderMap) -> bool {
    headers
        .get(http::header::ORIGIN)
        .is_some_and(|origin| state.settings.cors_origins.contains(origin))
}

fn respond(state: &AppState, response: ForwardResponse) -> Response {
    let size = response
        .headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    let body = PassedBody {
        stream: response.body,
        remaining: size,
        stopping: Box::pin(state.stopping.child_token().cancelled_owned()),
        failed: None,
    };
    let mut answer = Response::new(Body::new(body));
    *answer.status_mut() = response.status;
    *answer.headers_mut() = passed_on(response.headers);
    answer
}

/// An upstream's body on its way to the client; broken off when the upstream's is, or when the process ends.
struct PassedBody {
    stream: BoxStream<'static, Result<Bytes, UpstreamError>>,
    remaining: Option<u64>,
    stopping: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Why it is broken off, once everything before has had its chance to be written.
    failed: Option<UpstreamError>,
}

impl http_body::Body for PassedBody {
    type Data = Bytes;
    type Error = UpstreamError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let Poll::Ready(data) = Pin::new(&mut self.stream).poll_next(context) else {
            ready!(self.stopping.as_mut().poll(context));
            let reason = "the server is shutting down".to_owned();
            return Poll::Ready(Some(Err(UpstreamError::Broken {
                upstream: "".into(),
                reason,
            })));
        };
        if let (Some(remaining), Some(Ok(data))) = (&mut self.remaining, &data) {
            *remaining = remaining.saturating_sub(u64::try_from(data.len()).unwrap_or(u64::MAX));
        }
        match data {
            Some(Err(error)) => {
                // The connection is dropped at an error, with what is still to be written: that goes first.
                self.failed = Some(error);
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Some(Ok(data)) => Poll::Ready(Some(Ok(Frame::data(data)))),
            None => Poll::Ready(None),
        }
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.remaining
            .map_or_else(http_body::SizeHint::new, http_body::SizeHint::with_exact)
    }
}
