//! A turn at a limit whose model has nothing to say: the answer is never empty without a word of why.

use serde_json::{Value, json};

use super::support::app::TestApp;
use super::support::ask::{ask_with, with};
use super::support::script::{Reply, calls, reasoning, text, text_and_calls};
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::{self, Webhook};

/// What a model does at the last call, in which it must not call tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// It answers.
    Obeys,
    /// It calls a tool all the same.
    Ignores,
    /// Its call is deleted and nothing is left.
    Deletes,
    /// It has nothing to say, whatever it is offered.
    Silent,
}

/// A limit with the fields that set it, and the rounds before it is reached.
#[derive(Debug, Clone, Copy)]
struct Limit {
    reason: &'static str,
    fields: fn() -> Value,
    rounds: u64,
}

const MANNERS: [Manner; 4] = [
    Manner::Obeys,
    Manner::Ignores,
    Manner::Deletes,
    Manner::Silent,
];

const LIMITS: [Limit; 5] = [
    Limit {
        reason: "max_tool_rounds",
        fields: || json!({}),
        rounds: 1,
    },
    Limit {
        reason: "max_tool_calls",
        fields: || json!({"limits": {"max_tool_calls": 1}}),
        rounds: 1,
    },
    Limit {
        reason: "max_seconds",
        fields: || json!({"limits": {"max_seconds": 0.3}}),
        rounds: 1,
    },
    Limit {
        reason: "max_total_tokens",
        fields: || json!({"limits": {"max_total_tokens": 15}}),
        rounds: 1,
    },
    // One call runs, and two are held back.
    Limit {
        reason: "repeated_calls",
        fields: || json!({"repeat_threshold": 2}),
        rounds: 3,
    },
];

/// A model that asks for the tool whenever it may, and has no text before its last call.
async fn model(manner: Manner) -> ScriptedUpstream {
    ScriptedUpstream::answering(move |request| {
        let asked = request.messages()[0]["content"]
            .as_str()
            .unwrap()
            .to_owned();
        let number = match asked.as_str() {
            "repeated_calls" => 0,
            _ => request.tool_results().len(),
        };
        let call = || calls([(tool_for(&asked), json!({"n": number}))]).usage(10, 10);
        let offered = request.body["tools"].is_array();
        let withheld = request.body["tool_choice"] == "none";
        match (offered, withheld, manner) {
            (true, false, _) | (true, true, Manner::Ignores) => call(),
            (true, true, Manner::Obeys)
            | (false, _, Manner::Obeys | Manner::Ignores | Manner::Deletes) => text("Enough."),
            (true, true, Manner::Deletes | Manner::Silent) | (false, _, Manner::Silent) => text(""),
        }
    })
    .await
}

/// The tool that the model asks for; for the limit on time one that never answers.
fn tool_for(reason: &str) -> &'static str {
    match reason {
        "max_seconds" => "hangs",
        _ => "t",
    }
}

async fn hook() -> Webhook {
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    hook.on("hangs", webhook::hang())
}

/// The request of one cell. What is learned of a model must not reach the next cell, so that each has its own.
fn request(limit: Limit, on_limit: &str, model: &str) -> Value {
    let mut agent = (limit.fields)();
    agent["on_limit"] = json!(on_limit);
    let mut body = with(ask_with(limit.reason, ["t", "hangs"]), "agent", agent);
    if limit.reason == "max_tool_rounds" {
        body["max_tool_rounds"] = json!(1);
    }
    body["model"] = json!(model);
    body
}

/// The sentence of a limit.
fn sentence(reason: &str) -> String {
    let limit = match reason {
        "max_tool_rounds" => "the limit on rounds of tool calls",
        "max_tool_calls" => "the limit on tool calls",
        "max_seconds" => "the time limit",
        "max_total_tokens" => "the limit on tokens",
        _ => "the limit on repeated tool calls",
    };
    format!("The turn ended without a final answer: it reached {limit} ({reason}).")
}

fn has_notice<'a>(notices: impl IntoIterator<Item = &'a Value>, reason: &str) -> bool {
    let mut notices = notices.into_iter();
    notices.any(|notice| {
        let message = notice["message"].as_str().unwrap();
        notice["kind"] == "limit_reached" && message.contains(reason)
    })
}

/// Checks one cell, streamed and whole.
async fn check(app: &TestApp, manner: Manner, limit: Limit, on_limit: &str) {
    let cell = format!("{manner:?} {} {on_limit}", limit.reason);
    let request = |form: &str| request(limit, on_limit, &format!("{cell} {form}"));
    let whole = app.post_chat(request("whole")).await;
    let stream = app.stream_chat(request("streamed")).await.collect().await;
    assert!(has_notice(stream.notices(), limit.reason), "{cell}");
    if on_limit == "error" {
        let message = whole.assert_error(422, Some("agent_limit_exceeded"));
        assert!(message.contains(limit.reason), "{cell}: {message}");
        let error = stream.error.unwrap();
        assert_eq!(error["code"], "agent_limit_exceeded", "{cell}");
        return;
    }
    let body = whole.completion();
    let answers = on_limit == "final_answer" && manner != Manner::Silent;
    let expected = match answers {
        true => "Enough.".to_owned(),
        false => sentence(limit.reason),
    };
    // The ordinary call after the last round, the final call, and the one without tools.
    let more = match (on_limit, manner, limit.reason) {
        ("stop", _, "max_tool_rounds" | "max_tool_calls") => 1,
        ("stop", ..) => 0,
        (_, Manner::Obeys, _) => 1,
        (_, Manner::Ignores | Manner::Deletes | Manner::Silent, _) => 2,
    };
    assert_eq!(whole.content(), expected, "{cell}");
    assert_eq!(stream.text, expected, "{cell}");
    assert_eq!(stream.finish_reason(), "stop", "{cell}");
    assert_eq!(body["choices"][0]["finish_reason"], "stop", "{cell}");
    for agent in [&body["agent"], stream.agent()] {
        assert_eq!(agent["stop_reason"], limit.reason, "{cell}");
        assert_eq!(agent["model_calls"], limit.rounds + more, "{cell}");
        let notices = agent["notices"].as_array().unwrap();
        assert!(has_notice(notices, limit.reason), "{cell}");
        assert_eq!(notices.len(), 1, "{cell}");
    }
}

#[tokio::test]
async fn no_answer_at_a_limit_is_empty() {
    for manner in MANNERS {
        let (upstream, hook) = (model(manner).await, hook().await);
        let app = TestApp::with_tools(&upstream, &hook).await;
        let modes = ["final_answer", "stop", "error"];
        let cells = LIMITS.map(|limit| modes.map(|on_limit| check(&app, manner, limit, on_limit)));
        futures_util::future::join_all(cells.into_iter().flatten()).await;
    }
}

#[tokio::test]
async fn that_a_model_needs_its_last_call_without_tools_is_remembered_until_a_restart() {
    let (upstream, hook) = (model(Manner::Ignores).await, hook().await);
    let mut app = TestApp::with_tools(&upstream, &hook).await;
    for (model, calls) in [("m", 3), ("m", 2), ("n", 3), ("n", 2), ("m", 2)] {
        let body = request(LIMITS[0], "final_answer", model);
        let body = app.post_chat(body).await.completion();
        assert_eq!(body["agent"]["model_calls"], calls, "{model}");
        assert_eq!(body["choices"][0]["message"]["content"], "Enough.");
        assert!(upstream.last().raw("tools").is_none());
    }
    app.restart().await;
    let body = request(LIMITS[0], "final_answer", "m");
    let body = app.post_chat(body).await.completion();
    assert_eq!(body["agent"]["model_calls"], 3);
}

#[tokio::test]
async fn the_text_of_earlier_rounds_stays_and_the_sentence_follows_it() {
    let script = || {
        [
            text_and_calls("Let me look.", [("t", json!({}))]),
            text("\n"),
            text(""),
        ]
    };
    for (mode, expected) in [("all", "Let me look.\n\n"), ("final", "")] {
        // The second turn is known to need its last call without tools.
        let [first, _, last] = script();
        let upstream = ScriptedUpstream::start(script().into_iter().chain([first, last])).await;
        let hook = hook().await;
        let app = TestApp::with_tools(&upstream, &hook).await;
        let mut body = with(ask_with("Go", ["t"]), "max_tool_rounds", json!(1));
        body["agent"] = json!({"text": mode});
        let sentence = sentence("max_tool_rounds");
        assert_eq!(
            app.post_chat(body.clone()).await.content(),
            format!("{expected}{sentence}")
        );
        let stream = app.stream_chat(body).await.collect().await;
        let expected = match mode {
            "all" => format!("Let me look.\n\n{sentence}"),
            _ => sentence,
        };
        assert_eq!(stream.text, expected, "{mode}");
        assert_eq!(upstream.remaining(), 0);
    }
}

#[tokio::test]
async fn the_reasoning_of_a_last_call_without_text_reaches_the_client_in_both_forms() {
    let script = || -> [Reply; 2] {
        [
            calls([("t", json!({}))]),
            reasoning("I would look again.", ""),
        ]
    };
    let upstream = ScriptedUpstream::start(
        script()
            .into_iter()
            .chain([text("Done.")])
            .chain(script().into_iter())
            .chain([text("Done.")]),
    )
    .await;
    let hook = hook().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = |model: &str| {
        let body = with(ask_with("Go", ["t"]), "max_tool_rounds", json!(1));
        with(body, "model", json!(model))
    };
    let whole = app.post_chat(body("m")).await;
    let message = &whole.completion()["choices"][0]["message"];
    assert_eq!(message["content"], "Done.");
    assert_eq!(message["reasoning_content"], "I would look again.");
    let stream = app.stream_chat(body("n")).await.collect().await;
    assert_eq!(stream.text, "Done.");
    assert_eq!(stream.reasoning, "I would look again.");
}

#[tokio::test]
async fn the_sentence_is_stored_as_the_answer_and_the_session_goes_on() {
    for on_limit in ["final_answer", "stop"] {
        let (upstream, hook) = (model(Manner::Silent).await, hook().await);
        let app = TestApp::with_tools(&upstream, &hook).await;
        let body = request(LIMITS[0], on_limit, "m");
        let body = with(body, "session_id", json!("s"));
        let answer = app.post_chat(body.clone()).await.content();
        let stored = app.get("/v1/sessions/s").await.json();
        let stored = stored["messages"].as_array().unwrap();
        assert_eq!(
            stored.last().unwrap(),
            &json!({"role": "assistant", "content": answer})
        );
        // The client sends what it saw, and its next message; a strict server takes the whole history.
        let said = stored.len();
        let mut next = body;
        next["messages"] = json!([
            next["messages"][0],
            {"role": "assistant", "content": answer},
            {"role": "user", "content": "And now?"},
        ]);
        next["max_tool_rounds"] = json!(0);
        app.post_chat(next).await.completion();
        assert_eq!(upstream.last().messages().len(), said + 1, "{on_limit}");
    }
}
