//! Answers of runs while they are written.

use bytes::{Bytes, BytesMut};

use super::StoreError;
use super::run::StoredAnswer;
use crate::parted::{PartedBody, PartedText};

/// Size of a part, in bytes, for one statement or short transaction.
pub(super) const PART: usize = 2 * 1024 * 1024;

/// What is stored of an answer besides its body.
#[derive(Debug)]
pub(super) struct NewAnswerHead {
    pub(super) status: u16,
    /// As JSON.
    pub(super) headers: String,
    body_bytes: usize,
    pub(super) kept: bool,
}

/// The body of an answer while it is written.
#[derive(Debug)]
pub(super) struct AnswerParts {
    body: PartedBody,
    /// Read, but not yet a part.
    read: BytesMut,
    /// Read in one piece, and longer than a part.
    long: Bytes,
}

impl NewAnswerHead {
    pub(super) async fn of(answer: StoredAnswer) -> Result<(Self, PartedText), StoreError> {
        let body = answer.body.without_lost().await;
        let head = Self {
            status: answer.status,
            headers: serde_json::to_string(&answer.headers).map_err(StoreError::failed)?,
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

impl AnswerParts {
    pub(super) fn of(body: PartedText) -> Self {
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
