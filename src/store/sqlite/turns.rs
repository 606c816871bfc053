//! How a change affects the suspended turn of its session.

use rusqlite::Connection;
use rusqlite::types::Value as SqliteValue;

use super::super::approvals::{INSERT, LEAVE};
use super::super::record::TurnChange;
use super::super::tx::{SqlValue, signed, values};
use super::connections::StatementError;
use super::statements::rows;
use super::write::SessionWrite;

impl SessionWrite<'_> {
    /// Deletes the suspended turn of a session, if the change ends or replaces it; returns its bytes.
    pub(super) fn drop_turn(
        self,
        connection: &Connection,
        session: i64,
    ) -> Result<i64, StatementError> {
        let keeps = match (&self.change.turn, self.created_at) {
            (TurnChange::Leave, None) => return Ok(0),
            (TurnChange::Suspend { .. }, _) => true,
            (TurnChange::Leave | TurnChange::End, _) => false,
        };
        if !keeps {
            rows(connection, LEAVE, values![session])?;
        }
        let sql = "DELETE FROM parked_turns WHERE session = $1 RETURNING octet_length(turn)";
        let ended = rows(connection, sql, values![session])?;
        Ok(match ended.first().map(Vec::as_slice) {
            Some([SqliteValue::Integer(bytes)]) => *bytes,
            _ => 0,
        })
    }

    /// The bytes that the turn adds which the change keeps.
    pub(super) fn turn_bytes(self, connection: &Connection) -> Result<i64, StatementError> {
        let Some((turn, questions)) = self.change.turn.kept() else {
            return Ok(0);
        };
        let mut bytes = turn.len();
        for question in questions {
            let sql = "SELECT 1 FROM approvals WHERE approval_id = $1";
            if rows(connection, sql, values![question.id.as_str()])?.is_empty() {
                bytes += question.bytes();
            }
        }
        Ok(signed(bytes))
    }

    /// Keeps the turn of the change, with its questions.
    pub(super) fn suspend_turn(
        self,
        connection: &Connection,
        session: i64,
    ) -> Result<(), StatementError> {
        let Some((turn, questions)) = self.change.turn.kept() else {
            return Ok(());
        };
        let sql = "INSERT INTO parked_turns (session, turn) VALUES ($1, $2)";
        rows(connection, sql, values![session, SqlValue::any(turn)])?;
        for question in questions {
            rows(connection, INSERT, &question.values(session))?;
        }
        Ok(())
    }
}
