//! `tool_choice` in its spellings, and what it forbids, with model servers that do not heed it.

use serde_json::{Value, json};

use super::support::app::TestApp;
use super::support::ask::{ask_with, user, with};
use super::support::script::{Reply, calls, text, text_and_calls};
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::{self, Webhook};

/// A request with the tools `t` and `u` of the server and `c` of the client.
fn chosen(text: &str, choice: Value) -> Value {
    let body = with(ask_with(text, ["t", "u", "c"]), "tool_choice", choice);
    with(body, "agent", json!({"client_tools": ["c"]}))
}

/// The same for the Responses API, streamed or not.
fn response(text: &str, choice: Value, stream: bool) -> Value {
    let tool =
        |name: &str| json!({"type": "function", "name": name, "parameters": {"type": "object"}});
    let tools = ["t", "u", "c"].map(tool);
    json!({"model": "m", "input": text, "tools": tools, "tool_choice": choice, "stream": stream, "store": false})
}

async fn hook() -> Webhook {
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    hook.on("u", webhook::text("s"))
}

async fn app(upstream: &ScriptedUpstream, hook: &Webhook) -> TestApp {
    let builder = TestApp::builder().upstream(upstream).dispatch(hook);
    // The Responses API dispatches nothing without it.
    builder.toml("dispatch_tools = [\"*\"]").start().await
}

fn function(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name}})
}

fn choices(upstream: &ScriptedUpstream, from: usize) -> Vec<Value> {
    let requests = upstream.requests();
    let requests = requests.get(from..).unwrap_or_default().iter();
    requests
        .map(|request| request.body["tool_choice"].clone())
        .collect()
}

/// A model that calls `t` whenever it is forced to.
async fn forced() -> ScriptedUpstream {
    let mut n = 0;
    ScriptedUpstream::answering(move |request| {
        n += 1;
        match &request.body["tool_choice"] {
            Value::String(word) if word == "auto" => text("Done."),
            Value::Null => text("Done."),
            _ => calls([("t", json!({"n": n}))]),
        }
    })
    .await
}

#[tokio::test]
async fn a_forced_call_in_any_spelling_binds_the_first_round_only() {
    let (upstream, hook) = (forced().await, hook().await);
    let app = app(&upstream, &hook).await;
    for asked in [
        json!("required"),
        json!("any"),
        json!("ANY"),
        json!({"type": "any"}),
        json!({"type": "required"}),
        json!({"type": "any", "disable_parallel_tool_use": true}),
        json!({"type": "tool", "name": "t"}),
        json!({"type": "function", "name": "t"}),
        function("t"),
        json!({"type": "custom", "custom": {"name": "t"}}),
        json!({"type": "something new"}),
    ] {
        let before = upstream.requests().len();
        let answer = app.post_chat(chosen("Go", asked.clone())).await;
        assert_eq!(answer.content(), "Done.", "{asked}");
        let stream = app.stream_chat(chosen("Go", asked.clone())).await;
        assert_eq!(stream.collect().await.text, "Done.", "{asked}");
        let (first, auto) = (asked, json!("auto"));
        let expected = [first.clone(), auto.clone(), first, auto];
        assert_eq!(choices(&upstream, before), expected);
    }
    for (asked, first) in [
        (json!("any"), json!("required")),
        (json!({"type": "required"}), json!("required")),
        (json!({"type": "tool", "name": "t"}), function("t")),
    ] {
        let before = upstream.requests().len();
        let body = response("Go", asked.clone(), false);
        let answer = app.post("/v1/responses", &body).await.json();
        assert_eq!(answer["status"], "completed", "{answer}");
        assert_eq!(answer["tool_choice"], asked);
        assert_eq!(choices(&upstream, before), [first, json!("auto")]);
    }
}

#[tokio::test]
async fn a_tool_named_in_any_spelling_has_to_be_offered() {
    let (upstream, hook) = (forced().await, hook().await);
    let app = app(&upstream, &hook).await;
    let spellings = |name: &str| {
        [
            json!({"type": "tool", "name": name}),
            json!({"type": "function", "name": name}),
            json!({"type": "custom", "name": name}),
        ]
    };
    for unknown in spellings("nobody") {
        let refused = app.post_chat(chosen("Go", unknown.clone())).await;
        assert!(refused.assert_error(400, None).contains("'nobody'"));
        let refused = app
            .post("/v1/responses", &response("Go", unknown, false))
            .await;
        refused.assert_error(400, None);
    }
    assert!(upstream.requests().is_empty());
    for left_out in spellings("u") {
        let mut body = chosen("Go", left_out);
        body["agent"]["tools"] = json!({"deny": ["u"]});
        assert_eq!(app.post_chat(body).await.content(), "Done.");
        assert!(upstream.last().body["tool_choice"].is_null());
    }
}

#[tokio::test]
async fn a_named_tool_does_not_forbid_the_others() {
    let script = || [calls([("u", json!({})), ("t", json!({}))]), text("Done.")];
    let upstream = ScriptedUpstream::start(script().into_iter().chain(script())).await;
    let hook = hook().await;
    let app = app(&upstream, &hook).await;
    for named in [function("t"), json!({"type": "tool", "name": "t"})] {
        let body = app.post_chat(chosen("Go", named)).await.completion();
        assert_eq!(body["agent"]["rounds"], 1);
    }
    assert_eq!(hook.calls().len(), 4);
}

/// A model that calls the tool that the user names, although it must not. With `text` it has text beside the calls; when it
/// is `silent`, it has no answer without tools either.
async fn stubborn(silent: bool) -> ScriptedUpstream {
    ScriptedUpstream::answering(move |request| {
        let asked = request.messages()[0]["content"]
            .as_str()
            .unwrap()
            .to_owned();
        let called = asked.trim_start_matches("text ");
        match (request.body["tools"].is_array(), silent) {
            (true, _) if asked.starts_with("text ") => text_and_calls("So.", [(called, json!({}))]),
            (true, _) => calls([(called, json!({}))]),
            (false, false) => text("Enough."),
            (false, true) => text(""),
        }
    })
    .await
}

fn none() -> [Value; 2] {
    [json!("none"), json!({"type": "none"})]
}

#[tokio::test]
async fn with_none_the_text_is_the_answer_and_nothing_is_run_or_handed_over() {
    let (upstream, hook) = (stubborn(false).await, hook().await);
    let app = app(&upstream, &hook).await;
    for (number, asked) in none().into_iter().enumerate() {
        for called in ["t", "c", "ghost"] {
            let session = format!("{called}-{number}");
            let body = chosen(&format!("text {called}"), asked.clone());
            let body = with(body, "session_id", json!(session));
            let before = upstream.requests().len();
            let whole = app.post_chat(body.clone()).await.completion();
            assert_eq!(choices(&upstream, before), std::slice::from_ref(&asked));
            let choice = &whole["choices"][0];
            assert_eq!(choice["message"]["content"], "So.");
            assert_eq!(choice["message"].get("tool_calls"), None);
            assert_eq!(choice["finish_reason"], "stop");
            assert_eq!(whole["agent"]["stop_reason"], "completed");
            assert_eq!(whole.get("agentic_tool_calls"), None);
            let stored = app.get(&format!("/v1/sessions/{session}")).await.json();
            let last = json!({"role": "assistant", "content": "So."});
            assert_eq!(stored["messages"][1], last, "{stored}");
            assert_eq!(stored["messages"].as_array().unwrap().len(), 2);

            let stream = app.stream_chat(with(body, "session_id", json!(format!("{session}-s"))));
            let stream = stream.await.collect().await;
            assert_eq!(stream.text, "So.");
            assert!(stream.tool_calls.is_empty() && stream.progress.is_empty());
            assert_eq!(stream.finish_reason(), "stop");
        }
    }
    assert!(hook.calls().is_empty());
}

#[tokio::test]
async fn with_none_an_answer_of_calls_alone_is_asked_for_without_tools_and_that_is_remembered() {
    for (called, asked) in [("t", 0), ("c", 1), ("ghost", 0)] {
        let (upstream, hook) = (stubborn(false).await, hook().await);
        let app = app(&upstream, &hook).await;
        let asked = none()[asked].clone();
        let body = chosen(called, asked.clone());
        let whole = app.post_chat(body.clone()).await.completion();
        assert_eq!(whole["choices"][0]["message"]["content"], "Enough.");
        assert_eq!(whole["choices"][0]["finish_reason"], "stop");
        assert_eq!(whole["agent"]["stop_reason"], "completed");
        assert_eq!(whole["agent"]["model_calls"], 2);
        assert_eq!(whole["agent"]["rounds"], 0);
        assert_eq!(choices(&upstream, 0), [asked, Value::Null]);
        assert!(upstream.last().raw("tools").is_none());

        let stream = app.stream_chat(body).await.collect().await;
        assert_eq!(stream.text, "Enough.");
        assert!(stream.tool_calls.is_empty() && stream.progress.is_empty());
        assert_eq!(stream.agent()["model_calls"], 1, "it is remembered");
        assert!(hook.calls().is_empty());
    }
}

#[tokio::test]
async fn with_none_an_answer_is_not_empty_without_a_word_of_why() {
    let (upstream, hook) = (stubborn(true).await, hook().await);
    let app = app(&upstream, &hook).await;
    // What is learned of a model shortens the second turn.
    for calls in [2, 1] {
        let whole = app.post_chat(chosen("t", json!("none"))).await;
        let content = whole.content();
        assert!(content.contains("'tool_choice' forbids"), "{content}");
        let body = whole.completion();
        assert_eq!(body["agent"]["stop_reason"], "completed");
        assert_eq!(body["agent"]["model_calls"], calls);
        let stream = app.stream_chat(chosen("c", json!({"type": "none"}))).await;
        assert_eq!(stream.collect().await.text, content);
    }
}

#[tokio::test]
async fn none_leaves_no_item_of_a_call_in_a_response() {
    for called in ["t", "c"] {
        let (upstream, hook) = (stubborn(false).await, hook().await);
        // `c` is the client's.
        let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
        let app = builder
            .toml("dispatch_tools = [\"t\", \"u\"]")
            .start()
            .await;
        for (asked, stream) in [(json!("none"), true), (json!({"type": "none"}), false)] {
            let body = response(called, asked, stream);
            let answer = app.post("/v1/responses", &body).await;
            assert_eq!(answer.status, 200);
            let shown = answer.text();
            assert!(shown.contains("Enough."), "{shown}");
            assert!(!shown.contains("function_call"), "{shown}");
        }
        assert!(hook.calls().is_empty());
    }
}

fn nested(mode: &str, tools: &[Value]) -> Value {
    json!({"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}})
}

#[tokio::test]
async fn allowed_tools_bind_every_round_whatever_the_model_asks_for() {
    let script = || -> [Reply; 5] {
        [
            calls([("u", json!({}))]),
            calls([("c", json!({}))]),
            calls([
                ("t", json!({})),
                ("u", json!({"n": 2})),
                ("ghost", json!({})),
            ]),
            text_and_calls("Again.", [("u", json!({"n": 3}))]),
            text("Done."),
        ]
    };
    let flat = |name: &str| json!({"type": "function", "name": name});
    for (asked, later) in [
        (
            nested("auto", &[function("t")]),
            nested("auto", &[function("t")]),
        ),
        (
            nested("required", &[flat("t")]),
            nested("auto", &[flat("t")]),
        ),
        (
            json!({"type": "allowed_tools", "mode": "any", "tools": [{"type": "tool", "name": "t"}]}),
            json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "tool", "name": "t"}]}),
        ),
    ] {
        let upstream = ScriptedUpstream::start(script().into_iter().chain(script())).await;
        let hook = hook().await;
        let app = app(&upstream, &hook).await;
        let whole = app
            .post_chat(chosen("Go", asked.clone()))
            .await
            .completion();
        let message = &whole["choices"][0]["message"];
        assert_eq!(message["content"], "Again.\n\nDone.");
        assert_eq!(message.get("tool_calls"), None);
        let shown = whole["agentic_tool_calls"].as_array().unwrap();
        assert_eq!(shown.len(), 1, "only the call that ran");
        assert_eq!(hook.names(), ["t"]);
        let mut expected = vec![later; 5];
        expected[0] = asked.clone();
        assert_eq!(choices(&upstream, 0), expected);
        let told: Vec<String> = upstream
            .last()
            .tool_results()
            .into_iter()
            .map(|(_, told)| told)
            .collect();
        let forbidden = |name: &str| {
            format!(
                "The tool '{name}' is not offered for this request. The available tools are: t."
            )
        };
        let unknown = "There is no tool named 'ghost'. The available tools are: t.".to_owned();
        let ran = "r".to_owned();
        let [u, c] = ["u", "c"].map(forbidden);
        assert_eq!(told, [u.clone(), c, ran, u.clone(), unknown, u]);

        let stream = app.stream_chat(chosen("Go", asked)).await.collect().await;
        assert_eq!(stream.text, "Again.\n\nDone.");
        assert!(stream.tool_calls.is_empty());
        assert_eq!(stream.phase("calling").len(), 1);
    }
}

#[tokio::test]
async fn an_allowed_client_tool_is_handed_over_beside_calls_that_are_forbidden() {
    let first = calls([("t", json!({})), ("c", json!({"n": 1}))]);
    let upstream = ScriptedUpstream::start([first, text("Done.")]).await;
    let hook = hook().await;
    let app = app(&upstream, &hook).await;
    let body = chosen("Go", nested("auto", &[function("c")]));
    let body = with(body, "session_id", json!("s"));
    let whole = app.post_chat(body.clone()).await.completion();
    assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls");
    let handed = whole["choices"][0]["message"]["tool_calls"]
        .as_array()
        .unwrap();
    assert_eq!(handed.len(), 1);
    assert_eq!(handed[0]["function"]["name"], "c");
    let id = &handed[0]["id"];
    let answer = json!([{"role": "tool", "tool_call_id": id, "content": "mine"}]);
    let answered = app.post_chat(with(body, "messages", answer)).await;
    assert_eq!(answered.content(), "Done.");
    let told = upstream.last().tool_results();
    assert!(told[0].1.contains("'t' is not offered"), "{told:?}");
    assert_eq!(told[1].1, "mine");
    assert!(hook.calls().is_empty());
}

#[tokio::test]
async fn allowed_tools_that_allow_nothing_are_none() {
    for tools in [json!([]), json!([function("nobody")])] {
        let (upstream, hook) = (stubborn(false).await, hook().await);
        let app = app(&upstream, &hook).await;
        let asked =
            json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": tools}});
        let whole = app.post_chat(chosen("t", asked)).await;
        assert_eq!(whole.content(), "Enough.");
        assert!(hook.calls().is_empty());
    }
}

#[tokio::test]
async fn a_forbidden_call_binds_the_turn_of_its_request_only() {
    let upstream = ScriptedUpstream::start([
        text_and_calls("No.", [("t", json!({}))]),
        calls([("t", json!({}))]),
        text("Yes."),
    ])
    .await;
    let hook = hook().await;
    let app = app(&upstream, &hook).await;
    let body = with(chosen("Go", json!("none")), "session_id", json!("s"));
    assert_eq!(app.post_chat(body.clone()).await.content(), "No.");
    let mut next = with(body, "messages", json!([user("And now?")]));
    next.as_object_mut().unwrap().remove("tool_choice");
    assert_eq!(app.post_chat(next).await.content(), "Yes.");
    assert_eq!(hook.names(), ["t"]);
}
