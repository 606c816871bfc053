//! What goes into the history: messages in the form that an upstream takes, and the text that the client was given.

use std::collections::VecDeque;

use super::event::AgentEvent;
use crate::openai::message::{AssistantParts, FieldChange, Message, Role};
use crate::openai::tool::ToolCall;
use crate::upstream::assemble::Turn;
use crate::upstream::settings::Quirks;

/// Fields in which servers send and take reasoning.
const REASONING_FIELDS: [&str; 4] = [
    "reasoning_content",
    "reasoning",
    "reasoning_text",
    "thinking",
];
/// What stands between the texts of two rounds.
const BETWEEN_ROUNDS: &str = "\n\n";

/// The assistant message of one round.
pub(super) fn assistant(turn: &Turn, calls: &[ToolCall], quirks: &Quirks) -> Message {
    let reasoning = turn.reasoning.as_ref().filter(|_| quirks.send_reasoning);
    Message::assistant(&AssistantParts {
        text: &turn.text,
        reasoning: reasoning.map(|(text, field)| (*field, text.as_str())),
        tool_calls: calls,
        extra: &turn.extra,
    })
}

/// An assistant message with a text that loopwright chose.
pub(super) fn said(text: &str) -> Message {
    Message::text(Role::Assistant, text)
}

/// The history without what the upstream does not take.
pub(super) fn for_upstream(history: Vec<Message>, quirks: &Quirks) -> Vec<Message> {
    if quirks.send_reasoning {
        return history;
    }
    let strip = |message: Message| {
        if *message.role() != Role::Assistant {
            return message;
        }
        message.with_fields(|key| match REASONING_FIELDS.contains(&key) {
            true => FieldChange::Drop,
            false => FieldChange::Keep,
        })
    };
    history.into_iter().map(strip).collect()
}

/// The text that the client was given so far, and where a blank line goes between two rounds.
#[derive(Debug, Default)]
pub(super) struct Spoken {
    /// Something was passed on in an earlier round.
    earlier: bool,
    /// Something was passed on in this round.
    now: bool,
    /// All rounds' text, joined, whatever was passed on.
    joined: String,
    last_round: String,
}

impl Spoken {
    /// A new round begins.
    pub(super) fn begin_round(&mut self) {
        self.earlier |= self.now;
        self.now = false;
        self.last_round.clear();
    }

    /// The event to send now for a text that arrives; a blank line may have to go first, the text then waits.
    pub(super) fn say(&mut self, text: String, ready: &mut VecDeque<AgentEvent>) -> AgentEvent {
        if self.blank_line_needed() {
            ready.push_front(AgentEvent::Text(text));
            AgentEvent::Text(BETWEEN_ROUNDS.to_owned())
        } else {
            AgentEvent::Text(text)
        }
    }

    /// The event to queue for a text that was held back; a blank line is queued first where one is needed.
    pub(super) fn say_queued(
        &mut self,
        text: String,
        ready: &mut VecDeque<AgentEvent>,
    ) -> AgentEvent {
        if self.blank_line_needed() {
            ready.push_back(AgentEvent::Text(BETWEEN_ROUNDS.to_owned()));
        }
        AgentEvent::Text(text)
    }

    /// A round's text is whole.
    pub(super) fn end_round(&mut self, text: &str) {
        if !text.is_empty() {
            if !self.joined.is_empty() {
                self.joined.push_str(BETWEEN_ROUNDS);
            }
            self.joined.push_str(text);
            self.last_round.push_str(text);
        }
    }

    /// Whether the round has no text.
    pub(super) fn round_is_silent(&self) -> bool {
        self.last_round.is_empty()
    }

    /// All rounds' text.
    pub(super) fn joined(&self) -> &str {
        &self.joined
    }

    /// The last round's text.
    pub(super) fn last_round(&self) -> &str {
        &self.last_round
    }

    fn blank_line_needed(&mut self) -> bool {
        let first = !self.now;
        self.now = true;
        first && self.earlier
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blank_line_stands_between_rounds_that_both_have_text() {
        let mut spoken = Spoken::default();
        let mut sent = String::new();
        for round in [&["a", "b"][..], &[], &["c"]] {
            spoken.begin_round();
            for text in round {
                let mut ready = VecDeque::new();
                let first = spoken.say((*text).to_owned(), &mut ready);
                for event in std::iter::once(first).chain(ready) {
                    if let AgentEvent::Text(text) = event {
                        sent.push_str(&text);
                    }
                }
            }
            spoken.end_round(&round.concat());
        }
        assert_eq!(sent, "ab\n\nc");
        assert_eq!((spoken.joined(), spoken.last_round()), ("ab\n\nc", "c"));
    }
}
