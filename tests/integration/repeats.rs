//! The repeat guard: what it stops, and what it lets go on.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::support::app::TestApp;
use super::support::ask::{ask_with, with};
use super::support::script::{Reply, calls, text};
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::{self, Webhook};

/// A model that asks for these calls one by one, from the beginning again after the last, for as long as it may call tools.
async fn asking(script: Vec<(&'static str, Value)>) -> ScriptedUpstream {
    ScriptedUpstream::answering(move |request| {
        let asked = request.tool_results().len();
        let may = request.body["tools"].is_array() && request.body["tool_choice"] != "none";
        let (name, arguments) = script[asked % script.len()].clone();
        match may {
            true => calls([(name, arguments)]),
            false => text("I give up."),
        }
    })
    .await
}

/// A model that asks for these calls one by one and then is done.
async fn working(script: impl IntoIterator<Item = (&'static str, Value)>) -> ScriptedUpstream {
    let replies = script.into_iter().map(|call| calls([call]));
    let replies: Vec<Reply> = replies.chain([text("Done.")]).collect();
    ScriptedUpstream::start(replies).await
}

/// How the calls of a turn ended.
fn statuses(body: &Value) -> Vec<&str> {
    let calls = body["agentic_tool_calls"].as_array().unwrap().iter();
    calls.map(|call| call["status"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn work_that_tests_its_edits_is_never_stopped() {
    let steps = (0..7).flat_map(|n| [("edit", json!({"line": n})), ("run_tests", json!({}))]);
    let upstream = working(steps).await;
    let hook = Webhook::start().await;
    let hook = hook
        .on("edit", webhook::text("ok"))
        .on("run_tests", webhook::text("2 tests failed"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = ask_with("Mend it", ["edit", "run_tests"]);
    let body = app.post_chat(body).await.completion();
    assert_eq!(body["agent"]["stop_reason"], "completed");
    assert_eq!(hook.calls().len(), 14);
}

#[tokio::test]
async fn polling_with_results_that_differ_is_never_stopped() {
    let upstream = working((0..9).map(|_| ("status", json!({"job": 1})))).await;
    let polls = AtomicUsize::new(0);
    let hook = Webhook::start().await.on_call("status", move |_| {
        let poll = polls.fetch_add(1, Ordering::Relaxed);
        webhook::text(&format!("{} % done", poll * 10))
    });
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = app.post_chat(ask_with("Wait", ["status"])).await;
    assert_eq!(body.completion()["agent"]["stop_reason"], "completed");
    assert_eq!(hook.calls().len(), 9);
}

#[tokio::test]
async fn polling_with_a_repeatable_tool_is_never_stopped() {
    for (repeatable, ran) in [("true", 9), ("false", 2)] {
        let upstream = asking(vec![("status", json!({"job": 1}))]).await;
        let hook = Webhook::start()
            .await
            .on("status", webhook::text("pending"));
        let tool = format!(
            "[[tools]]\nname = \"status\"\ndescription = \"d\"\nurl = \"{}\"\nrepeatable = {repeatable}",
            hook.tool_url("status")
        );
        let app = TestApp::builder().upstream(&upstream).toml(&tool).start();
        let app = app.await;
        let body = with(ask_with("Wait", []), "max_tool_rounds", json!(9));
        app.post_chat(body).await.completion();
        assert_eq!(hook.calls().len(), ran, "{repeatable}");
    }
}

#[tokio::test]
async fn the_same_search_is_not_made_a_third_time_and_then_the_turn_ends_with_an_answer() {
    let upstream = asking(vec![("search", json!({"b": 1, "a": 2}))]).await;
    let hook = Webhook::start().await.on("search", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let answer = app.post_chat(ask_with("Go", ["search"])).await;
    let body = answer.completion();
    assert_eq!(hook.calls().len(), 2);
    assert_eq!(statuses(&body), ["ok", "ok", "suppressed", "suppressed"]);
    let told = body["agentic_tool_calls"][2]["result_content"].as_str();
    assert!(told.unwrap().contains("different approach"), "{told:?}");
    assert_eq!(body["agent"]["stop_reason"], "repeated_calls");
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
    assert_eq!(answer.content(), "I give up.");
    let last = upstream.last();
    assert_eq!(last.body["tool_choice"], "none");
    assert_eq!(last.raw("tools"), upstream.request(0).raw("tools"));
}

#[tokio::test]
async fn two_calls_that_take_turns_while_nothing_changes_are_stopped() {
    let upstream = asking(vec![("a", json!({})), ("b", json!({}))]).await;
    let hook = Webhook::start().await;
    let hook = hook.on("a", webhook::text("r")).on("b", webhook::text("s"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = app.post_chat(ask_with("Go", ["a", "b"])).await.completion();
    assert_eq!(body["agent"]["stop_reason"], "repeated_calls");
    // The first call of `b` may have changed something for `a`.
    assert_eq!(hook.names(), ["a", "b", "a", "b", "a"]);
}

#[tokio::test]
async fn tools_that_only_read_bring_no_progress() {
    let upstream = working([
        ("search", json!({"q": 1})),
        ("look", json!({"n": 1})),
        ("search", json!({"q": 1})),
        ("look", json!({"n": 2})),
        ("search", json!({"q": 1})),
    ])
    .await;
    let hook = Webhook::start().await.on("search", webhook::text("r"));
    let hook = hook.on("look", webhook::text("s"));
    let tool = |name: &str| {
        format!(
            "[[tools]]\nname = \"{name}\"\ndescription = \"d\"\nread_only = true\nurl = \"{}\"",
            hook.tool_url(name)
        )
    };
    let tools = [tool("search"), tool("look")].join("\n");
    let app = TestApp::builder().upstream(&upstream).toml(&tools).start();
    let app = app.await;
    let body = app.post_chat(ask_with("Go", [])).await.completion();
    assert_eq!(statuses(&body), ["ok", "ok", "ok", "ok", "suppressed"]);
    assert_eq!(body["agent"]["stop_reason"], "completed");
}

#[tokio::test]
async fn a_model_that_changes_its_approach_goes_on() {
    let same = ("t", json!({"a": 1}));
    let other = ("t", json!({"a": 2}));
    let script = [same.clone(), same.clone(), same.clone(), other, same];
    let upstream = working(script).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = app.post_chat(ask_with("Go", ["t"])).await.completion();
    assert_eq!(
        statuses(&body),
        ["ok", "ok", "suppressed", "ok", "suppressed"],
        "two such batches, but not in a row"
    );
    assert_eq!(body["agent"]["stop_reason"], "completed");
}

#[tokio::test]
async fn calls_of_one_batch_do_not_count_for_one_another() {
    let same = || ("t", json!({}));
    let batch = || calls([same(), same(), same()]);
    let upstream = ScriptedUpstream::start([batch(), batch(), text("Done.")]).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = app.post_chat(ask_with("Go", ["t"])).await.completion();
    let held = ["suppressed"; 3];
    assert_eq!(statuses(&body), [["ok"; 3], held].concat());
}

#[tokio::test]
async fn the_threshold_is_the_servers_unless_a_request_wants_a_stricter_one_or_may_want_another() {
    let strict = "repeat_threshold = 3";
    let open = "repeat_threshold = 3\nrepeat_override = true";
    let off = "repeat_threshold = 0";
    for (toml, asked, ran) in [
        (strict, Value::Null, 2),
        (strict, json!(2), 1),
        (strict, json!(8), 2),
        (strict, json!(0), 2),
        (open, json!(5), 4),
        (open, json!(0), 10),
        (off, Value::Null, 10),
        (off, json!(3), 2),
        ("repeat_threshold = 8", Value::Null, 7),
    ] {
        let upstream = asking(vec![("t", json!({}))]).await;
        let hook = Webhook::start().await.on("t", webhook::text("r"));
        let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
        let app = builder.toml(toml).start().await;
        let mut body = with(ask_with("Go", ["t"]), "max_tool_rounds", json!(10));
        body["agent"] = json!({"repeat_threshold": asked});
        app.post_chat(body).await.completion();
        assert_eq!(hook.calls().len(), ran, "{toml} {asked}");
    }
}

#[tokio::test]
async fn a_threshold_that_means_nothing_is_refused() {
    let upstream = ScriptedUpstream::start([]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    for threshold in [json!(1), json!(9), json!(-1), json!("3")] {
        let agent = json!({"repeat_threshold": threshold});
        let refused = app.post_chat(with(ask_with("Go", ["t"]), "agent", agent));
        let refused = refused.await;
        refused.assert_error(400, None);
        assert_eq!(refused.json()["error"]["param"], "agent.repeat_threshold");
    }
}

#[tokio::test]
async fn a_tool_that_does_not_exist_is_not_explained_for_ever() {
    let upstream = asking(vec![("nothing", json!({}))]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let answer = app.post_chat(ask_with("Go", ["t"])).await;
    assert_eq!(answer.content(), "I give up.");
    let agent = &answer.completion()["agent"];
    assert_eq!(agent["stop_reason"], "repeated_calls");
    assert_eq!(agent["model_calls"], 5);
}
