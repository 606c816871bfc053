//! The row that shows that this process is alive, and the clean-up after processes that have ended.

use std::time::Duration;

use sqlx::query;
use tokio::time::timeout;

use super::super::StoreError;
use super::super::replica::OtherReplica;
use super::super::tx::signed;
use super::Postgres;
use super::connect::{Statement, column};
use protocol::ids::{Owner, RunId, SessionId};

/// Longest pause after a failed renewal.
const RENEWAL_PAUSE: Duration = Duration::from_secs(1);
/// Longest wait for each step of closing. After it the step is given up.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

impl Postgres {
    /// Renews the row of this process, and with it all its leases.
    pub(super) async fn renew_replica(&self) -> Result<(), StoreError> {
        let renew = || self.renewal();
        self.0.connections.heartbeat().rows(renew).await.map(drop)
    }

    /// The statement that renews the row.
    pub(super) fn renewal(&self) -> Statement<'_> {
        let sql = "INSERT INTO replicas (id, expires_at, address, lock, lock_server)
            VALUES ($1, now() + $2 * interval '1 millisecond', $3, $4, $5)
            ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at, address = excluded.address,
                lock = excluded.lock, lock_server = excluded.lock_server, unlocked_at = NULL";
        let lease = signed(self.0.lease.as_millis());
        let address = self.0.address.get().map(String::as_str);
        let (lock, server) = self.0.presence.lock();
        let statement = query(sql).bind(&*self.0.replica).bind(lease);
        statement.bind(address).bind(lock).bind(server)
    }

    /// Puts the URL of this process into its row, which every renewal writes again.
    pub(crate) async fn announce(&self, address: &str) -> Result<(), StoreError> {
        self.0.address.get_or_init(|| address.to_owned());
        self.renew_replica().await
    }

    pub(crate) async fn replica_of_run(
        &self,
        owner: &Owner,
        run: &RunId,
    ) -> Result<Option<OtherReplica>, StoreError> {
        let sql = "SELECT p.address, r.status = 'ended' FROM runs r JOIN replicas p ON p.id = r.replica
            WHERE r.id = $1 AND r.owner = $2 AND r.replica <> $3 AND r.status <> 'interrupted' AND p.expires_at > now()";
        self.other_replica(sql, run.as_str(), owner).await
    }

    pub(crate) async fn replica_of_session(
        &self,
        owner: &Owner,
        id: &SessionId,
    ) -> Result<Option<OtherReplica>, StoreError> {
        let sql = "SELECT p.address, false FROM leases l JOIN replicas p ON p.id = l.replica
            WHERE l.session_id = $1 AND l.owner = $2 AND l.replica <> $3 AND p.expires_at > now()";
        self.other_replica(sql, id.as_str(), owner).await
    }

    async fn other_replica(
        &self,
        sql: &'static str,
        id: &str,
        owner: &Owner,
    ) -> Result<Option<OtherReplica>, StoreError> {
        let select = || {
            let statement = query(sql).bind(id).bind(owner.as_str());
            statement.bind(&*self.0.replica)
        };
        let Some(row) = self.0.connections.small(owner).row(select).await? else {
            return Ok(None);
        };
        Ok(Some(OtherReplica {
            address: column(&row, 0)?,
            ended: column(&row, 1)?,
        }))
    }

    /// Marks the runs of dead processes as interrupted, frees their leases, and the idempotency keys of runs that they
    /// never recorded. The rows of `ended` processes are deleted already.
    pub(super) async fn reap_dead_replicas(&self, ended: i64) -> Result<(), StoreError> {
        // After a crash of the database, all processes get the time to renew their rows.
        let sql = "WITH settled AS MATERIALIZED (
                SELECT now() > pg_postmaster_start_time() + $1 * interval '1 millisecond' AS yes),
            dead AS (DELETE FROM replicas WHERE (SELECT yes FROM settled) AND expires_at <= now() RETURNING id),
            broken AS (UPDATE runs SET status = 'interrupted', ended_at = micros_1()
                       WHERE (SELECT yes FROM settled) AND status = 'running' AND NOT is_alive_1(replica) RETURNING 1),
            freed AS (DELETE FROM leases WHERE (SELECT yes FROM settled) AND NOT is_alive_1(replica) RETURNING 1),
            unclaimed AS (DELETE FROM idempotency_keys
                          WHERE (SELECT yes FROM settled) AND NOT recorded AND NOT is_alive_1(replica) RETURNING 1)
            SELECT (SELECT count(*) FROM dead), (SELECT count(*) FROM broken), (SELECT count(*) FROM freed)";
        let lease = signed(self.0.lease.as_millis());
        let row = self
            .0
            .connections
            .heartbeat()
            .one(|| query(sql).bind(lease))
            .await?;
        let (replicas, runs, leases): (i64, i64, i64) =
            (column(&row, 0)?, column(&row, 1)?, column(&row, 2)?);
        let replicas = replicas + ended;
        if replicas > 0 || runs > 0 {
            tracing::info!(
                replicas,
                runs,
                leases,
                "another process that uses the store is gone"
            );
        }
        Ok(())
    }

    /// Renews the row of this process for ever.
    pub(super) async fn heartbeat(&self) {
        let period = self.0.lease / 3;
        let mut failing = false;
        loop {
            let pause = match failing {
                true => RENEWAL_PAUSE.min(period),
                false => period,
            };
            let _late_or_lost = timeout(pause, self.0.presence.lost.notified()).await;
            let renewed = match self.renew_replica().await {
                Ok(()) => self.reap_dead_replicas(0).await,
                failed => failed,
            };
            match (&renewed, failing) {
                (Ok(()), true) => tracing::info!("the session store can be reached again"),
                (Err(error), false) => {
                    tracing::error!(%error, "the leases of sessions could not be renewed");
                }
                (Ok(()), false) | (Err(_), true) => {}
            }
            failing = renewed.is_err();
            if !failing {
                self.release_left().await;
            }
        }
    }

    pub(crate) async fn close(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        let tasks = timeout(CLOSE_LIMIT, self.0.tasks.wait()).await.is_ok();
        let leave = async {
            if !self.0.serves {
                return Ok(());
            }
            let delete = || query("DELETE FROM replicas WHERE id = $1").bind(&*self.0.replica);
            self.0.connections.server().rows(delete).await?;
            self.reap_dead_replicas(0).await
        };
        let left = timeout(CLOSE_LIMIT, leave)
            .await
            .is_ok_and(|left| left.is_ok());
        let closed = timeout(CLOSE_LIMIT, self.0.connections.close())
            .await
            .is_ok();
        if !(tasks && left && closed) {
            tracing::warn!(tasks, left, closed, "session store not closed in order");
        }
    }
}
