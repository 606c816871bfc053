//! Assigns tool results to calls, wherever the results are in the history.

use std::collections::{HashMap, HashSet, VecDeque};

use protocol::ids::{CallIdStyle, fresh_call_id};
use protocol::openai::message::{Message, Role};
use protocol::openai::tool::ToolCall;

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
    /// An assistant message with calls.
    Calls,
    /// A tool result after its call, or a further result of the same call.
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
    without_id: VecDeque<usize>,
    /// The first call that may still be without a result.
    first_pending: usize,
}

/// A result whose id, if any, belongs to no earlier call; `group` is the last group before it.
#[derive(Debug)]
struct UnmatchedResult {
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
        let mut unmatched = Vec::new();
        let mut current = None;
        for (index, message) in messages.iter().enumerate() {
            let kind = match message.role() {
                Role::Assistant => {
                    current = None;
                    if message.tool_calls().is_empty() {
                        MessageKind::Plain
                    } else {
                        current = Some(pairing.groups.len());
                        pairing.add_group(message.tool_calls(), &mut open);
                        MessageKind::Calls
                    }
                }
                Role::Tool => {
                    let id = message.tool_call_id().filter(|id| !id.is_empty());
                    match id.and_then(|id| open.get_mut(id)) {
                        Some(calls) => pairing.assign_result(calls, index),
                        None => unmatched.push(UnmatchedResult {
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
        // Results with a known id are assigned first, so that no other result takes their call.
        for result in unmatched {
            pairing.pair_by_order(&result);
        }
        pairing
    }

    /// Adds the calls of a message. An id that was used before refers to the new call from here on.
    fn add_group<'a>(
        &mut self,
        calls: &'a [ToolCall],
        open: &mut HashMap<&'a str, VecDeque<(usize, usize)>>,
    ) {
        let group = self.groups.len();
        let mut seen = HashSet::with_capacity(calls.len());
        let mut without_id = VecDeque::new();
        let mut ids = Vec::with_capacity(calls.len());
        for (position, call) in calls.iter().enumerate() {
            let id = call.id.as_str();
            let first = seen.insert(id);
            if id.is_empty() {
                without_id.push_back(position);
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
            without_id,
            first_pending: 0,
        });
    }

    /// Assigns the result to the first of these calls without a result. If there is none, drops the result.
    fn assign_result(&mut self, calls: &mut VecDeque<(usize, usize)>, message: usize) {
        if let Some((group, position)) = calls.pop_front()
            && let Some(group) = self.groups.get_mut(group)
            && let Some(result) = group.results.get_mut(position)
        {
            *result = Some(message);
        }
    }

    fn pair_by_order(&mut self, result: &UnmatchedResult) {
        let group = result.group.and_then(|group| self.groups.get_mut(group));
        let slot = group.and_then(|group| group.next_pending(result.has_id));
        if let Some(slot) = slot {
            *slot = Some(result.message);
        } else if let Some(kind) = self.kinds.get_mut(result.message) {
            *kind = MessageKind::Orphan;
        }
    }
}

impl CallGroup {
    /// The slot for the next unmatched result. A result without an id is assigned to the first call without a result; a
    /// result with an unknown id only to a call without an id.
    fn next_pending(&mut self, has_id: bool) -> Option<&mut Option<usize>> {
        let position = if has_id {
            while self
                .without_id
                .front()
                .is_some_and(|position| matches!(self.results.get(*position), Some(Some(_))))
            {
                self.without_id.pop_front();
            }
            self.without_id.pop_front()?
        } else {
            while matches!(self.results.get(self.first_pending), Some(Some(_))) {
                self.first_pending += 1;
            }
            self.first_pending
        };
        self.results.get_mut(position)
    }
}
