//! Which tool result answers which call, wherever it stands.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::ids::{CallIdStyle, fresh_call_id};
use crate::openai::message::{Message, Role};
use crate::openai::tool::ToolCall;

/// How the messages of a history relate to its calls.
#[derive(Debug)]
pub(super) struct Pairing {
    /// One for each message.
    pub(super) kinds: Vec<MessageKind>,
    /// One for each message of [`MessageKind::Calls`], in order.
    pub(super) groups: Vec<CallGroup>,
}

/// How a message relates to tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageKind {
    /// An assistant message with calls; its results follow it.
    Calls,
    /// A tool result that follows its call, or a repetition of one.
    Result,
    /// A tool result without a call.
    Orphan,
    /// Neither calls nor a result.
    Plain,
}

/// The calls of one assistant message.
#[derive(Debug)]
pub(super) struct CallGroup {
    /// The ids of the calls in the repaired message.
    pub(super) ids: Vec<String>,
    /// The index of the result of each call, if there is one.
    pub(super) results: Vec<Option<usize>>,
    /// Positions of the calls without an id that have no result yet.
    nameless: VecDeque<usize>,
    /// The first call that may still be without a result.
    first_open: usize,
}

/// A result that names no call of the history, and the group that it follows.
#[derive(Debug)]
struct Unnamed {
    message: usize,
    group: Option<usize>,
    has_id: bool,
}

impl Pairing {
    pub(super) fn of(messages: &[Message]) -> Self {
        let mut pairing = Self {
            kinds: Vec::with_capacity(messages.len()),
            groups: Vec::new(),
        };
        let mut open = HashMap::new();
        let mut unnamed = Vec::new();
        let mut current = None;
        for (index, message) in messages.iter().enumerate() {
            let kind = match message.role() {
                Role::Assistant => {
                    current = None;
                    if message.tool_calls().is_empty() {
                        MessageKind::Plain
                    } else {
                        current = Some(pairing.groups.len());
                        pairing.open_group(message.tool_calls(), &mut open);
                        MessageKind::Calls
                    }
                }
                Role::Tool => {
                    let id = message.tool_call_id().filter(|id| !id.is_empty());
                    match id.and_then(|id| open.get_mut(id)) {
                        Some(calls) => pairing.answer(calls, index),
                        None => unnamed.push(Unnamed {
                            message: index,
                            group: current,
                            has_id: id.is_some(),
                        }),
                    }
                    MessageKind::Result
                }
                Role::System | Role::Developer | Role::User | Role::Other(_) => MessageKind::Plain,
            };
            pairing.kinds.push(kind);
        }
        // Results that name their call come first, so that none of the others takes its place.
        for result in unnamed {
            pairing.pair_in_order(&result);
        }
        pairing
    }

    /// Notes the calls of a message; a name that was used before means these calls from here on.
    fn open_group<'a>(
        &mut self,
        calls: &'a [ToolCall],
        open: &mut HashMap<&'a str, VecDeque<(usize, usize)>>,
    ) {
        let group = self.groups.len();
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
                places.push_back((group, position));
            }
            ids.push(if first && !id.is_empty() {
                id.to_owned()
            } else {
                fresh_call_id(CallIdStyle::Standard)
            });
        }
        self.groups.push(CallGroup {
            results: vec![None; ids.len()],
            ids,
            nameless,
            first_open: 0,
        });
    }

    /// Gives the result to the first of these calls that has none; without one it is a second result, which is dropped.
    fn answer(&mut self, calls: &mut VecDeque<(usize, usize)>, message: usize) {
        if let Some((group, position)) = calls.pop_front()
            && let Some(group) = self.groups.get_mut(group)
            && let Some(result) = group.results.get_mut(position)
        {
            *result = Some(message);
        }
    }

    fn pair_in_order(&mut self, result: &Unnamed) {
        let group = result.group.and_then(|group| self.groups.get_mut(group));
        let slot = group.and_then(|group| group.open_slot(result.has_id));
        if let Some(slot) = slot {
            *slot = Some(result.message);
        } else if let Some(kind) = self.kinds.get_mut(result.message) {
            *kind = MessageKind::Orphan;
        }
    }
}

impl CallGroup {
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
