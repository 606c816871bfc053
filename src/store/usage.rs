//! The limits on the bytes of sessions and answers: the use of all owners, and which sessions are evicted when it is
//! too much.
//!
//! The use of all owners is measured from time to time. Between two measurements a process adds its own writes. With
//! several processes, each uses only a part of the rest before it measures again.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::accounts::{Account, AccountReservation, lock};
use super::limits::{Growth, SessionLimits, StorageFull};
use super::run::AnswerLimits;
use super::shares::StatementSize;
use super::tx::{Tx, signed, values};
use super::{Store, StoreError, retrying};
use protocol::ids::{Owner, SessionId};

/// How long a measurement is used, where several processes share the store.
const MEASURE_INTERVAL: Duration = Duration::from_secs(10);
/// Share of the measured room that one of several processes uses before it measures again: one part of so many.
const SHARE: u64 = 16;
/// An upper bound of the bytes of all rows, from the view of this process.
#[derive(Debug, Default)]
struct Meter {
    measured: u64,
    /// Written by this process since.
    added: u64,
    at: Option<Instant>,
}

/// The limits of sessions and their measured use.
#[derive(Debug, Default)]
pub(super) struct SessionQuota {
    limits: Mutex<SessionLimits>,
    meter: Mutex<Meter>,
    /// Held while sessions are evicted.
    pub(super) evicting: tokio::sync::Mutex<()>,
}

/// The limits of answers and their measured use.
#[derive(Debug, Default)]
pub(super) struct AnswerQuota {
    limits: Mutex<AnswerLimits>,
    meter: Mutex<Meter>,
    /// Held while answers are evicted: two evictions at once would delete more than necessary.
    pub(super) evicting: tokio::sync::Mutex<()>,
}

/// How many bytes a write may add.
#[derive(Debug, Clone, Copy)]
pub(super) enum Room {
    Unlimited,
    /// The rest that the last measurement leaves when the write is made.
    Metered,
    /// These, which are reserved.
    Reserved(u64),
}

/// The use of the store by all owners, and by one of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionUsage {
    pub(super) total: u64,
    /// Number of owners with sessions, the one included even if it has none.
    pub(super) owners: u64,
    /// Bytes of the owner.
    own: u64,
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
        let check = |room| {
            let fits = self.room(room).is_some_and(|most| added <= most);
            std::future::ready(Ok(if fits { Ok(()) } else { Err(added) }))
        };
        self.with_room(owner, id, check).await
    }

    /// The checks that do not read the database.
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

    /// Attempts a write to a session within a number of bytes. If it would add more, which is the inner error, evicts
    /// sessions and attempts it again.
    pub(super) async fn with_room<T, F>(
        &self,
        owner: &Owner,
        id: &SessionId,
        write: impl Fn(Room) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<Result<T, u64>, StoreError>>,
    {
        let quota = &self.shared.sessions;
        if quota.limits().total_bytes == u64::MAX {
            let written = write(Room::Unlimited).await?;
            return written
                .map_err(|_| StoreError::failed("the write was refused without a limit"));
        }
        if self.room(Room::Metered).is_none() {
            self.session_usage(owner).await?;
        }
        let mut added = match write(Room::Metered).await? {
            Ok(done) => return Ok(done),
            Err(added) => added,
        };
        for evicted in [false, true] {
            if evicted {
                self.evict_sessions(owner, id, added).await?;
            }
            // What other processes write now counts as well.
            let reservation = match self.reserve_growth(owner, added, evicted).await? {
                Ok(reservation) => reservation,
                Err(full) if evicted => return Err(StoreError::Full(full)),
                Err(_) => continue,
            };
            let written = write(Room::Reserved(added)).await;
            if let Err(error) = self.settle(reservation, 0).await {
                tracing::warn!(%error, "an amount stays reserved until this process ends");
            }
            added = match written? {
                Ok(done) => return Ok(done),
                Err(added) => added,
            };
        }
        Err(StoreError::failed(
            "a session grew while there was made space for it",
        ))
    }

    /// Reserves bytes of all sessions for a write of an owner. After an eviction an owner may have its share in any case.
    async fn reserve_growth(
        &self,
        owner: &Owner,
        added: u64,
        evicted: bool,
    ) -> Result<Result<AccountReservation, StorageFull>, StoreError> {
        let total = self.shared.sessions.limits().total_bytes;
        let account = Account::Sessions;
        let reservation = &AccountReservation::new(owner, account);
        let reserved = retrying(|| async move {
            let mut tx = self.begin(owner, StatementSize::Large).await?;
            lock(&mut tx, &Owner::server(), account).await?;
            // Measured under the lock, so that no write is missed that is settled now.
            let usage = self.measure(&mut tx, owner).await?;
            let (bytes, share) = (usage.own.saturating_add(added), total / usage.owners.max(1));
            let fits = usage.total.saturating_add(added) <= total || (evicted && bytes <= share);
            if fits {
                let amount = signed(added);
                self.insert_reservation(&mut tx, reservation, amount)
                    .await?;
            }
            tx.commit().await?;
            let full = StorageFull::Share {
                added,
                bytes,
                share,
                total,
            };
            Ok(if fits { Ok(()) } else { Err(full) })
        });
        Ok(reserved.await?.map(|()| self.keep(reservation)))
    }

    /// The bytes that a write may add; `None` if that has to be measured first.
    pub(super) fn room(&self, room: Room) -> Option<u64> {
        let quota = &self.shared.sessions;
        let total = quota.limits().total_bytes;
        match room {
            Room::Unlimited => Some(u64::MAX),
            Room::Metered => quota.meter.lock().room(total, self.is_shared()),
            Room::Reserved(bytes) => Some(bytes),
        }
    }

    /// Counts the bytes of a write, if they fit; returns whether they do.
    pub(super) fn admit(&self, room: Room, added: u64) -> bool {
        let quota = &self.shared.sessions;
        let total = quota.limits().total_bytes;
        let mut meter = quota.meter.lock();
        let most = match room {
            Room::Unlimited => u64::MAX,
            Room::Metered => meter.room(total, self.is_shared()).unwrap_or(0),
            Room::Reserved(bytes) => bytes,
        };
        if added <= most {
            meter.add(added);
        }
        added <= most
    }

    pub(super) async fn session_usage(&self, owner: &Owner) -> Result<SessionUsage, StoreError> {
        let mut tx = self.read(owner, StatementSize::Large).await?;
        self.measure(&mut tx, owner).await
    }

    /// Measures the use of all sessions, including the bytes that are reserved for writes.
    async fn measure(&self, tx: &mut Tx, owner: &Owner) -> Result<SessionUsage, StoreError> {
        let sql = "SELECT CAST(coalesce(sum(bytes), 0) AS bigint), count(*) FILTER (WHERE owner <> $1) + 1,
                CAST(coalesce(sum(bytes) FILTER (WHERE owner = $1), 0) AS bigint),
                (SELECT CAST(coalesce(sum(amount), 0) AS bigint) FROM reservations WHERE account = $2),
                (SELECT CAST(coalesce(sum(amount), 0) AS bigint) FROM reservations WHERE account = $2 AND owner = $1)
            FROM session_usage";
        let values = values![owner.as_str(), Account::Sessions.as_str()];
        let mut row = tx.one(sql, values).await?;
        let usage = SessionUsage {
            total: row.unsigned(0)?.saturating_add(row.unsigned(3)?),
            owners: row.unsigned(1)?,
            own: row.unsigned(2)?.saturating_add(row.unsigned(4)?),
        };
        self.shared.sessions.meter.lock().set(usage.total);
        Ok(usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_several_processes_uses_a_part_of_what_was_measured() {
        let mut meter = Meter::default();
        assert_eq!(meter.room(1_000, true), None);
        meter.set(200);
        assert_eq!(meter.room(1_000, false), Some(800));
        assert_eq!(meter.room(1_000, true), Some(800 / SHARE));
        meter.add(30);
        assert_eq!(meter.room(1_000, true), Some(800 / SHARE - 30));
        meter.add(800);
        assert_eq!(meter.room(1_000, true), Some(0));
        assert_eq!(meter.room(1_000, false), Some(0));
        meter.at = Instant::now().checked_sub(MEASURE_INTERVAL);
        assert_eq!(meter.room(1_000, true), None);
        assert_eq!(meter.room(1_000, false), Some(0));
    }
}
