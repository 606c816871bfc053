//! The tables that are copied, in an order in which rows come after those that they refer to.

use bytes::Bytes as SharedBytes;

use super::super::StoreError;
use super::super::tx::{Row, SqlValue, Tx};

use self::ColumnType::{AnyText, Boolean, Bytes, Integer, Text};

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnType {
    Integer,
    Boolean,
    Text,
    /// See [`SqlValue::AnyText`].
    AnyText,
    Bytes,
}

/// A value of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CopiedValue {
    Integer(Option<i64>),
    Boolean(bool),
    Text(Option<String>),
    Bytes(SharedBytes),
}

/// The values of a row, by the columns of its table. The first ones are its key.
pub(super) type CopiedRow = Vec<CopiedValue>;

/// A table of both engines.
#[derive(Debug)]
pub(super) struct CopiedTable {
    pub(super) name: &'static str,
    pub(super) columns: &'static [(&'static str, ColumnType)],
    /// How many of the columns are the key.
    key: usize,
    /// Whether the database generates the key of later rows.
    pub(super) generated: bool,
}

/// Most rows of one batch; others follow.
const BATCH_ROWS: i64 = 512;
/// Most bytes of one batch, but for a single row.
/// Tried by `copied::a_copy_that_was_killed_goes_on_and_doubles_nothing`.
const BATCH_BYTES: i64 = 2 * 1024 * 1024;
/// Most rows of one statement that inserts some.
const INSERTED_ROWS: usize = 64;

impl CopiedTable {
    /// The names of the columns, or of the first ones.
    fn names(&self, count: usize) -> Vec<&'static str> {
        let columns = self.columns.iter().take(count);
        columns.map(|(name, _)| *name).collect()
    }

    fn key_names(&self) -> Vec<&'static str> {
        self.names(self.key)
    }

    /// The number of rows.
    pub(super) async fn count(&self, tx: &mut Tx) -> Result<u64, StoreError> {
        let sql = format!("SELECT count(*) FROM {}", self.name);
        match tx.dynamic(&sql, &[]).await?.first_mut() {
            Some(row) => row.unsigned(0),
            None => Ok(0),
        }
    }

    /// The key of the last row.
    pub(super) async fn last_key(&self, tx: &mut Tx) -> Result<Option<CopiedRow>, StoreError> {
        let names = self.key_names();
        let order: Vec<String> = names.iter().map(|name| format!("{name} DESC")).collect();
        let (shown, order) = (names.join(", "), order.join(", "));
        let sql = format!("SELECT {shown} FROM {} ORDER BY {order} LIMIT 1", self.name);
        let found = tx.dynamic(&sql, &[]).await?.into_iter().next();
        found.map(|row| self.values(row, self.key)).transpose()
    }

    /// The next rows after a key, or the first ones; none at the end.
    pub(super) async fn batch(
        &self,
        tx: &mut Tx,
        after: Option<&CopiedRow>,
    ) -> Result<Vec<CopiedRow>, StoreError> {
        let key = self.key_names();
        let marks: Vec<String> = (1..=key.len()).map(|number| format!("${number}")).collect();
        let (order, marks) = (key.join(", "), marks.join(", "));
        let condition = match after {
            Some(_) => format!("WHERE ({order}) > ({marks})"),
            None => String::new(),
        };
        let after: Vec<SqlValue<'_>> = after.map_or_else(Vec::new, |after| self.bound(after));
        let sizes = self.columns.iter().filter(|(_, kind)| match kind {
            Integer | Boolean => false,
            Text | AnyText | Bytes => true,
        });
        let sizes = sizes.map(|(name, _)| format!(" + coalesce(octet_length({name}), 0)"));
        let (name, sizes) = (self.name, sizes.collect::<String>());
        let sql = format!(
            "SELECT count(*) FROM (
                SELECT sum(size) OVER (ORDER BY {order}) - size AS before FROM (
                    SELECT {order}, 0{sizes} AS size FROM {name} {condition} ORDER BY {order} LIMIT {BATCH_ROWS}) next) sized
             WHERE before < {BATCH_BYTES}"
        );
        let fitting = tx.dynamic(&sql, &after).await?.into_iter().next();
        let fitting = fitting.map_or(Ok(0), |mut row| row.unsigned(0))?;
        let columns = self.names(self.columns.len()).join(", ");
        let sql =
            format!("SELECT {columns} FROM {name} {condition} ORDER BY {order} LIMIT {fitting}");
        let rows = tx.dynamic(&sql, &after).await?;
        let rows = rows
            .into_iter()
            .map(|row| self.values(row, self.columns.len()));
        rows.collect()
    }

    pub(super) async fn insert(&self, tx: &mut Tx, rows: &[CopiedRow]) -> Result<(), StoreError> {
        let (at_once, overriding) = match tx {
            Tx::Sqlite(_) => (1, ""),
            Tx::Postgres(_) => (INSERTED_ROWS, "OVERRIDING SYSTEM VALUE "),
        };
        let (name, width) = (self.name, self.columns.len());
        let columns = self.names(width).join(", ");
        for rows in rows.chunks(at_once) {
            let marks = (0..rows.len()).map(|row| {
                let marks = (1..=width).map(|column| format!("${}", row * width + column));
                format!("({})", marks.collect::<Vec<_>>().join(", "))
            });
            let marks = marks.collect::<Vec<_>>().join(", ");
            let sql = format!("INSERT INTO {name} ({columns}) {overriding}VALUES {marks}");
            let values = rows.iter().flat_map(|row| self.bound(row));
            tx.dynamic(&sql, &values.collect::<Vec<_>>()).await?;
        }
        Ok(())
    }

    /// The first values of a row.
    fn values(&self, mut row: Row, count: usize) -> Result<CopiedRow, StoreError> {
        let columns = self.columns.iter().take(count).enumerate();
        let values = columns.map(|(index, (_, kind))| {
            Ok(match kind {
                Integer => CopiedValue::Integer(row.column(index)?),
                Boolean => CopiedValue::Boolean(row.column(index)?),
                Text | AnyText => CopiedValue::Text(row.column(index)?),
                Bytes => CopiedValue::Bytes(row.column(index)?),
            })
        });
        values.collect()
    }

    /// Values as arguments of a statement.
    fn bound<'a>(&self, values: &'a [CopiedValue]) -> Vec<SqlValue<'a>> {
        let columns = self.columns.iter().zip(values);
        let bound = columns.map(|((_, kind), value)| match value {
            CopiedValue::Integer(number) => SqlValue::Integer(*number),
            CopiedValue::Boolean(value) => SqlValue::Bool(*value),
            CopiedValue::Text(text) if *kind == Text => SqlValue::Text(text.as_deref()),
            CopiedValue::Text(text) => SqlValue::AnyText(text.as_deref()),
            CopiedValue::Bytes(bytes) => SqlValue::Bytes(Some(bytes)),
        });
        bound.collect()
    }

    pub(super) fn key_of(&self, row: &CopiedRow) -> CopiedRow {
        row.iter().take(self.key).cloned().collect()
    }
}

/// A table whose key has this number of columns.
const fn table(
    name: &'static str,
    key: usize,
    columns: &'static [(&'static str, ColumnType)],
) -> CopiedTable {
    CopiedTable {
        name,
        columns,
        key,
        generated: false,
    }
}

/// A table whose key is generated.
const fn numbered(
    name: &'static str,
    columns: &'static [(&'static str, ColumnType)],
) -> CopiedTable {
    CopiedTable {
        generated: true,
        ..table(name, 1, columns)
    }
}

/// All tables. Leases, processes and what they have reserved are of the moment and not copied.
pub(super) const TABLES: &[CopiedTable] = &[
    numbered(
        "sessions",
        &[
            ("num", Integer),
            ("owner", Text),
            ("session_id", Text),
            ("instruction_count", Integer),
            ("instruction_bytes", Integer),
            ("message_count", Integer),
            ("bytes", Integer),
            ("title_seq", Integer),
            ("title", AnyText),
            ("created_at", Integer),
            ("updated_at", Integer),
            ("written_at", Integer),
            ("last_run", Text),
            ("origin", Integer),
            ("metadata", Text),
        ],
    ),
    table(
        "messages",
        2,
        &[
            ("session", Integer),
            ("seq", Integer),
            ("json", AnyText),
            ("hidden", Boolean),
            ("view", AnyText),
            ("full_text", AnyText),
            ("sources", AnyText),
        ],
    ),
    table(
        "client_calls",
        2,
        &[("owner", Text), ("call_id", AnyText), ("session", Integer)],
    ),
    table(
        "parked_turns",
        1,
        &[("session", Integer), ("turn", AnyText)],
    ),
    table(
        "approvals",
        1,
        &[
            ("approval_id", Text),
            ("session", Integer),
            ("run_id", Text),
            ("round", Integer),
            ("tool_call_id", AnyText),
            ("tool", AnyText),
            ("arguments", AnyText),
            ("digest", Text),
            ("scope", AnyText),
            ("reason", AnyText),
            ("rule", AnyText),
            ("created_at", Integer),
            ("expires_at", Integer),
            ("state", Text),
            ("message", AnyText),
            ("edited", AnyText),
            ("remember", Text),
            ("decided_at", Integer),
            ("announced", Text),
        ],
    ),
    numbered(
        "files",
        &[
            ("num", Integer),
            ("id", Text),
            ("owner", Text),
            ("bound", Boolean),
            ("name", AnyText),
            ("mime_type", AnyText),
            ("bytes", Integer),
            ("purpose", Text),
            ("tool", AnyText),
            ("round", Integer),
            ("created_at", Integer),
            ("last_used_at", Integer),
            ("blob", Text),
        ],
    ),
    table(
        "session_files",
        2,
        &[("session", Integer), ("file", Integer)],
    ),
    table("dead_blobs", 1, &[("blob", Text)]),
    numbered(
        "runs",
        &[
            ("num", Integer),
            ("id", Text),
            ("owner", Text),
            ("session_id", Text),
            ("status", Text),
            ("replica", Text),
            ("created_at", Integer),
            ("ended_at", Integer),
            ("http_status", Integer),
            ("headers", AnyText),
            ("bytes", Integer),
            ("kept", Boolean),
        ],
    ),
    table(
        "run_bodies",
        2,
        &[("run", Integer), ("seq", Integer), ("piece", Bytes)],
    ),
    table(
        "idempotency_keys",
        2,
        &[
            ("owner", Text),
            ("key", AnyText),
            ("fingerprint", Bytes),
            ("run", Text),
            ("created_at", Integer),
            ("recorded", Boolean),
            ("replica", Text),
        ],
    ),
    table(
        "accounts",
        2,
        &[("owner", Text), ("account", Text), ("amount", Integer)],
    ),
];
