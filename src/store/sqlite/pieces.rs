//! Long texts of messages, which are stored in pieces beside their rows.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, params};

use super::connections::StatementError;
use super::messages::EncodedMessage;
use super::shared::Segment;
use super::size::{CHUNK, Extent};
use super::write::count;

/// Longest text in a row of `messages`, in bytes. A longer one is stored in pieces.
/// Tried by `sqlite::runs::no_row_that_is_passed_in_a_search_is_long`.
pub(super) const LONGEST_IN_ROW: usize = 16 * 1024;
/// Size of a piece, in bytes. SQLite copies each, so a larger one would only take more memory.
pub(super) const PIECE: usize = 64 * 1024;
/// Most pieces of one transaction; others follow.
/// Tried by `transactions::no_operation_on_a_long_message_is_one_long_transaction`.
pub(super) const MOST_PIECES: usize = CHUNK.bytes / PIECE;
/// Number of the texts of a message: its JSON, view, whole text and sources.
pub(super) const FIELDS: usize = 4;

/// A place among the messages of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Place {
    /// The message.
    pub(super) message: i64,
    /// Its pieces before the place; 0 before its row.
    pub(super) pieces: usize,
}

impl Place {
    /// The place before a message.
    pub(super) fn before(message: i64) -> Self {
        Self { message, pieces: 0 }
    }

    /// The place after `done` more pieces of the message.
    fn after(self, done: usize) -> Self {
        match done < MOST_PIECES {
            true => Self::before(self.message + 1),
            false => Self {
                pieces: self.pieces + done,
                ..self
            },
        }
    }
}

impl EncodedMessage<'_> {
    /// The text that a row has of a field: a long one is empty.
    pub(super) fn in_row(text: Option<&str>) -> Option<&str> {
        text.map(|text| if is_long(text) { "" } else { text })
    }

    /// Bytes of the long texts.
    pub(super) fn long_bytes(&self) -> i64 {
        let texts = self.texts().into_iter().flatten();
        count(texts.filter(|text| is_long(text)).map(str::len).sum())
    }

    /// The pieces of the long texts.
    fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let fields = self.texts().into_iter().enumerate();
        let long =
            fields.filter_map(|(field, text)| Some((field, text.filter(|text| is_long(text))?)));
        long.flat_map(|(field, text)| cut(field, text.as_bytes()))
    }
}

fn is_long(text: &str) -> bool {
    text.len() > LONGEST_IN_ROW
}

/// A piece of a text.
struct Piece<'a> {
    field: usize,
    part: usize,
    bytes: &'a [u8],
}

/// The pieces of a text.
fn cut(field: usize, text: &[u8]) -> impl Iterator<Item = Piece<'_>> {
    let pieces = text.chunks(PIECE).enumerate();
    pieces.map(move |(part, bytes)| Piece { field, part, bytes })
}

/// Inserts all pieces of a message's JSON, which is in the row if it is short. Part of a migration.
pub(super) fn insert_json(
    connection: &Connection,
    (row, seq): (i64, i64),
    json: &str,
) -> Result<(), StatementError> {
    let long = Some(json).filter(|json| is_long(json));
    let in_row = if long.is_some() { "" } else { json };
    let mut statement = connection.prepare_cached(
        "INSERT INTO messages (session, seq, json, hidden, long_bytes) VALUES (?1, ?2, ?3, 0, ?4)",
    )?;
    statement.execute(params![row, seq, in_row, count(long.map_or(0, str::len))])?;
    let pieces = long.into_iter().flat_map(|json| cut(0, json.as_bytes()));
    insert(connection, (row, seq), pieces).map(drop)
}

/// Inserts all pieces of a message.
pub(super) fn insert_all(
    connection: &Connection,
    row: i64,
    seq: i64,
    message: &EncodedMessage<'_>,
) -> Result<(), StatementError> {
    insert(connection, (row, seq), message.pieces()).map(drop)
}

/// Inserts all pieces of a long text of a message.
pub(super) fn insert_text(
    connection: &Connection,
    message: (i64, i64),
    field: usize,
    text: &[u8],
) -> Result<(), StatementError> {
    insert(connection, message, cut(field, text)).map(drop)
}

/// Inserts some pieces of a message at a place; returns the place after them.
pub(super) fn insert_some(
    connection: &Connection,
    row: i64,
    place: Place,
    message: &EncodedMessage<'_>,
) -> Result<Place, StatementError> {
    let pieces = message.pieces().skip(place.pieces).take(MOST_PIECES);
    let done = insert(connection, (row, place.message), pieces)?;
    Ok(place.after(done))
}

fn insert<'a>(
    connection: &Connection,
    (row, seq): (i64, i64),
    pieces: impl Iterator<Item = Piece<'a>>,
) -> Result<usize, StatementError> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO message_pieces (session, seq, field, part, piece) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let mut done = 0;
    for Piece { field, part, bytes } in pieces {
        statement.execute(params![row, seq, count(field), count(part), bytes])?;
        done += 1;
    }
    Ok(done)
}

/// Copies all pieces of the messages from an index to before another one.
pub(super) fn copy_all(
    connection: &Connection,
    [source, target]: [i64; 2],
    [from, to]: [i64; 2],
) -> Result<(), StatementError> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO message_pieces (session, seq, field, part, piece)
         SELECT ?2, seq, field, part, piece FROM message_pieces WHERE session = ?1 AND seq >= ?3 AND seq < ?4",
    )?;
    statement.execute([source, target, from, to])?;
    Ok(())
}

/// Copies some pieces of a message at a place; returns the place after them.
pub(super) fn copy_some(
    connection: &Connection,
    [source, target]: [i64; 2],
    place: Place,
) -> Result<Place, StatementError> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO message_pieces (session, seq, field, part, piece)
         SELECT ?2, seq, field, part, piece FROM message_pieces
         WHERE session = ?1 AND seq = ?3 ORDER BY field, part LIMIT ?4 OFFSET ?5",
    )?;
    let (most, done) = (count(MOST_PIECES), count(place.pieces));
    let done = statement.execute([source, target, place.message, most, done])?;
    Ok(place.after(done))
}

/// Removes some pieces of the first message of a segment, if it is too long to be removed at once. The message must not be
/// read any more.
pub(super) fn shorten(
    connection: &Connection,
    Segment { row, from, to }: Segment,
) -> Result<Option<Extent>, StatementError> {
    let mut statement = connection.prepare_cached(
        "SELECT seq, long_bytes FROM messages WHERE session = ?1 AND seq >= ?2 AND seq < ?3 ORDER BY seq LIMIT 1",
    )?;
    let first = statement.query_row([row, from, to], |found| {
        Ok((found.get::<_, i64>(0)?, found.get::<_, i64>(1)?))
    });
    let Some((seq, long)) = first.optional()? else {
        return Ok(None);
    };
    if Extent::of_row(long).fits(CHUNK) {
        return Ok(None);
    }
    let mut statement = connection.prepare_cached(
        "DELETE FROM message_pieces WHERE rowid IN
         (SELECT rowid FROM message_pieces WHERE session = ?1 AND seq = ?2 LIMIT ?3)
         RETURNING octet_length(piece)",
    )?;
    let removed = statement.query_map([row, seq, count(MOST_PIECES)], |found| {
        found.get::<_, i64>(0)
    });
    let (mut rows, mut bytes) = (0, 0);
    for piece in removed? {
        (rows, bytes) = (rows + 1, bytes + piece?);
    }
    // Without pieces nothing is left of it.
    let left = if rows == 0 { 0 } else { long - bytes };
    let mut statement = connection
        .prepare_cached("UPDATE messages SET long_bytes = ?3 WHERE session = ?1 AND seq = ?2")?;
    statement.execute([row, seq, left.max(0)])?;
    let Extent { bytes, .. } = Extent::of_row(bytes);
    Ok(Some(Extent { rows, bytes }))
}

/// Moves the long texts of all rows to pieces. Part of a migration: a database may have been written with other limits.
pub(super) fn move_long_texts(connection: &Connection) -> Result<(), StatementError> {
    let mut statement = connection.prepare(
        "SELECT session, seq, json, view, full_text, sources FROM messages
         WHERE octet_length(json) > ?1 OR octet_length(view) > ?1 OR octet_length(full_text) > ?1
            OR octet_length(sources) > ?1",
    )?;
    let longest = count(LONGEST_IN_ROW);
    let mut rows = statement.query([longest])?;
    while let Some(row) = rows.next()? {
        let message = (row.get(0)?, row.get(1)?);
        for field in 0..FIELDS {
            if let ValueRef::Text(text) = row.get_ref(2 + field)?
                && text.len() > LONGEST_IN_ROW
            {
                insert(connection, message, cut(field, text))?;
            }
        }
    }
    connection.execute(
        "UPDATE messages SET
            long_bytes = (SELECT sum(octet_length(piece)) FROM message_pieces p
                          WHERE p.session = messages.session AND p.seq = messages.seq),
            json = CASE WHEN octet_length(json) > ?1 THEN '' ELSE json END,
            view = CASE WHEN octet_length(view) > ?1 THEN '' ELSE view END,
            full_text = CASE WHEN octet_length(full_text) > ?1 THEN '' ELSE full_text END,
            sources = CASE WHEN octet_length(sources) > ?1 THEN '' ELSE sources END
         WHERE (session, seq) IN (SELECT session, seq FROM message_pieces)",
        [longest],
    )?;
    Ok(())
}

/// The long texts of a message, by field.
pub(super) fn load(
    connection: &Connection,
    row: i64,
    seq: i64,
) -> Result<[Vec<u8>; FIELDS], StatementError> {
    let mut statement = connection.prepare_cached(
        "SELECT field, piece FROM message_pieces WHERE session = ?1 AND seq = ?2 ORDER BY field, part",
    )?;
    let mut texts: [Vec<u8>; FIELDS] = Default::default();
    let mut pieces = statement.query([row, seq])?;
    while let Some(piece) = pieces.next()? {
        let field = usize::try_from(piece.get::<_, i64>(0)?).unwrap_or(FIELDS);
        let bytes = piece.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        if let Some(text) = texts.get_mut(field) {
            text.extend_from_slice(bytes);
        }
    }
    Ok(texts)
}
