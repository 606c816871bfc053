//! Forks: copies of sessions in one short transaction.
//!
//! Few messages are copied. The rows of more messages become a trunk, which the session and its fork share from then
//! on. So every segment of a session starts with more rows than a transaction of a task may write, and a session has a
//! few hundred segments at most before it is edited.

use rusqlite::{Connection, params};

use super::super::StoreError;
use super::super::clock::seconds;
use super::super::lease::Fence;
use super::super::limits::Growth;
use super::super::record::SessionSummary;
use super::connections::StatementError;
use super::messages::{copy, kept_bytes, message_bytes};
use super::pieces::Place;
use super::quota::WriteContext;
use super::read::parse_instructions;
use super::shared::{
    Segment, instructions, instructions_bytes, mark_trunk, share, share_instructions,
};
use super::size::{Extent, TASK_LIMIT, unsigned};
use super::write::{SessionRow, begin, count, json_array};
use crate::ids::SessionId;

/// Instructions with more bytes are shared.
const MAX_COPIED_INSTRUCTIONS: i64 = 16 * 1024;

/// Copies the messages before the index `before_message`, or all. The index counts instructions and messages together.
pub(super) fn fork(
    connection: &mut Connection,
    context: WriteContext<'_>,
    fence: &Fence,
    before_message: Option<usize>,
    new_id: &SessionId,
) -> Result<SessionSummary, StatementError> {
    let transaction = begin(connection)?;
    let owner = fence.owner.as_str();
    let head = SessionRow::find(&transaction, &fence.owner, &fence.id)?;
    let mut head = head.ok_or(StoreError::NotFound)?;
    if SessionRow::find(&transaction, &fence.owner, new_id)?.is_some() {
        return Err(StoreError::Exists.into());
    }
    let total = head.instruction_count + head.messages;
    let before = before_message.map_or(total, count);
    if before > total {
        let messages = unsigned(total);
        return Err(StoreError::PastEnd { messages }.into());
    }
    let instruction_count = head.instruction_count.min(before);
    let keep = before - instruction_count;
    let kept = kept_bytes(&transaction, &head, keep)?;
    let some_instructions = match instruction_count < head.instruction_count {
        true => Some(first_instructions(&transaction, &head, instruction_count)?),
        false => None,
    };
    let bytes = match &some_instructions {
        Some(json) => kept + count(json.len()),
        None => kept + instructions_bytes(&transaction, &head)?,
    };
    let growth = Growth {
        before: None,
        after: unsigned(bytes),
    };
    context
        .quota
        .check(&transaction, owner, growth, context.attempt)?;

    let copied = copied(&transaction, &head, keep)?;
    let large_instructions =
        some_instructions.is_none() && head.instructions_bytes > MAX_COPIED_INSTRUCTIONS;
    if large_instructions || !copied.fits(TASK_LIMIT) {
        split(&transaction, fence, &mut head)?;
    }
    let now = context.clock.stamp();
    let row = insert(
        &transaction,
        &head,
        (owner, new_id),
        some_instructions.as_deref(),
        now,
    )?;
    let shared = keep.min(head.shared);
    share(&transaction, [head.row, row], shared)?;
    if some_instructions.is_none() {
        share_instructions(&transaction, [head.row, row])?;
    }
    let mut from = Place::before(shared);
    while from.message < keep {
        (from, _) = copy(&transaction, [head.row, row], from, keep)?;
    }
    let mut statement = transaction.prepare_cached(
        "UPDATE sessions SET instruction_count = ?2, message_count = ?3, shared = ?4, bytes = ?5,
            title = CASE WHEN title_seq < ?6 THEN title END,
            title_seq = CASE WHEN title_seq < ?6 THEN title_seq END
         WHERE id = ?1 RETURNING title",
    )?;
    let columns = params![row, instruction_count, before, shared, bytes, keep];
    let title = statement.query_row(columns, |row| row.get(0))?;
    drop(statement);
    let mut statement = transaction.prepare_cached(
        "INSERT INTO session_files (session, file) SELECT ?2, file FROM session_files WHERE session = ?1",
    )?;
    statement.execute([head.row, row])?;
    drop(statement);
    transaction.commit()?;
    Ok(SessionSummary {
        id: new_id.clone(),
        created_at: seconds(now),
        updated_at: seconds(now),
        message_count: unsigned(before),
        title,
        running: false,
        last_run: None,
    })
}

/// What has to be copied if the session's own rows do not become a trunk. Of many rows the bytes are not read.
fn copied(connection: &Connection, head: &SessionRow, keep: i64) -> Result<Extent, StatementError> {
    let rows = usize::try_from(keep - head.shared).unwrap_or_default();
    let bytes = match rows {
        0 => 0,
        rows if rows > TASK_LIMIT.rows => 0,
        _ => message_bytes(connection, &[Segment::own(head.row, head.shared)], keep)?,
    };
    let Extent { bytes, .. } = Extent::of_row(bytes);
    Ok(Extent { rows, bytes })
}

/// The first instructions as JSON.
fn first_instructions(
    connection: &Connection,
    head: &SessionRow,
    instruction_count: i64,
) -> Result<String, StatementError> {
    let kept = usize::try_from(instruction_count).unwrap_or_default();
    let all = parse_instructions(&instructions(connection, head.row)?)?;
    Ok(json_array(all.iter().take(kept).map(|json| json.get())))
}

/// Makes a trunk of the session's row and gives the session a new row, which refers to the trunk.
fn split(
    connection: &Connection,
    fence: &Fence,
    head: &mut SessionRow,
) -> Result<(), StatementError> {
    let trunk = head.row;
    mark_trunk(connection, trunk)?;
    let large_instructions = head.instructions_bytes > MAX_COPIED_INSTRUCTIONS;
    let mut statement = connection.prepare_cached(
        "INSERT INTO sessions (owner, session_id, instructions, instruction_count, message_count, title_seq, title,
                               bytes, shared, created_at, updated_at, last_run, nameless)
         SELECT ?2, ?3, CASE WHEN ?4 THEN '' ELSE instructions END, instruction_count, message_count, title_seq, title,
                bytes, message_count - instruction_count, created_at, updated_at, last_run, nameless
         FROM sessions WHERE id = ?1",
    )?;
    let (owner, id) = (fence.owner.as_str(), fence.id.as_str());
    let row = statement.insert(params![trunk, owner, id, large_instructions])?;
    for sql in [
        "UPDATE session_files SET session = ?2 WHERE session = ?1",
        "UPDATE client_calls SET session = ?2 WHERE session = ?1",
        "UPDATE shared_messages SET session = ?2 WHERE session = ?1",
    ] {
        connection.prepare_cached(sql)?.execute([trunk, row])?;
    }
    let mut refer = connection.prepare_cached(
        "INSERT INTO shared_messages (session, first_seq, end_seq, trunk) VALUES (?1, ?2, ?3, ?4)",
    )?;
    if head.shared < head.messages {
        refer.execute([row, head.shared, head.messages, trunk])?;
    }
    if large_instructions {
        refer.execute([row, -1, 0, trunk])?;
        head.instructions_bytes = 0;
    }
    head.row = row;
    head.shared = head.messages;
    Ok(())
}

/// Inserts the row of the fork, with the columns that it has in common with its source.
fn insert(
    connection: &Connection,
    head: &SessionRow,
    (owner, id): (&str, &SessionId),
    instructions: Option<&str>,
    now: i64,
) -> Result<i64, StatementError> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO sessions (owner, session_id, instructions, title_seq, title, created_at, updated_at)
         SELECT ?2, ?3, coalesce(?4, instructions), title_seq, title, ?5, ?5 FROM sessions WHERE id = ?1",
    )?;
    let columns = params![head.row, owner, id.as_str(), instructions, now];
    Ok(statement.insert(columns)?)
}
