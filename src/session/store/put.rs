//! The write that every round of the loop makes, as one statement.
//!
//! A statement is whole or not at all by itself and takes one trip to the connection's thread, where a transaction of
//! several takes one each, which is most of their cost. SQLite has no procedures, but a trigger on a view is as good:
//! the first row inserted holds what changes about the session, and every row two messages. Two, because a round mostly
//! writes no more, and a statement of several rows is first laid out in a table of its own.

use std::fmt::Write;
use std::sync::{Arc, LazyLock};

use sqlx::{AssertSqlSafe, SqliteConnection};

use super::super::{Change, SessionError, StoredMessage};
use super::write::{Title, count, json_array};
use crate::ids::{Owner, SessionId};
use crate::openai::message::Message;

/// Most messages in one statement; SQLite takes about 8000.
const MESSAGES: usize = 64;
/// Messages of one row of the view.
const OF_ROW: usize = 2;
/// Statements up to this many rows are kept prepared: a round of the loop writes few.
const PREPARED_ROWS: usize = 4;
/// Parameters about the session, and about each message.
const OF_SESSION: usize = 11;
const OF_MESSAGE: usize = 5;

/// Of the connection, so that it goes with this code and not with the file.
pub(super) const SETUP: &str = "
    CREATE TEMP VIEW puts AS SELECT
        NULL AS owner, NULL AS session_id, NULL AS now, NULL AS instructions, NULL AS instruction_count, NULL AS keep,
        NULL AS appended, NULL AS title_place, NULL AS title, NULL AS client_calls,
        NULL AS place, NULL AS json, NULL AS hidden, NULL AS view, NULL AS full_text, NULL AS sources,
        NULL AS next_json, NULL AS next_hidden, NULL AS next_view, NULL AS next_full_text,
        NULL AS next_sources;
    CREATE TEMP TRIGGER put INSTEAD OF INSERT ON puts BEGIN
        INSERT INTO sessions (owner, session_id, instructions, instruction_count, message_count, title_seq, title,
                              created_at, updated_at)
        SELECT NEW.owner, NEW.session_id, coalesce(NEW.instructions, '[]'), coalesce(NEW.instruction_count, 0),
               coalesce(NEW.instruction_count, 0) + NEW.appended, NEW.title_place, NEW.title, NEW.now, NEW.now
        WHERE NEW.place = 0
        -- On the right of a SET stands what was stored before; min() is what stays of its messages.
        ON CONFLICT (owner, session_id) DO UPDATE SET
            instructions = coalesce(NEW.instructions, instructions),
            instruction_count = coalesce(NEW.instruction_count, instruction_count),
            message_count = coalesce(NEW.instruction_count, instruction_count)
                + min(NEW.keep, message_count - instruction_count) + NEW.appended,
            -- Where no user message stays, the first one is among the new ones.
            title_seq = CASE WHEN title_seq < min(NEW.keep, message_count - instruction_count) THEN title_seq
                ELSE min(NEW.keep, message_count - instruction_count) + NEW.title_place END,
            title = CASE WHEN title_seq < min(NEW.keep, message_count - instruction_count) THEN title
                ELSE NEW.title END,
            updated_at = NEW.now;
        -- From here on the first of the new messages is where the count without them ends.
        DELETE FROM messages WHERE NEW.place = 0
            AND session = (SELECT id FROM sessions WHERE owner = NEW.owner AND session_id = NEW.session_id)
            AND seq >= (SELECT message_count - instruction_count - NEW.appended FROM sessions
                        WHERE owner = NEW.owner AND session_id = NEW.session_id);
        INSERT INTO messages (session, seq, json, hidden, view, full_text, sources)
        SELECT id, message_count - instruction_count - NEW.appended + NEW.place,
               NEW.json, NEW.hidden, NEW.view, NEW.full_text, NEW.sources
        FROM sessions WHERE owner = NEW.owner AND session_id = NEW.session_id AND NEW.json IS NOT NULL;
        INSERT INTO messages (session, seq, json, hidden, view, full_text, sources)
        SELECT id, message_count - instruction_count - NEW.appended + NEW.place + 1,
               NEW.next_json, NEW.next_hidden, NEW.next_view, NEW.next_full_text, NEW.next_sources
        FROM sessions WHERE owner = NEW.owner AND session_id = NEW.session_id AND NEW.next_json IS NOT NULL;
        INSERT INTO client_calls (owner, call_id, session)
        SELECT NEW.owner, call.value, s.id FROM sessions s, json_each(NEW.client_calls) call
        WHERE NEW.client_calls IS NOT NULL AND s.owner = NEW.owner AND s.session_id = NEW.session_id
        ON CONFLICT (owner, call_id) DO UPDATE SET session = excluded.session;
    END";

/// What is put after what stays.
#[derive(Debug)]
pub(super) struct Put<'a> {
    pub(super) owner: &'a Owner,
    pub(super) id: &'a SessionId,
    pub(super) instructions: Option<&'a [Message]>,
    /// Of the stored messages; more than there are means all.
    pub(super) keep: usize,
    pub(super) append: &'a [StoredMessage],
    pub(super) client_calls: &'a [String],
}

impl<'a> Put<'a> {
    pub(super) fn change(owner: &'a Owner, id: &'a SessionId, change: &'a Change) -> Self {
        Self {
            owner,
            id,
            instructions: change.instructions.as_deref(),
            keep: change.keep,
            append: &change.append,
            client_calls: &change.client_calls,
        }
    }

    /// Takes more than one statement, and so a transaction around them.
    pub(super) fn is_long(&self) -> bool {
        self.append.len() > MESSAGES
    }
}

/// Its cost grows with what is new, not with what is stored.
pub(super) async fn put(
    connection: &mut SqliteConnection,
    now: i64,
    put: &Put<'_>,
) -> Result<(), SessionError> {
    put_rows(connection, now, put, 0).await?;
    for place in (MESSAGES..put.append.len()).step_by(MESSAGES) {
        put_rows(connection, now, put, place).await?;
    }
    Ok(())
}

/// Puts the messages from that place on, as many as go into one statement.
async fn put_rows(
    connection: &mut SqliteConnection,
    now: i64,
    put: &Put<'_>,
    place: usize,
) -> Result<(), SessionError> {
    static PREPARED: LazyLock<Vec<Arc<str>>> = LazyLock::new(|| {
        (1..=PREPARED_ROWS)
            .map(|rows| statement(rows).into())
            .collect()
    });
    let json = |error| SessionError::Store(Box::new(error));
    let messages = put.append.iter().skip(place).take(MESSAGES);
    // Without any message there is still the session.
    let rows = messages.len().div_ceil(OF_ROW).max(1);
    let prepared = PREPARED.get(rows - 1);
    let sql = prepared.map_or_else(|| statement(rows).into(), Arc::clone);
    let title = Title::of(0, put.append);
    let calls = (place == 0 && !put.client_calls.is_empty())
        .then(|| serde_json::to_string(put.client_calls))
        .transpose()
        .map_err(json)?;
    let mut query = sqlx::query(AssertSqlSafe(sql))
        .persistent(prepared.is_some())
        .bind(put.owner.as_str())
        .bind(put.id.as_str())
        .bind(now)
        .bind(
            put.instructions
                .map(|list| json_array(list.iter().map(Message::json_str))),
        )
        .bind(put.instructions.map(|list| count(list.len())))
        .bind(count(put.keep))
        .bind(count(put.append.len()))
        .bind(title.title_seq)
        .bind(title.title)
        .bind(calls)
        .bind(count(place));
    let missing = rows * OF_ROW - messages.len();
    for stored in messages {
        let view = stored.view.as_ref().map(serde_json::to_string);
        let sources = (!stored.sources.is_empty()).then(|| serde_json::to_string(&stored.sources));
        query = query
            .bind(stored.message.json_str())
            .bind(stored.hidden)
            .bind(view.transpose().map_err(json)?)
            .bind(stored.full_text.as_deref())
            .bind(sources.transpose().map_err(json)?);
    }
    for _ in 0..missing * OF_MESSAGE {
        query = query.bind(None::<&str>);
    }
    query.execute(connection).await?;
    Ok(())
}

fn statement(rows: usize) -> String {
    let mut sql = "INSERT INTO puts VALUES ".to_owned();
    let mut parameter = OF_SESSION;
    for row in 0..rows {
        sql += match row {
            0 => "(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11",
            _ => ",(?1,?2,NULL,NULL,NULL,NULL,?7,NULL,NULL,NULL,?11",
        };
        // Writing to a string does not fail.
        let _ = write!(sql, "+{}", row * OF_ROW);
        for _ in 0..OF_ROW * OF_MESSAGE {
            parameter += 1;
            let _ = write!(sql, ",?{parameter}");
        }
        sql.push(')');
    }
    sql
}
