//! Finds the marks by which a text refers to sources, such as `[1]` or `[2, 5]`.
//!
//! The search runs once over the complete text, so that it does not depend on how the text was split into chunks. A mark
//! counts only if the source exists, and not inside code, where brackets have another meaning.

use crate::openai::citation::{CitedSource, UrlCitation};

/// Longest text between the brackets of a mark, in characters.
const MAX_MARK: usize = 64;
/// Most citations of a text.
const MAX_CITATIONS: usize = 1000;

/// The citations of a text, in its order. Their indexes count Unicode scalar values and include the brackets of the mark.
pub(super) fn find(text: &str, source: impl Fn(u32) -> Option<CitedSource>) -> Vec<UrlCitation> {
    let mut found = Vec::new();
    let mut characters = 0;
    let mut fence: Option<(char, usize)> = None;
    for line in text.split_inclusive('\n') {
        let marker = fence_marker(line);
        match (fence, marker) {
            (None, Some(opened)) => fence = Some(opened),
            (Some((kind, length)), Some((closing, size)))
                if kind == closing && size >= length && is_bare(line, closing) =>
            {
                fence = None;
            }
            (Some(_), _) => {}
            (None, None) => find_in_line(line, characters, &source, &mut found),
        }
        characters += line.chars().count();
        if found.len() >= MAX_CITATIONS {
            found.truncate(MAX_CITATIONS);
            break;
        }
    }
    found
}

/// The character and length of a line that begins or ends a block of code.
fn fence_marker(line: &str) -> Option<(char, usize)> {
    let line = line.trim_start_matches(' ');
    let kind = line
        .chars()
        .next()
        .filter(|first| matches!(first, '`' | '~'))?;
    let length = line.chars().take_while(|one| *one == kind).count();
    // Three backticks that are followed by another backtick on the line are inline code.
    let rest = line.trim_start_matches(kind);
    (length >= 3 && !(kind == '`' && rest.contains('`'))).then_some((kind, length))
}

/// Whether a line has only characters of this kind, as the end of a block must.
fn is_bare(line: &str, kind: char) -> bool {
    line.trim().chars().all(|one| one == kind)
}

/// Adds the citations of one line. `begins` is the index of its first character in the text.
fn find_in_line(
    line: &str,
    begins: usize,
    source: &impl Fn(u32) -> Option<CitedSource>,
    found: &mut Vec<UrlCitation>,
) {
    let characters: Vec<char> = line.chars().collect();
    let mut at = 0;
    while let Some(&character) = characters.get(at) {
        let rest = characters.get(at..).unwrap_or_default();
        at += match character {
            '\\' => 2,
            '`' => code_length(rest),
            '[' | '【' => match mark(rest) {
                Some((length, numbers)) => {
                    let cited = numbers.into_iter().filter_map(source);
                    found.extend(cited.map(|source| UrlCitation {
                        start_index: begins + at,
                        end_index: begins + at + length,
                        title: if source.title.is_empty() {
                            source.url.clone()
                        } else {
                            source.title
                        },
                        url: source.url,
                    }));
                    length
                }
                None => 1,
            },
            _ => 1,
        };
    }
}

/// The length in characters of the inline code that begins here. Without an end it is the length of the opening backticks.
fn code_length(rest: &[char]) -> usize {
    let opening = rest.iter().take_while(|one| **one == '`').count();
    let mut at = opening;
    while at < rest.len() {
        let run = rest.get(at..).unwrap_or_default();
        match run.iter().take_while(|one| **one == '`').count() {
            0 => at += 1,
            closing if closing == opening => return at + closing,
            other => at += other,
        }
    }
    opening
}

/// The length of a mark and the numbers in it, such as `[1]` or `[1, 2]`. A range such as `[1-3]` is not a mark.
fn mark(rest: &[char]) -> Option<(usize, Vec<u32>)> {
    let closing = match rest.first()? {
        '[' => ']',
        _ => '】',
    };
    let inner = rest.get(1..)?;
    let length = inner
        .iter()
        .take(MAX_MARK)
        .position(|one| *one == closing)?;
    let text: String = inner.get(..length)?.iter().collect();
    let number = |part: &str| {
        let part = part.trim();
        let plain = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| part.parse().ok()).flatten()
    };
    let numbers: Option<Vec<u32>> = text.split([',', ';', '、', '，']).map(number).collect();
    Some((length + 2, numbers?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(number: u32) -> Option<CitedSource> {
        (number <= 3 && number > 0).then(|| CitedSource {
            number,
            url: format!("https://example.org/{number}"),
            title: if number == 3 {
                String::new()
            } else {
                format!("Title {number}")
            },
        })
    }

    /// What is marked, as the text has it, and the last digit of the URL.
    fn check(text: &str, expected: &[(&str, char)]) {
        let found = find(text, known);
        let cut = |citation: &UrlCitation| -> String {
            let size = citation.end_index - citation.start_index;
            text.chars().skip(citation.start_index).take(size).collect()
        };
        let found: Vec<(String, char)> = found
            .iter()
            .map(|citation| (cut(citation), citation.url.chars().last().unwrap()))
            .collect();
        let found: Vec<(&str, char)> = found.iter().map(|(text, url)| (&**text, *url)).collect();
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn a_mark_of_a_known_source_is_a_citation() {
        check("Paris [1].", &[("[1]", '1')]);
        check(
            "Paris[1][2], Rom 【3】",
            &[("[1]", '1'), ("[2]", '2'), ("【3】", '3')],
        );
        check(
            "Both [1, 2] and [3;1]",
            &[
                ("[1, 2]", '1'),
                ("[1, 2]", '2'),
                ("[3;1]", '3'),
                ("[3;1]", '1'),
            ],
        );
        check("a [link [1]](x) [[2]]", &[("[1]", '1'), ("[2]", '2')]);
        check("[1](https://example.org/1)", &[("[1]", '1')]);
    }

    #[test]
    fn a_mark_of_an_unknown_source_is_left_alone() {
        check(
            "[4] [0] [99999999999999] [1-3] [a] [] [ ] [1,] [-1] [+1] [1",
            &[],
        );
        check("one of two [2, 9]", &[("[2, 9]", '2')]);
    }

    #[test]
    fn indexes_count_characters_whatever_their_size() {
        check(
            "Zürich 🇨🇭 東京 [1]\n\nПариж [2]\r\n[3]",
            &[("[1]", '1'), ("[2]", '2'), ("[3]", '3')],
        );
        let citation = &find("é🎉[3]", known)[0];
        assert_eq!((citation.start_index, citation.end_index), (2, 5));
        assert_eq!(citation.title, "https://example.org/3");
    }

    #[test]
    fn brackets_in_code_are_no_citations() {
        check("see `a[1]` and ``b`[1]`` but [2]", &[("[2]", '2')]);
        check("a lone ` and [1]", &[("[1]", '1')]);
        check("```py\nx[1]\n``\ny[2]\n```\nthen [3]", &[("[3]", '3')]);
        check("~~~\nx[1]\n```\n~~~~\n[2]", &[("[2]", '2')]);
        check("```\nnever closed [1]", &[]);
        check("```x[1]``` and [2]", &[("[2]", '2')]);
        check(r"\[1] [2]", &[("[2]", '2')]);
    }

    #[test]
    fn a_flood_of_marks_is_bounded() {
        assert_eq!(find(&"[1]\n".repeat(5000), known).len(), MAX_CITATIONS);
        assert_eq!(find(&"[".repeat(100_000), known).len(), 0);
        assert_eq!(find(&"` `` ".repeat(20_000), known).len(), 0);
    }
}
