//! The messages of the model, and the text of the answer.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::citations::{self, CitationLinks};
use super::event::AgentEvent;
use protocol::openai::citation::{CitationStyle, UrlCitation};
use protocol::openai::message::{AssistantParts, Message, Role};
use protocol::openai::tool::ToolCall;
use tools::cited_sources::CitedSources;
use upstream::assemble::ModelReply;

/// Separates the texts of two rounds.
pub(super) const BETWEEN_ROUNDS: &str = "\n\n";

/// The assistant message of one round.
pub(super) fn assistant(reply: &ModelReply, calls: &[ToolCall]) -> Message {
    let mut extra = reply.extra.clone();
    let origin = reply.origin.as_ref();
    extra.extend(origin.and_then(|origin| origin.member(reply, calls)));
    Message::assistant(&AssistantParts {
        text: &reply.text,
        parts: reply.parts.as_deref(),
        reasoning: reply
            .reasoning
            .as_ref()
            .map(|(text, field)| (*field, text.as_str())),
        tool_calls: calls,
        extra: &extra,
    })
}

/// An assistant message with only this text.
pub(super) fn text_answer(text: &str) -> Message {
    Message::text(Role::Assistant, text)
}

/// The text of an answer that was sent, which can be stored.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct SentText {
    /// The text of all rounds.
    pub(super) joined: String,
    pub(super) last_round: String,
    /// Some of it reached the client.
    pub(super) was_sent: bool,
    links: Option<CitationLinks>,
}

impl SentText {
    /// This text and one that follows it.
    pub(super) fn and(self, later: &Self) -> Self {
        let between = match self.joined.is_empty() || later.joined.is_empty() {
            true => "",
            false => BETWEEN_ROUNDS,
        };
        Self {
            joined: [&self.joined, between, &later.joined].concat(),
            last_round: match later.last_round.is_empty() {
                true => self.last_round,
                false => later.last_round.clone(),
            },
            was_sent: self.was_sent || later.was_sent,
            links: match (self.links, &later.links) {
                (Some(links), Some(later)) => Some(links.and(later, between.len())),
                (links, later) => later.clone().or(links),
            },
        }
    }
}

/// The text of the answer so far. Inserts a blank line between the texts of two rounds, and writes marks of sources as
/// links if that is asked for.
///
/// White space alone is no text. White space at the start of a round is sent when something visible follows in the round,
/// without the blank lines there.
#[derive(Debug, Default)]
pub(super) struct AnswerText {
    /// An earlier round sent text to the client.
    earlier_sent: bool,
    /// The current round sent text to the client.
    current_sent: bool,
    /// White space at the start of the current round that was not sent yet.
    held: String,
    /// The text of all rounds as it is sent, but without links, and including text that was not sent.
    joined: String,
    /// The text of the last round as it is sent, but without links.
    last_round: String,
    /// Where the text of the round begins in the text sent so far, in characters, if links are written.
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

    /// The text so far, without the part that is held back.
    pub(super) fn sent(&self) -> SentText {
        SentText {
            joined: self.joined.clone(),
            last_round: self.last_round.clone(),
            was_sent: self.earlier_sent || self.current_sent,
            links: self.links.as_ref().map(|(links, _)| links.clone()),
        }
    }

    /// Continues an answer whose text so far is `sent`.
    pub(super) fn continues(&mut self, sent: SentText) {
        self.joined = sent.joined;
        self.last_round = sent.last_round;
        self.current_sent = sent.was_sent;
        if let (Some((links, _)), Some(written)) = (&mut self.links, sent.links) {
            *links = written;
        }
    }

    pub(super) fn begin_round(&mut self) {
        self.earlier_sent |= self.current_sent;
        self.current_sent = false;
        self.held.clear();
        self.last_round.clear();
    }

    /// Queues the events for more text of a round. The beginning of what may become a link is held back, and so is white
    /// space at the start of the round.
    pub(super) fn send(&mut self, text: String, ready: &mut VecDeque<AgentEvent>) {
        if self.current_sent {
            return self.queue(text, false, ready);
        }
        self.held.push_str(&text);
        if text.trim().is_empty() {
            return;
        }
        self.current_sent = true;
        let text = without_blank_lines(&std::mem::take(&mut self.held)).to_owned();
        if self.earlier_sent {
            let between = self.linked(BETWEEN_ROUNDS.to_owned(), false);
            ready.push_back(AgentEvent::BetweenRounds(between));
        }
        if let Some((links, _)) = &self.links {
            self.round_start = links.written();
        }
        self.queue(text, false, ready);
    }

    /// Queues the text that was held back, because a round's text is complete.
    pub(super) fn send_rest(&mut self, ready: &mut VecDeque<AgentEvent>) {
        self.held.clear();
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

    /// Adds a text that is not from the model, as a paragraph of its own.
    pub(super) fn add(&mut self, text: &str, ready: &mut VecDeque<AgentEvent>) {
        self.end_round(text);
        let between = match self.current_sent {
            true => BETWEEN_ROUNDS,
            false => "",
        };
        self.send(format!("{between}{text}"), ready);
    }

    /// Records a round's complete text, or an addition to it.
    pub(super) fn end_round(&mut self, text: &str) {
        self.held.clear();
        if text.trim().is_empty() {
            return;
        }
        let text = without_blank_lines(text);
        if !self.joined.is_empty() {
            self.joined.push_str(BETWEEN_ROUNDS);
        }
        self.joined.push_str(text);
        if !self.last_round.is_empty() {
            self.last_round.push_str(BETWEEN_ROUNDS);
        }
        self.last_round.push_str(text);
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
}

/// The text without the blank lines at its start.
fn without_blank_lines(text: &str) -> &str {
    let blank = text.len() - text.trim_start().len();
    let lines = text.get(..blank).and_then(|blank| blank.rfind('\n'));
    let start = lines.map_or(0, |line_end| line_end + 1);
    text.get(start..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sends rounds that come in pieces. Returns what was sent, and the answer's view of it.
    fn sent(rounds: &[Vec<&str>], style: CitationStyle) -> (String, AnswerText) {
        let mut answer_text = AnswerText::new(style, &CitedSources::default());
        let mut sent = String::new();
        for round in rounds {
            answer_text.begin_round();
            let mut ready = VecDeque::new();
            for text in round {
                answer_text.send((*text).to_owned(), &mut ready);
            }
            answer_text.send_rest(&mut ready);
            for event in ready {
                if let AgentEvent::Text(text) | AgentEvent::BetweenRounds(text) = event {
                    assert!(!text.is_empty());
                    sent.push_str(&text);
                }
            }
            answer_text.end_round(&round.concat());
        }
        (sent, answer_text)
    }

    #[test]
    fn a_blank_line_stands_between_rounds_that_both_have_text() {
        for (rounds, expected, last) in [
            (&[&["a", "b"][..], &[], &["c"]][..], "ab\n\nc", "c"),
            (&[&["\n\n"], &["\n", "\n"], &["Cold."]], "Cold.", "Cold."),
            (&[&["\n\n"]], "", ""),
            (&[&["A "], &[" \t", "\u{2003}\r\n"], &[]], "A ", ""),
            // A round's own white space stays, but not the blank lines at its start.
            (&[&["\n\n", "  A\n"]], "  A\n", "  A\n"),
            (&[&["A\n"], &["\n\n", "  B"]], "A\n\n\n  B", "  B"),
            (&[&["A"], &[" B\n", "\n", "C"]], "A\n\n B\n\nC", " B\n\nC"),
        ] {
            let rounds: Vec<Vec<&str>> = rounds.iter().map(|round| round.to_vec()).collect();
            for style in [CitationStyle::Marks, CitationStyle::Links] {
                let (sent, answer_text) = sent(&rounds, style);
                let seen = (
                    sent.as_str(),
                    answer_text.joined(),
                    answer_text.last_round(),
                );
                assert_eq!(seen, (expected, expected, last), "{rounds:?}");
                assert_eq!(answer_text.round_is_empty(), last.is_empty());
            }
        }
    }

    #[test]
    fn white_space_that_came_before_a_text_of_the_loop_is_not_sent() {
        let (_, mut answer_text) = sent(&[vec!["\n\n"]], CitationStyle::Marks);
        let mut ready = VecDeque::new();
        answer_text.send("The tool's word.".to_owned(), &mut ready);
        assert!(matches!(&ready[0], AgentEvent::Text(text) if text == "The tool's word."));
    }

    #[test]
    fn a_text_of_the_loop_is_a_paragraph_of_its_own() {
        for style in [CitationStyle::Marks, CitationStyle::Links] {
            let (mut text, mut answer_text) = sent(&[vec!["I pay."]], style);
            let mut ready = VecDeque::new();
            answer_text.add("It waits.", &mut ready);
            answer_text.send_rest(&mut ready);
            for event in &ready {
                let AgentEvent::Text(more) = event else {
                    panic!("{event:?}");
                };
                text.push_str(more);
            }
            assert_eq!(text, "I pay.\n\nIt waits.");
            assert_eq!(
                (answer_text.joined(), answer_text.last_round()),
                (&*text, &*text)
            );
        }
    }

    proptest! {
        #[test]
        fn what_is_sent_is_what_is_recorded(
            rounds in prop::collection::vec(
                prop::collection::vec(prop::sample::select(vec!["\n", " ", "\r\n", "a", "[1]", "é\n"]), 0..5),
                0..5,
            ),
        ) {
            for style in [CitationStyle::Marks, CitationStyle::Links] {
                let (sent, answer_text) = sent(&rounds, style);
                prop_assert_eq!(sent.as_str(), answer_text.joined());
                prop_assert!(sent.ends_with(answer_text.last_round()));
            }
            let whole: Vec<Vec<String>> = rounds.iter().map(|round| vec![round.concat()]).collect();
            let whole: Vec<Vec<&str>> =
                whole.iter().map(|round| round.iter().map(String::as_str).collect()).collect();
            prop_assert_eq!(sent(&whole, CitationStyle::Marks).0, sent(&rounds, CitationStyle::Marks).0);
        }
    }
}
