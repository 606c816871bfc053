//! Cleans, truncates and deduplicates results, and removes results of hosts that the request does not permit.

use std::collections::HashSet;

use url::Url;

use super::markup::{self, Piece};
use super::{Hit, ProviderProblem, ProviderQuery};
use crate::visible::visible;
use crate::{MAX_TITLE_CHARS, MAX_URL_BYTES};

/// Most characters of a snippet; the longest documented one consists of three parts of 500. A longer one is cut.
const MAX_SNIPPET_CHARS: usize = 2_000;
/// Most characters of a page's text; the rest is cut.
const MAX_TEXT_CHARS: usize = 200_000;
/// Most characters of markup that are read for each character of text; the rest is left out.
/// Tried by `provider::tidy::texts_become_plain`.
const MARKUP_FACTOR: usize = 8;

/// The results that may be shown, cleaned.
pub(super) fn tidy(hits: Vec<Hit>, query: &ProviderQuery<'_>) -> Result<Vec<Hit>, ProviderProblem> {
    let found = hits.len();
    let addressed: Vec<(Url, Hit)> = hits
        .into_iter()
        .filter_map(|hit| Some((address(&hit.url)?, hit)))
        .collect();
    if addressed.is_empty() && found > 0 {
        return Err(ProviderProblem::Malformed(
            "none of its results has a web address",
        ));
    }
    let mut seen = HashSet::new();
    Ok(addressed
        .into_iter()
        .filter(|(url, _)| {
            url.host_str()
                .is_some_and(|host| query.domains.permits(host))
        })
        .filter(|(url, _)| seen.insert(identity(url)))
        .map(|(url, hit)| Hit {
            url: url.into(),
            title: plain(&hit.title, MAX_TITLE_CHARS),
            snippet: plain(&hit.snippet, MAX_SNIPPET_CHARS),
            date: hit.date,
            text: hit
                .text
                .map(|text| block(&text, MAX_TEXT_CHARS))
                .filter(|text| !text.trim().is_empty()),
        })
        .take(query.max_results)
        .collect())
}

/// One line of text without markup, entities and invisible characters.
pub(super) fn plain(text: &str, max_chars: usize) -> String {
    let beginning: String = text.chars().take(max_chars * MARKUP_FACTOR).collect();
    let mut collected = String::new();
    markup::fragment(&beginning, |piece| match piece {
        Piece::Text(text) => collected.push_str(text),
        Piece::Open { name, .. } | Piece::Close(name) => {
            if matches!(name, "br" | "p" | "div" | "li" | "td" | "tr") {
                collected.push(' ');
            }
        }
    });
    let seen = visible(&collected);
    let words: Vec<&str> = seen.split_whitespace().collect();
    let line = words.join(" ");
    let mut characters = line.chars();
    let mut short: String = characters.by_ref().take(max_chars).collect();
    if characters.next().is_some() {
        short.truncate(short.trim_end().len());
        short.push('…');
    }
    short
}

/// Several lines of text without invisible characters.
fn block(text: &str, max_chars: usize) -> String {
    let beginning: String = text.chars().take(max_chars).collect();
    visible(&beginning)
}

/// A URL of the web without credentials.
fn address(text: &str) -> Option<Url> {
    if text.len() > MAX_URL_BYTES {
        return None;
    }
    let url = Url::parse(text.trim()).ok()?;
    let usable = matches!(url.scheme(), "http" | "https")
        && url.host_str().is_some_and(|host| !host.is_empty())
        && url.username().is_empty()
        && url.password().is_none();
    usable.then_some(url)
}

/// A key that is equal for two URLs of the same page: without scheme, fragment, trailing slash and tracking parameters.
fn identity(url: &Url) -> String {
    let mut parameters: Vec<(String, String)> = url
        .query_pairs()
        .filter(|(name, _)| !name.starts_with("utm_"))
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect();
    parameters.sort();
    let host = url.host_str().unwrap_or_default().trim_end_matches('.');
    let path = url.path().trim_end_matches('/');
    format!("{host} {:?} {path} {parameters:?}", url.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DomainFilter;

    fn hit(url: &str) -> Hit {
        Hit {
            url: url.to_owned(),
            ..Hit::default()
        }
    }

    fn kept(urls: &[&str], domains: &DomainFilter) -> Vec<String> {
        let query = ProviderQuery {
            query: "",
            max_results: 10,
            freshness: None,
            domains,
            location: None,
        };
        let hits = urls.iter().map(|url| hit(url)).collect();
        let hits = tidy(hits, &query).unwrap();
        hits.into_iter().map(|hit| hit.url).collect()
    }

    #[test]
    fn texts_become_plain() {
        for (text, expected) in [
            ("a <strong>bold</strong>  word", "a bold word"),
            ("1 &lt; 2 &amp;&amp; 3&nbsp;&#x3e; 2", "1 < 2 && 3 > 2"),
            ("a < b and <b", "a < b and"),
            ("one<br>two</p>three", "one two three"),
            ("<script>f()</script><b>x</b>", "f()x"),
            ("\u{200b}hid\u{202e}den\u{e0041} \u{7}text\n", "hidden text"),
            ("می<b>\u{200c}خواهم</b> x&zwnj;y", "می\u{200c}خواهم xy"),
            ("日本\u{feff}語", "日本語"),
            ("&#8203;x&shy;y", "xy"),
            ("<!-- no -->yes", "yes"),
        ] {
            assert_eq!(plain(text, 100), expected, "{text}");
        }
        assert_eq!(plain("äöü äöü", 5), "äöü ä…");
        assert_eq!(plain(&"<i>".repeat(10_000), 10), "");
        assert_eq!(block("a\n\tb\u{0}\u{200b}c", 10), "a\n\tbc");
    }

    #[test]
    fn only_web_addresses_of_permitted_hosts_are_kept() {
        let urls = [
            "https://a.test/x",
            "ftp://a.test/x",
            "javascript:alert(1)",
            "https://user:word@a.test/",
            "/relative",
            "https://sub.b.test/",
            "https://notb.test/",
            "https:///",
        ];
        let all = [
            "https://a.test/x",
            "https://sub.b.test/",
            "https://notb.test/",
        ];
        assert_eq!(kept(&urls, &DomainFilter::default()), all);
        let only = DomainFilter {
            allowed: vec!["b.test".to_owned()],
            blocked: Vec::new(),
        };
        assert_eq!(kept(&urls, &only), ["https://sub.b.test/"]);
        let long = format!("https://a.test/{}", "x".repeat(MAX_URL_BYTES));
        assert_eq!(
            kept(&["https://a.test/", &long], &DomainFilter::default()),
            ["https://a.test/"]
        );
    }

    #[test]
    fn the_same_page_comes_once() {
        let urls = [
            "http://a.test/x/",
            "https://A.test/x#part",
            "https://a.test:443/x?utm_source=y",
            "https://a.test/x?b=1&a=2",
            "https://a.test/x?a=2&b=1",
            "https://a.test:8443/x",
        ];
        assert_eq!(
            kept(&urls, &DomainFilter::default()),
            [
                "http://a.test/x/",
                "https://a.test/x?b=1&a=2",
                "https://a.test:8443/x"
            ]
        );
    }

    #[test]
    fn results_without_urls_are_malformed() {
        let domains = DomainFilter::default();
        let query = ProviderQuery {
            query: "",
            max_results: 10,
            freshness: None,
            domains: &domains,
            location: None,
        };
        let error = tidy(vec![hit("nothing")], &query).unwrap_err();
        assert!(matches!(error, ProviderProblem::Malformed(_)));
        assert_eq!(tidy(Vec::new(), &query), Ok(Vec::new()));
    }
}
