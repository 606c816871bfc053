//! `GET /metrics`: which series a fresh server has, so that dashboards and alerts go on working, and how turns are
//! counted.

use std::collections::BTreeSet;

use serde_json::json;

use crate::support::app::TestApp;
use crate::support::ask::{ask_with, with};
use crate::support::eventually;
use crate::support::script::{self, Reply, calls, text};
use crate::support::server::Gate;
use crate::support::upstream::ScriptedUpstream;
use crate::support::webhook::{self, Webhook};

/// A server with every part on that has series of its own, but code execution, whose isolation depends on the host.
const CONFIGURATION: &str = r#"
enable_search = true
search_url = "http://127.0.0.1:1/"
[[tools]]
name = "get_ticket"
description = "Reads a ticket."
url = "http://127.0.0.1:1/ticket"
"#;

/// The series of a page without their values; a histogram's buckets are one series.
fn series(page: &str) -> BTreeSet<String> {
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| {
            let (series, _value) = line.rsplit_once(' ').unwrap();
            let series = match (series.find("le=\""), series.contains("_bucket{")) {
                (Some(at), true) => format!("{}le=…}}", &series[..at]),
                _ => series.to_owned(),
            };
            series.replace(env!("CARGO_PKG_VERSION"), "VERSION")
        })
        .collect()
}

#[tokio::test]
async fn a_fresh_server_shows_every_series() {
    let app = TestApp::builder()
        .upstream_url("http://127.0.0.1:1/v1")
        .toml(CONFIGURATION)
        .start()
        .await;
    let page = app.get("/metrics").await.text();
    let found: Vec<String> = series(&page).into_iter().collect();
    insta::assert_snapshot!(found.join("\n"));
    let described = page.lines().filter(|line| line.starts_with("# HELP"));
    assert_eq!(described.count(), 31, "{page}");
}

/// One failure is final.
const ONCE: &str = "[retry]\nmax_attempts = 1";

/// The turns that are counted: how they ended, and how many there were of each.
async fn turns(app: &TestApp) -> Vec<(String, u64)> {
    let page = app.get("/metrics").await.text();
    let counter = |line: &str| {
        let rest = line.strip_prefix("loopwright_turns_total{stop_reason=\"")?;
        let (reason, count) = rest.split_once("\"} ")?;
        let count: u64 = count.parse().unwrap();
        (count > 0).then(|| (reason.to_owned(), count))
    };
    page.lines().filter_map(counter).collect()
}

/// A server whose model gives these replies, and nothing more after them.
async fn server(replies: Vec<Reply>) -> (ScriptedUpstream, Webhook, TestApp) {
    let upstream = ScriptedUpstream::start(replies).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let app = builder.toml(ONCE).start().await;
    (upstream, hook, app)
}

fn counted(reason: &str, count: u64) -> Vec<(String, u64)> {
    vec![(reason.to_owned(), count)]
}

#[tokio::test]
async fn a_turn_is_counted_once_however_it_ends() {
    let round = || calls([("t", json!({}))]);
    for (replies, on_limit, expected) in [
        (vec![round(), text("Done.")], "error", "completed"),
        (vec![script::error(400, "no")], "error", "failed"),
        (vec![text("one two three").cut_after(3)], "error", "failed"),
        (vec![round(), script::error(500, "no")], "error", "failed"),
        (vec![round(), round()], "error", "max_tool_rounds"),
        (vec![round(), round()], "stop", "max_tool_rounds"),
        (
            vec![round(), text("Enough.")],
            "final_answer",
            "max_tool_rounds",
        ),
    ] {
        let script = replies.iter().chain(&replies).cloned().collect();
        let (_upstream, _hook, app) = server(script).await;
        let mut body = with(ask_with("Go", ["t"]), "max_tool_rounds", json!(1));
        body["agent"] = json!({"on_limit": on_limit});
        app.post_chat(body.clone()).await;
        assert_eq!(turns(&app).await, counted(expected, 1), "{replies:?}");
        // The head of a stream may already hold the error.
        if let Ok(stream) = app.client().try_stream_chat(body).await {
            stream.collect_with_problems().await;
        }
        assert_eq!(turns(&app).await, counted(expected, 2), "{replies:?}");
    }
}

#[tokio::test]
async fn a_turn_whose_client_goes_away_is_counted_as_cancelled() {
    let gate = Gate::new();
    let script = vec![
        text("one two three").gate_before(2, &gate),
        text("one two three").gate_head(&gate),
        calls([("slow", json!({}))]),
    ];
    let (upstream, hook, app) = server(script).await;
    let hook = hook.on("slow", webhook::text("r").gated(&gate));
    let body = || ask_with("Go", ["t", "slow"]);
    let cancelled = async |count: u64| {
        eventually("the turn to be counted", || async {
            (turns(&app).await == counted("cancelled", count)).then_some(())
        })
        .await;
    };

    let mut stream = app.stream_chat(body()).await;
    assert_eq!(stream.next_text().await, "one ");
    drop(stream);
    cancelled(1).await;

    tokio::select! {
        answer = app.post_chat(body()) => panic!("an answer: {}", answer.text()),
        () = upstream.called(2) => {}
    }
    cancelled(2).await;

    let stream = app.stream_chat(body()).await;
    hook.called(1).await;
    drop(stream);
    cancelled(3).await;
}
