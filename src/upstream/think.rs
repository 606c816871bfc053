//! Separates the reasoning between `<think>` and `</think>` from the text around it.
//!
//! A tag may be split over chunks. Only a tag at the start of the answer opens reasoning, because an answer may mention the
//! tag.

use crate::openai::event::ModelEvent;

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";
/// The field name of events for reasoning from tags.
const FIELD: &str = "reasoning_content";

/// Splits an answer's text into reasoning and visible text.
#[derive(Debug, Default)]
pub struct ThinkSplitter {
    position: Position,
    /// Text that may be the start of a tag.
    pending: String,
    /// The next text directly follows a tag. Line ends at its start are dropped.
    after_tag: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// So far only white space, and perhaps a part of the opening tag.
    #[default]
    Start,
    Reasoning,
    Text,
}

impl ThinkSplitter {
    /// Splits the next piece of the answer's text and appends the events.
    pub fn push(&mut self, text: &str, out: &mut Vec<ModelEvent>) {
        if self.position == Position::Text {
            return self.emit(text, out);
        }
        let mut buffer = std::mem::take(&mut self.pending);
        buffer.push_str(text);
        let mut rest = buffer.as_str();
        if self.position == Position::Start {
            let trimmed = rest.trim_start();
            if let Some(inside) = trimmed.strip_prefix(OPEN) {
                self.enter(Position::Reasoning);
                rest = inside;
            } else if OPEN.starts_with(trimmed) {
                self.pending = buffer;
                return;
            } else {
                self.position = Position::Text;
                return self.emit(rest, out);
            }
        }
        if let Some((inside, after)) = rest.split_once(CLOSE) {
            self.emit(inside, out);
            self.enter(Position::Text);
            return self.emit(after, out);
        }
        let (text, pending) = split_before_partial_tag(rest);
        self.emit(text, out);
        self.pending = pending.to_owned();
    }

    /// Appends the pending text. Must be called at the end of the answer and before any other event.
    pub fn flush(&mut self, out: &mut Vec<ModelEvent>) {
        let pending = std::mem::take(&mut self.pending);
        if self.position == Position::Start && !pending.is_empty() {
            self.position = Position::Text;
        }
        self.emit(&pending, out);
    }

    fn enter(&mut self, position: Position) {
        self.position = position;
        self.after_tag = true;
    }

    fn emit(&mut self, mut text: &str, out: &mut Vec<ModelEvent>) {
        if self.after_tag {
            text = text.trim_start_matches(['\n', '\r']);
        }
        if text.is_empty() {
            return;
        }
        self.after_tag = false;
        out.push(match self.position {
            Position::Reasoning => ModelEvent::Reasoning {
                text: text.to_owned(),
                field: FIELD,
            },
            Position::Start | Position::Text => ModelEvent::Text(text.to_owned()),
        });
    }
}

/// Splits off the longest suffix that is a prefix of the closing tag.
fn split_before_partial_tag(text: &str) -> (&str, &str) {
    (1..CLOSE.len())
        .rev()
        .filter_map(|length| text.split_at_checked(text.len().checked_sub(length)?))
        .find(|(_, tail)| CLOSE.starts_with(tail))
        .unwrap_or((text, ""))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split<'a>(pieces: impl IntoIterator<Item = &'a str>) -> (String, String) {
        let mut splitter = ThinkSplitter::default();
        let mut events = Vec::new();
        for piece in pieces {
            splitter.push(piece, &mut events);
        }
        splitter.flush(&mut events);
        let (mut reasoning, mut answer) = (String::new(), String::new());
        for event in events {
            match event {
                ModelEvent::Text(text) => answer.push_str(&text),
                ModelEvent::Reasoning { text, .. } => reasoning.push_str(&text),
                other => panic!("{other:?}"),
            }
        }
        (reasoning, answer)
    }

    #[test]
    fn only_leading_tags_split_the_answer() {
        for (text, reasoning, answer) in [
            ("<think>a</think>b", "a", "b"),
            (" \n<think>\nwhy\n</think>\n\nso", "why\n", "so"),
            ("<think>\n\n</think>\n\nso", "", "so"),
            ("plain", "", "plain"),
            ("  plain", "", "  plain"),
            (
                "about <think>x</think> tags",
                "",
                "about <think>x</think> tags",
            ),
            ("no opening</think>b", "", "no opening</think>b"),
            ("<think>never closed </thin", "never closed </thin", ""),
            (
                "<think>a <think> b</think>c</think>",
                "a <think> b",
                "c</think>",
            ),
            ("<thi", "", "<thi"),
            ("<thinking>x", "", "<thinking>x"),
            ("<think>ä</think>ü", "ä", "ü"),
        ] {
            let expected = (reasoning.to_owned(), answer.to_owned());
            assert_eq!(split([text]), expected, "{text:?}");
        }
    }

    #[test]
    fn text_that_cannot_be_a_tag_is_passed_on_at_once() {
        let mut splitter = ThinkSplitter::default();
        let mut events = Vec::new();
        splitter.push("<b", &mut events);
        assert_eq!(events, [ModelEvent::Text("<b".into())]);
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_as_the_whole(
            tokens in prop::collection::vec(
                prop_oneof![
                    Just("<think>"), Just("</think>"), Just("<"), Just("</"), Just("think>"), Just("\n"),
                    Just(" "), Just("a"), Just("é"), Just("</thi"), Just("nk>"),
                ],
                0..12,
            ),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let text = tokens.concat();
            let chars: Vec<char> = text.chars().collect();
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(chars.len() + 1)).collect();
            places.extend([0, chars.len()]);
            places.sort_unstable();
            let pieces: Vec<String> =
                places.windows(2).map(|pair| chars[pair[0]..pair[1]].iter().collect()).collect();
            prop_assert_eq!(split(pieces.iter().map(String::as_str)), split([text.as_str()]));
        }
    }
}
