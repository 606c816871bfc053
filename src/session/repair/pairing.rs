//! Which tool result answers which call, wherever it stands.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::ids::{CallIdStyle, fresh_call_id};
use crate::openai::message::{Message, Role};
use crate::openai::tool::ToolCall;

/// What becomes of every message.
#[derive(Debug)]
pub(super) struct Pairing {
    /// One for each message.
    pub(super) fates: Vec<Fate>,
    /// One for each message of [`Fate::Calls`], in order.
    pub(super) rounds: Vec<Round>,
}

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// An assistant message with calls; its results follow it.
    Calls,
    /// A tool result that is placed behind its call, or repeats one that is.
    Result,
    /// A tool result without a call.
    Orphan,
    /// Takes no part in tool calls.
    Plain,
}

/// The calls of one assistant message.
#[derive(Debug)]
pub(super) struct Round {
    /// The ids of the calls, as they are to be.
    pub(super) ids: Vec<String>,
    /// Where the result of each call stands, if there is one.
    pub(super) results: Vec<Option<usize>>,
    /// Positions of the calls that came without an id, from where the search for one goes on.
    nameless: VecDeque<usize>,
    /// The first call that may still be without a result.
    first_open: usize,
}

/// A result that names no call of the history, and the round that it stands behind.
#[derive(Debug)]
struct Unnamed {
    message: usize,
    round: Option<usize>,
    has_id: bool,
}

impl Pairing {
    pub(super) fn of(messages: &[Message]) -> Self {
        let mut pairing = Self {
            fates: Vec::with_capacity(messages.len()),
            rounds: Vec::new(),
        };
        let mut open = HashMap::new();
        let mut unnamed = Vec::new();
        let mut current = None;
        for (index, message) in messages.iter().enumerate() {
            let fate = match message.role() {
                Role::Assistant => {
                    current = None;
                    if message.tool_calls().is_empty() {
                        Fate::Plain
                    } else {
                        current = Some(pairing.rounds.len());
                        pairing.open_round(message.tool_calls(), &mut open);
                        Fate::Calls
                    }
                }
                Role::Tool => {
                    let id = message.tool_call_id().filter(|id| !id.is_empty());
                    match id.and_then(|id| open.get_mut(id)) {
                        Some(calls) => pairing.answer(calls, index),
                        None => unnamed.push(Unnamed {
                            message: index,
                            round: current,
                            has_id: id.is_some(),
                        }),
                    }
                    Fate::Result
                }
                Role::System | Role::Developer | Role::User | Role::Other(_) => Fate::Plain,
            };
            pairing.fates.push(fate);
        }
        // Results that name their call come first, so that none of the others takes its place.
        for result in unnamed {
            pairing.pair_in_order(&result);
        }
        pairing
    }

    /// Notes the calls of a message; a name that was used before means these calls from here on.
    fn open_round<'a>(
        &mut self,
        calls: &'a [ToolCall],
        open: &mut HashMap<&'a str, VecDeque<(usize, usize)>>,
    ) {
        let round = self.rounds.len();
        let mut seen = HashSet::with_capacity(calls.len());
        let mut nameless = VecDeque::new();
        let mut ids = Vec::with_capacity(calls.len());
        for (position, call) in calls.iter().enumerate() {
            let id = call.id.as_str();
            let first = seen.insert(id);
            if id.is_empty() {
                nameless.push_back(position);
            } else {
                let places = open.entry(id).or_default();
                if first {
                    places.clear();
                }
                places.push_back((round, position));
            }
            ids.push(if first && !id.is_empty() {
                id.to_owned()
            } else {
                fresh_call_id(CallIdStyle::Standard)
            });
        }
        self.rounds.push(Round {
            results: vec![None; ids.len()],
            ids,
            nameless,
            first_open: 0,
        });
    }

    /// Gives the result to the first of these calls that has none; without one it is a second result, which is dropped.
    fn answer(&mut self, calls: &mut VecDeque<(usize, usize)>, message: usize) {
        if let Some((round, position)) = calls.pop_front()
            && let Some(round) = self.rounds.get_mut(round)
            && let Some(result) = round.results.get_mut(position)
        {
            *result = Some(message);
        }
    }

    fn pair_in_order(&mut self, result: &Unnamed) {
        let round = result.round.and_then(|round| self.rounds.get_mut(round));
        let slot = round.and_then(|round| round.open_slot(result.has_id));
        if let Some(slot) = slot {
            *slot = Some(result.message);
        } else if let Some(fate) = self.fates.get_mut(result.message) {
            *fate = Fate::Orphan;
        }
    }
}

impl Round {
    /// The place of the next result that names no call here: any call takes one without an id, but one with an unknown
    /// id can only belong to a call that lost its own.
    fn open_slot(&mut self, has_id: bool) -> Option<&mut Option<usize>> {
        let position = if has_id {
            while self
                .nameless
                .front()
                .is_some_and(|position| matches!(self.results.get(*position), Some(Some(_))))
            {
                self.nameless.pop_front();
            }
            self.nameless.pop_front()?
        } else {
            while matches!(self.results.get(self.first_open), Some(Some(_))) {
                self.first_open += 1;
            }
            self.first_open
        };
        self.results.get_mut(position)
    }
}
