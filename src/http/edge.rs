//! What happens to every request: its id, who asks, the log line, the counts, panics as errors.

use std::any::Any;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::ALLOW;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::AppState;
use super::error::{ApiError, Cause};
use crate::ids::RequestId;
use crate::metrics::RouteLabel;

/// The header with a request's id, both ways.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("x-client-request-id");
/// Paths that say nothing of value and that probes ask without a key or a fitting host.
const OPEN_PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// What any endpoint may take. The rest is not forwarded either: TRACE would show the operator's key.
const METHODS: [Method; 7] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
];
/// The same as a header's value.
const ALLOWED: &str = "GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS";

/// Wraps every request.
pub(super) async fn guard(
    State(state): State<AppState>,
    mut request: Request,
    next: Next,
) -> Response {
    let began = Instant::now();
    let request_id = request_id(request.headers());
    let method = request.method().clone();
    let route = route(&request);
    let response = match admit(&state, &request) {
        _ if !METHODS.contains(&method) => {
            ([(ALLOW, ALLOWED)], ApiError::method_not_allowed()).into_response()
        }
        Ok(owner) => {
            request.extensions_mut().insert(owner);
            request.extensions_mut().insert(request_id.clone());
            request.extensions_mut().insert(began);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    };
    finish(
        &state,
        response,
        &request_id,
        &Seen {
            method,
            route,
            began,
        },
    )
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the panic layer gives it away"
)]
/// Turns a panic into an error answer; its text goes to the log only.
pub(super) fn panicked(panic: Box<dyn Any + Send + 'static>) -> Response {
    panic_error(panic.as_ref()).into_response()
}

/// The error that stands for a panic.
pub(super) fn panic_error(panic: &(dyn Any + Send)) -> ApiError {
    tracing::error!(panic = panic_text(panic), "a request panicked");
    ApiError::internal()
}

/// The text of a panic.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("unknown panic")
}

struct Seen {
    method: Method,
    route: RouteLabel,
    began: Instant,
}

fn admit(state: &AppState, request: &Request) -> Result<crate::ids::Owner, ApiError> {
    let most = state.settings.max_header_bytes;
    if head_bytes(request) > most {
        return Err(ApiError::head_too_large(most));
    }
    if OPEN_PATHS.contains(&request.uri().path()) {
        return Ok(crate::ids::Owner::everybody());
    }
    state.gatekeeper.admit(request.headers(), request.uri())
}

/// Size of a request's head, without the few bytes of its first line that are always there.
fn head_bytes(request: &Request) -> usize {
    // A colon, a space and a line end.
    const AROUND: usize = 4;
    let uri = request.uri();
    let authority = uri.authority().map_or(0, |whole| whole.as_str().len());
    let path = uri.path_and_query().map_or(0, |whole| whole.as_str().len());
    let headers = request.headers().iter();
    let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + AROUND);
    authority + path + headers.sum::<usize>()
}

fn finish(
    state: &AppState,
    mut response: Response,
    request_id: &RequestId,
    seen: &Seen,
) -> Response {
    if !response.headers().contains_key(REQUEST_ID)
        && let Ok(value) = HeaderValue::from_str(request_id.as_str())
    {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    let duration = seen.began.elapsed();
    // The handler knows best: a chat request may have been passed through.
    let route = response
        .extensions()
        .get::<RouteLabel>()
        .copied()
        .unwrap_or(seen.route);
    state
        .metrics
        .request_finished(route, response.status(), duration);
    let status = response.status().as_u16();
    let (method, route, duration_ms) = (
        &seen.method,
        route.as_str(),
        duration.as_secs_f64() * 1000.0,
    );
    match response.extensions().get::<Cause>() {
        Some(Cause(cause)) => {
            tracing::warn!(%request_id, %method, route, status, duration_ms, cause, "request failed");
        }
        None => {
            tracing::debug!(%request_id, %method, route, status, duration_ms, "request answered");
        }
    }
    response
}

fn request_id(headers: &HeaderMap) -> RequestId {
    [REQUEST_ID, CLIENT_REQUEST_ID]
        .iter()
        .filter_map(|name| headers.get(name)?.to_str().ok())
        .find_map(|text| RequestId::parse(text).ok())
        .unwrap_or_else(RequestId::fresh)
}

/// The route for the metrics: one of a fixed set, whatever the path.
fn route(request: &Request) -> RouteLabel {
    let matched = request
        .extensions()
        .get::<MatchedPath>()
        .map(MatchedPath::as_str);
    match matched {
        Some("/v1/chat/completions") => RouteLabel::ChatLoop,
        Some("/v1/models/{*id}") if !matches!(*request.method(), Method::GET | Method::HEAD) => {
            RouteLabel::Forwarded
        }
        Some("/v1/models" | "/v1/models/{*id}") => RouteLabel::Models,
        Some("/healthz" | "/readyz" | "/metrics") => RouteLabel::Operations,
        Some(path) if path.starts_with("/v1/sessions") => RouteLabel::Sessions,
        Some(path) if path.starts_with("/v1/files") => RouteLabel::Files,
        Some(path) if path.starts_with("/v1/agent") => RouteLabel::Agent,
        Some("/v1/{*path}") => RouteLabel::Forwarded,
        Some(_) | None => RouteLabel::Other,
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http_body_util::BodyExt;
    use tower::ServiceExt;
    use tower_http::catch_panic::CatchPanicLayer;

    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_error_that_tells_nothing() {
        let routes = axum::Router::new()
            .fallback(async || -> Response { panic!("a secret") })
            .layer(CatchPanicLayer::custom(panicked));
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
