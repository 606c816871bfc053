//! Reads, forks and deletions of sessions.

use std::time::Duration;

use bytes::Bytes;

use super::approvals::session_waits;
use super::clock::{micros, seconds};
use super::leases::Fence;
use super::record::{SessionHead, SessionPage, SessionSummary, StoredMessage, StoredSession};
use super::shares::StatementSize;
use super::tx::{Row, SqlValue, run_id, session_id, signed, values};
use super::waiting::WaitingTurn;
use super::{Engine, Store, StoreError, retrying};
use net::polling::{LONG_BYTES, block_in_place_if};
use protocol::ids::{Owner, SessionId};
use protocol::openai::message::Message;

/// Most entries of one page; others are on the next one.
/// Tried by `suite::lists::pages_cover_all_sessions_once_last_written_first`.
const MAX_PAGE: usize = 1000;
/// Number of the first instruction. The others follow it; the first message has the number 0.
pub(super) const INSTRUCTIONS_START: i64 = -(1 << 32);
/// Weight of a message besides its bytes, where the size of a read is estimated.
const MESSAGE_WEIGHT: u64 = 1024;
/// Most rows that are deleted in one transaction; others follow.
/// Tried by `suite::keys::keys_expire`.
const BATCH: i64 = 500;
/// Most bytes that are deleted in one transaction, but for a single row; others follow.
const BATCH_BYTES: i64 = 64 * 1024 * 1024;

/// The bytes of a row of `messages`.
macro_rules! message_bytes {
    () => {
        "octet_length(json) + coalesce(octet_length(view), 0) + coalesce(octet_length(full_text), 0)
         + coalesce(octet_length(sources), 0)"
    };
}

pub(super) use message_bytes;

/// Deletes the sessions of a condition that were last written before a time, the oldest ones first.
macro_rules! expired {
    ($condition:literal) => {
        concat!(
            "DELETE FROM sessions WHERE num IN (
                SELECT num FROM (
                    SELECT num, sum(bytes) OVER (ORDER BY updated_at, num) - bytes AS before FROM (
                        SELECT num, bytes, updated_at FROM sessions
                        WHERE ",
            $condition,
            " AND updated_at < expiry_time_4() - $1 AND NOT ",
            session_waits!(),
            " ORDER BY updated_at, num LIMIT $2) oldest) batch
                WHERE before < $3)
                -- A session may be written meanwhile.
                AND updated_at < expiry_time_4() - $1
            RETURNING 1"
        )
    };
}

impl Store {
    /// A whole session, or `None` if the owner has no session with this id.
    ///
    /// # Errors
    /// When the store fails or the stored data is damaged.
    pub async fn load(
        &self,
        owner: &Owner,
        id: &SessionId,
    ) -> Result<Option<StoredSession>, StoreError> {
        // One statement, so that the messages belong to the row. The row comes first.
        let sql = "WITH head AS MATERIALIZED (
                SELECT num, created_at, updated_at, written_at, instruction_count, message_count, last_run, metadata
                FROM sessions WHERE owner = $1 AND session_id = $2)
            SELECT seq, json, hidden, view, full_text, sources, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
            FROM messages WHERE session = (SELECT num FROM head)
            UNION ALL
            SELECT NULL, NULL, NULL, NULL, NULL, NULL, created_at, updated_at, written_at, instruction_count, message_count,
                   last_run, metadata, (SELECT turn FROM parked_turns WHERE session = num)
            FROM head
            ORDER BY seq NULLS FIRST";
        let size = match &self.engine {
            Engine::Sqlite(_) => match self.head(owner, id).await? {
                None => return Ok(None),
                Some(head) => {
                    let rows = (head.messages as u64).saturating_mul(MESSAGE_WEIGHT);
                    StatementSize::of_bytes(head.bytes.saturating_add(rows))
                }
            },
            Engine::Postgres(_) => StatementSize::Large,
        };
        let mut tx = self.read(owner, size).await?;
        let rows = tx.rows(sql, values![owner.as_str(), id.as_str()]).await?;
        drop(tx);
        if rows.is_empty() {
            return Ok(None);
        }
        let long = rows.len() > LONG_BYTES / 1024 || size == StatementSize::Large;
        block_in_place_if(long, || assembled(rows)).map(Some)
    }

    /// What is known of a session without its messages; `None` if the owner has no session with this id.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn head(
        &self,
        owner: &Owner,
        id: &SessionId,
    ) -> Result<Option<SessionHead>, StoreError> {
        let sql = "SELECT created_at, updated_at, written_at, bytes, message_count - instruction_count, metadata
            FROM sessions WHERE owner = $1 AND session_id = $2";
        let mut tx = self.read(owner, StatementSize::Small).await?;
        let row = tx.row(sql, values![owner.as_str(), id.as_str()]).await?;
        row.map(|mut row| {
            Ok(SessionHead {
                created_at: seconds(row.column(0)?),
                updated_at: written(&mut row, 1)?,
                bytes: row.unsigned(3)?,
                messages: usize::try_from(row.unsigned(4)?).unwrap_or(usize::MAX),
                metadata: row.column(5)?,
            })
        })
        .transpose()
    }

    /// A page of the owner's sessions after the session `after`, last written first; at most 1000.
    ///
    /// # Errors
    /// `NotFound` when the owner has no session `after`; else when the store fails.
    pub async fn list(
        &self,
        owner: &Owner,
        limit: usize,
        after: Option<&SessionId>,
    ) -> Result<SessionPage, StoreError> {
        let limit = limit.min(MAX_PAGE);
        let mut tx = self.read(owner, StatementSize::Large).await?;
        // Sorts before every session.
        let mut from = (i64::MAX, i64::MAX);
        if let Some(after) = after {
            let sql = "SELECT updated_at, num FROM sessions WHERE owner = $1 AND session_id = $2";
            let row = tx.row(sql, values![owner.as_str(), after.as_str()]).await?;
            let mut row = row.ok_or(StoreError::NotFound)?;
            from = (row.column(0)?, row.column(1)?);
        }
        let sql = "SELECT session_id, created_at, updated_at, written_at, message_count, title, last_run FROM sessions
            WHERE owner = $1 AND (updated_at, num) < ($2, $3) ORDER BY updated_at DESC, num DESC LIMIT $4";
        // One more row than the limit shows whether there are more.
        let most = signed(limit + 1);
        let rows = tx
            .rows(sql, values![owner.as_str(), from.0, from.1, most])
            .await?;
        drop(tx);
        let has_more = rows.len() > limit;
        let entries = rows.into_iter().take(limit).map(summary);
        let mut data = entries.collect::<Result<Vec<_>, _>>()?;
        self.engine.mark_leased(owner, &mut data).await?;
        Ok(SessionPage { data, has_more })
    }

    /// The turn that waits for the result of this client call: a stored session, or an unstored turn that has not
    /// expired.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn waiting_turn(
        &self,
        owner: &Owner,
        call_id: &str,
    ) -> Result<Option<WaitingTurn>, StoreError> {
        if let Some(turn) = self.shared.waiting.lock().get(owner, call_id) {
            return Ok(Some(WaitingTurn::Unstored(turn.clone())));
        }
        let sql = "SELECT s.session_id FROM client_calls c JOIN sessions s ON s.num = c.session
            WHERE c.owner = $1 AND c.call_id = $2";
        let mut tx = self.read(owner, StatementSize::Small).await?;
        let row = tx
            .row(sql, values![owner.as_str(), SqlValue::any(call_id)])
            .await?;
        let found = row.map(|mut row| session_id(row.column(0)?)).transpose()?;
        Ok(found.map(WaitingTurn::Stored))
    }

    /// Deletes a session and the rows of the files that only it uses; returns whether it existed.
    ///
    /// # Errors
    /// `LeaseLost`; else when the store fails.
    pub async fn delete(&self, fence: &Fence) -> Result<bool, StoreError> {
        let sql = "DELETE FROM sessions WHERE owner = $1 AND session_id = $2 RETURNING 1";
        let (owner, id) = (fence.owner.as_str(), fence.id.as_str());
        self.engine.make_space_to_delete().await;
        retrying(|| async move {
            let mut tx = self.begin(&fence.owner, StatementSize::Large).await?;
            tx.check_lease(fence).await?;
            let deleted = tx.count(sql, values![owner, id]).await?;
            tx.commit().await?;
            Ok(deleted > 0)
        })
        .await
    }

    /// Deletes the sessions that were last written more than `ttl` ago, for nameless ones `nameless_ttl`; returns how
    /// many. `None` keeps the sessions. One in which something can be decided stays.
    ///
    /// # Errors
    /// When the store fails; some sessions may have been deleted.
    ///
    /// # Cancel safety
    /// Sessions are deleted in batches, so that other writes can run in between. If the future is dropped, the next
    /// call deletes the rest.
    pub async fn expire(
        &self,
        ttl: Option<Duration>,
        nameless_ttl: Option<Duration>,
    ) -> Result<u64, StoreError> {
        self.engine.make_space_to_delete().await;
        self.engine.advance_expiry().await?;
        let mut expired = 0;
        if let Some(ttl) = ttl {
            expired += self.delete_older(expired!("origin <> 1"), ttl).await?;
        }
        if let Some(ttl) = nameless_ttl {
            expired += self.delete_older(expired!("origin = 1"), ttl).await?;
        }
        self.engine.keep_reserve();
        Ok(expired)
    }

    /// Repeats a statement that deletes a batch of rows older than `age`, until it deletes none; returns the number of
    /// deleted rows.
    pub(super) async fn delete_older(
        &self,
        sql: &'static str,
        age: Duration,
    ) -> Result<u64, StoreError> {
        let mut total = 0;
        loop {
            let mut tx = self.single(&Owner::server(), StatementSize::Large).await?;
            let deleted = tx
                .count(sql, values![micros(age), BATCH, BATCH_BYTES])
                .await?;
            if deleted == 0 {
                return Ok(total);
            }
            total += deleted;
        }
    }
}

/// The later one of the indexed and the exact time of the last write.
fn written(row: &mut Row, index: usize) -> Result<i64, StoreError> {
    let (indexed, exact): (i64, i64) = (row.column(index)?, row.column(index + 1)?);
    Ok(seconds(indexed.max(exact)))
}

/// The session of the rows that [`Store::load`] reads, the head first.
fn assembled(rows: Vec<Row>) -> Result<StoredSession, StoreError> {
    let missing = |seq: i64| StoreError::failed(format!("the stored message {seq} is missing"));
    let mut rows = rows.into_iter();
    let mut head = rows.next().ok_or_else(|| missing(0))?;
    let last_run: Option<String> = head.column(11)?;
    let mut session = StoredSession {
        created_at: seconds(head.column(6)?),
        updated_at: written(&mut head, 7)?,
        last_run: last_run.as_deref().map(run_id).transpose()?,
        metadata: head.column(12)?,
        turn: head.column(13)?,
        ..StoredSession::default()
    };
    let (instructions, total): (i64, i64) = (head.column(9)?, head.column(10)?);
    let places =
        (INSTRUCTIONS_START..INSTRUCTIONS_START + instructions).chain(0..total - instructions);
    for seq in places {
        let mut row = rows.next().ok_or_else(|| missing(seq))?;
        if row.column::<i64>(0)? != seq {
            return Err(missing(seq));
        }
        let message = stored_message(&mut row, seq)?;
        match seq < 0 {
            true => session.instructions.push(message.message),
            false => session.messages.push(message),
        }
    }
    Ok(session)
}

fn stored_message(row: &mut Row, seq: i64) -> Result<StoredMessage, StoreError> {
    let wrong = |error: String| StoreError::failed(format!("stored message {seq} {error}"));
    let json: Bytes = row.column(1)?;
    let text = std::str::from_utf8(&json).map_err(|_| wrong("is not UTF-8".to_owned()))?;
    Ok(StoredMessage {
        message: Message::parse_shared(text, json.clone()).map_err(wrong)?,
        hidden: row.column(2)?,
        view: row.json(3)?,
        full_text: row.column(4)?,
        sources: row.json(5)?.unwrap_or_default(),
    })
}

fn summary(mut row: Row) -> Result<SessionSummary, StoreError> {
    let last_run: Option<String> = row.column(6)?;
    Ok(SessionSummary {
        id: session_id(row.column(0)?)?,
        created_at: seconds(row.column(1)?),
        updated_at: written(&mut row, 2)?,
        message_count: row.unsigned(4)?,
        title: row.column(5)?,
        running: false,
        last_run: last_run.as_deref().map(run_id).transpose()?,
    })
}
