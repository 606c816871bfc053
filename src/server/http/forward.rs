//! Pass-through: requests and responses are forwarded unchanged, except for hop-by-hop headers and mapped model names.

mod any;
mod model;
mod routed;
mod rules;
mod traced;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream, Stream};
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH};
use http::request::Parts;
use http::{HeaderMap, Method};
use http_body::Frame;
use tokio_util::sync::WaitForCancellationFutureOwned;

pub(super) use self::any::{describe_forwarding, forward, groups};
pub(super) use self::routed::StartOfBody;
use self::routed::{BodyToSend, RoutedBody};
pub(super) use self::rules::ForwardRules;
use super::AppState;
use super::error::{ApiError, codes};
use super::headers::{SESSION_ID, forwarded_headers, mark_upstream_error};
use super::path;
use super::served::Served;
use crate::dialects::chat::decode::with_model_name;
use agent::admit::PassThrough;
use agent::turn::TurnRecord;
use protocol::ids::Owner;
use quota::FairPermit;
use upstream::headers::remove_headers;
use upstream::router::Route;
use upstream::{
    ForwardBody, ForwardRequest, ForwardResponse, MAX_ERROR_BODY_BYTES, Upstream, UpstreamError,
};

/// The prefix of the paths of this server. It is removed, because the base URL of an upstream includes its own.
const PREFIX: &str = "/v1";

/// What the names of request headers begin with that concern this server only.
const OWN_HEADERS: &str = "x-loopwright-";

/// The head of a request to forward.
#[derive(Debug, Clone)]
struct ForwardHead {
    method: Method,
    path_and_query: String,
    headers: HeaderMap,
    /// The model that the request names.
    model: Option<String>,
    /// What the log says of the request.
    turn: TurnRecord,
}

/// Forwards a request to the upstreams that serve its model, or to the first one if it names none.
async fn forward_routed(
    state: &AppState,
    owner: &Owner,
    request: Request,
) -> Result<Response, ApiError> {
    let (head, request_body) = request.into_parts();
    if state.draining.is_cancelled() {
        return Err(codes::SHUTTING_DOWN.into());
    }
    let body = RoutedBody::read(state, owner, &head.headers, request_body).await?;
    let named = body.model().map(ToOwned::to_owned);
    let named = named.or_else(|| path::model(head.uri.path()));
    let served = named.as_deref().map(Served::of);
    let mut head = ForwardHead {
        path_and_query: without_prefix(path_and_query(&head)),
        method: head.method,
        headers: upstream_headers(state, head.headers),
        model: named.clone(),
        turn: served
            .as_ref()
            .map(|served| served.turn.clone())
            .unwrap_or_default(),
    };
    let permit = state.permit_for_turn(owner)?;
    let route = named.map(|name| state.agent.route(&name)).transpose()?;
    let response = match (route, body.held()) {
        (Some(route), Some(held)) => {
            let body = |upstream: &dyn Upstream| held.for_upstream(upstream);
            forward_held(state, route, head, body).await?
        }
        (route, _) => {
            let upstream = match &route {
                Some(route) => route.candidate(0),
                None => state.router.default(),
            };
            let (body, decoded) = body.for_upstream(upstream.as_ref());
            head.turn.answered_by(upstream.name());
            let span = traced::begin(&state.traces, &mut head);
            let request = head.with(body, decoded);
            match upstream.forward(request).await {
                Ok(response) => traced::answered(span, &**upstream, 0, response),
                Err(error) => {
                    traced::failed(span, &**upstream, 0, &error);
                    return Err(ApiError::from_forwarded(error));
                }
            }
        }
    };
    let mut answer = client_response(state, response, permit);
    if let Some(served) = served {
        answer.extensions_mut().insert(served);
    }
    Ok(answer)
}

impl ForwardHead {
    /// The request with a body, which may be without the encoding that the headers name.
    fn with(self, body: ForwardBody, decoded: bool) -> ForwardRequest {
        let mut headers = self.headers;
        if decoded {
            headers.remove(CONTENT_ENCODING);
        }
        ForwardRequest {
            method: self.method,
            path_and_query: self.path_and_query,
            headers,
            body,
        }
    }
}

/// Forwards a request for this model, or for any, that an upstream answers itself.
pub(super) async fn native(
    state: &AppState,
    owner: &Owner,
    route: Arc<Route>,
    head: &Parts,
    body: StartOfBody,
) -> Result<Response, ApiError> {
    let head = ForwardHead {
        method: Method::POST,
        path_and_query: without_prefix(path_and_query(head)),
        headers: upstream_headers(state, head.headers.clone()),
        model: None,
        turn: TurnRecord::default(),
    };
    let permit = state.permit_for_turn(owner)?;
    let response = forward_held(state, route, head, |upstream| body.for_upstream(upstream)).await?;
    let mut answer = client_response(state, response, permit);
    answer
        .extensions_mut()
        .insert(agent::metrics::RouteLabel::Forwarded);
    Ok(answer)
}

/// Forwards a chat request.
pub(super) async fn chat(
    state: &AppState,
    owner: &Owner,
    passed: PassThrough,
    head: Parts,
    bytes: Bytes,
) -> Result<Response, ApiError> {
    let PassThrough { model, route, .. } = passed;
    let model = &*model;
    let served = Served::of(model);
    let head = ForwardHead {
        method: Method::POST,
        path_and_query: without_prefix(path_and_query(&head)),
        headers: upstream_headers(state, head.headers),
        model: Some(model.to_owned()),
        turn: served.turn.clone(),
    };
    let body = |upstream: &dyn Upstream| BodyToSend {
        bytes: with_model_name(&bytes, model, upstream.model_name(model)),
        decoded: false,
    };
    let permit = state.permit_for_turn(owner)?;
    let response = forward_held(state, route, head, body).await?;
    let mut answer = client_response(state, response, permit);
    answer
        .extensions_mut()
        .insert(agent::metrics::RouteLabel::ChatForwarded);
    answer.extensions_mut().insert(served);
    Ok(answer)
}

/// Forwards a request whose body is in memory, with retries and fail-over until an upstream has answered.
async fn forward_held(
    state: &AppState,
    route: Arc<Route>,
    mut head: ForwardHead,
    body: impl Fn(&dyn Upstream) -> BodyToSend,
) -> Result<ForwardResponse, ApiError> {
    let span = traced::begin(&state.traces, &mut head);
    let mut fail_over = state.router.fail_over(route);
    loop {
        let upstream = fail_over.upstream().clone();
        let BodyToSend { bytes, decoded } = body(upstream.as_ref());
        let request = head.clone().with(ForwardBody::Full(bytes), decoded);
        match attempt(upstream.as_ref(), request).await {
            Ok(response) => {
                head.turn.answered_by(upstream.name());
                let retries = fail_over.retries();
                return Ok(traced::answered(span, &*upstream, retries, response));
            }
            Err(error) => {
                if let Err(error) = fail_over.recover(error).await {
                    traced::failed(span, &*upstream, fail_over.retries(), &error);
                    return Err(ApiError::from_forwarded(error));
                }
                state.metrics.upstream_retried(upstream.name());
            }
        }
    }
}

/// The headers of a request that are sent to an upstream: all except session ids, options and API keys of this server.
/// The upstream leaves out the headers about the connection.
pub(super) fn upstream_headers(state: &AppState, mut headers: HeaderMap) -> HeaderMap {
    let has_keys = state.access.get().authenticator.has_keys();
    remove_headers(&mut headers, |name| {
        *name == SESSION_ID
            || name.as_str().starts_with(OWN_HEADERS)
            || state.settings.session_headers.contains(name)
            || (has_keys && *name == AUTHORIZATION)
    });
    headers
}

/// One attempt. A response with an error status is returned as an error with its body, so that it can be retried.
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
            // The body is too large to be buffered for a retry, so the response is forwarded.
            let buffered = stream::iter(kept.into_iter().map(Ok));
            response.body = buffered.chain(response.body).boxed();
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

fn path_and_query(head: &Parts) -> &str {
    head.uri.path_and_query().map_or("", |whole| whole.as_str())
}

fn without_prefix(path_and_query: &str) -> String {
    path_and_query
        .strip_prefix(PREFIX)
        .unwrap_or(path_and_query)
        .to_owned()
}

fn client_response(state: &AppState, response: ForwardResponse, permit: FairPermit) -> Response {
    let size = response
        .headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    let body = ClientBody {
        stream: response.body,
        remaining: size,
        state: state.clone(),
        stopping: None,
        pending_error: None,
        _permit: permit,
    };
    let mut answer = Response::new(Body::new(body));
    *answer.status_mut() = response.status;
    *answer.headers_mut() = forwarded_headers(response.headers);
    if response.status.is_client_error() || response.status.is_server_error() {
        mark_upstream_error(answer.headers_mut());
    }
    answer
}

/// The response body for the client. It fails when the upstream's body fails or the server stops.
struct ClientBody {
    stream: BoxStream<'static, Result<Bytes, UpstreamError>>,
    remaining: Option<u64>,
    state: AppState,
    /// Waits for the end of the server, once the body has waited for its upstream.
    stopping: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// The error of the upstream, returned with the next poll.
    pending_error: Option<UpstreamError>,
    /// Held as long as the connection to the model server.
    _permit: FairPermit,
}

impl http_body::Body for ClientBody {
    type Data = Bytes;
    type Error = UpstreamError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        if let Some(error) = self.pending_error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let Poll::Ready(data) = Pin::new(&mut self.stream).poll_next(context) else {
            let Self {
                state, stopping, ..
            } = &mut *self;
            let stopping =
                stopping.get_or_insert_with(|| Box::pin(state.stopping.clone().cancelled_owned()));
            ready!(stopping.as_mut().poll(context));
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
                // On an error hyper drops the connection and all data that is not yet written. The error is returned
                // one poll later, so that the data is written first.
                self.pending_error = Some(error);
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
