//! Aligns a request's messages with the stored history.
//!
//! The running time is linear in the length of both lists. Each step advances in at least one list and compares the
//! next messages with at most two stored ones. A sequence of stored messages is scanned again only by a step that
//! advances past it, or by the last step.

use std::collections::HashSet;

use super::super::StoredMessage;
use super::compare::{ComparedMessage, ComparedResponse, is_same};
use super::result_id;
use protocol::openai::message::{Message, Role};

/// Both lists and the current position in them.
#[derive(Debug)]
pub(super) struct Alignment<'a> {
    stored: &'a [StoredMessage],
    units: Vec<ComparedStored<'a>>,
    incoming: Vec<ComparedMessage<'a>>,
    position: Position,
    /// The index of the next stored message that the client knows: a visible message or the end of a response. The
    /// length of the list if there is none.
    next_known: usize,
    /// The end of the last sequence of rounds that was scanned; valid while it is greater than `next_known`.
    rounds_end: usize,
}

/// A position in both lists. The messages before it are the same conversation.
#[derive(Debug, Clone, Copy)]
struct Position {
    /// Number of stored messages before the position.
    stored: usize,
    /// Number of the request's messages before the position.
    incoming: usize,
}

/// A stored message with its comparison keys.
#[derive(Debug)]
enum ComparedStored<'a> {
    Message(ComparedMessage<'a>),
    Response(ComparedResponse<'a>),
}

impl<'a> Alignment<'a> {
    pub(super) fn new(stored: &'a [StoredMessage], incoming: &'a [Message]) -> Self {
        Self {
            stored,
            units: stored.iter().map(ComparedStored::of).collect(),
            incoming: incoming.iter().map(ComparedMessage::new).collect(),
            position: Position {
                stored: 0,
                incoming: 0,
            },
            next_known: index_from(stored, 0, is_known_to_client),
            rounds_end: 0,
        }
    }

    /// Advances by one unit; `false` if the lists differ here or one of them ends.
    pub(super) fn step(&mut self) -> bool {
        let next = self
            .match_stored(self.next_known)
            .or_else(|| self.match_after_imported_rounds())
            .or_else(|| self.skip_blank());
        let Some(next) = next else {
            return false;
        };
        self.position = next;
        if self.next_known < next.stored {
            self.next_known = index_from(self.stored, next.stored, is_known_to_client);
        }
        true
    }

    /// How many of the request's messages are in the stored history.
    pub(super) fn matched(&self) -> usize {
        self.position.incoming
    }

    /// How many stored messages are kept.
    ///
    /// Completed rounds of an interrupted response are kept when the request continues after the message that they
    /// answer, or repeats that message. They are dropped when the request ends there but visible messages follow them
    /// in the store.
    pub(super) fn keep(&self) -> usize {
        let ends_response =
            |here: &StoredMessage| here.view.is_some() || here.message.role() == &Role::Assistant;
        let continues = self.position.incoming < self.incoming.len();
        match self.stored.get(self.next_known) {
            Some(here) if !continues || ends_response(here) => self.position.stored,
            _ => self.next_known,
        }
    }

    /// The position after the stored message at this index, if the request's next messages match it.
    fn match_stored(&self, index: usize) -> Option<Position> {
        let incoming = self.incoming.get(self.position.incoming..)?;
        let (stored_count, incoming_count) = match self.units.get(index)? {
            ComparedStored::Response(response) => (1, response.matched_by(incoming)?),
            ComparedStored::Message(stored) if is_same(stored, incoming.first()?) => (1, 1),
            ComparedStored::Message(_) => self.match_results(index)?,
        };
        Some(Position {
            stored: index + stored_count,
            incoming: self.position.incoming + incoming_count,
        })
    }

    /// The lengths of the sequences of tool results in both lists, if both answer the same calls in any order.
    fn match_results(&self, index: usize) -> Option<(usize, usize)> {
        let incoming = self.incoming.get(self.position.incoming..)?;
        // Both sequences are read only if both lists have results here. Without a match the alignment ends.
        result_id(incoming.first()?.message())?;
        let stored = self.stored.get(index..)?.iter();
        let stored_ids: Vec<&str> = stored
            .take_while(|stored| !stored.hidden && stored.view.is_none())
            .map_while(|stored| result_id(&stored.message))
            .collect();
        if stored_ids.is_empty() {
            return None;
        }
        let incoming_ids: Vec<&str> = incoming
            .iter()
            .map_while(|incoming| result_id(incoming.message()))
            .collect();
        let sets = [&stored_ids, &incoming_ids].map(|ids| ids.iter().collect::<HashSet<_>>());
        let [stored_set, incoming_set] = sets;
        (stored_set == incoming_set).then_some((stored_ids.len(), incoming_ids.len()))
    }

    /// The position after the tool rounds of an imported history, if the request's next messages match what follows
    /// them. Rounds of an imported history are not marked as hidden.
    fn match_after_imported_rounds(&mut self) -> Option<Position> {
        let first = self.next_known;
        let incoming = self.incoming.get(self.position.incoming)?.message();
        self.stored.get(first).filter(|stored| {
            stored.view.is_none()
                && stored.message.role() != &Role::Tool
                && !stored.message.tool_calls().is_empty()
        })?;
        if self.rounds_end <= first {
            self.rounds_end =
                index_from(self.stored, first + 1, |stored| !is_round_message(stored));
        }
        // Within the rounds only messages with calls can match, and only if the request's message has calls.
        let from = if incoming.tool_calls().is_empty() {
            self.rounds_end
        } else {
            first + 1
        };
        let candidates = self.stored.iter().enumerate().skip(from);
        candidates
            .take((self.rounds_end + 1).saturating_sub(from))
            .filter(|(_, stored)| {
                is_known_to_client(stored) && stored.message.role() != &Role::Tool
            })
            .find_map(|(index, _)| self.match_stored(index))
    }

    /// The position after an empty message of the request, which is skipped.
    fn skip_blank(&self) -> Option<Position> {
        let incoming = self.incoming.get(self.position.incoming)?;
        incoming.is_blank().then_some(Position {
            incoming: self.position.incoming + 1,
            ..self.position
        })
    }
}

impl<'a> ComparedStored<'a> {
    fn of(stored: &'a StoredMessage) -> Self {
        match &stored.view {
            Some(view) => Self::Response(ComparedResponse::new(view)),
            None => Self::Message(ComparedMessage::new(&stored.message)),
        }
    }
}

/// Whether the client knows the message: it is visible or ends a response.
fn is_known_to_client(stored: &StoredMessage) -> bool {
    !stored.hidden || stored.view.is_some()
}

/// Whether the message can be part of a tool round that a client omits.
fn is_round_message(stored: &StoredMessage) -> bool {
    stored.view.is_none()
        && (stored.hidden
            || stored.message.role() == &Role::Tool
            || !stored.message.tool_calls().is_empty())
}

/// The first index at or after `from` for which the test is true, or the length of the list.
fn index_from(
    stored: &[StoredMessage],
    from: usize,
    test: impl Fn(&StoredMessage) -> bool,
) -> usize {
    let next = stored.iter().skip(from).position(test);
    next.map_or(stored.len(), |next| from + next)
}
