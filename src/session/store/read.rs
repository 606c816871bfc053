//! What is asked of the store without changing it.

use futures_util::TryStreamExt;
use serde_json::value::RawValue;
use sqlx::SqliteConnection;

use super::super::{SessionError, StoredMessage, StoredSession};
use super::{Page, SessionSummary, damaged};
use crate::ids::{Owner, SessionId};
use crate::openai::message::Message;

/// Most entries of one page.
const MAX_PAGE: usize = 1000;
const MICROS_PER_SECOND: i64 = 1_000_000;

/// One message with the session it belongs to; without one where the session has none.
#[derive(sqlx::FromRow)]
struct MessageRow {
    /// On the first row only.
    instructions: Option<String>,
    created_at: i64,
    updated_at: i64,
    seq: Option<i64>,
    json: Option<String>,
    hidden: Option<bool>,
    view: Option<String>,
    full_text: Option<String>,
    sources: Option<String>,
}

#[derive(sqlx::FromRow)]
struct SummaryRow {
    session_id: String,
    created_at: i64,
    updated_at: i64,
    message_count: i64,
    title: Option<String>,
}

/// One statement, so that what it sees is of one moment; the instructions, which can be long, come once.
const LOAD: &str = "
    SELECT CASE WHEN m.seq IS NULL OR m.seq = 0 THEN s.instructions END AS instructions,
           s.created_at, s.updated_at, m.seq, m.json, m.hidden, m.view, m.full_text, m.sources
    FROM sessions s LEFT JOIN messages m ON m.session = s.id
    WHERE s.owner = ? AND s.session_id = ?
    ORDER BY m.seq";

pub(super) async fn load(
    connection: &mut SqliteConnection,
    owner: &Owner,
    id: &SessionId,
) -> Result<Option<StoredSession>, SessionError> {
    let mut rows = sqlx::query_as::<_, MessageRow>(LOAD)
        .bind(owner.as_str())
        .bind(id.as_str())
        .fetch(connection);
    let Some(mut row) = rows.try_next().await? else {
        return Ok(None);
    };
    let instructions = row
        .instructions
        .take()
        .ok_or_else(|| damaged("a session has no first message".to_owned()))?;
    let mut session = StoredSession {
        instructions: parse_instructions(&instructions)?
            .into_iter()
            .map(|json| parse_message(json.get()))
            .collect::<Result<_, _>>()?,
        messages: Vec::new(),
        created_at: seconds(row.created_at),
        updated_at: seconds(row.updated_at),
    };
    loop {
        session.messages.extend(stored_message(row)?);
        match rows.try_next().await? {
            Some(next) => row = next,
            None => return Ok(Some(session)),
        }
    }
}

pub(super) async fn find_by_call(
    connection: &mut SqliteConnection,
    owner: &Owner,
    call_id: &str,
) -> Result<Option<SessionId>, SessionError> {
    let found: Option<String> = sqlx::query_scalar(
        "SELECT s.session_id FROM client_calls c JOIN sessions s ON s.id = c.session
         WHERE c.owner = ?1 AND c.call_id = ?2 AND s.owner = ?1",
    )
    .bind(owner.as_str())
    .bind(call_id)
    .fetch_optional(connection)
    .await?;
    found.map(session_id).transpose()
}

pub(super) async fn list(
    connection: &mut SqliteConnection,
    owner: &Owner,
    limit: usize,
    after: Option<&SessionId>,
) -> Result<Page, SessionError> {
    let limit = limit.min(MAX_PAGE);
    // Stands before every session.
    let mut from = (i64::MAX, i64::MAX);
    if let Some(after) = after {
        from = sqlx::query_as(
            "SELECT updated_at, id FROM sessions WHERE owner = ? AND session_id = ?",
        )
        .bind(owner.as_str())
        .bind(after.as_str())
        .fetch_optional(&mut *connection)
        .await?
        .ok_or(SessionError::NotFound)?;
    }
    let rows: Vec<SummaryRow> = sqlx::query_as(
        "SELECT session_id, created_at, updated_at, message_count, title FROM sessions
         WHERE owner = ? AND (updated_at, id) < (?, ?)
         ORDER BY updated_at DESC, id DESC LIMIT ?",
    )
    .bind(owner.as_str())
    .bind(from.0)
    .bind(from.1)
    // One more than asked for tells whether there are more.
    .bind(i64::try_from(limit + 1).unwrap_or(i64::MAX))
    .fetch_all(connection)
    .await?;
    Ok(Page {
        has_more: rows.len() > limit,
        data: rows
            .into_iter()
            .take(limit)
            .map(summary)
            .collect::<Result<_, _>>()?,
    })
}

pub(super) async fn ping(connection: &mut SqliteConnection) -> Result<(), SessionError> {
    // A table of ours, because a constant would be answered without a look at the file.
    sqlx::query("SELECT 1 FROM sessions LIMIT 1")
        .fetch_optional(connection)
        .await?;
    Ok(())
}

/// The instructions as JSON texts.
pub(super) fn parse_instructions(json: &str) -> Result<Vec<Box<RawValue>>, SessionError> {
    serde_json::from_str(json).map_err(|error| SessionError::Store(Box::new(error)))
}

fn parse_message(json: &str) -> Result<Message, SessionError> {
    Message::parse(json).map_err(|error| damaged(format!("a stored message {error}")))
}

/// The message of a row, if it has one.
fn stored_message(row: MessageRow) -> Result<Option<StoredMessage>, SessionError> {
    let (Some(seq), Some(json)) = (row.seq, row.json) else {
        return Ok(None);
    };
    let message =
        Message::parse(&json).map_err(|error| damaged(format!("stored message {seq} {error}")))?;
    let view = row
        .view
        .map(|view| serde_json::from_str(&view))
        .transpose()
        .map_err(|error| SessionError::Store(Box::new(error)))?;
    let sources = row
        .sources
        .map(|sources| serde_json::from_str(&sources))
        .transpose()
        .map_err(|error| SessionError::Store(Box::new(error)))?;
    Ok(Some(StoredMessage {
        message,
        hidden: row.hidden.unwrap_or_default(),
        view,
        full_text: row.full_text,
        sources: sources.unwrap_or_default(),
    }))
}

fn summary(row: SummaryRow) -> Result<SessionSummary, SessionError> {
    Ok(SessionSummary {
        id: session_id(row.session_id)?,
        created_at: seconds(row.created_at),
        updated_at: seconds(row.updated_at),
        message_count: u64::try_from(row.message_count).unwrap_or_default(),
        title: row.title,
    })
}

fn session_id(text: String) -> Result<SessionId, SessionError> {
    SessionId::try_from(text).map_err(|error| SessionError::Store(Box::new(error)))
}

fn seconds(micros: i64) -> i64 {
    micros.div_euclid(MICROS_PER_SECOND)
}
