//! Walking the stored history and a request's messages in step.

use std::collections::HashSet;

use super::super::StoredMessage;
use super::result_id;
use super::same::{is_blank, same, shown_by};
use crate::openai::message::{Message, Role};

/// Where both lists stand: everything before is the same conversation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk<'a> {
    stored: &'a [StoredMessage],
    incoming: &'a [Message],
    /// How many stored messages were walked past.
    at: usize,
    /// How many of the request's messages were walked past.
    next: usize,
}

impl<'a> Walk<'a> {
    pub(super) fn new(stored: &'a [StoredMessage], incoming: &'a [Message]) -> Self {
        Self {
            stored,
            incoming,
            at: 0,
            next: 0,
        }
    }

    /// Walks past one unit of either list; `false` where they part or one of them ends.
    pub(super) fn step(&mut self) -> bool {
        let Some(incoming) = self.incoming.get(self.next) else {
            return false;
        };
        let ahead = self.unit_end().and_then(|end| self.past(end));
        let ahead = ahead.or_else(|| self.past_imported_rounds());
        if let Some(ahead) = ahead {
            *self = ahead;
            return true;
        }
        let blank = is_blank(incoming);
        self.next += usize::from(blank);
        blank
    }

    /// How many of the request's messages are part of the stored history.
    pub(super) fn matched(&self) -> usize {
        self.next
    }

    /// How many stored messages stay.
    ///
    /// Completed rounds of a response that broke off are work done: they stay when the request goes on behind the
    /// message that they answer, or is that message sent again. They go when it ends before what was stored after them.
    pub(super) fn keep(&self) -> usize {
        let end = self.unit_end();
        let here = end.and_then(|end| self.stored.get(end));
        let ends_response =
            |here: &StoredMessage| here.view.is_some() || here.message.role() == &Role::Assistant;
        let goes_on = self.next < self.incoming.len();
        match here {
            Some(here) if !goes_on || ends_response(here) => self.at,
            _ => end.unwrap_or(self.stored.len()),
        }
    }

    /// The next stored message that the client knows of: one of its own, or the end of a response.
    fn unit_end(&self) -> Option<usize> {
        let ahead = self.stored.get(self.at..)?;
        let hidden = ahead
            .iter()
            .position(|stored| !stored.hidden || stored.view.is_some())?;
        Some(self.at + hidden)
    }

    /// The walk behind this stored message, if the request goes on with it.
    fn past(&self, end: usize) -> Option<Self> {
        let (stored, incoming) = (self.stored.get(end)?, self.incoming.get(self.next..)?);
        let (stored_count, incoming_count) = match &stored.view {
            Some(view) => (1, shown_by(view, incoming)?),
            None if same(&stored.message, incoming.first()?) => (1, 1),
            None => self.same_results(end)?,
        };
        Some(Self {
            at: end + stored_count,
            next: self.next + incoming_count,
            ..*self
        })
    }

    /// How long a run of tool results is on both sides when it answers the same calls, in whatever order.
    fn same_results(&self, end: usize) -> Option<(usize, usize)> {
        let stored = self.stored.get(end..)?.iter();
        let ours: Vec<&str> = stored
            .take_while(|stored| !stored.hidden && stored.view.is_none())
            .map_while(|stored| result_id(&stored.message))
            .collect();
        let incoming = self.incoming.get(self.next..)?.iter();
        let theirs: Vec<&str> = incoming.map_while(result_id).collect();
        let sets = [&ours, &theirs].map(|ids| ids.iter().collect::<HashSet<_>>());
        let [ours_set, theirs_set] = sets;
        (!ours.is_empty() && ours_set == theirs_set).then_some((ours.len(), theirs.len()))
    }

    /// The walk behind the tool rounds of an imported history, which nothing marks as hidden, if the request goes on
    /// with what follows them.
    fn past_imported_rounds(&self) -> Option<Self> {
        let first = self.unit_end()?;
        let is_round = |stored: &StoredMessage| {
            stored.view.is_none()
                && (stored.hidden
                    || stored.message.role() == &Role::Tool
                    || !stored.message.tool_calls().is_empty())
        };
        let starts = |stored: &StoredMessage| {
            stored.view.is_none() && !stored.message.tool_calls().is_empty()
        };
        self.stored.get(first).filter(|stored| starts(stored))?;
        for (index, stored) in self.stored.iter().enumerate().skip(first + 1) {
            let shown = stored.view.is_some() || !stored.hidden;
            if shown
                && stored.message.role() != &Role::Tool
                && let Some(ahead) = self.past(index)
            {
                return Some(ahead);
            }
            if !is_round(stored) {
                break;
            }
        }
        None
    }
}
