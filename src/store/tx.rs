//! Statements of both engines, in one form: the verbs of the store are written over it once.
//!
//! A statement is SQL that both engines read alike, with the parameters `$1`, `$2` and so on. The functions `micros_1`,
//! `expiry_time_4` and `is_alive_1` exist in both.

use bytes::Bytes;
use rusqlite::types::Value as SqliteValue;
use serde::de::DeserializeOwned;

use super::StoreError;
use super::postgres::{self, PgRow, PostgresTx};
use super::sqlite::SqliteTx;
use protocol::ids::{RunId, SessionId};

/// An argument of a statement.
#[derive(Debug, Clone, Copy)]
pub(super) enum SqlValue<'a> {
    Bool(bool),
    Integer(Option<i64>),
    /// An id, or another text without NUL.
    Text(Option<&'a str>),
    /// A text that may have any characters. It is stored as bytes in PostgreSQL, whose texts cannot hold NUL.
    AnyText(Option<&'a str>),
    Bytes(Option<&'a [u8]>),
}

/// A row that a statement returned.
#[derive(Debug)]
pub(super) enum Row {
    Sqlite(Vec<SqliteValue>),
    Postgres(PgRow),
}

/// A type of column.
pub(super) trait ColumnValue: Sized {
    /// The value of SQLite; `None` if it has another type.
    fn of_sqlite(value: SqliteValue) -> Option<Self>;

    fn of_postgres(row: &PgRow, index: usize) -> Result<Self, StoreError>;
}

/// One or more statements of an owner. A transaction that is dropped before it is committed is rolled back.
#[derive(Debug)]
#[cfg_attr(
    not(feature = "postgres"),
    expect(clippy::large_enum_variant, reason = "the other one has no values")
)]
pub(super) enum Tx {
    Sqlite(SqliteTx),
    Postgres(PostgresTx),
}

impl Tx {
    /// Runs a statement; returns the rows that it selects or returns.
    pub(super) async fn rows(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        match self {
            Self::Sqlite(tx) => {
                let rows = tx.rows(sql, values).await?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Self::Postgres(tx) => {
                let rows = Box::pin(tx.rows(sql, values)).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    /// Runs a statement that reads, and calls `visit` with each of its rows.
    pub(super) async fn for_each(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
        visit: &mut (dyn FnMut(Row) -> Result<(), StoreError> + Send),
    ) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(tx) => {
                let mut visit = |row| visit(Row::Sqlite(row));
                tx.for_each(sql, values, &mut visit).await
            }
            Self::Postgres(tx) => {
                let rows = Box::pin(tx.rows(sql, values)).await?;
                rows.into_iter().map(Row::Postgres).try_for_each(visit)
            }
        }
    }

    /// As [`Self::rows`], for a statement that returns at most one row.
    pub(super) async fn row(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.rows(sql, values).await?.into_iter().next())
    }

    /// As [`Self::rows`], for a statement that returns one row.
    pub(super) async fn one(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<Row, StoreError> {
        let row = self.row(sql, values).await?;
        row.ok_or_else(|| StoreError::failed("the database returned no row"))
    }

    /// Runs a statement that returns a row for each row that it changes; returns their number.
    pub(super) async fn count(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<u64, StoreError> {
        Ok(self.rows(sql, values).await?.len() as u64)
    }

    /// As [`Self::rows`], for SQL that is made while the program runs. No part of it is from a client.
    pub(super) async fn dynamic(
        &mut self,
        sql: &str,
        values: &[SqlValue<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        match self {
            Self::Sqlite(tx) => {
                let rows = tx.rows(sql, values).await?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Self::Postgres(tx) => {
                let rows = Box::pin(tx.dynamic(sql, values)).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    /// Counts bytes that a statement has copied, besides the bytes of its arguments.
    pub(super) fn count_copied(&mut self, bytes: u64) {
        if let Self::Sqlite(tx) = self {
            tx.bytes = tx
                .bytes
                .saturating_add(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
    }

    /// Commits a transaction.
    pub(super) async fn commit(self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(tx) => tx.commit().await,
            Self::Postgres(tx) => tx.commit().await,
        }
    }
}

impl Row {
    /// Takes the value of a column.
    pub(super) fn column<T: ColumnValue>(&mut self, index: usize) -> Result<T, StoreError> {
        match self {
            Self::Sqlite(values) => {
                let value = values.get_mut(index);
                let value = value.map(|value| std::mem::replace(value, SqliteValue::Null));
                let value = value.and_then(T::of_sqlite);
                value.ok_or_else(|| {
                    StoreError::failed(format!("column {index} of a stored row has another type"))
                })
            }
            Self::Postgres(row) => T::of_postgres(row, index),
        }
    }

    /// Takes a number that cannot be negative.
    pub(super) fn unsigned(&mut self, index: usize) -> Result<u64, StoreError> {
        let number: i64 = self.column(index)?;
        Ok(u64::try_from(number).unwrap_or_default())
    }

    /// Takes a value that is stored as JSON.
    pub(super) fn json<T: DeserializeOwned>(
        &mut self,
        index: usize,
    ) -> Result<Option<T>, StoreError> {
        let text: Option<String> = self.column(index)?;
        let value = text.as_deref().map(serde_json::from_str).transpose();
        value.map_err(StoreError::failed)
    }
}

impl ColumnValue for i64 {
    fn of_sqlite(value: SqliteValue) -> Option<Self> {
        match value {
            SqliteValue::Integer(number) => Some(number),
            _ => None,
        }
    }

    fn of_postgres(row: &PgRow, index: usize) -> Result<Self, StoreError> {
        postgres::integer(row, index)
    }
}

impl ColumnValue for bool {
    fn of_sqlite(value: SqliteValue) -> Option<Self> {
        i64::of_sqlite(value).map(|number| number != 0)
    }

    fn of_postgres(row: &PgRow, index: usize) -> Result<Self, StoreError> {
        postgres::column(row, index)
    }
}

impl ColumnValue for String {
    fn of_sqlite(value: SqliteValue) -> Option<Self> {
        match value {
            SqliteValue::Text(text) => Some(text),
            _ => None,
        }
    }

    fn of_postgres(row: &PgRow, index: usize) -> Result<Self, StoreError> {
        postgres::text(row, index)
    }
}

impl ColumnValue for Bytes {
    fn of_sqlite(value: SqliteValue) -> Option<Self> {
        match value {
            SqliteValue::Text(text) => Some(text.into()),
            SqliteValue::Blob(bytes) => Some(bytes.into()),
            _ => None,
        }
    }

    fn of_postgres(row: &PgRow, index: usize) -> Result<Self, StoreError> {
        postgres::column::<&[u8]>(row, index).map(Self::copy_from_slice)
    }
}

impl<T: ColumnValue> ColumnValue for Option<T> {
    fn of_sqlite(value: SqliteValue) -> Option<Self> {
        match value {
            SqliteValue::Null => Some(None),
            value => T::of_sqlite(value).map(Some),
        }
    }

    fn of_postgres(row: &PgRow, index: usize) -> Result<Self, StoreError> {
        match postgres::is_null(row, index)? {
            true => Ok(None),
            false => T::of_postgres(row, index).map(Some),
        }
    }
}

impl From<bool> for SqlValue<'_> {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for SqlValue<'_> {
    fn from(number: i64) -> Self {
        Self::Integer(Some(number))
    }
}

impl<'a> From<&'a str> for SqlValue<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Some(text))
    }
}

impl<'a> From<Option<&'a str>> for SqlValue<'a> {
    fn from(text: Option<&'a str>) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a [u8]> for SqlValue<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(Some(bytes))
    }
}

impl<'a> SqlValue<'a> {
    /// See [`SqlValue::AnyText`].
    pub(super) fn any(text: &'a str) -> Self {
        Self::AnyText(Some(text))
    }
}

/// A number for the database.
pub(super) fn signed(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// A number from the database that cannot be negative.
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// The id of a session from its text in the store.
pub(super) fn session_id(text: String) -> Result<SessionId, StoreError> {
    SessionId::try_from(text).map_err(StoreError::failed)
}

/// The id of a run from its text in the store, which has no prefix.
pub(super) fn run_id(text: &str) -> Result<RunId, StoreError> {
    RunId::parse(&format!("chatcmpl-{text}")).map_err(StoreError::failed)
}

/// The arguments of a statement, by their types.
macro_rules! values {
    ($($value:expr),* $(,)?) => {
        &[$($crate::tx::SqlValue::from($value)),*]
    };
}

pub(super) use values;
