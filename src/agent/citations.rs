//! The citations of an answer: the sources to which the marks in its text, such as `[1]` or `[2, 5]`, refer.
//!
//! A mark counts only if its source exists.

mod scan;

use serde::{Deserialize, Serialize};

use self::scan::{MarkPiece, MarkScanner};
use protocol::openai::citation::{CitedSource, UrlCitation, mark_link};

/// Most citations of a text; others are left out.
/// Tried by `citations::a_flood_of_marks_is_bounded`.
const MAX_CITATIONS: usize = 1000;

/// The citations of a text, in its order. Their indexes count Unicode scalar values and include the brackets of the mark.
pub(super) fn find(text: &str, source: impl Fn(u32) -> Option<CitedSource>) -> Vec<UrlCitation> {
    let mut found = Vec::new();
    let mut at = 0;
    MarkScanner::default().push(text, true, |piece| {
        let (text, numbers) = match piece {
            MarkPiece::Text(text) => (text, Vec::new()),
            MarkPiece::Mark { text, numbers, .. } => (text, numbers),
        };
        let end = at + text.chars().count();
        if found.len() < MAX_CITATIONS {
            let cited = numbers.into_iter().filter_map(&source);
            found.extend(cited.map(|source| citation(source, at, end)));
        }
        at = end;
    });
    found.truncate(MAX_CITATIONS);
    found
}

fn citation(source: CitedSource, start_index: usize, end_index: usize) -> UrlCitation {
    UrlCitation {
        start_index,
        end_index,
        title: match source.title.is_empty() {
            true => source.url.clone(),
            false => source.title,
        },
        url: source.url,
    }
}

/// Writes the marks of a text that arrives in pieces as Markdown links to their sources.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct CitationLinks {
    #[serde(skip)]
    scanner: MarkScanner,
    /// Characters of the text with its links so far.
    written: usize,
    /// The citations so far. Their indexes count in the text with its links.
    found: Vec<UrlCitation>,
}

impl CitationLinks {
    /// Adds text, and returns the part that can be sent now. `ends` says that the line ends after it.
    pub(super) fn push(
        &mut self,
        text: &str,
        ends: bool,
        source: impl Fn(u32) -> Option<CitedSource>,
    ) -> String {
        let mut linked = String::with_capacity(text.len());
        let (written, found) = (&mut self.written, &mut self.found);
        self.scanner.push(text, ends, |piece| match piece {
            MarkPiece::Text(text) => {
                *written += text.chars().count();
                linked.push_str(text);
            }
            MarkPiece::Mark {
                text,
                numbers,
                is_link,
            } => {
                let cited: Vec<_> = numbers.iter().map(|number| source(*number)).collect();
                let none = cited.iter().all(Option::is_none);
                if none || is_link || found.len() >= MAX_CITATIONS {
                    let end = *written + text.chars().count();
                    if found.len() < MAX_CITATIONS {
                        let cited = cited.into_iter().flatten();
                        found.extend(cited.map(|source| citation(source, *written, end)));
                    }
                    *written = end;
                    linked.push_str(text);
                    return;
                }
                for (number, source) in numbers.iter().zip(cited) {
                    let link = source.as_ref();
                    let link = link.and_then(|source| mark_link(*number, &source.url));
                    let link = link.unwrap_or_else(|| format!("[{number}]"));
                    let end = *written + link.chars().count();
                    found.extend(source.map(|source| citation(source, *written, end)));
                    *written = end;
                    linked.push_str(&link);
                }
            }
        });
        linked
    }

    /// The citations of this text and of a second text that begins `between` characters after it.
    pub(super) fn and(mut self, later: &Self, between: usize) -> Self {
        let start = self.written + between;
        let moved = later.found.iter().map(|one| UrlCitation {
            start_index: one.start_index + start,
            end_index: one.end_index + start,
            ..one.clone()
        });
        self.found.extend(moved);
        self.written = start + later.written;
        self
    }

    /// Characters of the text with its links so far.
    pub(super) fn written(&self) -> usize {
        self.written
    }

    /// The citations so far.
    pub(super) fn found(&self) -> &[UrlCitation] {
        &self.found
    }

    /// The citations of the text, in its order.
    pub(super) fn take_found(&mut self) -> Vec<UrlCitation> {
        std::mem::take(&mut self.found)
    }
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

    /// The text with links, and what its citations enclose.
    fn linked(parts: &[&str]) -> (String, Vec<String>) {
        let mut links = CitationLinks::default();
        let mut text = String::new();
        for (index, part) in parts.iter().enumerate() {
            text.push_str(&links.push(part, index + 1 == parts.len(), known));
        }
        let cut = |citation: &UrlCitation| -> String {
            let size = citation.end_index - citation.start_index;
            text.chars().skip(citation.start_index).take(size).collect()
        };
        let cited = links.take_found().iter().map(cut).collect();
        (text, cited)
    }

    #[test]
    fn each_mark_of_a_known_source_becomes_a_link() {
        let one = "[[1]](https://example.org/1)";
        let two = "[[2]](https://example.org/2)";
        for (text, expected, cited) in [
            ("é [1].", format!("é {one}."), vec![one]),
            ("a [2, 1]", format!("a {two}{one}"), vec![two, one]),
            ("a 【1】", format!("a {one}"), vec![one]),
            ("[2, 9] [9]", format!("{two}[9] [9]"), vec![two]),
            ("[1](x)", format!("{one}(x)"), vec![one]),
            (
                "[[2]](x) [[1]]",
                format!("[[2]](x) [{one}]"),
                vec!["[2]", one],
            ),
            ("`[1]` [1]", format!("`[1]` {one}"), vec![one]),
        ] {
            let (found, ranges) = linked(&[text]);
            assert_eq!(
                (found.as_str(), ranges),
                (
                    expected.as_str(),
                    cited.iter().map(ToString::to_string).collect()
                ),
                "{text:?}"
            );
            let letters: Vec<String> = text.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            assert_eq!(linked(&letters).0, expected, "letter by letter");
        }
    }

    #[test]
    fn a_flood_of_marks_is_bounded() {
        assert_eq!(linked(&["[1, 2]\n"; 2000]).1.len(), MAX_CITATIONS);
        assert_eq!(find(&"[1]\n".repeat(5000), known).len(), MAX_CITATIONS);
        assert_eq!(find(&"[".repeat(100_000), known).len(), 0);
        assert_eq!(find(&"` `` ".repeat(20_000), known).len(), 0);
    }
}
