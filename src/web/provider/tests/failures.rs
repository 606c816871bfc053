//! Tests of failures.

use std::time::Duration;

use ::http::StatusCode;

use super::*;
use crate::SetupError;
use crate::provider::fake::KEY;

/// The providers with JSON answers.
const APIS: [ProviderKind; 5] = [
    ProviderKind::SearXng,
    ProviderKind::Brave,
    ProviderKind::Tavily,
    ProviderKind::Exa,
    ProviderKind::Serper,
];

async fn problem(
    kind: ProviderKind,
    replies: impl IntoIterator<Item = FakeReply>,
) -> (ProviderProblem, usize) {
    let (outcome, requests) = outcome(kind, replies).await;
    (outcome.expect_err("a problem"), requests)
}

#[tokio::test]
async fn a_refused_key_is_reported_and_not_retried() {
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
        let refused = problem(kind, [FakeReply::status(status, body)]).await;
        assert_eq!(refused, (ProviderProblem::KeyRefused, 1), "{kind:?}");
    }
}

#[tokio::test]
async fn an_exhausted_quota_is_reported_and_not_retried() {
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
        let used_up = problem(kind, [FakeReply::status(status, body)]).await;
        assert_eq!(used_up, (ProviderProblem::Quota, 1), "{kind:?}");
    }
}

#[tokio::test]
async fn a_rejected_request_is_not_retried() {
    for (kind, status) in [(ProviderKind::Tavily, 400), (ProviderKind::Brave, 422)] {
        let refused = problem(kind, [FakeReply::status(status, "{}")]).await;
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!(refused, (ProviderProblem::Refused(status), 1), "{kind:?}");
    }
}

#[tokio::test]
async fn disabled_json_of_searxng_is_reported() {
    let replies = [FakeReply::status(403, "<title>403 Forbidden</title>")];
    let off = problem(ProviderKind::SearXng, replies).await;
    assert_eq!(off, (ProviderProblem::FormatOff, 1));
}

#[tokio::test]
async fn searxng_without_results_names_the_engines_that_failed() {
    let replies = [FakeReply::good(fixture!("searxng_unresponsive.json"))];
    let (problem, _) = problem(ProviderKind::SearXng, replies).await;
    assert_eq!(
        problem.to_string(),
        "its engines did not answer: duckduckgo (CAPTCHA), google (Suspended: too many requests); try again later"
    );
}

#[tokio::test]
async fn a_captcha_of_duckduckgo_is_not_an_empty_answer() {
    let page = fixture!("duckduckgo_captcha.html");
    for status in [200, 202, 403, 429] {
        let blocked = problem(ProviderKind::DuckDuckGo, [FakeReply::status(status, page)]).await;
        assert_eq!(blocked, (ProviderProblem::Blocked, 1), "{status}");
    }
}

#[tokio::test]
async fn a_rate_limit_is_waited_for_if_it_is_short() {
    for kind in APIS {
        let limit = || FakeReply::status(429, fixture!("brave_rate.json"));
        let soon = limit().with_header("retry-after", "0");
        let (outcome, requests) = outcome(kind, [soon, FakeReply::good(good(kind))]).await;
        assert_eq!((outcome.unwrap().len(), requests), (2, 2), "{kind:?}");

        let retry_after = None;
        let limited = problem(kind, [limit()]).await;
        assert_eq!(
            limited,
            (ProviderProblem::RateLimited { retry_after }, 1),
            "{kind:?}"
        );

        let retry_after = Some(Duration::from_secs(60));
        let late = limit().with_header("retry-after", "60");
        let limited = problem(kind, [late]).await;
        assert_eq!(
            limited,
            (ProviderProblem::RateLimited { retry_after }, 1),
            "{kind:?}"
        );

        let past = limit().with_header("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT");
        let (limited, requests) = problem(kind, [past, limit()]).await;
        assert_eq!(limited, ProviderProblem::RateLimited { retry_after: None });
        assert_eq!(requests, 2, "{kind:?}");
    }
}

#[tokio::test]
async fn braves_own_header_with_the_reset_is_read() {
    let kind = ProviderKind::Brave;
    let limit = |reset: &str| {
        FakeReply::status(429, fixture!("brave_rate.json")).with_header("x-ratelimit-reset", reset)
    };
    let (outcome, requests) =
        outcome(kind, [limit("0, 1419704"), FakeReply::good(good(kind))]).await;
    assert_eq!((outcome.unwrap().len(), requests), (2, 2));
    let retry_after = Some(Duration::from_secs(1_419_704));
    let limited = problem(kind, [limit("1419704")]).await;
    assert_eq!(limited, (ProviderProblem::RateLimited { retry_after }, 1));
}

#[tokio::test]
async fn a_temporary_failure_is_retried_as_often_as_configured() {
    for kind in ProviderKind::ALL {
        for failure in [
            FakeReply::status(500, "{}"),
            FakeReply::status(503, ""),
            FakeReply::Close,
        ] {
            let replies = [failure.clone(), FakeReply::good(good(kind))];
            let (outcome, requests) = outcome(kind, replies).await;
            assert_eq!((outcome.unwrap().len(), requests), (2, 2), "{kind:?}");
        }
        let failed = problem(
            kind,
            [FakeReply::status(500, ""), FakeReply::status(502, "")],
        )
        .await;
        assert_eq!(
            failed,
            (ProviderProblem::Status(StatusCode::BAD_GATEWAY), 2),
            "{kind:?}"
        );
        let late = FakeReply::status(503, "").with_header("retry-after", "60");
        let failed = problem(kind, [late]).await;
        let unavailable = ProviderProblem::Status(StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(failed, (unavailable, 1), "{kind:?}");
    }
}

#[tokio::test]
async fn other_answers_are_malformed_and_not_empty() {
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
            let (problem, requests) = problem(kind, [FakeReply::good(body)]).await;
            assert!(
                matches!(problem, ProviderProblem::Malformed(_)),
                "{kind:?} {body}: {problem}"
            );
            assert_eq!(requests, 1);
        }
    }
}

#[tokio::test]
async fn results_without_urls_are_malformed() {
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
        let (problem, _) = problem(kind, [FakeReply::good(body)]).await;
        assert!(
            matches!(problem, ProviderProblem::Malformed(_)),
            "{kind:?}: {problem}"
        );
    }
}

#[tokio::test]
async fn an_answer_in_an_unrequested_encoding_is_refused() {
    let reply = FakeReply::good(good(ProviderKind::Exa)).with_header("content-encoding", "br");
    let (problem, _) = problem(ProviderKind::Exa, [reply]).await;
    assert!(
        matches!(problem, ProviderProblem::Malformed(_)),
        "{problem}"
    );
}

#[tokio::test]
async fn a_slow_provider_times_out() {
    for kind in ProviderKind::ALL {
        let fake = Fake::start(kind, [FakeReply::Silence]).await;
        let limit = Duration::from_millis(100);
        let outcome = ask_with(&fake, &LOOKUP, PageTexts::Unwanted, |settings| {
            settings.search.timeout = limit;
        });
        let error = outcome.await.unwrap_err();
        assert_eq!(error.problem, ProviderProblem::TimedOut(limit), "{kind:?}");
        assert_eq!(fake.requests().len(), 1);
    }
}

#[tokio::test]
async fn an_endless_answer_is_too_large() {
    let (problem, requests) = problem(ProviderKind::Tavily, [FakeReply::Endless]).await;
    assert_eq!(
        (problem, requests),
        (ProviderProblem::TooLarge(16 << 20), 1)
    );
}

#[tokio::test]
async fn an_unreachable_provider_is_reported() {
    let kind = ProviderKind::SearXng;
    let gone = Fake::start(kind, []).await.settings();
    let settings = fake::settings(vec![gone]);
    let provider = Provider::new(&settings.providers[0], PageTexts::Unwanted).unwrap();
    let exchange = ProviderClient::new(&settings).unwrap();
    let error = provider.search(&exchange, &LOOKUP).await.unwrap_err();
    let ProviderProblem::Unreachable { cause } = &error.problem else {
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
            let elsewhere = Fake::start(kind, [FakeReply::good(good(kind))]).await;
            let reply =
                FakeReply::status(status, "").with_header("location", elsewhere.url.as_str());
            let redirected = problem(kind, [reply]).await;
            assert_eq!(
                redirected,
                (ProviderProblem::Redirect, 1),
                "{kind:?} {status}"
            );
            assert_eq!(elsewhere.requests().len(), 0);
        }
    }
}

#[tokio::test]
async fn a_redirect_on_the_same_host_is_followed() {
    let kind = ProviderKind::SearXng;
    let away = FakeReply::status(308, "").with_header("location", "/searx/search?q=x&format=json");
    let fake = Fake::start(kind, [away, FakeReply::good(good(kind))]).await;
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
        let echo = FakeReply::status(401, &format!("your key is {KEY}"));
        let fake = Fake::start(kind, [echo]).await;
        let error = ask(&fake).await.unwrap_err();
        let provider = Provider::new(&fake.settings(), PageTexts::Unwanted).unwrap();
        let request = provider.request(&LOOKUP);
        let shown = format!("{error} {error:?} {provider:?} {request:?}");
        assert!(!shown.contains("SECRET"), "{shown}");
    }
}

#[test]
fn a_provider_that_cannot_be_used_is_refused_at_the_start() {
    let settings = |kind, url: Option<&str>, key: Option<&str>| crate::settings::ProviderSettings {
        kind,
        url: url.map(|url| url.parse().unwrap()),
        api_key: key.map(Into::into),
        requests_per_minute: 1,
    };
    let refused = |kind, url, key| {
        Provider::new(&settings(kind, url, key), PageTexts::Unwanted).expect_err("a refusal")
    };
    let url = Some("https://search.example.org/");
    for (error, expected) in [
        (
            refused(ProviderKind::SearXng, None, None),
            SetupError::NoProviderUrl("searxng"),
        ),
        (
            refused(ProviderKind::Brave, url, None),
            SetupError::NoProviderKey("brave"),
        ),
        (
            refused(ProviderKind::Exa, url, Some("a\nb")),
            SetupError::ProviderKey("exa"),
        ),
        (
            refused(ProviderKind::Serper, Some("ftp://x.test"), Some("k")),
            SetupError::ProviderUrl("serper"),
        ),
        (
            refused(ProviderKind::SearXng, Some("http://u:p@x.test"), None),
            SetupError::ProviderCredentials("searxng"),
        ),
    ] {
        assert_eq!(error, expected);
    }
    assert!(
        Provider::new(
            &settings(ProviderKind::DuckDuckGo, None, None),
            PageTexts::Unwanted
        )
        .is_ok()
    );
}
