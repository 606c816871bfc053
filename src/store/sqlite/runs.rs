//! The operations on records of runs and on idempotency keys.

mod answer;
mod keys;
mod rows;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::Connection;

use self::answer::{add_part, complete};
use self::rows::RunRow;
use super::super::StoreError;
use super::super::answer::{AnswerParts, NewAnswerHead};
use super::super::run::{AnswerLimits, KEY_TTL, KeyClaim, RunRecord, StoredAnswer};
use super::Sqlite;
use super::connections::{Executor, StatementError};
use super::size::{CHUNK, Extent, TASK_LIMIT};
use crate::ids::{Owner, RunId, SessionId};

pub(super) use self::rows::{begin_run, mark_interrupted, run_id};

impl Sqlite {
    pub(in crate::store) fn limit_answers(&self, limits: AnswerLimits) {
        *self.0.answers.lock() = limits;
    }

    pub(in crate::store) fn share_connections(&self, shared: bool) {
        self.0.reader.share(shared);
        self.0.writer.share(shared);
    }

    pub(in crate::store) async fn begin_run(
        &self,
        run: &RunId,
        owner: &Owner,
        session: Option<&SessionId>,
    ) -> Result<(), StoreError> {
        let (store, run, owner) = (self.clone(), run.clone(), owner.clone());
        let session = session.cloned();
        self.transact(owner.clone(), Executor::Task, move |connection, _| {
            let now = store.0.clock.stamp();
            begin_run(connection, now, &run, &owner, session.as_ref())
        })
        .await
    }

    pub(in crate::store) async fn end_run(
        &self,
        run: &RunId,
        owner: &Owner,
        answer: StoredAnswer,
    ) -> Result<(), StoreError> {
        let limits = *self.0.answers.lock();
        let (head, body) = NewAnswerHead::of(answer).await?;
        let bytes = head.bytes();
        if bytes > limits.answer {
            tracing::warn!(bytes, "the answer of a run is too large to be stored");
            return self.remove_unended(run, owner).await;
        }
        let head = Arc::new(head);
        if bytes <= TASK_LIMIT.bytes {
            let body = body.whole().await.map_err(StoreError::failed)?;
            self.write_short(run, owner, head, body).await?;
        } else {
            // The write continues if the future is dropped.
            let (store, run, owner) = (self.clone(), run.clone(), owner.clone());
            let parts = AnswerParts::of(body);
            let writing = async move { store.write_in_parts(&run, &owner, &head, parts).await };
            let written = self.0.tasks.spawn(writing);
            written.await.map_err(StoreError::failed)??;
        }
        self.evict((owner, run), limits.total).await
    }

    pub(in crate::store) async fn run(
        &self,
        owner: &Owner,
        run: &RunId,
    ) -> Result<Option<RunRecord>, StoreError> {
        let (owner, run) = (owner.clone(), run.clone());
        self.0
            .reader
            .run(owner.clone(), Executor::Task, move |connection, _| {
                rows::get(connection, &owner, &run)
            })
            .await
    }

    pub(in crate::store) async fn answer(
        &self,
        owner: &Owner,
        run: &RunId,
    ) -> Result<Option<StoredAnswer>, StoreError> {
        let (owner, run) = (owner.clone(), run.clone());
        self.0
            .reader
            .run(
                owner.clone(),
                Executor::Task,
                move |connection, executor| rows::answer(connection, &owner, &run, executor),
            )
            .await
    }

    pub(in crate::store) async fn delete_run(
        &self,
        owner: &Owner,
        run: &RunId,
    ) -> Result<bool, StoreError> {
        let (owner, run) = (owner.clone(), run.clone());
        self.make_space_to_delete().await;
        let deleted = self.transact(
            owner.clone(),
            Executor::Task,
            move |connection, executor| {
                keys::release_all(connection, &owner, &run)?;
                let Some(row) = RunRow::find(connection, &owner, &run)? else {
                    return Ok(None);
                };
                if executor == Executor::Task && !row.extent().fits(TASK_LIMIT) {
                    return Err(StatementError::LimitExceeded);
                }
                row.remove(connection)?;
                Ok(Some(row.extent()))
            },
        );
        let deleted = deleted.await?;
        if deleted.is_some_and(|extent| !extent.fits(CHUNK)) {
            self.sweep_runs().await?;
        }
        Ok(deleted.is_some())
    }

    pub(in crate::store) async fn claim_key(
        &self,
        owner: &Owner,
        key: &str,
        fingerprint: &[u8; 32],
        run: &RunId,
    ) -> Result<KeyClaim, StoreError> {
        let (store, owner, key, run) = (self.clone(), owner.clone(), key.to_owned(), run.clone());
        let fingerprint = *fingerprint;
        self.transact(owner.clone(), Executor::Task, move |connection, _| {
            let since = store.cutoff(KEY_TTL);
            let now = store.0.clock.stamp();
            keys::claim(connection, (now, since), (&owner, &key), &fingerprint, &run)
        })
        .await
    }

    pub(in crate::store) async fn release_key(
        &self,
        owner: &Owner,
        key: &str,
        run: &RunId,
    ) -> Result<(), StoreError> {
        let (owner, key, run) = (owner.clone(), key.to_owned(), run.clone());
        self.transact(owner.clone(), Executor::Task, move |connection, _| {
            keys::release(connection, &owner, &key, &run)
        })
        .await
    }

    pub(in crate::store) async fn reclaim_key(
        &self,
        owner: &Owner,
        key: &str,
        from: &RunId,
        to: &RunId,
    ) -> Result<bool, StoreError> {
        let (store, owner, key) = (self.clone(), owner.clone(), key.to_owned());
        let (from, to) = (from.clone(), to.clone());
        self.transact(owner.clone(), Executor::Task, move |connection, _| {
            let since = store.cutoff(KEY_TTL);
            if !keys::reassign(connection, since, (&owner, &key), &from, &to)? {
                return Ok(false);
            }
            let session = rows::session_of(connection, &owner, &from)?;
            let now = store.0.clock.stamp();
            begin_run(connection, now, &to, &owner, session.as_ref())?;
            Ok(true)
        })
        .await
    }

    pub(in crate::store) async fn expire_runs(&self, age: Duration) -> Result<u64, StoreError> {
        let cutoff = self.cutoff(age);
        let mut total = 0;
        loop {
            let expired = self.transact(Owner::server(), Executor::Thread, move |connection, _| {
                rows::expire_some(connection, cutoff)
            });
            let (removed, more) = expired.await?;
            total += removed;
            if !more {
                break;
            }
        }
        self.sweep_runs().await?;
        let cutoff = self.cutoff(KEY_TTL);
        while self
            .transact(Owner::server(), Executor::Thread, move |connection, _| {
                keys::expire_some(connection, cutoff)
            })
            .await?
        {}
        Ok(total)
    }

    /// Removes answers that are deleted or were not completed, one piece at a time.
    pub(super) async fn sweep_runs(&self) -> Result<(), StoreError> {
        while self
            .transact(Owner::server(), Executor::Thread, |connection, _| {
                rows::sweep(connection)
            })
            .await?
        {
            self.count_written(CHUNK);
        }
        Ok(())
    }

    /// Removes the record of a run without an answer.
    async fn remove_unended(&self, run: &RunId, owner: &Owner) -> Result<(), StoreError> {
        let (owner, run) = (owner.clone(), run.clone());
        self.transact(owner.clone(), Executor::Task, move |connection, _| {
            match RunRow::find_unended(connection, &owner, &run)? {
                Some(row) => row.remove(connection),
                None => Ok(()),
            }
        })
        .await
    }

    /// Removes answers and keys until their total is within the limit, but not those of `written`.
    async fn evict(&self, written: (&Owner, &RunId), most: u64) -> Result<(), StoreError> {
        let usage = self
            .0
            .reader
            .run(written.0.clone(), Executor::Task, |connection, _| {
                rows::total_bytes(connection)
            });
        if usage.await? <= most {
            return Ok(());
        }
        while self.evict_some(written, most).await? {}
        self.sweep_runs().await
    }

    async fn evict_some(
        &self,
        (owner, written): (&Owner, &RunId),
        most: u64,
    ) -> Result<bool, StoreError> {
        let written = written.clone();
        self.transact(owner.clone(), Executor::Thread, move |connection, _| {
            rows::evict_some(connection, &written, most)
        })
        .await
    }

    async fn write_short(
        &self,
        run: &RunId,
        owner: &Owner,
        head: Arc<NewAnswerHead>,
        body: Bytes,
    ) -> Result<(), StoreError> {
        let (store, run, owner) = (self.clone(), run.clone(), owner.clone());
        let bytes = head.bytes();
        self.transact(owner.clone(), Executor::Task, move |connection, _| {
            let Some(row) = RunRow::find_unended(connection, &owner, &run)? else {
                return Ok(());
            };
            add_part(connection, row.num, 0, &body)?;
            complete(connection, &head, &row, store.0.clock.stamp())
        })
        .await?;
        self.count_written(Extent { rows: 1, bytes });
        Ok(())
    }

    /// Writes the answer to a hidden row part by part. A last transaction replaces the record with it.
    async fn write_in_parts(
        &self,
        run: &RunId,
        owner: &Owner,
        head: &Arc<NewAnswerHead>,
        parts: AnswerParts,
    ) -> Result<(), StoreError> {
        let (id, key) = (run.clone(), owner.clone());
        let draft = self.on_thread(owner, move |connection, now| {
            match RunRow::find_unended(connection, &key, &id)? {
                Some(_) => rows::insert_draft(connection, now).map(Some),
                None => Ok(None),
            }
        });
        let Some(draft) = draft.await? else {
            return Ok(());
        };
        let done = self.fill(draft, (run, owner), head, parts).await;
        if done.is_err() {
            let hidden = self.on_thread(owner, move |connection, _| rows::hide(connection, draft));
            let removed = match hidden.await {
                Ok(()) => self.sweep_runs().await,
                Err(error) => Err(error),
            };
            if let Err(error) = removed {
                tracing::warn!(%error, "an unfinished answer stays until the next start");
            }
        }
        done
    }

    async fn fill(
        &self,
        draft: i64,
        (run, owner): (&RunId, &Owner),
        head: &Arc<NewAnswerHead>,
        mut parts: AnswerParts,
    ) -> Result<(), StoreError> {
        let mut seq = 0;
        while let Some(part) = parts.next().await? {
            let added = self.on_thread(owner, move |connection, _| {
                add_part(connection, draft, seq, &part)
            });
            seq = added.await?;
            self.count_written(CHUNK);
        }
        let (run, key, head) = (run.clone(), owner.clone(), Arc::clone(head));
        let finished = self.on_thread(owner, move |connection, now| {
            match RunRow::find_unended(connection, &key, &run)? {
                Some(row) => {
                    let row = row.move_to(connection, draft, &key, &run)?;
                    complete(connection, &head, &row, now).map(|()| true)
                }
                // The record was deleted meanwhile.
                None => rows::hide(connection, draft).map(|()| false),
            }
        });
        match finished.await? {
            true => Ok(()),
            false => self.sweep_runs().await,
        }
    }

    async fn on_thread<T: Send + 'static>(
        &self,
        owner: &Owner,
        work: impl Fn(&Connection, i64) -> Result<T, StatementError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let store = self.clone();
        self.transact(owner.clone(), Executor::Thread, move |connection, _| {
            work(connection, store.0.clock.stamp())
        })
        .await
    }
}
