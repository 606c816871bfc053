//! Separates the reasoning that stands in the text of an answer from the text around it.
//!
//! A tag may be split over chunks. Only a tag at the start of the answer opens reasoning, because an answer may mention the
//! tag. A closing tag without an opening one says that all before it was reasoning: the template of the prompt has written
//! the opening one. In code, or after an opening tag, it is a part of the answer.

use super::settings::ThinkTags;
use protocol::openai::event::ModelEvent;

/// The opening and the closing tags, by the models that write them.
const TAGS: [(&str, &str); 4] = [
    ("<think>", "</think>"),
    // Seed-OSS.
    ("<seed:think>", "</seed:think>"),
    // Gemini.
    ("<thought>", "</thought>"),
    // Magistral.
    ("[THINK]", "[/THINK]"),
];
/// The field name of events for reasoning from tags.
const FIELD: &str = "reasoning_content";

/// Splits an answer's text into reasoning and visible text.
#[derive(Debug)]
pub(crate) struct ThinkSplitter {
    position: Position,
    /// The answer begins inside the reasoning.
    starts_open: bool,
    /// Text that may be the start of a tag, or that is dropped before one.
    pending: String,
    /// The next text directly follows a tag. Line ends at its start are dropped.
    after_tag: bool,
    /// The text so far has an odd number of backticks, so that what follows is code.
    in_code: bool,
    /// Text was passed on.
    has_text: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// So far only white space, and perhaps a part of a tag.
    Start,
    /// Inside reasoning that ends with this tag.
    Reasoning(&'static str),
    /// Inside reasoning without an opening tag.
    Open,
    /// Inside text that is reasoning if a closing tag follows.
    Unmarked,
    Text,
}

impl ThinkSplitter {
    /// A splitter at the start of an answer, if reasoning may stand in the text.
    pub(crate) fn new(tags: ThinkTags) -> Option<Self> {
        (tags != ThinkTags::Off).then(|| Self {
            position: Position::Start,
            starts_open: tags == ThinkTags::Open,
            pending: String::new(),
            after_tag: false,
            in_code: false,
            has_text: false,
        })
    }

    /// Splits the next piece of the answer's text and appends the events.
    pub(crate) fn push(&mut self, text: &str, out: &mut Vec<ModelEvent>) {
        if self.position == Position::Text {
            return self.emit(text, out);
        }
        let mut buffer = std::mem::take(&mut self.pending);
        buffer.push_str(text);
        let rest = match self.position {
            Position::Start => self.begin(&buffer),
            _ => Some(buffer.as_str()),
        };
        let Some(rest) = rest else {
            self.pending = buffer;
            return;
        };
        match self.position {
            Position::Reasoning(close) => self.reason(rest, &[close], out),
            Position::Open => self.reason(rest, &TAGS.map(|(_, close)| close), out),
            Position::Unmarked => self.unmarked(rest, out),
            Position::Start | Position::Text => self.emit(rest, out),
        }
    }

    /// The server sends reasoning in a field of its own: the text does not begin with it.
    pub(crate) fn starts_with_text(&mut self) {
        self.starts_open = false;
    }

    /// Appends the pending text. Must be called at the end of the answer and before any other event.
    pub(crate) fn flush(&mut self, out: &mut Vec<ModelEvent>) {
        let pending = std::mem::take(&mut self.pending);
        if self.position == Position::Start && !pending.is_empty() {
            self.position = self.without_tag();
        }
        self.emit(&pending, out);
    }

    /// Decides how the answer begins. Returns what follows the tag, or nothing while that is open.
    fn begin<'a>(&mut self, text: &'a str) -> Option<&'a str> {
        let trimmed = text.trim_start();
        for (open, close) in TAGS {
            if let Some(inside) = trimmed.strip_prefix(open) {
                self.enter(Position::Reasoning(close));
                return Some(inside);
            }
            if let Some(after) = trimmed.strip_prefix(close) {
                self.enter(Position::Text);
                return Some(after);
            }
        }
        if TAGS
            .iter()
            .any(|(open, close)| open.starts_with(trimmed) || close.starts_with(trimmed))
        {
            return None;
        }
        self.position = self.without_tag();
        Some(text)
    }

    /// The position in an answer that begins without a tag.
    fn without_tag(&mut self) -> Position {
        match self.starts_open {
            true => {
                self.after_tag = true;
                Position::Open
            }
            false => Position::Unmarked,
        }
    }

    /// More reasoning, which one of these tags ends.
    fn reason(&mut self, text: &str, closes: &[&str], out: &mut Vec<ModelEvent>) {
        let ends = closes.iter().filter_map(|close| text.split_once(close));
        if let Some((inside, after)) = ends.min_by_key(|(inside, _)| inside.len()) {
            self.emit(self.before_tag(inside), out);
            self.enter(Position::Text);
            return self.emit(after, out);
        }
        self.emit_until_tag(text, closes, out);
    }

    /// More text that is reasoning if a closing tag follows.
    fn unmarked(&mut self, text: &str, out: &mut Vec<ModelEvent>) {
        let mut from = 0;
        while let Some((place, tag, is_close)) = first_tag(text, from) {
            let before = text.get(from..place).unwrap_or_default();
            self.in_code ^= has_odd_backticks(before);
            if !is_close {
                self.position = Position::Text;
                return self.emit(text, out);
            }
            from = place + tag.len();
            if self.in_code {
                continue;
            }
            let inside = self.before_tag(text.get(..place).unwrap_or_default());
            if self.has_text {
                self.emit(inside, out);
                out.push(ModelEvent::TextWasReasoning { field: FIELD });
            } else {
                self.position = Position::Open;
                self.emit(inside, out);
            }
            self.enter(Position::Text);
            return self.emit(text.get(from..).unwrap_or_default(), out);
        }
        let (passed, rest) = text.split_at_checked(from).unwrap_or((text, ""));
        self.emit(passed, out);
        let tags = TAGS.map(|(open, close)| [open, close]);
        let sent = self.emit_until_tag(rest, tags.as_flattened(), out);
        self.in_code ^= has_odd_backticks(sent);
    }

    /// Passes on the text up to what may be the start of one of these tags. Returns what was passed on.
    fn emit_until_tag<'a>(
        &mut self,
        text: &'a str,
        tags: &[&str],
        out: &mut Vec<ModelEvent>,
    ) -> &'a str {
        let (text, partial) = split_before_partial_tag(text, tags);
        let kept = self.before_tag(text);
        self.emit(kept, out);
        self.pending = [text.get(kept.len()..).unwrap_or_default(), partial].concat();
        kept
    }

    /// The text that stays before a closing tag. Reasoning whose opening tag is a part of the prompt loses the line ends there.
    fn before_tag<'a>(&self, text: &'a str) -> &'a str {
        match self.position {
            Position::Open | Position::Unmarked => text.trim_end_matches(['\n', '\r']),
            Position::Start | Position::Reasoning(_) | Position::Text => text,
        }
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
            Position::Reasoning(_) | Position::Open => ModelEvent::Reasoning {
                text: text.to_owned(),
                field: FIELD,
            },
            Position::Start | Position::Unmarked | Position::Text => {
                self.has_text = true;
                ModelEvent::Text(text.to_owned())
            }
        });
    }
}

/// The first tag at or after a place, and whether it is a closing one.
fn first_tag(text: &str, from: usize) -> Option<(usize, &'static str, bool)> {
    let rest = text.get(from..)?;
    let find = |tag: &'static str, is_close| Some((from + rest.find(tag)?, tag, is_close));
    TAGS.iter()
        .flat_map(|(open, close)| [find(open, false), find(close, true)])
        .flatten()
        .min_by_key(|(place, ..)| *place)
}

fn has_odd_backticks(text: &str) -> bool {
    text.bytes().filter(|byte| *byte == b'`').count() % 2 == 1
}

/// Splits off the longest suffix that is the beginning of one of these tags.
fn split_before_partial_tag<'a>(text: &'a str, tags: &[&str]) -> (&'a str, &'a str) {
    let longest = tags.iter().map(|tag| tag.len()).max().unwrap_or(0);
    (1..longest)
        .rev()
        .filter_map(|length| text.split_at_checked(text.len().checked_sub(length)?))
        .find(|(_, tail)| tags.iter().any(|tag| tag.starts_with(tail)))
        .unwrap_or((text, ""))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The reasoning and the text that come of an answer in pieces.
    fn split<'a>(tags: ThinkTags, pieces: impl IntoIterator<Item = &'a str>) -> (String, String) {
        let mut splitter = ThinkSplitter::new(tags).unwrap();
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
                ModelEvent::TextWasReasoning { .. } => {
                    assert!(!answer.is_empty());
                    reasoning.push_str(&std::mem::take(&mut answer));
                }
                other => panic!("{other:?}"),
            }
        }
        (reasoning, answer)
    }

    fn check(tags: ThinkTags, cases: &[(&str, &str, &str)]) {
        for (text, reasoning, answer) in cases {
            let expected = ((*reasoning).to_owned(), (*answer).to_owned());
            assert_eq!(split(tags, [*text]), expected, "{text:?}");
            let letters: Vec<String> = text.chars().map(String::from).collect();
            let letters = letters.iter().map(String::as_str);
            assert_eq!(split(tags, letters), expected, "{text:?}");
        }
    }

    #[test]
    fn only_leading_tags_split_the_answer() {
        check(
            ThinkTags::Both,
            &[
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
                ("<think>never closed </thin", "never closed </thin", ""),
                (
                    "<think>a <think> b</think>c</think>",
                    "a <think> b",
                    "c</think>",
                ),
                ("<thi", "", "<thi"),
                ("<thinking>x", "", "<thinking>x"),
                ("<think>ä</think>ü", "ä", "ü"),
                ("[THINK]a</think>[/THINK]b", "a</think>", "b"),
                ("<seed:think>a</seed:think>b", "a", "b"),
                ("<thought>a\n</thought>b", "a\n", "b"),
            ],
        );
    }

    #[test]
    fn what_stands_before_a_closing_tag_alone_is_reasoning() {
        check(
            ThinkTags::Both,
            &[
                ("no opening</think>b", "no opening", "b"),
                (
                    "They want the weather.\n</think>\n\nCold.",
                    "They want the weather.",
                    "Cold.",
                ),
                ("\n</think>\n\nCold.", "", "Cold."),
                ("a\n\nb[/THINK]c</think>", "a\n\nb", "c</think>"),
                ("a\n\nb\n", "", "a\n\nb\n"),
                // Mentioned in code.
                ("Write `</think>` there.", "", "Write `</think>` there."),
                ("```\n</think>\n```\n", "", "```\n</think>\n```\n"),
                (
                    "Of `a` I write `</think>`.</think>Done.",
                    "Of `a` I write `</think>`.",
                    "Done.",
                ),
            ],
        );
    }

    #[test]
    fn an_answer_may_begin_inside_the_reasoning() {
        check(
            ThinkTags::Open,
            &[
                ("why\n</think>\n\nso", "why", "so"),
                ("\n\nwhy </think>so</think>", "why ", "so</think>"),
                ("<think>\nwhy\n</think>\n\nso", "why\n", "so"),
                ("</think>so", "", "so"),
                (" \n</think>\n\nso", "", "so"),
                ("a\n\nb</thin</seed:think>c", "a\n\nb</thin", "c"),
                ("never closed\n", "never closed\n", ""),
                ("<thi", "<thi", ""),
                ("", "", ""),
            ],
        );
    }

    #[test]
    fn text_that_cannot_be_a_tag_is_passed_on_at_once() {
        let mut splitter = ThinkSplitter::new(ThinkTags::Both).unwrap();
        let mut events = Vec::new();
        splitter.push("<b", &mut events);
        assert_eq!(events, [ModelEvent::Text("<b".into())]);
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_as_the_whole(
            tags in prop::sample::select(vec![ThinkTags::Both, ThinkTags::Open]),
            tokens in prop::collection::vec(
                prop_oneof![
                    Just("<think>"), Just("</think>"), Just("<"), Just("</"), Just("think>"), Just("\n"),
                    Just(" "), Just("a"), Just("é"), Just("</thi"), Just("nk>"), Just("`"), Just("[/THINK]"), Just("[TH"),
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
            prop_assert_eq!(split(tags, pieces.iter().map(String::as_str)), split(tags, [text.as_str()]));
        }
    }
}
