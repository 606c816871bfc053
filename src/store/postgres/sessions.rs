//! Reads of sessions.

use bytes::Bytes;
use serde::de::DeserializeOwned;
use sqlx::postgres::PgRow;
use sqlx::query;

use super::super::StoreError;
use super::super::clock::seconds;
use super::super::record::{
    SessionHead, SessionPage, SessionSummary, StoredMessage, StoredSession,
};
use super::super::waiting::WaitingTurn;
use super::Postgres;
use super::connect::{column, signed, text_column, unsigned};
use crate::ids::{Owner, RunId, SessionId};
use crate::openai::message::Message;
use crate::polling::{LONG_BYTES, block_in_place_if};

/// Most entries of one page; others are on the next one.
/// Tried by `suite::lists::pages_cover_all_sessions_once_last_written_first`.
const MAX_PAGE: usize = 1000;
/// Number of the first instruction.
const INSTRUCTIONS_START: i64 = -(1 << 32);

impl Postgres {
    pub(in crate::store) async fn head(
        &self,
        owner: &Owner,
        id: &SessionId,
    ) -> Result<Option<SessionHead>, StoreError> {
        let sql = "SELECT created_at, greatest(updated_at, written_at), bytes, message_count - instruction_count, metadata
            FROM sessions WHERE owner = $1 AND session_id = $2";
        let select = || query(sql).bind(owner.as_str()).bind(id.as_str());
        let row = self.0.connections.small(owner).row(select).await?;
        row.map(|row| {
            Ok(SessionHead {
                created_at: seconds(column(&row, 0)?),
                updated_at: seconds(column(&row, 1)?),
                bytes: unsigned(column(&row, 2)?),
                messages: usize::try_from(column::<i64>(&row, 3)?).unwrap_or_default(),
                metadata: column(&row, 4)?,
            })
        })
        .transpose()
    }

    pub(in crate::store) async fn load(
        &self,
        owner: &Owner,
        id: &SessionId,
    ) -> Result<Option<StoredSession>, StoreError> {
        // One statement, so that the messages belong to the row. The row comes first.
        let sql = "WITH head AS MATERIALIZED (
                SELECT num, created_at, greatest(updated_at, written_at) AS written_at, instruction_count, message_count,
                       last_run, metadata, bytes
                FROM sessions WHERE owner = $1 AND session_id = $2)
            SELECT NULL::bigint AS seq, NULL::bytea, NULL::boolean, NULL::bytea, NULL::bytea, NULL::bytea,
                   created_at, written_at, instruction_count, message_count, last_run, metadata, bytes
            FROM head
            UNION ALL
            SELECT seq, json, hidden, view, full_text, sources, NULL, NULL, NULL, NULL, NULL, NULL, NULL
            FROM messages WHERE session = (SELECT num FROM head)
            ORDER BY seq NULLS FIRST";
        let select = || query(sql).bind(owner.as_str()).bind(id.as_str());
        let rows = self.0.connections.large(owner).rows(select).await?;
        let Some(head) = rows.first() else {
            return Ok(None);
        };
        let long = unsigned(column(head, 12)?) > LONG_BYTES as u64;
        block_in_place_if(long, || assembled(rows)).map(Some)
    }

    pub(in crate::store) async fn list(
        &self,
        owner: &Owner,
        limit: usize,
        after: Option<&SessionId>,
    ) -> Result<SessionPage, StoreError> {
        let limit = limit.min(MAX_PAGE);
        // Sorts before every session.
        let mut from = (i64::MAX, i64::MAX);
        if let Some(after) = after {
            let sql = "SELECT updated_at, num FROM sessions WHERE owner = $1 AND session_id = $2";
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
        let sql = "SELECT s.session_id, s.created_at, greatest(s.updated_at, s.written_at), s.message_count, s.title,
                   s.last_run, EXISTS (SELECT 1 FROM leases l WHERE l.owner = s.owner AND l.session_id = s.session_id
                                         AND is_alive_1(l.replica))
            FROM sessions s WHERE s.owner = $1 AND (s.updated_at, s.num) < ($2, $3)
            ORDER BY s.updated_at DESC, s.num DESC LIMIT $4";
        // One more row than the limit shows whether there are more.
        let select = || {
            let statement = query(sql).bind(owner.as_str()).bind(from.0).bind(from.1);
            statement.bind(signed(limit + 1))
        };
        let rows = self.0.connections.large(owner).rows(select).await?;
        let entries = rows.iter().take(limit).map(summary);
        Ok(SessionPage {
            data: entries.collect::<Result<_, _>>()?,
            has_more: rows.len() > limit,
        })
    }

    pub(in crate::store) async fn waiting_turn(
        &self,
        owner: &Owner,
        call_id: &str,
    ) -> Result<Option<WaitingTurn>, StoreError> {
        if let Some(turn) = self.waiting().get(owner, call_id) {
            return Ok(Some(WaitingTurn::Unstored(turn.clone())));
        }
        let sql = "SELECT s.session_id FROM client_calls c JOIN sessions s ON s.num = c.session
            WHERE c.owner = $1 AND c.call_id = $2";
        let find = || query(sql).bind(owner.as_str()).bind(call_id.as_bytes());
        let row = self.0.connections.small(owner).row(find).await?;
        let found = row.map(|row| session_id(column(&row, 0)?)).transpose()?;
        Ok(found.map(WaitingTurn::Stored))
    }
}

fn missing(seq: i64) -> StoreError {
    StoreError::failed(format!("the stored message {seq} is missing"))
}

fn stored_message(row: &PgRow, seq: i64) -> Result<StoredMessage, StoreError> {
    let wrong = |error: String| StoreError::failed(format!("stored message {seq} {error}"));
    let json = Bytes::copy_from_slice(column(row, 1)?);
    let text = std::str::from_utf8(&json).map_err(|_| wrong("is not UTF-8".to_owned()))?;
    Ok(StoredMessage {
        message: Message::parse_shared(text, json.clone()).map_err(wrong)?,
        hidden: column(row, 2)?,
        view: optional_json(row, 3)?,
        full_text: text_column(row, 4)?,
        sources: optional_json(row, 5)?.unwrap_or_default(),
    })
}

fn optional_json<T: DeserializeOwned>(row: &PgRow, index: usize) -> Result<Option<T>, StoreError> {
    let json: Option<&[u8]> = column(row, index)?;
    let value = json.map(serde_json::from_slice).transpose();
    value.map_err(StoreError::failed)
}

/// The session of the rows that [`Postgres::load`] reads, the head first.
fn assembled(rows: Vec<PgRow>) -> Result<StoredSession, StoreError> {
    let mut rows = rows.into_iter();
    let head = rows.next().ok_or_else(|| missing(0))?;
    let mut session = StoredSession {
        created_at: seconds(column(&head, 6)?),
        updated_at: seconds(column(&head, 7)?),
        last_run: column::<Option<&str>>(&head, 10)?.map(run_id).transpose()?,
        metadata: column(&head, 11)?,
        ..StoredSession::default()
    };
    let (instructions, total): (i64, i64) = (column(&head, 8)?, column(&head, 9)?);
    let places =
        (INSTRUCTIONS_START..INSTRUCTIONS_START + instructions).chain(0..total - instructions);
    for seq in places {
        let row = rows.next().ok_or_else(|| missing(seq))?;
        if column::<i64>(&row, 0)? != seq {
            return Err(missing(seq));
        }
        let message = stored_message(&row, seq)?;
        match seq < 0 {
            true => session.instructions.push(message.message),
            false => session.messages.push(message),
        }
    }
    Ok(session)
}

fn summary(row: &PgRow) -> Result<SessionSummary, StoreError> {
    Ok(SessionSummary {
        id: session_id(column(row, 0)?)?,
        created_at: seconds(column(row, 1)?),
        updated_at: seconds(column(row, 2)?),
        message_count: unsigned(column(row, 3)?),
        title: text_column(row, 4)?,
        last_run: column::<Option<&str>>(row, 5)?.map(run_id).transpose()?,
        running: column(row, 6)?,
    })
}

pub(super) fn session_id(text: String) -> Result<SessionId, StoreError> {
    SessionId::try_from(text).map_err(StoreError::failed)
}

/// The id of a run from its text in the store, which has no prefix.
pub(super) fn run_id(text: &str) -> Result<RunId, StoreError> {
    RunId::parse(&format!("chatcmpl-{text}")).map_err(StoreError::failed)
}
