//! Bodies that are decompressed while they arrive.

use std::future::ready;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready as done};

use async_compression::tokio::bufread::{
    BrotliDecoder, DeflateDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder,
};
use async_compression::zstd::DParameter;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::header::{self, HeaderMap};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncReadExt, ReadBuf};
use tokio_util::io::StreamReader;

/// Largest window of a zstd stream, as a power of two: the limit of RFC 9659. A stream that needs a larger one is an
/// error.
const ZSTD_WINDOW_LOG: u32 = 23;
/// Codings that cannot be decoded here. Any other unknown name, such as a charset, says nothing about the bytes.
const UNREADABLE: [&str; 7] = [
    "compress",
    "x-compress",
    "exi",
    "pack200-gzip",
    "aes128gcm",
    "dcb",
    "dcz",
];

type Source = Pin<Box<dyn AsyncBufRead + Send>>;

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
    /// `None` if the header cannot be read, or if several codings are nested, which only attacks do. Names of no coding
    /// are ignored, as browsers do.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut encoding = Self::Identity;
        for value in headers.get_all(header::CONTENT_ENCODING) {
            let written = value.to_str().ok()?.to_ascii_lowercase();
            for word in written.split(',').map(str::trim) {
                let one = match word {
                    "gzip" | "x-gzip" => Self::Gzip,
                    "deflate" => Self::Deflate,
                    "br" => Self::Brotli,
                    "zstd" => Self::Zstd,
                    _ if UNREADABLE.contains(&word) => return None,
                    _ => continue,
                };
                if encoding != Self::Identity {
                    return None;
                }
                encoding = one;
            }
        }
        Some(encoding)
    }

    /// Decompresses without a limit; the caller must set one.
    fn decoder(
        self,
        source: impl AsyncBufRead + Send + Unpin + 'static,
    ) -> Pin<Box<dyn AsyncRead + Send>> {
        match self {
            Self::Identity => Box::pin(source),
            Self::Gzip => Box::pin(Members(Some(GzipDecoder::new(Box::pin(source))))),
            Self::Deflate => Box::pin(Deflated::Unknown(Some(Box::pin(source)))),
            Self::Brotli => Box::pin(BrotliDecoder::new(source)),
            Self::Zstd => {
                let window = DParameter::window_log_max(ZSTD_WINDOW_LOG);
                let mut frames = ZstdDecoder::with_params(source, &[window]);
                frames.multiple_members(true);
                Box::pin(frames)
            }
        }
    }
}

/// All members of a gzip stream. What follows them and is no member, such as zeros, is ignored.
struct Members(Option<GzipDecoder<Source>>);

impl AsyncRead for Members {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        while let Some(member) = self.0.as_mut() {
            done!(Pin::new(&mut *member).poll_read(context, into))?;
            if into.filled().len() > before || into.remaining() == 0 {
                break;
            }
            let next = done!(member.get_mut().as_mut().poll_fill_buf(context))?;
            let goes_on = next.first() == Some(&0x1f);
            let ended = self.0.take().filter(|_| goes_on);
            self.0 = ended.map(|member| GzipDecoder::new(member.into_inner()));
        }
        Poll::Ready(Ok(()))
    }
}

/// A deflate stream with or without the head of zlib. Servers send both under the same name.
enum Deflated {
    Unknown(Option<Source>),
    Known(Pin<Box<dyn AsyncRead + Send>>),
}

impl AsyncRead for Deflated {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let source = match &mut *self {
                Self::Known(reader) => return reader.as_mut().poll_read(context, into),
                Self::Unknown(source) => source,
            };
            let Some(mut start) = source.take() else {
                return Poll::Ready(Ok(()));
            };
            // The method in zlib's head is 8. A raw stream begins so only with padding that is not zero.
            let is_zlib = match start.as_mut().poll_fill_buf(context) {
                Poll::Ready(bytes) => bytes?.first().is_none_or(|first| first & 0xf == 8),
                Poll::Pending => {
                    *source = Some(start);
                    return Poll::Pending;
                }
            };
            *self = Self::Known(if is_zlib {
                Box::pin(ZlibDecoder::new(start))
            } else {
                Box::pin(DeflateDecoder::new(start))
            });
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

    /// Reads until this number of bytes is there or the body ends, and returns all bytes so far.
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
        // One byte more shows whether the body continues.
        self.start(self.max_bytes.saturating_add(1)).await?;
        let is_cut = self.is_capped.load(Ordering::Relaxed) || self.bytes.len() > self.max_bytes;
        self.bytes.truncate(self.max_bytes);
        Ok((self.bytes.into(), is_cut))
    }
}
