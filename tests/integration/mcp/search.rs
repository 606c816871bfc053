//! Many tools are found by searching.

use serde_json::{Value, json};

use super::{fake, in_state};
use crate::support::app::TestApp;
use crate::support::ask::{ask, ask_with, with};
use crate::support::script::{Reply, calls, text};
use crate::support::upstream::ScriptedUpstream;

/// A server with two hundred tools, of which forty are too many.
async fn start<const N: usize>(
    replies: [Reply; N],
    store: &str,
    lines: &str,
) -> (TestApp, ScriptedUpstream) {
    let upstream = ScriptedUpstream::start(replies).await;
    let toml = format!(
        "tool_search_above = 40\n{store}{}{}",
        fake::server("many", "many", lines),
        "[[tools]]\nname = \"own\"\ndescription = \"d\"\nurl = \"http://127.0.0.1:1/\"\n"
    );
    let builder = TestApp::builder().upstream(&upstream).toml(&toml);
    let app = builder.start().await;
    in_state(app.client(), "many", "ready").await;
    (app, upstream)
}

fn search(query: &str) -> Reply {
    calls([("tool_search", json!({"query": query}))])
}

/// Whether a tool block is another one with further tools at its end.
fn extends(longer: &str, shorter: &str) -> bool {
    let start = shorter.strip_suffix(']').unwrap();
    longer.len() > shorter.len() && longer.starts_with(&format!("{start},"))
}

fn in_session(text: &str, session: &str) -> Value {
    with(ask(text), "session_id", json!(session))
}

#[tokio::test]
async fn found_tools_are_appended_and_stay_for_the_session() {
    let replies = [
        search("tool_150"),
        calls([("many__tool_150", json!({}))]),
        search("tool_7"),
        text("Done."),
        calls([("many__tool_7", json!({}))]),
        text("Done again."),
        text("A new session."),
    ];
    let (app, upstream) = start(replies, "session_store = \"memory:\"\n", "").await;
    let first = app.post_chat(in_session("Go", "s-1")).await.completion();
    let records = first["agentic_tool_calls"].as_array().unwrap();
    let called = &records[1];
    assert_eq!(
        (&called["name"], &called["result_content"]),
        (&json!("many__tool_150"), &json!("called tool_150")),
        "{first}"
    );
    assert_eq!(upstream.request(0).tool_names(), ["own", "tool_search"]);
    let blocks: Vec<String> = (0..4)
        .map(|index| upstream.request(index).raw("tools").unwrap())
        .collect();
    assert!(extends(&blocks[1], &blocks[0]), "{blocks:?}");
    assert_eq!(blocks[1], blocks[2]);
    assert!(extends(&blocks[3], &blocks[2]), "{blocks:?}");
    let names = upstream.request(1).tool_names();
    assert_eq!(names[2], "many__tool_150");
    assert_eq!(names.len(), 10, "{names:?}");

    let next = app.post_chat(in_session("On", "s-1")).await.completion();
    assert_eq!(
        next["agentic_tool_calls"][0]["result_content"], "called tool_7",
        "{next}"
    );
    assert_eq!(upstream.request(4).raw("tools").unwrap(), blocks[3]);
    assert_eq!(upstream.request(5).raw("tools").unwrap(), blocks[3]);
    app.post_chat(in_session("Go", "s-2")).await.completion();
    assert_eq!(upstream.request(6).raw("tools").unwrap(), blocks[0]);
}

#[tokio::test]
async fn found_tools_are_there_after_a_restart() {
    let replies = [search("tool_150"), text("Done."), text("On.")];
    let (mut app, upstream) = start(replies, "", "").await;
    app.post_chat(in_session("Go", "s-1")).await.completion();
    app.restart().await;
    in_state(app.client(), "many", "ready").await;
    app.post_chat(in_session("On", "s-1")).await.completion();
    assert_eq!(
        upstream.request(1).raw("tools"),
        upstream.request(2).raw("tools")
    );
    assert!(
        upstream
            .request(2)
            .tool_names()
            .contains(&"many__tool_150".into())
    );
}

#[tokio::test]
async fn requests_say_which_tools_they_want() {
    let replies = [(); 4].map(|()| text("Hi."));
    let (app, upstream) = start(replies, "", "").await;
    let tools = |tools: Value| with(ask("Go"), "agent", json!({"tools": tools}));
    app.post_chat(tools(json!({"deny": ["tool_search"]}))).await;
    assert_eq!(upstream.request(0).tool_names().len(), 201);
    app.post_chat(tools(json!({"allow": ["many__tool_1?"]})))
        .await;
    assert_eq!(upstream.request(1).tool_names().len(), 10);
    let choice = json!({"type": "function", "function": {"name": "many__tool_7"}});
    let chosen = with(ask("Go"), "tool_choice", choice.clone());
    app.post_chat(chosen).await.completion();
    assert_eq!(
        upstream.request(2).tool_names(),
        ["own", "tool_search", "many__tool_7"]
    );
    assert_eq!(upstream.request(2).body["tool_choice"], choice);
    let clash = ask_with("Go", ["many__tool_7"]);
    let refused = app.post_chat(clash).await;
    assert!(refused.assert_error(400, None).contains("'many__tool_7'"));
    let listed = app.get("/v1/agent/tools").await.json();
    let listed = listed["data"].as_array().unwrap();
    assert_eq!(listed.len(), 202);
    assert!(listed.iter().any(|tool| tool["name"] == "tool_search"));
}

#[tokio::test]
async fn few_tools_are_offered_as_they_are() {
    let lines = "allowed_tools = [\"tool_1?\", \"tool_2?\"]";
    let (app, upstream) = start([text("Hi.")], "", lines).await;
    app.post_chat(ask("Go")).await.completion();
    let names = upstream.last().tool_names();
    assert_eq!(names.len(), 21, "{names:?}");
    assert!(!names.contains(&"tool_search".into()), "{names:?}");
}

#[tokio::test]
async fn a_tool_that_was_not_found_is_not_run() {
    let replies = [calls([("many__tool_150", json!({}))]), text("Done.")];
    let (app, upstream) = start(replies, "", "").await;
    app.post_chat(ask("Go")).await.completion();
    let results = upstream.last().tool_results();
    assert!(
        results[0]
            .1
            .contains("The available tools are: own, tool_search"),
        "{results:?}"
    );
}
