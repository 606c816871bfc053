//! SQLite through rusqlite: a file in WAL mode that only this process uses, or memory.
//!
//! There is one connection for writes. Reads of a file use other connections and see the last committed state; reads of
//! memory use the same connection as writes. Changes too large for one short transaction are written in chunks
//! ([`rewrite`]).

mod backup;
mod checkpoint;
mod connections;
mod expiry;
mod export;
mod files;
mod fork;
mod instructions;
mod messages;
mod migrate;
mod open;
mod pieces;
mod quota;
mod read;
mod reserve;
mod rewrite;
mod runs;
mod shared;
mod size;
mod sweep;
#[cfg(test)]
mod tests;
mod transaction;
mod write;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rusqlite::Connection;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

pub(super) use self::backup::{BackupTarget, backup_counts, contents_of, copy_database};
use self::checkpoint::Checkpoints;
use self::connections::{Connections, Executor, StatementError};
use self::quota::{Attempt, Quota, WriteContext};
use self::read::{LoadedChunk, ReadCursor};
use self::reserve::DiskReserve;
use self::rewrite::{Rewrite, RewriteKind};
use self::size::{CHUNK, Extent, TASK_LIMIT};
use self::write::WriteOutcome;
use super::StoreError;
use super::clock::Clock;
use super::lease::{Fence, LeaseHold, Leases};
use super::record::{Change, Replaced, SessionHead, SessionPage, SessionSummary, StoredSession};
use super::run::AnswerLimits;
use super::waiting::{WaitingTurn, WaitingTurns};
use crate::ids::{Owner, SessionId};

/// Longest wait for each step of closing. Data that is not written back by then stays in the write-ahead log.
const CLOSE_WAIT: Duration = Duration::from_secs(5);
/// Most restarts of a read in chunks because the session was written meanwhile. Then everything is read at once.
const MAX_RESTARTS: u32 = 3;

/// An SQLite database; cheap to clone.
#[derive(Debug, Clone)]
pub struct Sqlite(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    writer: Arc<Connections>,
    /// The same as `writer` where the database is in memory.
    reader: Arc<Connections>,
    checkpoints: Option<Arc<Checkpoints>>,
    clock: Arc<Clock>,
    quota: Arc<Quota>,
    /// The space that is kept for deletions; none in memory.
    reserve: Option<DiskReserve>,
    answers: Mutex<AnswerLimits>,
    leases: Leases,
    waiting: Mutex<WaitingTurns>,
    /// Writes in chunks, which continue when their callers are dropped.
    tasks: TaskTracker,
    /// The lock that keeps other processes from opening the file until the store is closed.
    lock: Mutex<Option<File>>,
    /// Whether an older version of the program has made the database.
    upgraded: bool,
}

impl Sqlite {
    pub(super) async fn open(file: Option<&Path>) -> Result<Self, StoreError> {
        let file = file.map(ToOwned::to_owned);
        let opened = tokio::task::spawn_blocking(move || open::open(file.as_deref())).await;
        let opened = opened.map_err(StoreError::failed)??;
        let writer = Arc::clone(&opened.writer);
        let quota = Arc::new(Quota::new(opened.path.clone()));
        let reserve = opened.path.as_deref().map(DiskReserve::beside);
        let checkpoints = opened.path.map(|path| Checkpoints::of(path, writer));
        let store = Self(Arc::new(Inner {
            writer: opened.writer,
            reader: opened.reader,
            checkpoints,
            clock: Arc::new(Clock::after(opened.expiry)),
            quota,
            reserve,
            answers: Mutex::default(),
            leases: Leases::default(),
            waiting: Mutex::default(),
            tasks: TaskTracker::new(),
            lock: Mutex::new(opened.lock),
            upgraded: opened.upgraded,
        }));
        store.keep_reserve();
        if opened.leftovers {
            store.sweep_leftovers();
        }
        if let Some(checkpoints) = &store.0.checkpoints {
            // A new schema is in the log, too, and what a process that was killed has left there.
            checkpoints.start_when_idle(&store.0.tasks);
        }
        Ok(store)
    }

    pub(super) fn was_upgraded(&self) -> bool {
        self.0.upgraded
    }

    pub(super) fn leases(&self) -> &Leases {
        &self.0.leases
    }

    pub(super) fn waiting(&self) -> MutexGuard<'_, WaitingTurns> {
        self.0.waiting.lock()
    }

    pub(super) async fn load(
        &self,
        owner: &Owner,
        id: &SessionId,
    ) -> Result<Option<StoredSession>, StoreError> {
        let mut restarts = 0;
        'again: loop {
            let chunk = if restarts < MAX_RESTARTS {
                CHUNK
            } else {
                Extent::ALL
            };
            let read = |cursor: ReadCursor| {
                let (owner, id) = (owner.clone(), id.clone());
                self.0.reader.run(
                    owner.clone(),
                    cursor.executor(),
                    move |connection, executor| {
                        let limit = match executor {
                            Executor::Task => TASK_LIMIT,
                            Executor::Thread => chunk,
                        };
                        read::load(connection, (&owner, &id), cursor, limit, executor)
                    },
                )
            };
            let Some(LoadedChunk {
                mut session,
                version,
                mut next,
            }) = read(ReadCursor::Start).await?
            else {
                return Ok(None);
            };
            while let Some(from) = next {
                match read(ReadCursor::Resume { from, version }).await? {
                    Some(more) if more.version == version => {
                        session.instructions.extend(more.session.instructions);
                        session.messages.extend(more.session.messages);
                        next = more.next;
                    }
                    Some(_) | None => {
                        restarts += 1;
                        continue 'again;
                    }
                }
            }
            return Ok(Some(session));
        }
    }

    pub(super) async fn write(
        &self,
        fence: &Fence,
        change: &Arc<Change>,
    ) -> Result<(), StoreError> {
        let hold = self.0.leases.pin(fence)?;
        self.check_disk().await;
        let extent = Extent::of_change(change);
        if extent.fits(CHUNK) {
            let executor = match extent.fits(TASK_LIMIT) {
                true => Executor::Task,
                false => Executor::Thread,
            };
            let written = self.with_eviction(&fence.owner, &fence.id, |attempt| {
                let (store, fence, change) = (self.clone(), fence.clone(), Arc::clone(change));
                let hold = Arc::clone(&hold);
                self.0.writer.run(
                    fence.owner.clone(),
                    executor,
                    move |connection, executor| {
                        let _hold = &hold;
                        let context = store.write_context(attempt);
                        write::write(connection, context, &fence, &change, executor)
                    },
                )
            });
            match written.await? {
                WriteOutcome::Done { released } => {
                    self.count_written(extent);
                    if released {
                        self.sweep_later();
                    }
                    return Ok(());
                }
                WriteOutcome::LimitExceeded => {}
            }
        }
        self.rewrite(fence, RewriteKind::Change, change, hold)
            .await
            .map(drop)
    }

    pub(super) async fn replace(
        &self,
        fence: &Fence,
        created_at: i64,
        change: &Arc<Change>,
    ) -> Result<Replaced, StoreError> {
        let hold = self.0.leases.pin(fence)?;
        self.check_disk().await;
        let kind = RewriteKind::Import { created_at };
        self.rewrite(fence, kind, change, hold).await
    }

    pub(super) async fn fork(
        &self,
        source: &Fence,
        before_message: Option<usize>,
        new_id: &SessionId,
    ) -> Result<SessionSummary, StoreError> {
        let hold = self.0.leases.pin(source)?;
        self.check_disk().await;
        let forked = self.with_eviction(&source.owner, new_id, |attempt| {
            let (store, hold) = (self.clone(), Arc::clone(&hold));
            let (source, new_id) = (source.clone(), new_id.clone());
            self.0.writer.run(
                source.owner.clone(),
                Executor::Thread,
                move |connection, _| {
                    let _hold = &hold;
                    let context = store.write_context(attempt);
                    fork::fork(connection, context, &source, before_message, &new_id)
                },
            )
        });
        let forked = forked.await?;
        self.count_written(TASK_LIMIT);
        Ok(forked)
    }

    pub(super) async fn delete(&self, fence: &Fence) -> Result<bool, StoreError> {
        let hold = self.0.leases.pin(fence)?;
        let fence = fence.clone();
        self.make_space_to_delete().await;
        let deleted = self.0.writer.run(
            fence.owner.clone(),
            Executor::Thread,
            move |connection, _| {
                let _hold = &hold;
                sweep::hide(connection, &fence.owner, &fence.id)
            },
        );
        let deleted = deleted.await?;
        if deleted {
            self.sweep().await?;
        }
        Ok(deleted)
    }

    pub(super) async fn head(
        &self,
        owner: &Owner,
        id: &SessionId,
    ) -> Result<Option<SessionHead>, StoreError> {
        let (owner, id) = (owner.clone(), id.clone());
        let found = self
            .0
            .reader
            .run(owner.clone(), Executor::Task, move |connection, _| {
                read::head(connection, &owner, &id)
            });
        found.await
    }

    pub(super) async fn list(
        &self,
        owner: &Owner,
        limit: usize,
        after: Option<&SessionId>,
    ) -> Result<SessionPage, StoreError> {
        let (key, after) = (owner.clone(), after.cloned());
        let page = self
            .0
            .reader
            .run(owner.clone(), Executor::Thread, move |connection, _| {
                read::list(connection, &key, limit, after.as_ref())
            });
        let mut page = page.await?;
        for entry in &mut page.data {
            entry.running = self.0.leases.is_leased(owner, &entry.id);
        }
        Ok(page)
    }

    pub(super) async fn waiting_turn(
        &self,
        owner: &Owner,
        call_id: &str,
    ) -> Result<Option<WaitingTurn>, StoreError> {
        if let Some(turn) = self.waiting().get(owner, call_id) {
            return Ok(Some(WaitingTurn::Unstored(turn.clone())));
        }
        let (owner, call_id) = (owner.clone(), call_id.to_owned());
        let found = self
            .0
            .reader
            .run(owner.clone(), Executor::Task, move |connection, _| {
                read::find_by_call(connection, &owner, &call_id)
            });
        Ok(found.await?.map(WaitingTurn::Stored))
    }

    pub(super) async fn ping(&self) -> Result<(), StoreError> {
        self.0
            .reader
            .run(Owner::server(), Executor::Task, |connection, _| {
                read::ping(connection)
            })
            .await
    }

    pub(super) async fn close(&self) {
        if let Some(checkpoints) = &self.0.checkpoints {
            checkpoints.stop();
        }
        self.0.tasks.close();
        let tasks = timeout(CLOSE_WAIT, self.0.tasks.wait()).await.is_ok();
        let kept = timeout(CLOSE_WAIT, self.keep_expiry_time()).await;
        let kept = self.0.writer.is_closed() || kept.is_ok_and(|kept| kept.is_ok());
        // Readers first: the whole log can be written back only if there are no readers. In memory this closes the
        // writer as well, and there is no log.
        let readers = self.0.reader.close(CLOSE_WAIT).await;
        let written_back = self.0.writer.is_closed()
            || timeout(
                CLOSE_WAIT,
                self.0
                    .writer
                    .run(Owner::server(), Executor::Thread, |connection, _| {
                        checkpoint::write_all_back(connection)
                    }),
            )
            .await
            .is_ok_and(|result| result.is_ok());
        let writer = self.0.writer.close(CLOSE_WAIT).await;
        drop(self.0.lock.lock().take());
        if !(tasks && kept && readers && written_back && writer) {
            // No data is lost: committed data is in the log, which is read at the next start.
            tracing::warn!(
                tasks,
                kept,
                readers,
                written_back,
                writer,
                "session store not closed in order"
            );
        }
    }

    fn write_context(&self, attempt: Attempt) -> WriteContext<'_> {
        WriteContext {
            clock: &self.0.clock,
            quota: &self.0.quota,
            attempt,
        }
    }

    /// Writes in chunks. The write continues if the future is dropped.
    async fn rewrite(
        &self,
        source: &Fence,
        kind: RewriteKind,
        change: &Arc<Change>,
        hold: Arc<LeaseHold>,
    ) -> Result<Replaced, StoreError> {
        let change = Arc::clone(change);
        let rewrite = Rewrite::of(source, kind, change, &self.0.quota, hold);
        let store = self.clone();
        let running = self.0.tasks.spawn(async move {
            let (owner, id) = rewrite.target();
            let done =
                store.with_eviction(owner, id, |attempt| rewrite.attempt(attempt).run(&store));
            let done = done.await;
            // Removes the replaced session, or the leftovers of a failure.
            let swept = store.sweep().await;
            let done = done?;
            swept.map(|()| done)
        });
        running.await.map_err(StoreError::failed)?
    }

    /// Runs work of an owner in one transaction.
    async fn transact<T: Send + 'static>(
        &self,
        owner: Owner,
        executor: Executor,
        work: impl Fn(&Connection, Executor) -> Result<T, StatementError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let done = self
            .0
            .writer
            .run(owner, executor, move |connection, executor| {
                let transaction = transaction::begin(connection)?;
                let done = work(&transaction, executor)?;
                transaction.commit()?;
                Ok(done)
            });
        let done = done.await?;
        self.count_written(Extent::default());
        Ok(done)
    }

    /// Counts what was written, and starts a checkpoint when the log is large enough.
    fn count_written(&self, extent: Extent) {
        if let Some(checkpoints) = &self.0.checkpoints {
            checkpoints.count_written(extent, &self.0.tasks);
        }
    }

    fn cutoff(&self, ttl: Duration) -> i64 {
        let ttl_us = i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX);
        self.0.clock.expiry_time().saturating_sub(ttl_us)
    }
}
