//! Merges a request's messages with the stored history.
//!
//! A client sends back what it received: one assistant message for a whole response, without the hidden tool rounds of
//! that response. Both lists are aligned message by message. Hidden rounds before the first difference are kept; stored
//! messages after it are dropped. The functions are pure.

mod align;
mod compare;

use std::collections::HashSet;

use self::align::Alignment;
use self::compare::{ComparedMessage, is_same};
use super::{SessionMode, StoredMessage, StoredSession};
use protocol::openai::message::{Message, Role};

/// How a request continues a stored conversation.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct MergePlan {
    /// The new leading instructions; `None` leaves the stored ones.
    pub(crate) instructions: Option<Vec<Message>>,
    /// How many of the stored messages are kept, counted from the first.
    pub(crate) keep: usize,
    /// The request's messages that are appended to them.
    pub(crate) new: Vec<Message>,
}

/// Determines how many stored messages are kept and which messages of the request are appended.
///
/// The leading instructions of the request are not part of the comparison. If a request is repeated after its turn was
/// interrupted, nothing is appended and the completed rounds are kept.
pub(crate) fn plan(
    stored: &StoredSession,
    mut incoming: Vec<Message>,
    mode: SessionMode,
) -> MergePlan {
    let leading = incoming
        .iter()
        .take_while(|message| message.is_instruction())
        .count();
    if mode == SessionMode::Continue {
        return continued(stored, incoming, leading);
    }
    let rest = incoming.split_off(leading);
    let instructions =
        (!incoming.is_empty() && incoming != stored.instructions).then_some(incoming);
    let appends = match mode {
        SessionMode::Append | SessionMode::Continue => true,
        SessionMode::Replay => false,
        SessionMode::Auto => {
            !stored.messages.is_empty() && !rest.iter().any(|one| one.role() == &Role::Assistant)
        }
    };
    let (keep, new) = if appends {
        append(&stored.messages, rest)
    } else {
        replay(&stored.messages, rest)
    };
    MergePlan {
        instructions,
        keep,
        new,
    }
}

/// Appends all of the request's messages. The first `leading` of them are instructions; at the beginning of a
/// conversation they become a part of its instructions.
fn continued(stored: &StoredSession, mut incoming: Vec<Message>, leading: usize) -> MergePlan {
    let first = incoming.get(..leading).unwrap_or_default();
    let rest = incoming.get(leading..).unwrap_or_default();
    // The retry of the first request of a conversation.
    let is_known = stored.instructions.ends_with(first) && is_repeated(&stored.messages, rest);
    if stored.messages.is_empty() || is_known {
        let rest = incoming.split_off(leading);
        let instructions = (!is_known && leading > 0).then(|| {
            stored
                .instructions
                .iter()
                .cloned()
                .chain(incoming)
                .collect()
        });
        let (keep, new) = append(&stored.messages, rest);
        return MergePlan {
            instructions,
            keep,
            new,
        };
    }
    let (keep, new) = append(&stored.messages, incoming);
    MergePlan {
        instructions: None,
        keep,
        new,
    }
}

/// The whole conversation after the merge: instructions, kept messages, appended messages.
pub(crate) fn history(stored: &StoredSession, plan: &MergePlan) -> Vec<Message> {
    let instructions = plan.instructions.as_ref().unwrap_or(&stored.instructions);
    let kept = stored.messages.iter().take(plan.keep);
    instructions
        .iter()
        .chain(kept.map(|stored| &stored.message))
        .chain(&plan.new)
        .cloned()
        .collect()
}

fn replay(stored: &[StoredMessage], mut rest: Vec<Message>) -> (usize, Vec<Message>) {
    let mut alignment = Alignment::new(stored, &rest);
    while alignment.step() {}
    let (keep, matched) = (alignment.keep(), alignment.matched());
    (keep, rest.split_off(matched))
}

fn append(stored: &[StoredMessage], rest: Vec<Message>) -> (usize, Vec<Message>) {
    if is_repeated(stored, &rest) {
        return (stored.len(), Vec::new());
    }
    let mut answered = answered_calls(stored);
    let mut repeated = HashSet::new();
    let mut new = Vec::with_capacity(rest.len());
    for message in rest {
        for call in message.tool_calls() {
            answered.remove(&call.id);
        }
        match result_id(&message) {
            Some(id) if !answered.insert(id.to_owned()) => {
                repeated.insert(id.to_owned());
            }
            _ => new.push(message),
        }
    }
    let keep = if new.is_empty() && !repeated.is_empty() {
        before_response_to(stored, &repeated)
    } else {
        stored.len()
    };
    (keep, new)
}

/// Whether a request only repeats one whose turn has no response yet and is stored at the end of a history.
pub(crate) fn repeats(stored: &[StoredMessage], incoming: &[Message]) -> bool {
    let leading = incoming
        .iter()
        .take_while(|message| message.is_instruction());
    let rest = incoming.get(leading.count()..).unwrap_or_default();
    is_repeated(stored, rest)
}

/// Whether the request repeats messages that are stored at the end of a history and have no response yet.
fn is_repeated(stored: &[StoredMessage], rest: &[Message]) -> bool {
    let mut unanswered = stored
        .iter()
        .rev()
        .take_while(|stored| stored.view.is_none())
        .filter(|stored| !stored.hidden);
    !rest.is_empty()
        && rest.iter().rev().all(|message| {
            unanswered.next().is_some_and(|stored| {
                is_same(
                    &ComparedMessage::new(&stored.message),
                    &ComparedMessage::new(message),
                )
            })
        })
}

/// The ids of calls that have a result after their last use. Some servers reuse call ids in every response.
fn answered_calls(stored: &[StoredMessage]) -> HashSet<String> {
    let mut answered = HashSet::new();
    for StoredMessage { message, .. } in stored {
        for call in message.tool_calls() {
            answered.remove(&call.id);
        }
        if let Some(id) = result_id(message) {
            answered.insert(id.to_owned());
        }
    }
    answered
}

/// How many stored messages are kept when a request only repeats tool results: all messages before the last response if
/// that response answers one of these results, else all messages. The client asks for the response again, and the
/// history for the model must not end with that response.
fn before_response_to(stored: &[StoredMessage], repeated: &HashSet<String>) -> usize {
    let Some((_, before)) = stored.split_last().filter(|(last, _)| last.view.is_some()) else {
        return stored.len();
    };
    let rounds = before
        .iter()
        .rev()
        .take_while(|stored| stored.hidden && stored.view.is_none())
        .count();
    let start = before.len() - rounds;
    let asked_by_these = start
        .checked_sub(1)
        .and_then(|index| stored.get(index))
        .and_then(|stored| result_id(&stored.message))
        .is_some_and(|id| repeated.contains(id));
    if asked_by_these { start } else { stored.len() }
}

/// The call id of a tool message, if it has one.
fn result_id(message: &Message) -> Option<&str> {
    message
        .tool_call_id()
        .filter(|id| message.role() == &Role::Tool && !id.is_empty())
}

#[cfg(test)]
mod large;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
