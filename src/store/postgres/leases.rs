//! Leases as rows. A process takes a lease in memory first, so its turns wait in order of arrival and ask the database
//! one at a time. Between processes the order is not preserved.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use sqlx::query;
use tokio::sync::broadcast::{self, Sender};
use tokio::time::{Instant, timeout};

use super::super::StoreError;
use super::super::lease::{Hold, Lease};
use super::super::leases::{Fence, LeaseHold};
use super::super::tx::{signed, unsigned};
use super::Postgres;
use super::connect::column;
use protocol::ids::{Owner, SessionId, hex};

/// The channel on which the release of a lease that is waited for is announced.
pub(super) const CHANNEL: &str = "loopwright_lease";
/// How often a lease of another process is asked for. A process that ends without releasing it announces nothing.
const POLL: Duration = Duration::from_millis(500);
/// Most announcements that a waiter can be behind. One that misses some asks again anyway.
const ANNOUNCEMENTS: usize = 256;

/// The row of a lease that this process holds. Dropping it releases the lease in a task.
#[derive(Debug)]
pub(crate) struct RowHold {
    store: Postgres,
    fence: Fence,
    /// Released after the row.
    local: Option<Arc<LeaseHold>>,
}

/// The announcements of released leases.
#[derive(Debug)]
pub(super) struct Announcements {
    sender: Sender<String>,
}

impl Default for Announcements {
    fn default() -> Self {
        Self {
            sender: broadcast::channel(ANNOUNCEMENTS).0,
        }
    }
}

impl Drop for RowHold {
    fn drop(&mut self) {
        if let Some(local) = self.local.take() {
            let (store, fence) = (self.store.clone(), self.fence.clone());
            let inner = self.store.0.clone();
            let releasing = async move { store.release_row(fence, local).await };
            inner.tasks.spawn_on(releasing, &inner.runtime);
        }
    }
}

impl RowHold {
    /// Releases the lease and waits for that.
    pub(crate) async fn release(mut self) {
        if let Some(local) = self.local.take() {
            let (store, fence) = (self.store.clone(), self.fence.clone());
            let tasks = self.store.0.tasks.clone();
            // In a task, so that the row is released even if the caller is dropped.
            let released = tasks.spawn(async move { store.release_row(fence, local).await });
            let _released_or_panicked = released.await;
        }
    }
}

impl Postgres {
    pub(crate) async fn acquire(
        &self,
        owner: &Owner,
        id: &SessionId,
        wait: Duration,
    ) -> Result<Lease, StoreError> {
        let start = Instant::now();
        let (fence, local) = self.0.leases.acquire(owner, id, wait).await?;
        if let Some(lease) = self.take(&fence, &local).await? {
            return Ok(lease);
        }
        let key = announcement(&fence);
        let mut announcements = self.0.announcements.sender.subscribe();
        loop {
            let left = wait.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(StoreError::Busy);
            }
            let (owner, id) = (fence.owner.as_str(), fence.id.as_str());
            let sql = "UPDATE leases SET wanted = true WHERE owner = $1 AND session_id = $2 AND NOT wanted";
            let mark = || query(sql).bind(owner).bind(id);
            self.0.connections.small(&fence.owner).rows(mark).await?;
            if let Some(lease) = self.take(&fence, &local).await? {
                return Ok(lease);
            }
            let announced = async {
                loop {
                    match announcements.recv().await {
                        Ok(released) if released != key && !released.is_empty() => {}
                        Ok(_) | Err(_) => break,
                    }
                }
            };
            let _announced_or_late = timeout(POLL.min(left), announced).await;
        }
    }

    /// Takes the row of a lease if it is free, expired, or left over from an earlier lease of this process.
    async fn take(
        &self,
        fence: &Fence,
        local: &Arc<LeaseHold>,
    ) -> Result<Option<Lease>, StoreError> {
        let (store, fence, local) = (self.clone(), fence.clone(), Arc::clone(local));
        // In a task: if the caller is dropped, the row is released.
        let taking = self
            .0
            .tasks
            .spawn(async move { store.take_row(fence, local).await });
        taking.await.map_err(StoreError::failed)?
    }

    async fn take_row(
        &self,
        fence: Fence,
        local: Arc<LeaseHold>,
    ) -> Result<Option<Lease>, StoreError> {
        let Fence { owner, id, .. } = fence;
        let sql = "INSERT INTO leases (owner, session_id, token, replica) VALUES ($1, $2, nextval('lease_tokens'), $3)
            ON CONFLICT (owner, session_id) DO UPDATE
            SET token = excluded.token, replica = excluded.replica, wanted = false
            WHERE leases.replica = excluded.replica OR NOT is_alive_1(leases.replica)
            RETURNING token";
        let insert = || {
            let statement = query(sql).bind(owner.as_str()).bind(id.as_str());
            statement.bind(&*self.0.replica)
        };
        let Some(row) = self.0.connections.small(&owner).row(insert).await? else {
            return Ok(None);
        };
        let token = unsigned(column(&row, 0)?);
        let fence = Fence { owner, id, token };
        let hold = RowHold {
            store: self.clone(),
            fence: fence.clone(),
            local: Some(local),
        };
        Ok(Some(Lease {
            fence,
            hold: Hold::Row(hold),
        }))
    }

    /// Deletes the row of a lease. If that fails, it is tried again with the next renewal.
    async fn release_row(&self, fence: Fence, local: Arc<LeaseHold>) {
        if let Err(error) = self.delete_lease(&fence).await {
            tracing::warn!(%error, "a lease is not released yet");
            self.0.unreleased.lock().push(fence);
        }
        drop(local);
    }

    async fn delete_lease(&self, fence: &Fence) -> Result<(), StoreError> {
        let sql = "WITH gone AS (DELETE FROM leases WHERE owner = $1 AND session_id = $2 AND token = $3 RETURNING wanted)
            SELECT pg_notify($4, $5) FROM gone WHERE wanted";
        let key = announcement(fence);
        let (owner, id, token) = (fence.owner.as_str(), fence.id.as_str(), signed(fence.token));
        let delete = || {
            let statement = query(sql).bind(owner).bind(id).bind(token);
            statement.bind(CHANNEL).bind(&*key)
        };
        self.0
            .connections
            .small(&fence.owner)
            .rows(delete)
            .await
            .map(drop)
    }

    /// Releases the leases that could not be released before.
    pub(super) async fn release_left(&self) {
        let left = std::mem::take(&mut *self.0.unreleased.lock());
        for fence in left {
            if self.delete_lease(&fence).await.is_err() {
                self.0.unreleased.lock().push(fence);
            }
        }
    }

    pub(crate) async fn renew(&self, fence: &Fence) -> Result<(), StoreError> {
        let sql = "SELECT 1 FROM leases l
            WHERE l.owner = $1 AND l.session_id = $2 AND l.token = $3 AND is_alive_1(l.replica)";
        let (owner, id, token) = (fence.owner.as_str(), fence.id.as_str(), signed(fence.token));
        let select = || query(sql).bind(owner).bind(id).bind(token);
        let held = self.0.connections.small(&fence.owner).row(select).await?;
        held.map(drop).ok_or(StoreError::LeaseLost)
    }

    /// Tells waiters that a lease is released; with an empty text that any may be.
    pub(super) fn announce_released(&self, announced: String) {
        let _waiters = self.0.announcements.sender.send(announced);
    }
}

/// The text that announces the release of a lease. It reveals nothing of the session.
fn announcement(fence: &Fence) -> String {
    let key = format!("{}\0{}", fence.owner.as_str(), fence.id.as_str());
    let digest = Sha256::digest(key);
    hex(digest.get(..16).unwrap_or_default())
}
