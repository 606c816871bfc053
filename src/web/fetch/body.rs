//! Reading a body within its bounds.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use reqwest::Response;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout_at};
use tokio_util::io::StreamReader;

use super::FetchError;
use super::media::{Media, media, sniffed};
use crate::web::encoding::Encoding;

/// How much a type must show before it is judged by its beginning.
const SNIFF_BYTES: usize = 1024;

/// How fast a body must come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Longest time without a byte.
    pub(super) idle: Duration,
    /// For how long the rate does not matter.
    pub(super) grace: Duration,
    /// Bytes per second after that, on average.
    pub(super) rate: f64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(10),
            grace: Duration::from_secs(5),
            rate: 512.0,
        }
    }
}

/// The bounds of one body.
#[derive(Debug)]
pub(super) struct Bounds<'t> {
    pub(super) host: &'t str,
    /// Most bytes, as sent and when decompressed.
    pub(super) max_bytes: usize,
    pub(super) deadline: Instant,
    /// What it means to miss that.
    pub(super) out_of_time: FetchError,
    pub(super) pace: Pace,
}

/// Which bodies are read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted<'t> {
    /// Those that can be read as text, by the announced type.
    Readable(Option<&'t str>),
    /// All.
    Anything,
}

/// Reads a body and decompresses it; whether its end is missing.
pub(super) async fn read(
    response: Response,
    wanted: Wanted<'_>,
    bounds: &Bounds<'_>,
) -> Result<(Bytes, bool), FetchError> {
    let host = || bounds.host.to_owned();
    let mut media = match wanted {
        Wanted::Readable(content_type) => media(content_type),
        Wanted::Anything => Media::Text,
    };
    if let Media::Refused(what) = media {
        return Err(FetchError::Type { host: host(), what });
    }
    let encoding =
        Encoding::of(response.headers()).ok_or_else(|| FetchError::Encoding { host: host() })?;
    let announced = response.content_length().unwrap_or_default();
    if let (Media::Whole(what), Encoding::Identity) = (&media, encoding)
        && announced > bounds.max_bytes as u64
    {
        return Err(too_large(bounds, what));
    }
    let is_capped = Arc::new(AtomicBool::new(false));
    let source = StreamReader::new(Box::pin(paced(response, bounds, Arc::clone(&is_capped))));
    let mut reader = encoding.decoder(source);
    let mut body = Vec::new();
    let mut result = Ok(0);
    if media == Media::Unknown {
        result = (&mut reader)
            .take(SNIFF_BYTES as u64)
            .read_to_end(&mut body)
            .await;
        media = sniffed(&body);
        if let Media::Refused(what) = media {
            return Err(FetchError::Type { host: host(), what });
        }
    }
    // One more than is kept, to know whether there is more.
    let room = (bounds.max_bytes + 1).saturating_sub(body.len());
    if result.is_ok() {
        result = reader.take(room as u64).read_to_end(&mut body).await;
    }
    let is_capped = is_capped.load(Ordering::Relaxed);
    match result {
        // A compressed stream that is not read to its end breaks off.
        Err(error) if !is_capped => return Err(broken(bounds, error)),
        Ok(_) | Err(_) => {}
    }
    let cut = is_capped || body.len() > bounds.max_bytes;
    body.truncate(bounds.max_bytes);
    match media {
        Media::Whole(what) if cut => Err(too_large(bounds, what)),
        Media::Whole(_) | Media::Text | Media::Unknown | Media::Refused(_) => {
            Ok((body.into(), cut))
        }
    }
}

fn too_large(bounds: &Bounds<'_>, what: &'static str) -> FetchError {
    FetchError::TooLarge {
        host: bounds.host.to_owned(),
        what,
        limit_bytes: bounds.max_bytes,
    }
}

fn broken(bounds: &Bounds<'_>, error: io::Error) -> FetchError {
    let host = bounds.host.to_owned();
    error.downcast().unwrap_or(FetchError::Broken { host })
}

/// The bytes as they are sent: as many as are wanted, and no slower than they must come.
fn paced(
    response: Response,
    bounds: &Bounds<'_>,
    is_capped: Arc<AtomicBool>,
) -> impl Stream<Item = io::Result<Bytes>> + Send + use<> {
    let sending = Sending {
        response,
        received: 0,
        room: bounds.max_bytes,
        began: Instant::now(),
        deadline: bounds.deadline,
        pace: bounds.pace,
        out_of_time: bounds.out_of_time.clone(),
        host: bounds.host.to_owned(),
        is_capped,
    };
    stream::try_unfold(sending, async |mut sending| {
        let chunk = sending.next().await.map_err(io::Error::other)?;
        Ok(chunk.map(|chunk| (chunk, sending)))
    })
}

/// A body on its way.
struct Sending {
    response: Response,
    received: usize,
    room: usize,
    began: Instant,
    deadline: Instant,
    pace: Pace,
    out_of_time: FetchError,
    host: String,
    is_capped: Arc<AtomicBool>,
}

impl Sending {
    async fn next(&mut self) -> Result<Option<Bytes>, FetchError> {
        if self.is_capped.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let slow = || FetchError::Slow {
            host: self.host.clone(),
        };
        let idle = Instant::now() + self.pace.idle;
        let chunk = timeout_at(idle.min(self.deadline), self.response.chunk()).await;
        let chunk = match chunk {
            Err(_) if idle < self.deadline => return Err(slow()),
            Err(_) => return Err(self.out_of_time.clone()),
            Ok(Err(_)) => {
                let host = self.host.clone();
                return Err(FetchError::Broken { host });
            }
            Ok(Ok(chunk)) => chunk,
        };
        let Some(mut chunk) = chunk else {
            return Ok(None);
        };
        self.received += chunk.len();
        let elapsed = self.began.elapsed();
        let is_slow = (self.received as f64) < elapsed.as_secs_f64() * self.pace.rate;
        if elapsed > self.pace.grace && is_slow {
            return Err(slow());
        }
        if chunk.len() > self.room {
            chunk.truncate(self.room);
            self.is_capped.store(true, Ordering::Relaxed);
        }
        self.room -= chunk.len();
        Ok(Some(chunk))
    }
}
