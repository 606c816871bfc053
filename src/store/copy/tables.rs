//! The tables that are copied, in an order in which rows come after those that they refer to.

use sha2::{Digest, Sha256};

/// A value of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) enum CopiedValue {
    Null,
    Integer(i64),
    /// A text or a blob.
    Bytes(Vec<u8>),
}

/// The values of a row, by the columns of its table. The first ones are its key.
pub(in crate::store) type CopiedRow = Vec<CopiedValue>;

/// The type of a column in PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum ColumnType {
    Bigint,
    Integer,
    Smallint,
    Boolean,
    Text,
    Bytea,
}

/// Where the rows of a table are in SQLite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum RowSource {
    /// A query for all rows, with the columns of the table.
    Query(&'static str),
    /// The messages of all sessions, of which forks share some.
    Messages,
}

/// Most rows of one batch; others follow.
const BATCH_ROWS: usize = 512;
/// Most bytes of one batch, but for a single row.
const BATCH_BYTES: usize = 2 * 1024 * 1024;

/// Rows for one batch.
#[derive(Debug, Default)]
pub(in crate::store) struct RowBatch {
    pub(in crate::store) rows: Vec<CopiedRow>,
    bytes: usize,
}

impl RowBatch {
    /// Adds a row; returns whether the batch is full.
    pub(in crate::store) fn add(&mut self, row: CopiedRow) -> bool {
        self.bytes += row.iter().map(CopiedValue::len).sum::<usize>();
        self.rows.push(row);
        self.rows.len() >= BATCH_ROWS || self.bytes >= BATCH_BYTES
    }
}

/// A table of the target.
#[derive(Debug)]
pub(in crate::store) struct CopiedTable {
    pub(in crate::store) name: &'static str,
    pub(in crate::store) columns: &'static [(&'static str, ColumnType)],
    /// How many of the columns are the key.
    pub(in crate::store) key: usize,
    /// Whether the first column is generated in later rows.
    pub(in crate::store) generated: bool,
    /// Whether the target fills the table by itself.
    pub(in crate::store) derived: bool,
    pub(in crate::store) source: RowSource,
}

/// What is compared of a table at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct TableDigest {
    pub(in crate::store) rows: u64,
    pub(in crate::store) bytes: u64,
    pub(in crate::store) sha256: [u8; 32],
}

/// The digest of a table while its rows are read in the order of the key.
#[derive(Debug, Default)]
pub(in crate::store) struct RunningDigest {
    rows: u64,
    bytes: u64,
    state: Sha256,
}

impl CopiedTable {
    pub(in crate::store) fn key_names(&self) -> Vec<&'static str> {
        let key = self.columns.iter().take(self.key);
        key.map(|(name, _)| *name).collect()
    }
}

impl CopiedValue {
    pub(in crate::store) fn len(&self) -> usize {
        match self {
            Self::Null | Self::Integer(_) => 8,
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

impl RunningDigest {
    pub(in crate::store) fn add(&mut self, row: &[CopiedValue]) {
        self.rows += 1;
        for value in row {
            match value {
                CopiedValue::Null => self.state.update([0]),
                CopiedValue::Integer(number) => {
                    self.state.update([1]);
                    self.state.update(number.to_be_bytes());
                }
                CopiedValue::Bytes(bytes) => {
                    self.bytes += bytes.len() as u64;
                    self.state.update([2]);
                    self.state.update((bytes.len() as u64).to_be_bytes());
                    self.state.update(bytes);
                }
            }
        }
    }

    pub(in crate::store) fn finish(self) -> TableDigest {
        TableDigest {
            rows: self.rows,
            bytes: self.bytes,
            sha256: self.state.finalize().into(),
        }
    }
}

use ColumnType::{Bigint, Boolean, Bytea, Integer, Smallint, Text};

/// All tables. Leases and processes are of the moment and not copied.
pub(in crate::store) const TABLES: &[CopiedTable] = &[
    CopiedTable {
        name: "sessions",
        columns: &[
            ("num", Bigint),
            ("owner", Text),
            ("session_id", Text),
            ("instruction_count", Bigint),
            ("instruction_bytes", Bigint),
            ("message_count", Bigint),
            ("bytes", Bigint),
            ("title_seq", Bigint),
            ("title", Bytea),
            ("created_at", Bigint),
            ("updated_at", Bigint),
            ("written_at", Bigint),
            ("last_run", Text),
            ("origin", Smallint),
            ("metadata", Text),
        ],
        key: 1,
        generated: true,
        derived: false,
        source: RowSource::Query(
            "SELECT id AS num, owner, session_id, instruction_count, instruction_bytes, message_count, bytes, title_seq,
                    title, created_at, updated_at, written_at, last_run, nameless AS origin, metadata
             FROM sessions WHERE owner <> char(1) || 'hidden'",
        ),
    },
    CopiedTable {
        name: "messages",
        columns: &[
            ("session", Bigint),
            ("seq", Bigint),
            ("json", Bytea),
            ("hidden", Boolean),
            ("view", Bytea),
            ("full_text", Bytea),
            ("sources", Bytea),
        ],
        key: 2,
        generated: false,
        derived: false,
        source: RowSource::Messages,
    },
    CopiedTable {
        name: "client_calls",
        columns: &[("owner", Text), ("call_id", Bytea), ("session", Bigint)],
        key: 2,
        generated: false,
        derived: false,
        source: RowSource::Query(
            "SELECT c.owner AS owner, c.call_id AS call_id, c.session AS session
             FROM client_calls c
             WHERE EXISTS (SELECT 1 FROM sessions s WHERE s.id = c.session AND s.owner <> char(1) || 'hidden')",
        ),
    },
    CopiedTable {
        name: "files",
        columns: &[
            ("num", Bigint),
            ("id", Text),
            ("owner", Text),
            ("bound", Boolean),
            ("name", Bytea),
            ("mime_type", Bytea),
            ("bytes", Bigint),
            ("purpose", Text),
            ("tool", Bytea),
            ("round", Bigint),
            ("created_at", Bigint),
            ("last_used_at", Bigint),
            ("blob", Text),
        ],
        key: 1,
        generated: true,
        derived: false,
        source: RowSource::Query(
            "SELECT num, id, owner, bound, name, mime_type, bytes, purpose, tool, round, created_at, last_used_at, blob
             FROM files",
        ),
    },
    CopiedTable {
        name: "file_usage",
        columns: &[("owner", Text), ("files", Bigint), ("bytes", Bigint)],
        key: 1,
        generated: false,
        derived: true,
        source: RowSource::Query("SELECT owner, files, bytes FROM file_usage"),
    },
    CopiedTable {
        name: "session_files",
        columns: &[("session", Bigint), ("file", Bigint)],
        key: 2,
        generated: false,
        derived: false,
        source: RowSource::Query(
            "SELECT l.session AS session, l.file AS file
             FROM session_files l
             WHERE EXISTS (SELECT 1 FROM sessions s WHERE s.id = l.session AND s.owner <> char(1) || 'hidden')",
        ),
    },
    CopiedTable {
        name: "dead_blobs",
        columns: &[("blob", Text)],
        key: 1,
        generated: false,
        derived: false,
        source: RowSource::Query("SELECT blob FROM dead_blobs"),
    },
    CopiedTable {
        name: "runs",
        columns: &[
            ("num", Bigint),
            ("id", Text),
            ("owner", Text),
            ("session_id", Text),
            ("status", Text),
            ("replica", Text),
            ("created_at", Bigint),
            ("ended_at", Bigint),
            ("http_status", Integer),
            ("headers", Bytea),
            ("bytes", Bigint),
            ("kept", Boolean),
        ],
        key: 1,
        generated: true,
        derived: false,
        source: RowSource::Query(
            "SELECT num, id, owner, session_id, status, '' AS replica, created_at, ended_at, http_status, headers, bytes,
                    kept
             FROM runs WHERE status IN ('interrupted', 'ended')",
        ),
    },
    CopiedTable {
        name: "run_bodies",
        columns: &[("run", Bigint), ("seq", Bigint), ("piece", Bytea)],
        key: 2,
        generated: false,
        derived: false,
        source: RowSource::Query(
            "SELECT b.run AS run, b.seq AS seq, b.piece AS piece
             FROM run_bodies b WHERE EXISTS (SELECT 1 FROM runs r WHERE r.num = b.run AND r.status = 'ended')",
        ),
    },
    CopiedTable {
        name: "idempotency_keys",
        columns: &[
            ("owner", Text),
            ("key", Bytea),
            ("fingerprint", Bytea),
            ("run", Text),
            ("created_at", Bigint),
            ("recorded", Boolean),
            ("replica", Text),
        ],
        key: 2,
        generated: false,
        derived: false,
        source: RowSource::Query(
            "SELECT owner, key, fingerprint, run, created_at, recorded, '' AS replica FROM idempotency_keys",
        ),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_tells_rows_apart_that_hold_the_same_bytes() {
        let digest = |rows: &[&[&str]]| {
            let mut running = RunningDigest::default();
            for row in rows {
                let values = row.iter().map(|text| CopiedValue::Bytes((*text).into()));
                running.add(&values.collect::<CopiedRow>());
            }
            running.finish()
        };
        let whole = digest(&[&["ab", "c"]]);
        assert_eq!(whole, digest(&[&["ab", "c"]]));
        assert_eq!((whole.rows, whole.bytes), (1, 3));
        let others: [&[&[&str]]; 3] = [&[&["a", "bc"]], &[&["ab"], &["c"]], &[&["c", "ab"]]];
        for other in others {
            assert_ne!(whole, digest(other), "{other:?}");
        }
        let mut absent = RunningDigest::default();
        absent.add(&[CopiedValue::Null]);
        assert_ne!(absent.finish(), digest(&[&[""]]));
    }
}
