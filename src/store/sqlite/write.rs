//! Changes of sessions in one short transaction.

use rusqlite::{Connection, OptionalExtension, params};

use super::super::lease::Fence;
use super::super::limits::Growth;
use super::super::record::{Change, IdOrigin};
use super::connections::{Executor, StatementError};
use super::instructions::{self, INSTRUCTIONS_START};
use super::messages::{EncodedMessage, append, encode, message_bytes};
use super::quota::WriteContext;
use super::runs::begin_run;
use super::shared::{RowLayout, truncate};
use super::size::{CHUNK, Extent, TASK_LIMIT, unsigned};
use super::transaction::begin;
use crate::ids::{Owner, RunId, SessionId};

/// The owner of hidden sessions: sessions to be removed, and sessions that are being written in chunks. An API key
/// cannot have this name, because configured names have no control characters.
pub(super) const HIDDEN: &str = "\u{1}hidden";

/// How long the later writes of a run leave the indexed time of its session as it is, in microseconds. A write that
/// changes it rewrites a page of each of four indexes.
/// Tried by `sqlite::runs::the_later_writes_of_a_run_leave_the_indexed_time_for_a_while`.
const TOUCH_INTERVAL: i64 = 10_000_000;

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
    pub(super) layout: RowLayout,
    pub(super) instruction_count: i64,
    /// Number of messages, without the instructions.
    pub(super) messages: i64,
    pub(super) title_seq: Option<i64>,
    pub(super) instruction_bytes: i64,
    /// Bytes of the instructions and messages.
    pub(super) bytes: i64,
    /// The indexed time of the last write.
    updated_at: i64,
    /// Whether a run has written the session.
    has_run: bool,
    /// Bytes of the metadata of the conversation.
    pub(super) metadata_bytes: i64,
}

impl SessionRow {
    pub(super) fn find(
        connection: &Connection,
        owner: &Owner,
        id: &SessionId,
    ) -> Result<Option<Self>, StatementError> {
        let mut statement = connection.prepare_cached(
            "SELECT id, shared_instructions, shared, instruction_count, message_count - instruction_count, title_seq,
                    instruction_bytes, bytes, updated_at, last_run IS NOT NULL, coalesce(octet_length(metadata), 0)
             FROM sessions WHERE owner = ?1 AND session_id = ?2",
        )?;
        let head = statement.query_row(params![owner.as_str(), id.as_str()], |row| {
            Ok(Self {
                layout: RowLayout {
                    row: row.get(0)?,
                    shared_instructions: row.get(1)?,
                    shared: row.get(2)?,
                },
                instruction_count: row.get(3)?,
                messages: row.get(4)?,
                title_seq: row.get(5)?,
                instruction_bytes: row.get(6)?,
                bytes: row.get(7)?,
                updated_at: row.get(8)?,
                has_run: row.get(9)?,
                metadata_bytes: row.get(10)?,
            })
        });
        Ok(head.optional()?)
    }
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
    let removed = removed(&transaction, head.as_ref(), kept, stored)?;
    let mut extent = Extent::of_change(change).plus(removed);
    if let (Some(head), Some(_)) = (&head, &change.instructions) {
        extent = extent.plus(instructions::removed(head));
    }
    match executor {
        Executor::Task if !extent.fits(TASK_LIMIT) => return Err(StatementError::LimitExceeded),
        Executor::Thread if !extent.fits(CHUNK) => return Ok(WriteOutcome::LimitExceeded),
        Executor::Task | Executor::Thread => {}
    }
    let messages = encode(&change.append)?;
    let instructions = change.instructions.as_deref();
    let instructions = instructions.map(instructions::as_messages);
    let instructions = instructions.as_deref().map(encode).transpose()?;
    let sum = |messages: &[EncodedMessage<'_>]| messages.iter().map(EncodedMessage::bytes).sum();
    let (bytes, old_instructions) = head
        .as_ref()
        .map_or((0, 0), |head| (head.bytes, head.instruction_bytes));
    let instruction_bytes = instructions.as_deref().map_or(old_instructions, sum);
    let added: i64 = sum(&messages);
    if added > count(CHUNK.bytes) {
        // The extent is an estimate, and escaped texts are longer.
        return Ok(WriteOutcome::LimitExceeded);
    }
    let after = bytes + instruction_bytes - old_instructions + added - count(removed.bytes)
        + metadata_growth(head.as_ref(), change);
    let growth = Growth {
        before: head.as_ref().map(|head| unsigned(head.bytes)),
        after: unsigned(after),
    };
    quota.check(&transaction, fence.owner.as_str(), growth, attempt)?;
    let columns = NewRow {
        instruction_bytes,
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
                statement.execute(params![head.layout.row, kept])?;
            }
            if kept < head.layout.shared {
                truncate(&transaction, head.layout.row, kept)?;
                released = true;
            }
            if instructions.is_some() && head.instruction_count > 0 {
                released |= instructions::remove(&transaction, head)?;
            }
            update_session(&transaction, head, change, kept, &columns)?;
            head.layout.row
        }
    };
    if let Some(instructions) = &instructions {
        append(&transaction, row, INSTRUCTIONS_START, instructions)?;
    }
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

/// How many bytes more the metadata have after a change.
fn metadata_growth(head: Option<&SessionRow>, change: &Change) -> i64 {
    let before = head.map_or(0, |head| head.metadata_bytes);
    let after = change.metadata.as_ref();
    after.map_or(0, |metadata| count(metadata.len()) - before)
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
    let bytes = message_bytes(
        connection,
        &head.layout.segments(connection, kept)?,
        i64::MAX,
    )?;
    let Extent { bytes, .. } = Extent::of_row(bytes);
    Ok(Extent { rows, bytes })
}

/// The computed columns of a session's row.
struct NewRow {
    instruction_bytes: i64,
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
        "INSERT INTO sessions (owner, session_id, instruction_bytes, instruction_count, message_count, title_seq, title,
                               bytes, created_at, updated_at, last_run, nameless, metadata)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10, ?11, ?12)",
    )?;
    Ok(statement.insert(params![
        fence.owner.as_str(),
        fence.id.as_str(),
        new.instruction_bytes,
        count(instructions.len()),
        count(instructions.len() + change.append.len()),
        title.map(|title| count(title.index)),
        title.and_then(|title| title.text.as_deref()),
        new.bytes,
        new.now,
        change.run.as_ref().map(RunId::as_str),
        origin_column(change.id_origin),
        change.metadata,
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
            "UPDATE sessions SET instruction_bytes = ?2, instruction_count = ?3, message_count = ?4,
                title_seq = CASE WHEN ?5 THEN title_seq ELSE ?6 END, title = CASE WHEN ?5 THEN title ELSE ?7 END,
                bytes = ?8, written_at = ?9, last_run = coalesce(?10, last_run), shared = min(shared, ?11),
                shared_instructions = ?12, metadata = coalesce(?13, metadata)",
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
        head.layout.row,
        new.instruction_bytes,
        instruction_count,
        instruction_count + messages,
        title_stays,
        title.map(|title| kept + count(title.index)),
        title.and_then(|title| title.text.as_deref()),
        new.bytes,
        new.now,
        change.run.as_ref().map(RunId::as_str),
        kept,
        head.layout.shared_instructions && instructions.is_none(),
        change.metadata,
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

pub(super) fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
