//! Responses of an upstream: the encoding of the body, the headers for the client, the body of an error.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use ::http::HeaderMap;
use ::http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use async_compression::tokio::bufread::{GzipDecoder, ZlibDecoder};
use bytes::{Bytes, BytesMut};
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt, TryStreamExt};
use tokio::io::AsyncRead;
use tokio::time::{Instant, timeout_at};
use tokio_util::io::{ReaderStream, StreamReader};

use net::{ClientError, ReceivedBody};

/// Removes the encoding of a body, and the headers about it. Calls ask for no encoding, but some servers and networks
/// compress all the same. A body with an unknown encoding is not changed.
pub(super) fn decoded(
    headers: &mut HeaderMap,
    body: ReceivedBody,
) -> BoxStream<'static, Result<Bytes, ClientError>> {
    let encoding = headers.get(CONTENT_ENCODING);
    let encoding = encoding.and_then(|value| value.to_str().ok());
    let encoding = encoding.unwrap_or_default().trim().to_ascii_lowercase();
    if !matches!(encoding.as_str(), "gzip" | "x-gzip" | "deflate") {
        return body.boxed();
    }
    let source = StreamReader::new(body.map_err(io::Error::other));
    let decoder: Pin<Box<dyn AsyncRead + Send>> = match encoding.as_str() {
        "deflate" => Box::pin(ZlibDecoder::new(source)),
        _ => Box::pin(GzipDecoder::new(source)),
    };
    headers.remove(CONTENT_ENCODING);
    headers.remove(CONTENT_LENGTH);
    ReaderStream::new(decoder)
        .map_err(|error| ClientError::Broken(Box::new(error)))
        .boxed()
}

/// The response headers for the client: rate limits and request ids.
pub(super) fn client_headers(headers: &HeaderMap) -> HeaderMap {
    let mut chosen = HeaderMap::new();
    for (name, value) in headers {
        let text = name.as_str();
        if text.starts_with("x-ratelimit-") || matches!(text, "x-request-id" | "request-id") {
            chosen.append(name.clone(), value.clone());
        }
    }
    chosen
}

/// Reads at most `most` bytes of a body, for at most `wait`. Returns the bytes and whether they are the whole body.
pub(super) async fn read_capped(
    stream: impl Stream<Item = Result<Bytes, ClientError>>,
    most: usize,
    wait: Duration,
) -> (Bytes, bool) {
    let mut stream = std::pin::pin!(stream);
    let mut body = BytesMut::new();
    let deadline = Instant::now() + wait;
    let whole = loop {
        match timeout_at(deadline, stream.next()).await {
            Ok(Some(Ok(chunk))) => {
                let left = most - body.len();
                body.extend_from_slice(chunk.get(..left).unwrap_or(&chunk));
                if chunk.len() > left {
                    break false;
                }
            }
            Ok(None) => break true,
            Ok(Some(Err(_))) | Err(_) => break false,
        }
    };
    (body.freeze(), whole)
}
