//! Answers of runs while they are written.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::StoreError;
use super::run::RunAnswer;
use blobs::segments::{SegmentedBody, SegmentedText};

/// Size of a part of a body, in bytes: what one statement writes, and what a read holds besides the body.
pub(super) const PART: usize = 256 * 1024;

/// What is stored of an answer besides its body.
#[derive(Debug)]
pub(super) struct NewAnswerHead {
    pub(super) status: u16,
    /// The headers as JSON.
    pub(super) headers: String,
    body_bytes: usize,
    pub(super) kept: bool,
}

/// The body of an answer while it is written.
#[derive(Debug)]
pub(super) struct AnswerParts {
    body: SegmentedBody,
    /// Read, but not yet a part.
    read: BytesMut,
    /// Read in one piece, and longer than a part.
    long: Bytes,
}

impl NewAnswerHead {
    pub(super) async fn of(answer: RunAnswer) -> Result<(Self, SegmentedText), StoreError> {
        let body = answer.body.without_lost().await;
        let text = |(name, value): (&HeaderName, &HeaderValue)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        };
        let headers: Vec<(String, String)> = answer.headers.iter().filter_map(text).collect();
        let head = Self {
            status: answer.status.as_u16(),
            headers: serde_json::to_string(&headers).map_err(StoreError::failed)?,
            body_bytes: usize::try_from(body.length()).unwrap_or(usize::MAX),
            kept: answer.kept,
        };
        Ok((head, body))
    }

    /// Bytes of the headers and the body.
    pub(super) fn bytes(&self) -> usize {
        self.headers.len().saturating_add(self.body_bytes)
    }
}

impl RunAnswer {
    /// An answer with the columns of its row.
    ///
    /// # Errors
    /// When they are damaged.
    pub(super) fn stored(
        status: u16,
        headers: &str,
        body: SegmentedText,
        kept: bool,
    ) -> Result<Self, StoreError> {
        let pairs: Vec<(String, String)> =
            serde_json::from_str(headers).map_err(StoreError::failed)?;
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name = HeaderName::try_from(name).map_err(StoreError::failed)?;
            let value = HeaderValue::try_from(value).map_err(StoreError::failed)?;
            headers.append(name, value);
        }
        Ok(Self {
            status: StatusCode::from_u16(status).map_err(StoreError::failed)?,
            headers,
            body,
            kept,
            waited: None,
            cause: None,
        })
    }
}

impl AnswerParts {
    pub(super) fn of(body: SegmentedText) -> Self {
        Self {
            body: body.into_body(),
            read: BytesMut::new(),
            long: Bytes::new(),
        }
    }

    /// The next part; none at the end.
    ///
    /// # Errors
    /// When a file of the body cannot be read.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        while self.long.is_empty() && self.read.len() < PART {
            match self.body.next().await.map_err(StoreError::failed)? {
                // Cut without a copy.
                Some(read) if self.read.is_empty() && read.len() >= PART => self.long = read,
                Some(read) => self.read.extend_from_slice(&read),
                None => break,
            }
        }
        let piece = match self.long.is_empty() {
            false => self.long.split_to(self.long.len().min(PART)),
            true => self.read.split_to(self.read.len().min(PART)).freeze(),
        };
        Ok((!piece.is_empty()).then_some(piece))
    }
}
