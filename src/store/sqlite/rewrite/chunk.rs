//! The chunks in which new messages are written.

use std::borrow::Cow;

use rusqlite::Connection;

use super::super::super::StoreError;
use super::super::super::record::StoredMessage;
use super::super::connections::StatementError;
use super::super::messages::{EncodedMessage, EncodedTexts, append, append_part};
use super::super::pieces::Place;
use super::super::size::{CHUNK, Extent};
use super::super::write::count;
use super::{HiddenSession, Rewrite};

impl Rewrite {
    /// Encodes a chunk of the new messages.
    pub(super) fn encode(&self, from: i64) -> Result<Vec<EncodedTexts>, StoreError> {
        let mut extent = Extent::default();
        let mut chunk = Vec::new();
        for message in self.new_messages(from) {
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

    /// Appends a chunk of the new messages; returns the place after it among them, and the bytes of the messages that begin
    /// in it.
    pub(super) fn add(
        &self,
        connection: &Connection,
        draft: HiddenSession,
        from: Place,
        chunk: &[EncodedTexts],
    ) -> Result<(Place, i64), StatementError> {
        let messages = self.new_messages(from.message).iter().zip(chunk);
        let messages: Vec<_> = messages
            .map(|(stored, texts)| EncodedMessage {
                stored,
                texts: Cow::Borrowed(texts),
            })
            .collect();
        let bytes = messages.iter().map(EncodedMessage::bytes).sum();
        let stored = Place {
            message: draft.keep + from.message,
            ..from
        };
        if let [long] = &*messages
            && bytes > count(CHUNK.bytes)
        {
            let next = append_part(connection, draft.row, stored, long)?;
            let bytes = if from.pieces == 0 { bytes } else { 0 };
            let message = next.message - draft.keep;
            return Ok((Place { message, ..next }, bytes));
        }
        append(connection, draft.row, stored.message, &messages)?;
        Ok((Place::before(from.message + count(messages.len())), bytes))
    }

    /// The new messages from an index.
    fn new_messages(&self, from: i64) -> &[StoredMessage] {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        self.change.append.get(from..).unwrap_or_default()
    }
}
