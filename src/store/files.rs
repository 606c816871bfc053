//! The rows of files.

use std::time::Duration;

use super::clock::seconds;
use super::file::{
    FileFilter, FileOrder, FilePage, FileRecord, FileUsage, InsertedFile, Purpose, StoredFile,
};
use super::shares::StatementSize;
use super::tx::{Row, SqlValue, Tx, session_id, signed, values};
use super::{Store, StoreError, retrying};
use protocol::ids::{FileId, Owner, SessionId};

/// Most files that are deleted in one transaction, and most blobs returned at once; others follow.
/// Tried by `suite::files::a_session_may_use_more_files_than_one_batch`.
const BATCH: i64 = 100;

/// Selects the columns of a [`StoredFile`], with the oldest session that uses it.
macro_rules! select {
    ($rest:expr) => {
        concat!(
            "SELECT f.id, f.name, f.mime_type, f.bytes, f.purpose, f.tool, f.round, f.created_at, f.blob,
                (SELECT s.session_id FROM session_files l JOIN sessions s ON s.num = l.session
                 WHERE l.file = f.num AND s.owner = f.owner ORDER BY s.created_at, s.num LIMIT 1)
             FROM files f WHERE f.owner = $1 AND ",
            $rest
        )
    };
}

/// Selects a page of files.
macro_rules! page {
    ($comparison:literal, $direction:literal) => {
        select!(concat!(
            "($2 IS NULL OR f.purpose = $2)
             AND ($3 IS NULL OR f.num IN (SELECT l.file FROM session_files l JOIN sessions s ON s.num = l.session
                                          WHERE s.owner = $1 AND s.session_id = $3))
             AND (f.created_at, f.num) ",
            $comparison,
            " ($4, $5) ORDER BY f.created_at ",
            $direction,
            ", f.num ",
            $direction,
            " LIMIT $6"
        ))
    };
}

impl Store {
    /// The metadata of a file.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn file(&self, owner: &Owner, id: &FileId) -> Result<Option<StoredFile>, StoreError> {
        let mut tx = self.read(owner, StatementSize::Small).await?;
        find(&mut tx, owner, id).await
    }

    /// A page of the owner's files.
    ///
    /// # Errors
    /// `NotFound` when the owner has no file `after`; else when the store fails.
    pub async fn files(
        &self,
        owner: &Owner,
        filter: &FileFilter<'_>,
    ) -> Result<FilePage, StoreError> {
        let (sql, end) = match filter.order {
            FileOrder::Ascending => (page!(">", "ASC"), i64::MIN),
            FileOrder::Descending => (page!("<", "DESC"), i64::MAX),
        };
        let mut from = (end, end);
        let mut tx = self.read(owner, StatementSize::Large).await?;
        if let Some(after) = filter.after {
            let sql = "SELECT created_at, num FROM files WHERE owner = $1 AND id = $2";
            let row = tx.row(sql, values![owner.as_str(), after.as_str()]).await?;
            let mut row = row.ok_or(StoreError::NotFound)?;
            from = (row.column(0)?, row.column(1)?);
        }
        let purpose = filter.purpose.map(Purpose::as_str);
        let session = filter.session.map(SessionId::as_str);
        // One more row than the limit shows whether there are more.
        let most = signed(filter.limit.saturating_add(1));
        let values = values![owner.as_str(), purpose, session, from.0, from.1, most];
        let rows = tx.rows(sql, values).await?;
        let has_more = rows.len() > filter.limit;
        let files = rows.into_iter().take(filter.limit).map(|row| {
            let file = stored_file(row)?;
            Ok(StoredFile {
                session: filter.session.cloned().or(file.session),
                ..file
            })
        });
        Ok(FilePage {
            data: files.collect::<Result<_, StoreError>>()?,
            has_more,
        })
    }

    /// Adds the row of a file whose content is on disk, adds the file to its session, and deletes rows of other files
    /// until the total is at most `max_total_bytes`. If the owner already has a file with this id, that file is used.
    ///
    /// # Errors
    /// `Exists` when the id belongs to another owner; else when the store fails. Nothing is added then.
    ///
    /// # Cancel safety
    /// If the future is dropped, the row is added or nothing is changed.
    pub async fn insert_file(
        &self,
        file: FileRecord,
        max_total_bytes: u64,
    ) -> Result<InsertedFile, StoreError> {
        let file = &file;
        let known = retrying(|| async move {
            let mut tx = self.begin(&file.owner, StatementSize::Small).await?;
            let known = insert(&mut tx, file).await?;
            tx.commit().await?;
            Ok(known)
        })
        .await?;
        let mut evicted = 0;
        while self.file_usage().await?.bytes > max_total_bytes {
            match retrying(|| self.evict_files(file, max_total_bytes)).await {
                Ok(0) => break,
                Ok(some) => evicted += some,
                Err(error) => {
                    tracing::warn!(%error, "files could not be deleted to make room");
                    break;
                }
            }
        }
        Ok(InsertedFile {
            file: self.file(&file.owner, &file.id).await?,
            known,
            evicted,
        })
    }

    /// Deletes some of the least recently used files, but never `written`; returns how many. Files of owners with at least the
    /// average number of bytes are deleted first.
    async fn evict_files(
        &self,
        written: &FileRecord,
        max_total_bytes: u64,
    ) -> Result<u64, StoreError> {
        const OF_LARGE_OWNERS: &str = "DELETE FROM files WHERE num = (
                SELECT f.num FROM files f JOIN file_usage u ON u.owner = f.owner
                WHERE f.id <> $1 AND u.bytes >= (SELECT avg(bytes) FROM file_usage WHERE bytes > 0)
                ORDER BY f.last_used_at, f.num LIMIT 1)
            RETURNING 1";
        const OF_ANY: &str = "DELETE FROM files WHERE num = (
                SELECT num FROM files WHERE id <> $1 ORDER BY last_used_at, num LIMIT 1)
            RETURNING 1";
        let mut evicted = 0;
        let mut tx = self.begin(&written.owner, StatementSize::Large).await?;
        while evicted < BATCH.unsigned_abs() && usage(&mut tx).await?.bytes > max_total_bytes {
            let mut deleted = 0;
            for sql in [OF_LARGE_OWNERS, OF_ANY] {
                if deleted == 0 {
                    deleted = tx.count(sql, values![written.id.as_str()]).await?;
                }
            }
            if deleted == 0 {
                break;
            }
            evicted += deleted;
        }
        tx.commit().await?;
        Ok(evicted)
    }

    /// Adds a file to a session. The file is kept at least as long as the session. The session is created if it does
    /// not exist.
    ///
    /// # Errors
    /// `NotFound`; else when the store fails.
    ///
    /// # Cancel safety
    /// If the future is dropped, the file is added or nothing is changed.
    pub async fn attach_file(
        &self,
        owner: &Owner,
        id: &FileId,
        session: &SessionId,
    ) -> Result<(), StoreError> {
        retrying(|| async move {
            let mut tx = self.begin(owner, StatementSize::Small).await?;
            touch(&mut tx, owner, id).await?;
            add_to_session(&mut tx, owner, id, session).await?;
            tx.commit().await
        })
        .await
    }

    /// Sets the time of last use of a file to now.
    ///
    /// # Errors
    /// `NotFound`; else when the store fails.
    pub async fn touch_file(&self, owner: &Owner, id: &FileId) -> Result<(), StoreError> {
        let mut tx = self.single(owner, StatementSize::Small).await?;
        touch(&mut tx, owner, id).await
    }

    /// Deletes the row of a file; returns whether it existed.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn delete_file(&self, owner: &Owner, id: &FileId) -> Result<bool, StoreError> {
        let sql = "DELETE FROM files WHERE owner = $1 AND id = $2 RETURNING 1";
        self.engine.make_space_to_delete().await;
        let mut tx = self.single(owner, StatementSize::Large).await?;
        let deleted = tx.count(sql, values![owner.as_str(), id.as_str()]).await?;
        Ok(deleted > 0)
    }

    /// Deletes the rows of files that no session uses and that were last used more than `ttl` ago; returns how many.
    ///
    /// # Errors
    /// When the store fails; some rows may have been deleted.
    ///
    /// # Cancel safety
    /// As [`Store::expire`].
    pub async fn expire_files(&self, ttl: Duration) -> Result<u64, StoreError> {
        let sql = "DELETE FROM files WHERE num IN (
                SELECT f.num FROM files f WHERE f.last_used_at < expiry_time_4() - $1
                  AND NOT EXISTS (SELECT 1 FROM session_files l WHERE l.file = f.num)
                ORDER BY f.last_used_at LIMIT $2) AND $3 > 0
              -- A file may be used meanwhile.
              AND last_used_at < expiry_time_4() - $1
              AND NOT EXISTS (SELECT 1 FROM session_files l WHERE l.file = files.num)
            RETURNING 1";
        self.engine.advance_expiry().await?;
        self.delete_older(sql, ttl).await
    }

    /// The number and size of the files of all owners.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn file_usage(&self) -> Result<FileUsage, StoreError> {
        let mut tx = self.read(&Owner::server(), StatementSize::Small).await?;
        usage(&mut tx).await
    }

    /// A batch of the blobs whose rows are deleted; empty if there are none.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn dead_blobs(&self) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT blob FROM dead_blobs LIMIT $1";
        let mut tx = self.read(&Owner::server(), StatementSize::Small).await?;
        let rows = tx.rows(sql, values![BATCH]).await?;
        rows.into_iter().map(|mut row| row.column(0)).collect()
    }

    /// Removes blobs from the dead ones, after their content was removed from disk.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn forget_blobs(&self, blobs: Vec<String>) -> Result<(), StoreError> {
        let blobs = &blobs;
        retrying(|| async move {
            let mut tx = self.begin(&Owner::server(), StatementSize::Large).await?;
            for blob in blobs {
                let sql = "DELETE FROM dead_blobs WHERE blob = $1";
                tx.rows(sql, values![&**blob]).await?;
            }
            tx.commit().await
        })
        .await
    }

    /// Filters the blobs that have no row. Waits for earlier writes to end.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn blobs_without_row(&self, blobs: Vec<String>) -> Result<Vec<String>, StoreError> {
        // On the writer's connection, so that earlier writes have ended.
        let mut tx = self.single(&Owner::server(), StatementSize::Large).await?;
        let mut orphans = Vec::new();
        for blob in blobs {
            let sql = "SELECT 1 FROM files WHERE blob = $1";
            if tx.row(sql, values![&*blob]).await?.is_none() {
                orphans.push(blob);
            }
        }
        Ok(orphans)
    }
}

async fn find(tx: &mut Tx, owner: &Owner, id: &FileId) -> Result<Option<StoredFile>, StoreError> {
    let values = values![owner.as_str(), id.as_str()];
    let row = tx.row(select!("f.id = $2"), values).await?;
    row.map(stored_file).transpose()
}

/// Inserts a file, unless the owner already has a file with this id; returns whether that is so.
async fn insert(tx: &mut Tx, file: &FileRecord) -> Result<bool, StoreError> {
    let sql = "INSERT INTO files (id, owner, bound, name, mime_type, bytes, purpose, tool, round, created_at, last_used_at,
                                  blob)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, micros_1(), micros_1(), $10)
        ON CONFLICT (id) DO NOTHING RETURNING 1";
    let inserted = tx
        .row(
            sql,
            values![
                file.id.as_str(),
                file.owner.as_str(),
                file.bound || file.session.is_some(),
                SqlValue::any(&file.name),
                SqlValue::any(&file.mime_type),
                signed(file.bytes),
                file.purpose.as_str(),
                SqlValue::AnyText(file.tool.as_deref()),
                SqlValue::Integer(file.round.map(i64::from)),
                &*file.blob,
            ],
        )
        .await?;
    let known = inserted.is_none();
    if known {
        let touched = touch(tx, &file.owner, &file.id).await;
        touched.map_err(|error| match error {
            StoreError::NotFound => StoreError::Exists,
            other => other,
        })?;
    }
    if let Some(session) = &file.session {
        add_to_session(tx, &file.owner, &file.id, session).await?;
    }
    Ok(known)
}

async fn touch(tx: &mut Tx, owner: &Owner, id: &FileId) -> Result<(), StoreError> {
    let sql = "UPDATE files SET last_used_at = micros_1() WHERE owner = $1 AND id = $2 RETURNING 1";
    let touched = tx.row(sql, values![owner.as_str(), id.as_str()]).await?;
    touched.map(drop).ok_or(StoreError::NotFound)
}

/// Adds a file to a session, which is created if it does not exist.
async fn add_to_session(
    tx: &mut Tx,
    owner: &Owner,
    id: &FileId,
    session: &SessionId,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO sessions (owner, session_id, bytes, created_at, updated_at)
        VALUES ($1, $2, 0, micros_1(), micros_1())
        ON CONFLICT (owner, session_id) DO UPDATE SET updated_at = excluded.updated_at RETURNING num";
    let mut row = tx
        .one(sql, values![owner.as_str(), session.as_str()])
        .await?;
    let sql = "INSERT INTO session_files (session, file) SELECT $1, num FROM files WHERE owner = $2 AND id = $3
        ON CONFLICT DO NOTHING";
    let session: i64 = row.column(0)?;
    tx.rows(sql, values![session, owner.as_str(), id.as_str()])
        .await
        .map(drop)
}

async fn usage(tx: &mut Tx) -> Result<FileUsage, StoreError> {
    let sql = "SELECT CAST(coalesce(sum(files), 0) AS bigint), CAST(coalesce(sum(bytes), 0) AS bigint) FROM file_usage";
    let mut row = tx.one(sql, &[]).await?;
    Ok(FileUsage {
        files: row.unsigned(0)?,
        bytes: row.unsigned(1)?,
    })
}

fn stored_file(mut row: Row) -> Result<StoredFile, StoreError> {
    let damaged = |what: &str| StoreError::failed(format!("a stored file has no {what}"));
    let (id, purpose): (String, String) = (row.column(0)?, row.column(4)?);
    let (round, session): (Option<i64>, Option<String>) = (row.column(6)?, row.column(9)?);
    Ok(StoredFile {
        id: FileId::parse(&id).ok_or_else(|| damaged("id"))?,
        session: session.map(session_id).transpose()?,
        name: row.column(1)?,
        mime_type: row.column(2)?,
        bytes: row.unsigned(3)?,
        purpose: Purpose::parse(&purpose).ok_or_else(|| damaged("known purpose"))?,
        tool: row.column(5)?,
        round: round.and_then(|round| u32::try_from(round).ok()),
        created_at: seconds(row.column(7)?),
        blob: row.column(8)?,
    })
}
