//! `/mcp`: the server-side tools as an MCP server over streamable HTTP.
//!
//! The transport has no state: each message is a request of its own, with the key of its caller, so that any replica can
//! answer it. A request whose client leaves is cancelled.

mod result;
mod server;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::response::Response;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, Collected, Full};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};

use self::server::CallerTools;
use super::edge::is_foreign_page;
use super::error::{ApiError, codes};
use super::{AppState, body};
use protocol::ids::{Owner, RequestId};
use tools::mcp::CLIENT_HEADER;
use tools::repair::is_heavy;

/// Answers a message of an MCP client.
pub(super) async fn answer(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Extension(request_id): Extension<RequestId>,
    request: Request,
) -> Result<Response, ApiError> {
    let (mut head, request_body) = request.into_parts();
    if is_foreign_page(&state, &head.headers) {
        return Err(codes::PAGE_NOT_ALLOWED.into());
    }
    body::require_json(&head.headers)?;
    if state.draining.is_cancelled() {
        return Err(codes::SHUTTING_DOWN.into());
    }
    let held = body::read(&state, &owner, request_body, &head.headers).await?;
    // The transport parses the whole message.
    if !std::str::from_utf8(&held).is_ok_and(|text| !is_heavy(text)) {
        let problem = "it is not UTF-8, or holds too many values; send fewer";
        return Err(ApiError::mcp(StatusCode::BAD_REQUEST, problem));
    }
    let bytes = held.clone();
    let memory = Arc::new(held.into_kept());
    // The body is decoded.
    head.headers.remove(CONTENT_ENCODING);
    head.headers.remove(CONTENT_LENGTH);
    let server = CallerTools {
        own_tools_only: head.headers.contains_key(&CLIENT_HEADER),
        headers: head.headers.clone(),
        state: state.clone(),
        owner,
        request_id,
        memory,
    };
    let mut config = StreamableHttpServerConfig::default();
    config.legacy_session_mode = false;
    config.json_response = true;
    config.sse_keep_alive = Some(state.settings.keep_alive);
    config.cancellation_token = state.stopping.clone();
    // The host, the origin and the size of the request are checked.
    config.allowed_hosts = Vec::new();
    config.max_request_body_bytes = usize::MAX;
    let sessions = Arc::new(NeverSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(server.clone()), sessions, config);
    let request = http::Request::from_parts(head, Full::new(bytes));
    let response = service.handle(request).await.map(Body::new);
    match is_plain_refusal(&response) {
        true => Err(refusal(response).await),
        false => Ok(response),
    }
}

/// Whether the transport has refused the request with a text.
fn is_plain_refusal(response: &Response) -> bool {
    let is_json = |headers: &HeaderMap| {
        let media_type = headers.get(CONTENT_TYPE);
        media_type.is_some_and(|value| value.as_bytes().starts_with(b"application/json"))
    };
    let status = response.status();
    (status.is_client_error() || status.is_server_error()) && !is_json(response.headers())
}

/// The same refusal as an error of the API.
async fn refusal(response: Response) -> ApiError {
    // The media type is JSON; an answer of this kind refuses the content.
    let status = match response.status() {
        StatusCode::UNSUPPORTED_MEDIA_TYPE => StatusCode::BAD_REQUEST,
        status => status,
    };
    // A short one, as the transport writes it.
    let text = response.into_body().collect().await;
    let text = text.map(Collected::to_bytes).unwrap_or_default();
    ApiError::mcp(status, &String::from_utf8_lossy(&text))
}
