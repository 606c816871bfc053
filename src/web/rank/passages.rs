//! Texts cut into passages along their headings, paragraphs, lists and tables.
//!
//! In one pass over the lines, because texts come from strangers: a splitter that searches for the best cut takes minutes
//! for a long text without spaces.

use std::ops::Range;

use super::Candidate;
use crate::web::tokens;

/// Size of a passage in tokens: a paragraph or a few.
const SIZE: Range<usize> = 120..260;
/// Longest text that is cut, in bytes; of longer ones the beginning.
const MAX_TEXT: usize = 1024 * 1024;
/// Longest headings that are told with a passage, in characters.
const MAX_HEADING: usize = 120;

/// A piece of a candidate's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Passage<'d> {
    /// The candidate.
    pub(super) candidate: usize,
    /// The candidate's title.
    pub(super) title: &'d str,
    /// The headings above it, outermost first.
    pub(super) headings: String,
    /// Where it stands in the text.
    pub(super) place: Range<usize>,
    /// The piece.
    pub(super) text: &'d str,
}

impl Passage<'_> {
    /// What words are looked for in: the piece, and what stands above it.
    pub(super) fn searched(&self) -> String {
        format!("{}\n{}\n{}", self.title, self.headings, self.text)
    }
}

/// The passages of a candidate; its snippet where it has no text.
pub(super) fn of<'d>(candidate: usize, of: &'d Candidate) -> Vec<Passage<'d>> {
    let text = match of.markdown.trim().is_empty() {
        true => &of.snippet,
        false => beginning(&of.markdown, MAX_TEXT),
    };
    if tokens::estimate(text) <= SIZE.end {
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
    cut(text).into_iter().filter_map(passage).collect()
}

/// Where to cut: at headings and blank lines once a passage has some size, at line ends when it is full, and within lines
/// that are too long for one.
fn cut(text: &str) -> Vec<Range<usize>> {
    let mut cuts = Vec::new();
    let (mut start, mut end, mut size) = (0, 0, 0);
    let mut after_blank = false;
    for line in text.split_inclusive('\n').flat_map(short) {
        let tokens = tokens::estimate(line);
        let blank = line.trim().is_empty();
        let good_place = line.starts_with('#') || (after_blank && !blank);
        if size > 0 && (size + tokens > SIZE.end || (good_place && size >= SIZE.start)) {
            cuts.push(start..end);
            (start, size) = (end, 0);
        }
        end += line.len();
        size += tokens;
        after_blank = blank;
    }
    cuts.push(start..end);
    cuts
}

/// A line in pieces of which each fits into a passage, cut behind a sentence or a space where there is one.
fn short(line: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = line;
    while rest.len() > SIZE.end && tokens::estimate(rest) > SIZE.end {
        let mut size = 0;
        let mut cut = 0;
        let (mut sentence, mut space) = (None, None);
        let mut before = ' ';
        for (at, character) in rest.char_indices() {
            size += tokens::quarters(character);
            cut = at;
            if size > SIZE.end * 4 {
                break;
            }
            let next = at + character.len_utf8();
            match character {
                '。' | '！' | '？' => sentence = Some(next),
                ' ' if matches!(before, '.' | '!' | '?') => sentence = Some(next),
                ' ' => space = Some(next),
                _ => {}
            }
            before = character;
        }
        let (piece, more) = rest.split_at(sentence.or(space).unwrap_or(cut));
        pieces.push(piece);
        rest = more;
    }
    pieces.push(rest);
    pieces
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

/// The beginning of a text, of at most so many bytes and up to the end of a line.
fn beginning(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    let end = (0..=most).rev().find(|&end| text.is_char_boundary(end));
    let cut = text.get(..end.unwrap_or(0)).unwrap_or_default();
    cut.rsplit_once('\n').map_or(cut, |(lines, _)| lines)
}

/// The headings that are in force.
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
