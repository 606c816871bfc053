//! The connections to the database, taken in turns.
//!
//! A statement costs two context switches, there and back to its connection's thread, and most take less time than
//! that. sqlx's own pool adds such a trip, or two, whenever a connection comes back, and a task to make it; here only a
//! connection that came back in doubt is seen to, by whoever takes it next.

use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection, Error};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Longest wait for a connection; then the store counts as failed.
const TAKE_WAIT: Duration = Duration::from_secs(5);

/// Connections of one kind to one database.
#[derive(Debug)]
pub(in crate::session) struct Connections {
    options: SqliteConnectOptions,
    /// Run on every new connection.
    setup: &'static str,
    /// A connection that fails is closed and another one opened. Not so in memory, where it is the database.
    replaced: bool,
    limit: u32,
    /// One for each connection that may be in use.
    turns: Semaphore,
    idle: Mutex<Vec<Idle>>,
}

#[derive(Debug)]
struct Idle {
    connection: SqliteConnection,
    settled: bool,
}

/// A connection in use by one caller; comes back when it is dropped.
#[derive(Debug)]
pub(in crate::session) struct Held<'a> {
    /// `None` only until it is opened, and while this is dropped.
    connection: Option<SqliteConnection>,
    /// All that was asked of the connection was answered, and no transaction is open.
    settled: bool,
    from: &'a Connections,
    /// Given back last.
    _turn: SemaphorePermit<'a>,
}

impl Connections {
    /// Up to so many connections to a file, opened when they are needed.
    pub(in crate::session) fn to_file(
        options: SqliteConnectOptions,
        setup: &'static str,
        limit: u32,
    ) -> Self {
        Self {
            options,
            setup,
            replaced: true,
            limit,
            turns: Semaphore::new(usize::try_from(limit).unwrap_or(1)),
            idle: Mutex::default(),
        }
    }

    /// The one connection to a database in memory.
    pub(in crate::session) fn to_memory(
        options: SqliteConnectOptions,
        setup: &'static str,
    ) -> Self {
        Self {
            replaced: false,
            ..Self::to_file(options, setup, 1)
        }
    }

    /// Waits for a connection that is in order, a new one if need be.
    pub(in crate::session) async fn take(&self) -> Result<Held<'_>, Error> {
        timeout(TAKE_WAIT, self.take_in_turn())
            .await
            .map_err(|_elapsed| Error::PoolTimedOut)?
    }

    async fn take_in_turn(&self) -> Result<Held<'_>, Error> {
        let turn = self.turns.acquire().await;
        let turn = turn.map_err(|_closed| Error::PoolClosed)?;
        let (connection, settled) = match self.idle.lock().pop() {
            Some(idle) => (Some(idle.connection), idle.settled),
            None => (None, true),
        };
        let mut held = Held {
            connection,
            settled,
            from: self,
            _turn: turn,
        };
        if let Err(error) = held.settle().await {
            if !self.replaced {
                return Err(error);
            }
            tracing::warn!(%error, "connection to the session store replaced");
            held.connection = None;
        }
        if held.connection.is_none() {
            held.connection = Some(self.set_up(self.connect().await?).await?);
        }
        Ok(held)
    }

    /// A connection that is not one of these yet.
    pub(in crate::session) async fn connect(&self) -> Result<SqliteConnection, Error> {
        self.options.connect().await
    }

    /// Takes in the first connection.
    pub(in crate::session) async fn add(&self, connection: SqliteConnection) -> Result<(), Error> {
        let connection = self.set_up(connection).await?;
        self.idle.lock().push(Idle {
            connection,
            settled: true,
        });
        Ok(())
    }

    async fn set_up(&self, mut connection: SqliteConnection) -> Result<SqliteConnection, Error> {
        sqlx::raw_sql(self.setup).execute(&mut connection).await?;
        Ok(connection)
    }

    /// Closes the connections once they are no longer in use, or after that wait; who waits for one, or comes later, is
    /// refused. Says whether all went in order.
    pub(in crate::session) async fn close(&self, wait: Duration) -> bool {
        let unused = timeout(wait, self.turns.acquire_many(self.limit)).await;
        // Those waiting came after this and are not served.
        self.turns.close();
        let mut in_order = unused.is_ok();
        let idle = std::mem::take(&mut *self.idle.lock());
        for Idle { connection, .. } in idle {
            in_order &= matches!(timeout(wait, connection.close()).await, Ok(Ok(())));
        }
        in_order
    }

    pub(in crate::session) fn is_closed(&self) -> bool {
        self.turns.is_closed()
    }
}

impl Held<'_> {
    /// For statements that the caller follows by [`Held::done`] or, after [`Held::begin`], by [`Held::commit`].
    pub(in crate::session) fn get(&mut self) -> Result<&mut SqliteConnection, Error> {
        self.settled = false;
        self.connection.as_mut().ok_or(Error::PoolClosed)
    }

    /// Gives the connection back in order.
    pub(in crate::session) fn done(mut self) {
        self.settled = true;
    }

    /// Starts a write. It takes the lock at once, because a read that turns into a write can fail half-way.
    ///
    /// Not through sqlx, which goes on believing in a transaction that SQLite ended by itself (a full disk).
    pub(in crate::session) async fn begin(&mut self) -> Result<(), Error> {
        sqlx::raw_sql("BEGIN IMMEDIATE")
            .execute(self.get()?)
            .await?;
        Ok(())
    }

    /// Makes what was written since the beginning last. Without it all of that is undone.
    pub(in crate::session) async fn commit(mut self) -> Result<(), Error> {
        sqlx::raw_sql("COMMIT").execute(self.get()?).await?;
        self.done();
        Ok(())
    }

    /// Makes sure that no transaction of an earlier caller is open, and that the connection answers.
    async fn settle(&mut self) -> Result<(), Error> {
        if self.settled {
            return Ok(());
        }
        match sqlx::raw_sql("ROLLBACK").execute(self.get()?).await {
            // Nothing was open, or the roll-back sent on dropping has been done.
            Err(Error::Database(error)) if error.message().contains("no transaction is active") => {
            }
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        self.settled = true;
        Ok(())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else {
            return;
        };
        if !self.settled {
            // Only sends it, so that the lock is given up without waiting for the next caller, who makes sure.
            let rollback = sqlx::raw_sql("ROLLBACK").execute(&mut connection);
            drop(rollback.now_or_never());
        }
        // Under the lock, so that none is left behind by those who close.
        let mut idle = self.from.idle.lock();
        if !self.from.is_closed() {
            idle.push(Idle {
                connection,
                settled: self.settled,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_that_is_lost_is_replaced_by_one_set_up_alike() {
        let directory = tempfile::tempdir().unwrap();
        let options = SqliteConnectOptions::new()
            .filename(directory.path().join("x.db"))
            .create_if_missing(true);
        let connections = Connections::to_file(options, "CREATE TEMP TABLE x (y)", 1);
        for _ in 0..2 {
            let mut held = connections.take().await.unwrap();
            sqlx::query("SELECT * FROM x")
                .execute(held.get().unwrap())
                .await
                .unwrap();
            held.connection = None;
        }
        assert!(connections.close(TAKE_WAIT).await);
        let error = connections.take().await.unwrap_err();
        assert!(matches!(error, Error::PoolClosed));
    }

    #[tokio::test]
    async fn closing_waits_for_those_that_hold_a_connection() {
        let options = SqliteConnectOptions::new().filename(":memory:");
        let connections = Connections::to_memory(options, "");
        let held = connections.take().await.unwrap();
        let mut closing = std::pin::pin!(connections.close(TAKE_WAIT));
        assert!(closing.as_mut().now_or_never().is_none());
        let mut waiting = std::pin::pin!(connections.take());
        assert!(waiting.as_mut().now_or_never().is_none());
        held.done();
        assert!(closing.await);
        assert!(matches!(waiting.await, Err(Error::PoolClosed)));
    }
}
