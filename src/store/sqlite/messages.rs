//! The rows of messages.

use rusqlite::{Connection, params};

use super::super::StoreError;
use super::super::record::StoredMessage;
use super::connections::StatementError;
use super::shared::{Segment, instructions_bytes};
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
    /// The first messages of the segments that fit the limit; at least one if there is any.
    pub(super) fn of(
        connection: &Connection,
        segments: &[Segment],
        limit: Extent,
    ) -> Result<Self, StatementError> {
        let mut statement = connection.prepare_cached(&format!(
            "SELECT seq, {MESSAGE_BYTES} FROM messages
             WHERE session = ?1 AND seq >= ?2 AND seq < ?3 ORDER BY seq LIMIT ?4"
        ))?;
        // One more row than the limit shows whether there are more.
        let most = count(limit.rows.saturating_add(1));
        let mut range = Self {
            to: segments.first().map_or(0, |segment| segment.from),
            whole: false,
            extent: Extent::default(),
        };
        for segment in segments {
            let mut rows = statement.query([segment.row, segment.from, segment.to, most])?;
            while let Some(row) = rows.next()? {
                let (seq, bytes): (i64, i64) = (row.get(0)?, row.get(1)?);
                let next = range.extent.plus(Extent::of_row(bytes));
                if range.extent.rows > 0 && !next.fits(limit) {
                    return Ok(range);
                }
                (range.extent, range.to) = (next, seq + 1);
            }
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

/// The bytes of the messages of the segments before the index `to`.
pub(super) fn message_bytes(
    connection: &Connection,
    segments: &[Segment],
    to: i64,
) -> Result<i64, StatementError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT coalesce(sum({MESSAGE_BYTES}), 0) FROM messages WHERE session = ?1 AND seq >= ?2 AND seq < ?3"
    ))?;
    let mut bytes = 0;
    for segment in segments {
        if let Some(part) = segment.between(0, to) {
            let of_part = [part.row, part.from, part.to];
            bytes += statement.query_row(of_part, |row| row.get::<_, i64>(0))?;
        }
    }
    Ok(bytes)
}

/// The bytes of the first `keep` messages. Only the smaller part of the messages is read.
pub(super) fn kept_bytes(
    connection: &Connection,
    head: &SessionRow,
    keep: i64,
) -> Result<i64, StatementError> {
    if keep <= head.messages / 2 {
        return message_bytes(connection, &head.segments(connection, 0)?, keep);
    }
    let rest = message_bytes(connection, &head.segments(connection, keep)?, i64::MAX)?;
    Ok(head.bytes - instructions_bytes(connection, head)? - rest)
}

/// Copies a chunk of a session's own messages, from the index `from` to before `end`; returns the index of the next one
/// and the bytes of the chunk.
pub(super) fn copy(
    connection: &Connection,
    [source, target]: [i64; 2],
    from: i64,
    end: i64,
) -> Result<(i64, i64), StatementError> {
    let own = Segment {
        row: source,
        from,
        to: end,
    };
    let range = MessageRange::of(connection, &[own], CHUNK)?;
    let mut statement = connection.prepare_cached(
        "INSERT INTO messages (session, seq, json, hidden, view, full_text, sources)
         SELECT ?2, seq, json, hidden, view, full_text, sources FROM messages
         WHERE session = ?1 AND seq >= ?3 AND seq < ?4",
    )?;
    statement.execute([source, target, from, range.to])?;
    match range.whole && range.to < end {
        true => Err(StoreError::failed("the session was deleted meanwhile").into()),
        false => Ok((range.to, count(range.extent.bytes))),
    }
}
