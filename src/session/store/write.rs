//! What changes the store. Every function here works inside the transaction of its caller.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use sqlx::SqliteConnection;

use super::super::{SessionError, StoredMessage, StoredSession};
use super::Replaced;
use super::put::{Put, put};
use super::read::parse_instructions;
use crate::ids::{Owner, SessionId};
use crate::openai::message::Role;

/// Most sessions deleted at once; each may hold thousands of messages, and other writes wait meanwhile.
pub(super) const EXPIRE_BATCH: u64 = 100;
/// Longest title, in characters.
const TITLE_CHARS: usize = 50;
const MICROS_PER_SECOND: i64 = 1_000_000;

/// Tells the time of writes: microseconds since 1970, later each time, so that the order of writes is the order of
/// their times.
#[derive(Debug, Default)]
pub(in crate::session) struct Clock {
    last: AtomicI64,
}

/// The first user message's place and the beginning of its text.
#[derive(Debug, Default, sqlx::FromRow)]
pub(super) struct Title {
    pub(super) title_seq: Option<i64>,
    pub(super) title: Option<String>,
}

/// What a fork copies.
#[derive(Debug)]
pub(super) struct ForkSource {
    session: i64,
    /// JSON text of the array.
    instructions: String,
    instruction_count: i64,
    /// Messages after the instructions.
    keep: i64,
    title: Title,
}

#[derive(sqlx::FromRow)]
struct ForkRow {
    id: i64,
    instructions: String,
    instruction_count: i64,
    message_count: i64,
    #[sqlx(flatten)]
    title: Title,
}

impl Clock {
    /// The time now, or just after the last one given out.
    pub(in crate::session) fn stamp(&self) -> i64 {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| {
                i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
            });
        let after = |last: i64| now.max(last.saturating_add(1));
        after(
            self.last
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
                    Some(after(last))
                })
                .unwrap_or_else(|last| last),
        )
    }
}

pub(super) async fn delete(
    connection: &mut SqliteConnection,
    owner: &Owner,
    id: &SessionId,
) -> Result<bool, SessionError> {
    let done = sqlx::query("DELETE FROM sessions WHERE owner = ? AND session_id = ?")
        .bind(owner.as_str())
        .bind(id.as_str())
        .execute(connection)
        .await?;
    Ok(done.rows_affected() > 0)
}

pub(super) async fn replace(
    connection: &mut SqliteConnection,
    now: i64,
    owner: &Owner,
    id: &SessionId,
    session: &StoredSession,
) -> Result<Replaced, SessionError> {
    // The row stays, and with it what belongs to the session besides its messages.
    let forgotten = sqlx::query(
        "DELETE FROM client_calls WHERE session = (SELECT id FROM sessions WHERE owner = ? AND session_id = ?)",
    );
    forgotten
        .bind(owner.as_str())
        .bind(id.as_str())
        .execute(&mut *connection)
        .await?;
    let made = match session.created_at {
        0 => now,
        seconds => seconds.saturating_mul(MICROS_PER_SECOND),
    };
    let whole = Put {
        owner,
        id,
        instructions: Some(&session.instructions),
        keep: 0,
        append: &session.messages,
        client_calls: &[],
    };
    let existed: Option<i64> =
        sqlx::query_scalar("SELECT 1 FROM sessions WHERE owner = ? AND session_id = ?")
            .bind(owner.as_str())
            .bind(id.as_str())
            .fetch_optional(&mut *connection)
            .await?;
    put(connection, now, &whole).await?;
    sqlx::query("UPDATE sessions SET created_at = ? WHERE owner = ? AND session_id = ?")
        .bind(made)
        .bind(owner.as_str())
        .bind(id.as_str())
        .execute(connection)
        .await?;
    Ok(if existed.is_some() {
        Replaced::Replaced
    } else {
        Replaced::Created
    })
}

/// Finds what to copy; the index counts instructions and messages together.
pub(super) async fn fork_source(
    connection: &mut SqliteConnection,
    owner: &Owner,
    id: &SessionId,
    before_message: Option<usize>,
) -> Result<ForkSource, SessionError> {
    let row: ForkRow = sqlx::query_as(
        "SELECT id, instructions, instruction_count, message_count, title_seq, title
         FROM sessions WHERE owner = ? AND session_id = ?",
    )
    .bind(owner.as_str())
    .bind(id.as_str())
    .fetch_optional(connection)
    .await?
    .ok_or(SessionError::NotFound)?;
    let total = row.message_count;
    let before = before_message.map_or(total, count);
    if before > total {
        return Err(SessionError::Invalid {
            param: "before_message".to_owned(),
            message: format!(
                "before_message is {before}, but the session holds {total} messages; send 0 to {total}, or leave it \
                 out to copy all"
            ),
        });
    }
    let instruction_count = row.instruction_count.min(before);
    let instructions = if instruction_count < row.instruction_count {
        let kept = usize::try_from(instruction_count).unwrap_or_default();
        let all = parse_instructions(&row.instructions)?;
        json_array(all.iter().take(kept).map(|json| json.get()))
    } else {
        row.instructions
    };
    let keep = before - instruction_count;
    Ok(ForkSource {
        session: row.id,
        instructions,
        instruction_count,
        keep,
        title: match row.title.title_seq {
            Some(seq) if seq < keep => row.title,
            _ => Title::default(),
        },
    })
}

pub(super) async fn fork(
    connection: &mut SqliteConnection,
    now: i64,
    owner: &Owner,
    source: &ForkSource,
    new_id: &SessionId,
) -> Result<(), SessionError> {
    let copy: i64 = sqlx::query_scalar(
        "INSERT INTO sessions (owner, session_id, instructions, instruction_count, message_count, title_seq, title,
                               created_at, updated_at)
         VALUES (?1, ?2, ?3, ?4, ?4 + ?5, ?6, ?7, ?8, ?8)
         ON CONFLICT (owner, session_id) DO NOTHING RETURNING id",
    )
    .bind(owner.as_str())
    .bind(new_id.as_str())
    .bind(source.instructions.as_str())
    .bind(source.instruction_count)
    .bind(source.keep)
    .bind(source.title.title_seq)
    .bind(source.title.title.as_deref())
    .bind(now)
    .fetch_optional(&mut *connection)
    .await?
    .ok_or(SessionError::Exists)?;
    sqlx::query(
        "INSERT INTO messages (session, seq, json, hidden, view, full_text, sources)
         SELECT ?, seq, json, hidden, view, full_text, sources FROM messages WHERE session = ? AND seq < ?",
    )
    .bind(copy)
    .bind(source.session)
    .bind(source.keep)
    .execute(&mut *connection)
    .await?;
    sqlx::query("INSERT INTO session_files (session, file) SELECT ?, file FROM session_files WHERE session = ?")
        .bind(copy)
        .bind(source.session)
        .execute(connection)
        .await?;
    Ok(())
}

/// Deletes up to [`EXPIRE_BATCH`] of the sessions last written before the time.
pub(super) async fn expire_some(
    connection: &mut SqliteConnection,
    before: i64,
) -> Result<u64, SessionError> {
    let done = sqlx::query(
        "DELETE FROM sessions WHERE id IN
         (SELECT id FROM sessions WHERE updated_at < ? ORDER BY updated_at LIMIT ?)",
    )
    .bind(before)
    .bind(i64::try_from(EXPIRE_BATCH).unwrap_or(i64::MAX))
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

impl Title {
    /// The title that messages give which start at this place.
    pub(super) fn of(first_seq: i64, messages: &[StoredMessage]) -> Self {
        let first_user = (first_seq..)
            .zip(messages)
            .find(|(_, stored)| *stored.message.role() == Role::User);
        let Some((seq, stored)) = first_user else {
            return Self::default();
        };
        let text = stored.message.content_text();
        Self {
            title_seq: Some(seq),
            title: (!text.is_empty()).then(|| text.chars().take(TITLE_CHARS).collect()),
        }
    }
}

pub(super) fn json_array<'a>(items: impl Iterator<Item = &'a str>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

pub(super) fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
