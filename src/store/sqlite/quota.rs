//! The limits on the bytes of sessions: checks before and in a write, and eviction when all sessions together have
//! reached their limit.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rusqlite::{Connection, params};
use tokio::time::timeout;

use super::super::StoreError;
use super::super::clock::Clock;
use super::super::limits::{EVICTION_WAIT, Growth, SessionLimits, StorageFull};
use super::Sqlite;
use super::connections::{Executor, StatementError};
use super::size::unsigned;
use super::sweep;
use super::write::{HIDDEN, count};
use crate::ids::{Owner, SessionId};

/// What a transaction that writes a session is made with.
#[derive(Debug, Clone, Copy)]
pub(super) struct WriteContext<'a> {
    pub(super) clock: &'a Clock,
    pub(super) quota: &'a Quota,
    pub(super) attempt: Attempt,
}

/// How long a measurement of the free disk space is used.
const DISK_CHECK: Duration = Duration::from_secs(2);
/// Most sessions that are looked up at once for an eviction; others follow.
const EVICTION_BATCH: usize = 64;

/// Whether a write that exceeds the total limit may still be followed by an eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    /// The write is refused, so that the caller can evict sessions and try again.
    First,
    /// Sessions were evicted. The write is refused only if its owner has more than an equal share.
    AfterEviction,
}

/// The limits and what is known about their use.
#[derive(Debug)]
pub(super) struct Quota {
    limits: Mutex<SessionLimits>,
    /// At least the bytes of all sessions; `u64::MAX` if unknown. It makes the sum unnecessary while it is below the
    /// limit. Changed only by the holder of the writer's connection.
    most_bytes: AtomicU64,
    disk: Mutex<DiskSpace>,
    evicting: tokio::sync::Mutex<()>,
}

/// The last measurement of the free disk space.
#[derive(Debug, Default)]
struct DiskSpace {
    /// A path on the disk; `None` for a store in memory.
    path: Option<PathBuf>,
    measured: Option<Instant>,
    /// `None` before the first measurement, and if it fails.
    free: Option<u64>,
}

/// The use of the store by all owners, and by one of them.
#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    total: u64,
    /// Number of owners with sessions, the one included even if it has none.
    owners: u64,
    /// Bytes of the owner.
    own: u64,
}

impl Quota {
    pub(super) fn new(path: Option<PathBuf>) -> Self {
        Self {
            limits: Mutex::default(),
            most_bytes: AtomicU64::new(u64::MAX),
            disk: Mutex::new(DiskSpace {
                path,
                ..DiskSpace::default()
            }),
            evicting: tokio::sync::Mutex::default(),
        }
    }

    fn limits(&self) -> SessionLimits {
        *self.limits.lock()
    }

    /// Checks a write in its transaction.
    ///
    /// # Errors
    /// `SessionTooLarge`, `Full`; the transaction must then be rolled back.
    pub(super) fn check(
        &self,
        connection: &Connection,
        owner: &str,
        growth: Growth,
        attempt: Attempt,
    ) -> Result<(), StatementError> {
        let limits = self.limits();
        self.check_session(limits, growth)?;
        let added = growth.added();
        if added == 0 || limits.total_bytes == u64::MAX {
            return Ok(());
        }
        let bound = self
            .most_bytes
            .load(Ordering::Relaxed)
            .saturating_add(added);
        if bound <= limits.total_bytes {
            self.most_bytes.store(bound, Ordering::Relaxed);
            return Ok(());
        }
        let usage = Usage::of(connection, owner)?;
        let total = usage.total.saturating_add(added);
        self.most_bytes.store(total, Ordering::Relaxed);
        check_share(limits, usage, added, attempt)
    }

    /// The checks that need no look at the database.
    fn check_session(&self, limits: SessionLimits, growth: Growth) -> Result<(), StoreError> {
        if growth.before.is_none()
            && let Some(free) = self.disk.lock().free
            && free < limits.min_free_disk
        {
            let least = limits.min_free_disk;
            return Err(StoreError::Full(StorageFull::Disk { free, least }));
        }
        if growth.added() > 0 && growth.after > limits.session_bytes {
            return Err(StoreError::SessionTooLarge {
                bytes: growth.after,
                limit: limits.session_bytes,
            });
        }
        Ok(())
    }

    /// Whether the free space has to be measured: `None` if not, else whether the last measurement refuses new
    /// sessions.
    fn disk_check(&self) -> Option<bool> {
        let least = self.limits().min_free_disk;
        let mut disk = self.disk.lock();
        if least == 0 || disk.path.is_none() {
            return None;
        }
        let now = Instant::now();
        if let Some(measured) = disk.measured
            && now.duration_since(measured) < DISK_CHECK
        {
            return None;
        }
        disk.measured = Some(now);
        Some(disk.free.is_none_or(|free| free < least))
    }

    /// Measures the free space. Blocks.
    fn measure_disk(&self) {
        let Some(path) = self.disk.lock().path.clone() else {
            return;
        };
        let free = match rustix::fs::statvfs(&path) {
            Ok(found) => Some(found.f_bavail.saturating_mul(found.f_frsize)),
            Err(error) => {
                tracing::warn!(%error, "the free space of the session store's disk is unknown");
                None
            }
        };
        self.disk.lock().free = free;
    }
}

fn check_share(
    limits: SessionLimits,
    usage: Usage,
    added: u64,
    attempt: Attempt,
) -> Result<(), StatementError> {
    let total = limits.total_bytes;
    let (bytes, share) = (usage.own.saturating_add(added), total / usage.owners.max(1));
    if usage.total.saturating_add(added) <= total
        || (attempt == Attempt::AfterEviction && bytes <= share)
    {
        return Ok(());
    }
    let full = StorageFull::Share {
        added,
        bytes,
        share,
        total,
    };
    Err(StoreError::Full(full).into())
}

impl Usage {
    fn of(connection: &Connection, owner: &str) -> Result<Self, StatementError> {
        let mut statement = connection.prepare_cached(
            "SELECT coalesce(sum(bytes), 0), count(*), coalesce(sum(bytes) FILTER (WHERE owner = ?1), 0),
                    count(*) FILTER (WHERE owner = ?1)
             FROM session_usage WHERE owner <> ?2",
        )?;
        let usage = statement.query_row([owner, HIDDEN], |row| {
            Ok(Self {
                total: unsigned(row.get(0)?),
                owners: unsigned(row.get(1)?) + 1 - unsigned(row.get(3)?),
                own: unsigned(row.get(2)?),
            })
        });
        Ok(usage?)
    }
}

impl Sqlite {
    /// Sets the limits, and measures the free disk space.
    pub(in crate::store) async fn limit_sessions(&self, limits: SessionLimits) {
        *self.0.quota.limits.lock() = limits;
        self.check_disk().await;
    }

    /// Checks whether a write would be refused. Sessions are evicted if that makes space for it.
    pub(in crate::store) async fn check_growth(
        &self,
        owner: &Owner,
        id: &SessionId,
        growth: Growth,
    ) -> Result<(), StoreError> {
        self.check_disk().await;
        let quota = &self.0.quota;
        let limits = quota.limits();
        quota.check_session(limits, growth)?;
        let added = growth.added();
        let bound = quota.most_bytes.load(Ordering::Relaxed);
        if added == 0 || bound.saturating_add(added) <= limits.total_bytes {
            return Ok(());
        }
        self.with_eviction(owner, id, |attempt| {
            let owner = owner.clone();
            self.0
                .reader
                .run(owner.clone(), Executor::Task, move |connection, _| {
                    let usage = Usage::of(connection, owner.as_str())?;
                    check_share(limits, usage, added, attempt)
                })
        })
        .await
    }

    /// Makes an attempt at a write to a session. If it is refused because all sessions have reached their limit, evicts
    /// sessions and makes another attempt.
    pub(super) async fn with_eviction<T, F>(
        &self,
        owner: &Owner,
        id: &SessionId,
        write: impl Fn(Attempt) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        match write(Attempt::First).await {
            Err(StoreError::Full(StorageFull::Share { added, .. })) => {
                self.evict_sessions(owner, id, added).await?;
                write(Attempt::AfterEviction).await
            }
            done => done,
        }
    }

    /// Measures the free disk space if the last measurement is too old. Waits for it only if the last one would refuse
    /// a new session.
    pub(super) async fn check_disk(&self) {
        let Some(wait) = self.0.quota.disk_check() else {
            return;
        };
        let store = self.clone();
        let measuring = self.0.tasks.spawn_blocking(move || {
            store.0.quota.measure_disk();
            if let Some(reserve) = &store.0.reserve {
                reserve.keep();
            }
        });
        if wait && timeout(DISK_CHECK, measuring).await.is_err() {
            tracing::warn!(
                "the free space of the session store's disk could not be measured in time"
            );
        }
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
        let total = self.0.quota.limits().total_bytes;
        // Concurrent evictions would delete more than necessary.
        let _alone = timeout(EVICTION_WAIT, self.0.quota.evicting.lock()).await;
        let mut evicted = 0;
        let mut leased = Vec::new();
        loop {
            let (writer, mut kept) = (owner.clone(), leased.clone());
            kept.push((owner.clone(), id.clone()));
            let found = self
                .0
                .reader
                .run(owner.clone(), Executor::Thread, move |connection, _| {
                    candidates(connection, &writer, &kept, added, total)
                });
            let found = found.await?;
            if found.is_empty() {
                break;
            }
            for session in found {
                let (owner, id) = &session;
                let Ok(lease) = self.leases().acquire(owner, id, Duration::ZERO).await else {
                    leased.push(session);
                    continue;
                };
                let hidden =
                    self.0
                        .writer
                        .run(owner.clone(), Executor::Thread, move |connection, _| {
                            sweep::hide(connection, &session.0, &session.1)
                        });
                evicted += u64::from(hidden.await?);
                drop(lease);
            }
        }
        if evicted > 0 {
            tracing::info!(
                evicted,
                "sessions without a client's id were deleted to make space"
            );
            self.sweep().await?;
        }
        Ok(())
    }
}

/// The sessions to be evicted next, all of one owner; none of `kept`.
fn candidates(
    connection: &mut Connection,
    writer: &Owner,
    kept: &[(Owner, SessionId)],
    added: u64,
    total: u64,
) -> Result<Vec<(Owner, SessionId)>, StatementError> {
    // One transaction, so that all statements see the same state.
    let transaction = connection.transaction()?;
    let usage = Usage::of(&transaction, writer.as_str())?;
    let excess = usage.total.saturating_add(added).saturating_sub(total);
    let share = total / usage.owners.max(1);
    let mut found = Vec::new();
    if excess == 0 {
        return Ok(found);
    }
    let mut owners = transaction.prepare_cached(
        "SELECT owner, bytes + CASE WHEN owner = ?1 THEN ?2 ELSE 0 END AS large FROM session_usage
         WHERE owner <> ?3 AND large > ?4 ORDER BY large DESC",
    )?;
    let mut sessions = transaction.prepare_cached(
        "SELECT session_id, bytes FROM sessions
         WHERE owner = ?1 AND nameless > 0 ORDER BY updated_at, id LIMIT ?2",
    )?;
    let [added, share] = [added, share].map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
    let mut owners = owners.query(params![writer.as_str(), added, HIDDEN, share])?;
    while let Some(row) = owners.next()? {
        let owner: String = row.get(0)?;
        let above = unsigned(row.get::<_, i64>(1)?.saturating_sub(share));
        let mut freed = 0;
        let batch = count(EVICTION_BATCH + kept.len());
        let mut rows = sessions.query(params![owner, batch])?;
        while let Some(row) = rows.next()?
            && freed < excess.min(above)
        {
            let id = SessionId::try_from(row.get::<_, String>(0)?).map_err(StoreError::failed)?;
            let session = (Owner::key(&owner), id);
            if !kept.contains(&session) {
                found.push(session);
                freed += unsigned(row.get(1)?);
            }
        }
        if !found.is_empty() {
            break;
        }
    }
    Ok(found)
}
