//! The target of a copy: one connection, on which whole tables are written and read again.
//!
//! The table `store_copy` says from which store the database is a copy. It exists from before the first row, and until the copy
//! is complete and checked, no process serves from the database.

use futures_util::TryStreamExt;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Connection, Executor, Postgres as Driver, Row, query};
use tokio::time::timeout;

use super::super::StoreError;
use super::super::copy::{
    ColumnType, CopiedRow, CopiedTable, CopiedValue, CopyError, CopySource, RunningDigest, TABLES,
    TableDigest,
};
use super::super::shares::ConnectionShare;
use super::connect::{
    DatabasePool, STATEMENT_LIMIT, Statement, column, execute, failed, is_locked, unsigned,
};
use super::migrate;
use super::url::PostgresUrl;

/// Number of the advisory lock that a copy holds.
const LOCK: i64 = 0x6c6f_6f70_636f_7079;
/// How many seconds a copy waits for the end of an interrupted one: the server may still execute its last statement.
const LOCK_WAIT: &str = "SET lock_timeout = '15s'";

/// A database that is being copied to.
#[derive(Debug)]
pub(in crate::store) struct CopyTarget {
    connection: PoolConnection<Driver>,
    _share: Option<ConnectionShare>,
    connections: DatabasePool,
}

/// What the database says of a copy.
enum Found {
    Nothing,
    Copy {
        name: String,
        state: String,
        finished: bool,
    },
}

impl CopyTarget {
    /// Opens the database for a copy of a store, or for the rest of one.
    pub(in crate::store) async fn open(
        url: &PostgresUrl,
        source: &CopySource,
    ) -> Result<Self, CopyError> {
        let connections = DatabasePool::new(url)?;
        migrate::migrate(&connections, url.location()).await?;
        let (connection, share) = connections.server().connection().await?;
        let mut target = Self {
            connection,
            _share: share,
            connections,
        };
        // Reading a table again takes as long as it takes; the time between two rows is bounded.
        let settings = format!("SET statement_timeout = 0; SET enable_sort = off; {LOCK_WAIT}");
        let connection = &mut *target.connection;
        connection
            .execute(AssertSqlSafe(settings))
            .await
            .map_err(failed)?;
        let lock = query("SELECT pg_advisory_lock($1)").bind(LOCK);
        match timeout(STATEMENT_LIMIT, lock.execute(connection)).await {
            Ok(Err(error)) if is_locked(&error) => return Err(CopyError::Running),
            Ok(Err(error)) => return Err(failed(error).into()),
            Ok(Ok(_locked)) => {}
            Err(_) => return Err(CopyError::Running),
        }
        let location = url.location().to_owned();
        let is_new = match target.found().await? {
            Found::Nothing if target.has_data().await? => {
                return Err(CopyError::OtherData { location });
            }
            Found::Nothing => {
                target.begin(source).await?;
                true
            }
            Found::Copy { name, .. } if source.name != name => {
                return Err(CopyError::OtherData { location });
            }
            Found::Copy { finished: true, .. } => return Err(CopyError::Finished { location }),
            Found::Copy { state, .. } if source.state != state => {
                return Err(CopyError::SourceChanged { location });
            }
            Found::Copy { .. } => false,
        };
        // After the note, which a process that starts looks for after it has its row.
        let living = "SELECT EXISTS (SELECT 1 FROM replicas WHERE expires_at > now())";
        if column(&target.one(query(living)).await?, 0)? {
            if is_new {
                target.run(query("DROP TABLE store_copy")).await?;
            }
            return Err(CopyError::TargetInUse { location });
        }
        Ok(target)
    }

    async fn found(&mut self) -> Result<Found, StoreError> {
        if !exists(&self.one(query(EXISTS)).await?)? {
            return Ok(Found::Nothing);
        }
        let row = self.one(query("SELECT name, state, finished FROM store_copy"));
        let row = row.await?;
        Ok(Found::Copy {
            name: column(&row, 0)?,
            state: column(&row, 1)?,
            finished: column(&row, 2)?,
        })
    }

    async fn has_data(&mut self) -> Result<bool, StoreError> {
        for table in TABLES {
            let sql = format!("SELECT EXISTS (SELECT 1 FROM {})", table.name);
            if column(&self.one(query(AssertSqlSafe(sql))).await?, 0)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Notes that a copy begins.
    async fn begin(&mut self, source: &CopySource) -> Result<(), StoreError> {
        let mut transaction = self.connection.begin().await.map_err(failed)?;
        let note = "CREATE TABLE store_copy (
            name text NOT NULL, state text NOT NULL, finished boolean NOT NULL DEFAULT false)";
        execute(&mut transaction, query(note)).await?;
        let insert = query("INSERT INTO store_copy (name, state) VALUES ($1, $2)");
        let insert = insert.bind(&source.name).bind(&source.state);
        execute(&mut transaction, insert).await?;
        // Names of stored contents and ids of chats are derived from both.
        let identity = query("UPDATE store_identity SET name = $1, secret = $2");
        let identity = identity.bind(&source.name).bind(&source.secret[..]);
        execute(&mut transaction, identity).await?;
        let expiry = query("UPDATE expiry_time SET trusted = $1, credit = $2");
        let expiry = expiry
            .bind(source.expiry.trusted)
            .bind(source.expiry.credit);
        execute(&mut transaction, expiry).await?;
        transaction.commit().await.map_err(failed)
    }

    /// The last key of a table, if it has rows, and their number.
    pub(in crate::store) async fn progress(
        &mut self,
        table: &CopiedTable,
    ) -> Result<(Option<CopiedRow>, u64), StoreError> {
        let key = table.columns.iter().take(table.key);
        let shown: Vec<String> = key.map(shown).collect();
        let order: Vec<String> = table
            .key_names()
            .iter()
            .map(|name| format!("{name} DESC"))
            .collect();
        let (shown, order) = (shown.join(", "), order.join(", "));
        let sql = format!(
            "SELECT {shown} FROM {} ORDER BY {order} LIMIT 1",
            table.name
        );
        let last = self.run(query(AssertSqlSafe(sql))).await?;
        let last = last.first().map(|row| values(row, table, table.key));
        let sql = format!("SELECT count(*) FROM {}", table.name);
        let rows = column(&self.one(query(AssertSqlSafe(sql))).await?, 0)?;
        Ok((last.transpose()?, unsigned(rows)))
    }

    /// Inserts rows, all or none.
    pub(in crate::store) async fn insert(
        &mut self,
        table: &CopiedTable,
        rows: &[CopiedRow],
    ) -> Result<(), StoreError> {
        let columns = table.columns.iter().zip(1..);
        let names: Vec<&str> = table.columns.iter().map(|(name, _)| *name).collect();
        let (mut arrays, mut inner, mut made) = (Vec::new(), Vec::new(), Vec::new());
        for ((_, kind), number) in columns {
            let array = if is_number(*kind) { "bigint" } else { "bytea" };
            arrays.push(format!("${number}::{array}[]"));
            inner.push(format!("c{number}"));
            made.push(match kind {
                ColumnType::Bigint | ColumnType::Bytea => format!("c{number}"),
                ColumnType::Integer => format!("c{number}::integer"),
                ColumnType::Smallint => format!("c{number}::smallint"),
                ColumnType::Boolean => format!("c{number} <> 0"),
                ColumnType::Text => format!("convert_from(c{number}, 'UTF8')"),
            });
        }
        let sql = format!(
            "INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM unnest({}) AS r ({})",
            table.name,
            names.join(", "),
            made.join(", "),
            arrays.join(", "),
            inner.join(", ")
        );
        let mut statement = query(AssertSqlSafe(sql));
        for (index, (_, kind)) in table.columns.iter().enumerate() {
            let values = rows.iter().map(|row| row.get(index));
            statement = if is_number(*kind) {
                let numbers = values.map(|value| match value {
                    Some(CopiedValue::Integer(number)) => Some(*number),
                    _ => None,
                });
                statement.bind(numbers.collect::<Vec<Option<i64>>>())
            } else {
                let texts = values.map(|value| match value {
                    Some(CopiedValue::Bytes(bytes)) => Some(bytes.as_slice()),
                    _ => None,
                });
                statement.bind(texts.collect::<Vec<Option<&[u8]>>>())
            };
        }
        self.run(statement).await.map(drop)
    }

    /// Reads a table again, in the order of its key.
    pub(in crate::store) async fn digest(
        &mut self,
        table: &CopiedTable,
    ) -> Result<TableDigest, StoreError> {
        let mut digest = RunningDigest::default();
        let mut rows = query(AssertSqlSafe(all_rows(table))).fetch(&mut *self.connection);
        loop {
            let row = timeout(STATEMENT_LIMIT, rows.try_next()).await;
            let row = row.map_err(|_| StoreError::failed("the database did not answer in time"))?;
            let Some(row) = row.map_err(failed)? else {
                return Ok(digest.finish());
            };
            digest.add(&values(&row, table, table.columns.len())?);
        }
    }

    /// Notes that the copy is complete, so that processes may use the database.
    pub(in crate::store) async fn finish(&mut self) -> Result<(), StoreError> {
        let mut transaction = self.connection.begin().await.map_err(failed)?;
        for table in TABLES.iter().filter(|table| table.generated) {
            let sql = format!(
                "SELECT setval(pg_get_serial_sequence('{0}', 'num'), coalesce((SELECT max(num) FROM {0}), 0) + 1, false)",
                table.name
            );
            execute(&mut transaction, query(AssertSqlSafe(sql))).await?;
        }
        let done = query("UPDATE store_copy SET finished = true");
        execute(&mut transaction, done).await?;
        transaction.commit().await.map_err(failed)
    }

    pub(in crate::store) async fn close(self) {
        // Ends the session of the database, and with it the lock.
        let closed = timeout(STATEMENT_LIMIT, self.connection.close()).await;
        let _connection_may_be_lost = closed.is_ok_and(|closed| closed.is_ok());
        self.connections.close().await;
    }

    async fn run(&mut self, statement: Statement<'_>) -> Result<Vec<PgRow>, StoreError> {
        execute(&mut self.connection, statement).await
    }

    async fn one(&mut self, statement: Statement<'_>) -> Result<PgRow, StoreError> {
        let row = self.run(statement).await?.into_iter().next();
        row.ok_or_else(|| StoreError::failed("the database returned no row"))
    }
}

const EXISTS: &str = "SELECT to_regclass('store_copy') IS NOT NULL";

fn exists(row: &PgRow) -> Result<bool, StoreError> {
    column(row, 0)
}

/// Fails while a copy into the database is not complete.
pub(super) async fn refuse_unfinished(
    connections: &DatabasePool,
    location: &str,
) -> Result<(), StoreError> {
    if !exists(&connections.server().one(|| query(EXISTS)).await?)? {
        return Ok(());
    }
    let find = || query("SELECT 1 FROM store_copy WHERE NOT finished");
    match connections.server().row(find).await? {
        None => Ok(()),
        Some(_) => Err(StoreError::failed(format!(
            "a store is being copied into {location}; finish that with the same `loopwright store copy` as before"
        ))),
    }
}

fn is_number(kind: ColumnType) -> bool {
    match kind {
        ColumnType::Bigint | ColumnType::Integer | ColumnType::Smallint | ColumnType::Boolean => {
            true
        }
        ColumnType::Text | ColumnType::Bytea => false,
    }
}

/// The query for all rows of a table, in the order of its key.
pub(super) fn all_rows(table: &CopiedTable) -> String {
    let columns: Vec<String> = table.columns.iter().map(shown).collect();
    format!(
        "SELECT {} FROM {} ORDER BY {}",
        columns.join(", "),
        table.name,
        table.key_names().join(", ")
    )
}

/// A column as it is read: a number or bytes.
fn shown((name, kind): &(&str, ColumnType)) -> String {
    match kind {
        ColumnType::Bigint | ColumnType::Bytea => (*name).to_owned(),
        ColumnType::Integer | ColumnType::Smallint => format!("{name}::bigint"),
        ColumnType::Boolean => format!("{name}::integer::bigint"),
        ColumnType::Text => format!("convert_to({name}, 'UTF8')"),
    }
}

/// The first values of a row.
pub(super) fn values(
    row: &PgRow,
    table: &CopiedTable,
    count: usize,
) -> Result<CopiedRow, StoreError> {
    let columns = table.columns.iter().take(count).enumerate();
    let values = columns.map(|(index, (_, kind))| {
        Ok(match is_number(*kind) {
            true => {
                column::<Option<i64>>(row, index)?.map_or(CopiedValue::Null, CopiedValue::Integer)
            }
            false => {
                let bytes: Option<Vec<u8>> = row.try_get(index).map_err(failed)?;
                bytes.map_or(CopiedValue::Null, CopiedValue::Bytes)
            }
        })
    });
    values.collect()
}
