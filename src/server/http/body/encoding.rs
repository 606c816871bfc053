//! Request bodies that are compressed: they are decoded while they arrive.

use std::io;
use std::pin::Pin;

use async_compression::tokio::bufread::{GzipDecoder, ZstdDecoder};
use async_compression::zstd::DParameter;
use axum::body::Body;
use futures_util::TryStreamExt;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use tokio::io::AsyncRead;
use tokio_util::io::{ReaderStream, StreamReader};

use super::super::error::{ApiError, codes};

/// Largest window of a zstd stream, as a power of two: the limit of RFC 9659. A stream that needs a larger one is a
/// 400.
const ZSTD_WINDOW_LOG: u32 = 23;

/// The body without its encoding, and the headers that fit the decoded body.
///
/// # Errors
/// When the encoding is not known, or there are several.
pub(super) fn decoded(body: Body, headers: &HeaderMap) -> Result<(Body, HeaderMap), ApiError> {
    let mut encodings = Vec::new();
    for value in headers.get_all(CONTENT_ENCODING) {
        let value = value.to_str().unwrap_or("?").to_ascii_lowercase();
        let words = value.split(',').map(|word| word.trim().to_owned());
        encodings.extend(words.filter(|word| !word.is_empty() && word != "identity"));
    }
    let source = |body: Body| {
        let data = body.into_data_stream();
        StreamReader::new(data.map_err(io::Error::other))
    };
    let decoder: Pin<Box<dyn AsyncRead + Send>> = match encodings.as_slice() {
        [] => return Ok((body, headers.clone())),
        [one] if matches!(one.as_str(), "gzip" | "x-gzip") => {
            Box::pin(GzipDecoder::new(source(body)))
        }
        [one] if one == "zstd" => Box::pin(ZstdDecoder::with_params(
            source(body),
            &[DParameter::window_log_max(ZSTD_WINDOW_LOG)],
        )),
        _ => return Err(codes::UNSUPPORTED_ENCODING.into()),
    };
    let mut headers = headers.clone();
    // It is the length of the encoded body.
    headers.remove(CONTENT_LENGTH);
    Ok((Body::from_stream(ReaderStream::new(decoder)), headers))
}
