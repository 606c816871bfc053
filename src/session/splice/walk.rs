//! Walking the stored history and a request's messages in step.
//!
//! The walk takes time in proportion to the length of both lists, whatever they hold: each step moves on in one of
//! them, compares the next messages with at most two stored ones, and looks at a run of stored messages again only if
//! it goes past it or is the last step.

use std::collections::HashSet;

use super::super::StoredMessage;
use super::result_id;
use super::same::{Compared, Shown, same};
use crate::openai::message::{Message, Role};

/// The two lists, and where the walk stands in them.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    stored: &'a [StoredMessage],
    units: Vec<Unit<'a>>,
    incoming: Vec<Compared<'a>>,
    place: Place,
    /// The next stored message that the client knows of: one of its own, or the end of a response. The length of the
    /// list where there is none.
    unit_end: usize,
    /// Where the last run of rounds that was looked at ends; of use while it is ahead.
    rounds_end: usize,
}

/// Where both lists stand: everything before is the same conversation.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// How many stored messages were walked past.
    at: usize,
    /// How many of the request's messages were walked past.
    next: usize,
}

/// What a stored message is compared by.
#[derive(Debug)]
enum Unit<'a> {
    Message(Compared<'a>),
    Response(Shown<'a>),
}

impl<'a> Walk<'a> {
    pub(super) fn new(stored: &'a [StoredMessage], incoming: &'a [Message]) -> Self {
        Self {
            stored,
            units: stored.iter().map(Unit::of).collect(),
            incoming: incoming.iter().map(Compared::new).collect(),
            place: Place { at: 0, next: 0 },
            unit_end: first_from(stored, 0, is_shown),
            rounds_end: 0,
        }
    }

    /// Walks past one unit of either list; `false` where they differ or one of them ends.
    pub(super) fn step(&mut self) -> bool {
        let ahead = self
            .past(self.unit_end)
            .or_else(|| self.past_imported_rounds())
            .or_else(|| self.past_blank());
        let Some(ahead) = ahead else {
            return false;
        };
        self.place = ahead;
        if self.unit_end < ahead.at {
            self.unit_end = first_from(self.stored, ahead.at, is_shown);
        }
        true
    }

    /// How many of the request's messages are part of the stored history.
    pub(super) fn matched(&self) -> usize {
        self.place.next
    }

    /// How many stored messages stay.
    ///
    /// Completed rounds of a response that broke off stay when the request continues after the message that they
    /// answer, or sends that message again. They are dropped when the request ends before what was stored after them.
    pub(super) fn keep(&self) -> usize {
        let ends_response =
            |here: &StoredMessage| here.view.is_some() || here.message.role() == &Role::Assistant;
        let goes_on = self.place.next < self.incoming.len();
        match self.stored.get(self.unit_end) {
            Some(here) if !goes_on || ends_response(here) => self.place.at,
            _ => self.unit_end,
        }
    }

    /// The walk behind this stored message, if the request goes on with it.
    fn past(&self, end: usize) -> Option<Place> {
        let incoming = self.incoming.get(self.place.next..)?;
        let (stored_count, incoming_count) = match self.units.get(end)? {
            Unit::Response(shown) => (1, shown.by(incoming)?),
            Unit::Message(stored) if same(stored, incoming.first()?) => (1, 1),
            Unit::Message(_) => self.same_results(end)?,
        };
        Some(Place {
            at: end + stored_count,
            next: self.place.next + incoming_count,
        })
    }

    /// How long a run of tool results is on both sides when it answers the same calls, in whatever order.
    fn same_results(&self, end: usize) -> Option<(usize, usize)> {
        let incoming = self.incoming.get(self.place.next..)?;
        // The runs are read only where both have begun: without a match the walk ends there.
        result_id(incoming.first()?.message())?;
        let stored = self.stored.get(end..)?.iter();
        let ours: Vec<&str> = stored
            .take_while(|stored| !stored.hidden && stored.view.is_none())
            .map_while(|stored| result_id(&stored.message))
            .collect();
        if ours.is_empty() {
            return None;
        }
        let theirs: Vec<&str> = incoming
            .iter()
            .map_while(|incoming| result_id(incoming.message()))
            .collect();
        let sets = [&ours, &theirs].map(|ids| ids.iter().collect::<HashSet<_>>());
        let [ours_set, theirs_set] = sets;
        (ours_set == theirs_set).then_some((ours.len(), theirs.len()))
    }

    /// The walk behind the tool rounds of an imported history, which nothing marks as hidden, if the request goes on
    /// with what follows them.
    fn past_imported_rounds(&mut self) -> Option<Place> {
        let first = self.unit_end;
        let incoming = self.incoming.get(self.place.next)?.message();
        self.stored.get(first).filter(|stored| {
            stored.view.is_none()
                && stored.message.role() != &Role::Tool
                && !stored.message.tool_calls().is_empty()
        })?;
        if self.rounds_end <= first {
            self.rounds_end = first_from(self.stored, first + 1, |stored| !is_round(stored));
        }
        // Within the rounds only calls are shown, which take a message with calls to match.
        let from = if incoming.tool_calls().is_empty() {
            self.rounds_end
        } else {
            first + 1
        };
        let candidates = self.stored.iter().enumerate().skip(from);
        candidates
            .take((self.rounds_end + 1).saturating_sub(from))
            .filter(|(_, stored)| is_shown(stored) && stored.message.role() != &Role::Tool)
            .find_map(|(index, _)| self.past(index))
    }

    /// The walk behind a message of the request that says nothing and shows nothing that is stored.
    fn past_blank(&self) -> Option<Place> {
        let incoming = self.incoming.get(self.place.next)?;
        incoming.is_blank().then_some(Place {
            next: self.place.next + 1,
            ..self.place
        })
    }
}

impl<'a> Unit<'a> {
    fn of(stored: &'a StoredMessage) -> Self {
        match &stored.view {
            Some(view) => Self::Response(Shown::new(view)),
            None => Self::Message(Compared::new(&stored.message)),
        }
    }
}

/// Whether the client knows of the message.
fn is_shown(stored: &StoredMessage) -> bool {
    !stored.hidden || stored.view.is_some()
}

/// Whether the message can be part of a tool round that a client leaves out.
fn is_round(stored: &StoredMessage) -> bool {
    stored.view.is_none()
        && (stored.hidden
            || stored.message.role() == &Role::Tool
            || !stored.message.tool_calls().is_empty())
}

/// The first index from here on for which the test holds, or the length of the list.
fn first_from(
    stored: &[StoredMessage],
    from: usize,
    test: impl Fn(&StoredMessage) -> bool,
) -> usize {
    let ahead = stored.iter().skip(from).position(test);
    ahead.map_or(stored.len(), |ahead| from + ahead)
}
