//! The chunks in which new instructions and messages are written.

use std::borrow::Cow;

use rusqlite::Connection;

use super::super::super::StoreError;
use super::super::super::record::StoredMessage;
use super::super::connections::StatementError;
use super::super::instructions::INSTRUCTIONS_START;
use super::super::messages::{EncodedMessage, EncodedTexts, append, append_part};
use super::super::pieces::Place;
use super::super::size::{CHUNK, Extent};
use super::super::write::count;
use super::{HiddenSession, Rewrite};

/// A part of what is written in chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NewRows {
    Instructions,
    Messages,
}

impl NewRows {
    /// The index of the first row in the session.
    pub(super) fn first(self, draft: HiddenSession) -> i64 {
        match self {
            Self::Instructions => INSTRUCTIONS_START,
            Self::Messages => draft.keep,
        }
    }
}

impl Rewrite {
    pub(super) fn new_rows(&self, part: NewRows) -> &[StoredMessage] {
        match part {
            NewRows::Instructions => &self.instructions,
            NewRows::Messages => &self.change.append,
        }
    }

    /// Encodes a chunk of the new rows.
    pub(super) fn encode(&self, part: NewRows, from: i64) -> Result<Vec<EncodedTexts>, StoreError> {
        let mut extent = Extent::default();
        let mut chunk = Vec::new();
        for message in self.new_rows_from(part, from) {
            let texts = EncodedTexts::of(message)?;
            let encoded = EncodedMessage {
                stored: message,
                texts: Cow::Borrowed(&texts),
            };
            extent = extent.plus(Extent::of_row(encoded.bytes()));
            if !chunk.is_empty() && !extent.fits(CHUNK) {
                break;
            }
            chunk.push(texts);
        }
        Ok(chunk)
    }

    /// A chunk of the new rows with its encoded texts.
    pub(super) fn chunk<'a>(
        &'a self,
        part: NewRows,
        from: i64,
        texts: &'a [EncodedTexts],
    ) -> Vec<EncodedMessage<'a>> {
        let messages = self.new_rows_from(part, from).iter().zip(texts);
        let encoded = messages.map(|(stored, texts)| EncodedMessage {
            stored,
            texts: Cow::Borrowed(texts),
        });
        encoded.collect()
    }

    /// The new rows from an index among them.
    fn new_rows_from(&self, part: NewRows, from: i64) -> &[StoredMessage] {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        self.new_rows(part).get(from..).unwrap_or_default()
    }
}

/// Appends a chunk at a place; returns the place after it, and the bytes of the messages that begin in it.
pub(super) fn add(
    connection: &Connection,
    row: i64,
    from: Place,
    chunk: &[EncodedMessage<'_>],
) -> Result<(Place, i64), StatementError> {
    let bytes = chunk.iter().map(EncodedMessage::bytes).sum();
    if let [long] = chunk
        && bytes > count(CHUNK.bytes)
    {
        let next = append_part(connection, row, from, long)?;
        return Ok((next, if from.pieces == 0 { bytes } else { 0 }));
    }
    append(connection, row, from.message, chunk)?;
    Ok((Place::before(from.message + count(chunk.len())), bytes))
}
