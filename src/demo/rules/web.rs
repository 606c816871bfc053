//! What the scripted model does with the web: it searches, reads a page for the second half of a question, and answers
//! with sentences of what it found, each with the number of its source.

use serde_json::{Value, json};

use super::{Done, Scene};
use crate::tools::web::{READ_PAGE, WEB_SEARCH};

/// Questions with these words are for the web: the pages of the demo are about a town of this name.
const TOPICS: [&str; 6] = [
    "velmouth",
    "lighthouse",
    "gannet head",
    "skarra",
    "search for",
    "search the web",
];

/// Words of a question that say nothing about its answer.
const FILLERS: [&str; 14] = [
    "and", "are", "did", "does", "for", "how", "its", "the", "was", "what", "when", "where",
    "which", "who",
];

/// Most sentences that one search is quoted with.
const MOST_SENTENCES: usize = 2;

/// One source of a tool's result.
#[derive(Debug, PartialEq, Eq)]
struct Source<'a> {
    number: &'a str,
    url: &'a str,
    quoted: Vec<&'a str>,
}

/// A sentence of a source, and how many words of the question it has.
#[derive(Debug)]
struct Sentence<'a> {
    fits: usize,
    text: String,
    source: &'a Source<'a>,
}

impl Scene<'_> {
    /// First the search, then, where the question has a second half, the page of the best source for that.
    pub(super) fn web_call(&self) -> Option<(String, Value)> {
        if !self.asks_for(&TOPICS) {
            return None;
        }
        let (first, second) = halves(&self.ask);
        let (tool, arguments) = match self.results(WEB_SEARCH).next() {
            None => (WEB_SEARCH, json!({"query": first})),
            Some(search) => {
                let find = second.filter(|_| self.results(READ_PAGE).next().is_none())?;
                let sources = sources(&search.result);
                let best = sentences(&sources, first).into_iter().next()?;
                (READ_PAGE, json!({"url": best.source.url, "find": find}))
            }
        };
        self.may_call(tool).then(|| (tool.to_owned(), arguments))
    }

    /// What is said where a search would help and may not be made.
    pub(super) fn no_web(&self) -> Option<String> {
        let missing = self.asks_for(&TOPICS) && !self.may_call(WEB_SEARCH);
        missing
            .then(|| format!("I would search for that, but `{WEB_SEARCH}` is not offered to me."))
    }

    /// What a call of the web brought for the question, with the numbers of the sources.
    pub(super) fn cited(&self, done: &Done<'_>) -> Option<String> {
        let (first, second) = halves(&self.ask);
        let (question, most) = match done.name {
            WEB_SEARCH => (first, MOST_SENTENCES),
            READ_PAGE => (second.unwrap_or(first), 1),
            _ => return None,
        };
        let sources = sources(&done.result);
        let found = sentences(&sources, question);
        let best = found.first()?.fits;
        let lines: Vec<String> = found
            .iter()
            .take_while(|sentence| sentence.fits == best)
            .take(most)
            .map(|sentence| format!("- {} [{}].", sentence.text, sentence.source.number))
            .collect();
        Some(lines.join("\n"))
    }
}

/// “Who built it” and “how tall is it” of “Who built it, and how tall is it?”.
fn halves(ask: &str) -> (&str, Option<&str>) {
    let ask = ask.trim().trim_end_matches('?');
    match ask.split_once(", and ") {
        Some((first, second)) => (first, Some(second)),
        None => (ask, None),
    }
}

/// Takes a result apart: a line with number and title, a line with the address, quoted lines.
fn sources(result: &str) -> Vec<Source<'_>> {
    let mut sources: Vec<Source<'_>> = Vec::new();
    let mut lines = result.lines();
    while let Some(line) = lines.next() {
        if let Some(quoted) = line.strip_prefix("> ") {
            if let Some(source) = sources.last_mut() {
                source.quoted.push(quoted);
            }
        } else if let Some(number) = number(line) {
            sources.push(Source {
                number,
                url: lines.next().unwrap_or_default(),
                quoted: Vec::new(),
            });
        }
    }
    sources
}

fn number(line: &str) -> Option<&str> {
    let (number, _title) = line.strip_prefix('[')?.split_once("] ")?;
    number
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then_some(number)
}

/// The best sentence of every source that has one, best first.
fn sentences<'a>(sources: &'a [Source<'a>], question: &str) -> Vec<Sentence<'a>> {
    let wanted = words(question);
    let best = |source: &'a Source<'a>| {
        let prose = source
            .quoted
            .iter()
            .filter(|line| !line.starts_with(['#', '|', '…']));
        let texts: Vec<String> = prose.map(|line| without_links(line)).collect();
        let mut best: Option<Sentence<'a>> = None;
        for text in texts.iter().flat_map(|text| text.split(". ")) {
            let has = words(text);
            let fits = wanted.iter().filter(|word| has.contains(word)).count();
            if fits > best.as_ref().map_or(0, |best| best.fits) {
                let text = text.trim_end_matches('.').to_owned();
                best = Some(Sentence { fits, text, source });
            }
        }
        best
    };
    let mut found: Vec<Sentence<'a>> = sources.iter().filter_map(best).collect();
    found.sort_by_key(|sentence| std::cmp::Reverse(sentence.fits));
    found
}

/// The words that count, in lower case and each once.
fn words(text: &str) -> Vec<String> {
    let text = text.to_lowercase();
    let mut words: Vec<String> = Vec::new();
    for word in text.split(|character: char| !character.is_alphanumeric()) {
        if word.len() > 2 && !FILLERS.contains(&word) && !words.iter().any(|known| known == word) {
            words.push(word.to_owned());
        }
    }
    words
}

/// Markdown with the texts of its links in place of the links.
fn without_links(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('[') {
        text.push_str(before);
        let link = after.split_once("](").and_then(|(name, target)| {
            let (_, behind) = target.split_once(')')?;
            Some((name, behind))
        });
        rest = match link {
            Some((name, behind)) => {
                text.push_str(name);
                behind
            }
            None => after,
        };
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::{calling, request, result, user};
    use super::super::{LABEL, Turn, decide};
    use super::*;

    const ASK: &str = "Who built the lighthouse of Velmouth, and how tall is its tower?";
    const QUERY: &str = "Who built the lighthouse of Velmouth";
    const FOUND: &str = "3 source(s) for \"…\". Cite a source as [number]. Lines that begin with > are quoted.\n\n\
        [1] A walk (2022-06-19)\nhttp://a.test/walk\n> The lighthouse is white. Dogs are welcome.\n\n\
        [2] The lighthouse\nhttp://a.test/light\n> # The lighthouse of Velmouth\n> It is old. The lighthouse of Velmouth was built by [Ines](http://a.test/ines) Halloran in 1871.\n> | built | lighthouse | Velmouth |\n\n\
        [5] 150 years\nhttp://b.test/\n> The lighthouse that she built for Velmouth is known.\n\nNote: that was all.";

    fn turn(messages: &[Value]) -> Turn {
        let mut request = request(messages);
        for name in [WEB_SEARCH, READ_PAGE] {
            let tool = json!({"type": "function", "function": {"name": name}});
            request["tools"].as_array_mut().unwrap().push(tool);
        }
        decide(&request)
    }

    fn answered(name: &str, arguments: &Value, text: &str) -> [Value; 2] {
        [
            calling(&[(name, arguments.clone())]),
            result(name, arguments, text),
        ]
    }

    #[test]
    fn a_question_is_searched_then_a_page_is_read_then_the_answer_cites_both() {
        let mut messages = vec![user(ASK)];
        let search = json!({"query": QUERY});
        assert_eq!(
            turn(&messages).calls,
            [(WEB_SEARCH.to_owned(), search.clone())]
        );

        messages.extend(answered(WEB_SEARCH, &search, FOUND));
        let read = json!({"url": "http://a.test/light", "find": "how tall is its tower"});
        assert_eq!(
            turn(&messages).calls,
            [(READ_PAGE.to_owned(), read.clone())]
        );

        let page = "[2] The lighthouse\nhttp://a.test/light\nLines …\n> It stands.\n> The tower is 38 metres tall. It has stairs.";
        messages.extend(answered(READ_PAGE, &read, page));
        let last = turn(&messages);
        assert_eq!(last.calls, []);
        let expected = "Here is what I found:\n\
            - The lighthouse of Velmouth was built by Ines Halloran in 1871 [2].\n\
            - The lighthouse that she built for Velmouth is known [5].\n\
            - The tower is 38 metres tall [2].";
        assert_eq!(last.text, format!("{expected}\n\n{LABEL}"));
    }

    #[test]
    fn what_failed_or_found_nothing_is_said_as_it_stands() {
        let search = json!({"query": QUERY});
        for told in ["the search failed", "Nothing was found for \"…\"."] {
            let mut messages = vec![user(ASK)];
            messages.extend(answered(WEB_SEARCH, &search, told));
            let last = turn(&messages);
            assert_eq!(last.calls, []);
            assert!(
                last.text.contains(&format!("- web_search: {told}")),
                "{}",
                last.text
            );
        }
        let mut messages = vec![user(ASK)];
        messages.extend(answered(WEB_SEARCH, &search, FOUND));
        messages.extend(answered(READ_PAGE, &json!({}), "pages cannot be read"));
        let last = turn(&messages);
        for part in ["Halloran in 1871 [2].", "- read_page: pages cannot"] {
            assert!(last.text.contains(part), "{}", last.text);
        }
    }

    #[test]
    fn without_the_tool_the_answer_says_so() {
        let turn = decide(&request(&[user(ASK)]));
        assert_eq!(turn.calls, []);
        assert!(
            turn.text.contains("`web_search` is not offered"),
            "{turn:?}"
        );
    }

    #[test]
    fn only_the_words_of_links_are_left() {
        for (line, expected) in [
            ("no link", "no link"),
            ("[a](b) and [c](d).", "a and c."),
            ("an array[1] of [x", "an array1] of x"),
        ] {
            assert_eq!(without_links(line), expected);
        }
    }
}
