//! Reads bodies within their limits.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use reqwest::Response;
use tokio::time::{Instant, timeout_at};

use super::FetchError;
use super::media::{Media, media, sniffed};
use crate::encoding::{DecodedBody, Encoding};

/// Most bytes of a body without a type that are inspected to find its type.
const SNIFF_BYTES: usize = 1024;

/// How fast a body must arrive.
#[derive(Debug, Clone, Copy)]
pub(super) struct MinimumRate {
    /// Longest time without a byte.
    pub(super) idle: Duration,
    /// The time before the rate is checked.
    pub(super) grace: Duration,
    /// The average since the start.
    pub(super) bytes_per_second: f64,
}

impl Default for MinimumRate {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(10),
            grace: Duration::from_secs(5),
            bytes_per_second: 512.0,
        }
    }
}

/// The limits of one body.
#[derive(Debug)]
pub(super) struct BodyLimits<'t> {
    pub(super) host: &'t str,
    /// Most bytes, as sent and when decompressed.
    pub(super) max_bytes: usize,
    pub(super) deadline: Instant,
    /// The error after the deadline.
    pub(super) timed_out: FetchError,
    pub(super) rate: MinimumRate,
}

/// Which bodies are read.
#[derive(Debug, Clone, Copy)]
pub(super) enum BodyKind<'t> {
    /// Formats with text, given the announced type.
    Readable(Option<&'t str>),
    /// Every format.
    Anything,
}

/// Reads and decompresses a body; the second value is true if its end is missing.
pub(super) async fn read(
    response: Response,
    wanted: BodyKind<'_>,
    limits: &BodyLimits<'_>,
) -> Result<(Bytes, bool), FetchError> {
    let host = || limits.host.to_owned();
    let mut media = match wanted {
        BodyKind::Readable(content_type) => media(content_type),
        BodyKind::Anything => Media::Text,
    };
    if let Media::Refused(what) = media {
        return Err(FetchError::Type { host: host(), what });
    }
    let encoding =
        Encoding::of(response.headers()).ok_or_else(|| FetchError::Encoding { host: host() })?;
    let announced = response.content_length().unwrap_or_default();
    if let (Media::Whole(what), Encoding::Identity) = (&media, encoding)
        && announced > limits.max_bytes as u64
    {
        return Err(too_large(limits, what));
    }
    let chunks = paced(response, limits);
    let mut body = DecodedBody::new(encoding, chunks, limits.max_bytes);
    if media == Media::Unknown {
        let start = body.start(SNIFF_BYTES).await;
        media = sniffed(start.map_err(|error| broken(limits, error))?);
        if let Media::Refused(what) = media {
            return Err(FetchError::Type { host: host(), what });
        }
    }
    let (body, cut) = body.read().await.map_err(|error| broken(limits, error))?;
    match media {
        Media::Whole(what) if cut => Err(too_large(limits, what)),
        Media::Whole(_) | Media::Text | Media::Unknown | Media::Refused(_) => Ok((body, cut)),
    }
}

fn too_large(limits: &BodyLimits<'_>, what: &'static str) -> FetchError {
    FetchError::TooLarge {
        host: limits.host.to_owned(),
        what,
        limit_bytes: limits.max_bytes,
    }
}

fn broken(limits: &BodyLimits<'_>, error: io::Error) -> FetchError {
    let host = limits.host.to_owned();
    error.downcast().unwrap_or(FetchError::Broken { host })
}

/// The bytes as sent, which must arrive at the minimum rate.
fn paced(
    response: Response,
    limits: &BodyLimits<'_>,
) -> impl Stream<Item = io::Result<Bytes>> + Send + use<> {
    let transfer = Transfer {
        response,
        received: 0,
        began: Instant::now(),
        deadline: limits.deadline,
        rate: limits.rate,
        timed_out: limits.timed_out.clone(),
        host: limits.host.to_owned(),
    };
    stream::try_unfold(transfer, async |mut transfer| {
        let chunk = transfer.chunk().await.map_err(io::Error::other)?;
        Ok(chunk.map(|chunk| (chunk, transfer)))
    })
}

/// A body that is arriving.
struct Transfer {
    response: Response,
    received: usize,
    began: Instant,
    deadline: Instant,
    rate: MinimumRate,
    timed_out: FetchError,
    host: String,
}

impl Transfer {
    async fn chunk(&mut self) -> Result<Option<Bytes>, FetchError> {
        let slow = || FetchError::Slow {
            host: self.host.clone(),
        };
        let idle = Instant::now() + self.rate.idle;
        let chunk = timeout_at(idle.min(self.deadline), self.response.chunk()).await;
        let chunk = match chunk {
            Err(_) if idle < self.deadline => return Err(slow()),
            Err(_) => return Err(self.timed_out.clone()),
            Ok(Err(_)) => {
                let host = self.host.clone();
                return Err(FetchError::Broken { host });
            }
            Ok(Ok(chunk)) => chunk,
        };
        self.received += chunk.as_ref().map_or(0, Bytes::len);
        let elapsed = self.began.elapsed();
        let expected = elapsed.as_secs_f64() * self.rate.bytes_per_second;
        let is_slow = elapsed > self.rate.grace && (self.received as f64) < expected;
        match chunk {
            Some(_) if is_slow => Err(slow()),
            chunk => Ok(chunk),
        }
    }
}
