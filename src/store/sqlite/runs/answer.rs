//! Answers that are written.

use bytes::{Bytes, BytesMut};
use rusqlite::{Connection, params};

use super::super::super::StoreError;
use super::super::super::run::StoredAnswer;
use super::super::connections::StatementError;
use super::super::pieces::PIECE;
use super::super::size::CHUNK;
use super::super::write::count;
use super::rows::RunRow;
use crate::parted::{PartedBody, PartedText};

/// What is stored of an answer besides its body.
#[derive(Debug)]
pub(super) struct NewAnswerHead {
    status: u16,
    /// As JSON.
    headers: String,
    body_bytes: usize,
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
        };
        Ok((head, body))
    }

    /// Bytes of the headers and the body.
    pub(super) fn bytes(&self) -> usize {
        self.headers.len().saturating_add(self.body_bytes)
    }

    /// Marks a record that has all pieces as ended.
    pub(super) fn complete(
        &self,
        connection: &Connection,
        row: &RunRow,
        now: i64,
    ) -> Result<(), StatementError> {
        let mut statement = connection.prepare_cached(
            "UPDATE runs SET status = 'ended', ended_at = ?2, http_status = ?3, headers = ?4, bytes = ?5
             WHERE num = ?1",
        )?;
        let bytes = count(self.bytes());
        statement.execute(params![row.num, now, self.status, self.headers, bytes])?;
        Ok(())
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

    /// The next part, for one transaction; none at the end.
    ///
    /// # Errors
    /// When a file of the body cannot be read.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        while self.long.is_empty() && self.read.len() < CHUNK.bytes {
            match self.body.next().await.map_err(StoreError::failed)? {
                // Cut without a copy.
                Some(read) if self.read.is_empty() && read.len() >= CHUNK.bytes => self.long = read,
                Some(read) => self.read.extend_from_slice(&read),
                None => break,
            }
        }
        let piece = match self.long.is_empty() {
            false => self.long.split_to(self.long.len().min(CHUNK.bytes)),
            true => self
                .read
                .split_to(self.read.len().min(CHUNK.bytes))
                .freeze(),
        };
        Ok((!piece.is_empty()).then_some(piece))
    }
}

/// Inserts a part of a body in pieces from the number `seq`; returns the number after them.
pub(super) fn add_part(
    connection: &Connection,
    run: i64,
    mut seq: i64,
    part: &[u8],
) -> Result<i64, StatementError> {
    let mut statement = connection
        .prepare_cached("INSERT INTO run_bodies (run, seq, piece) VALUES (?1, ?2, ?3)")?;
    for piece in part.chunks(PIECE) {
        statement.execute(params![run, seq, piece])?;
        seq += 1;
    }
    Ok(seq)
}
