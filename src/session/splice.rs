//! Joining a request's messages to the stored history.
//!
//! A client sends back what it saw: one assistant message for a whole response, without the rounds that lie hidden in
//! it. Both lists are compared step by step. The hidden rounds stay in place; from the first difference on, the stored
//! messages are dropped. The functions are pure.

mod same;
mod walk;

use std::collections::HashSet;

use self::same::{Compared, same};
use self::walk::Walk;
use super::{SessionMode, StoredMessage, StoredSession};
use crate::openai::message::{Message, Role};

/// How a request continues a stored conversation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Joined {
    /// The new leading instructions; `None` leaves the stored ones.
    pub instructions: Option<Vec<Message>>,
    /// How many stored messages stay.
    pub keep: usize,
    /// The request's messages that follow them.
    pub new: Vec<Message>,
}

/// Finds out how much of the stored history a request continues, and what it adds.
///
/// The leading instructions of the request are split off and not compared. A request that is sent again after its turn
/// broke off adds nothing and keeps the completed rounds.
pub fn join(stored: &StoredSession, mut incoming: Vec<Message>, mode: SessionMode) -> Joined {
    let leading = incoming
        .iter()
        .take_while(|message| message.is_instruction())
        .count();
    let rest = incoming.split_off(leading);
    let instructions =
        (!incoming.is_empty() && incoming != stored.instructions).then_some(incoming);
    let appends = match mode {
        SessionMode::Append => true,
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
    Joined {
        instructions,
        keep,
        new,
    }
}

/// The whole conversation after a join, as the model is to see it.
pub fn history(stored: &StoredSession, joined: &Joined) -> Vec<Message> {
    let instructions = joined.instructions.as_ref().unwrap_or(&stored.instructions);
    let kept = stored.messages.iter().take(joined.keep);
    instructions
        .iter()
        .chain(kept.map(|stored| &stored.message))
        .chain(&joined.new)
        .cloned()
        .collect()
}

fn replay(stored: &[StoredMessage], mut rest: Vec<Message>) -> (usize, Vec<Message>) {
    let mut walk = Walk::new(stored, &rest);
    while walk.step() {}
    let (keep, matched) = (walk.keep(), walk.matched());
    (keep, rest.split_off(matched))
}

fn append(stored: &[StoredMessage], rest: Vec<Message>) -> (usize, Vec<Message>) {
    if is_sent_again(stored, &rest) {
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

/// Whether the messages are already at the end of a history whose turn got no answer, so that the request is a repetition.
fn is_sent_again(stored: &[StoredMessage], rest: &[Message]) -> bool {
    let mut unanswered = stored
        .iter()
        .rev()
        .take_while(|stored| stored.view.is_none())
        .filter(|stored| !stored.hidden);
    !rest.is_empty()
        && rest.iter().rev().all(|message| {
            unanswered.next().is_some_and(|stored| {
                same(&Compared::new(&stored.message), &Compared::new(message))
            })
        })
}

/// The calls that have a result after their last use (some servers number calls anew in every answer).
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

/// What stays when a request only repeats tool results: everything except a last response to exactly these results.
/// The client asks for that response again, and the model must not be called with its own answer at the end.
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

/// The call that a tool message answers, where it names one.
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
