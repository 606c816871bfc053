//! The operations on rows of files.

mod rows;

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use self::rows::{
    BATCH, COLUMNS, add_to_session, evict_some, get, insert, stored_file, touch, usage,
};
use super::super::StoreError;
use super::super::file::{
    FileFilter, FileOrder, FilePage, FileRecord, FileUsage, InsertedFile, Purpose, StoredFile,
};
use super::Sqlite;
use super::connections::{Executor, StatementError};
use super::size::{Extent, TASK_LIMIT};
use super::transaction::begin;
use super::write::count;
use crate::ids::{FileId, Owner, SessionId};

impl Sqlite {
    pub(in crate::store) async fn file(
        &self,
        owner: &Owner,
        id: &FileId,
    ) -> Result<Option<StoredFile>, StoreError> {
        let (owner, id) = (owner.clone(), id.clone());
        let found = self
            .0
            .reader
            .run(owner.clone(), Executor::Task, move |connection, _| {
                get(connection, &owner, &id)
            });
        found.await
    }

    pub(in crate::store) async fn files(
        &self,
        owner: &Owner,
        filter: &FileFilter<'_>,
    ) -> Result<FilePage, StoreError> {
        // The files of one session are few and found by an index; a list of all files is a scan.
        let executor = match filter.session {
            Some(_) => Executor::Task,
            None => Executor::Thread,
        };
        let filter = Filter {
            owner: owner.clone(),
            limit: filter.limit,
            after: filter.after.cloned(),
            order: filter.order,
            purpose: filter.purpose,
            session: filter.session.cloned(),
        };
        let page = self
            .0
            .reader
            .run(owner.clone(), executor, move |connection, executor| {
                filter.page(connection, executor)
            });
        page.await
    }

    pub(in crate::store) async fn insert_file(
        &self,
        file: FileRecord,
        max_total_bytes: u64,
    ) -> Result<InsertedFile, StoreError> {
        let file = Arc::new(file);
        let (store, record) = (self.clone(), Arc::clone(&file));
        let inserted = self.0.writer.run(
            file.owner.clone(),
            Executor::Task,
            move |connection, executor| {
                let transaction = begin(connection)?;
                let known = insert(&transaction, store.0.clock.stamp(), &record)?;
                let evicted = match executor {
                    Executor::Task if usage(&transaction)?.bytes > max_total_bytes => {
                        return Err(StatementError::LimitExceeded);
                    }
                    Executor::Task => 0,
                    Executor::Thread => evict_some(&transaction, &record.id, max_total_bytes)?,
                };
                let file = get(&transaction, &record.owner, &record.id)?;
                transaction.commit()?;
                Ok(InsertedFile {
                    file,
                    known,
                    evicted,
                })
            },
        );
        let mut inserted = inserted.await?;
        self.count_written(Extent::default());
        let mut last = inserted.evicted;
        while last == BATCH as u64 {
            let id = file.id.clone();
            let evicted = self.0.writer.run(
                file.owner.clone(),
                Executor::Thread,
                move |connection, _| {
                    let transaction = begin(connection)?;
                    let evicted = evict_some(&transaction, &id, max_total_bytes)?;
                    transaction.commit()?;
                    Ok(evicted)
                },
            );
            last = evicted.await?;
            inserted.evicted += last;
        }
        Ok(inserted)
    }

    pub(in crate::store) async fn attach_file(
        &self,
        owner: &Owner,
        id: &FileId,
        session: &SessionId,
    ) -> Result<(), StoreError> {
        let (store, owner, id, session) =
            (self.clone(), owner.clone(), id.clone(), session.clone());
        self.transact(owner.clone(), Executor::Task, move |connection, _| {
            let now = store.0.clock.stamp();
            if !touch(connection, now, &owner, &id)? {
                return Err(StoreError::NotFound.into());
            }
            add_to_session(connection, now, &owner, &id, &session)
        })
        .await
    }

    pub(in crate::store) async fn touch_file(
        &self,
        owner: &Owner,
        id: &FileId,
    ) -> Result<(), StoreError> {
        let (store, owner, id) = (self.clone(), owner.clone(), id.clone());
        self.transact(
            owner.clone(),
            Executor::Task,
            move |connection, _| match touch(connection, store.0.clock.stamp(), &owner, &id)? {
                true => Ok(()),
                false => Err(StoreError::NotFound.into()),
            },
        )
        .await
    }

    pub(in crate::store) async fn delete_file(
        &self,
        owner: &Owner,
        id: &FileId,
    ) -> Result<bool, StoreError> {
        let (owner, id) = (owner.clone(), id.clone());
        self.make_space_to_delete().await;
        self.transact(owner.clone(), Executor::Thread, move |connection, _| {
            let sql = "DELETE FROM files WHERE owner = ?1 AND id = ?2";
            Ok(connection.execute(sql, [owner.as_str(), id.as_str()])? > 0)
        })
        .await
    }

    pub(in crate::store) async fn expire_files(&self, ttl: Duration) -> Result<u64, StoreError> {
        let cutoff = self.cutoff(ttl);
        let mut total = 0;
        loop {
            let deleted = self.transact(Owner::server(), Executor::Thread, move |connection, _| {
                let sql = "DELETE FROM files WHERE num IN
                    (SELECT f.num FROM files f WHERE f.last_used_at < ?1
                       AND NOT EXISTS (SELECT 1 FROM session_files l WHERE l.file = f.num)
                     ORDER BY f.last_used_at LIMIT ?2)";
                Ok(connection.execute(sql, [cutoff, count(BATCH)])?)
            });
            let deleted = deleted.await?;
            total += deleted as u64;
            if deleted < BATCH {
                return Ok(total);
            }
        }
    }

    pub(in crate::store) async fn file_usage(&self) -> Result<FileUsage, StoreError> {
        self.0
            .reader
            .run(Owner::server(), Executor::Thread, |connection, _| {
                usage(connection)
            })
            .await
    }

    pub(in crate::store) async fn dead_blobs(&self) -> Result<Vec<String>, StoreError> {
        let blobs = self
            .0
            .reader
            .run(Owner::server(), Executor::Task, |connection, _| {
                let mut statement =
                    connection.prepare_cached("SELECT blob FROM dead_blobs LIMIT ?1")?;
                let blobs = statement.query_map([count(BATCH)], |row| row.get(0))?;
                Ok(blobs.collect::<Result<_, _>>()?)
            });
        blobs.await
    }

    pub(in crate::store) async fn forget_blobs(
        &self,
        blobs: Vec<String>,
    ) -> Result<(), StoreError> {
        self.transact(Owner::server(), Executor::Thread, move |connection, _| {
            let mut statement =
                connection.prepare_cached("DELETE FROM dead_blobs WHERE blob = ?1")?;
            for blob in &blobs {
                statement.execute([blob])?;
            }
            Ok(())
        })
        .await
    }

    pub(in crate::store) async fn blobs_without_row(
        &self,
        blobs: Vec<String>,
    ) -> Result<Vec<String>, StoreError> {
        // Runs on the writer's connection, so that earlier writes on threads have ended, also those of dropped futures.
        let orphans = self
            .0
            .writer
            .run(Owner::server(), Executor::Thread, move |connection, _| {
                let mut statement =
                    connection.prepare_cached("SELECT 1 FROM files WHERE blob = ?1")?;
                let mut orphans = Vec::new();
                for blob in &blobs {
                    if !statement.exists([blob])? {
                        orphans.push(blob.clone());
                    }
                }
                Ok(orphans)
            });
        orphans.await
    }

    pub(in crate::store) async fn name(&self) -> Result<String, StoreError> {
        let name = self
            .0
            .reader
            .run(Owner::server(), Executor::Task, |connection, _| {
                Ok(connection
                    .query_row("SELECT name FROM file_store LIMIT 1", [], |row| row.get(0))?)
            });
        name.await
    }

    pub(in crate::store) async fn secret(&self) -> Result<[u8; 32], StoreError> {
        let secret = self
            .0
            .reader
            .run(Owner::server(), Executor::Task, |connection, _| {
                let sql = "SELECT secret FROM store_secret LIMIT 1";
                Ok(connection.query_row(sql, [], |row| row.get(0))?)
            });
        secret.await
    }
}

/// An owned [`FileFilter`], which can be moved to a thread.
struct Filter {
    owner: Owner,
    limit: usize,
    after: Option<FileId>,
    order: FileOrder,
    purpose: Option<Purpose>,
    session: Option<SessionId>,
}

impl Filter {
    fn page(
        &self,
        connection: &Connection,
        executor: Executor,
    ) -> Result<FilePage, StatementError> {
        let owner = self.owner.as_str();
        let (comparison, direction, mut from) = match self.order {
            FileOrder::Ascending => (">", "ASC", (i64::MIN, i64::MIN)),
            FileOrder::Descending => ("<", "DESC", (i64::MAX, i64::MAX)),
        };
        if let Some(after) = &self.after {
            let sql = "SELECT created_at, num FROM files WHERE owner = ?1 AND id = ?2";
            let found = connection.query_row(sql, [owner, after.as_str()], |row| {
                Ok((row.get(0)?, row.get(1)?))
            });
            from = found.optional()?.ok_or(StoreError::NotFound)?;
        }
        let of_session = match &self.session {
            Some(_) => {
                "f.num IN (SELECT l.file FROM session_files l JOIN sessions s ON s.id = l.session
                           WHERE s.owner = ?1 AND s.session_id = ?3)"
            }
            None => "?3 IS NULL",
        };
        let mut statement = connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM files f
             WHERE f.owner = ?1 AND (?2 IS NULL OR f.purpose = ?2) AND {of_session}
               AND (f.created_at, f.num) {comparison} (?4, ?5)
             ORDER BY f.created_at {direction}, f.num {direction} LIMIT ?6"
        ))?;
        // One more row than the limit shows whether there are more.
        let most = self.limit.saturating_add(1);
        let purpose = self.purpose.map(Purpose::as_str);
        let session = self.session.as_ref().map(SessionId::as_str);
        let mut rows = statement.query(params![
            owner,
            purpose,
            session,
            from.0,
            from.1,
            count(most)
        ])?;
        let mut page = FilePage::default();
        while let Some(row) = rows.next()? {
            if page.data.len() == self.limit {
                page.has_more = true;
                break;
            }
            if executor == Executor::Task && page.data.len() == TASK_LIMIT.rows {
                return Err(StatementError::LimitExceeded);
            }
            let file = stored_file(row)?;
            page.data.push(match &self.session {
                Some(session) => StoredFile {
                    session: Some(session.clone()),
                    ..file
                },
                None => file,
            });
        }
        Ok(page)
    }
}
