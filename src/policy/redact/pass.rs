//! Replaces each secret in a text by the mark; the text may come whole or in pieces.

use std::borrow::Cow;
use std::ops::Range;

use super::HIDDEN;
use super::shapes::{LineGap, SHORTEST_KEY_LINE, TokenBytes, line_gap};

/// Longest text before a token that decides whether it is one, in bytes. A longer escape is not seen as such.
/// Tried by `redact::a_token_may_follow_an_escape`.
pub(super) const LONGEST_BEFORE: usize = 24;

/// Finds secrets of one kind.
pub(super) trait FindSecret {
    /// The first secret from a place on. Text before that place may decide whether it is one. If the text is not
    /// `whole`, only secrets that no further text can change are found.
    fn next(&self, text: &str, from: usize, whole: bool) -> Finding;
}

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// A secret, and how it continues.
    Secret(Range<usize>, SecretEnd),
    /// There is none. The text up to this place is settled: all of a whole text.
    Settled(usize),
}

/// How a secret continues after the part that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SecretEnd {
    /// It ends here.
    Here,
    /// It continues as long as there are such bytes.
    After(TokenBytes),
    /// It continues with lines of a private key. The last word has had this many bytes.
    KeyLines(usize),
}

impl SecretEnd {
    /// The place where the secret ends in the text. If it does not end, the place up to which it was followed, and how
    /// it continues there.
    fn reach(self, text: &[u8], mut at: usize, whole: bool) -> (usize, Self) {
        let mut end = self;
        while let Some(&byte) = text.get(at) {
            let length = match end {
                Self::After(bytes) if bytes.hold(byte) => 1,
                Self::KeyLines(word) => {
                    let may_part = word == 0 || word >= SHORTEST_KEY_LINE;
                    match line_gap(text, at) {
                        LineGap::Of(length) if may_part => {
                            end = Self::KeyLines(0);
                            length
                        }
                        LineGap::Undecided if may_part && !whole => return (at, end),
                        _ if TokenBytes::Key.hold(byte) => {
                            end = Self::KeyLines(word.saturating_add(1));
                            1
                        }
                        _ => return (at, Self::Here),
                    }
                }
                Self::Here | Self::After(_) => return (at, Self::Here),
            };
            at += length;
        }
        (at, end)
    }
}

/// The bytes with which texts begin.
pub(super) struct FirstBytes([bool; 256]);

impl FirstBytes {
    pub(super) fn of<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut first = [false; 256];
        for byte in texts.into_iter().filter_map(|text| text.bytes().next()) {
            if let Some(is_first) = first.get_mut(usize::from(byte)) {
                *is_first = true;
            }
        }
        Self(first)
    }

    /// Whether one of the texts begins with the first of these bytes.
    pub(super) fn have(&self, bytes: &[u8]) -> bool {
        let first = bytes
            .first()
            .and_then(|&byte| self.0.get(usize::from(byte)));
        first == Some(&true)
    }
}

/// The whole text without secrets.
pub(super) fn whole<'t>(finder: &impl FindSecret, text: &'t str) -> Cow<'t, str> {
    if let Finding::Settled(_) = finder.next(text, 0, true) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    run(finder, text, 0, true, &mut shown);
    Cow::Owned(shown)
}

/// Appends the settled part of the text after `at`, without secrets. Returns how far the text is settled, and how the
/// last secret continues there.
fn run(
    finder: &impl FindSecret,
    text: &str,
    mut at: usize,
    whole: bool,
    shown: &mut String,
) -> (usize, SecretEnd) {
    loop {
        match finder.next(text, at, whole) {
            Finding::Secret(secret, end) => {
                shown.push_str(text.get(at..secret.start).unwrap_or_default());
                shown.push_str(HIDDEN);
                let (reached, end) = end.reach(text.as_bytes(), secret.end, whole);
                at = reached;
                if end != SecretEnd::Here {
                    return (at, end);
                }
            }
            Finding::Settled(settled) => {
                shown.push_str(text.get(at..settled).unwrap_or_default());
                return (settled, SecretEnd::Here);
            }
        }
    }
}

/// What is remembered of a text between its pieces.
#[derive(Default)]
pub(super) struct Pass {
    /// The end of the text: the unsettled part, and the text before it that may decide about it.
    text: String,
    /// How much of it is settled.
    settled: usize,
    /// How the last secret continues.
    end: Option<SecretEnd>,
}

impl Pass {
    /// How much is remembered.
    #[cfg(test)]
    pub(super) fn text_len(&self) -> usize {
        self.text.len()
    }

    /// Adds a piece, and returns the settled text.
    pub(super) fn push(&mut self, finder: &impl FindSecret, piece: &str) -> String {
        self.text.push_str(piece);
        self.advance(finder, false)
    }

    /// Ends the text, and returns the rest of it.
    pub(super) fn finish(&mut self, finder: &impl FindSecret) -> String {
        let rest = self.advance(finder, true);
        *self = Self::default();
        rest
    }

    fn advance(&mut self, finder: &impl FindSecret, whole: bool) -> String {
        let mut shown = String::new();
        let mut end = self.end.unwrap_or(SecretEnd::Here);
        (self.settled, end) = end.reach(self.text.as_bytes(), self.settled, whole);
        if end == SecretEnd::Here {
            (self.settled, end) = run(finder, &self.text, self.settled, whole, &mut shown);
        }
        self.end = Some(end);
        let unused = self.settled.saturating_sub(LONGEST_BEFORE);
        let unused = self.text.floor_char_boundary(unused);
        self.text.drain(..unused);
        self.settled -= unused;
        shown
    }
}
