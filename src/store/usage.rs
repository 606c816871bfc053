//! The limits on the bytes of sessions and answers: what all use, and which sessions go when that is too much.
//!
//! What all use is measured now and then. In between a process adds what it writes itself. Of what a measurement has left, one
//! of several processes uses a part before it measures again.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::accounts::Account;
use super::limits::{Growth, SessionLimits, StorageFull};
use super::run::AnswerLimits;
use super::sessions::session_id;
use super::shares::StatementSize;
use super::tx::{signed, values};
use super::{Store, StoreError};
use crate::ids::{Owner, SessionId};

/// How long a measurement is used, where several processes share the store.
const MEASURE_INTERVAL: Duration = Duration::from_secs(10);
/// Share of the measured room that one of several processes uses before it measures again: one part of so many.
const SHARE: u64 = 16;
/// Longest wait for the eviction that another write has started. Then this write evicts as well.
const EVICTION_WAIT: Duration = Duration::from_secs(5);
/// Most sessions that are looked up at once for an eviction; others follow.
const EVICTION_BATCH: u64 = 64;

/// At least the bytes of all rows, as far as this process knows.
#[derive(Debug, Default)]
struct Meter {
    measured: u64,
    /// Written by this process since.
    added: u64,
    at: Option<Instant>,
}

/// The limits of sessions and what is known about their use.
#[derive(Debug, Default)]
pub(super) struct SessionQuota {
    limits: Mutex<SessionLimits>,
    meter: Mutex<Meter>,
    evicting: tokio::sync::Mutex<()>,
}

/// The limits of answers and what is known about their use.
#[derive(Debug, Default)]
pub(super) struct AnswerQuota {
    limits: Mutex<AnswerLimits>,
    meter: Mutex<Meter>,
    /// Held while answers are evicted: two evictions at once would delete more than necessary.
    pub(super) evicting: tokio::sync::Mutex<()>,
}

/// The use of the store by all owners, and by one of them.
#[derive(Debug, Clone, Copy)]
struct Usage {
    total: u64,
    /// Number of owners with sessions, the one included even if it has none.
    owners: u64,
    /// Bytes of the owner.
    own: u64,
}

/// A session that may be evicted.
struct Candidate {
    owner: Owner,
    id: SessionId,
    bytes: u64,
}

impl Meter {
    /// The bytes that this process may add before it measures again; `None` if it has to measure first.
    fn room(&self, total: u64, is_shared: bool) -> Option<u64> {
        let at = self.at?;
        let room = total.saturating_sub(self.measured);
        let room = match is_shared {
            true if at.elapsed() >= MEASURE_INTERVAL => return None,
            true => room / SHARE,
            false => room,
        };
        Some(room.saturating_sub(self.added))
    }

    fn add(&mut self, bytes: u64) {
        self.added = self.added.saturating_add(bytes);
    }

    fn set(&mut self, bytes: u64) {
        *self = Self {
            measured: bytes,
            added: 0,
            at: Some(Instant::now()),
        };
    }
}

impl SessionQuota {
    pub(super) fn limits(&self) -> SessionLimits {
        *self.limits.lock()
    }

    pub(super) fn limit(&self, limits: SessionLimits) {
        *self.limits.lock() = limits;
    }

    pub(super) fn count_added(&self, bytes: u64) {
        self.meter.lock().add(bytes);
    }
}

impl AnswerQuota {
    pub(super) fn limits(&self) -> AnswerLimits {
        *self.limits.lock()
    }

    pub(super) fn limit(&self, limits: AnswerLimits) {
        *self.limits.lock() = limits;
    }

    /// Counts an answer or a key; returns whether all may exceed their limit.
    pub(super) fn count_added(&self, bytes: usize, is_shared: bool) -> bool {
        let total = self.limits().total;
        let mut meter = self.meter.lock();
        meter.add((bytes as u64).saturating_add(AnswerLimits::ROW));
        total < u64::MAX && meter.room(total, is_shared).unwrap_or(0) == 0
    }

    pub(super) fn measured(&self, bytes: u64) {
        self.meter.lock().set(bytes);
    }
}

impl Store {
    /// Sets the limits on the bytes of sessions. Without this call there are none.
    pub async fn limit_sessions(&self, limits: SessionLimits) {
        self.shared.sessions.limit(limits);
        self.engine.measure_disk(limits.min_free_disk).await;
    }

    /// Checks whether the limits allow a write to a session. If the sessions of all owners have reached their limit,
    /// sessions whose id loopwright made are deleted first: the least recently written of the owners with most bytes.
    /// Sessions with a lease are not deleted. Every write makes the same check.
    ///
    /// # Errors
    /// `SessionTooLarge`, `Full`; else when the store fails.
    pub async fn check_growth(
        &self,
        owner: &Owner,
        id: &SessionId,
        growth: Growth,
    ) -> Result<(), StoreError> {
        let least = self.shared.sessions.limits().min_free_disk;
        self.engine.measure_disk(least).await;
        self.check_session(growth)?;
        let added = growth.added();
        let check = |room| std::future::ready(Ok(if added > room { Err(added) } else { Ok(()) }));
        self.with_room(owner, id, check).await
    }

    /// The checks that need no look at the database.
    pub(super) fn check_session(&self, growth: Growth) -> Result<(), StoreError> {
        let limits = self.shared.sessions.limits();
        if growth.before.is_none() {
            self.engine.check_disk(limits.min_free_disk)?;
        }
        if growth.added() > 0 && growth.after > limits.session_bytes {
            return Err(StoreError::SessionTooLarge {
                bytes: growth.after,
                limit: limits.session_bytes,
            });
        }
        Ok(())
    }

    /// Makes an attempt at a write to a session, which may add so many bytes. If it would add more, which is the inner
    /// error, evicts sessions and makes another attempt.
    pub(super) async fn with_room<T, F>(
        &self,
        owner: &Owner,
        id: &SessionId,
        write: impl Fn(u64) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<Result<T, u64>, StoreError>>,
    {
        let quota = &self.shared.sessions;
        let total = quota.limits().total_bytes;
        if total == u64::MAX {
            let written = write(u64::MAX).await?;
            return written
                .map_err(|_| StoreError::failed("the write was refused without a limit"));
        }
        let known = || quota.meter.lock().room(total, self.is_shared());
        let mut room = known();
        if room.is_none() {
            self.session_usage(owner).await?;
            room = known();
        }
        let mut added = match write(room.unwrap_or(0)).await? {
            Ok(done) => return Ok(done),
            Err(added) => added,
        };
        for evicted in [false, true] {
            if evicted {
                self.evict_sessions(owner, id, added).await?;
            }
            let usage = self.session_usage(owner).await?;
            let share = total / usage.owners.max(1);
            let mut room = total.saturating_sub(usage.total);
            if evicted {
                room = room.max(share.saturating_sub(usage.own));
            }
            // What other processes write now counts as well.
            let server = Owner::server();
            let account = Account::Sessions;
            let reserved = self.reserve(&server, account, signed(added), signed(room));
            let Some(reservation) = reserved.await? else {
                if evicted {
                    let bytes = usage.own.saturating_add(added);
                    let full = StorageFull::Share {
                        added,
                        bytes,
                        share,
                        total,
                    };
                    return Err(StoreError::Full(full));
                }
                continue;
            };
            let written = write(added).await;
            self.settle(reservation, 0).await?;
            added = match written? {
                Ok(done) => return Ok(done),
                Err(added) => added,
            };
        }
        Err(StoreError::failed(
            "a session grew while there was made space for it",
        ))
    }

    async fn session_usage(&self, owner: &Owner) -> Result<Usage, StoreError> {
        let sql = "SELECT CAST(coalesce(sum(bytes), 0) AS bigint), count(*) FILTER (WHERE owner <> $1) + 1,
                CAST(coalesce(sum(bytes) FILTER (WHERE owner = $1), 0) AS bigint) FROM session_usage";
        let mut tx = self.read(owner, StatementSize::Large).await?;
        let mut row = tx.one(sql, values![owner.as_str()]).await?;
        let usage = Usage {
            total: row.unsigned(0)?,
            owners: row.unsigned(1)?,
            own: row.unsigned(2)?,
        };
        self.shared.sessions.meter.lock().set(usage.total);
        Ok(usage)
    }

    /// Deletes sessions without a client's id until `added` more bytes fit the limit of all sessions: the least
    /// recently written first, of the owner with the most bytes, and only of owners above the equal share. Leased
    /// sessions and the session of the write stay.
    async fn evict_sessions(
        &self,
        owner: &Owner,
        id: &SessionId,
        added: u64,
    ) -> Result<(), StoreError> {
        let total = self.shared.sessions.limits().total_bytes;
        // Concurrent evictions would delete more than necessary.
        let _alone =
            tokio::time::timeout(EVICTION_WAIT, self.shared.sessions.evicting.lock()).await;
        let mut evicted = 0_u64;
        let mut kept = vec![(owner.clone(), id.clone())];
        loop {
            let usage = self.session_usage(owner).await?;
            let excess = usage.total.saturating_add(added).saturating_sub(total);
            if excess == 0 {
                break;
            }
            let share = total / usage.owners.max(1);
            let (candidates, above) = self.candidates(owner, added, share, &kept).await?;
            if candidates.is_empty() {
                break;
            }
            let mut freed = 0;
            for Candidate { owner, id, bytes } in candidates {
                if freed >= excess.min(above) {
                    break;
                }
                let Ok(lease) = self.acquire(&owner, &id, Duration::ZERO).await else {
                    kept.push((owner, id));
                    continue;
                };
                let gone = self.delete(lease.fence()).await;
                self.release(lease).await;
                if gone? {
                    freed += bytes;
                    evicted += 1;
                }
            }
        }
        if evicted > 0 {
            tracing::info!(
                evicted,
                "sessions without a client's id were deleted to make space"
            );
        }
        Ok(())
    }

    /// The sessions that may be evicted next, all of one owner, and the bytes that the owner has above its share; none of
    /// `kept`.
    async fn candidates(
        &self,
        writer: &Owner,
        added: u64,
        share: u64,
        kept: &[(Owner, SessionId)],
    ) -> Result<(Vec<Candidate>, u64), StoreError> {
        let owners = "SELECT owner, large FROM (
                SELECT owner, bytes + CASE WHEN owner = $1 THEN $2 ELSE 0 END AS large FROM session_usage) sized
            WHERE large > $3 ORDER BY large DESC, owner";
        let sessions = "SELECT session_id, bytes FROM sessions WHERE owner = $1 AND origin > 0
            ORDER BY updated_at, num LIMIT $2";
        let mut tx = self.read(writer, StatementSize::Large).await?;
        let values = values![writer.as_str(), signed(added), signed(share)];
        for mut row in tx.rows(owners, values).await? {
            let owner: String = row.take(0)?;
            let above = row.unsigned(1)?.saturating_sub(share);
            let most = signed(EVICTION_BATCH + kept.len() as u64);
            let mut found = Vec::new();
            for mut row in tx.rows(sessions, values![&*owner, most]).await? {
                let candidate = Candidate {
                    owner: Owner::key(&owner),
                    id: session_id(row.take(0)?)?,
                    bytes: row.unsigned(1)?,
                };
                let mut kept = kept.iter();
                if !kept.any(|(owner, id)| *owner == candidate.owner && *id == candidate.id) {
                    found.push(candidate);
                }
            }
            if !found.is_empty() {
                return Ok((found, above));
            }
        }
        Ok((Vec::new(), 0))
    }
}
