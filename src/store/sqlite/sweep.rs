//! Hides sessions, and removes hidden ones and the messages of trunks that no session uses any more.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use super::super::StoreError;
use super::Sqlite;
use super::connections::{Executor, StatementError};
use super::messages::MessageRange;
use super::pieces;
use super::shared::{Segment, released, trim};
use super::size::{CHUNK, Extent};
use super::transaction::begin;
use super::write::{HIDDEN, SessionRow, count};
use crate::ids::{Owner, SessionId};

/// Most expired sessions hidden in one transaction; others follow.
const EXPIRE_BATCH: u64 = 64;

impl Sqlite {
    pub(in crate::store) async fn expire(
        &self,
        ttl: Option<Duration>,
        nameless_ttl: Option<Duration>,
    ) -> Result<u64, StoreError> {
        self.make_space_to_delete().await;
        let mut total = 0;
        for (nameless, ttl) in [(false, ttl), (true, nameless_ttl)] {
            let Some(ttl) = ttl else { continue };
            let cutoff = self.cutoff(ttl);
            loop {
                let hidden =
                    self.0
                        .writer
                        .run(Owner::server(), Executor::Thread, move |connection, _| {
                            hide_expired(connection, nameless, cutoff)
                        });
                let hidden = hidden.await?;
                total += hidden;
                self.sweep().await?;
                if hidden < EXPIRE_BATCH {
                    break;
                }
            }
        }
        self.keep_expiry_time().await?;
        self.keep_reserve();
        Ok(total)
    }

    /// Removes hidden sessions, one chunk at a time.
    pub(super) async fn sweep(&self) -> Result<(), StoreError> {
        while self
            .0
            .writer
            .run(Owner::server(), Executor::Thread, |connection, _| {
                sweep(connection)
            })
            .await?
        {
            self.count_written(CHUNK);
        }
        Ok(())
    }

    /// Removes what interrupted deletions and writes in chunks have left, in a task of its own: it must not delay the start.
    pub(super) fn sweep_leftovers(&self) {
        let sweeper = self.clone();
        self.0.tasks.spawn(async move {
            let swept = match sweeper.sweep().await {
                Ok(()) => sweeper.sweep_runs().await,
                failed => failed,
            };
            if let Err(error) = swept {
                tracing::warn!(%error, "leftovers in the session store could not be removed yet");
            }
        });
    }

    /// Removes hidden sessions in a task of its own.
    pub(super) fn sweep_later(&self) {
        let sweeper = self.clone();
        self.0.tasks.spawn(async move {
            if let Err(error) = sweeper.sweep().await {
                tracing::warn!(%error, "leftovers in the session store could not be removed yet");
            }
        });
    }
}

/// Hides a session, which is removed later; returns whether it existed.
pub(super) fn hide(
    connection: &mut Connection,
    owner: &Owner,
    id: &SessionId,
) -> Result<bool, StatementError> {
    let transaction = begin(connection)?;
    let head = SessionRow::find(&transaction, owner, id)?;
    if let Some(head) = &head {
        hide_session(&transaction, head.layout.row)?;
    }
    transaction.commit()?;
    Ok(head.is_some())
}

/// Hides the session with this row.
pub(super) fn hide_session(connection: &Connection, row: i64) -> Result<(), StatementError> {
    let mut statement = connection.prepare_cached(
        "UPDATE sessions SET owner = ?2, session_id = 'deleted-' || id WHERE id = ?1",
    )?;
    statement.execute(params![row, HIDDEN])?;
    Ok(())
}

/// Hides up to [`EXPIRE_BATCH`] sessions last written before `before`, either nameless ones or the others; returns how
/// many.
fn hide_expired(
    connection: &mut Connection,
    nameless: bool,
    before: i64,
) -> Result<u64, StatementError> {
    let transaction = begin(connection)?;
    // Literals, because nameless sessions have an index of their own.
    let mut statement = transaction.prepare_cached(match nameless {
        true => {
            "UPDATE sessions SET owner = ?2, session_id = 'deleted-' || id WHERE id IN
             (SELECT id FROM sessions WHERE nameless = 1 AND updated_at < ?1 AND owner <> ?2
              ORDER BY updated_at LIMIT ?3)"
        }
        false => {
            "UPDATE sessions SET owner = ?2, session_id = 'deleted-' || id WHERE id IN
             (SELECT id FROM sessions WHERE nameless <> 1 AND updated_at < ?1 AND owner <> ?2
              ORDER BY updated_at LIMIT ?3)"
        }
    })?;
    let batch = i64::try_from(EXPIRE_BATCH).unwrap_or(i64::MAX);
    let hidden = statement.execute(params![before, HIDDEN, batch])?;
    drop(statement);
    transaction.commit()?;
    Ok(hidden as u64)
}

/// Marks the unfinished sessions of a crash for removal; returns whether there are sessions to be removed.
pub(super) fn mark_abandoned(connection: &Connection) -> rusqlite::Result<bool> {
    let is_hidden = "SELECT 1 FROM sessions WHERE owner = ?1 LIMIT 1";
    let hidden = connection.prepare(is_hidden)?.exists([HIDDEN])?;
    if hidden {
        let sql = "UPDATE sessions SET session_id = 'deleted-' || id
            WHERE owner = ?1 AND session_id >= 'draft-' AND session_id < 'draft.'";
        connection.execute(sql, [HIDDEN])?;
    }
    Ok(hidden)
}

/// Removes one chunk of the hidden sessions and of what released trunks have too much; returns whether there may be more.
fn sweep(connection: &mut Connection) -> Result<bool, StatementError> {
    let transaction = begin(connection)?;
    let mut removed = Extent::default();
    while removed.fits(CHUNK) {
        let mut statement = transaction.prepare_cached(
            "SELECT id FROM sessions WHERE owner = ?1 AND session_id >= 'deleted-' AND session_id < 'deleted.' LIMIT 1",
        )?;
        let found = statement.query_row([HIDDEN], |row| row.get::<_, i64>(0));
        let extent = match (found.optional()?, released(&transaction)?) {
            (Some(row), _) => sweep_session(&transaction, row)?,
            (None, Some(trunk)) => trim(&transaction, trunk)?,
            (None, None) => {
                drop(statement);
                transaction.commit()?;
                return Ok(false);
            }
        };
        removed = removed.plus(extent);
    }
    transaction.commit()?;
    Ok(true)
}

/// Removes files and messages of a hidden session, up to a chunk; removes the session when none are left.
fn sweep_session(connection: &Connection, row: i64) -> Result<Extent, StatementError> {
    let mut statement = connection.prepare_cached(
        "DELETE FROM session_files WHERE session = ?1 AND file IN
         (SELECT file FROM session_files WHERE session = ?1 LIMIT ?2)",
    )?;
    let files = statement.execute(params![row, count(CHUNK.rows)])?;
    let mut statement = connection
        .prepare_cached("SELECT coalesce(min(seq), 0) FROM messages WHERE session = ?1")?;
    let from: i64 = statement.query_row([row], |row| row.get(0))?;
    let messages = Segment::own(row, from);
    if let Some(shortened) = pieces::shorten(connection, messages)? {
        return Ok(shortened);
    }
    let range = MessageRange::of(connection, &[messages], CHUNK)?;
    let mut statement =
        connection.prepare_cached("DELETE FROM messages WHERE session = ?1 AND seq < ?2")?;
    statement.execute(params![row, range.to])?;
    if range.whole && files < CHUNK.rows {
        let mut statement = connection.prepare_cached("DELETE FROM sessions WHERE id = ?1")?;
        statement.execute([row])?;
    }
    Ok(range.extent.plus(Extent {
        rows: files + 1,
        bytes: 0,
    }))
}
