//! Reads of sessions.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::super::StoreError;
use super::super::clock::seconds;
use super::super::record::{
    SessionHead, SessionPage, SessionSummary, StoredMessage, StoredSession,
};
use super::connections::{Executor, StatementError};
use super::instructions::INSTRUCTIONS_START;
use super::messages::MessageRange;
use super::pieces;
use super::runs::run_id;
use super::shared::RowLayout;
use super::size::{Extent, unsigned};
use super::write::count;
use crate::ids::{Owner, SessionId};
use crate::openai::message::Message;

/// Most entries of one page; others are on the next one.
/// Tried by `suite::lists::pages_cover_all_sessions_once_last_written_first`.
const MAX_PAGE: usize = 1000;
/// Where a read starts.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReadCursor {
    /// At the first instruction or message.
    Start,
    /// At an instruction or a message, if the session still has this version.
    Resume { from: i64, version: i64 },
}

/// A session with all or some of its instructions and messages.
#[derive(Debug)]
pub(super) struct LoadedChunk {
    pub(super) session: StoredSession,
    /// Changes with every write.
    pub(super) version: i64,
    /// The index of what follows this chunk; `None` at the end.
    pub(super) next: Option<i64>,
}

/// The row of a session that is read.
struct Head {
    layout: RowLayout,
    created_at: i64,
    version: i64,
    instruction_count: i64,
}

impl ReadCursor {
    pub(super) fn executor(self) -> Executor {
        match self {
            Self::Start => Executor::Task,
            Self::Resume { .. } => Executor::Thread,
        }
    }
}

/// Reads a session up to the limit. In a task, a session larger than the limit is an error.
pub(super) fn load(
    connection: &mut Connection,
    (owner, id): (&Owner, &SessionId),
    cursor: ReadCursor,
    limit: Extent,
    executor: Executor,
) -> Result<Option<LoadedChunk>, StatementError> {
    // One transaction, so that all statements see the same state.
    let transaction = connection.transaction()?;
    // Prepared before the session is looked up, so that a damaged schema is an error even if the session does not
    // exist.
    let mut messages = transaction.prepare_cached(
        "SELECT seq, json, hidden, view, full_text, sources, long_bytes FROM messages
         WHERE session = ?1 AND seq >= ?2 AND seq < ?3 ORDER BY seq",
    )?;
    let mut statement = transaction.prepare_cached(
        "SELECT id, shared_instructions, shared, created_at, max(updated_at, written_at), instruction_count, last_run,
                metadata
         FROM sessions WHERE owner = ?1 AND session_id = ?2",
    )?;
    let head = statement.query_row(params![owner.as_str(), id.as_str()], head_of);
    let Some((head, last_run, metadata)) = head.optional()? else {
        // A cached statement is checked against the schema only when it runs.
        messages.exists(params![-1, 0, 0])?;
        return Ok(None);
    };
    let from = match cursor {
        ReadCursor::Start => INSTRUCTIONS_START,
        ReadCursor::Resume { from, .. } => from,
    };
    let mut found = LoadedChunk {
        session: StoredSession {
            created_at: seconds(head.created_at),
            updated_at: seconds(head.version),
            last_run: last_run.as_deref().map(run_id).transpose()?,
            metadata,
            ..StoredSession::default()
        },
        version: head.version,
        next: None,
    };
    if let ReadCursor::Resume {
        version: expected, ..
    } = cursor
        && expected != head.version
    {
        return Ok(Some(found));
    }
    let segments = head.layout.segments(&transaction, from)?;
    let range = MessageRange::of(&transaction, &segments, limit)?;
    let MessageRange { to, whole, .. } = range;
    if executor == Executor::Task && !(whole && range.extent.fits(limit)) {
        return Err(StatementError::LimitExceeded);
    }
    // The messages follow the instructions.
    let settled = |seq: i64| match seq == INSTRUCTIONS_START + head.instruction_count {
        true => 0,
        false => seq,
    };
    let missing = |seq: i64| damaged(format!("the stored message {seq} is missing"));
    let mut expected = settled(from);
    for part in segments.iter().filter_map(|one| one.between(from, to)) {
        let mut rows = messages.query(params![part.row, part.from, part.to])?;
        while let Some(row) = rows.next()? {
            let seq: i64 = row.get(0)?;
            if seq != expected {
                return Err(missing(expected));
            }
            let message = stored_message(&transaction, part.row, row)?;
            match seq < 0 {
                true => found.session.instructions.push(message.message),
                false => found.session.messages.push(message),
            }
            expected = settled(seq + 1);
        }
    }
    if whole && expected < 0 {
        return Err(missing(expected));
    }
    found.next = (!whole).then_some(to);
    Ok(Some(found))
}

/// The head of a session, its last run and its metadata.
fn head_of(row: &Row<'_>) -> rusqlite::Result<(Head, Option<String>, Option<String>)> {
    let head = Head {
        layout: RowLayout {
            row: row.get(0)?,
            shared_instructions: row.get(1)?,
            shared: row.get(2)?,
        },
        created_at: row.get(3)?,
        version: row.get(4)?,
        instruction_count: row.get(5)?,
    };
    Ok((head, row.get(6)?, row.get(7)?))
}

pub(super) fn find_by_call(
    connection: &Connection,
    owner: &Owner,
    call_id: &str,
) -> Result<Option<SessionId>, StatementError> {
    let mut statement = connection.prepare_cached(
        "SELECT s.session_id FROM client_calls c JOIN sessions s ON s.id = c.session
         WHERE c.owner = ?1 AND c.call_id = ?2 AND s.owner = ?1",
    )?;
    let found = statement.query_row(params![owner.as_str(), call_id], |row| row.get(0));
    found.optional()?.map(session_id).transpose()
}

pub(super) fn head(
    connection: &Connection,
    owner: &Owner,
    id: &SessionId,
) -> Result<Option<SessionHead>, StatementError> {
    let mut statement = connection.prepare_cached(
        "SELECT created_at, max(updated_at, written_at), bytes, message_count - instruction_count, metadata
         FROM sessions WHERE owner = ?1 AND session_id = ?2",
    )?;
    let found = statement.query_row(params![owner.as_str(), id.as_str()], |row| {
        Ok(SessionHead {
            created_at: seconds(row.get(0)?),
            updated_at: seconds(row.get(1)?),
            bytes: unsigned(row.get(2)?),
            messages: usize::try_from(row.get::<_, i64>(3)?).unwrap_or_default(),
            metadata: row.get(4)?,
        })
    });
    Ok(found.optional()?)
}

pub(super) fn list(
    connection: &Connection,
    owner: &Owner,
    limit: usize,
    after: Option<&SessionId>,
) -> Result<SessionPage, StatementError> {
    let limit = limit.min(MAX_PAGE);
    // Sorts before every session.
    let mut from = (i64::MAX, i64::MAX);
    if let Some(after) = after {
        let mut statement = connection.prepare_cached(
            "SELECT updated_at, id FROM sessions WHERE owner = ?1 AND session_id = ?2",
        )?;
        let found = statement.query_row(params![owner.as_str(), after.as_str()], |row| {
            Ok((row.get(0)?, row.get(1)?))
        });
        from = found.optional()?.ok_or(StoreError::NotFound)?;
    }
    let mut statement = connection.prepare_cached(
        "SELECT session_id, created_at, max(updated_at, written_at), message_count, title, last_run FROM sessions
         WHERE owner = ?1 AND (updated_at, id) < (?2, ?3)
         ORDER BY updated_at DESC, id DESC LIMIT ?4",
    )?;
    // One more row than the limit shows whether there are more.
    let mut rows = statement.query(params![owner.as_str(), from.0, from.1, count(limit + 1)])?;
    let mut page = SessionPage::default();
    while let Some(row) = rows.next()? {
        if page.data.len() == limit {
            page.has_more = true;
            break;
        }
        page.data.push(summary(row)?);
    }
    Ok(page)
}

pub(super) fn ping(connection: &Connection) -> Result<(), StatementError> {
    // A query of a table, because a constant would be returned without access to the file.
    let mut statement = connection.prepare_cached("SELECT 1 FROM sessions LIMIT 1")?;
    statement.query_row([], |_| Ok(())).optional()?;
    Ok(())
}

/// The message of a row of `messages`, whose session has the row `session`.
fn stored_message(
    connection: &Connection,
    session: i64,
    row: &Row<'_>,
) -> Result<StoredMessage, StatementError> {
    let seq: i64 = row.get(0)?;
    let wrong = |error: String| damaged(format!("stored message {seq} {error}"));
    let long_bytes: i64 = row.get(6)?;
    let long = match long_bytes {
        0 => Default::default(),
        _ => pieces::load(connection, session, seq)?,
    };
    if count(long.iter().map(Vec::len).sum()) != long_bytes {
        return Err(wrong("is not complete".to_owned()));
    }
    let mut long = long.into_iter();
    let mut text = |column: usize| {
        let long = long.next().filter(|long| !long.is_empty());
        match long.map(String::from_utf8) {
            Some(Ok(text)) => Ok(Some(text)),
            Some(Err(_)) => Err(wrong("is not UTF-8".to_owned())),
            None => Ok(row.get(column)?),
        }
    };
    let json: String = text(1)?.unwrap_or_default();
    let (view, full_text, sources) = (text(3)?, text(4)?, text(5)?);
    let json = Bytes::from(json);
    let shared = std::str::from_utf8(&json).unwrap_or_default();
    Ok(StoredMessage {
        message: Message::parse_shared(shared, json.clone()).map_err(wrong)?,
        hidden: row.get(2)?,
        view: optional_json(view.as_deref())?,
        full_text,
        sources: optional_json(sources.as_deref())?.unwrap_or_default(),
    })
}

fn optional_json<T: serde::de::DeserializeOwned>(
    json: Option<&str>,
) -> Result<Option<T>, StatementError> {
    let value = json.map(serde_json::from_str).transpose();
    value.map_err(|error| StatementError::Store(StoreError::failed(error)))
}

fn summary(row: &Row<'_>) -> Result<SessionSummary, StatementError> {
    let last_run: Option<String> = row.get(5)?;
    Ok(SessionSummary {
        id: session_id(row.get(0)?)?,
        created_at: seconds(row.get(1)?),
        updated_at: seconds(row.get(2)?),
        message_count: u64::try_from(row.get::<_, i64>(3)?).unwrap_or_default(),
        title: row.get(4)?,
        running: false,
        last_run: last_run.as_deref().map(run_id).transpose()?,
    })
}

pub(super) fn session_id(text: String) -> Result<SessionId, StatementError> {
    SessionId::try_from(text).map_err(|error| StatementError::Store(StoreError::failed(error)))
}

/// An error for damaged data that SQLite and the parsers do not report.
pub(super) fn damaged(what: String) -> StatementError {
    StatementError::Store(StoreError::failed(what))
}
