//! The columns of the rows that are written in chunks.

use rusqlite::Connection;

use super::super::connections::StatementError;

/// The columns of the hidden session's row, and how many messages are copied.
pub(super) struct NewColumns {
    pub(super) source: Option<i64>,
    pub(super) instructions: String,
    pub(super) instruction_count: i64,
    pub(super) keep: i64,
    /// Bytes of the copied messages.
    pub(super) kept_bytes: i64,
    pub(super) title_seq: Option<i64>,
    pub(super) title: Option<String>,
    pub(super) created_at: i64,
    pub(super) last_run: Option<String>,
    pub(super) nameless: bool,
}

/// The columns of a session's row that only a copy needs.
pub(super) struct SourceColumns {
    pub(super) instructions: String,
    pub(super) title: Option<String>,
    pub(super) created_at: i64,
    pub(super) last_run: Option<String>,
    pub(super) nameless: bool,
}

impl SourceColumns {
    pub(super) fn of(connection: &Connection, row: i64) -> Result<Self, StatementError> {
        let sql = "SELECT instructions, title, created_at, last_run, nameless FROM sessions WHERE id = ?1";
        let stored = connection.query_row(sql, [row], |row| {
            Ok(Self {
                instructions: row.get(0)?,
                title: row.get(1)?,
                created_at: row.get(2)?,
                last_run: row.get(3)?,
                nameless: row.get(4)?,
            })
        });
        Ok(stored?)
    }
}
