//! Statements and transactions of an owner.

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Postgres as Driver, Row, Transaction, TypeInfo, ValueRef, query};

use super::super::StoreError;
use super::super::shares::ConnectionShare;
use super::super::tx::SqlValue;
use super::connect::{OwnerPool, Statement, column, execute, failed};

/// Statements of an owner.
#[derive(Debug)]
pub(in crate::store) enum PostgresTx {
    /// Each on its own. It is made again if its connection is lost.
    Single(OwnerPool),
    /// Those of one transaction.
    Transaction {
        transaction: Transaction<'static, Driver>,
        _share: Option<ConnectionShare>,
    },
}

impl PostgresTx {
    pub(in crate::store) async fn rows(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<Vec<PgRow>, StoreError> {
        match self {
            Self::Single(pool) => pool.rows(|| bound(query(sql), values)).await,
            Self::Transaction { transaction, .. } => {
                execute(transaction, bound(query(sql), values)).await
            }
        }
    }

    pub(in crate::store) async fn dynamic(
        &mut self,
        sql: &str,
        values: &[SqlValue<'_>],
    ) -> Result<Vec<PgRow>, StoreError> {
        let bound = || bound(query(AssertSqlSafe(sql.to_owned())), values);
        match self {
            Self::Single(pool) => pool.rows(bound).await,
            Self::Transaction { transaction, .. } => execute(transaction, bound()).await,
        }
    }

    pub(in crate::store) async fn commit(self) -> Result<(), StoreError> {
        match self {
            Self::Single(_) => Ok(()),
            Self::Transaction { transaction, .. } => transaction.commit().await.map_err(failed),
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

pub(in crate::store) fn is_null(row: &PgRow, index: usize) -> Result<bool, StoreError> {
    Ok(row.try_get_raw(index).map_err(failed)?.is_null())
}

/// A number of any size.
pub(in crate::store) fn integer(row: &PgRow, index: usize) -> Result<i64, StoreError> {
    let raw = row.try_get_raw(index).map_err(failed)?;
    match raw.type_info().name() {
        "INT2" => column::<i16>(row, index).map(i64::from),
        "INT4" => column::<i32>(row, index).map(i64::from),
        _ => column(row, index),
    }
}

/// A text, which may be stored as bytes.
pub(in crate::store) fn text(row: &PgRow, index: usize) -> Result<String, StoreError> {
    let raw = row.try_get_raw(index).map_err(failed)?;
    match raw.type_info().name() {
        "BYTEA" => String::from_utf8(column(row, index)?).map_err(StoreError::failed),
        _ => column(row, index),
    }
}
