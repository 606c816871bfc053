//! What is made of everything that is no answer.

use std::time::Duration;

use ::http::StatusCode;

use super::*;
use crate::web::provider::SetupError;
use crate::web::provider::fake::KEY;

/// Those whose answers are JSON.
const APIS: [ProviderKind; 5] = [
    ProviderKind::SearXng,
    ProviderKind::Brave,
    ProviderKind::Tavily,
    ProviderKind::Exa,
    ProviderKind::Serper,
];

async fn problem(kind: ProviderKind, replies: impl IntoIterator<Item = Reply>) -> (Problem, usize) {
    let (outcome, requests) = outcome(kind, replies).await;
    (outcome.expect_err("a problem"), requests)
}

#[tokio::test]
async fn a_refused_key_is_told_as_such_and_not_tried_again() {
    for (kind, status, body) in [
        (ProviderKind::Brave, 422, fixture!("brave_key.json")),
        (ProviderKind::Brave, 401, "{}"),
        (
            ProviderKind::Tavily,
            401,
            r#"{"detail":{"error":"Unauthorized: missing or invalid API key."}}"#,
        ),
        (
            ProviderKind::Exa,
            401,
            r#"{"requestId":"x","error":"Invalid API key","tag":"INVALID_API_KEY"}"#,
        ),
        (
            ProviderKind::Serper,
            403,
            r#"{"message":"Unauthorized.","statusCode":403}"#,
        ),
        (ProviderKind::SearXng, 401, ""),
    ] {
        let refused = problem(kind, [Reply::status(status, body)]).await;
        assert_eq!(refused, (Problem::KeyRefused, 1), "{kind:?}");
    }
}

#[tokio::test]
async fn a_used_up_quota_is_told_as_such_and_not_tried_again() {
    for (kind, status, body) in [
        (ProviderKind::Brave, 429, fixture!("brave_quota.json")),
        (
            ProviderKind::Tavily,
            432,
            r#"{"detail":{"error":"This request exceeds your plan's set usage limit."}}"#,
        ),
        (
            ProviderKind::Tavily,
            433,
            r#"{"detail":{"error":"This request exceeds the pay-as-you-go limit."}}"#,
        ),
        (ProviderKind::Exa, 402, fixture!("exa_credits.json")),
        (
            ProviderKind::Serper,
            400,
            r#"{"message":"Not enough credits","statusCode":400}"#,
        ),
    ] {
        let used_up = problem(kind, [Reply::status(status, body)]).await;
        assert_eq!(used_up, (Problem::Quota, 1), "{kind:?}");
    }
}

#[tokio::test]
async fn a_request_that_the_provider_does_not_like_is_not_tried_again() {
    for (kind, status) in [(ProviderKind::Tavily, 400), (ProviderKind::Brave, 422)] {
        let refused = problem(kind, [Reply::status(status, "{}")]).await;
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!(refused, (Problem::Refused(status), 1), "{kind:?}");
    }
}

#[tokio::test]
async fn searxng_without_json_is_told_as_such() {
    let replies = [Reply::status(403, "<title>403 Forbidden</title>")];
    let off = problem(ProviderKind::SearXng, replies).await;
    assert_eq!(off, (Problem::FormatOff, 1));
}

#[tokio::test]
async fn searxng_without_results_names_the_engines_that_failed() {
    let replies = [Reply::good(fixture!("searxng_unresponsive.json"))];
    let (problem, _) = problem(ProviderKind::SearXng, replies).await;
    assert_eq!(
        problem.to_string(),
        "its engines did not answer: duckduckgo (CAPTCHA), google (Suspended: too many requests); try again later"
    );
}

#[tokio::test]
async fn a_block_by_duckduckgo_is_never_an_empty_answer() {
    let page = fixture!("duckduckgo_captcha.html");
    for status in [200, 202, 403, 429] {
        let blocked = problem(ProviderKind::DuckDuckGo, [Reply::status(status, page)]).await;
        assert_eq!(blocked, (Problem::Blocked, 1), "{status}");
    }
}

#[tokio::test]
async fn a_rate_limit_is_waited_for_if_it_is_short() {
    for kind in APIS {
        let limit = || Reply::status(429, fixture!("brave_rate.json"));
        let soon = limit().with_header("retry-after", "0");
        let (outcome, requests) = outcome(kind, [soon, Reply::good(good(kind))]).await;
        assert_eq!((outcome.unwrap().len(), requests), (2, 2), "{kind:?}");

        let retry_after = None;
        let limited = problem(kind, [limit()]).await;
        assert_eq!(
            limited,
            (Problem::RateLimited { retry_after }, 1),
            "{kind:?}"
        );

        let retry_after = Some(Duration::from_secs(60));
        let late = limit().with_header("retry-after", "60");
        let limited = problem(kind, [late]).await;
        assert_eq!(
            limited,
            (Problem::RateLimited { retry_after }, 1),
            "{kind:?}"
        );

        let past = limit().with_header("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT");
        let (limited, requests) = problem(kind, [past, limit()]).await;
        assert_eq!(limited, Problem::RateLimited { retry_after: None });
        assert_eq!(requests, 2, "{kind:?}");
    }
}

#[tokio::test]
async fn brave_says_in_a_header_of_its_own_when_its_limit_ends() {
    let kind = ProviderKind::Brave;
    let limit = |reset: &str| {
        Reply::status(429, fixture!("brave_rate.json")).with_header("x-ratelimit-reset", reset)
    };
    let (outcome, requests) = outcome(kind, [limit("0, 1419704"), Reply::good(good(kind))]).await;
    assert_eq!((outcome.unwrap().len(), requests), (2, 2));
    let retry_after = Some(Duration::from_secs(1_419_704));
    let limited = problem(kind, [limit("1419704")]).await;
    assert_eq!(limited, (Problem::RateLimited { retry_after }, 1));
}

#[tokio::test]
async fn a_passing_failure_is_tried_again_as_often_as_configured() {
    for kind in ProviderKind::ALL {
        for failure in [
            Reply::status(500, "{}"),
            Reply::status(503, ""),
            Reply::Close,
        ] {
            let replies = [failure.clone(), Reply::good(good(kind))];
            let (outcome, requests) = outcome(kind, replies).await;
            assert_eq!((outcome.unwrap().len(), requests), (2, 2), "{kind:?}");
        }
        let failed = problem(kind, [Reply::status(500, ""), Reply::status(502, "")]).await;
        assert_eq!(
            failed,
            (Problem::Status(StatusCode::BAD_GATEWAY), 2),
            "{kind:?}"
        );
        let late = Reply::status(503, "").with_header("retry-after", "60");
        let failed = problem(kind, [late]).await;
        let unavailable = Problem::Status(StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(failed, (unavailable, 1), "{kind:?}");
    }
}

#[tokio::test]
async fn what_is_no_answer_of_the_api_is_no_empty_answer() {
    for kind in ProviderKind::ALL {
        for body in [
            "",
            "{",
            "null",
            "[]",
            "{}",
            r#"{"results": "none"}"#,
            r#"{"results": [1]}"#,
            r#"{"type": "ErrorResponse", "error": {}}"#,
            r#"{"error": "out of order"}"#,
            "<html><body><h1>It works!</h1></body></html>",
            "\u{feff}",
        ] {
            let (problem, requests) = problem(kind, [Reply::good(body)]).await;
            assert!(
                matches!(problem, Problem::Malformed(_)),
                "{kind:?} {body}: {problem}"
            );
            assert_eq!(requests, 1);
        }
    }
}

#[tokio::test]
async fn results_without_addresses_are_no_empty_answer() {
    for (kind, body) in [
        (ProviderKind::SearXng, r#"{"results": [{"title": "x"}]}"#),
        (
            ProviderKind::Brave,
            r#"{"type": "search", "web": {"results": [{"title": "x"}]}}"#,
        ),
        (ProviderKind::Tavily, r#"{"results": [{"url": null}]}"#),
        (
            ProviderKind::Exa,
            r#"{"results": [{"url": "mailto:x@example.org"}]}"#,
        ),
        (
            ProviderKind::Serper,
            r#"{"searchParameters": {}, "organic": [{"link": "x"}]}"#,
        ),
    ] {
        let (problem, _) = problem(kind, [Reply::good(body)]).await;
        assert!(
            matches!(problem, Problem::Malformed(_)),
            "{kind:?}: {problem}"
        );
    }
}

#[tokio::test]
async fn a_compressed_answer_is_not_taken_for_text() {
    let reply = Reply::good(good(ProviderKind::Exa)).with_header("content-encoding", "br");
    let (problem, _) = problem(ProviderKind::Exa, [reply]).await;
    assert!(matches!(problem, Problem::Malformed(_)), "{problem}");
}

#[tokio::test]
async fn a_slow_provider_is_given_up() {
    for kind in ProviderKind::ALL {
        let fake = Fake::start(kind, [Reply::Silence]).await;
        let limit = Duration::from_millis(100);
        let outcome = ask_with(&fake, &LOOKUP, Texts::Unwanted, |settings| {
            settings.search.timeout = limit;
        });
        let error = outcome.await.unwrap_err();
        assert_eq!(error.problem, Problem::TimedOut(limit), "{kind:?}");
        assert_eq!(fake.requests().len(), 1);
    }
}

#[tokio::test]
async fn an_endless_answer_is_given_up() {
    let (problem, requests) = problem(ProviderKind::Tavily, [Reply::Endless]).await;
    assert_eq!((problem, requests), (Problem::TooLarge(8 << 20), 1));
}

#[tokio::test]
async fn nobody_there_is_told_as_such() {
    let kind = ProviderKind::SearXng;
    let gone = Fake::start(kind, []).await.settings();
    let settings = fake::settings(vec![gone]);
    let provider = Provider::new(&settings.providers[0], Texts::Unwanted).unwrap();
    let exchange = Exchange::new(&settings).unwrap();
    let error = provider.search(&exchange, &LOOKUP).await.unwrap_err();
    let Problem::Unreachable { cause } = &error.problem else {
        panic!("{error}");
    };
    assert!(!cause.contains("harbour"), "{cause}");
    assert!(
        error
            .to_string()
            .starts_with("searxng could not be used (it cannot be reached")
    );
}

#[tokio::test]
async fn a_redirect_to_another_host_is_refused_and_the_key_stays() {
    for kind in ProviderKind::ALL {
        for status in [301, 302, 303, 307, 308] {
            let elsewhere = Fake::start(kind, [Reply::good(good(kind))]).await;
            let reply = Reply::status(status, "").with_header("location", elsewhere.url.as_str());
            let redirected = problem(kind, [reply]).await;
            assert_eq!(redirected, (Problem::Redirect, 1), "{kind:?} {status}");
            assert_eq!(elsewhere.requests().len(), 0);
        }
    }
}

#[tokio::test]
async fn a_redirect_on_the_same_host_is_followed() {
    let kind = ProviderKind::SearXng;
    let away = Reply::status(308, "").with_header("location", "/searx/search?q=x&format=json");
    let fake = Fake::start(kind, [away, Reply::good(good(kind))]).await;
    assert_eq!(ask(&fake).await.unwrap().len(), 2);
    let paths: Vec<String> = fake
        .requests()
        .into_iter()
        .map(|request| request.path)
        .collect();
    assert_eq!(paths, ["/search", "/searx/search"]);
}

#[tokio::test]
async fn no_error_holds_the_key() {
    for kind in APIS
        .into_iter()
        .filter(|kind| *kind != ProviderKind::SearXng)
    {
        let echo = Reply::status(401, &format!("your key is {KEY}"));
        let fake = Fake::start(kind, [echo]).await;
        let error = ask(&fake).await.unwrap_err();
        let provider = Provider::new(&fake.settings(), Texts::Unwanted).unwrap();
        let request = provider.request(&LOOKUP, super::super::Day::now());
        let shown = format!("{error} {error:?} {provider:?} {request:?}");
        assert!(!shown.contains("SECRET"), "{shown}");
    }
}

#[test]
fn a_provider_that_cannot_be_used_is_refused_at_the_start() {
    let settings =
        |kind, url: Option<&str>, key: Option<&str>| crate::web::settings::ProviderSettings {
            kind,
            url: url.map(|url| url.parse().unwrap()),
            api_key: key.map(Into::into),
            requests_per_minute: 1,
        };
    let refused = |kind, url, key| {
        Provider::new(&settings(kind, url, key), Texts::Unwanted).expect_err("a refusal")
    };
    let url = Some("https://search.example.org/");
    for (error, expected) in [
        (
            refused(ProviderKind::SearXng, None, None),
            SetupError::NoUrl("searxng"),
        ),
        (
            refused(ProviderKind::Brave, url, None),
            SetupError::NoKey("brave"),
        ),
        (
            refused(ProviderKind::Exa, url, Some("a\nb")),
            SetupError::Key("exa"),
        ),
        (
            refused(ProviderKind::Serper, Some("ftp://x.test"), Some("k")),
            SetupError::Url("serper"),
        ),
        (
            refused(ProviderKind::SearXng, Some("http://u:p@x.test"), None),
            SetupError::Credentials("searxng"),
        ),
    ] {
        assert_eq!(error, expected);
    }
    assert!(
        Provider::new(
            &settings(ProviderKind::DuckDuckGo, None, None),
            Texts::Unwanted
        )
        .is_ok()
    );
}
