//! The statements on rows of files. Each runs in the transaction of its caller.

use rusqlite::{Connection, Row, params};

use super::super::super::StoreError;
use super::super::super::clock::seconds;
use super::super::super::file::{FileRecord, FileUsage, Purpose, StoredFile};
use super::super::connections::StatementError;
use crate::ids::{FileId, Owner, SessionId};

/// Most files deleted in one transaction, and most blobs returned at once; others follow.
pub(super) const BATCH: usize = 100;

/// The columns of a [`StoredFile`], with the oldest session that uses it.
pub(super) const COLUMNS: &str =
    "f.id, f.name, f.mime_type, f.bytes, f.purpose, f.tool, f.round, f.created_at, f.blob,
    (SELECT s.session_id FROM session_files l JOIN sessions s ON s.id = l.session
     WHERE l.file = f.num AND s.owner = f.owner ORDER BY s.created_at, s.id LIMIT 1) AS session_id";

pub(super) fn get(
    connection: &Connection,
    owner: &Owner,
    id: &FileId,
) -> Result<Option<StoredFile>, StatementError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM files f WHERE f.owner = ?1 AND f.id = ?2"
    ))?;
    let mut rows = statement.query([owner.as_str(), id.as_str()])?;
    rows.next()?.map(stored_file).transpose()
}

/// Inserts a file, unless the owner already has a file with this id; returns whether that is so.
pub(super) fn insert(
    connection: &Connection,
    now: i64,
    file: &FileRecord,
) -> Result<bool, StatementError> {
    let known = touch(connection, now, &file.owner, &file.id)?;
    if !known {
        let mut statement = connection.prepare_cached(
            "INSERT INTO files (id, owner, bound, name, mime_type, bytes, purpose, tool, round, created_at,
                                last_used_at, blob)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10, ?11)",
        )?;
        statement.execute(params![
            file.id.as_str(),
            file.owner.as_str(),
            file.bound || file.session.is_some(),
            file.name,
            file.mime_type,
            i64::try_from(file.bytes).unwrap_or(i64::MAX),
            file.purpose.as_str(),
            file.tool,
            file.round,
            now,
            file.blob,
        ])?;
    }
    if let Some(session) = &file.session {
        add_to_session(connection, now, &file.owner, &file.id, session)?;
    }
    Ok(known)
}

/// Sets the time of last use of a file; returns whether the owner has a file with this id.
pub(super) fn touch(
    connection: &Connection,
    now: i64,
    owner: &Owner,
    id: &FileId,
) -> Result<bool, StatementError> {
    let mut statement = connection
        .prepare_cached("UPDATE files SET last_used_at = ?1 WHERE owner = ?2 AND id = ?3")?;
    Ok(statement.execute(params![now, owner.as_str(), id.as_str()])? > 0)
}

/// Adds a file to a session, which is created if it does not exist.
pub(super) fn add_to_session(
    connection: &Connection,
    now: i64,
    owner: &Owner,
    id: &FileId,
    session: &SessionId,
) -> Result<(), StatementError> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO sessions (owner, session_id, bytes, created_at, updated_at) VALUES (?1, ?2, 0, ?3, ?3)
         ON CONFLICT (owner, session_id) DO UPDATE SET updated_at = excluded.updated_at",
    )?;
    statement.execute(params![owner.as_str(), session.as_str(), now])?;
    let mut statement = connection.prepare_cached(
        "INSERT INTO session_files (session, file)
         SELECT s.id, f.num FROM sessions s, files f
         WHERE s.owner = ?1 AND s.session_id = ?2 AND f.owner = ?1 AND f.id = ?3
         ON CONFLICT DO NOTHING",
    )?;
    statement.execute([owner.as_str(), session.as_str(), id.as_str()])?;
    Ok(())
}

/// Deletes up to [`BATCH`] least recently used files until the total is at most `max_total_bytes`, but never the file
/// `written`. Files of owners with at least the average number of bytes are deleted first.
pub(super) fn evict_some(
    connection: &Connection,
    written: &FileId,
    max_total_bytes: u64,
) -> Result<u64, StatementError> {
    const OF_LARGE_OWNERS: &str = "DELETE FROM files WHERE num =
        (SELECT f.num FROM files f JOIN file_usage u ON u.owner = f.owner
         WHERE f.id <> ?1 AND u.bytes >= (SELECT avg(bytes) FROM file_usage WHERE bytes > 0)
         ORDER BY f.last_used_at, f.num LIMIT 1)";
    const OF_ANY: &str = "DELETE FROM files WHERE num =
        (SELECT num FROM files WHERE id <> ?1 ORDER BY last_used_at, num LIMIT 1)";
    let mut evicted = 0;
    while evicted < BATCH as u64 && usage(connection)?.bytes > max_total_bytes {
        let mut deleted = 0;
        for sql in [OF_LARGE_OWNERS, OF_ANY] {
            if deleted == 0 {
                deleted = connection
                    .prepare_cached(sql)?
                    .execute([written.as_str()])?;
            }
        }
        if deleted == 0 {
            break;
        }
        evicted += 1;
    }
    Ok(evicted)
}

pub(super) fn usage(connection: &Connection) -> Result<FileUsage, StatementError> {
    let mut statement = connection.prepare_cached(
        "SELECT coalesce(sum(files), 0), coalesce(sum(bytes), 0) FROM file_usage",
    )?;
    let usage = statement.query_row([], |row| {
        let (files, bytes): (i64, i64) = (row.get(0)?, row.get(1)?);
        Ok(FileUsage {
            files: u64::try_from(files).unwrap_or_default(),
            bytes: u64::try_from(bytes).unwrap_or_default(),
        })
    });
    Ok(usage?)
}

pub(super) fn stored_file(row: &Row<'_>) -> Result<StoredFile, StatementError> {
    let damaged = |what: &str| {
        StatementError::Store(StoreError::failed(format!("a stored file has no {what}")))
    };
    let (id, purpose): (String, String) = (row.get("id")?, row.get("purpose")?);
    let session: Option<String> = row.get("session_id")?;
    let session = session.map(SessionId::try_from).transpose();
    Ok(StoredFile {
        id: FileId::parse(&id).ok_or_else(|| damaged("id"))?,
        session: session.map_err(StoreError::failed)?,
        name: row.get("name")?,
        mime_type: row.get("mime_type")?,
        bytes: u64::try_from(row.get::<_, i64>("bytes")?).unwrap_or_default(),
        purpose: Purpose::parse(&purpose).ok_or_else(|| damaged("known purpose"))?,
        tool: row.get("tool")?,
        round: row.get("round")?,
        created_at: seconds(row.get("created_at")?),
        blob: row.get("blob")?,
    })
}
