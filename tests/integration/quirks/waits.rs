//! How long a server asks to wait, in the words of many servers.

use serde_json::json;

use super::{builder, hook};
use crate::support::ask::ask_with;
use crate::support::script::{self, text};
use crate::support::upstream::ScriptedUpstream;

const RETRY: &str = "[retry]\nmax_attempts = 3\nbase_delay = \"1ms\"\nmax_delay = \"5s\"";

/// A status 429 with these headers and this body.
type Refusal = (&'static [(&'static str, &'static str)], String);

fn said(message: &str) -> Refusal {
    let body = json!({"error": {"message": message, "type": "requests", "param": null, "code": "rate_limit_exceeded"}});
    (&[], body.to_string())
}

async fn calls_until_the_end(refusal: &Refusal) -> usize {
    let (headers, body) = refusal.clone();
    let upstream =
        ScriptedUpstream::answering(move |_| script::status(429, headers, body.clone())).await;
    let hook = hook().await;
    let app = builder(&upstream, &hook, RETRY).start().await;
    let answer = app.post_chat(ask_with("Go", ["t"])).await;
    assert_eq!(answer.status, 429);
    upstream.requests().len()
}

#[tokio::test]
async fn a_server_that_asks_for_a_long_wait_is_not_asked_again_too_early() {
    let google = json!([{"error": {"code": 429, "message": "quota", "type": "t", "param": null, "details": [
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "38.2s"},
    ]}}]);
    let router = json!({"error": {"code": 429, "message": "m", "type": "t", "param": null, "metadata": {
        "headers": {"X-RateLimit-Reset": "4102444800000"},
    }}});
    for refusal in [
        (&[("retry-after-ms", "60000")] as &[_], "{}".to_owned()),
        (&[], google.to_string()),
        (&[], router.to_string()),
        said("Rate limit reached. Please try again in 1m2.5s. Visit https://example.com"),
        said("Please retry after 20 seconds."),
        (&[], "Slow down: try again in 9s".to_owned()),
        (
            &[
                ("x-ratelimit-remaining-tokens", "0"),
                ("x-ratelimit-reset-tokens", "17.5s"),
            ],
            "{}".to_owned(),
        ),
        (&[("x-ratelimit-reset", "4102444800")], "{}".to_owned()),
        (
            &[
                ("anthropic-ratelimit-requests-remaining", "0"),
                ("anthropic-ratelimit-requests-reset", "2100-01-01T00:00:00Z"),
            ],
            "{}".to_owned(),
        ),
    ] {
        assert_eq!(calls_until_the_end(&refusal).await, 1, "{refusal:?}");
    }
    // What is not a wait, or belongs to a limit that is not used up, does not count.
    for refusal in [
        said("Please try again in a moment."),
        (
            &[
                ("x-ratelimit-remaining-requests", "99"),
                ("x-ratelimit-reset-requests", "8m"),
            ],
            "{}".to_owned(),
        ),
    ] {
        assert_eq!(calls_until_the_end(&refusal).await, 3, "{refusal:?}");
    }
}

#[tokio::test]
async fn a_short_wait_is_waited_for() {
    let header: Refusal = (&[("retry-after", "0.06s")], "{}".to_owned());
    for (refusal, least) in [
        (said("Please try again in 80ms."), 80),
        (said("try again in 0.05s"), 50),
        (header, 60),
    ] {
        let upstream =
            ScriptedUpstream::start([script::status(429, refusal.0, refusal.1), text("Fine.")])
                .await;
        let hook = hook().await;
        let app = builder(&upstream, &hook, RETRY).start().await;
        let began = std::time::Instant::now();
        let answer = app.post_chat(ask_with("Go", ["t"])).await;
        assert_eq!(answer.content(), "Fine.");
        assert!(began.elapsed().as_millis() >= least);
    }
}
