//! The columns of the rows that are written in chunks.

use rusqlite::Connection;

use super::super::connections::StatementError;
use super::super::shared::instructions;

/// The columns of the hidden session's row, and how many messages are copied.
pub(super) struct NewColumns {
    pub(super) source: Option<i64>,
    pub(super) instructions: String,
    pub(super) instruction_count: i64,
    pub(super) keep: i64,
    /// Bytes of the messages that are kept, and how many of those are in trunks.
    pub(super) kept_bytes: i64,
    pub(super) shared: i64,
    pub(super) title_seq: Option<i64>,
    pub(super) title: Option<String>,
    pub(super) created_at: i64,
    pub(super) last_run: Option<String>,
    pub(super) nameless: i64,
}

/// The columns of a session's row that only a copy needs.
pub(super) struct SourceColumns {
    pub(super) instructions: String,
    pub(super) title: Option<String>,
    pub(super) created_at: i64,
    pub(super) last_run: Option<String>,
    pub(super) nameless: i64,
}

impl SourceColumns {
    pub(super) fn of(connection: &Connection, row: i64) -> Result<Self, StatementError> {
        let sql = "SELECT title, created_at, last_run, nameless FROM sessions WHERE id = ?1";
        let instructions = instructions(connection, row)?;
        let stored = connection.query_row(sql, [row], |row| {
            Ok(Self {
                instructions,
                title: row.get(0)?,
                created_at: row.get(1)?,
                last_run: row.get(2)?,
                nameless: row.get(3)?,
            })
        });
        Ok(stored?)
    }
}
