//! The marks by which a text refers to sources, such as `[1]` or `[2, 5]`, and their form as Markdown links.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// Longest text between the brackets of a mark, in characters. A longer one is no mark.
/// Tried by `citation::mark::a_mark_is_numbers_in_brackets`.
const MAX_MARK: usize = 64;
/// Characters that would end the destination of a Markdown link, or begin other markup in it.
const IN_LINKS: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'(')
    .add(b')')
    .add(b'<')
    .add(b'>')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// What a text begins with.
#[derive(Debug, PartialEq, Eq)]
pub enum MarkScan {
    /// A mark of this many bytes, and the numbers in it.
    Mark(usize, Vec<u32>),
    /// No mark.
    Other,
    /// The beginning of a possible mark.
    Incomplete,
}

/// Reads a mark at the beginning of a text. `ends` says that the text is complete. A range such as `[1-3]` is not a
/// mark.
pub fn scan_mark(text: &str, ends: bool) -> MarkScan {
    let mut characters = text.char_indices();
    let closing = match characters.next() {
        Some((_, '[')) => ']',
        Some((_, '【')) => '】',
        _ => return MarkScan::Other,
    };
    let mut numbers = Some(Vec::new());
    let mut number = String::new();
    for (index, character) in characters.by_ref().take(MAX_MARK + 1) {
        let ended = character == closing;
        if ended || matches!(character, ',' | ';' | '、' | '，') {
            // A number may have white space around it and not in it.
            let parsed = number.trim().parse().ok();
            numbers = numbers.zip(parsed).map(|(mut numbers, parsed)| {
                numbers.push(parsed);
                numbers
            });
            number.clear();
        } else if character.is_ascii_digit() || (character.is_whitespace() && character != '\n') {
            number.push(character);
        } else {
            return MarkScan::Other;
        }
        if ended {
            let length = index + character.len_utf8();
            return numbers.map_or(MarkScan::Other, |numbers| MarkScan::Mark(length, numbers));
        }
    }
    let may_go_on = text.chars().nth(MAX_MARK + 1).is_none();
    match may_go_on && !ends {
        true => MarkScan::Incomplete,
        false => MarkScan::Other,
    }
}

/// The mark of one source as a Markdown link; `None` if the URL is not one of a page.
pub fn mark_link(number: u32, url: &str) -> Option<String> {
    if !(url.starts_with("https://") || url.starts_with("http://")) {
        return None;
    }
    let url = utf8_percent_encode(url, IN_LINKS);
    Some(format!("[[{number}]]({url})"))
}

/// A text in which marks and links of marks have one form. It is for comparison: two texts that differ only in these
/// become equal.
pub fn with_plain_marks(text: &str) -> Cow<'_, str> {
    if !text.contains(['[', '【']) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['[', '【']) {
        let (before, here) = rest.split_at(at);
        plain.push_str(before);
        let found = linked_mark(here).or_else(|| match scan_mark(here, true) {
            MarkScan::Mark(length, numbers) => Some((length, numbers)),
            MarkScan::Other | MarkScan::Incomplete => None,
        });
        let bracket = here.chars().next().map_or(0, char::len_utf8);
        let length = match found {
            Some((length, numbers)) => {
                let marks = numbers.iter().map(|number| format!("[{number}]"));
                plain.extend(marks);
                length
            }
            None => {
                plain.push_str(here.get(..bracket).unwrap_or_default());
                bracket
            }
        };
        rest = here.get(length..).unwrap_or_default();
    }
    plain.push_str(rest);
    Cow::Owned(plain)
}

/// The length and the numbers of a mark that is a link, at the beginning of a text.
fn linked_mark(text: &str) -> Option<(usize, Vec<u32>)> {
    let MarkScan::Mark(length, numbers) = scan_mark(text.strip_prefix('[')?, true) else {
        return None;
    };
    let destination = text.get(1 + length..)?.strip_prefix("](")?;
    let end = destination.find([')', '\n'])?;
    destination.get(end..)?.strip_prefix(')')?;
    Some((1 + length + 2 + end + 1, numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_numbers_in_brackets() {
        for (text, expected) in [
            ("[1] rest", MarkScan::Mark(3, vec![1])),
            ("[ 2,5 ]", MarkScan::Mark(7, vec![2, 5])),
            ("【3；", MarkScan::Other),
            ("【3、4】", MarkScan::Mark(11, vec![3, 4])),
            ("[1-3]", MarkScan::Other),
            ("[1 2]", MarkScan::Other),
            ("[]", MarkScan::Other),
            ("[1,]", MarkScan::Other),
            ("[99999999999]", MarkScan::Other),
            ("[1\n]", MarkScan::Other),
            ("x", MarkScan::Other),
            ("[", MarkScan::Incomplete),
            ("[12, ", MarkScan::Incomplete),
            (&format!("[{}", " ".repeat(64)), MarkScan::Incomplete),
            (&format!("[{}", " ".repeat(65)), MarkScan::Other),
        ] {
            assert_eq!(scan_mark(text, false), expected, "{text:?}");
            let ended = match expected {
                MarkScan::Incomplete => MarkScan::Other,
                known => known,
            };
            assert_eq!(scan_mark(text, true), ended, "{text:?}");
        }
    }

    #[test]
    fn no_url_ends_its_link_early() {
        for (url, link) in [
            (
                "https://a.test/?q=1&r=2#x",
                Some("[[7]](https://a.test/?q=1&r=2#x)"),
            ),
            (
                "https://a.test/Oslo_(city)|`x`",
                Some("[[7]](https://a.test/Oslo_%28city%29%7C%60x%60)"),
            ),
            (
                "http://a.test/a b\n[c](d)",
                Some("[[7]](http://a.test/a%20b%0A%5Bc%5D%28d%29)"),
            ),
            ("javascript:alert(1)", None),
            ("data:text/html,x", None),
        ] {
            assert_eq!(mark_link(7, url).as_deref(), link, "{url:?}");
        }
    }

    #[test]
    fn marks_and_their_links_compare_as_equal() {
        for (text, plain) in [
            ("no mark", "no mark"),
            ("a [1] and [2, 3]", "a [1] and [2][3]"),
            (
                "a [[1]](https://a.test/%28) and [[2]](u)[[3]](v)",
                "a [1] and [2][3]",
            ),
            ("【1】", "[1]"),
            (
                "[a](b) [[x]](y) [[1]] [[1]](open",
                "[a](b) [[x]](y) [[1]] [[1]](open",
            ),
        ] {
            assert_eq!(with_plain_marks(text), plain, "{text:?}");
        }
    }
}
