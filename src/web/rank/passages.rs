//! Cuts texts into passages along headings, paragraphs, lists and tables.
//!
//! This takes one pass over the lines, because texts are hostile: a splitter that searches for the best cut takes
//! minutes for a long text without spaces.

use std::ops::Range;

use super::Candidate;
use crate::rank::tokens;

/// Most tokens of a passage; a longer one is cut in two.
/// Tried by `passages::lines_without_boundaries_are_cut_in_linear_time`.
const MOST: usize = 260;
/// Least value of that maximum for a small budget.
/// Tried by `passages::a_small_budget_has_small_passages`.
const LEAST_MOST: usize = 96;
/// Number of passages of the maximum size that a budget should hold.
const IN_BUDGET: usize = 6;
/// Longest headings of a passage, in characters; longer ones are cut.
const MAX_HEADING: usize = 120;

/// The size of a passage in tokens. From `start` on it may end at a boundary, and at `end` it must.
pub(super) type PassageSize = Range<usize>;

/// The size of passages for a budget. A small budget has small passages, so that it holds several.
pub(super) fn size(budget: usize) -> PassageSize {
    let most = (budget / IN_BUDGET).clamp(LEAST_MOST, MOST);
    most / 2..most
}

/// A passage of a candidate's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Passage<'d> {
    /// The index of the candidate.
    pub(super) candidate: usize,
    /// The candidate's title.
    pub(super) title: &'d str,
    /// The headings above the passage, outermost first.
    pub(super) headings: String,
    /// The range of bytes in the text.
    pub(super) place: Range<usize>,
    pub(super) text: &'d str,
}

impl Passage<'_> {
    /// The text that is searched: the passage with its title and headings.
    pub(super) fn searched(&self) -> String {
        format!("{}\n{}\n{}", self.title, self.headings, self.text)
    }
}

/// The passages of a candidate, or its snippet if it has no text.
pub(super) fn of<'d>(candidate: usize, of: &'d Candidate, size: &PassageSize) -> Vec<Passage<'d>> {
    let text = match of.markdown.trim().is_empty() {
        true => &of.snippet,
        false => &of.markdown,
    };
    if tokens::estimate(text) <= size.end {
        return whole(candidate, &of.title, text).into_iter().collect();
    }
    let mut headings = Headings::default();
    let passage = |place: Range<usize>| {
        let piece = text.get(place.clone()).unwrap_or_default();
        let above = headings.path();
        headings.read(piece);
        let trimmed = piece.trim_end();
        (!trimmed.is_empty()).then(|| Passage {
            candidate,
            title: &of.title,
            headings: above,
            place: place.start..place.start + trimmed.len(),
            text: trimmed,
        })
    };
    cut(text, size).into_iter().filter_map(passage).collect()
}

/// The positions of cuts: at headings and blank lines from the minimum size on, at line ends when a passage is full, and
/// inside lines that are longer than a passage.
fn cut(text: &str, size: &PassageSize) -> Vec<Range<usize>> {
    let mut cuts = Vec::new();
    let (mut start, mut end, mut used) = (0, 0, 0);
    let mut after_blank = false;
    for line in text
        .split_inclusive('\n')
        .flat_map(|line| short(line, size.end))
    {
        let tokens = tokens::estimate(line);
        let blank = line.trim().is_empty();
        let good_place = line.starts_with('#') || (after_blank && !blank);
        if used > 0 && (used + tokens > size.end || (good_place && used >= size.start)) {
            cuts.push(start..end);
            (start, used) = (end, 0);
        }
        end += line.len();
        used += tokens;
        after_blank = blank;
    }
    cuts.push(start..end);
    cuts
}

/// Splits a line into pieces that fit into a passage.
///
/// A piece is found by reading at most the size of a passage and has at least half of it, so the time is linear.
fn short(line: &str, most: usize) -> impl Iterator<Item = &str> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let line = rest?;
        let (piece, more) = match end_of_piece(line, most) {
            Some(end) => line.split_at(end),
            None => (line, ""),
        };
        rest = (!more.is_empty()).then_some(more);
        Some(piece)
    })
}

/// The position at which a long line is cut: after a sentence, a space or a cell in the second half of what fits, or else
/// where the passage is full.
fn end_of_piece(line: &str, most: usize) -> Option<usize> {
    let most = most * 4;
    let mut size = 0;
    let (mut sentence, mut space) = (None, None);
    let mut before = ' ';
    for (at, character) in line.char_indices() {
        size += tokens::quarters(character);
        if size > most {
            return Some(sentence.or(space).unwrap_or(at));
        }
        let next = at + character.len_utf8();
        if size * 2 > most {
            match character {
                '。' | '！' | '？' => sentence = Some(next),
                ' ' if matches!(before, '.' | '!' | '?') => sentence = Some(next),
                ' ' | '|' => space = Some(next),
                _ => {}
            }
        }
        before = character;
    }
    None
}

fn whole<'d>(candidate: usize, title: &'d str, text: &'d str) -> Option<Passage<'d>> {
    let trimmed = text.trim();
    (!trimmed.is_empty()).then(|| Passage {
        candidate,
        title,
        headings: String::new(),
        place: 0..text.len(),
        text: trimmed,
    })
}

/// The current headings.
#[derive(Debug, Default)]
struct Headings {
    path: Vec<(usize, String)>,
    in_code: bool,
}

impl Headings {
    fn read(&mut self, text: &str) {
        for line in text.lines() {
            if line.trim_start().starts_with("```") {
                self.in_code = !self.in_code;
            }
            let level = line.bytes().take_while(|byte| *byte == b'#').count();
            let title = line.trim_start_matches('#');
            if self.in_code || !(1..=6).contains(&level) || !title.starts_with(' ') {
                continue;
            }
            self.path.retain(|(above, _)| *above < level);
            let title: String = title.trim().chars().take(MAX_HEADING).collect();
            self.path.push((level, title));
        }
    }

    fn path(&self) -> String {
        let titles: Vec<&str> = self.path.iter().map(|(_, title)| title.as_str()).collect();
        titles.join(" › ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_without_boundaries_are_cut_in_linear_time() {
        for unit in [
            "x",
            "word ",
            "a. ",
            "| cell ",
            "字",
            "x. yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy",
        ] {
            let line = unit.repeat((1 << 20) / unit.len());
            let pieces: Vec<&str> = short(&line, MOST).collect();
            assert_eq!(pieces.concat(), line);
            let (last, full) = pieces.split_last().unwrap();
            assert!(tokens::estimate(last) <= MOST);
            // At most the size of a piece is read for each piece: twice the line in all.
            for piece in full {
                let size = tokens::estimate(piece);
                assert!((MOST / 2..=MOST).contains(&size), "{unit}: {size}");
            }
        }
    }

    #[test]
    fn a_small_budget_has_small_passages() {
        assert_eq!(size(100), 48..96);
        assert_eq!(size(900), 75..150);
        assert_eq!(size(16_000), 130..260);
    }
}
