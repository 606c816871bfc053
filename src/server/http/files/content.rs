//! `GET /v1/files/{id}/content`: a file or a range of its bytes, with headers that keep browsers from running it.

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_RANGE, RANGE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde_json::json;
use tokio_util::io::ReaderStream;

use super::super::AppState;
use super::super::error::{ApiError, codes};
use super::super::extract::Path;
use super::super::headers::if_none_match_holds;
use super::super::openapi::headers::HeaderKind;
use super::super::openapi::operation::Operation;
use super::path_id;
use agent::session::files::StoredFile;
use protocol::ids::Owner;

/// Size of one read, in bytes.
const READ_BYTES: usize = 128 * 1024;

/// `GET /v1/files/{id}/content`
pub(in super::super) async fn content(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let files = &state.sessions.files;
    let stored = files.get(&owner, &path_id(&id)?).await?;
    // The content of an id never changes, so the id is its validator.
    let etag = format!("\"{}\"", stored.id);
    if if_none_match_holds(&headers, &etag) {
        let validators = [(ETAG, etag), (CACHE_CONTROL, CACHE_POLICY.to_owned())];
        return Ok((StatusCode::NOT_MODIFIED, validators).into_response());
    }
    // A range is only defined for GET.
    let range = match method == Method::GET && if_range_holds(&headers, &etag) {
        true => RequestedRange::of(&headers, stored.bytes),
        false => RequestedRange::Whole,
    };
    let (status, start, length) = match range {
        RequestedRange::Whole => (StatusCode::OK, 0, stored.bytes),
        RequestedRange::Part { start, length } => (StatusCode::PARTIAL_CONTENT, start, length),
        RequestedRange::Unsatisfiable => return Err(ApiError::range_not_satisfiable(stored.bytes)),
    };
    // The answer to HEAD has no body.
    let read = match method == Method::HEAD {
        true => start..start,
        false => start..start.saturating_add(length),
    };
    let content = files.open_content(&owner, &stored, read).await?;
    let body = Body::from_stream(ReaderStream::with_capacity(content, READ_BYTES));
    let mut response = (status, head(&stored, &etag, length), body).into_response();
    if let RequestedRange::Part { start, length } = range {
        let content_range = format!("bytes {start}-{}/{}", start + length - 1, stored.bytes);
        if let Ok(value) = HeaderValue::from_str(&content_range) {
            response.headers_mut().insert(CONTENT_RANGE, value);
        }
    }
    Ok(response)
}

/// Describes the content of a file, also of a container.
pub(in crate::http) fn describe(operation: Operation<'_>) -> Operation<'_> {
    let text = || json!({"type": "string"});
    let validators = [
        (
            "etag",
            HeaderKind::Text,
            "Stands for the content, which never changes.",
        ),
        ("cache-control", HeaderKind::Text, "`private, no-cache`."),
    ];
    let of_content = [
        ("accept-ranges", HeaderKind::Text, "`bytes`."),
        (
            "content-disposition",
            HeaderKind::Text,
            "`attachment`, with the name of the file.",
        ),
        (
            "content-security-policy",
            HeaderKind::Text,
            "Keeps browsers from running the file.",
        ),
        ("x-content-type-options", HeaderKind::Text, "`nosniff`."),
    ];
    operation
        .named("downloadFile", "The content of a file, or a part of it")
        .header(
            "range",
            text(),
            "A range of bytes, such as `bytes=0-99`. Other forms are ignored.",
        )
        .header("if-range", text(), "The `etag` for which the range counts.")
        .header(
            "if-none-match",
            text(),
            "The `etag` of the content that the client has.",
        )
        .answers_as(
            200,
            "*/*",
            json!({}),
            "The content, with the media type of the file.",
        )
        .with_headers(200, &validators)
        .with_headers(200, &of_content)
        .answers_as(206, "*/*", json!({}), "The part of the content.")
        .with_headers(206, &validators)
        .with_headers(206, &of_content)
        .with_headers(
            206,
            &[("content-range", HeaderKind::Text, "Which part it is.")],
        )
        .answers_nothing(304, "The client has the content.")
        .with_headers(304, &validators)
        .fails(&[
            codes::NOT_FOUND,
            codes::RANGE_NOT_SATISFIABLE,
            codes::FILE_STORE_UNAVAILABLE,
        ])
}

/// Caches must be private and must ask again, because the file can be deleted.
const CACHE_POLICY: &str = "private, no-cache";

fn head(stored: &StoredFile, etag: &str, length: u64) -> HeaderMap {
    let fields: [(HeaderName, &str); 8] = [
        (CONTENT_TYPE, &stored.mime_type),
        (CONTENT_LENGTH, &length.to_string()),
        (CONTENT_DISPOSITION, &content_disposition(&stored.name)),
        // A browser must not detect another type, run scripts or load resources.
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'"),
        (ACCEPT_RANGES, "bytes"),
        (ETAG, etag),
        (CACHE_CONTROL, CACHE_POLICY),
    ];
    let valid =
        |(name, value): (HeaderName, &str)| Some((name, HeaderValue::from_str(value).ok()?));
    fields.into_iter().filter_map(valid).collect()
}

/// The name as ASCII for old clients, and in full as `filename*` (RFC 6266).
fn content_disposition(name: &str) -> String {
    let plain = |char: char| match char {
        '"' | '\\' | '%' => '_',
        ' '..='~' => char,
        _ => '_',
    };
    let fallback: String = name.chars().map(plain).collect();
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    format!("attachment; filename=\"{fallback}\"; filename*=UTF-8''{encoded}")
}

/// Whether `if-range` is absent or names this entity tag.
fn if_range_holds(headers: &HeaderMap, etag: &str) -> bool {
    headers
        .get(IF_RANGE)
        .is_none_or(|tag| tag.as_bytes() == etag.as_bytes())
}

/// The bytes that a `range` header asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestedRange {
    /// The whole file; also for several ranges or a malformed range, which RFC 9110 permits to ignore.
    Whole,
    Part {
        start: u64,
        /// At least 1.
        length: u64,
    },
    /// The range is outside the file.
    Unsatisfiable,
}

impl RequestedRange {
    fn of(headers: &HeaderMap, size: u64) -> Self {
        let mut values = headers.get_all(RANGE).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Self::Whole;
        };
        let (start, end) = match value.to_str().ok().and_then(single_range) {
            Some((None, Some(suffix))) => (size.saturating_sub(suffix), size),
            Some((Some(first), None)) => (first, size),
            Some((Some(first), Some(last))) if first <= last => {
                (first, last.saturating_add(1).min(size))
            }
            Some(_) | None => return Self::Whole,
        };
        match end.saturating_sub(start) {
            0 => Self::Unsatisfiable,
            length => Self::Part { start, length },
        }
    }
}

/// The numbers before and after the dash of a single byte range.
///
/// It accepts leading zeros, numbers beyond 64 bits and suffixes longer than the file. RFC 9110 permits them, and the
/// available crates refuse them.
fn single_range(value: &str) -> Option<(Option<u64>, Option<u64>)> {
    let (unit, range) = value.split_once('=')?;
    let (first, last) = range.trim().split_once('-')?;
    let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true if text.is_empty() => Some(None),
        true => Some(Some(text.parse().unwrap_or(u64::MAX))),
        false => None,
    };
    let is_bytes = unit.trim().eq_ignore_ascii_case("bytes");
    is_bytes.then_some((number(first)?, number(last)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_range_is_honoured_and_others_are_ignored() {
        let part = |start, length| RequestedRange::Part { start, length };
        let table = [
            ("bytes=0-0", part(0, 1)),
            ("bytes=0-", part(0, 10)),
            ("bytes=3-5", part(3, 3)),
            ("Bytes=3-99", part(3, 7)),
            ("bytes=9-18446744073709551615", part(9, 1)),
            ("bytes=9-99999999999999999999999", part(9, 1)),
            ("bytes=-3", part(7, 3)),
            ("bytes=-99", part(0, 10)),
            ("bytes=10-", RequestedRange::Unsatisfiable),
            (
                "bytes=99999999999999999999999-",
                RequestedRange::Unsatisfiable,
            ),
            ("bytes=-0", RequestedRange::Unsatisfiable),
            ("bytes=0-1,3-4", RequestedRange::Whole),
            ("bytes=5-3", RequestedRange::Whole),
            ("bytes=-", RequestedRange::Whole),
            ("bytes=a-b", RequestedRange::Whole),
            ("bytes=+1-2", RequestedRange::Whole),
            ("bytes=1 - 2", RequestedRange::Whole),
            ("lines=1-2", RequestedRange::Whole),
            ("", RequestedRange::Whole),
        ];
        for (value, expected) in table {
            let headers = HeaderMap::from_iter([(RANGE, HeaderValue::from_static(value))]);
            assert_eq!(RequestedRange::of(&headers, 10), expected, "{value}");
        }
        assert_eq!(
            RequestedRange::of(&HeaderMap::new(), 10),
            RequestedRange::Whole
        );
        for value in ["bytes=0-", "bytes=-1"] {
            let headers = HeaderMap::from_iter([(RANGE, HeaderValue::from_static(value))]);
            assert_eq!(
                RequestedRange::of(&headers, 0),
                RequestedRange::Unsatisfiable,
                "{value} of nothing"
            );
        }
    }

    #[test]
    fn file_names_are_sent_in_full_and_escaped() {
        let table = [
            (
                "a.csv",
                "attachment; filename=\"a.csv\"; filename*=UTF-8''a.csv",
            ),
            (
                "naïve \"x\";\\ 100%.txt",
                "attachment; filename=\"na_ve _x_;_ 100_.txt\"; \
                 filename*=UTF-8''na%C3%AFve%20%22x%22%3B%5C%20100%25.txt",
            ),
            (
                "数.csv",
                "attachment; filename=\"_.csv\"; filename*=UTF-8''%E6%95%B0.csv",
            ),
        ];
        for (name, expected) in table {
            assert_eq!(content_disposition(name), expected);
        }
    }
}
