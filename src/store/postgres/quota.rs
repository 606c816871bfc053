//! The limits on the bytes of sessions and answers.
//!
//! The sum over all rows is measured now and then; in between, a process adds what it writes itself. So with several
//! processes a limit can be exceeded by what the others write between two measurements.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sqlx::query;

use super::super::StoreError;
use super::super::limits::{EVICTION_WAIT, Growth, SessionLimits, StorageFull};
use super::super::run::AnswerLimits;
use super::Postgres;
use super::connect::{column, signed, unsigned};
use crate::ids::{Owner, SessionId};

/// How long a measurement is used.
const MEASURE_INTERVAL: Duration = Duration::from_secs(10);
/// Most sessions that are looked up at once for an eviction; others follow.
const EVICTION_BATCH: i64 = 64;

/// At least the bytes of all rows, as far as this process knows.
#[derive(Debug, Default)]
struct Meter {
    most_bytes: u64,
    measured: Option<Instant>,
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

impl Meter {
    /// The bytes below the limit, if a measurement is still of use.
    fn room(&self, total: u64) -> Option<u64> {
        let measured = self.measured?;
        (measured.elapsed() < MEASURE_INTERVAL).then(|| total.saturating_sub(self.most_bytes))
    }

    fn set(&mut self, bytes: u64) {
        *self = Self {
            most_bytes: bytes,
            measured: Some(Instant::now()),
        };
    }
}

impl SessionQuota {
    pub(super) fn limits(&self) -> SessionLimits {
        *self.limits.lock()
    }

    pub(super) fn count_added(&self, bytes: u64) {
        let mut meter = self.meter.lock();
        meter.most_bytes = meter.most_bytes.saturating_add(bytes);
    }
}

impl AnswerQuota {
    pub(super) fn limits(&self) -> AnswerLimits {
        *self.limits.lock()
    }

    /// Counts an answer or a key; returns whether all may exceed their limit.
    pub(super) fn count_added(&self, bytes: usize) -> bool {
        let total = self.limits().total;
        let mut meter = self.meter.lock();
        let added = (bytes as u64).saturating_add(AnswerLimits::ROW);
        meter.most_bytes = meter.most_bytes.saturating_add(added);
        total < u64::MAX && (meter.most_bytes > total || meter.room(total).is_none())
    }

    pub(super) fn measured(&self, bytes: u64) {
        self.meter.lock().set(bytes);
    }
}

impl Postgres {
    pub(in crate::store) fn limit_sessions(&self, limits: SessionLimits) {
        *self.0.sessions.limits.lock() = limits;
    }

    pub(in crate::store) fn limit_answers(&self, limits: AnswerLimits) {
        *self.0.answers.limits.lock() = limits;
    }

    pub(in crate::store) async fn check_growth(
        &self,
        owner: &Owner,
        id: &SessionId,
        growth: Growth,
    ) -> Result<(), StoreError> {
        let (limit, added) = (self.0.sessions.limits().session_bytes, growth.added());
        if added > 0 && growth.after > limit {
            let bytes = growth.after;
            return Err(StoreError::SessionTooLarge { bytes, limit });
        }
        let check = |room| std::future::ready(Ok(if added > room { Err(added) } else { Ok(()) }));
        self.with_room(owner, id, check).await
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
        let quota = &self.0.sessions;
        let total = quota.limits().total_bytes;
        if total == u64::MAX {
            let written = write(u64::MAX).await?;
            return written
                .map_err(|_| StoreError::failed("the write was refused without a limit"));
        }
        let known = quota.meter.lock().room(total);
        let mut added = match known {
            None => 0,
            Some(room) => match write(room).await? {
                Ok(done) => return Ok(done),
                Err(added) => added,
            },
        };
        for evicted in [false, true] {
            if evicted {
                self.evict_sessions(owner, id, added).await?;
            }
            let usage = self.session_usage(owner).await?;
            let share = total / usage.owners.max(1);
            let room = total.saturating_sub(usage.total);
            let room = match evicted {
                true => room.max(share.saturating_sub(usage.own)),
                false => room,
            };
            added = match write(room).await? {
                Ok(done) => return Ok(done),
                Err(added) => added,
            };
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
        }
        Err(StoreError::failed("no attempt at a write was made"))
    }

    async fn session_usage(&self, owner: &Owner) -> Result<Usage, StoreError> {
        let sql = "SELECT coalesce(sum(bytes), 0)::bigint, count(DISTINCT owner) FILTER (WHERE owner <> $1) + 1,
            coalesce(sum(bytes) FILTER (WHERE owner = $1), 0)::bigint FROM sessions";
        let row = self
            .0
            .connections
            .large(owner)
            .one(|| query(sql).bind(owner.as_str()))
            .await?;
        let usage = Usage {
            total: unsigned(column(&row, 0)?),
            owners: unsigned(column(&row, 1)?),
            own: unsigned(column(&row, 2)?),
        };
        self.0.sessions.meter.lock().set(usage.total);
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
        let total = self.0.sessions.limits().total_bytes;
        // Concurrent evictions would delete more than necessary.
        let _alone = tokio::time::timeout(EVICTION_WAIT, self.0.sessions.evicting.lock()).await;
        let mut evicted = 0;
        loop {
            let usage = self.session_usage(owner).await?;
            let excess = usage.total.saturating_add(added).saturating_sub(total);
            if excess == 0 {
                break;
            }
            let share = total / usage.owners.max(1);
            let candidates = self.candidates((owner, id), added, share).await?;
            let (mut freed, mut deleted) = (0, 0);
            for (owner, id, bytes, above) in candidates {
                if freed >= excess.min(above) {
                    break;
                }
                let Ok(lease) = self.acquire(&owner, &id, Duration::ZERO).await else {
                    continue;
                };
                let gone = self.delete(lease.fence()).await;
                self.release(lease).await;
                if gone? {
                    freed += bytes;
                    deleted += 1;
                }
            }
            evicted += deleted;
            if deleted == 0 {
                break;
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

    /// The sessions that may be evicted of the owner with the most bytes who has any: their bytes, and those that the
    /// owner has above its share.
    async fn candidates(
        &self,
        (owner, id): (&Owner, &SessionId),
        added: u64,
        share: u64,
    ) -> Result<Vec<(Owner, SessionId, u64, u64)>, StoreError> {
        let sql = "WITH large AS (
                SELECT owner, sum(bytes)::bigint + CASE WHEN owner = $1 THEN $3 ELSE 0 END AS bytes
                FROM sessions GROUP BY owner),
            evictable AS (
                SELECT s.owner, s.session_id, s.bytes, s.updated_at, s.num, large.bytes AS large
                FROM sessions s JOIN large ON large.owner = s.owner
                WHERE s.origin > 0 AND large.bytes > $4 AND NOT (s.owner = $1 AND s.session_id = $2)
                  AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.owner = s.owner AND l.session_id = s.session_id
                                    AND is_alive_1(l.replica)))
            SELECT owner, session_id, bytes, large FROM evictable
            WHERE owner = (SELECT owner FROM evictable ORDER BY large DESC, owner LIMIT 1)
            ORDER BY updated_at, num LIMIT $5";
        let select = || {
            let statement = query(sql).bind(owner.as_str()).bind(id.as_str());
            statement
                .bind(signed(added))
                .bind(signed(share))
                .bind(EVICTION_BATCH)
        };
        let mut candidates = Vec::new();
        for row in self.0.connections.large(owner).rows(select).await? {
            let (owner, id): (&str, String) = (column(&row, 0)?, column(&row, 1)?);
            let id = SessionId::try_from(id).map_err(StoreError::failed)?;
            let (bytes, large): (i64, i64) = (column(&row, 2)?, column(&row, 3)?);
            let above = unsigned(large).saturating_sub(share);
            candidates.push((Owner::key(owner), id, unsigned(bytes), above));
        }
        Ok(candidates)
    }
}
