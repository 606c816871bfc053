//! Tests of successful answers.
//!
//! The fixtures have the shapes of: SearXNG `searx/webutils.py` (`get_json_response`) and `docs/dev/search_api.rst`;
//! Brave's web search types and error objects (`brave/brave-search-mcp-server`, API dashboard); Tavily's reference of
//! `POST /search` and its Python SDK; Exa's published description (`exa-labs/openapi-spec`) and its list of error codes;
//! Serper's documented example answer; DuckDuckGo's HTML page as SearXNG's engine and deedy5/ddgs read it.

use super::*;
use crate::provider::duckduckgo;

fn hit(url: &str, title: &str, snippet: &str, date: Option<&str>) -> Hit {
    Hit {
        url: url.to_owned(),
        title: title.to_owned(),
        snippet: snippet.to_owned(),
        date: date.map(str::to_owned),
        text: None,
    }
}

const HARBOUR: &str = "https://seals.example.org/harbour";
const COAST: &str = "https://coast.example.net/seals";

async fn hits(kind: ProviderKind) -> Vec<Hit> {
    let (outcome, requests) = outcome(kind, [FakeReply::good(good(kind))]).await;
    assert_eq!(requests, 1);
    outcome.unwrap()
}

#[tokio::test]
async fn searxng_hits_come_once_with_their_dates() {
    assert_eq!(
        hits(ProviderKind::SearXng).await,
        [
            hit(
                "https://seals.example.org/harbour?utm_source=engine",
                "Harbour seals",
                "The harbour seal, also called the common seal, lives along northern coasts.",
                Some("2025-03-09"),
            ),
            hit(
                COAST,
                "Seals of the coast",
                "Where to see seals, and how far to stay away from them.",
                None,
            ),
        ]
    );
}

#[tokio::test]
async fn brave_hits_are_plain_text() {
    assert_eq!(
        hits(ProviderKind::Brave).await,
        [
            hit(
                HARBOUR,
                "Harbour seals & grey seals",
                "How to tell harbour seals from grey seals. Harbour seals have a V-shaped nose.",
                Some("2025-02-11"),
            ),
            hit(COAST, "Seals of the coast", "Where to see seals.", None),
        ]
    );
}

#[tokio::test]
async fn tavily_hits_bring_the_text_of_their_pages() {
    let first = Hit {
        text: Some(
            "# Harbour seals\n\nThe harbour seal lives along northern coasts.\n\nIt rests on sandbanks."
                .to_owned(),
        ),
        ..hit(
            HARBOUR,
            "Harbour seals",
            "The harbour seal lives along northern coasts. [...] It rests on sandbanks.",
            Some("2025-02-11"),
        )
    };
    let second = hit(COAST, "Seals of the coast", "Where to see seals.", None);
    assert_eq!(hits(ProviderKind::Tavily).await, [first, second]);
}

#[tokio::test]
async fn exa_hits_take_their_snippet_from_highlights_or_text() {
    let first = Hit {
        text: Some("Harbour seals\n\nThe harbour seal lives along northern coasts.".to_owned()),
        ..hit(
            HARBOUR,
            "Harbour seals",
            "The harbour seal lives along northern coasts.",
            Some("2023-11-16"),
        )
    };
    let second = Hit {
        text: Some("Where to see seals.".to_owned()),
        ..hit(COAST, "", "Where to see seals.", None)
    };
    assert_eq!(hits(ProviderKind::Exa).await, [first, second]);
}

#[tokio::test]
async fn serper_hits_are_the_organic_results() {
    assert_eq!(
        hits(ProviderKind::Serper).await,
        [
            hit(
                HARBOUR,
                "Harbour seals",
                "The harbour seal lives along northern coasts ...",
                Some("2025-02-11"),
            ),
            hit(COAST, "Seals of the coast", "Where to see seals.", None),
        ]
    );
}

#[tokio::test]
async fn duckduckgo_hits_are_unwrapped_and_free_of_advertisements() {
    assert_eq!(
        hits(ProviderKind::DuckDuckGo).await,
        [
            hit(
                "https://seals.example.org/harbour?a=1&b=2",
                "Harbour seals & the <coast>",
                "The harbour seal lives along northern coasts.",
                None,
            ),
            hit(COAST, "Seals of the coast", "Where to see seals.", None),
        ]
    );
}

#[test]
fn an_advertisement_behind_a_redirect_is_left_out() {
    let page = r#"<div id="links"><div class="result web-result">
        <a class="result__a" href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fduckduckgo.com%2Fy.js%3Fad_domain%3Dx">Ad</a>
        </div><div class="result web-result"><a class="result__a" href="/relative">Odd</a></div></div>"#;
    let hits = duckduckgo::read(page.as_bytes()).unwrap();
    let urls: Vec<&str> = hits.iter().map(|hit| hit.url.as_str()).collect();
    assert_eq!(urls, Vec::<&str>::new());
}

#[tokio::test]
async fn an_answer_without_results_is_no_error() {
    for kind in ProviderKind::ALL {
        let outcome = outcome(kind, [FakeReply::good(empty(kind))]).await;
        assert_eq!(outcome, (Ok(Vec::new()), 1), "{kind:?}");
    }
}

#[tokio::test]
async fn hits_outside_the_permitted_hosts_are_dropped_whatever_the_provider_sends() {
    for kind in ProviderKind::ALL {
        let fake = Fake::start(kind, [FakeReply::good(good(kind))]).await;
        let domains = DomainFilter {
            allowed: vec!["example.net".to_owned(), "example.org".to_owned()],
            blocked: vec!["seals.example.org".to_owned()],
        };
        let lookup = ProviderQuery {
            domains: &domains,
            ..LOOKUP
        };
        let hits = ask_with(&fake, &lookup, PageTexts::Unwanted, |_| {}).await;
        let urls: Vec<String> = hits.unwrap().into_iter().map(|hit| hit.url).collect();
        assert_eq!(urls, [COAST], "{kind:?}");
    }
}

#[tokio::test]
async fn no_more_hits_than_asked_for_come_out() {
    for kind in ProviderKind::ALL {
        let fake = Fake::start(kind, [FakeReply::good(good(kind))]).await;
        let lookup = ProviderQuery {
            max_results: 1,
            ..LOOKUP
        };
        let hits = ask_with(&fake, &lookup, PageTexts::Unwanted, |_| {}).await;
        assert_eq!(hits.unwrap().len(), 1, "{kind:?}");
    }
}
