//! Reads a whole database as it is at one moment, for a backup.

use futures_util::TryStreamExt;
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Executor, Postgres as Driver, query};
use tokio::time::timeout;

use super::super::StoreError;
use super::super::clock::ExpiryTime;
use super::super::copy::{CopiedTable, RowBatch, TABLES};
use super::super::sqlite::BackupTarget;
use super::connect::{DatabasePool, STATEMENT_LIMIT, column, execute, failed};
use super::import::{all_rows, refuse_unfinished, values};
use super::migrate;
use super::url::PostgresUrl;

/// One transaction that sees the state of its beginning. It takes no locks that writers wait for.
const BEGIN: &str =
    "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET enable_sort = off;
    BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Copies all tables of a database into a new file.
pub(in crate::store) async fn export(
    url: &PostgresUrl,
    target: &BackupTarget,
) -> Result<(), StoreError> {
    let connections = DatabasePool::new(url)?;
    let (mut connection, _share) = connections.server().connection().await?;
    migrate::check_readable(&mut connection, url.location()).await?;
    refuse_unfinished(&connections, url.location()).await?;
    connection.execute(BEGIN).await.map_err(failed)?;
    let identity = query("SELECT name, secret, trusted, credit FROM store_identity, expiry_time");
    let identity = execute(&mut connection, identity).await?;
    let identity = identity
        .first()
        .ok_or_else(|| StoreError::failed("the database has no name"))?;
    let expiry = ExpiryTime {
        trusted: column(identity, 2)?,
        credit: column(identity, 3)?,
    };
    target
        .identify(column(identity, 0)?, column(identity, 1)?, expiry)
        .await?;
    for table in TABLES.iter().filter(|table| !table.derived) {
        copy_table(&mut connection, table, target).await?;
    }
    // Ends the transaction.
    let closed = timeout(STATEMENT_LIMIT, connection.close()).await;
    let _connection_may_be_lost = closed.is_ok_and(|closed| closed.is_ok());
    connections.close().await;
    Ok(())
}

async fn copy_table(
    connection: &mut PoolConnection<Driver>,
    table: &'static CopiedTable,
    target: &BackupTarget,
) -> Result<(), StoreError> {
    let mut rows = query(AssertSqlSafe(all_rows(table))).fetch(&mut **connection);
    let mut batch = RowBatch::default();
    loop {
        let row = timeout(STATEMENT_LIMIT, rows.try_next()).await;
        let row = row.map_err(|_| StoreError::failed("the database did not answer in time"))?;
        let Some(row) = row.map_err(failed)? else {
            return target.insert(table, batch.rows).await;
        };
        if batch.add(values(&row, table, table.columns.len())?) {
            target
                .insert(table, std::mem::take(&mut batch).rows)
                .await?;
        }
    }
}
