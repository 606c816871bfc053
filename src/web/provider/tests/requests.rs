//! Tests of requests. The fakes refuse undocumented fields; these tests check the values.

use serde_json::{Value, json};

use super::*;
use crate::date::days_ago;
use crate::provider::fake::SeenRequest;

/// The request for a query.
async fn request(kind: ProviderKind, lookup: &ProviderQuery<'_>, texts: PageTexts) -> SeenRequest {
    let fake = Fake::start(kind, [FakeReply::good(empty(kind))]).await;
    ask_with(&fake, lookup, texts, |_| {}).await.unwrap();
    fake.requests().remove(0)
}

/// The request for a query with all options.
async fn full(kind: ProviderKind) -> SeenRequest {
    let domains = DomainFilter {
        allowed: vec!["one.test".to_owned(), "two.test".to_owned()],
        blocked: vec!["bad.two.test".to_owned()],
    };
    let location = Location {
        country: Some("DE".to_owned()),
        ..Location::default()
    };
    let lookup = ProviderQuery {
        query: "!g  seals &\nq=x",
        max_results: 15,
        freshness: Some(Freshness::Week),
        domains: &domains,
        location: Some(&location),
    };
    request(kind, &lookup, PageTexts::Wanted).await
}

fn parameters(request: &SeenRequest) -> Vec<(&str, &str)> {
    request
        .parameters
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect()
}

const SITES: &str = "(site:one.test OR site:two.test) -site:bad.two.test";

#[tokio::test]
async fn searxng_is_asked_for_json() {
    let plain = request(ProviderKind::SearXng, &LOOKUP, PageTexts::Unwanted).await;
    assert_eq!(
        parameters(&plain),
        [("q", "harbour seals"), ("format", "json")]
    );
    let query = format!("g seals & q=x {SITES}");
    assert_eq!(
        parameters(&full(ProviderKind::SearXng).await),
        [
            ("q", query.as_str()),
            ("format", "json"),
            ("language", "de-DE"),
            ("time_range", "week"),
        ]
    );
}

#[tokio::test]
async fn brave_is_asked_for_web_results() {
    let plain = request(ProviderKind::Brave, &LOOKUP, PageTexts::Unwanted).await;
    let always = [("result_filter", "web"), ("text_decorations", "false")];
    assert_eq!(
        parameters(&plain),
        [&[("q", "harbour seals"), ("count", "10")], &always[..]].concat()
    );
    let query = format!("!g seals & q=x {SITES}");
    assert_eq!(
        parameters(&full(ProviderKind::Brave).await),
        [
            &[("q", query.as_str()), ("count", "15")],
            &always[..],
            &[("country", "DE"), ("freshness", "pw")],
        ]
        .concat()
    );
}

#[tokio::test]
async fn tavily_filters_hosts_itself() {
    let plain = request(ProviderKind::Tavily, &LOOKUP, PageTexts::Unwanted).await;
    assert_eq!(
        plain.json(),
        json!({"query": "harbour seals", "max_results": 10, "search_depth": "basic", "topic": "general"})
    );
    assert_eq!(
        full(ProviderKind::Tavily).await.json(),
        json!({
            "query": "!g seals & q=x",
            "max_results": 15,
            "search_depth": "basic",
            "topic": "general",
            "include_raw_content": "markdown",
            "time_range": "week",
            "include_domains": ["one.test", "two.test"],
            "exclude_domains": ["bad.two.test"],
        })
    );
}

#[tokio::test]
async fn exa_is_asked_from_a_date_on() {
    let plain = request(ProviderKind::Exa, &LOOKUP, PageTexts::Unwanted).await;
    assert_eq!(
        plain.json(),
        json!({
            "query": "harbour seals",
            "type": "auto",
            "numResults": 10,
            "contents": {"highlights": {"maxCharacters": 600}},
        })
    );
    let before = days_ago(7).unwrap();
    let mut body = full(ProviderKind::Exa).await.json();
    let after = days_ago(7).unwrap();
    let since = body["startPublishedDate"].take();
    let expected = [before, after].map(|day| json!(format!("{day}T00:00:00.000Z")));
    assert!(expected.contains(&since), "{since}");
    assert_eq!(
        body,
        json!({
            "query": "!g seals & q=x",
            "type": "auto",
            "numResults": 15,
            "contents": {"text": {"maxCharacters": 40_000}},
            "startPublishedDate": Value::Null,
            "userLocation": "DE",
            "includeDomains": ["one.test", "two.test"],
            "excludeDomains": ["bad.two.test"],
        })
    );
}

#[tokio::test]
async fn serper_is_asked_like_google() {
    let plain = request(ProviderKind::Serper, &LOOKUP, PageTexts::Unwanted).await;
    assert_eq!(plain.json(), json!({"q": "harbour seals", "num": 10}));
    let query = format!("!g seals & q=x {SITES}");
    assert_eq!(
        full(ProviderKind::Serper).await.json(),
        json!({"q": query, "num": 15, "gl": "de", "tbs": "qdr:w"})
    );
}

#[tokio::test]
async fn duckduckgo_is_asked_by_its_form() {
    let plain = request(ProviderKind::DuckDuckGo, &LOOKUP, PageTexts::Unwanted).await;
    assert_eq!(
        parameters(&plain),
        [("q", "harbour seals"), ("b", ""), ("kl", "wt-wt")]
    );
    assert_eq!(plain.header("accept"), Some("text/html"));
    let query = format!("g seals & q=x {SITES}");
    assert_eq!(
        parameters(&full(ProviderKind::DuckDuckGo).await),
        [
            ("q", query.as_str()),
            ("b", ""),
            ("kl", "de-de"),
            ("df", "w"),
        ]
    );
}

#[tokio::test]
async fn each_freshness_has_its_word() {
    let words = |kind: ProviderKind| match kind {
        ProviderKind::SearXng | ProviderKind::Tavily => ["day", "week", "month", "year"],
        ProviderKind::Brave => ["pd", "pw", "pm", "py"],
        ProviderKind::Serper => ["qdr:d", "qdr:w", "qdr:m", "qdr:y"],
        ProviderKind::DuckDuckGo => ["d", "w", "m", "y"],
        ProviderKind::Exa => [""; 4],
    };
    let all = [
        Freshness::Day,
        Freshness::Week,
        Freshness::Month,
        Freshness::Year,
    ];
    for kind in ProviderKind::ALL {
        for (freshness, word) in all.into_iter().zip(words(kind)) {
            let lookup = ProviderQuery {
                freshness: Some(freshness),
                ..LOOKUP
            };
            let request = request(kind, &lookup, PageTexts::Unwanted).await;
            let sent = match kind {
                ProviderKind::SearXng => request.parameter("time_range").unwrap().to_owned(),
                ProviderKind::Brave => request.parameter("freshness").unwrap().to_owned(),
                ProviderKind::DuckDuckGo => request.parameter("df").unwrap().to_owned(),
                ProviderKind::Tavily => request.json()["time_range"].as_str().unwrap().to_owned(),
                ProviderKind::Serper => request.json()["tbs"].as_str().unwrap().to_owned(),
                ProviderKind::Exa => continue,
            };
            assert_eq!(sent, word, "{kind:?}");
        }
    }
}

#[tokio::test]
async fn a_long_query_is_cut_to_what_the_provider_reads() {
    let long = "seal ".repeat(1_000);
    for kind in ProviderKind::ALL {
        let lookup = ProviderQuery {
            query: &long,
            ..LOOKUP
        };
        // The fakes refuse queries that are longer than documented.
        let request = request(kind, &lookup, PageTexts::Unwanted).await;
        let text = format!("{:?} {}", request.parameters, request.body);
        assert!(
            text.contains("seal seal") || text.contains("seal+seal"),
            "{text}"
        );
        let settings = Fake::start(kind, []).await.settings();
        let provider = Provider::new(&settings, PageTexts::Unwanted).unwrap();
        assert!(provider.reads_only(&long).is_some(), "{kind:?}");
        assert_eq!(provider.reads_only(LOOKUP.query), None, "{kind:?}");
    }
}

#[tokio::test]
async fn a_configured_path_precedes_that_of_the_api() {
    let kind = ProviderKind::SearXng;
    let fake = Fake::start(kind, [FakeReply::good(empty(kind))]).await;
    let outcome = ask_with(&fake, &LOOKUP, PageTexts::Unwanted, |settings| {
        let url = fake.url.join("/searx/").unwrap();
        settings.providers[0].url = Some(url);
    });
    assert_eq!(outcome.await, Ok(Vec::new()));
    assert_eq!(fake.requests()[0].path, "/searx/search");
}

#[tokio::test]
async fn a_key_for_searxng_is_a_bearer_token() {
    let kind = ProviderKind::SearXng;
    let fake = Fake::start(kind, [FakeReply::good(empty(kind))]).await;
    let outcome = ask_with(&fake, &LOOKUP, PageTexts::Unwanted, |settings| {
        settings.providers[0].api_key = Some("for-the-proxy".into());
    });
    assert_eq!(outcome.await, Ok(Vec::new()));
    let requests = fake.requests();
    assert_eq!(
        requests[0].header("authorization"),
        Some("Bearer for-the-proxy")
    );
}
