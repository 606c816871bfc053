//! The statements. Those that change something work inside the transaction of their caller.

use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteRow;
use sqlx::{FromRow, Row};

use super::{FileError, ListFilter, NewFile, Order, Page, Purpose, StoredFile, Usage};
use crate::ids::{FileId, Owner, SessionId};

/// Most files deleted at once, and most blobs seen to at once; other writes wait meanwhile.
pub(super) const BATCH: i64 = 100;
const MICROS_PER_SECOND: i64 = 1_000_000;

/// The columns of a [`StoredFile`]; of several sessions that use it, the oldest one.
const COLUMNS: &str =
    "f.id, f.name, f.mime_type, f.bytes, f.purpose, f.tool, f.round, f.created_at, f.blob,
    (SELECT s.session_id FROM session_files l JOIN sessions s ON s.id = l.session
     WHERE l.file = f.num ORDER BY s.id LIMIT 1) AS session_id";

/// A row to be written.
#[derive(Debug)]
pub(super) struct Insert<'a> {
    pub(super) id: &'a FileId,
    pub(super) owner: &'a Owner,
    pub(super) file: NewFile<'a>,
    pub(super) name: &'a str,
    pub(super) mime_type: &'a str,
    pub(super) bytes: u64,
    pub(super) blob: &'a str,
    pub(super) max_total_bytes: u64,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inserted {
    /// A new file, for which so many older ones had to go.
    New { evicted: u64 },
    /// The owner has a file with that id.
    Known,
}

pub(super) async fn get(
    connection: &mut SqliteConnection,
    owner: &Owner,
    id: &FileId,
) -> Result<Option<StoredFile>, FileError> {
    let sql = format!("SELECT {COLUMNS} FROM files f WHERE f.owner = ? AND f.id = ?");
    let found = sqlx::query_as(sqlx::AssertSqlSafe(sql))
        .bind(owner.as_str())
        .bind(id.as_str())
        .fetch_optional(connection)
        .await?;
    Ok(found)
}

pub(super) async fn list(
    connection: &mut SqliteConnection,
    owner: &Owner,
    filter: &ListFilter<'_>,
) -> Result<Page, FileError> {
    let (comparison, direction, mut from) = match filter.order {
        Order::Ascending => (">", "ASC", (i64::MIN, i64::MIN)),
        Order::Descending => ("<", "DESC", (i64::MAX, i64::MAX)),
    };
    if let Some(after) = filter.after {
        from = sqlx::query_as("SELECT created_at, num FROM files WHERE owner = ? AND id = ?")
            .bind(owner.as_str())
            .bind(after.as_str())
            .fetch_optional(&mut *connection)
            .await?
            .ok_or(FileError::NotFound)?;
    }
    let sql = format!(
        "SELECT {COLUMNS} FROM files f
         WHERE f.owner = ?1 AND (?2 IS NULL OR f.purpose = ?2)
           AND (?3 IS NULL OR EXISTS (SELECT 1 FROM session_files l JOIN sessions s ON s.id = l.session
                                      WHERE l.file = f.num AND s.owner = ?1 AND s.session_id = ?3))
           AND (f.created_at, f.num) {comparison} (?4, ?5)
         ORDER BY f.created_at {direction}, f.num {direction} LIMIT ?6"
    );
    let mut data: Vec<StoredFile> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
        .bind(owner.as_str())
        .bind(filter.purpose.map(Purpose::as_str))
        .bind(filter.session.map(SessionId::as_str))
        .bind(from.0)
        .bind(from.1)
        // One more than asked for tells whether there are more.
        .bind(i64::try_from(filter.limit.saturating_add(1)).unwrap_or(i64::MAX))
        .fetch_all(connection)
        .await?;
    let has_more = data.len() > filter.limit;
    data.truncate(filter.limit);
    Ok(Page { data, has_more })
}

pub(super) async fn insert(
    connection: &mut SqliteConnection,
    now: i64,
    insert: &Insert<'_>,
) -> Result<Inserted, FileError> {
    if touch(connection, now, insert.owner, insert.id).await? {
        attach(connection, now, insert).await?;
        return Ok(Inserted::Known);
    }
    sqlx::query(
        "INSERT INTO files (id, owner, bound, name, mime_type, bytes, purpose, tool, round, created_at, last_used_at, blob)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10, ?11)",
    )
    .bind(insert.id.as_str())
    .bind(insert.owner.as_str())
    .bind(insert.file.session.is_some())
    .bind(insert.name)
    .bind(insert.mime_type)
    .bind(number(insert.bytes))
    .bind(insert.file.purpose.as_str())
    .bind(insert.file.tool)
    .bind(insert.file.round.map(i64::from))
    .bind(now)
    .bind(insert.blob)
    .execute(&mut *connection)
    .await?;
    attach(connection, now, insert).await?;
    let evicted = evict(connection, insert).await?;
    Ok(Inserted::New { evicted })
}

async fn attach(
    connection: &mut SqliteConnection,
    now: i64,
    insert: &Insert<'_>,
) -> Result<(), FileError> {
    match insert.file.session {
        Some(session) => link(connection, now, insert.owner, insert.id, session).await,
        None => Ok(()),
    }
}

/// Notes that a file is used now; says whether the owner has one of that id.
pub(super) async fn touch(
    connection: &mut SqliteConnection,
    now: i64,
    owner: &Owner,
    id: &FileId,
) -> Result<bool, FileError> {
    let done = sqlx::query("UPDATE files SET last_used_at = ? WHERE owner = ? AND id = ?")
        .bind(now)
        .bind(owner.as_str())
        .bind(id.as_str())
        .execute(connection)
        .await?;
    Ok(done.rows_affected() > 0)
}

/// Makes a session use a file. A session that has no messages yet is made for it.
pub(super) async fn link(
    connection: &mut SqliteConnection,
    now: i64,
    owner: &Owner,
    id: &FileId,
    session: &SessionId,
) -> Result<(), FileError> {
    sqlx::query(
        "INSERT INTO sessions (owner, session_id, created_at, updated_at) VALUES (?1, ?2, ?3, ?3)
         ON CONFLICT (owner, session_id) DO UPDATE SET updated_at = excluded.updated_at",
    )
    .bind(owner.as_str())
    .bind(session.as_str())
    .bind(now)
    .execute(&mut *connection)
    .await?;
    sqlx::query(
        "INSERT INTO session_files (session, file)
         SELECT s.id, f.num FROM sessions s, files f
         WHERE s.owner = ?1 AND s.session_id = ?2 AND f.owner = ?1 AND f.id = ?3
         ON CONFLICT DO NOTHING",
    )
    .bind(owner.as_str())
    .bind(session.as_str())
    .bind(id.as_str())
    .execute(connection)
    .await?;
    Ok(())
}

/// Deletes what was used longest ago until everything fits again, but never the file that was just written. Who has
/// more than the average of all owners pays first.
async fn evict(connection: &mut SqliteConnection, insert: &Insert<'_>) -> Result<u64, FileError> {
    const OF_LARGE_OWNERS: &str = "DELETE FROM files WHERE num =
        (SELECT f.num FROM files f JOIN file_usage u ON u.owner = f.owner
         WHERE f.id <> ? AND u.bytes >= (SELECT avg(bytes) FROM file_usage WHERE bytes > 0)
         ORDER BY f.last_used_at, f.num LIMIT 1)";
    const OF_ANY: &str = "DELETE FROM files WHERE num =
        (SELECT num FROM files WHERE id <> ? ORDER BY last_used_at, num LIMIT 1)";
    let mut evicted = 0;
    while usage(connection).await?.bytes > insert.max_total_bytes {
        let mut deleted = 0;
        for sql in [OF_LARGE_OWNERS, OF_ANY] {
            if deleted == 0 {
                let query = sqlx::query(sql).bind(insert.id.as_str());
                deleted = query.execute(&mut *connection).await?.rows_affected();
            }
        }
        if deleted == 0 {
            break;
        }
        evicted += 1;
    }
    Ok(evicted)
}

pub(super) async fn delete(
    connection: &mut SqliteConnection,
    owner: &Owner,
    id: &FileId,
) -> Result<bool, FileError> {
    let done = sqlx::query("DELETE FROM files WHERE owner = ? AND id = ?")
        .bind(owner.as_str())
        .bind(id.as_str())
        .execute(connection)
        .await?;
    Ok(done.rows_affected() > 0)
}

/// Deletes up to [`BATCH`] files that no session uses and that were last used before the time.
pub(super) async fn expire_some(
    connection: &mut SqliteConnection,
    before: i64,
) -> Result<u64, FileError> {
    let done = sqlx::query(
        "DELETE FROM files WHERE num IN
         (SELECT f.num FROM files f WHERE f.last_used_at < ?
            AND NOT EXISTS (SELECT 1 FROM session_files l WHERE l.file = f.num)
          ORDER BY f.last_used_at LIMIT ?)",
    )
    .bind(before)
    .bind(BATCH)
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

pub(super) async fn usage(connection: &mut SqliteConnection) -> Result<Usage, FileError> {
    let (files, bytes): (i64, i64) =
        sqlx::query_as("SELECT coalesce(sum(files), 0), coalesce(sum(bytes), 0) FROM file_usage")
            .fetch_one(connection)
            .await?;
    Ok(Usage {
        files: u64::try_from(files).unwrap_or_default(),
        bytes: u64::try_from(bytes).unwrap_or_default(),
    })
}

/// The name of the database.
pub(super) async fn store_name(connection: &mut SqliteConnection) -> Result<String, FileError> {
    let name = sqlx::query_scalar("SELECT name FROM file_store LIMIT 1");
    Ok(name.fetch_one(connection).await?)
}

/// Up to [`BATCH`] blobs that nothing refers to any more.
pub(super) async fn dead_blobs(
    connection: &mut SqliteConnection,
) -> Result<Vec<String>, FileError> {
    let blobs = sqlx::query_scalar("SELECT blob FROM dead_blobs LIMIT ?").bind(BATCH);
    Ok(blobs.fetch_all(connection).await?)
}

/// Forgets blobs that are removed.
pub(super) async fn bury(
    connection: &mut SqliteConnection,
    blobs: &[String],
) -> Result<(), FileError> {
    sqlx::query("DELETE FROM dead_blobs WHERE blob IN (SELECT value FROM json_each(?))")
        .bind(json(blobs)?)
        .execute(connection)
        .await?;
    Ok(())
}

/// Those of the blobs that have no row.
pub(super) async fn without_row(
    connection: &mut SqliteConnection,
    blobs: &[String],
) -> Result<Vec<String>, FileError> {
    let orphans = sqlx::query_scalar(
        "SELECT value FROM json_each(?) WHERE NOT EXISTS (SELECT 1 FROM files WHERE blob = value)",
    );
    Ok(orphans.bind(json(blobs)?).fetch_all(connection).await?)
}

fn json(blobs: &[String]) -> Result<String, FileError> {
    serde_json::to_string(blobs).map_err(|error| FileError::Store(Box::new(error)))
}

fn number(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl FromRow<'_, SqliteRow> for StoredFile {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        let text = |column: &str| row.try_get::<String, _>(column);
        let damaged =
            |what: &str| sqlx::Error::Decode(format!("a stored file has no {what}").into());
        let session: Option<String> = row.try_get("session_id")?;
        let session = session.map(SessionId::try_from).transpose();
        let round: Option<i64> = row.try_get("round")?;
        Ok(Self {
            id: FileId::parse(&text("id")?).ok_or_else(|| damaged("id"))?,
            session: session.map_err(|error| sqlx::Error::Decode(Box::new(error)))?,
            name: text("name")?,
            mime_type: text("mime_type")?,
            bytes: u64::try_from(row.try_get::<i64, _>("bytes")?).unwrap_or_default(),
            purpose: Purpose::parse(&text("purpose")?).ok_or_else(|| damaged("known purpose"))?,
            tool: row.try_get("tool")?,
            round: round.and_then(|round| u32::try_from(round).ok()),
            created_at: row
                .try_get::<i64, _>("created_at")?
                .div_euclid(MICROS_PER_SECOND),
            blob: text("blob")?,
        })
    }
}
