//! Finds tokens of vendors by their shape.
//!
//! A search for the beginnings of all shapes gives the places where a token may stand. Only there the rest is looked
//! at, from left to right and no further than a bound. So the time is linear, and it is known of each place whether
//! further text could still make it a token.

use std::cell::LazyCell;

use aho_corasick::{AhoCorasick, Input, MatchKind};

use super::pass::{FindSecret, Finding, FirstBytes, LONGEST_BEFORE, SecretEnd};
use super::shapes::{
    Before, LONGEST_KEY_GAP, LONGEST_KEY_LABEL, LineGap, OPEN, SHAPES, SHORTEST_KEY_LINE,
    TokenBytes, TokenRest, VendorShape, line_gap,
};

/// Shortest number before the colon of a Telegram token, in digits. Behind a shorter one there is no token.
/// Tried by `redact::harmless_texts_are_not_changed`.
const LEAST_DIGITS: usize = 6;

/// The shapes of all vendors.
pub(super) struct VendorTokens {
    /// Finds the beginnings; `None` if it could not be built, and then nothing is found.
    begins: Option<AhoCorasick>,
    longest: usize,
    first: FirstBytes,
}

/// Whether a token stands at a place.
#[derive(Debug, PartialEq, Eq)]
enum Looked {
    /// Yes. The range counts in bytes from the end of the shape's beginning.
    Token {
        hidden_from: usize,
        to: usize,
        end: SecretEnd,
    },
    /// Further text decides.
    Undecided,
    No,
}

impl VendorTokens {
    pub(super) fn new() -> Self {
        let begins = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(SHAPES.iter().map(|shape| shape.begins));
        let lengths = SHAPES.iter().map(|shape| shape.begins.len());
        Self {
            begins: begins.ok(),
            longest: lengths.max().unwrap_or_default(),
            first: FirstBytes::of(SHAPES.iter().map(|shape| shape.begins)),
        }
    }

    /// Whether the beginnings are found at all.
    #[cfg(test)]
    pub(super) fn are_found(&self) -> bool {
        self.begins.is_some()
    }

    /// Up to where no beginning of a shape stands that further text may complete.
    fn settled(&self, text: &[u8], from: usize, whole: bool) -> usize {
        if whole {
            return text.len();
        }
        let longest_begun = self.longest.saturating_sub(1);
        let earliest = from.max(text.len().saturating_sub(longest_begun));
        let begun = (earliest..text.len()).find(|&at| {
            let end = text.get(at..).unwrap_or_default();
            let is_begun = |shape: &VendorShape| {
                let begins = shape.begins.as_bytes();
                begins.len() > end.len()
                    && begins.starts_with(end)
                    && may_follow(shape.before, text, at)
            };
            self.first.have(end) && SHAPES.iter().any(is_begun)
        });
        begun.unwrap_or(text.len())
    }
}

impl FindSecret for VendorTokens {
    fn next(&self, text: &str, from: usize, whole: bool) -> Finding {
        let bytes = text.as_bytes();
        let settled = LazyCell::new(|| self.settled(bytes, from, whole));
        let Some(begins) = &self.begins else {
            return Finding::Settled(*settled);
        };
        let mut at = from;
        while let Some(found) = begins.find(Input::new(text).range(at..)) {
            let start = found.start();
            if start + self.longest > text.len() && start >= *settled {
                break;
            }
            at = start + 1;
            let Some(shape) = SHAPES.get(found.pattern().as_usize()) else {
                continue;
            };
            if !may_follow(shape.before, bytes, start) {
                continue;
            }
            let rest = bytes.get(found.end()..).unwrap_or_default();
            match look(shape, rest, whole) {
                Looked::Token {
                    hidden_from,
                    to,
                    end,
                } => {
                    let start = if shape.begin_is_shown {
                        found.end() + hidden_from
                    } else {
                        start
                    };
                    return Finding::Secret(start..found.end() + to, end);
                }
                Looked::Undecided => return Finding::Settled(start),
                Looked::No => {}
            }
        }
        Finding::Settled(*settled)
    }
}

/// Whether the text before a place allows a token to begin there.
fn may_follow(before: Before, text: &[u8], at: usize) -> bool {
    let text = text.get(..at).unwrap_or_default();
    let earliest = text.len().saturating_sub(LONGEST_BEFORE);
    let text = text.get(earliest..).unwrap_or_default();
    match before {
        Before::Anything => true,
        Before::NoWord => !ends_with_word(text),
        Before::NoWordOrDash => !ends_with_word(text) && text.last() != Some(&b'-'),
        Before::Digits => {
            let digits = text.iter().rev().take_while(|byte| byte.is_ascii_digit());
            digits.count() >= LEAST_DIGITS
        }
    }
}

/// Whether the text ends within a word. The last letter of an escape is not of a word: `\n` and `\u0022` in JSON,
/// `%3D` in URLs, and the colours of a terminal.
fn ends_with_word(text: &[u8]) -> bool {
    let Some((&last, rest)) = text.split_last() else {
        return false;
    };
    if !TokenBytes::is_word(last) {
        return false;
    }
    let hex = |count: usize| -> Option<&[u8]> {
        let (before, digits) = text.split_at_checked(text.len().checked_sub(count)?)?;
        digits.iter().all(u8::is_ascii_hexdigit).then_some(before)
    };
    let after_hex = hex(2).is_some_and(|before| before.ends_with(b"%") || before.ends_with(b"\\x"))
        || hex(4).is_some_and(|before| before.ends_with(b"\\u"));
    !(after_hex || rest.ends_with(b"\\") || (last.is_ascii_alphabetic() && sets_colour(rest)))
}

/// Whether the text ends with the beginning of a terminal's escape: `ESC [ 31`, where the `ESC` may be escaped itself.
fn sets_colour(text: &[u8]) -> bool {
    let is_number = |byte: &u8| byte.is_ascii_digit() || *byte == b';';
    let numbers = text.iter().rev().take_while(|byte| is_number(byte)).count();
    let before = text.get(..text.len() - numbers).unwrap_or_default();
    [&b"\x1b["[..], b"x1b[", b"u001b[", b"u001B[", b"\\e["]
        .iter()
        .any(|escape| before.ends_with(escape))
}

/// Checks the text after the beginning of a shape.
fn look(shape: &VendorShape, rest: &[u8], whole: bool) -> Looked {
    match shape.rest {
        TokenRest::Runs(bytes, runs) => look_at_runs(shape, (bytes, runs), rest, whole),
        TokenRest::PrivateKey => look_at_key(rest, whole),
    }
}

fn look_at_runs(
    shape: &VendorShape,
    (bytes, runs): (TokenBytes, &[(usize, usize)]),
    rest: &[u8],
    whole: bool,
) -> Looked {
    let (mut at, mut end) = (0, SecretEnd::Here);
    for (index, &(least, most)) in runs.iter().enumerate() {
        if index > 0 {
            match rest.get(at) {
                Some(b'.') => at += 1,
                _ => return Looked::No,
            }
        }
        let is_open = most == OPEN;
        let enough = if is_open { least } else { most + 1 };
        let length = count(bytes, rest, at, enough);
        at += length;
        if at == rest.len() && !whole && length < enough {
            return Looked::Undecided;
        }
        if length < least || length > most {
            return Looked::No;
        }
        if is_open {
            end = SecretEnd::After(bytes);
        }
    }
    let token = rest.get(..at).unwrap_or_default();
    let goes_on = end == SecretEnd::Here && rest.get(at).copied().is_some_and(TokenBytes::is_word);
    if goes_on || (shape.is_mixed && !is_mixed(token)) || is_example(token) {
        return Looked::No;
    }
    Looked::Token {
        hidden_from: 0,
        to: at,
        end,
    }
}

/// How many such bytes there are from a place on, up to a number.
fn count(bytes: TokenBytes, text: &[u8], at: usize, most: usize) -> usize {
    let text = text.get(at..).unwrap_or_default().iter().take(most);
    text.take_while(|byte| bytes.hold(**byte)).count()
}

/// Whether the token is one of the examples in AWS's documents.
fn is_example(token: &[u8]) -> bool {
    let example = b"EXAMPLE";
    token.windows(example.len()).any(|part| part == example)
}

/// Whether the token looks random: words and rows of one letter have neither digits nor letters in both cases.
fn is_mixed(token: &[u8]) -> bool {
    token.iter().any(u8::is_ascii_digit)
        || (token.iter().any(u8::is_ascii_lowercase) && token.iter().any(u8::is_ascii_uppercase))
}

/// A private key in PEM: the rest of its first line, and at least one line of it.
fn look_at_key(rest: &[u8], whole: bool) -> Looked {
    let ends = |at: usize| at == rest.len() && !whole;
    let label = count(TokenBytes::Label, rest, 0, LONGEST_KEY_LABEL);
    if ends(label) && label < LONGEST_KEY_LABEL {
        return Looked::Undecided;
    }
    let (name, after) = rest.split_at_checked(label).unwrap_or_default();
    if !name.ends_with(b"PRIVATE KEY") && !name.ends_with(b"PRIVATE KEY BLOCK") {
        return Looked::No;
    }
    let dashes = b"-----";
    if after.len() < dashes.len() && dashes.starts_with(after) && !whole {
        return Looked::Undecided;
    }
    if !after.starts_with(dashes) {
        return Looked::No;
    }
    let hidden_from = label + dashes.len();
    let mut line = hidden_from;
    while line < hidden_from + LONGEST_KEY_GAP {
        match line_gap(rest, line) {
            LineGap::Of(length) => line += length,
            LineGap::Undecided if !whole => return Looked::Undecided,
            LineGap::Undecided | LineGap::Nothing => break,
        }
    }
    let length = count(TokenBytes::Key, rest, line, SHORTEST_KEY_LINE);
    let to = line + length;
    if length == SHORTEST_KEY_LINE {
        let end = SecretEnd::KeyLines(length);
        Looked::Token {
            hidden_from,
            to,
            end,
        }
    } else if ends(to) {
        Looked::Undecided
    } else {
        Looked::No
    }
}
