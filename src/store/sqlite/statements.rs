//! Statements and transactions on a connection.

use std::sync::Arc;

use rusqlite::types::{ToSqlOutput, Value as SqliteValue, ValueRef};
use rusqlite::{Connection, ToSql};

use super::super::StoreError;
use super::super::leases::{Fence, LeaseHold};
use super::super::tx::SqlValue;
use super::Sqlite;
use super::connections::{Checkout, StatementError};

/// The names of parameters.
const NAMES: [&str; 18] = [
    "$1", "$2", "$3", "$4", "$5", "$6", "$7", "$8", "$9", "$10", "$11", "$12", "$13", "$14", "$15",
    "$16", "$17", "$18",
];

/// Statements of an owner, of one transaction or each on its own.
#[derive(Debug)]
pub(crate) struct SqliteTx {
    pub(super) checkout: Checkout,
    pub(super) store: Sqlite,
    /// Whether a transaction is open, which the checkout undoes when it is dropped.
    pub(super) open: bool,
    /// Whether the statements can write.
    pub(super) writes: bool,
    /// Bytes of the arguments.
    pub(crate) bytes: usize,
    /// The leases under which the transaction writes.
    pub(super) holds: Vec<Arc<LeaseHold>>,
}

impl SqliteTx {
    pub(crate) async fn rows(
        &mut self,
        sql: &str,
        values: &[SqlValue<'_>],
    ) -> Result<Vec<Vec<SqliteValue>>, StoreError> {
        let rows = self
            .checkout
            .run(|connection| rows(connection, sql, values))
            .await?;
        self.bytes += values.iter().map(SqlValue::len).sum::<usize>();
        if self.writes && !self.open {
            self.store.count_written(std::mem::take(&mut self.bytes));
        }
        Ok(rows)
    }

    /// Runs a statement that reads, and calls `visit` with each of its rows before the next one is read.
    pub(crate) async fn for_each(
        &mut self,
        sql: &str,
        values: &[SqlValue<'_>],
        visit: &mut (dyn FnMut(Vec<SqliteValue>) -> Result<(), StoreError> + Send),
    ) -> Result<(), StoreError> {
        let read = |connection: &mut Connection| for_each(connection, sql, values, visit);
        self.checkout.run(read).await
    }

    /// Keeps a session leased until the transaction ends.
    pub(crate) fn hold(&mut self, fence: &Fence) -> Result<(), StoreError> {
        self.holds.push(self.store.leases().pin(fence)?);
        Ok(())
    }

    pub(crate) async fn commit(mut self) -> Result<(), StoreError> {
        if std::mem::take(&mut self.open) {
            let commit = |connection: &mut Connection| {
                Ok(connection.prepare_cached("COMMIT")?.execute([]).map(drop)?)
            };
            self.checkout.run(commit).await?;
            self.store.count_written(self.bytes);
        }
        Ok(())
    }
}

/// Runs a statement; returns all its rows.
pub(super) fn rows(
    connection: &Connection,
    sql: &str,
    values: &[SqlValue<'_>],
) -> Result<Vec<Vec<SqliteValue>>, StatementError> {
    let mut found = Vec::new();
    for_each(connection, sql, values, &mut |row| {
        found.push(row);
        Ok(())
    })?;
    Ok(found)
}

/// Runs a statement, and calls `visit` with each of its rows.
fn for_each(
    connection: &Connection,
    sql: &str,
    values: &[SqlValue<'_>],
    visit: &mut dyn FnMut(Vec<SqliteValue>) -> Result<(), StoreError>,
) -> Result<(), StatementError> {
    let mut statement = connection.prepare_cached(sql)?;
    for (name, value) in NAMES.iter().zip(values) {
        let index = statement.parameter_index(name)?;
        let index = index.ok_or_else(|| rusqlite::Error::InvalidParameterName(sql.to_owned()))?;
        statement.raw_bind_parameter(index, value)?;
    }
    let columns = statement.column_count();
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        let values = (0..columns).map(|index| row.get(index));
        visit(values.collect::<Result<_, _>>()?)?;
    }
    Ok(())
}

impl SqlValue<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Bool(_) | Self::Integer(_) => 8,
            Self::Text(text) | Self::AnyText(text) => text.map_or(0, str::len),
            Self::Bytes(bytes) => bytes.map_or(0, <[u8]>::len),
        }
    }
}

impl ToSql for SqlValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let value = match self {
            Self::Bool(value) => ValueRef::Integer((*value).into()),
            Self::Integer(number) => number.map_or(ValueRef::Null, ValueRef::Integer),
            Self::Text(text) | Self::AnyText(text) => {
                text.map_or(ValueRef::Null, |text| ValueRef::Text(text.as_bytes()))
            }
            Self::Bytes(bytes) => bytes.map_or(ValueRef::Null, ValueRef::Blob),
        };
        Ok(ToSqlOutput::Borrowed(value))
    }
}

/// Begins a write transaction. It takes the write lock immediately, because upgrading a read lock can fail with
/// `SQLITE_BUSY`.
pub(super) fn begin(connection: &Connection) -> Result<(), StatementError> {
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    Ok(())
}
