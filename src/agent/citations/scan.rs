//! Finds the marks of sources in a text that arrives in pieces. Brackets in code are no marks.

use protocol::openai::citation::{MarkScan, scan_mark};

/// Most bytes that are looked at for the end of a piece of code or of a line that begins a block of code. It bounds the
/// text that is held back until that is known.
/// Tried by `scan::only_so_much_is_held_back`.
const MAX_HELD: usize = 4096;

/// One piece of the text. The pieces in their order are the text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MarkPiece<'a> {
    /// Text without a mark.
    Text(&'a str),
    Mark {
        text: &'a str,
        numbers: Vec<u32>,
        /// The text has it as the text of a link already, as in `[[1]](url)`.
        is_link: bool,
    },
}

/// The place in a text up to which it has been scanned.
#[derive(Debug, Clone, Default)]
pub(super) struct MarkScanner {
    /// Text that has arrived after that place.
    pending: String,
    position: Position,
    /// The character and length of the marker that began the block of code.
    fence: Option<(char, usize)>,
    after_bracket: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Position {
    #[default]
    LineStart,
    /// In a line where marks count.
    Inline,
    /// In a line of a block of code, or in its marker.
    Code,
}

/// What is known about the beginning of the pending text.
enum Step {
    /// Only the position has changed.
    Decided,
    /// This number of bytes holds no mark.
    Text(usize),
    Mark(usize, Vec<u32>, bool),
    /// More text is needed.
    Unknown,
}

impl MarkScanner {
    /// Scans more of the text. `ends` says that the line ends after it.
    pub(super) fn push(&mut self, text: &str, ends: bool, mut take: impl FnMut(MarkPiece<'_>)) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.push_str(text);
        let mut at = 0;
        while let Some(rest) = pending.get(at..).filter(|rest| !rest.is_empty()) {
            let length = match self.step(rest, ends) {
                Step::Decided => continue,
                Step::Unknown => break,
                Step::Text(length) => {
                    take(MarkPiece::Text(rest.get(..length).unwrap_or(rest)));
                    length
                }
                Step::Mark(length, numbers, is_link) => {
                    take(MarkPiece::Mark {
                        text: rest.get(..length).unwrap_or(rest),
                        numbers,
                        is_link,
                    });
                    length
                }
            };
            self.after_bracket = length == 1 && rest.starts_with('[');
            at += length;
        }
        pending.drain(..at.min(pending.len()));
        self.pending = pending;
    }

    fn step(&mut self, rest: &str, ends: bool) -> Step {
        match self.position {
            Position::LineStart => self.line_start(rest, ends),
            Position::Code => match rest.find('\n') {
                Some(end) => {
                    self.position = Position::LineStart;
                    Step::Text(end + 1)
                }
                None => Step::Text(rest.len()),
            },
            Position::Inline => self.inline(rest, ends),
        }
    }

    /// Decides whether a line begins or ends a block of code.
    fn line_start(&mut self, rest: &str, ends: bool) -> Step {
        let line = Line::of(rest, ends);
        let marker = line.text.trim_start_matches(' ');
        let kind = marker.chars().next();
        if kind.is_none() && !line.is_known {
            return Step::Unknown;
        }
        self.position = match self.fence {
            Some(_) => Position::Code,
            None => Position::Inline,
        };
        let Some(kind) = kind.filter(|kind| matches!(kind, '`' | '~')) else {
            return Step::Decided;
        };
        let after = marker.trim_start_matches(kind);
        let length = marker.len() - after.len();
        let is_marker = match self.fence {
            Some((opened, least)) => kind == opened && length >= least && after.trim().is_empty(),
            // Three backticks that are followed by another backtick on the line are inline code.
            None => length >= 3 && !(kind == '`' && after.contains('`')),
        };
        let may_change = after.is_empty() || is_marker && !(self.fence.is_none() && kind == '~');
        if may_change && !line.is_known {
            self.position = Position::LineStart;
            return Step::Unknown;
        }
        if is_marker {
            self.position = Position::Code;
            self.fence = match self.fence {
                Some(_) => None,
                None => Some((kind, length)),
            };
        }
        Step::Decided
    }

    fn inline(&mut self, rest: &str, ends: bool) -> Step {
        let plain = rest.find(['\n', '\\', '`', '[', '【']);
        let mut characters = match plain {
            Some(0) => rest.chars(),
            other => return Step::Text(other.unwrap_or(rest.len())),
        };
        match characters.next() {
            Some('\n') => {
                self.position = Position::LineStart;
                Step::Text(1)
            }
            Some('\\') => match characters.next() {
                None if !ends => Step::Unknown,
                None | Some('\n') => Step::Text(1),
                Some(escaped) => Step::Text(1 + escaped.len_utf8()),
            },
            Some('`') => inline_code(&Line::of(rest, ends)),
            Some(bracket) => match scan_mark(rest, ends) {
                MarkScan::Mark(length, numbers) => self.mark(rest, length, numbers, ends),
                MarkScan::Other => Step::Text(bracket.len_utf8()),
                MarkScan::Incomplete => Step::Unknown,
            },
            None => Step::Unknown,
        }
    }

    /// Decides whether a mark is the text of a link.
    fn mark(&self, rest: &str, length: usize, numbers: Vec<u32>, ends: bool) -> Step {
        let after = rest.get(length..).unwrap_or_default();
        let is_link = self.after_bracket && after.starts_with("](");
        if self.after_bracket && !is_link && !ends && "](".starts_with(after) {
            return Step::Unknown;
        }
        Step::Mark(length, numbers, is_link)
    }
}

/// The part of a line that is scanned.
struct Line<'a> {
    text: &'a str,
    /// Further text cannot change the result.
    is_known: bool,
}

impl<'a> Line<'a> {
    fn of(rest: &'a str, ends: bool) -> Self {
        let held = rest.floor_char_boundary(MAX_HELD);
        let looked_at = rest.get(..held).unwrap_or(rest);
        match looked_at.find('\n') {
            Some(end) => Self {
                text: looked_at.get(..end).unwrap_or(looked_at),
                is_known: true,
            },
            None => Self {
                text: looked_at,
                is_known: ends || rest.len() > MAX_HELD,
            },
        }
    }
}

/// Finds the end of inline code at the beginning of a line. Without an end, the backticks are text.
fn inline_code(line: &Line<'_>) -> Step {
    let backticks = |text: &str| text.len() - text.trim_start_matches('`').len();
    let opening = backticks(line.text);
    let mut at = opening;
    while let Some(next) = line.text.get(at..).and_then(|rest| rest.find('`')) {
        at += next;
        let run = line.text.get(at..).map_or(0, backticks);
        at += run;
        if run == opening && (at < line.text.len() || line.is_known) {
            return Step::Text(at);
        }
    }
    match line.is_known {
        true => Step::Text(opening),
        false => Step::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The pieces of a text that arrives in these parts; neighbouring texts are joined.
    fn pieces(parts: &[&str]) -> Vec<(String, Option<Vec<u32>>)> {
        let mut scanner = MarkScanner::default();
        let mut found: Vec<(String, Option<Vec<u32>>)> = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            scanner.push(part, index + 1 == parts.len(), |piece| match piece {
                MarkPiece::Text(text) => match found.last_mut() {
                    Some((last, None)) => last.push_str(text),
                    _ => found.push((text.to_owned(), None)),
                },
                MarkPiece::Mark {
                    text,
                    numbers,
                    is_link,
                } => {
                    let text = format!("{text}{}", if is_link { "L" } else { "" });
                    found.push((text, Some(numbers)));
                }
            });
        }
        found
    }

    #[test]
    fn what_is_decided_is_given_out_at_once() {
        let mut scanner = MarkScanner::default();
        let mut out = |text: &str| {
            let mut given = String::new();
            scanner.push(text, false, |piece| match piece {
                MarkPiece::Text(text) | MarkPiece::Mark { text, .. } => given.push_str(text),
            });
            given
        };
        for (text, given) in [
            ("So it is", "So it is"),
            (" [", " "),
            ("1", ""),
            ("2]", "[12]"),
            (" [x", " [x"),
            ("] `a", "] "),
            ("[1]", ""),
            ("` b\n", "`a[1]` b\n"),
            ("  ", ""),
            ("~~~", ""),
            ("\n[1]\n", "  ~~~\n[1]\n"),
            ("~~", ""),
            ("~", ""),
            ("x", "~~~x"),
        ] {
            assert_eq!(out(text), given, "after {text:?}");
        }
    }

    #[test]
    fn only_so_much_is_held_back() {
        for begin in ["`", "```", "   ", "a ``", "[ "] {
            let mut scanner = MarkScanner::default();
            scanner.push(begin, false, |_| {});
            for _ in 0..3 * MAX_HELD {
                scanner.push("x", false, |_| {});
                assert!(scanner.pending.len() <= MAX_HELD + 1);
            }
            assert!(scanner.pending.len() < MAX_HELD, "{begin:?}");
        }
    }

    proptest! {
        #[test]
        fn the_pieces_do_not_depend_on_how_the_text_arrives(
            words in prop::collection::vec(prop::sample::select(vec![
                "[1]", "[", "]", "](", "[[2]](u)", "2, 3", "`", "``", "```", "~~~", "\n", " ", "  ", "\\", "a", "é", "【4】", "x`y",
            ]), 0..40),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let text = words.concat();
            let boundaries: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| boundaries[cut.index(boundaries.len())]).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let parts: Vec<&str> = cuts.windows(2).filter_map(|pair| text.get(pair[0]..pair[1])).collect();
            let whole = pieces(&[&text]);
            prop_assert_eq!(pieces(&parts), whole.clone());
            let joined: String = whole.iter().map(|(text, _)| text.trim_end_matches('L')).collect();
            prop_assert_eq!(joined, text);
        }
    }
}
