//! How a process shows that it is alive, besides the row that it renews: it holds a lock on a connection of its own.
//! The database frees the lock when that connection ends, after kill -9 too. The other processes check whether the lock
//! is free.
//!
//! A process that has lost the connection immediately notes that in its row, over the first connection that it gets.
//! Until it holds another lock, its row alone shows whether it is alive. The connection also carries the notifications
//! of released leases.

use std::time::Duration;

use parking_lot::Mutex;
use sqlx::postgres::PgListener;
use sqlx::{Executor, query};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::super::StoreError;
use super::super::tx::signed;
use super::Postgres;
use super::connect::{CHECK_LIMIT, column, failed};
use super::leases::CHANNEL;

/// How long a lock has to be free until its process counts as dead. A process that lives says so within that time. The locks
/// are looked at twice as often.
/// Tried by `presence::a_process_whose_connections_are_cut_keeps_its_leases`.
const GRACE: Duration = Duration::from_secs(1);

/// The lock of this process.
#[derive(Debug, Default)]
pub(super) struct Presence {
    held: Mutex<Option<HeldLock>>,
    /// Notified when the lock is lost.
    pub(super) lost: Notify,
}

/// A lock, and the start of the server on which it is held.
#[derive(Debug, Clone, Copy)]
struct HeldLock {
    number: i64,
    server: i64,
}

/// Why a lock is not held any more.
enum LockLoss {
    /// The connection has ended.
    Disconnected,
    /// The connection works, but leads to another process of the database server now.
    Pooled,
}

impl Presence {
    /// The number of the lock and its server, for the row of this process.
    pub(super) fn lock(&self) -> (Option<i64>, Option<i64>) {
        let held = *self.held.lock();
        (held.map(|held| held.number), held.map(|held| held.server))
    }

    fn lose(&self) {
        *self.held.lock() = None;
        self.lost.notify_one();
    }
}

impl Postgres {
    /// Makes a connection, takes a new lock on it and writes that into the row of this process.
    pub(super) async fn take_lock(&self) -> Result<PgListener, StoreError> {
        let taking = timeout(CHECK_LIMIT, async {
            let mut listener = PgListener::connect_with(&self.0.connections.single()).await?;
            listener.eager_reconnect(false);
            let number = rand::random_range(0..=i64::MAX);
            let lock = query("SELECT pg_advisory_lock($1), server_6()").bind(number);
            let row = lock.fetch_one(&mut listener).await?;
            listener.listen(CHANNEL).await?;
            Ok((listener, number, row))
        });
        let taken = taken_in_time(taking.await)?;
        let (mut listener, number, row) = taken;
        let server = column(&row, 1)?;
        *self.0.presence.held.lock() = Some(HeldLock { number, server });
        // On this connection, which is the first one available after an outage.
        let renewed = timeout(CHECK_LIMIT, self.renewal().execute(&mut listener)).await;
        match taken_in_time(renewed) {
            Ok(_) => Ok(listener),
            Err(error) => {
                self.0.presence.lose();
                Err(error)
            }
        }
    }

    /// Holds a lock, and notifies waiters of released leases, for ever.
    pub(super) async fn attend(&self, mut listener: Option<PgListener>) {
        loop {
            if let Some(connected) = listener.take() {
                let loss = self.hold(connected).await;
                self.0.presence.lose();
                if matches!(loss, LockLoss::Pooled) {
                    tracing::warn!(
                        "a pooler changes the connections of this process to the database; without session pooling, \
                         others notice its end only when its lease has ended"
                    );
                    return;
                }
            } else {
                // The pause is short enough that a living process has a lock in time.
                sleep(GRACE / 5).await;
            }
            listener = self.take_lock().await.ok();
        }
    }

    async fn hold(&self, mut listener: PgListener) -> LockLoss {
        let period = self.0.lease / 3;
        let (number, _) = self.0.presence.lock();
        loop {
            match timeout(period, listener.try_recv()).await {
                Ok(Ok(Some(announced))) => self.announce_released(announced.payload().to_owned()),
                Ok(Ok(None) | Err(_)) => return LockLoss::Disconnected,
                // Also keeps those from closing the connection who do so after a time without use.
                Err(_) => {
                    let check = query("SELECT holds_lock_6($1)").bind(number);
                    let checked = timeout(CHECK_LIMIT, listener.fetch_one(check)).await;
                    match checked.map(|row| row.map(|row| column(&row, 0))) {
                        Ok(Ok(Ok(true))) => {}
                        Ok(Ok(Ok(false))) => return LockLoss::Pooled,
                        Ok(Ok(Err(_)) | Err(_)) | Err(_) => return LockLoss::Disconnected,
                    }
                }
            }
        }
    }

    /// Checks the locks of the other processes, for ever.
    pub(super) async fn watch(&self) {
        loop {
            // What fails is said by the renewal.
            let suspected = self.reap_unlocked_replicas().await.unwrap_or_default();
            sleep(if suspected > 0 { GRACE } else { GRACE / 2 }).await;
        }
    }

    /// Buries the processes whose locks are free; returns how many may be dead soon.
    async fn reap_unlocked_replicas(&self) -> Result<i64, StoreError> {
        let sql = "SELECT suspected, dead FROM bury_unlocked_6($1, $2)";
        let grace = signed(GRACE.as_millis());
        let select = || query(sql).bind(&*self.0.replica).bind(grace);
        let row = self.0.connections.heartbeat().one(select).await?;
        let dead: i64 = column(&row, 1)?;
        if dead > 0 {
            // Any lease may be free.
            self.announce_released(String::new());
            self.reap_dead_replicas(dead).await?;
        }
        column(&row, 0)
    }
}

fn taken_in_time<T>(
    done: Result<Result<T, sqlx::Error>, tokio::time::error::Elapsed>,
) -> Result<T, StoreError> {
    let done = done.unwrap_or(Err(sqlx::Error::PoolTimedOut));
    done.map_err(failed)
}
