//! The schema: migrations, applied in one transaction by one process at a time.

use std::time::Duration;

use sha2::{Digest, Sha256};
use sqlx::{Connection, Executor, PgConnection, query};
use tokio::time::timeout;

use super::super::StoreError;
use super::connect::{DatabasePool, column, execute, failed};

/// Longest time of all migrations, the wait for another process included. After it the start fails.
const LIMIT: Duration = Duration::from_secs(600);
/// Number of the advisory lock.
const LOCK: i64 = 0x6c6f_6f70_7772_6967;

/// The SQL of each version, from 1. It must not change after a release.
const MIGRATIONS: [&str; 10] = [
    include_str!("migrations/0001_store.sql"),
    include_str!("migrations/0002_addresses.sql"),
    include_str!("migrations/0003_plans.sql"),
    include_str!("migrations/0004_expiry_time.sql"),
    include_str!("migrations/0005_key_order.sql"),
    include_str!("migrations/0006_liveness.sql"),
    include_str!("migrations/0007_accounts.sql"),
    include_str!("migrations/0008_parked_turns.sql"),
    include_str!("migrations/0009_approvals.sql"),
    include_str!("migrations/0010_waiting_runs.sql"),
];

/// Applies the missing migrations. Returns whether an older version has made the database.
pub(super) async fn migrate(
    connections: &DatabasePool,
    location: &str,
) -> Result<bool, StoreError> {
    let (mut connection, _share) = connections.server().connection().await?;
    match timeout(LIMIT, apply(&mut connection, location, &MIGRATIONS)).await {
        Ok(done) => done,
        Err(_) => {
            connection.close_on_drop();
            Err(StoreError::failed(
                "another process did not finish the schema in time",
            ))
        }
    }
}

/// Refuses a database without a store, and one of another version. Nothing is changed.
pub(super) async fn check_readable(
    connection: &mut PgConnection,
    location: &str,
) -> Result<(), StoreError> {
    let exists = query("SELECT to_regclass('loopwright_schema') IS NOT NULL");
    let exists = execute(connection, exists).await?;
    if !matches!(exists.first().map(|row| column(row, 0)), Some(Ok(true))) {
        return Err(StoreError::failed(format!(
            "{location} has no session store"
        )));
    }
    let newest = query("SELECT coalesce(max(version), 0) FROM loopwright_schema");
    let newest = execute(connection, newest).await?;
    let newest = newest.first().map_or(Ok(0), |row| column(row, 0))?;
    check_known(newest, MIGRATIONS.len(), location)?;
    match usize::try_from(newest) {
        Ok(newest) if newest == MIGRATIONS.len() => Ok(()),
        Ok(_) | Err(_) => Err(StoreError::failed(format!(
            "{location} has the schema of an older version; use the version that serves from it"
        ))),
    }
}

/// Refuses a schema that is newer than this binary.
fn check_known(newest: i64, known: usize, location: &str) -> Result<(), StoreError> {
    let known = i64::try_from(known).unwrap_or(i64::MAX);
    if newest <= known {
        return Ok(());
    }
    Err(StoreError::NewerSchema {
        location: location.to_owned(),
        found: newest,
        known,
    })
}

async fn apply(
    connection: &mut PgConnection,
    location: &str,
    migrations: &[&'static str],
) -> Result<bool, StoreError> {
    let mut transaction = connection.begin().await.map_err(failed)?;
    let bounds = "SET LOCAL statement_timeout = '600s'; SET LOCAL lock_timeout = '600s'";
    transaction.execute(bounds).await.map_err(failed)?;
    execute(
        &mut transaction,
        query("SELECT pg_advisory_xact_lock($1)").bind(LOCK),
    )
    .await?;
    let table = "CREATE TABLE IF NOT EXISTS loopwright_schema (
        version bigint PRIMARY KEY, checksum bytea NOT NULL, installed_at timestamptz NOT NULL DEFAULT now())";
    execute(&mut transaction, query(table)).await?;
    let sql = "SELECT version, checksum FROM loopwright_schema ORDER BY version";
    let applied = execute(&mut transaction, query(sql)).await?;
    let mut newest = 0;
    for row in &applied {
        newest = column(row, 0)?;
    }
    check_known(newest, migrations.len(), location)?;
    for (sql, version) in migrations.iter().zip(1_i64..) {
        let checksum = Sha256::digest(sql).to_vec();
        let mut found = None;
        for row in &applied {
            if column::<i64>(row, 0)? == version {
                found = Some(column::<Vec<u8>>(row, 1)?);
            }
        }
        match found {
            Some(found) if found != checksum => {
                return Err(StoreError::failed(format!(
                    "migration {version} of the database differs from that of this binary"
                )));
            }
            Some(_) => {}
            None => {
                transaction.execute(*sql).await.map_err(failed)?;
                let sql = "INSERT INTO loopwright_schema (version, checksum) VALUES ($1, $2)";
                execute(&mut transaction, query(sql).bind(version).bind(checksum)).await?;
            }
        }
    }
    transaction.commit().await.map_err(failed)?;
    Ok(!applied.is_empty() && applied.len() < migrations.len())
}
