//! Forks: copies of sessions in one short transaction.
//!
//! Few rows are copied. More rows become a trunk, which the session and its fork share from then on. So a session gets a
//! further segment only with more new rows or bytes than a transaction of a task may write.

use rusqlite::{Connection, params};

use super::super::StoreError;
use super::super::clock::seconds;
use super::super::lease::Fence;
use super::super::limits::Growth;
use super::super::record::SessionSummary;
use super::connections::StatementError;
use super::instructions::{INSTRUCTIONS_START, bytes_of_first};
use super::messages::{copy, kept_bytes, message_bytes};
use super::pieces::Place;
use super::quota::WriteContext;
use super::shared::{RowLayout, Segment, mark_trunk, share};
use super::size::{Extent, TASK_LIMIT, unsigned};
use super::transaction::begin;
use super::write::{SessionRow, count};
use crate::ids::SessionId;

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
    let instruction_bytes = bytes_of_first(&transaction, &head, instruction_count)?;
    let messages = kept_bytes(&transaction, &head, keep)?;
    let bytes = instruction_bytes + messages + head.metadata_bytes;
    let growth = Growth {
        before: None,
        after: unsigned(bytes),
    };
    context
        .quota
        .check(&transaction, owner, growth, context.attempt)?;

    let ends = [INSTRUCTIONS_START + instruction_count, keep];
    if !copied(&transaction, head.layout, ends)?.fits(TASK_LIMIT) {
        split(&transaction, fence, &mut head)?;
    }
    let RowLayout {
        row: source,
        shared_instructions,
        shared,
    } = head.layout;
    let now = context.clock.stamp();
    let mut statement = transaction.prepare_cached(
        "INSERT INTO sessions (owner, session_id, instruction_count, instruction_bytes, shared_instructions, message_count,
                               shared, bytes, title, title_seq, created_at, updated_at, metadata)
         SELECT ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, CASE WHEN title_seq < ?10 THEN title END,
                CASE WHEN title_seq < ?10 THEN title_seq END, ?11, ?11, metadata
         FROM sessions WHERE id = ?1 RETURNING id, title",
    )?;
    let columns = params![
        source,
        owner,
        new_id.as_str(),
        instruction_count,
        instruction_bytes,
        shared_instructions && instruction_count > 0,
        before,
        shared.min(keep),
        bytes,
        keep,
        now,
    ];
    let (row, title) = statement.query_row(columns, |row| Ok((row.get(0)?, row.get(1)?)))?;
    drop(statement);
    share(&transaction, [source, row], ends)?;
    for [first, end] in head.layout.own_before(ends) {
        let mut from = Place::before(first);
        while from.message < end {
            (from, _) = copy(&transaction, [source, row], from, end)?;
        }
    }
    let mut statement = transaction.prepare_cached(
        "INSERT INTO session_files (session, file) SELECT ?2, file FROM session_files WHERE session = ?1",
    )?;
    statement.execute([source, row])?;
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
fn copied(
    connection: &Connection,
    layout: RowLayout,
    ends: [i64; 2],
) -> Result<Extent, StatementError> {
    let own = layout.own_before(ends);
    let own = own.map(|[from, to]| Segment {
        row: layout.row,
        from,
        to,
    });
    let rows: i64 = own.iter().map(|segment| segment.to - segment.from).sum();
    let rows = usize::try_from(rows).unwrap_or_default();
    let bytes = match rows {
        0 => 0,
        rows if rows > TASK_LIMIT.rows => 0,
        _ => message_bytes(connection, &own, i64::MAX)?,
    };
    let Extent { bytes, .. } = Extent::of_row(bytes);
    Ok(Extent { rows, bytes })
}

/// Makes a trunk of the session's row and gives the session a new row, which refers to the trunk.
fn split(
    connection: &Connection,
    fence: &Fence,
    head: &mut SessionRow,
) -> Result<(), StatementError> {
    let trunk = head.layout.row;
    let layout = RowLayout {
        row: 0,
        shared_instructions: head.instruction_count > 0,
        shared: head.messages,
    };
    mark_trunk(connection, trunk)?;
    let mut statement = connection.prepare_cached(
        "INSERT INTO sessions (owner, session_id, instruction_count, instruction_bytes, shared_instructions, message_count,
                               title_seq, title, bytes, shared, created_at, updated_at, written_at, last_run, nameless,
                               metadata)
         SELECT ?2, ?3, instruction_count, instruction_bytes, ?4, message_count,
                title_seq, title, bytes, ?5, created_at, updated_at, written_at, last_run, nameless, metadata
         FROM sessions WHERE id = ?1",
    )?;
    let (owner, id) = (fence.owner.as_str(), fence.id.as_str());
    let columns = params![trunk, owner, id, layout.shared_instructions, layout.shared];
    let row = statement.insert(columns)?;
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
    let ends = [INSTRUCTIONS_START + head.instruction_count, head.messages];
    for [first, end] in head.layout.own_before(ends) {
        if first < end {
            refer.execute([row, first, end, trunk])?;
        }
    }
    head.layout = RowLayout { row, ..layout };
    Ok(())
}
