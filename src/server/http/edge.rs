//! The middleware around every request: request id, authentication, record in the log, metrics, and panics as errors.

mod record;
pub(super) mod refused;

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, ORIGIN};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body::Body as _;

pub(super) use self::record::{BodyEnd, RequestRecord};
pub(super) use self::refused::RefusalLog;
use super::auth::is_cross_origin;
use super::error::{ApiError, Cause, codes, in_form};
use super::routes::RouteFacts;
use super::served::Served;
use super::{AppState, body, console, reads};
use agent::metrics::{ModelUse, RefusedLabel, RouteLabel};
use agent::runs::panic_text;
use protocol::ids::{Owner, RequestId};
use quota::FairPermit;

/// The header with the request id, in requests and responses.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The header with the name of the replica.
pub(super) const REPLICA: HeaderName = HeaderName::from_static("x-loopwright-replica");
const CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("x-client-request-id");

/// The methods that are accepted. TRACE is refused because the upstream's response to it would show the operator's key.
const METHODS: [Method; 7] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
];
/// The value of the `allow` header.
const ALLOWED: &str = "GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS";

/// Checks every request before it is routed, and completes, logs and counts every response.
pub(super) async fn guard(
    State(state): State<AppState>,
    mut request: Request,
    next: Next,
) -> Response {
    let began = Instant::now();
    let request_id = request_id(request.headers());
    let method = request.method().clone();
    let route = state.routes.of(&request);
    let mut record = RequestRecord::new(&request, route.label, request_id.clone(), began);
    let response = match check_request(&state, &request, route) {
        _ if !METHODS.contains(&method) => {
            ([(ALLOW, ALLOWED)], codes::METHOD_NOT_ALLOWED.error()).into_response()
        }
        Ok(None) => Response::default(),
        Ok(Some((owner, permit))) => {
            record.owner = Some(owner.clone());
            record.begin_span(&state.traces, &mut request);
            request.extensions_mut().insert(owner);
            request.extensions_mut().insert(request_id.clone());
            request.extensions_mut().insert(began);
            let long = !request.body().is_end_stream() && body::may_be_long(request.headers());
            let mut response = match long {
                true => reads::away_from_others(next.run(request)).await,
                false => next.run(request).await,
            };
            if let Some(permit) = permit {
                response.extensions_mut().insert(permit);
            }
            response
        }
        Err(error) => error.into_response(),
    };
    let response = in_form(response, route.error_form);
    finish(&state, response, &request_id, record)
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the panic layer passes it by value"
)]
/// The response to a request whose handler panicked; the text of the panic is only logged.
pub(super) fn panic_response(panic: Box<dyn Any + Send + 'static>) -> Response {
    panic_error(panic.as_ref()).into_response()
}

/// Logs a panic and returns the error for the client.
pub(super) fn panic_error(panic: &(dyn Any + Send)) -> ApiError {
    tracing::error!(panic = panic_text(panic), "a request panicked");
    codes::INTERNAL.error()
}

/// The permit of an owner's request, for as long as its response is written. `None` where requests are not counted: there is
/// one owner, or the request is of a replica, which has counted it.
#[derive(Debug, Clone)]
pub(super) struct RequestPermit(pub(super) Option<Arc<FairPermit>>);

/// The name of the other replica that has made a response.
#[derive(Debug, Clone)]
pub(super) struct AnsweringReplica(pub(super) HeaderValue);

/// The owner of the request, and the permit that it holds to the end of its response. `None` for a probe, which needs
/// neither.
fn check_request(
    state: &AppState,
    request: &Request,
    route: RouteFacts,
) -> Result<Option<(Owner, Option<RequestPermit>)>, ApiError> {
    let most = state.settings.max_header_bytes;
    if head_bytes(request) > most {
        let message = format!(
            "the request's path and headers are larger than {most} bytes; send fewer or shorter headers"
        );
        return Err(codes::HEAD_TOO_LARGE.with(message));
    }
    if route.is_open {
        return Ok(Some((Owner::everybody(), None)));
    }
    let is_console = console::is_asked(state, request);
    let probes = &state.routes.probes;
    let is_probe = !is_console && probes.contain(request.method(), request.uri().path());
    let access = state.access.get();
    let has_keys = access.authenticator.has_keys();
    if is_probe && has_keys {
        return Ok(None);
    }
    let owner = match is_console && has_keys {
        true => Owner::everybody(),
        false => access
            .authenticator
            .authenticate(request.headers(), request.uri())?,
    };
    if is_probe {
        return Ok(None);
    }
    refuse_page(state, request)?;
    if !access.is_shared {
        return Ok(Some((owner, Some(RequestPermit(None)))));
    }
    let permit = state.requests.try_acquire(&owner);
    let permit = permit.ok_or_else(|| codes::RATE_LIMIT_EXCEEDED.error().before_body())?;
    Ok(Some((owner, Some(RequestPermit(Some(Arc::new(permit)))))))
}

/// Refuses requests that a web page of another origin can send without a preflight request.
fn refuse_page(state: &AppState, request: &Request) -> Result<(), ApiError> {
    let headers = request.headers();
    let is_simple = request.method() == Method::POST && !body::is_json(headers);
    match is_simple && is_foreign_page(state, headers) {
        true => Err(codes::ORIGIN_NOT_ALLOWED.into()),
        false => Ok(()),
    }
}

/// Whether a web page of another origin, which is not configured, sends the request.
pub(super) fn is_foreign_page(state: &AppState, headers: &HeaderMap) -> bool {
    let is_configured = |origin| state.settings.cors_origins.contains(origin);
    is_cross_origin(headers) && !headers.get(ORIGIN).is_some_and(is_configured)
}

/// The size of the request's head in bytes: URI and headers, without method and version.
fn head_bytes(request: &Request) -> usize {
    /// Size of the separators of a header field: a colon, a space and a line end, in bytes.
    const SEPARATORS: usize = 4;
    let uri = request.uri();
    let authority = uri.authority().map_or(0, |whole| whole.as_str().len());
    let path = uri.path_and_query().map_or(0, |whole| whole.as_str().len());
    let headers = request.headers().iter();
    let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + SEPARATORS);
    authority + path + headers.sum::<usize>()
}

fn finish(
    state: &AppState,
    mut response: Response,
    request_id: &RequestId,
    mut record: RequestRecord,
) -> Response {
    if !response.headers().contains_key(REQUEST_ID)
        && let Ok(value) = HeaderValue::from_str(request_id.as_str())
    {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    let other = response.extensions_mut().remove::<AnsweringReplica>();
    let name = other.map(|AnsweringReplica(name)| name);
    if let Some(name) = name.or_else(|| state.settings.replica_name.clone()) {
        response.headers_mut().insert(REPLICA, name);
    }
    let extensions = response.extensions_mut();
    // The handler may have set another label, such as for a chat request that was passed through.
    if let Some(route) = extensions.get::<RouteLabel>() {
        record.route = *route;
    }
    if let Some(why) = extensions.remove::<RefusedLabel>() {
        record.refused = true;
        state.refusals.refused(why, &state.metrics);
    }
    record.cause = extensions.remove::<Cause>().map(|Cause(cause)| cause);
    record.served = extensions.remove::<Served>();
    record.status = Some(response.status());
    let metrics = &state.metrics;
    metrics.request_finished(record.route, response.status(), record.elapsed());
    if let Some(served) = &record.served {
        let key = record.owner.as_ref().map_or("", Owner::as_str);
        let of = ModelUse {
            model: &served.model,
            key,
        };
        metrics.model_request(of, response.status().is_success());
    }
    response.extensions_mut().insert(Arc::new(record));
    response
}

/// The id that the client has chosen for a request, or a fresh one.
pub(super) fn request_id(headers: &HeaderMap) -> RequestId {
    [REQUEST_ID, CLIENT_REQUEST_ID]
        .iter()
        .filter_map(|name| headers.get(name)?.to_str().ok())
        .find_map(|text| RequestId::parse(text).ok())
        .unwrap_or_else(RequestId::fresh)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http_body_util::BodyExt;
    use tower::ServiceExt;
    use tower_http::catch_panic::CatchPanicLayer;

    use super::*;

    #[tokio::test]
    async fn the_text_of_a_panic_is_not_in_the_response() {
        let routes = axum::Router::new()
            .fallback(async || -> Response { panic!("a secret") })
            .layer(CatchPanicLayer::custom(panic_response));
        let answer = routes.oneshot(Request::new(Body::empty())).await.unwrap();
        assert_eq!(answer.status(), 500);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(
            text.contains("internal_error") && !text.contains("secret"),
            "{text}"
        );
    }
}
