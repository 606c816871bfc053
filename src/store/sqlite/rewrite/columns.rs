//! The columns of the rows that are written in chunks.

use rusqlite::Connection;

use super::super::connections::StatementError;
use super::super::write::count;

/// The columns of the hidden session's row, and how many messages are copied.
pub(super) struct NewColumns {
    pub(super) source: Option<i64>,
    pub(super) instruction_bytes: i64,
    pub(super) instruction_count: i64,
    /// Whether the instructions of the source are kept.
    pub(super) keeps_instructions: bool,
    pub(super) keep: i64,
    /// Bytes of the messages that are kept.
    pub(super) kept_bytes: i64,
    /// What of the kept instructions and messages is in trunks.
    pub(super) shared_instructions: bool,
    pub(super) shared: i64,
    pub(super) title_seq: Option<i64>,
    pub(super) title: Option<String>,
    pub(super) created_at: i64,
    pub(super) last_run: Option<String>,
    pub(super) nameless: i64,
    pub(super) metadata: Option<String>,
}

/// The columns of a session's row that only a copy needs.
pub(super) struct SourceColumns {
    pub(super) title: Option<String>,
    pub(super) created_at: i64,
    pub(super) last_run: Option<String>,
    pub(super) nameless: i64,
    pub(super) metadata: Option<String>,
}

impl NewColumns {
    pub(super) fn metadata_bytes(&self) -> i64 {
        self.metadata.as_ref().map_or(0, |text| count(text.len()))
    }
}

impl SourceColumns {
    pub(super) fn of(connection: &Connection, row: i64) -> Result<Self, StatementError> {
        let sql =
            "SELECT title, created_at, last_run, nameless, metadata FROM sessions WHERE id = ?1";
        let stored = connection.query_row(sql, [row], |row| {
            Ok(Self {
                title: row.get(0)?,
                created_at: row.get(1)?,
                last_run: row.get(2)?,
                nameless: row.get(3)?,
                metadata: row.get(4)?,
            })
        });
        Ok(stored?)
    }
}
