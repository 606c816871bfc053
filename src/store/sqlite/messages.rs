//! The rows of messages.

use std::borrow::Cow;

use rusqlite::{Connection, params};

use super::super::StoreError;
use super::super::record::StoredMessage;
use super::connections::StatementError;
use super::pieces::{self, FIELDS, Place};
use super::shared::Segment;
use super::size::{CHUNK, Extent};
use super::write::{SessionRow, count};

/// SQL expression for the bytes of a row of `messages`.
pub(super) const MESSAGE_BYTES: &str =
    "octet_length(json) + coalesce(octet_length(view), 0) + coalesce(octet_length(full_text), 0)
     + coalesce(octet_length(sources), 0) + long_bytes";

/// A message with its values as they are stored.
#[derive(Debug)]
pub(super) struct EncodedMessage<'a> {
    pub(super) stored: &'a StoredMessage,
    pub(super) texts: Cow<'a, EncodedTexts>,
}

/// The values of a message that are stored as JSON.
#[derive(Debug, Clone)]
pub(super) struct EncodedTexts {
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
        count(self.texts().into_iter().flatten().map(str::len).sum())
    }

    /// The JSON, the view, the whole text and the sources.
    pub(super) fn texts(&self) -> [Option<&str>; FIELDS] {
        [
            Some(self.stored.message.json_str()),
            self.texts.view.as_deref(),
            self.stored.full_text.as_deref(),
            self.texts.sources.as_deref(),
        ]
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

impl EncodedTexts {
    pub(super) fn of(stored: &StoredMessage) -> Result<Self, StatementError> {
        let view = stored.view.as_ref().map(serde_json::to_string).transpose();
        let sources = match &*stored.sources {
            [] => Ok(None),
            sources => serde_json::to_string(sources).map(Some),
        };
        let failed = |error| StatementError::Store(StoreError::failed(error));
        Ok(Self {
            view: view.map_err(failed)?,
            sources: sources.map_err(failed)?,
        })
    }
}

/// Messages as they are stored.
pub(super) fn encode(
    messages: &[StoredMessage],
) -> Result<Vec<EncodedMessage<'_>>, StatementError> {
    let encoded = messages.iter().map(|stored| {
        let texts = Cow::Owned(EncodedTexts::of(stored)?);
        Ok(EncodedMessage { stored, texts })
    });
    encoded.collect()
}

/// Inserts messages from the index `from`.
pub(super) fn append(
    connection: &Connection,
    row: i64,
    from: i64,
    messages: &[EncodedMessage<'_>],
) -> Result<(), StatementError> {
    for (seq, message) in (from..).zip(messages) {
        append_row(connection, row, seq, message)?;
        pieces::insert_all(connection, row, seq, message)?;
    }
    Ok(())
}

/// Inserts a part of a message that is too long for one transaction; returns the place after it.
pub(super) fn append_part(
    connection: &Connection,
    row: i64,
    place: Place,
    message: &EncodedMessage<'_>,
) -> Result<Place, StatementError> {
    if place.pieces == 0 {
        append_row(connection, row, place.message, message)?;
    }
    pieces::insert_some(connection, row, place, message)
}

fn append_row(
    connection: &Connection,
    row: i64,
    seq: i64,
    message: &EncodedMessage<'_>,
) -> Result<(), StatementError> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO messages (session, seq, json, hidden, view, full_text, sources, long_bytes)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    let [json, view, full_text, sources] = message.texts().map(EncodedMessage::in_row);
    let hidden = message.stored.hidden;
    let long = message.long_bytes();
    statement.execute(params![
        row, seq, json, hidden, view, full_text, sources, long
    ])?;
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
        if let Some(part) = segment.between(segment.from, to) {
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
        return message_bytes(connection, &head.layout.segments(connection, 0)?, keep);
    }
    let rest = message_bytes(
        connection,
        &head.layout.segments(connection, keep)?,
        i64::MAX,
    )?;
    Ok(head.bytes - head.instruction_bytes - rest)
}

/// Copies a chunk of a session's own instructions or messages, from a place to before the index `end`; returns the place
/// after it and the bytes of the messages that begin in it.
pub(super) fn copy(
    connection: &Connection,
    [source, target]: [i64; 2],
    from: Place,
    end: i64,
) -> Result<(Place, i64), StatementError> {
    let own = Segment {
        row: source,
        from: from.message,
        to: end,
    };
    let range = MessageRange::of(connection, &[own], CHUNK)?;
    if range.extent.rows == 0 || (range.whole && range.to < end) {
        return Err(StoreError::failed("the session was deleted meanwhile").into());
    }
    if from.pieces > 0 {
        return Ok((pieces::copy_some(connection, [source, target], from)?, 0));
    }
    let mut statement = connection.prepare_cached(
        "INSERT INTO messages (session, seq, json, hidden, view, full_text, sources, long_bytes)
         SELECT ?2, seq, json, hidden, view, full_text, sources, long_bytes FROM messages
         WHERE session = ?1 AND seq >= ?3 AND seq < ?4",
    )?;
    statement.execute([source, target, from.message, range.to])?;
    let place = match range.extent.fits(CHUNK) {
        true => {
            let range = [from.message, range.to];
            pieces::copy_all(connection, [source, target], range)?;
            Place::before(range[1])
        }
        // A single message.
        false => pieces::copy_some(connection, [source, target], from)?,
    };
    Ok((place, count(range.extent.bytes)))
}
