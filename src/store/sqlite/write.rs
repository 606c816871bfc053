//! Changes of sessions in one short transaction.

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::super::lease::Fence;
use super::super::limits::Growth;
use super::super::record::{Change, IdOrigin};
use super::connections::{Executor, StatementError};
use super::messages::{EncodedMessage, append, encode, message_bytes};
use super::quota::WriteContext;
use super::runs::begin_run;
use super::shared::{Segment, instructions_bytes, release_instructions, segments, truncate};
use super::size::{CHUNK, Extent, TASK_LIMIT, unsigned};
use crate::ids::{Owner, RunId, SessionId};
use crate::openai::message::Message;

/// Most expired sessions hidden in one transaction.
pub(super) const EXPIRE_BATCH: u64 = 64;
/// The owner of hidden sessions: sessions to be removed, and sessions that are being written in chunks. An API key
/// cannot have this name, because configured names have no control characters.
pub(super) const HIDDEN: &str = "\u{1}hidden";

/// For so many microseconds the later writes of a run leave the indexed time of its session as it is. A write that changes it
/// rewrites a page of each of four indexes.
const TOUCH_INTERVAL: i64 = 10_000_000;

/// The bytes of the instructions of a session without instructions.
pub(super) const NO_INSTRUCTIONS: i64 = 2;

/// The outcome of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteOutcome {
    Done {
        /// Whether a trunk was released, which has to be trimmed.
        released: bool,
    },
    /// The change is too large for one transaction; nothing is changed.
    LimitExceeded,
}

/// The row of a session, without its texts.
#[derive(Debug)]
pub(super) struct SessionRow {
    pub(super) row: i64,
    pub(super) instruction_count: i64,
    /// Number of messages, without the instructions.
    pub(super) messages: i64,
    pub(super) title_seq: Option<i64>,
    /// Bytes of the instructions in this row; 0 if they are in a trunk.
    pub(super) instructions_bytes: i64,
    /// Bytes of the instructions and messages.
    pub(super) bytes: i64,
    /// How many of the messages are in trunks.
    pub(super) shared: i64,
    /// The indexed time of the last write.
    updated_at: i64,
    /// Whether a run has written the session.
    has_run: bool,
}

impl SessionRow {
    pub(super) fn find(
        connection: &Connection,
        owner: &Owner,
        id: &SessionId,
    ) -> Result<Option<Self>, StatementError> {
        let mut statement = connection.prepare_cached(
            "SELECT id, instruction_count, message_count - instruction_count, title_seq, octet_length(instructions),
                    bytes, shared, updated_at, last_run IS NOT NULL
             FROM sessions WHERE owner = ?1 AND session_id = ?2",
        )?;
        let head = statement.query_row(params![owner.as_str(), id.as_str()], |row| {
            Ok(Self {
                row: row.get(0)?,
                instruction_count: row.get(1)?,
                messages: row.get(2)?,
                title_seq: row.get(3)?,
                instructions_bytes: row.get(4)?,
                bytes: row.get(5)?,
                shared: row.get(6)?,
                updated_at: row.get(7)?,
                has_run: row.get(8)?,
            })
        });
        Ok(head.optional()?)
    }

    /// The segments from the index `from`.
    pub(super) fn segments(
        &self,
        connection: &Connection,
        from: i64,
    ) -> Result<Vec<Segment>, StatementError> {
        segments(connection, self.row, self.shared, from)
    }
}

/// Begins a write transaction. It takes the write lock at once, because upgrading a read lock can fail with
/// `SQLITE_BUSY`.
pub(super) fn begin(connection: &mut Connection) -> Result<Transaction<'_>, StatementError> {
    Ok(connection.transaction_with_behavior(TransactionBehavior::Immediate)?)
}

/// Applies a change. Its cost depends on the added and deleted messages, not on the size of the session.
pub(super) fn write(
    connection: &mut Connection,
    context: WriteContext<'_>,
    fence: &Fence,
    change: &Change,
    executor: Executor,
) -> Result<WriteOutcome, StatementError> {
    let WriteContext {
        clock,
        quota,
        attempt,
    } = context;
    let transaction = begin(connection)?;
    let head = SessionRow::find(&transaction, &fence.owner, &fence.id)?;
    let stored = head.as_ref().map_or(0, |head| head.messages);
    let kept = stored.min(count(change.keep));
    let mut extent = Extent::of_change(change);
    if let Some(head) = &head {
        // The row is rewritten with any change.
        extent = extent.plus(Extent::of_row(head.instructions_bytes));
    }
    let removed = removed(&transaction, head.as_ref(), kept, stored)?;
    extent = extent.plus(removed);
    match executor {
        Executor::Task if !extent.fits(TASK_LIMIT) => return Err(StatementError::LimitExceeded),
        Executor::Thread if !extent.fits(CHUNK) => return Ok(WriteOutcome::LimitExceeded),
        Executor::Task | Executor::Thread => {}
    }
    let messages = encode(&change.append)?;
    let instructions = change.instructions.as_deref().map(instructions_json);
    let new_instructions = instructions.as_deref().map(|json| count(json.len()));
    let bytes = head.as_ref().map_or(NO_INSTRUCTIONS, |head| head.bytes);
    let resized = match (&head, new_instructions) {
        (_, None) => 0,
        (None, Some(new)) => new - NO_INSTRUCTIONS,
        (Some(head), Some(new)) => new - instructions_bytes(&transaction, head)?,
    };
    let added = messages.iter().map(EncodedMessage::bytes).sum::<i64>();
    if added > count(CHUNK.bytes) {
        // The extent is an estimate, and escaped texts are longer.
        return Ok(WriteOutcome::LimitExceeded);
    }
    let after = bytes + resized + added - count(removed.bytes);
    let growth = Growth {
        before: head.as_ref().map(|head| unsigned(head.bytes)),
        after: unsigned(after),
    };
    quota.check(&transaction, fence.owner.as_str(), growth, attempt)?;
    let columns = NewRow {
        instructions,
        bytes: after,
        now: clock.stamp(),
    };
    let mut released = false;
    let row = match &head {
        None => insert_session(&transaction, fence, change, &columns)?,
        Some(head) => {
            if kept < stored {
                let mut statement = transaction
                    .prepare_cached("DELETE FROM messages WHERE session = ?1 AND seq >= ?2")?;
                statement.execute(params![head.row, kept])?;
            }
            if kept < head.shared {
                truncate(&transaction, head.row, kept)?;
                released = true;
            }
            if head.instructions_bytes == 0 && columns.instructions.is_some() {
                release_instructions(&transaction, head.row)?;
                released = true;
            }
            update_session(&transaction, head, change, kept, &columns)?;
            head.row
        }
    };
    append(&transaction, row, kept, &messages)?;
    assign_calls(&transaction, row, &fence.owner, &change.client_calls)?;
    if let Some(run) = &change.run {
        begin_run(
            &transaction,
            columns.now,
            run,
            &fence.owner,
            Some(&fence.id),
        )?;
    }
    transaction.commit()?;
    Ok(WriteOutcome::Done { released })
}

/// The extent of the messages to be deleted. If there are more rows than in a chunk, their bytes are not read.
fn removed(
    connection: &Connection,
    head: Option<&SessionRow>,
    kept: i64,
    stored: i64,
) -> Result<Extent, StatementError> {
    let rows = usize::try_from(stored - kept).unwrap_or(usize::MAX);
    let Some(head) = head.filter(|_| rows > 0 && rows <= CHUNK.rows) else {
        return Ok(Extent { rows, bytes: 0 });
    };
    let bytes = message_bytes(connection, &head.segments(connection, kept)?, i64::MAX)?;
    let Extent { bytes, .. } = Extent::of_row(bytes);
    Ok(Extent { rows, bytes })
}

/// The computed columns of a session's row.
struct NewRow {
    /// `None` leaves the stored ones.
    instructions: Option<String>,
    bytes: i64,
    now: i64,
}

fn insert_session(
    connection: &Connection,
    fence: &Fence,
    change: &Change,
    new: &NewRow,
) -> Result<i64, StatementError> {
    let instructions = change.instructions.as_deref().unwrap_or_default();
    let title = change.title.as_ref();
    let mut statement = connection.prepare_cached(
        "INSERT INTO sessions (owner, session_id, instructions, instruction_count, message_count, title_seq, title,
                               bytes, created_at, updated_at, last_run, nameless)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10, ?11)",
    )?;
    Ok(statement.insert(params![
        fence.owner.as_str(),
        fence.id.as_str(),
        new.instructions.as_deref().unwrap_or("[]"),
        count(instructions.len()),
        count(instructions.len() + change.append.len()),
        title.map(|title| count(title.index)),
        title.and_then(|title| title.text.as_deref()),
        new.bytes,
        new.now,
        change.run.as_ref().map(RunId::as_str),
        origin_column(change.id_origin),
    ])?)
}

/// How a session's row records who chose its id: in the column `nameless`.
pub(super) fn origin_column(origin: IdOrigin) -> i64 {
    match origin {
        IdOrigin::Client => 0,
        IdOrigin::Nameless => 1,
        IdOrigin::Chat => 2,
    }
}

/// The statement of [`update_session`] with a further column.
macro_rules! update_session_sql {
    ($column:literal) => {
        concat!(
            "UPDATE sessions SET instructions = coalesce(?2, instructions), instruction_count = ?3, message_count = ?4,
                title_seq = CASE WHEN ?5 THEN title_seq ELSE ?6 END, title = CASE WHEN ?5 THEN title ELSE ?7 END,
                bytes = ?8, written_at = ?9, last_run = coalesce(?10, last_run), shared = min(shared, ?11)",
            $column,
            " WHERE id = ?1"
        )
    };
}

fn update_session(
    connection: &Connection,
    head: &SessionRow,
    change: &Change,
    kept: i64,
    new: &NewRow,
) -> Result<(), StatementError> {
    let instructions = change.instructions.as_deref();
    let instruction_count = instructions.map_or(head.instruction_count, |list| count(list.len()));
    let messages = kept + count(change.append.len());
    // If the title message is not kept, the title is taken from the new messages.
    let title_stays = head.title_seq.is_some_and(|seq| seq < kept);
    let title = change.title.as_ref();
    // Only the first write of a run names it.
    let is_later_write = change.run.is_none() && head.has_run;
    let is_recent = new.now.saturating_sub(head.updated_at) < TOUCH_INTERVAL;
    let mut statement = connection.prepare_cached(match is_later_write && is_recent {
        true => update_session_sql!(""),
        false => update_session_sql!(", updated_at = ?9"),
    })?;
    statement.execute(params![
        head.row,
        new.instructions.as_deref(),
        instruction_count,
        instruction_count + messages,
        title_stays,
        title.map(|title| kept + count(title.index)),
        title.and_then(|title| title.text.as_deref()),
        new.bytes,
        new.now,
        change.run.as_ref().map(RunId::as_str),
        kept,
    ])?;
    Ok(())
}

/// Assigns pending client calls to a session.
pub(super) fn assign_calls(
    connection: &Connection,
    row: i64,
    owner: &Owner,
    calls: &[String],
) -> Result<(), StatementError> {
    if calls.is_empty() {
        return Ok(());
    }
    let mut statement = connection.prepare_cached(
        "INSERT INTO client_calls (owner, call_id, session) VALUES (?1, ?2, ?3)
         ON CONFLICT (owner, call_id) DO UPDATE SET session = excluded.session",
    )?;
    for call in calls {
        statement.execute(params![owner.as_str(), call, row])?;
    }
    Ok(())
}

/// Hides a session, which [`super::sweep`] removes later; returns whether it existed.
pub(super) fn hide(
    connection: &mut Connection,
    owner: &Owner,
    id: &SessionId,
) -> Result<bool, StatementError> {
    let transaction = begin(connection)?;
    let head = SessionRow::find(&transaction, owner, id)?;
    if let Some(head) = &head {
        hide_session(&transaction, head.row)?;
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
pub(super) fn hide_expired(
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

/// Instructions as they are stored.
pub(super) fn instructions_json(list: &[Message]) -> String {
    json_array(list.iter().map(Message::json_str))
}

pub(super) fn json_array<'a>(items: impl Iterator<Item = &'a str>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

pub(super) fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
