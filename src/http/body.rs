//! Reading request bodies within limits of size and time, and checking their content type.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName};
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::error::ApiError;
use super::settings::Settings;
use crate::ids::SessionId;
use crate::openai::request::RequestError;

/// Memory reserved for a body of unknown length, in bytes.
const UNKNOWN_LENGTH_CAPACITY: usize = 4096;

/// Reads a whole body.
pub(super) async fn read(
    body: Body,
    headers: &HeaderMap,
    settings: &Settings,
) -> Result<Bytes, ApiError> {
    let most = settings.max_body_bytes;
    let declared = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if declared.is_some_and(|length| length > most) {
        return Err(ApiError::too_large(most));
    }
    let mut body = body;
    let Some(first) = next(&mut body, settings.body_timeout).await? else {
        return Ok(Bytes::new());
    };
    if declared == Some(first.len()) {
        return Ok(first);
    }
    // A client can declare any length, so the memory that is reserved for it is limited.
    let capacity = declared.unwrap_or(UNKNOWN_LENGTH_CAPACITY).min(1024 * 1024);
    let mut whole = BytesMut::with_capacity(capacity.max(first.len()));
    whole.extend_from_slice(&first);
    while let Some(data) = next(&mut body, settings.body_timeout).await? {
        if whole.len() + data.len() > most {
            return Err(ApiError::too_large(most));
        }
        whole.extend_from_slice(&data);
    }
    if whole.len() > most {
        Err(ApiError::too_large(most))
    } else {
        Ok(whole.freeze())
    }
}

/// Refuses a body whose content type is not JSON: a web page could send it without a preflight request.
pub(super) fn require_json(headers: &HeaderMap) -> Result<(), ApiError> {
    if is_json(headers) {
        Ok(())
    } else {
        Err(ApiError::not_json())
    }
}

/// Whether the content type is `application/json` or `application/*+json`.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let kind = kind
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

/// The session id of the first configured header that the request has.
pub(super) fn session_header(
    headers: &HeaderMap,
    names: &[HeaderName],
) -> Result<Option<SessionId>, ApiError> {
    let Some((name, value)) = names
        .iter()
        .find_map(|name| Some((name, headers.get(name)?)))
    else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default();
    let parsed = SessionId::parse(text).map_err(|problem| {
        RequestError::field(
            name.as_str(),
            format!("the session id in the header '{name}' {problem}"),
        )
    })?;
    Ok(Some(parsed))
}

/// The next data of the body, or none at its end; fails when nothing arrives within `limit`.
async fn next(body: &mut Body, limit: Duration) -> Result<Option<Bytes>, ApiError> {
    loop {
        match timeout(limit, body.frame()).await {
            Err(_elapsed) => return Err(ApiError::body_timeout()),
            Ok(None) => return Ok(None),
            Ok(Some(Err(_broken))) => return Err(ApiError::body_broken()),
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}
