//! The messages of the model, and the text of the answer.

use std::collections::VecDeque;

use super::citations::{self, CitationLinks};
use super::event::AgentEvent;
use crate::openai::citation::{CitationStyle, UrlCitation};
use crate::openai::message::{AssistantParts, Message, Role};
use crate::openai::tool::ToolCall;
use crate::tools::cited_sources::CitedSources;
use crate::upstream::assemble::ModelReply;

/// Separates the texts of two rounds.
const BETWEEN_ROUNDS: &str = "\n\n";

/// The assistant message of one round.
pub(super) fn assistant(reply: &ModelReply, calls: &[ToolCall]) -> Message {
    Message::assistant(&AssistantParts {
        text: &reply.text,
        reasoning: reply
            .reasoning
            .as_ref()
            .map(|(text, field)| (*field, text.as_str())),
        tool_calls: calls,
        extra: &reply.extra,
    })
}

/// An assistant message with only this text.
pub(super) fn text_answer(text: &str) -> Message {
    Message::text(Role::Assistant, text)
}

/// The text of the answer so far. Inserts a blank line between the texts of two rounds, and writes marks of sources as
/// links if that is asked for.
#[derive(Debug, Default)]
pub(super) struct AnswerText {
    /// An earlier round sent text to the client.
    earlier_sent: bool,
    /// The current round sent text to the client.
    current_sent: bool,
    /// The text of all rounds as the model wrote it, including text that was not sent.
    joined: String,
    last_round: String,
    /// Where the text of the round begins among what was sent, in characters, if links are written.
    round_start: usize,
    /// Writes links, with the sources that they lead to.
    links: Option<(CitationLinks, CitedSources)>,
}

impl AnswerText {
    /// An answer without text.
    pub(super) fn new(style: CitationStyle, sources: &CitedSources) -> Self {
        let links = || (CitationLinks::default(), sources.clone());
        Self {
            links: (style == CitationStyle::Links).then(links),
            ..Self::default()
        }
    }

    /// Begins a round.
    pub(super) fn begin_round(&mut self) {
        self.earlier_sent |= self.current_sent;
        self.current_sent = false;
        self.last_round.clear();
    }

    /// Queues the events for more text of a round. The beginning of what may become a link is held back.
    pub(super) fn send(&mut self, text: String, ready: &mut VecDeque<AgentEvent>) {
        let begins = !self.current_sent;
        if self.blank_line_needed() {
            let between = self.linked(BETWEEN_ROUNDS.to_owned(), false);
            ready.push_back(AgentEvent::BetweenRounds(between));
        }
        if begins && let Some((links, _)) = &self.links {
            self.round_start = links.written();
        }
        self.queue(text, false, ready);
    }

    /// Queues what is held back: a round's text is complete.
    pub(super) fn send_rest(&mut self, ready: &mut VecDeque<AgentEvent>) {
        if self.links.is_some() {
            self.queue(String::new(), true, ready);
        }
    }

    fn queue(&mut self, text: String, ends: bool, ready: &mut VecDeque<AgentEvent>) {
        let text = self.linked(text, ends);
        if !text.is_empty() {
            ready.push_back(AgentEvent::Text(text));
        }
    }

    /// The text as it is sent.
    fn linked(&mut self, text: String, ends: bool) -> String {
        match &mut self.links {
            Some((links, sources)) => links.push(&text, ends, |number| sources.find(number)),
            None => text,
        }
    }

    /// The citations of the last round's text as it was sent. Their indexes count from its start.
    pub(super) fn round_citations(&self, sources: &CitedSources) -> Vec<UrlCitation> {
        let Some((links, _)) = &self.links else {
            return citations::find(&self.last_round, |number| sources.find(number));
        };
        let start = self.round_start;
        let of_round = links.found().iter().filter(|one| one.start_index >= start);
        let moved = |one: &UrlCitation| UrlCitation {
            start_index: one.start_index - start,
            end_index: one.end_index - start,
            ..one.clone()
        };
        of_round.map(moved).collect()
    }

    /// The citations of the text that was sent, if marks are written as links.
    pub(super) fn linked_citations(&mut self) -> Option<Vec<UrlCitation>> {
        let (links, _) = self.links.as_mut()?;
        Some(links.take_found())
    }

    /// Records a round's complete text.
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
    pub(super) fn round_is_empty(&self) -> bool {
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
        let first = !self.current_sent;
        self.current_sent = true;
        first && self.earlier_sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blank_line_stands_between_rounds_that_both_have_text() {
        let mut answer_text = AnswerText::default();
        let mut sent = String::new();
        for round in [&["a", "b"][..], &[], &["c"]] {
            answer_text.begin_round();
            let mut ready = VecDeque::new();
            for text in round {
                answer_text.send((*text).to_owned(), &mut ready);
            }
            for event in ready {
                if let AgentEvent::Text(text) | AgentEvent::BetweenRounds(text) = event {
                    sent.push_str(&text);
                }
            }
            answer_text.end_round(&round.concat());
        }
        assert_eq!(sent, "ab\n\nc");
        assert_eq!(
            (answer_text.joined(), answer_text.last_round()),
            ("ab\n\nc", "c")
        );
    }
}
