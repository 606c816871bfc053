//! Bodies that are decompressed while they arrive.

use std::future::ready;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_compression::tokio::bufread::{BrotliDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder};
use async_compression::zstd::DParameter;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::header::{self, HeaderMap};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncReadExt};
use tokio_util::io::StreamReader;

/// Largest window of a zstd stream, as a power of two: the limit of RFC 9659.
const ZSTD_WINDOW_LOG: u32 = 23;

/// The content encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Identity,
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

impl Encoding {
    /// None if it is unknown, or if several are nested, which only attacks do.
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

    /// Decompresses without a limit; the caller must set one.
    fn decoder(
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

/// The first bytes of a body, decompressed. The limit holds for the bytes as sent and for the decompressed ones.
pub(super) struct DecodedBody {
    reader: Pin<Box<dyn AsyncRead + Send>>,
    is_capped: Arc<AtomicBool>,
    max_bytes: usize,
    bytes: Vec<u8>,
}

impl DecodedBody {
    pub(super) fn new(
        encoding: Encoding,
        chunks: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
        max_bytes: usize,
    ) -> Self {
        let is_capped = Arc::new(AtomicBool::new(false));
        let capped = Arc::clone(&is_capped);
        let chunks = chunks.scan(max_bytes, move |room, chunk| {
            if capped.load(Ordering::Relaxed) {
                return ready(None);
            }
            ready(Some(chunk.map(|mut chunk| {
                if chunk.len() > *room {
                    chunk.truncate(*room);
                    capped.store(true, Ordering::Relaxed);
                }
                *room -= chunk.len();
                chunk
            })))
        });
        Self {
            reader: encoding.decoder(StreamReader::new(Box::pin(chunks))),
            is_capped,
            max_bytes,
            bytes: Vec::new(),
        }
    }

    /// Reads until there are so many bytes or the body ends, and returns all bytes so far.
    pub(super) async fn start(&mut self, bytes: usize) -> io::Result<&[u8]> {
        let missing = bytes.saturating_sub(self.bytes.len()) as u64;
        let reader = &mut self.reader;
        let read = reader.take(missing).read_to_end(&mut self.bytes).await;
        match read {
            // The end of a compressed stream is missing after the limit.
            Err(error) if !self.is_capped.load(Ordering::Relaxed) => Err(error),
            Ok(_) | Err(_) => Ok(&self.bytes),
        }
    }

    /// Reads up to the limit; the second value is true if the end of the body is missing.
    pub(super) async fn read(mut self) -> io::Result<(Bytes, bool)> {
        // One byte more shows whether the body goes on.
        self.start(self.max_bytes.saturating_add(1)).await?;
        let is_cut = self.is_capped.load(Ordering::Relaxed) || self.bytes.len() > self.max_bytes;
        self.bytes.truncate(self.max_bytes);
        Ok((self.bytes.into(), is_cut))
    }
}
