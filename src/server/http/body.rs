//! Reading request bodies within limits of size, time and memory, and checking their content type.

mod encoding;

use std::ops::Deref;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use super::AppState;
use super::error::{ApiError, codes};
use super::headers::{declared_length, media_type};
use super::settings::{PARSE_FACTOR, Settings};
use net::polling::LONG_BYTES;
use protocol::ids::Owner;
use quota::{MemoryBudget, ReservedMemory};

/// Least rate at which a body must arrive on the whole, in bytes per second. A slower one is a 408.
/// Tried by `body::a_body_has_a_total_time_by_its_length`.
const MIN_BODY_RATE: u64 = 64 * 1024;
/// Most bytes of a body that arrive before they count; the number of connections bounds them.
const UNCOUNTED_BYTES: usize = 64 * 1024;
/// Least memory that a body counts while it is parsed, in bytes.
const MIN_PARSE_BYTES: u64 = 64 * 1024;
/// Memory for a byte of a body while its turn runs: the body itself, and copies of what was rewritten or taken apart.
const KEPT_FACTOR: u64 = 3;
/// Longest wait for memory that other requests or answers hold. After it the request is a 503.
/// Tried by `body::bodies_that_arrive_count_and_the_next_is_refused`.
pub(super) const MEMORY_WAIT: Duration = Duration::from_secs(5);

/// The memory that request bodies may take. There are two budgets, because bodies that arrive slowly would otherwise
/// keep complete ones from being parsed.
#[derive(Debug)]
pub(super) struct BodyBudgets {
    arriving: MemoryBudget,
    parsing: MemoryBudget,
}

/// A whole request body, with the memory that is reserved for parsing it.
#[derive(Debug)]
pub(super) struct HeldBody {
    bytes: Bytes,
    /// The body as it was received, if it was encoded and is needed for forwarding.
    encoded: Option<Bytes>,
    /// Bytes of the stored things that the body refers to.
    referred: usize,
    memory: ReservedMemory,
}

/// A body to forward, as it came and as it is read.
#[derive(Debug, Clone, Default)]
pub(super) struct ForwardableBody {
    /// The body without its encoding.
    pub(super) bytes: Bytes,
    /// The body as it was received, if it was encoded.
    pub(super) encoded: Option<Bytes>,
}

impl BodyBudgets {
    pub(super) fn new(settings: &Settings) -> Self {
        let shared = settings.api_keys.len() > 1;
        Self {
            arriving: MemoryBudget::new(settings.max_parsed_bytes / 2, shared),
            parsing: MemoryBudget::new(settings.max_parsed_bytes, shared),
        }
    }

    /// Sets whether several owners share the memory.
    pub(super) fn share(&self, shared: bool) {
        self.arriving.share(shared);
        self.parsing.share(shared);
    }
}

/// The start of a body that is forwarded while it arrives.
#[derive(Debug)]
pub(super) struct BodyStart {
    /// What has arrived so far.
    pub(super) bytes: Bytes,
    /// The memory that is reserved for it.
    pub(super) memory: ReservedMemory,
    /// What is still to come; absent if this is the whole body.
    pub(super) rest: Option<Body>,
}

/// The data of a body that have arrived, and the memory that is reserved for them.
#[derive(Debug)]
struct ArrivedData<'a> {
    whole: BytesMut,
    /// Bytes for which memory is reserved, or that need none.
    counted: usize,
    memory: &'a mut ReservedMemory,
}

impl HeldBody {
    /// The body without the memory for parsing it, which others can then have.
    pub(super) fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// The same for a request that is forwarded.
    pub(super) fn into_forwardable(self) -> ForwardableBody {
        ForwardableBody {
            bytes: self.bytes,
            encoded: self.encoded,
        }
    }

    /// Reserves memory for the things that the body refers to, as if the body had these bytes too.
    ///
    /// # Errors
    /// When the memory is in use for too long.
    pub(super) async fn refer_to(&mut self, bytes: usize) -> Result<(), ApiError> {
        let needed = weight(self.bytes.len() + bytes, PARSE_FACTOR);
        match self.memory.grow_to(needed, MEMORY_WAIT).await {
            true => self.referred = bytes,
            false => {
                return Err(codes::OVERLOADED
                    .with("too many large requests are in use; send this one again later"));
            }
        }
        Ok(())
    }

    /// The memory for the part of the body that a running turn holds. The rest of the memory for parsing is given back.
    pub(super) fn into_kept(mut self) -> ReservedMemory {
        let bytes = self.bytes.len() + self.referred;
        self.memory.shrink_to(weight(bytes, KEPT_FACTOR));
        self.memory
    }
}

impl Deref for HeldBody {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.bytes
    }
}

/// Reads a whole body that will be parsed, without its encoding. The memory for that is held as long as the result.
pub(super) async fn read(
    state: &AppState,
    owner: &Owner,
    body: Body,
    headers: &HeaderMap,
) -> Result<HeldBody, ApiError> {
    let mut arriving = state.bodies.arriving.empty(owner);
    let bytes = read_decoded(body, headers, &state.settings, &mut arriving).await?;
    held(state, owner, bytes, None).await
}

/// Reads a whole body that will be parsed, and may be forwarded as it came.
pub(super) async fn read_forwardable(
    state: &AppState,
    owner: &Owner,
    body: Body,
    headers: &HeaderMap,
) -> Result<HeldBody, ApiError> {
    if !headers.contains_key(CONTENT_ENCODING) {
        return read(state, owner, body, headers).await;
    }
    let mut arriving = state.bodies.arriving.empty(owner);
    let settings = &state.settings;
    let encoded = read_whole(body, headers, settings, &mut arriving).await?;
    let mut decoding = state.bodies.arriving.empty(owner);
    let copy = Body::from(encoded.clone());
    let bytes = read_decoded(copy, headers, settings, &mut decoding).await?;
    held(state, owner, bytes, Some(encoded)).await
}

async fn read_decoded(
    body: Body,
    headers: &HeaderMap,
    settings: &Settings,
    memory: &mut ReservedMemory,
) -> Result<Bytes, ApiError> {
    if !headers.contains_key(CONTENT_ENCODING) {
        return read_whole(body, headers, settings, memory).await;
    }
    let (body, headers) = encoding::decoded(body, headers)?;
    read_whole(body, &headers, settings, memory).await
}

/// A body with the memory for parsing it.
async fn held(
    state: &AppState,
    owner: &Owner,
    bytes: Bytes,
    encoded: Option<Bytes>,
) -> Result<HeldBody, ApiError> {
    let mut memory = state.bodies.parsing.empty(owner);
    let needed = weight(bytes.len(), PARSE_FACTOR).max(MIN_PARSE_BYTES);
    match memory.grow_to(needed, MEMORY_WAIT).await {
        true => Ok(HeldBody {
            bytes,
            encoded,
            referred: 0,
            memory,
        }),
        false => Err(codes::OVERLOADED.error().before_body()),
    }
}

/// Reads a body until `enough` bytes have arrived or it has ended.
pub(super) async fn read_start(
    state: &AppState,
    owner: &Owner,
    mut body: Body,
    headers: &HeaderMap,
    enough: usize,
) -> Result<BodyStart, ApiError> {
    let mut memory = state.bodies.arriving.empty(owner);
    let limits = ArrivalLimits::new(headers, &state.settings);
    let mut arrived = ArrivedData::new(&mut memory, 0);
    while arrived.whole.len() < enough {
        match next(&mut body, &limits, arrived.whole.len()).await? {
            Some(data) => arrived.push(&data).await?,
            None => {
                let bytes = arrived.whole.freeze();
                let rest = None;
                return Ok(BodyStart {
                    bytes,
                    memory,
                    rest,
                });
            }
        }
    }
    let (bytes, rest) = (arrived.whole.freeze(), Some(body));
    Ok(BodyStart {
        bytes,
        memory,
        rest,
    })
}

async fn read_whole(
    mut body: Body,
    headers: &HeaderMap,
    settings: &Settings,
    memory: &mut ReservedMemory,
) -> Result<Bytes, ApiError> {
    let most = settings.max_body_bytes;
    let limits = ArrivalLimits::new(headers, settings);
    let declared = limits.declared;
    if declared.is_some_and(|length| length > most) {
        return Err(ApiError::too_large(most));
    }
    let Some(first) = next(&mut body, &limits, 0).await? else {
        return Ok(Bytes::new());
    };
    if declared == Some(first.len()) {
        return Ok(first);
    }
    // A client can declare any length, so the memory that is reserved for it is limited.
    let capacity = declared.unwrap_or_default().min(1024 * 1024);
    let mut arrived = ArrivedData::new(memory, capacity.max(first.len()));
    arrived.whole.extend_from_slice(&first);
    while let Some(data) = next(&mut body, &limits, arrived.whole.len()).await? {
        if arrived.whole.len() + data.len() > most {
            return Err(ApiError::too_large(most));
        }
        arrived.push(&data).await?;
    }
    if arrived.whole.len() > most {
        Err(ApiError::too_large(most))
    } else {
        Ok(arrived.whole.freeze())
    }
}

fn weight(length: usize, factor: u64) -> u64 {
    u64::try_from(length)
        .unwrap_or(u64::MAX)
        .saturating_mul(factor)
}

/// The time in which a body has to arrive.
#[derive(Debug)]
struct ArrivalLimits {
    began: Instant,
    /// Longest wait for the next data.
    silence: Duration,
    declared: Option<usize>,
}

impl<'a> ArrivedData<'a> {
    fn new(memory: &'a mut ReservedMemory, capacity: usize) -> Self {
        Self {
            whole: BytesMut::with_capacity(capacity),
            counted: UNCOUNTED_BYTES,
            memory,
        }
    }

    async fn push(&mut self, data: &[u8]) -> Result<(), ApiError> {
        let length = self.whole.len() + data.len();
        if length > self.counted {
            // In the same steps as the buffer, whose size doubles when it is full.
            self.counted = self.counted.saturating_mul(2).max(length);
            let needed = weight(self.counted, 1);
            if !self.memory.grow_to(needed, MEMORY_WAIT).await {
                return Err(codes::OVERLOADED.error().before_body());
            }
        }
        self.whole.extend_from_slice(data);
        Ok(())
    }
}

impl ArrivalLimits {
    /// The limits of a body that begins to arrive now.
    fn new(headers: &HeaderMap, settings: &Settings) -> Self {
        Self {
            began: Instant::now(),
            silence: settings.body_timeout,
            declared: declared_length(headers),
        }
    }

    /// When the wait for the next data ends, after this number of received bytes.
    fn next_due(&self, received: usize) -> Option<Instant> {
        let length = self.declared.unwrap_or(received);
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        let transfer = Duration::from_millis(length.saturating_mul(1000) / MIN_BODY_RATE);
        let silent = Instant::now().checked_add(self.silence)?;
        let total = self.silence.checked_add(transfer)?;
        Some(silent.min(self.began.checked_add(total)?))
    }
}

/// Refuses a body whose content type is not JSON: a web page could send it without a preflight request.
pub(super) fn require_json(headers: &HeaderMap) -> Result<(), ApiError> {
    if is_json(headers) {
        Ok(())
    } else {
        Err(codes::UNSUPPORTED_MEDIA_TYPE.into())
    }
}

/// Whether the content type is `application/json` or `application/*+json`.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let kind = media_type(headers);
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

/// Whether a request with these headers may have a body whose parsing takes long.
pub(super) fn may_be_long(headers: &HeaderMap) -> bool {
    is_json(headers)
        && (headers.contains_key(CONTENT_ENCODING)
            || declared_length(headers).is_none_or(|length| length > LONG_BYTES))
}

/// Whether a body with these headers can be read: it is not encoded, or in a known way.
pub(super) fn is_readable(headers: &HeaderMap) -> bool {
    encoding::decoded(Body::empty(), headers).is_ok()
}

/// The next data of the body, or none at its end; fails when it does not arrive in time.
async fn next(
    body: &mut Body,
    limits: &ArrivalLimits,
    received: usize,
) -> Result<Option<Bytes>, ApiError> {
    loop {
        let frame = match limits.next_due(received) {
            Some(due) => timeout_at(due, body.frame())
                .await
                .map_err(|_elapsed| codes::REQUEST_TIMEOUT.error())?,
            None => body.frame().await,
        };
        match frame {
            None => return Ok(None),
            Some(Err(_broken)) => return Err(codes::BODY_BROKEN.into()),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
