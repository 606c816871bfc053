//! The statements on records of runs. Each runs in the transaction of its caller.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::super::super::StoreError;
use super::super::super::clock::seconds;
use super::super::super::run::{AnswerLimits, RunRecord, RunRecordState, StoredAnswer};
use super::super::connections::{Executor, StatementError};
use super::super::read::{damaged, session_id};
use super::super::size::{CHUNK, Extent, TASK_LIMIT};
use super::super::write::{HIDDEN, count};
use super::keys;
use crate::ids::{Owner, RunId, SessionId};

/// The row of a record, without its texts.
#[derive(Debug)]
pub(super) struct RunRow {
    pub(super) num: i64,
    /// Bytes of the answer; 0 without an answer.
    bytes: i64,
    ended: bool,
}

impl RunRow {
    pub(super) fn find(
        connection: &Connection,
        owner: &Owner,
        run: &RunId,
    ) -> Result<Option<Self>, StatementError> {
        let mut statement = connection.prepare_cached(
            "SELECT num, bytes, status = 'ended' FROM runs WHERE id = ?1 AND owner = ?2",
        )?;
        let found = statement.query_row([run.as_str(), owner.as_str()], Self::of);
        Ok(found.optional()?)
    }

    /// The row of a run that has no answer yet.
    pub(super) fn find_unended(
        connection: &Connection,
        owner: &Owner,
        run: &RunId,
    ) -> Result<Option<Self>, StatementError> {
        Ok(Self::find(connection, owner, run)?.filter(|row| !row.ended))
    }

    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            num: row.get(0)?,
            bytes: row.get(1)?,
            ended: row.get(2)?,
        })
    }

    pub(super) fn extent(&self) -> Extent {
        Extent::of_row(self.bytes)
    }

    /// Deletes the record. A large answer is only hidden; [`sweep`] removes it later.
    pub(super) fn remove(&self, connection: &Connection) -> Result<(), StatementError> {
        if !self.extent().fits(CHUNK) {
            return hide(connection, self.num);
        }
        let mut statement = connection.prepare_cached("DELETE FROM runs WHERE num = ?1")?;
        statement.execute([self.num])?;
        Ok(())
    }

    /// Replaces the record with the hidden row `draft`.
    pub(super) fn move_to(
        self,
        connection: &Connection,
        draft: i64,
        owner: &Owner,
        run: &RunId,
    ) -> Result<Self, StatementError> {
        let mut statement = connection
            .prepare_cached("DELETE FROM runs WHERE num = ?1 RETURNING session_id, created_at")?;
        let (session, created_at): (Option<String>, i64) =
            statement.query_row([self.num], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let mut statement = connection.prepare_cached(
            "UPDATE runs SET id = ?2, owner = ?3, session_id = ?4, created_at = ?5 WHERE num = ?1",
        )?;
        let (id, owner) = (run.as_str(), owner.as_str());
        statement.execute(params![draft, id, owner, session, created_at])?;
        Ok(Self { num: draft, ..self })
    }
}

/// See [`crate::store::Store::begin_run`].
pub(in crate::store::sqlite) fn begin_run(
    connection: &Connection,
    now: i64,
    run: &RunId,
    owner: &Owner,
    session: Option<&SessionId>,
) -> Result<(), StatementError> {
    let session = session.map(SessionId::as_str);
    let mut statement =
        connection.prepare_cached("SELECT owner, session_id, status FROM runs WHERE id = ?1")?;
    let found = statement.query_row([run.as_str()], |row| {
        let found: (String, Option<String>, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(found)
    });
    let Some((holder, known, status)) = found.optional()? else {
        let mut statement = connection.prepare_cached(
            "INSERT INTO runs (id, owner, session_id, status, created_at) VALUES (?1, ?2, ?3, 'running', ?4)",
        )?;
        statement.execute(params![run.as_str(), owner.as_str(), session, now])?;
        return keys::mark_recorded(connection, owner, run);
    };
    if holder != owner.as_str() {
        return Err(StoreError::Exists.into());
    }
    let moved = session.is_some() && session != known.as_deref();
    if moved || status == "interrupted" {
        let mut statement = connection.prepare_cached(
            "UPDATE runs SET session_id = coalesce(?2, session_id),
                ended_at = CASE status WHEN 'interrupted' THEN NULL ELSE ended_at END,
                status = CASE status WHEN 'interrupted' THEN 'running' ELSE status END
             WHERE id = ?1",
        )?;
        statement.execute(params![run.as_str(), session])?;
    }
    Ok(())
}

/// The session of a run, if the run has a record with one.
pub(super) fn session_of(
    connection: &Connection,
    owner: &Owner,
    run: &RunId,
) -> Result<Option<SessionId>, StatementError> {
    let mut statement =
        connection.prepare_cached("SELECT session_id FROM runs WHERE id = ?1 AND owner = ?2")?;
    let found = statement.query_row([run.as_str(), owner.as_str()], |row| row.get(0));
    found.optional()?.flatten().map(session_id).transpose()
}

/// The record of a run.
pub(super) fn get(
    connection: &Connection,
    owner: &Owner,
    run: &RunId,
) -> Result<Option<RunRecord>, StatementError> {
    let mut statement = connection.prepare_cached(
        "SELECT session_id, status, created_at, bytes FROM runs WHERE id = ?1 AND owner = ?2",
    )?;
    let mut rows = statement.query([run.as_str(), owner.as_str()])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let state = match row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)? {
        "running" => RunRecordState::Running,
        "interrupted" => RunRecordState::Interrupted,
        "ended" => RunRecordState::Ended {
            bytes: Extent::of_row(row.get(3)?).bytes as u64,
        },
        other => return Err(damaged(format!("a stored run has the status {other:?}"))),
    };
    Ok(Some(RunRecord {
        id: run.clone(),
        owner: owner.clone(),
        session_id: row
            .get::<_, Option<String>>(0)?
            .map(session_id)
            .transpose()?,
        created_at: seconds(row.get(2)?),
        state,
    }))
}

/// The answer of a run. In a task, one larger than the limit is an error.
pub(super) fn answer(
    connection: &mut Connection,
    owner: &Owner,
    run: &RunId,
    executor: Executor,
) -> Result<Option<StoredAnswer>, StatementError> {
    // One transaction, so that the pieces belong to the row.
    let transaction = connection.transaction()?;
    let mut statement = transaction.prepare_cached(
        "SELECT num, http_status, headers, bytes, kept FROM runs
         WHERE id = ?1 AND owner = ?2 AND status = 'ended'",
    )?;
    let mut rows = statement.query([run.as_str(), owner.as_str()])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let extent = Extent::of_row(row.get(3)?);
    if executor == Executor::Task && !extent.fits(TASK_LIMIT) {
        return Err(StatementError::LimitExceeded);
    }
    let headers: String = row.get(2)?;
    let length = extent.bytes.saturating_sub(headers.len());
    let mut body = Vec::with_capacity(length.min(AnswerLimits::ANSWER));
    let mut statement =
        transaction.prepare_cached("SELECT piece FROM run_bodies WHERE run = ?1 ORDER BY seq")?;
    let mut pieces = statement.query([row.get::<_, i64>(0)?])?;
    while let Some(piece) = pieces.next()? {
        let piece = piece.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?;
        body.extend_from_slice(piece);
    }
    if body.len() != length {
        let stored = body.len();
        return Err(damaged(format!(
            "{stored} bytes of a stored answer of {length} bytes are there"
        )));
    }
    Ok(Some(StoredAnswer {
        kept: row.get(4)?,
        status: row.get(1)?,
        headers: serde_json::from_str(&headers).map_err(StoreError::failed)?,
        body: body.into(),
    }))
}

/// Inserts a hidden row for an answer that is written in pieces.
pub(super) fn insert_draft(connection: &Connection, now: i64) -> Result<i64, StatementError> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO runs (id, owner, status, created_at) VALUES ('draft-' || ?1, ?2, 'draft', ?1)",
    )?;
    Ok(statement.insert(params![now, HIDDEN])?)
}

/// Hides a row, which [`sweep`] removes later.
pub(super) fn hide(connection: &Connection, num: i64) -> Result<(), StatementError> {
    let mut statement = connection.prepare_cached(
        "UPDATE runs SET id = 'deleted-' || num, owner = ?2, status = 'deleted', session_id = NULL, ended_at = NULL
         WHERE num = ?1",
    )?;
    statement.execute(params![num, HIDDEN])?;
    Ok(())
}

/// Removes some pieces of a hidden answer, and the row with the last one; returns whether there may be more.
pub(super) fn sweep(connection: &Connection) -> Result<bool, StatementError> {
    let mut statement = connection
        .prepare_cached("SELECT num FROM runs WHERE status = 'deleted' ORDER BY num LIMIT 1")?;
    let found = statement.query_row([], |row| row.get::<_, i64>(0));
    let Some(num) = found.optional()? else {
        return Ok(false);
    };
    let mut statement = connection.prepare_cached(
        "DELETE FROM run_bodies WHERE run = ?1 AND seq <
         (SELECT seq + max(1, ?2 / max(1, octet_length(piece))) FROM run_bodies WHERE run = ?1 ORDER BY seq LIMIT 1)",
    )?;
    if statement.execute([num, count(CHUNK.bytes)])? == 0 {
        let mut statement = connection.prepare_cached("DELETE FROM runs WHERE num = ?1")?;
        statement.execute([num])?;
    }
    Ok(true)
}

/// Deletes some of the records that ended before `cutoff`; returns how many, and whether there may be more.
pub(super) fn expire_some(
    connection: &Connection,
    cutoff: i64,
) -> Result<(u64, bool), StatementError> {
    let mut statement = connection.prepare_cached(
        "SELECT num, bytes, status = 'ended' FROM runs
         WHERE ended_at < ?1 AND (kept = 0 OR NOT EXISTS (
             SELECT 1 FROM sessions WHERE sessions.owner = runs.owner AND sessions.session_id = runs.session_id))
         ORDER BY ended_at LIMIT ?2",
    )?;
    let rows = statement.query_map([cutoff, count(CHUNK.rows)], RunRow::of)?;
    let rows: Vec<RunRow> = rows.collect::<Result<_, _>>()?;
    let mut removed = Extent::default();
    for row in &rows {
        if !removed.fits(CHUNK) {
            return Ok((removed.rows as u64, true));
        }
        row.remove(connection)?;
        removed = removed.plus(row.extent());
    }
    Ok((removed.rows as u64, rows.len() == CHUNK.rows))
}

/// The bytes that all answers and keys count.
pub(super) fn total_bytes(connection: &Connection) -> Result<u64, StatementError> {
    let mut statement = connection.prepare_cached(
        "SELECT coalesce(sum(bytes), 0), coalesce(sum(answers), 0) FROM run_usage",
    )?;
    let (bytes, answers): (i64, i64) =
        statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let unsigned = |number| u64::try_from(number).unwrap_or_default();
    Ok(unsigned(bytes).saturating_add(unsigned(answers).saturating_mul(AnswerLimits::ROW)))
}

/// Deletes some answers and idempotency keys while all count more than `most`, but not those of `written`; returns whether
/// there may be more to delete. The oldest answers of the owner with the most bytes go first, and keys when it has none: a
/// request that is repeated with a lost key runs again. A key whose run has not ended stays.
pub(super) fn evict_some(
    connection: &Connection,
    written: &RunId,
    most: u64,
) -> Result<bool, StatementError> {
    let mut removed = Extent::default();
    while total_bytes(connection)? > most {
        if !removed.fits(CHUNK) {
            return Ok(true);
        }
        let Some(extent) = evict_one(connection, written)? else {
            return Ok(false);
        };
        removed = removed.plus(extent);
    }
    Ok(false)
}

fn evict_one(connection: &Connection, written: &RunId) -> Result<Option<Extent>, StatementError> {
    let mut statement = connection.prepare_cached(
        "SELECT (SELECT r.num FROM runs r WHERE r.owner = u.owner AND r.ended_at IS NOT NULL
                   AND r.status = 'ended' AND r.id <> ?1 ORDER BY r.ended_at LIMIT 1) AS answer,
                u.owner,
                (SELECT k.key FROM idempotency_keys k WHERE k.owner = u.owner AND k.recorded = 1 AND k.run <> ?1
                   AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = k.run AND r.owner = k.owner AND r.status <> 'ended')
                 ORDER BY k.created_at LIMIT 1) AS key
         FROM run_usage u WHERE answer IS NOT NULL OR key IS NOT NULL
         ORDER BY u.bytes + u.answers * ?2 DESC LIMIT 1",
    )?;
    let row_bytes = i64::try_from(AnswerLimits::ROW).unwrap_or(i64::MAX);
    let found = statement.query_row(params![written.as_str(), row_bytes], |row| {
        let found: (Option<i64>, String, Option<String>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(found)
    });
    let Some((answer, owner, key)) = found.optional()? else {
        return Ok(None);
    };
    let Some(num) = answer else {
        let mut statement = connection
            .prepare_cached("DELETE FROM idempotency_keys WHERE owner = ?1 AND key = ?2")?;
        statement.execute(params![owner, key])?;
        return Ok(Some(Extent { rows: 1, bytes: 0 }));
    };
    let mut statement = connection
        .prepare_cached("SELECT num, bytes, status = 'ended' FROM runs WHERE num = ?1")?;
    let row = statement.query_row([num], RunRow::of)?;
    row.remove(connection)?;
    Ok(Some(row.extent()))
}

/// Marks the runs of a process that is gone as interrupted, and its unfinished answers for removal. Frees the
/// idempotency keys of runs that it never recorded. Returns whether there are answers to be removed.
pub(in crate::store::sqlite) fn mark_interrupted(
    connection: &Connection,
    now: i64,
) -> rusqlite::Result<bool> {
    connection.execute(
        "UPDATE runs SET status = 'interrupted', ended_at = ?1 WHERE status = 'running'",
        [now],
    )?;
    connection.execute(
        "UPDATE runs SET id = 'deleted-' || num, status = 'deleted' WHERE status = 'draft'",
        [],
    )?;
    connection.execute("DELETE FROM idempotency_keys WHERE recorded = 0", [])?;
    connection
        .prepare("SELECT 1 FROM runs WHERE status = 'deleted' LIMIT 1")?
        .exists([])
}

/// The id of a run from its text in the store, which has no prefix.
pub(in crate::store::sqlite) fn run_id(text: &str) -> Result<RunId, StatementError> {
    RunId::parse(&format!("chatcmpl-{text}"))
        .map_err(|error| StatementError::Store(StoreError::failed(error)))
}
