//! How requests and operators decide whether and how the web is used.

use serde_json::{Value, json};

use super::stage::{Site, hit};
use super::{PAGES, builder, read, result, results, search};
use crate::support::app::{Builder, TestApp};
use crate::support::ask::{ask, ask_with, with};
use crate::support::script::{calls, text};
use crate::support::upstream::ScriptedUpstream;

const OPTIONS: &str = "web_search_options";

/// A server that offers the web to those that ask for it.
fn on_request(upstream: &ScriptedUpstream, engine: &Site) -> Builder {
    TestApp::builder()
        .upstream(upstream)
        .args(["--search-url", &engine.origin()])
        .toml(&format!("[search]\non_request = true\n{PAGES}"))
}

#[tokio::test]
async fn options_reach_descriptions_and_provider_and_stay_here() {
    let pages = Site::pages().await;
    let engine = Site::engine([
        hit(
            "http://127.0.0.3:9/elsewhere",
            "Fjords elsewhere",
            "Not allowed.",
        ),
        hit(&pages.url("/fjords"), "Fjords", "On fjords."),
    ])
    .await;
    let upstream = ScriptedUpstream::start([
        search("fjord"),
        read("http://127.0.0.3:9/elsewhere"),
        read(&pages.url("/bread")),
        text("done"),
    ])
    .await;
    let app = builder(&upstream, &engine).start().await;
    let options = json!({
        "search_context_size": "high",
        "user_location": {"type": "approximate", "approximate": {"country": "CH", "city": "Zürich"}},
        "filters": {"allowed_domains": ["127.0.0.1"]},
        "search_description": "My own search.",
        "extract_description": "My own reader.",
    });
    let body = app
        .post_chat(with(ask("x"), OPTIONS, options))
        .await
        .completion();
    let sent = upstream.request(0);
    let tools = sent.raw("tools").unwrap();
    for part in [
        "My own search.",
        "My own reader.",
        "Zürich, CH",
        "Only these sites can be seen: 127.0.0.1.",
    ] {
        assert!(tools.contains(part), "{tools}");
    }
    assert!(!tools.contains("Searches the web"), "{tools}");
    for request in upstream.requests() {
        assert_eq!(request.body.get(OPTIONS), None);
    }
    let asked = engine.visits().remove(0);
    assert_eq!(asked.parameter("language").as_deref(), Some("de-CH"));
    let query = asked.parameter("q").unwrap();
    assert!(
        query.starts_with("fjord") && query.contains("site:127.0.0.1"),
        "{query}"
    );
    let told = results(&body);
    assert!(
        told[0].1.contains("\n> A fjord is") && !told[0].1.contains("elsewhere"),
        "{told:?}"
    );
    assert_eq!(told[1].0, "error");
    assert!(
        told[1].1.contains("limits the web to certain domains"),
        "{told:?}"
    );
    assert_eq!(told[2].0, "ok", "{told:?}");
}

#[tokio::test]
async fn blocked_domains_are_seen_by_neither_tool() {
    let pages = Site::pages().await;
    let engine = Site::engine([hit(&pages.url("/fjords"), "Fjords", "On fjords.")]).await;
    let upstream =
        ScriptedUpstream::start([search("fjord"), read(&pages.url("/bread")), text("done")]).await;
    let app = builder(&upstream, &engine).start().await;
    let options = json!({"filters": {"blocked_domains": ["127.0.0.1"]}});
    let body = app
        .post_chat(with(ask("x"), OPTIONS, options))
        .await
        .completion();
    let told = results(&body);
    assert!(
        told[0].1.starts_with("Nothing was found for \"fjord\""),
        "{told:?}"
    );
    assert_eq!(told[1].0, "error", "{told:?}");
    assert!(pages.visits().is_empty(), "{:?}", pages.paths());
}

#[tokio::test]
async fn openais_hosted_tools_ask_for_search_and_can_be_chosen() {
    let pages = Site::pages().await;
    let engine = Site::engine([hit(&pages.url("/fjords"), "Fjords", "On fjords.")]).await;
    for kind in ["web_search", "web_search_preview"] {
        let upstream = ScriptedUpstream::start([search("fjord"), text("So [1].")]).await;
        let app = on_request(&upstream, &engine).start().await;
        let hosted = json!([{"type": kind, "search_context_size": "low",
            "user_location": {"type": "approximate", "city": "Oslo"}}]);
        let body = with(ask("x"), "tools", hosted);
        let body = with(body, "tool_choice", json!({"type": kind}));
        let body = app.post_chat(body).await.completion();
        assert!(result(&body).contains("\n> A fjord is"), "{body}");
        let first = upstream.request(0);
        assert_eq!(first.tool_names(), ["web_search", "read_page"], "{kind}");
        assert!(first.raw("tools").unwrap().contains("Oslo"));
        let named = json!({"type": "function", "function": {"name": "web_search"}});
        assert_eq!(first.body["tool_choice"], named, "{kind}");
        assert_ne!(
            upstream.request(1).body["tool_choice"],
            named,
            "only the first round"
        );
    }
}

#[tokio::test]
async fn where_it_must_be_asked_for_nobody_gets_it_unasked() {
    let engine = Site::engine([]).await;
    let upstream = ScriptedUpstream::start([text("plain"), search("x"), text("asked")]).await;
    let app = on_request(&upstream, &engine).start().await;
    let plain = app.post_chat(ask("x")).await.completion();
    assert_eq!(plain.get("agent"), None, "passed through");
    assert!(upstream.request(0).tool_names().is_empty());
    let asked = app.post_chat(with(ask("x"), OPTIONS, json!({}))).await;
    assert!(result(&asked.completion()).starts_with("Nothing was found for \"x\""));
    assert_eq!(
        upstream.request(1).tool_names(),
        ["web_search", "read_page"]
    );
}

#[tokio::test]
async fn without_search_the_options_are_the_upstreams_business_and_the_hosted_tool_is_refused() {
    let upstream = ScriptedUpstream::start([text("its own")]).await.lenient();
    let app = TestApp::with_upstream(&upstream).await;
    let options = json!({"search_context_size": "low", "filters": 7});
    let sent = with(ask("x"), OPTIONS, options);
    let body = app.post_chat(sent.clone()).await.completion();
    assert_eq!(body.get("agent"), None);
    assert_eq!(upstream.request(0).body, sent);
    for kind in ["web_search", "web_search_preview"] {
        let hosted = with(ask("x"), "tools", json!([{"type": kind}]));
        let answer = app.post_chat(hosted).await;
        let message = answer.assert_error(400, None);
        assert!(message.contains(kind), "{message}");
    }
    assert_eq!(upstream.requests().len(), 1);
    assert_eq!(app.get("/v1/agent/tools").await.json()["data"], json!([]));
}

#[tokio::test]
async fn a_request_can_leave_the_tools_out() {
    let engine = Site::engine([]).await;
    let upstream = ScriptedUpstream::start(["a", "b", "c"].map(text)).await;
    let app = builder(&upstream, &engine).start().await;
    let deny = |globs: Value| with(ask("x"), "agent", json!({"tools": {"deny": globs}}));
    app.post_chat(deny(json!(["web_search"])))
        .await
        .completion();
    assert_eq!(upstream.request(0).tool_names(), ["read_page"]);
    app.post_chat(deny(json!(["web_*", "read_page"])))
        .await
        .completion();
    assert!(upstream.request(1).tool_names().is_empty());
    let none = with(ask("x"), "max_tool_rounds", json!(0));
    let body = app.post_chat(none).await.completion();
    assert_eq!((body.get("agent"), body.get("session_id")), (None, None));
    assert_eq!(
        upstream.request(2).body,
        ask("x"),
        "passed through without that field"
    );
}

#[tokio::test]
async fn what_cannot_be_is_refused_by_field() {
    let engine = Site::engine([]).await;
    let upstream = ScriptedUpstream::start([]).await;
    let app = builder(&upstream, &engine).start().await;
    for name in ["web_search", "read_page"] {
        let answer = app.post_chat(ask_with("x", [name])).await;
        let message = answer.assert_error(400, None);
        assert!(message.contains(name), "{message}");
        assert_eq!(answer.json()["error"]["param"], "tools");
    }
    for (options, param) in [
        (json!(7), OPTIONS),
        (
            json!({"search_context_size": "vast"}),
            "web_search_options.search_context_size",
        ),
        (
            json!({"filters": {"allowed_domains": ["https://a.test"]}}),
            "web_search_options.filters.allowed_domains",
        ),
    ] {
        let answer = app.post_chat(with(ask("x"), OPTIONS, options)).await;
        answer.assert_error(400, None);
        assert_eq!(answer.json()["error"]["param"], param);
    }
}

#[tokio::test]
async fn arguments_that_make_no_sense_are_answered_with_what_to_send() {
    let engine = Site::engine([]).await;
    let upstream = ScriptedUpstream::start([
        calls([
            ("web_search", json!({})),
            ("web_search", json!({"query": "q", "freshness": "hour"})),
            ("read_page", json!({"url": ""})),
        ]),
        text("sorry"),
    ])
    .await;
    let app = builder(&upstream, &engine).start().await;
    let told = results(&app.post_chat(ask("x")).await.completion());
    for ((status, text), field) in told.iter().zip(["query", "freshness", "url"]) {
        assert_eq!(status, "error", "{text}");
        assert!(text.contains(field), "{text}");
    }
    assert_eq!(told.len(), 3);
    assert!(engine.visits().is_empty());
}

#[tokio::test]
async fn the_tools_are_listed_and_the_settings_printed() {
    let engine = Site::engine([]).await;
    let upstream = ScriptedUpstream::start([]).await;
    let app = builder(&upstream, &engine).start().await;
    let listed = app.get("/v1/agent/tools").await.json();
    let names: Vec<&Value> = listed["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["name"])
        .collect();
    assert_eq!(names, ["web_search", "read_page"]);
    assert_eq!(
        listed["data"][0]["parameters"]["required"],
        json!(["query"])
    );
    let told = builder(&upstream, &engine)
        .args(["--all"])
        .run("check-config")
        .await;
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    let origin = engine.origin();
    for line in [
        "enable_search = true",
        "[search]",
        "[search.pages]",
        "private = [\"127.0.0.1\", \"127.0.0.3\"]",
        "robots = true",
        "[[search.providers]]",
        "name = \"searxng\"",
        origin.as_str(),
    ] {
        assert!(told.stdout.contains(line), "{line}: {}", told.stdout);
    }
}
