//! Compressed bodies, decompressed as they come.

use std::pin::Pin;

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder};
use async_compression::zstd::DParameter;
use http::header::{self, HeaderMap};
use tokio::io::{AsyncBufRead, AsyncRead};

/// Largest window of a zstd stream, as a power of two: what RFC 9659 lets servers use.
const ZSTD_WINDOW_LOG: u32 = 23;

/// How a body is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Identity,
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

impl Encoding {
    /// None where it is unknown, or one within another, for which there is no honest reason.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut encodings = Vec::new();
        for value in headers.get_all(header::CONTENT_ENCODING) {
            let written = value.to_str().ok()?.to_ascii_lowercase();
            let words = written.split(',').map(|word| word.trim().to_owned());
            encodings.extend(words.filter(|word| !word.is_empty() && word != "identity"));
        }
        match encodings.as_slice() {
            [] => Some(Self::Identity),
            [one] => match one.as_str() {
                "gzip" | "x-gzip" => Some(Self::Gzip),
                "deflate" => Some(Self::Deflate),
                "br" => Some(Self::Brotli),
                "zstd" => Some(Self::Zstd),
                _ => None,
            },
            [_, _, ..] => None,
        }
    }

    /// Decompresses without a bound of its own: the reader must have one.
    pub(super) fn decoder(
        self,
        source: impl AsyncBufRead + Send + Unpin + 'static,
    ) -> Pin<Box<dyn AsyncRead + Send>> {
        match self {
            Self::Identity => Box::pin(source),
            Self::Gzip => Box::pin(GzipDecoder::new(source)),
            Self::Deflate => Box::pin(ZlibDecoder::new(source)),
            Self::Brotli => Box::pin(BrotliDecoder::new(source)),
            Self::Zstd => Box::pin(ZstdDecoder::with_params(
                source,
                &[DParameter::window_log_max(ZSTD_WINDOW_LOG)],
            )),
        }
    }
}
