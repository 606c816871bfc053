//! The log: one record for each answer, refused keys, and every line as JSON where that is set; metrics by model and key.

use serde_json::{Value, json};

use crate::support::app::{Builder, TestApp};
use crate::support::ask::{ask, ask_with, with};
use crate::support::eventually;
use crate::support::script::{calls, error, text};
use crate::support::server::Gate;
use crate::support::upstream::ScriptedUpstream;
use crate::support::webhook::{self, Webhook};

const ALICE: &str = "alice-alice-alice";
const BOB: &str = "bob-bob-bob-bob-bob";
const KEYS: &str = "[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"\n[[api_keys]]\nname = \"bob\"\nenv = \"BOB\"\noperator = true\n";

/// The records with this message. Every line has to be a JSON object with a time and a level.
fn records(logs: &str, message: &str) -> Vec<Value> {
    let lines = logs.lines().map(|line| {
        let record: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        assert!(record["timestamp"].is_string(), "{record}");
        assert!(record["level"].is_string(), "{record}");
        record
    });
    lines
        .filter(|record| record["message"] == message)
        .collect()
}

/// A server with two API keys that writes its log as JSON.
fn with_keys(upstream: &ScriptedUpstream) -> Builder {
    TestApp::builder()
        .upstream(upstream)
        .toml(KEYS)
        .env("ALICE", ALICE)
        .env("BOB", BOB)
        .args(["--log-format", "json"])
}

/// Waits for this many `request` records.
async fn requests(app: &TestApp, number: usize) -> Vec<Value> {
    eventually("the records of the requests", || async {
        let found = records(&app.logs(), "request");
        (found.len() >= number).then_some(found)
    })
    .await
}

fn values<'a>(record: &'a Value, keys: &[&str]) -> Vec<&'a Value> {
    keys.iter().map(|key| &record[*key]).collect()
}

#[tokio::test]
async fn each_answer_has_one_record() {
    let upstream = ScriptedUpstream::start([
        calls([("t", json!({}))]).usage(10, 2),
        text("Done.").usage(20, 3),
        text("Passed."),
    ])
    .await;
    let hook = Webhook::start().await.on("t", webhook::text("ok"));
    let app = with_keys(&upstream).dispatch(&hook).start().await;
    let alice = app.client().key(ALICE);
    alice
        .header("x-request-id", "of-the-loop")
        .post_chat(ask_with("Q", ["t"]))
        .await
        .completion();
    alice.post_chat(ask("Q")).await.completion();
    let missing = alice.get("/v1/sessions/none").await;
    missing.assert_error(404, Some("not_found"));
    let found = requests(&app, 3).await;
    assert_eq!(found.len(), 3);
    let keys = [
        "route",
        "status",
        "owner",
        "rounds",
        "input_tokens",
        "output_tokens",
        "stop_reason",
    ];
    assert_eq!(
        values(&found[0], &keys),
        ["chat_loop", "200", "alice", "1", "30", "5", "completed"]
            .map(|text| match text.parse::<u64>() {
                Ok(number) => json!(number),
                Err(_) => json!(text),
            })
            .iter()
            .collect::<Vec<_>>()
    );
    assert_eq!(found[0]["request_id"], "of-the-loop");
    assert_eq!(found[1]["route"], "chat_forwarded");
    assert_eq!(
        (&found[2]["status"], &found[2]["path"]),
        (&json!(404), &json!("/v1/sessions/{id}"))
    );
    for record in &found[..2] {
        assert!(
            record["model"].is_string() && record["upstream"].is_string(),
            "{record}"
        );
        assert!(
            record["ms"].is_u64() && record.get("ended").is_none(),
            "{record}"
        );
    }
    let tool = &records(&app.logs(), "tool call finished")[0];
    assert_eq!(
        (&tool["tool"], &tool["kind"]),
        (&json!("t"), &json!("dispatch"))
    );
    let page = app.client().key(BOB).get("/metrics").await.text();
    let model = found[0]["model"].as_str().unwrap();
    for (series, value) in [
        (
            format!("loopwright_tokens_total{{kind=\"prompt\",model=\"{model}\",key=\"alice\"}}"),
            30,
        ),
        (
            format!(
                "loopwright_tokens_total{{kind=\"completion\",model=\"{model}\",key=\"alice\"}}"
            ),
            5,
        ),
        (
            format!("loopwright_model_requests_total{{model=\"{model}\",key=\"alice\"}}"),
            2,
        ),
    ] {
        assert!(
            page.lines().any(|line| line == format!("{series} {value}")),
            "{series}: {page}"
        );
    }
}

#[tokio::test]
async fn a_client_that_leaves_shows_in_the_record() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::start([text("One two three").gate_before(1, &gate)]).await;
    let app = TestApp::builder()
        .upstream(&upstream)
        .args(["--log-format", "json"])
        .start()
        .await;
    let body = with(
        with(ask("Q"), "stream", json!(true)),
        "session_id",
        json!("s"),
    );
    let stream = app.stream_chat(body).await;
    drop(stream);
    let found = requests(&app, 1).await;
    assert_eq!(
        (&found[0]["ended"], &found[0]["status"]),
        (&json!("aborted"), &json!(200))
    );
    gate.open();
}

#[tokio::test]
async fn refused_keys_are_counted_and_logged_once_in_a_minute() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = with_keys(&upstream).start().await;
    for key in ["wrong-1", "wrong-2", "wrong-3"] {
        let refused = app.client().key(key).get("/v1/models").await;
        refused.assert_error(401, Some("invalid_api_key"));
    }
    let page = app.client().key(BOB).get("/metrics").await.text();
    let series = "loopwright_refused_requests_total{reason=\"invalid_api_key\"} 3";
    assert!(page.contains(series), "{page}");
    let logs = app.logs();
    assert_eq!(logs.matches("a request was refused").count(), 1, "{logs}");
    assert!(!logs.contains("wrong-"), "{logs}");
    assert!(records(&logs, "request").is_empty(), "{logs}");
}

#[tokio::test]
async fn names_of_models_that_never_answered_get_no_series() {
    let upstream = ScriptedUpstream::start(
        std::iter::once(text("Yes.")).chain((0..20).map(|_| error(404, "no such model"))),
    )
    .await;
    let app = TestApp::builder()
        .upstream(&upstream)
        .toml("[retry]\nmax_attempts = 1")
        .start()
        .await;
    app.post_chat(ask("Q")).await.completion();
    for number in 0..20 {
        let body = with(ask("Q"), "model", json!(format!("invented-{number}")));
        let refused = app.post_chat(body).await;
        assert_eq!(refused.status, 404);
    }
    let page = app.get("/metrics").await.text();
    assert!(!page.contains("invented"), "{page}");
    assert!(page.contains("model=\"other\""), "{page}");
}

#[tokio::test]
async fn an_error_of_the_start_is_a_line_of_json_as_well() {
    for (builder, code) in [
        (
            TestApp::builder().args(["--log-format", "json", "--listen", "nowhere"]),
            2,
        ),
        (
            TestApp::builder()
                .env("LOOPWRIGHT_LOG_FORMAT", "json")
                .args(["--listen", "nowhere"]),
            2,
        ),
        (
            TestApp::builder()
                .upstream_url("http://127.0.0.1:1/v1")
                .toml("log_format = \"json\"\nsession_store = \"sqlite:/proc/none/x.db\""),
            1,
        ),
    ] {
        let ended = builder.run("serve").await;
        assert_eq!(ended.code, Some(code), "{}", ended.stderr);
        records(&ended.stderr, "");
        let last: Value = serde_json::from_str(ended.stderr.lines().last().unwrap()).unwrap();
        assert_eq!(last["level"], "ERROR");
    }
}
