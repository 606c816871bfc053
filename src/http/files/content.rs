//! `GET /v1/files/{id}/content`: the bytes, whole or a range of them, never as something that a browser would run.

use std::io::SeekFrom;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, IF_RANGE, RANGE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio_util::io::ReaderStream;

use super::super::AppState;
use super::super::error::ApiError;
use super::super::extract::Path;
use super::path_id;
use crate::ids::Owner;
use crate::session::files::{FileError, StoredFile};

/// Bytes read from the disk at once.
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
    let (stored, mut file) = files.open_content(&owner, &path_id(&id)?).await?;
    // A file never changes under its id.
    let etag = format!("\"{}\"", stored.id);
    if matches_any(&headers, &etag) {
        let validators = [(ETAG, etag), (CACHE_CONTROL, CACHING.to_owned())];
        return Ok((StatusCode::NOT_MODIFIED, validators).into_response());
    }
    // A range is only defined for GET.
    let wanted = match method == Method::GET && range_holds(&headers, &etag) {
        true => Wanted::of(&headers, stored.bytes),
        false => Wanted::Whole,
    };
    let (status, start, length) = match wanted {
        Wanted::Whole => (StatusCode::OK, 0, stored.bytes),
        Wanted::Part { start, length } => (StatusCode::PARTIAL_CONTENT, start, length),
        Wanted::Unsatisfiable => return Err(ApiError::range_not_satisfiable(stored.bytes)),
    };
    let seek = file.seek(SeekFrom::Start(start)).await;
    seek.map_err(|source| FileError::Io {
        doing: "read a file",
        source,
    })?;
    let body = Body::from_stream(ReaderStream::with_capacity(file.take(length), READ_BYTES));
    let mut response = (status, head(&stored, &etag, length), body).into_response();
    if let Wanted::Part { start, length } = wanted {
        let range = format!("bytes {start}-{}/{}", start + length - 1, stored.bytes);
        if let Ok(range) = HeaderValue::from_str(&range) {
            response.headers_mut().insert(CONTENT_RANGE, range);
        }
    }
    Ok(response)
}

/// Private, and only good as long as the file is there.
const CACHING: &str = "private, no-cache";

fn head(stored: &StoredFile, etag: &str, length: u64) -> HeaderMap {
    let fields: [(HeaderName, &str); 8] = [
        (CONTENT_TYPE, &stored.mime_type),
        (CONTENT_LENGTH, &length.to_string()),
        (CONTENT_DISPOSITION, &disposition(&stored.name)),
        // Nothing of it may run, or load anything, whatever a browser makes of it.
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'"),
        (ACCEPT_RANGES, "bytes"),
        (ETAG, etag),
        (CACHE_CONTROL, CACHING),
    ];
    let valid =
        |(name, value): (HeaderName, &str)| Some((name, HeaderValue::from_str(value).ok()?));
    fields.into_iter().filter_map(valid).collect()
}

/// The name in ASCII for old clients, and whole for the others (RFC 6266).
fn disposition(name: &str) -> String {
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

/// Whether the client has the content already.
fn matches_any(headers: &HeaderMap, etag: &str) -> bool {
    let values = headers.get_all(IF_NONE_MATCH).iter();
    let mut tags = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim);
    tags.any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}

/// Whether the content is still the one that the range is of.
fn range_holds(headers: &HeaderMap, etag: &str) -> bool {
    headers
        .get(IF_RANGE)
        .is_none_or(|tag| tag.as_bytes() == etag.as_bytes())
}

/// Which bytes are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// All, also for several ranges and for a malformed one, as RFC 9110 permits.
    Whole,
    Part {
        start: u64,
        /// At least 1.
        length: u64,
    },
    /// The range lies outside of the file.
    Unsatisfiable,
}

impl Wanted {
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

/// The numbers before and after the dash. Crates for this refuse leading zeros, numbers beyond 64 bits or a suffix that
/// is longer than the file, all of which RFC 9110 permits.
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
    fn a_single_range_is_taken_and_anything_else_is_the_whole() {
        let part = |start, length| Wanted::Part { start, length };
        let table = [
            ("bytes=0-0", part(0, 1)),
            ("bytes=0-", part(0, 10)),
            ("bytes=3-5", part(3, 3)),
            ("Bytes=3-99", part(3, 7)),
            ("bytes=9-18446744073709551615", part(9, 1)),
            ("bytes=9-99999999999999999999999", part(9, 1)),
            ("bytes=-3", part(7, 3)),
            ("bytes=-99", part(0, 10)),
            ("bytes=10-", Wanted::Unsatisfiable),
            ("bytes=99999999999999999999999-", Wanted::Unsatisfiable),
            ("bytes=-0", Wanted::Unsatisfiable),
            ("bytes=0-1,3-4", Wanted::Whole),
            ("bytes=5-3", Wanted::Whole),
            ("bytes=-", Wanted::Whole),
            ("bytes=a-b", Wanted::Whole),
            ("bytes=+1-2", Wanted::Whole),
            ("bytes=1 - 2", Wanted::Whole),
            ("lines=1-2", Wanted::Whole),
            ("", Wanted::Whole),
        ];
        for (value, expected) in table {
            let headers = HeaderMap::from_iter([(RANGE, HeaderValue::from_static(value))]);
            assert_eq!(Wanted::of(&headers, 10), expected, "{value}");
        }
        assert_eq!(Wanted::of(&HeaderMap::new(), 10), Wanted::Whole);
        for value in ["bytes=0-", "bytes=-1"] {
            let headers = HeaderMap::from_iter([(RANGE, HeaderValue::from_static(value))]);
            assert_eq!(
                Wanted::of(&headers, 0),
                Wanted::Unsatisfiable,
                "{value} of nothing"
            );
        }
    }

    #[test]
    fn names_travel_whole_and_cannot_break_out() {
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
            assert_eq!(disposition(name), expected);
        }
    }
}
