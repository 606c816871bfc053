//! The operations on rows of files.

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, query};

use super::super::StoreError;
use super::super::clock::seconds;
use super::super::file::{
    FileFilter, FileOrder, FilePage, FileRecord, FileUsage, InsertedFile, Purpose, StoredFile,
};
use super::Postgres;
use super::connect::{column, signed, text_column, text_of, unsigned};
use super::sessions::session_id;
use crate::ids::{FileId, Owner, SessionId};

/// Most blobs returned at once; others follow.
const BATCH: i64 = 100;

/// The columns of a [`StoredFile`], with the oldest session that uses it.
macro_rules! columns {
    () => {
        "f.id, f.name, f.mime_type, f.bytes, f.purpose, f.tool, f.round, f.created_at, f.blob,
        (SELECT s.session_id FROM session_files l JOIN sessions s ON s.num = l.session
         WHERE l.file = f.num AND s.owner = f.owner ORDER BY s.created_at, s.num LIMIT 1)"
    };
}

impl Postgres {
    pub(in crate::store) async fn file(
        &self,
        owner: &Owner,
        id: &FileId,
    ) -> Result<Option<StoredFile>, StoreError> {
        let sql = concat!(
            "SELECT ",
            columns!(),
            " FROM files f WHERE f.owner = $1 AND f.id = $2"
        );
        let select = || query(sql).bind(owner.as_str()).bind(id.as_str());
        let row = self.0.connections.small(owner).row(select).await?;
        row.as_ref().map(stored_file).transpose()
    }

    pub(in crate::store) async fn files(
        &self,
        owner: &Owner,
        filter: &FileFilter<'_>,
    ) -> Result<FilePage, StoreError> {
        let (comparison, direction, mut from) = match filter.order {
            FileOrder::Ascending => (">", "ASC", (i64::MIN, i64::MIN)),
            FileOrder::Descending => ("<", "DESC", (i64::MAX, i64::MAX)),
        };
        if let Some(after) = filter.after {
            let sql = "SELECT created_at, num FROM files WHERE owner = $1 AND id = $2";
            let find = || query(sql).bind(owner.as_str()).bind(after.as_str());
            let row = self
                .0
                .connections
                .large(owner)
                .row(find)
                .await?
                .ok_or(StoreError::NotFound)?;
            from = (column(&row, 0)?, column(&row, 1)?);
        }
        let sql = format!(
            "SELECT {} FROM files f
             WHERE f.owner = $1 AND ($2 IS NULL OR f.purpose = $2)
               AND ($3 IS NULL OR f.num IN (SELECT l.file FROM session_files l JOIN sessions s ON s.num = l.session
                                            WHERE s.owner = $1 AND s.session_id = $3))
               AND (f.created_at, f.num) {comparison} ($4, $5)
             ORDER BY f.created_at {direction}, f.num {direction} LIMIT $6",
            columns!()
        );
        // One more row than the limit shows whether there are more.
        let most = filter.limit.saturating_add(1);
        let select = || {
            let statement = query(AssertSqlSafe(sql.clone())).bind(owner.as_str());
            let statement = statement.bind(filter.purpose.map(Purpose::as_str));
            let statement = statement.bind(filter.session.map(SessionId::as_str));
            statement.bind(from.0).bind(from.1).bind(signed(most))
        };
        let rows = self.0.connections.large(owner).rows(select).await?;
        let files = rows.iter().take(filter.limit).map(|row| {
            let file = stored_file(row)?;
            Ok(StoredFile {
                session: filter.session.cloned().or(file.session),
                ..file
            })
        });
        Ok(FilePage {
            data: files.collect::<Result<_, StoreError>>()?,
            has_more: rows.len() > filter.limit,
        })
    }

    pub(in crate::store) async fn insert_file(
        &self,
        file: FileRecord,
        max_total_bytes: u64,
    ) -> Result<InsertedFile, StoreError> {
        let insert = || {
            query("SELECT insert_file_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)")
                .bind(file.owner.as_str())
                .bind(file.id.as_str())
                .bind(file.session.as_ref().map(SessionId::as_str))
                .bind(file.name.as_bytes())
                .bind(file.mime_type.as_bytes())
                .bind(signed(file.bytes))
                .bind(file.purpose.as_str())
                .bind(file.tool.as_ref().map(String::as_bytes))
                .bind(file.round.map(i64::from))
                .bind(&*file.blob)
        };
        let known: bool = column(&self.0.connections.small(&file.owner).one(insert).await?, 0)?;
        if file.bound && file.session.is_none() && !known {
            let sql = "UPDATE files SET bound = true WHERE owner = $1 AND id = $2";
            let bind = || query(sql).bind(file.owner.as_str()).bind(file.id.as_str());
            self.0.connections.small(&file.owner).rows(bind).await?;
        }
        let mut evicted = 0;
        while self.file_usage().await?.bytes > max_total_bytes && self.evict_file(&file).await? {
            evicted += 1;
        }
        Ok(InsertedFile {
            file: self.file(&file.owner, &file.id).await?,
            known,
            evicted,
        })
    }

    /// Deletes the least recently used file, but never `file`, which was written; returns whether there was one. Files of owners
    /// with at least the average number of bytes are deleted first.
    async fn evict_file(&self, file: &FileRecord) -> Result<bool, StoreError> {
        let sql = "DELETE FROM files WHERE num = (
                SELECT f.num FROM files f JOIN file_usage u ON u.owner = f.owner WHERE f.id <> $1
                ORDER BY u.bytes < (SELECT avg(bytes) FROM file_usage WHERE bytes > 0), f.last_used_at, f.num LIMIT 1)
            RETURNING 1";
        let delete = || query(sql).bind(file.id.as_str());
        Ok(self
            .0
            .connections
            .large(&file.owner)
            .row(delete)
            .await?
            .is_some())
    }

    pub(in crate::store) async fn attach_file(
        &self,
        owner: &Owner,
        id: &FileId,
        session: &SessionId,
    ) -> Result<(), StoreError> {
        let sql = "WITH used AS (UPDATE files SET last_used_at = micros_1() WHERE owner = $1 AND id = $2 RETURNING 1)
            SELECT add_to_session_1($1, $2, $3) FROM used";
        let attach = || {
            query(sql)
                .bind(owner.as_str())
                .bind(id.as_str())
                .bind(session.as_str())
        };
        let attached = self.0.connections.small(owner).row(attach).await?;
        attached.map(drop).ok_or(StoreError::NotFound)
    }

    pub(in crate::store) async fn touch_file(
        &self,
        owner: &Owner,
        id: &FileId,
    ) -> Result<(), StoreError> {
        let sql =
            "UPDATE files SET last_used_at = micros_1() WHERE owner = $1 AND id = $2 RETURNING 1";
        let touch = || query(sql).bind(owner.as_str()).bind(id.as_str());
        let touched = self.0.connections.small(owner).row(touch).await?;
        touched.map(drop).ok_or(StoreError::NotFound)
    }

    pub(in crate::store) async fn delete_file(
        &self,
        owner: &Owner,
        id: &FileId,
    ) -> Result<bool, StoreError> {
        let sql = "DELETE FROM files WHERE owner = $1 AND id = $2 RETURNING 1";
        let delete = || query(sql).bind(owner.as_str()).bind(id.as_str());
        Ok(self.0.connections.small(owner).row(delete).await?.is_some())
    }

    pub(in crate::store) async fn file_usage(&self) -> Result<FileUsage, StoreError> {
        let sql = "SELECT coalesce(sum(files), 0)::bigint, coalesce(sum(bytes), 0)::bigint FROM file_usage";
        let row = self.0.connections.server().one(|| query(sql)).await?;
        Ok(FileUsage {
            files: unsigned(column(&row, 0)?),
            bytes: unsigned(column(&row, 1)?),
        })
    }

    pub(in crate::store) async fn dead_blobs(&self) -> Result<Vec<String>, StoreError> {
        let select = || query("SELECT blob FROM dead_blobs LIMIT $1").bind(BATCH);
        self.blobs(select).await
    }

    pub(in crate::store) async fn forget_blobs(
        &self,
        blobs: Vec<String>,
    ) -> Result<(), StoreError> {
        let delete = || query("DELETE FROM dead_blobs WHERE blob = ANY ($1)").bind(&blobs);
        self.0
            .connections
            .large(&Owner::server())
            .rows(delete)
            .await
            .map(drop)
    }

    pub(in crate::store) async fn blobs_without_row(
        &self,
        blobs: Vec<String>,
    ) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT b FROM unnest($1::text[]) AS b WHERE NOT EXISTS (SELECT 1 FROM files WHERE blob = b)";
        self.blobs(|| query(sql).bind(&blobs)).await
    }

    async fn blobs<'q>(
        &self,
        select: impl Fn() -> super::connect::Statement<'q>,
    ) -> Result<Vec<String>, StoreError> {
        let rows = self
            .0
            .connections
            .large(&Owner::server())
            .rows(select)
            .await?;
        rows.iter().map(|row| column(row, 0)).collect()
    }
}

fn stored_file(row: &PgRow) -> Result<StoredFile, StoreError> {
    let damaged = |what: &str| StoreError::failed(format!("a stored file has no {what}"));
    let round: Option<i64> = column(row, 6)?;
    let session: Option<String> = column(row, 9)?;
    Ok(StoredFile {
        id: FileId::parse(column(row, 0)?).ok_or_else(|| damaged("id"))?,
        session: session.map(session_id).transpose()?,
        name: text_of(row, 1)?,
        mime_type: text_of(row, 2)?,
        bytes: unsigned(column(row, 3)?),
        purpose: Purpose::parse(column(row, 4)?).ok_or_else(|| damaged("known purpose"))?,
        tool: text_column(row, 5)?,
        round: round.and_then(|round| u32::try_from(round).ok()),
        created_at: seconds(column(row, 7)?),
        blob: column(row, 8)?,
    })
}
