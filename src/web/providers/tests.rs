//! Tests of order, penalties, rate and cache over real sockets.

use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time;

use super::*;
use crate::provider::fake::{self, Fake, FakeReply};
use crate::settings::ProviderKind;
use crate::{DomainFilter, Freshness, Location};

const GOOD: &str = r#"{"results": [{"url": "https://a.test/", "title": "A", "content": "a"}]}"#;
const EMPTY: &str = r#"{"results": []}"#;
const MINUTE: Duration = Duration::from_secs(60);

static ANYWHERE: DomainFilter = DomainFilter {
    allowed: Vec::new(),
    blocked: Vec::new(),
};

const LOOKUP: ProviderQuery<'static> = ProviderQuery {
    query: "harbour seals",
    max_results: 10,
    freshness: None,
    domains: &ANYWHERE,
    location: None,
};

async fn searxng(replies: impl IntoIterator<Item = FakeReply>) -> Fake {
    Fake::start(ProviderKind::SearXng, replies).await
}

async fn tavily(replies: impl IntoIterator<Item = FakeReply>) -> Fake {
    Fake::start(ProviderKind::Tavily, replies).await
}

fn providers(fakes: &[&Fake], change: impl FnOnce(&mut Settings)) -> Providers {
    let mut settings = fake::settings(fakes.iter().map(|fake| fake.settings()).collect());
    change(&mut settings);
    Providers::new(&settings).unwrap()
}

fn cached(settings: &mut Settings) {
    settings.search.cache_ttl = MINUTE;
}

/// Advances the clock of the runtime.
async fn pass(time: Duration) {
    time::pause();
    time::advance(time).await;
    time::resume();
}

#[tokio::test]
async fn the_first_answer_is_taken() {
    let (first, second) = (searxng([FakeReply::good(EMPTY)]).await, tavily([]).await);
    let providers = providers(&[&first, &second], |_| {});
    let answer = providers.search(&LOOKUP, "a").await.unwrap();
    let expected = ProviderAnswer {
        hits: Vec::new(),
        provider: "searxng",
        notices: Vec::new(),
    };
    assert_eq!(*answer, expected);
    assert_eq!(second.requests().len(), 0);
}

#[tokio::test]
async fn a_provider_that_fails_is_noted_and_the_next_one_asked() {
    let first = tavily([FakeReply::status(401, "{}")]).await;
    let second = searxng([FakeReply::good(GOOD)]).await;
    let providers = providers(&[&first, &second], |_| {});
    let answer = providers.search(&LOOKUP, "a").await.unwrap();
    assert_eq!(answer.provider, "searxng");
    assert_eq!(answer.hits.len(), 1);
    assert_eq!(
        answer.notices,
        [
            "tavily could not be used (it refused its API key: the operator must check it); searxng answered instead"
        ]
    );
}

#[tokio::test]
async fn the_error_names_all_failed_providers() {
    let first = tavily([FakeReply::status(432, "{}")]).await;
    let second = searxng([FakeReply::good("{}")]).await;
    let providers = providers(&[&first, &second], |_| {});
    assert_eq!(
        providers.search(&LOOKUP, "a").await,
        Err(WebError::Failed(
            "the search failed, which says nothing about what there is to find: tavily could not be used (its quota is \
             used up: the operator must renew it); searxng could not be used (its answer cannot be used: it is not JSON \
             of the documented shape)"
                .to_owned()
        ))
    );
}

#[tokio::test]
async fn a_long_query_is_noted() {
    let fake = tavily([FakeReply::good(EMPTY)]).await;
    let providers = providers(&[&fake], |_| {});
    let long = "seal ".repeat(200);
    let lookup = ProviderQuery {
        query: &long,
        ..LOOKUP
    };
    let answer = providers.search(&lookup, "a").await.unwrap();
    assert_eq!(
        answer.notices,
        ["the query is too long: tavily read only the beginning of it, at most 400 characters"]
    );
}

#[tokio::test]
async fn a_provider_that_refused_is_avoided_for_a_while() {
    let first = tavily([FakeReply::status(401, "{}"), FakeReply::good(GOOD)]).await;
    let second = searxng([FakeReply::good(GOOD), FakeReply::good(GOOD)]).await;
    let providers = providers(&[&first, &second], |_| {});
    for _ in 0..2 {
        let answer = providers.search(&LOOKUP, "a").await.unwrap();
        assert_eq!(answer.provider, "searxng");
    }
    assert_eq!(first.requests().len(), 1);
    pass(MINUTE).await;
    let answer = providers.search(&LOOKUP, "a").await.unwrap();
    assert_eq!(answer.provider, "tavily");
}

#[tokio::test]
async fn an_avoided_provider_is_better_than_none() {
    let first = tavily([FakeReply::status(401, "{}"), FakeReply::good(GOOD)]).await;
    let second = searxng([FakeReply::good(GOOD), FakeReply::good("{}")]).await;
    let providers = providers(&[&first, &second], |_| {});
    assert_eq!(
        providers.search(&LOOKUP, "a").await.unwrap().provider,
        "searxng"
    );
    assert_eq!(
        providers.search(&LOOKUP, "a").await.unwrap().provider,
        "tavily"
    );
}

#[tokio::test]
async fn a_provider_is_avoided_as_long_as_it_says() {
    let limit = FakeReply::status(429, "{}").with_header("retry-after", "30");
    let first = tavily([limit, FakeReply::good(GOOD)]).await;
    let second = searxng([FakeReply::good(GOOD)]).await;
    let providers = providers(&[&first, &second], |_| {});
    assert_eq!(
        providers.search(&LOOKUP, "a").await.unwrap().provider,
        "searxng"
    );
    pass(Duration::from_secs(31)).await;
    assert_eq!(
        providers.search(&LOOKUP, "a").await.unwrap().provider,
        "tavily"
    );
}

#[tokio::test]
async fn the_configured_rate_is_kept() {
    let first = searxng([FakeReply::good(GOOD), FakeReply::good(GOOD)]).await;
    let second = tavily([FakeReply::good(GOOD)]).await;
    let providers = providers(&[&first, &second], |settings| {
        settings.providers[0].requests_per_minute = 1;
    });
    assert_eq!(
        providers.search(&LOOKUP, "a").await.unwrap().provider,
        "searxng"
    );
    let answer = providers.search(&LOOKUP, "a").await.unwrap();
    assert_eq!(answer.provider, "tavily");
    assert_eq!(
        answer.notices,
        [
            "searxng could not be used (its configured rate of requests is used up: try again in a minute); tavily \
          answered instead"
        ]
    );
    pass(MINUTE).await;
    assert_eq!(
        providers.search(&LOOKUP, "a").await.unwrap().provider,
        "searxng"
    );
    assert_eq!(first.requests().len(), 2);
}

#[tokio::test]
async fn an_answer_is_cached_for_its_time() {
    let fake = searxng([FakeReply::good(GOOD), FakeReply::good(EMPTY)]).await;
    let providers = providers(&[&fake], cached);
    let first = providers.search(&LOOKUP, "a").await.unwrap();
    let spaced = ProviderQuery {
        query: "  harbour\tseals ",
        ..LOOKUP
    };
    let again = providers.search(&spaced, "a").await.unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    assert_eq!(fake.requests().len(), 1);
    pass(MINUTE).await;
    let later = providers.search(&LOOKUP, "a").await.unwrap();
    assert_eq!(later.hits, []);
    assert_eq!(fake.requests().len(), 2);
}

#[tokio::test]
async fn scopes_and_options_share_nothing() {
    let domains = DomainFilter {
        allowed: vec!["a.test".to_owned()],
        blocked: Vec::new(),
    };
    let location = Location {
        country: Some("DE".to_owned()),
        ..Location::default()
    };
    let lookups = [
        (LOOKUP, "a"),
        (LOOKUP, "b"),
        (
            ProviderQuery {
                query: "grey seals",
                ..LOOKUP
            },
            "a",
        ),
        (
            ProviderQuery {
                max_results: 9,
                ..LOOKUP
            },
            "a",
        ),
        (
            ProviderQuery {
                freshness: Some(Freshness::Day),
                ..LOOKUP
            },
            "a",
        ),
        (
            ProviderQuery {
                domains: &domains,
                ..LOOKUP
            },
            "a",
        ),
        (
            ProviderQuery {
                location: Some(&location),
                ..LOOKUP
            },
            "a",
        ),
    ];
    let fake = searxng(vec![FakeReply::good(GOOD); lookups.len()]).await;
    let providers = providers(&[&fake], cached);
    for round in 0..2 {
        for (at, (lookup, scope)) in lookups.iter().enumerate() {
            providers.search(lookup, scope).await.unwrap();
            let expected = if round == 0 { at + 1 } else { lookups.len() };
            assert_eq!(fake.requests().len(), expected);
        }
    }
}

#[tokio::test]
async fn equal_concurrent_queries_share_a_request() {
    let gate = Arc::new(Semaphore::new(0));
    let fake = searxng([FakeReply::Gated(gate.clone(), GOOD.to_owned())]).await;
    let providers = providers(&[&fake], cached);
    let open = async {
        fake.came().await;
        gate.add_permits(1);
    };
    let (one, two, ()) = tokio::join!(
        providers.search(&LOOKUP, "a"),
        providers.search(&LOOKUP, "a"),
        open
    );
    assert!(Arc::ptr_eq(&one.unwrap(), &two.unwrap()));
    assert_eq!(fake.requests().len(), 1);
}

#[tokio::test]
async fn a_dropped_caller_does_not_cancel_the_answer_of_others() {
    let gate = Arc::new(Semaphore::new(0));
    let gated = || FakeReply::Gated(gate.clone(), GOOD.to_owned());
    let fake = searxng([gated(), gated()]).await;
    let providers = providers(&[&fake], cached);
    let mut leaver = Box::pin(providers.search(&LOOKUP, "a"));
    tokio::select! {
        _ = &mut leaver => panic!("answered before its time"),
        () = fake.came() => {}
    }
    let stays = providers.search(&LOOKUP, "a");
    let leaves = async {
        drop(leaver);
        fake.came().await;
        // One permit is for the dropped request, if its server still waits.
        gate.add_permits(2);
    };
    let (answer, ()) = tokio::join!(stays, leaves);
    assert_eq!(answer.unwrap().hits.len(), 1);
    assert_eq!(fake.requests().len(), 2);
}

#[tokio::test]
async fn errors_are_not_cached() {
    let fake = searxng([FakeReply::good("{}"), FakeReply::good(GOOD)]).await;
    let providers = providers(&[&fake], cached);
    assert!(providers.search(&LOOKUP, "a").await.is_err());
    assert_eq!(providers.search(&LOOKUP, "a").await.unwrap().hits.len(), 1);
}

#[tokio::test]
async fn nothing_is_cached_without_time_or_bytes() {
    let no_time: fn(&mut Settings) = |settings| settings.search.cache_ttl = Duration::ZERO;
    let no_room: fn(&mut Settings) = |settings| {
        cached(settings);
        settings.search.cache_bytes = 0;
    };
    for change in [no_time, no_room] {
        let fake = searxng([FakeReply::good(GOOD), FakeReply::good(GOOD)]).await;
        let providers = providers(&[&fake], change);
        providers.search(&LOOKUP, "a").await.unwrap();
        providers.search(&LOOKUP, "a").await.unwrap();
        assert_eq!(fake.requests().len(), 2);
    }
}
