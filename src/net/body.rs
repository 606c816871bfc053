//! Reading response bodies within a limit.

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;

use super::http_client::ReceivedBody;
use super::request::ClientError;

/// Memory reserved for a body at first, in bytes.
const INITIAL_CAPACITY: usize = 64 * 1024;

/// A response body that fails when it exceeds its limit.
#[derive(Debug)]
pub struct CappedBody {
    body: ReceivedBody,
    remaining: usize,
    limit: usize,
}

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// It exceeds this limit, in bytes.
    #[error("the body is longer than {0} bytes")]
    TooLarge(usize),
    /// The connection failed before the body was complete.
    #[error("the connection failed")]
    Broken(#[source] ClientError),
}

impl CappedBody {
    /// Limits a response body to `limit` bytes.
    ///
    /// # Errors
    /// `TooLarge` if `content-length` exceeds the limit.
    pub fn new(body: impl Into<ReceivedBody>, limit: usize) -> Result<Self, BodyError> {
        let body = body.into();
        let announced = body.announced();
        if announced.is_some_and(|bytes| usize::try_from(bytes).map_or(true, |bytes| bytes > limit))
        {
            return Err(BodyError::TooLarge(limit));
        }
        Ok(Self {
            body,
            remaining: limit,
            limit,
        })
    }

    /// The next piece of the body, or none at its end.
    ///
    /// # Cancel safety
    /// A dropped future loses no data.
    ///
    /// # Errors
    /// When the body breaks off, or is longer than the limit.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, BodyError> {
        let chunk = self
            .body
            .next()
            .await
            .transpose()
            .map_err(BodyError::Broken)?;
        let bytes = chunk.as_ref().map_or(0, Bytes::len);
        let remaining = self.remaining.checked_sub(bytes);
        self.remaining = remaining.ok_or(BodyError::TooLarge(self.limit))?;
        Ok(chunk)
    }

    /// Bytes that are still to come, if their number was announced.
    pub fn announced(&self) -> Option<usize> {
        let announced = self.body.announced();
        announced.and_then(|bytes| usize::try_from(bytes).ok())
    }

    /// Most bytes that are still to come: the rest of the announced length, else of the limit.
    pub fn most_remaining(&self) -> usize {
        let announced = self.announced().unwrap_or(self.remaining);
        announced.min(self.remaining)
    }

    /// Reads the rest of the body.
    ///
    /// # Errors
    /// When the body breaks off, or is longer than the limit.
    pub async fn whole(mut self) -> Result<Bytes, BodyError> {
        let announced = self.body.announced().unwrap_or_default();
        let capacity = usize::try_from(announced).unwrap_or(INITIAL_CAPACITY);
        let mut body = BytesMut::with_capacity(capacity.min(INITIAL_CAPACITY));
        while let Some(chunk) = self.chunk().await? {
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }
}
