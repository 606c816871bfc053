//! Answers that are written.

use bytes::Bytes;
use rusqlite::{Connection, params};

use super::super::super::StoreError;
use super::super::super::run::StoredAnswer;
use super::super::connections::StatementError;
use super::super::size::CHUNK;
use super::super::write::count;
use super::rows::RunRow;

/// An answer with its headers as JSON.
#[derive(Debug)]
pub(super) struct NewAnswer {
    status: u16,
    headers: String,
    body: Bytes,
}

impl NewAnswer {
    pub(super) fn new(answer: StoredAnswer) -> Result<Self, StoreError> {
        Ok(Self {
            status: answer.status,
            headers: serde_json::to_string(&answer.headers).map_err(StoreError::failed)?,
            body: answer.body,
        })
    }

    /// Bytes of the headers and the body.
    pub(super) fn bytes(&self) -> usize {
        self.headers.len().saturating_add(self.body.len())
    }

    /// The number of pieces of the body.
    pub(super) fn pieces(&self) -> usize {
        self.body.len().div_ceil(CHUNK.bytes)
    }

    /// Inserts a piece of the body, if there is one with this number.
    pub(super) fn add_piece(
        &self,
        connection: &Connection,
        run: i64,
        seq: usize,
    ) -> Result<(), StatementError> {
        if let Some(piece) = self.body.chunks(CHUNK.bytes).nth(seq) {
            let mut statement = connection
                .prepare_cached("INSERT INTO run_bodies (run, seq, piece) VALUES (?1, ?2, ?3)")?;
            statement.execute(params![run, count(seq), piece])?;
        }
        Ok(())
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
