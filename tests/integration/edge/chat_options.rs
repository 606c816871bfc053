//! Options of a chat request: how progress is sent, and the text of an answer that is a JSON document.

use http::Method;
use serde_json::{Value, json};

use super::super::support::app::TestApp;
use super::super::support::ask::{ask, ask_with, with};
use super::super::support::client::Answer;
use super::super::support::collect::TOOL_PROGRESS;
use super::super::support::script::{calls, text, text_and_calls};
use super::super::support::upstream::{MODEL, ScriptedUpstream};
use super::super::support::webhook::{self, Webhook};

const PROGRESS: &str = "x-loopwright-progress";
const DOCUMENT: &str = "{\"city\":\"Oslo\"}";

fn agent(body: Value, agent: Value) -> Value {
    with(body, "agent", agent)
}

#[tokio::test]
async fn a_header_says_how_progress_is_sent_and_the_body_counts_more() {
    let replies = (0..6).flat_map(|_| [calls([("t", json!({}))]), text("x")]);
    let upstream = ScriptedUpstream::start(replies).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let sdk = app.client().header("x-stainless-lang", "python");
    let named = Some(TOOL_PROGRESS);
    for (client, header, body, events, name) in [
        (app.client(), "none", None, 0, None),
        (app.client(), "chunk", None, 2, None),
        (&sdk, "named", None, 2, named),
        (&sdk, "auto", None, 2, None),
        (app.client(), "none", Some("chunk"), 2, None),
        (&sdk, "named", Some("auto"), 2, None),
    ] {
        let mut request = ask_with("Go", ["t"]);
        if let Some(progress) = body {
            request = agent(request, json!({"progress": progress}));
        }
        let client = client.header(PROGRESS, header);
        let stream = client.stream_chat(request).await.collect().await;
        assert_eq!(stream.progress.len(), events, "{header} {body:?}");
        let mut progress = stream.progress.iter();
        assert!(
            progress.all(|event| event.event.as_deref() == name),
            "{header} {body:?}"
        );
    }
    for request in upstream.requests() {
        assert_eq!(request.header(PROGRESS), None, "it is loopwright's own");
    }
}

#[tokio::test]
async fn an_unknown_word_of_the_header_is_refused_in_both_dialects() {
    let upstream = ScriptedUpstream::start([]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let in_chat = [ask_with("Go", ["t"]), ask("Go")];
    let response = json!({"model": MODEL, "input": "Go"});
    let all = in_chat.map(|body| ("/v1/chat/completions", body, "chunk"));
    for (path, body, word) in all
        .into_iter()
        .chain([("/v1/responses", response, "declared")])
    {
        for wrong in ["", "Named", "loud"] {
            let client = app.client().header(PROGRESS, wrong);
            let answer = client.post(path, &body).await;
            let message = answer.assert_error(400, None);
            assert_eq!(answer.json()["error"]["param"], PROGRESS, "{path}");
            assert!(
                message.contains(word) && message.contains(PROGRESS),
                "{message}"
            );
        }
        let by_body = agent(body, json!({"progress": "loud"}));
        let answer = app.post(path, &by_body).await;
        answer.assert_error(400, None);
        assert_eq!(answer.json()["error"]["param"], "agent.progress", "{path}");
    }
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn a_request_that_passes_through_goes_without_the_header() {
    let upstream = ScriptedUpstream::start([text("x")]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let client = app.client().header(PROGRESS, "none").header("x-kept", "1");
    let answer = client.post_chat(ask("Go")).await;
    assert!(answer.completion().get("agent").is_none(), "passed through");
    client.post("/v1/embeddings", &json!({"input": "x"})).await;
    let forwarded = upstream.others();
    for seen in [&upstream.last(), forwarded.last().unwrap()] {
        assert_eq!(
            (seen.header(PROGRESS), seen.header("x-kept")),
            (None, Some("1"))
        );
    }
}

#[tokio::test]
async fn a_model_server_of_its_own_api_gets_no_header_of_loopwright() {
    let upstream = ScriptedUpstream::start([]).await;
    let native = upstream.with_quirks("native = [\"responses\"]");
    let app = TestApp::builder().toml(&native).start().await;
    let client = app.client().header(PROGRESS, "declared");
    let request = client
        .request(Method::POST, "/v1/responses")
        .header("content-type", "application/json")
        .body(json!({"model": MODEL, "input": "Go"}).to_string());
    let answer = Answer::of(request).await;
    assert_eq!(answer.header("x-echo-path"), Some("/v1/responses"));
    assert_eq!(upstream.others()[0].header(PROGRESS), None);
}

/// A model that says something before it calls a tool.
async fn talkative(runs: usize) -> ScriptedUpstream {
    let replies = (0..runs).flat_map(|_| {
        [
            text_and_calls("Let me look.", [("t", json!({}))]),
            text(DOCUMENT),
        ]
    });
    ScriptedUpstream::start(replies).await
}

fn schema() -> Value {
    json!({"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}})
}

#[tokio::test]
async fn an_answer_that_is_to_be_json_is_one_document() {
    let forms = [schema(), json!({"type": "json_object"})];
    let upstream = talkative(2 * forms.len()).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    for form in forms {
        let body = with(ask_with("Go", ["t"]), "response_format", form.clone());
        assert_eq!(app.post_chat(body.clone()).await.content(), DOCUMENT);
        assert_eq!(upstream.last().body["response_format"], form);
        let stream = app.stream_chat(body).await.collect().await;
        assert_eq!(stream.text, DOCUMENT);
        assert_eq!(stream.phase("complete").len(), 1);
        // The model has what it said.
        let said = &upstream.last().messages()[1];
        assert_eq!(said["content"], "Let me look.");
    }
}

#[tokio::test]
async fn what_the_request_says_of_the_text_counts_more_than_its_form() {
    let upstream = talkative(6).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let both = format!("Let me look.\n\n{DOCUMENT}");
    for (form, mode, expected) in [
        (schema(), Some("all"), both.as_str()),
        (schema(), Some("final"), DOCUMENT),
        (json!({"type": "text"}), None, &both),
        (json!({"type": "text"}), Some("final"), DOCUMENT),
        (Value::Null, None, &both),
        (json!({"type": "grammar"}), None, &both),
    ] {
        let mut body = with(ask_with("Go", ["t"]), "response_format", form.clone());
        if let Some(mode) = mode {
            body = agent(body, json!({"text": mode}));
        }
        let content = app.post_chat(body).await.content();
        assert_eq!(content, expected, "{form} {mode:?}");
    }
}

#[tokio::test]
async fn a_response_that_is_to_be_json_has_one_text() {
    let upstream = talkative(2).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let app = app.toml("dispatch_tools = [\"*\"]").start().await;
    let format = json!({"type": "json_schema", "name": "a", "schema": {"type": "object"}});
    let tool = json!({"type": "function", "name": "t", "parameters": {"type": "object"}});
    let body = json!({"model": MODEL, "input": "Go", "tools": [tool], "text": {"format": format}});
    let texts = |response: &Value| -> Vec<String> {
        let items = response["output"].as_array().unwrap().iter();
        let messages = items.filter(|item| item["type"] == "message");
        messages
            .map(|item| item["content"][0]["text"].as_str().unwrap())
            .map(|text| text.trim_end().to_owned())
            .collect()
    };
    let response = app.post("/v1/responses", &body).await.json();
    assert_eq!(texts(&response), [DOCUMENT], "{response}");
    let all = agent(body, json!({"text": "all"}));
    let response = app.post("/v1/responses", &all).await.json();
    assert_eq!(texts(&response), ["Let me look.", DOCUMENT], "{response}");
}
