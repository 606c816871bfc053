//! The rows of messages.

use rusqlite::{Connection, params};

use super::super::StoreError;
use super::super::record::StoredMessage;
use super::connections::StatementError;
use super::size::{CHUNK, Extent};
use super::write::{SessionRow, count};

/// SQL expression for the bytes of a row of `messages`.
pub(super) const MESSAGE_BYTES: &str =
    "octet_length(json) + coalesce(octet_length(view), 0) + coalesce(octet_length(full_text), 0)
     + coalesce(octet_length(sources), 0)";

/// A message with its values as they are stored.
#[derive(Debug)]
pub(super) struct EncodedMessage<'a> {
    stored: &'a StoredMessage,
    view: Option<String>,
    sources: Option<String>,
}

/// A range of consecutive messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessageRange {
    /// The first message after them.
    pub(super) to: i64,
    /// Whether the range extends to the last message.
    pub(super) whole: bool,
    pub(super) extent: Extent,
}

impl EncodedMessage<'_> {
    pub(super) fn bytes(&self) -> i64 {
        let length = |text: Option<&str>| text.map_or(0, str::len);
        let bytes = self.stored.message.json_str().len()
            + length(self.view.as_deref())
            + length(self.stored.full_text.as_deref())
            + length(self.sources.as_deref());
        count(bytes)
    }
}

impl MessageRange {
    /// The messages starting at `from` that fit the limit; at least one if there is any.
    pub(super) fn of(
        connection: &Connection,
        session: i64,
        from: i64,
        limit: Extent,
    ) -> Result<Self, StatementError> {
        let mut statement = connection.prepare_cached(&format!(
            "SELECT seq, {MESSAGE_BYTES} FROM messages WHERE session = ?1 AND seq >= ?2 ORDER BY seq LIMIT ?3"
        ))?;
        // One more row than the limit shows whether there are more.
        let most = count(limit.rows.saturating_add(1));
        let mut rows = statement.query(params![session, from, most])?;
        let mut range = Self {
            to: from,
            whole: false,
            extent: Extent::default(),
        };
        while let Some(row) = rows.next()? {
            let (seq, bytes): (i64, i64) = (row.get(0)?, row.get(1)?);
            let next = range.extent.plus(Extent::of_row(bytes));
            if range.extent.rows > 0 && !next.fits(limit) {
                return Ok(range);
            }
            (range.extent, range.to) = (next, seq + 1);
        }
        range.whole = true;
        Ok(range)
    }
}

/// Messages as they are stored.
pub(super) fn encode(
    messages: &[StoredMessage],
) -> Result<Vec<EncodedMessage<'_>>, StatementError> {
    let encoded = messages.iter().map(|stored| {
        let view = stored.view.as_ref().map(serde_json::to_string);
        let sources = (!stored.sources.is_empty()).then(|| serde_json::to_string(&stored.sources));
        Ok(EncodedMessage {
            stored,
            view: view.transpose()?,
            sources: sources.transpose()?,
        })
    });
    let encoded: Result<_, serde_json::Error> = encoded.collect();
    encoded.map_err(|error| StatementError::Store(StoreError::failed(error)))
}

/// Inserts messages from the index `from`.
pub(super) fn append(
    connection: &Connection,
    row: i64,
    from: i64,
    messages: &[EncodedMessage<'_>],
) -> Result<(), StatementError> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO messages (session, seq, json, hidden, view, full_text, sources)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    for (seq, message) in (from..).zip(messages) {
        statement.execute(params![
            row,
            seq,
            message.stored.message.json_str(),
            message.stored.hidden,
            message.view,
            message.stored.full_text.as_deref(),
            message.sources,
        ])?;
    }
    Ok(())
}

/// The bytes of the messages from the index `from` to before `to`.
pub(super) fn message_bytes(
    connection: &Connection,
    row: i64,
    from: i64,
    to: i64,
) -> Result<i64, StatementError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT coalesce(sum({MESSAGE_BYTES}), 0) FROM messages WHERE session = ?1 AND seq >= ?2 AND seq < ?3"
    ))?;
    Ok(statement.query_row([row, from, to], |row| row.get(0))?)
}

/// The bytes of the first `keep` messages. Only the smaller part of the messages is read.
pub(super) fn kept_bytes(
    connection: &Connection,
    head: &SessionRow,
    keep: i64,
) -> Result<i64, StatementError> {
    if keep <= head.messages / 2 {
        return message_bytes(connection, head.row, 0, keep);
    }
    let rest = message_bytes(connection, head.row, keep, head.messages)?;
    Ok(head.bytes - head.instructions_bytes - rest)
}

/// Copies a chunk of the messages from the index `from` to before `end`; returns the index of the next one and the bytes
/// of the chunk.
pub(super) fn copy(
    connection: &Connection,
    [source, target]: [i64; 2],
    from: i64,
    end: i64,
) -> Result<(i64, i64), StatementError> {
    let range = MessageRange::of(connection, source, from, CHUNK)?;
    let to = range.to.min(end);
    let bytes = message_bytes(connection, source, from, to)?;
    let mut statement = connection.prepare_cached(
        "INSERT INTO messages (session, seq, json, hidden, view, full_text, sources)
         SELECT ?2, seq, json, hidden, view, full_text, sources FROM messages
         WHERE session = ?1 AND seq >= ?3 AND seq < ?4",
    )?;
    statement.execute([source, target, from, to])?;
    match range.whole && to < end {
        true => Err(StoreError::failed("the session was deleted meanwhile").into()),
        false => Ok((to, bytes)),
    }
}
