//! Statements and transactions of an owner.

use sqlx::pool::PoolConnection;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Executor, Postgres as Driver, Row, TypeInfo, ValueRef, query};
use tokio::time::timeout;

use super::super::StoreError;
use super::super::shares::ConnectionShare;
use super::super::tx::SqlValue;
use super::connect::{OwnerPool, STATEMENT_LIMIT, Statement, column, execute, failed};

/// Statements of an owner.
#[derive(Debug)]
pub(crate) enum PostgresTx {
    /// Each on its own. It is made again if its connection is lost.
    Single(OwnerPool),
    Transaction(OpenTransaction),
}

/// A transaction that is not committed yet. Its connection is closed when it is dropped, which undoes it.
#[derive(Debug)]
pub(crate) struct OpenTransaction {
    connection: PoolConnection<Driver>,
    _share: Option<ConnectionShare>,
    open: bool,
}

impl OpenTransaction {
    pub(super) async fn begin(pool: &OwnerPool, sql: &'static str) -> Result<Self, StoreError> {
        let (connection, share) = pool.connection().await?;
        let mut transaction = Self {
            connection,
            _share: share,
            open: true,
        };
        transaction.control(sql).await?;
        Ok(transaction)
    }

    /// Runs statements without arguments and results.
    pub(super) async fn control(&mut self, sql: &'static str) -> Result<(), StoreError> {
        match timeout(STATEMENT_LIMIT, self.connection.execute(sql)).await {
            Ok(done) => done.map(drop).map_err(failed),
            Err(_) => Err(StoreError::failed("the database did not answer in time")),
        }
    }
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        if self.open {
            self.connection.close_on_drop();
        }
    }
}

impl PostgresTx {
    pub(crate) async fn rows(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<Vec<PgRow>, StoreError> {
        match self {
            Self::Single(pool) => pool.rows(|| bound(query(sql), values)).await,
            Self::Transaction(open) => {
                execute(&mut open.connection, bound(query(sql), values)).await
            }
        }
    }

    pub(crate) async fn dynamic(
        &mut self,
        sql: &str,
        values: &[SqlValue<'_>],
    ) -> Result<Vec<PgRow>, StoreError> {
        let bound = || bound(query(AssertSqlSafe(sql.to_owned())), values);
        match self {
            Self::Single(pool) => pool.rows(bound).await,
            Self::Transaction(open) => execute(&mut open.connection, bound()).await,
        }
    }

    pub(crate) async fn commit(self) -> Result<(), StoreError> {
        match self {
            Self::Single(_) => Ok(()),
            Self::Transaction(mut open) => {
                open.control("COMMIT").await?;
                open.open = false;
                Ok(())
            }
        }
    }
}

/// A statement with its arguments.
fn bound<'q>(statement: Statement<'q>, values: &[SqlValue<'q>]) -> Statement<'q> {
    values
        .iter()
        .fold(statement, |statement, value| match *value {
            SqlValue::Bool(value) => statement.bind(value),
            SqlValue::Integer(number) => statement.bind(number),
            SqlValue::Text(text) => statement.bind(text),
            SqlValue::AnyText(text) => statement.bind(text.map(str::as_bytes)),
            SqlValue::Bytes(bytes) => statement.bind(bytes),
        })
}

pub(crate) fn is_null(row: &PgRow, index: usize) -> Result<bool, StoreError> {
    Ok(row.try_get_raw(index).map_err(failed)?.is_null())
}

/// A number of any size.
pub(crate) fn integer(row: &PgRow, index: usize) -> Result<i64, StoreError> {
    let raw = row.try_get_raw(index).map_err(failed)?;
    match raw.type_info().name() {
        "INT2" => column::<i16>(row, index).map(i64::from),
        "INT4" => column::<i32>(row, index).map(i64::from),
        _ => column(row, index),
    }
}

/// A text, which may be stored as bytes.
pub(crate) fn text(row: &PgRow, index: usize) -> Result<String, StoreError> {
    let raw = row.try_get_raw(index).map_err(failed)?;
    match raw.type_info().name() {
        "BYTEA" => String::from_utf8(column(row, index)?).map_err(StoreError::failed),
        _ => column(row, index),
    }
}
