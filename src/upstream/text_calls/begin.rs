//! The place where a call begins in a text.

use super::families::{FAMILIES, Family};
use protocol::openai::raw::quoted;

/// Whether and where a call begins.
pub(super) enum Begin {
    /// A mark of a family begins here.
    Marked(usize, &'static Family),
    /// Bare JSON of a call begins here.
    Bare(usize),
    /// What begins here may become one of both.
    Perhaps(usize),
    None,
}

/// Finds the first begin. `line_start` says whether the text is at the start of a line.
pub(super) fn find_begin(text: &str, mut line_start: bool, offered: &[String]) -> Begin {
    for (place, character) in text.char_indices() {
        let rest = text.get(place..).unwrap_or_default();
        match character {
            '<' | '[' | '{' => {
                let begins = |family: &&Family| family.begins().any(|mark| rest.starts_with(mark));
                if let Some(family) = FAMILIES.iter().find(begins) {
                    return Begin::Marked(place, family);
                }
                let may_begin =
                    |family: &Family| family.begins().any(|mark| mark.starts_with(rest));
                if FAMILIES.iter().any(may_begin) {
                    return Begin::Perhaps(place);
                }
                if line_start && character != '<' {
                    match begin_of_bare(rest, offered) {
                        Some(true) => return Begin::Bare(place),
                        None => return Begin::Perhaps(place),
                        Some(false) => {}
                    }
                }
                line_start = false;
            }
            '\n' => line_start = true,
            _ => line_start &= character.is_whitespace(),
        }
    }
    Begin::None
}

/// Whether the text begins like a bare call of an offered tool; `None` if that is open.
pub(super) fn begin_of_bare(text: &str, offered: &[String]) -> Option<bool> {
    const SHAPES: [&[&str]; 2] = [
        &["{", "\"name\"", ":"],
        &[
            "{",
            "\"type\"",
            ":",
            "\"function\"",
            ",",
            "\"function\"",
            ":",
            "{",
            "\"name\"",
            ":",
        ],
    ];
    let text = match text.strip_prefix('[') {
        Some(list) => list.trim_start(),
        None => text,
    };
    let mut open = false;
    for shape in SHAPES {
        match after_tokens(text, shape) {
            AfterTokens::Open => open = true,
            AfterTokens::Other => {}
            AfterTokens::Rest(rest) => {
                let mut open_name = false;
                for name in offered {
                    let name = quoted(name);
                    if rest.starts_with(&name) {
                        return Some(true);
                    }
                    open_name |= name.starts_with(rest);
                }
                return if open_name { None } else { Some(false) };
            }
        }
    }
    if open { None } else { Some(false) }
}

/// What follows some tokens.
enum AfterTokens<'a> {
    /// The text is too short to tell.
    Open,
    /// The text begins with others.
    Other,
    Rest(&'a str),
}

/// Reads these tokens, between which there may be white space.
fn after_tokens<'a>(mut text: &'a str, tokens: &[&str]) -> AfterTokens<'a> {
    for token in tokens {
        text = text.trim_start();
        match text.strip_prefix(token) {
            Some(rest) => text = rest,
            None if token.starts_with(text) => return AfterTokens::Open,
            None => return AfterTokens::Other,
        }
    }
    AfterTokens::Rest(text.trim_start())
}
