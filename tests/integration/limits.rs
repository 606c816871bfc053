//! Caps and budgets of a turn, what happens at each, and tools that end a turn.

use serde_json::{Value, json};

use super::support::app::TestApp;
use super::support::ask::{ask, ask_with, with};
use super::support::script::{self, calls, text, text_and_calls};
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::{self, Webhook};

/// A model that asks for the tool whenever it may, each time with other arguments.
async fn insatiable() -> ScriptedUpstream {
    let mut n = 0;
    ScriptedUpstream::answering(move |request| {
        n += 1;
        let may = request.body["tools"].is_array() && request.body["tool_choice"] != "none";
        match may {
            true => text_and_calls(&format!("Call {n}."), [("t", json!({"n": n}))]).usage(10, 10),
            false => text("Enough."),
        }
    })
    .await
}

async fn hook() -> Webhook {
    Webhook::start().await.on("t", webhook::text("r"))
}

fn limited(agent: Value) -> Value {
    with(ask_with("Go", ["t"]), "agent", agent)
}

#[tokio::test]
async fn at_the_round_cap_a_final_answer_is_asked_for_without_tools() {
    let (upstream, hook) = (insatiable().await, hook().await);
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = with(ask_with("Go", ["t"]), "max_tool_rounds", json!(2));

    let stream = app.stream_chat(body).await.collect().await;

    assert_eq!(stream.text, "Call 1.\n\nCall 2.\n\nEnough.");
    assert_eq!(stream.agent()["stop_reason"], "max_tool_rounds");
    assert_eq!(stream.agent()["rounds"], 2);
    assert_eq!(stream.agent()["model_calls"], 3, "N + 1 calls in all");
    assert_eq!(stream.finish_reason(), "stop");
    assert!(!stream.notices().is_empty(), "a notice says so");
    assert_eq!(hook.calls().len(), 2);
    let last = upstream.last();
    assert_eq!(last.body["tool_choice"], "none");
    assert_eq!(
        last.raw("tools"),
        upstream.request(0).raw("tools"),
        "kept for the prompt cache"
    );
}

#[tokio::test]
async fn a_server_that_refuses_withheld_tools_is_asked_without_them() {
    let upstream = ScriptedUpstream::answering(|request| {
        match (
            request.body["tools"].is_array(),
            request.body["tool_choice"] == "none",
        ) {
            (true, true) => script::error(400, "tool_choice none is not supported"),
            (true, false) => calls([("t", json!({}))]),
            (false, _) => text("Enough."),
        }
    })
    .await;
    let hook = hook().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = with(ask_with("Go", ["t"]), "max_tool_rounds", json!(1));
    assert_eq!(app.post_chat(body).await.content(), "Enough.");
    assert!(upstream.last().raw("tools").is_none());
}

#[tokio::test]
async fn tools_are_removed_at_once_where_the_quirk_says_so() {
    let (upstream, hook) = (insatiable().await, hook().await);
    let toml = upstream.with_quirks("final_call = \"remove_tools\"");
    let app = TestApp::builder().dispatch(&hook).toml(&toml).start().await;
    let body = with(ask_with("Go", ["t"]), "max_tool_rounds", json!(1));
    assert_eq!(app.post_chat(body).await.content(), "Call 1.\n\nEnough.");
    assert_eq!(upstream.requests().len(), 2);
    assert!(upstream.last().raw("tools").is_none());
}

#[tokio::test]
async fn stop_and_error_make_an_ordinary_call_and_end_only_if_it_asks_again() {
    for on_limit in ["stop", "error"] {
        let (upstream, hook) = (insatiable().await, hook().await);
        let app = TestApp::with_tools(&upstream, &hook).await;
        let body = |id: &str| {
            let mut body = with(
                limited(json!({"on_limit": on_limit})),
                "max_tool_rounds",
                json!(1),
            );
            body["session_id"] = json!(id);
            body
        };

        let answer = app.post_chat(body("plain")).await;
        let stream = app.stream_chat(body("stream")).await.collect().await;

        assert!(
            upstream.request(1).body["tool_choice"].is_null(),
            "an ordinary call"
        );
        assert_eq!(hook.calls().len(), 2, "one call a turn");
        if on_limit == "stop" {
            let body = answer.completion();
            assert_eq!(answer.content(), "Call 1.\n\nCall 2.");
            assert_eq!(body["choices"][0]["finish_reason"], "stop");
            assert_eq!(body["agent"]["stop_reason"], "max_tool_rounds");
            assert_eq!(stream.agent()["stop_reason"], "max_tool_rounds");
            assert!(stream.tool_calls.is_empty());
        } else {
            answer.assert_error(422, Some("agent_limit_exceeded"));
            assert_eq!(
                answer.header("x-should-retry"),
                Some("false"),
                "a tool has run"
            );
            assert_eq!(stream.error.unwrap()["code"], "agent_limit_exceeded");
        }
        // Calls that did not run are stored as not run: the next turn is valid for a strict server.
        for id in ["plain", "stream"] {
            let stored = app.get(&format!("/v1/sessions/{id}")).await.json();
            let stored = stored["messages"].as_array().unwrap();
            let unrun = stored
                .iter()
                .rfind(|message| message["role"] == "tool")
                .unwrap();
            assert!(
                unrun["content"].as_str().unwrap().contains("not run"),
                "{unrun}"
            );
            let next = json!({"model": "m", "session_id": id, "max_tool_rounds": 0, "messages": [{"role": "user", "content": "?"}]});
            assert_eq!(app.post_chat(next).await.content(), "Enough.");
        }
    }
}

#[tokio::test]
async fn an_ordinary_last_call_that_does_not_ask_for_tools_is_a_completed_turn() {
    let upstream = ScriptedUpstream::start([calls([("t", json!({}))]), text("Done.")]).await;
    let hook = hook().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = with(
        limited(json!({"on_limit": "error"})),
        "max_tool_rounds",
        json!(1),
    );
    let body = app.post_chat(body).await.completion();
    assert_eq!(body["agent"]["stop_reason"], "completed");
}

#[tokio::test]
async fn the_cap_on_calls_holds_back_what_is_past_it() {
    let upstream = ScriptedUpstream::answering(|request| match request.tool_results().len() {
        0 => calls([
            ("t", json!({"n": 1})),
            ("t", json!({"n": 2})),
            ("t", json!({"n": 3})),
        ]),
        _ => text("Enough."),
    })
    .await;
    let hook = hook().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    for body in [
        limited(json!({"limits": {"max_tool_calls": 2}})),
        with(ask_with("Go", ["t"]), "max_tool_calls", json!(2)),
    ] {
        let before = hook.calls().len();
        let body = app.post_chat(body).await.completion();
        assert_eq!(hook.calls().len() - before, 2);
        let statuses: Vec<&Value> = body["agentic_tool_calls"]
            .as_array()
            .unwrap()
            .iter()
            .map(|call| &call["status"])
            .collect();
        assert_eq!(statuses, ["ok", "ok", "suppressed"]);
        assert_eq!(body["agent"]["stop_reason"], "max_tool_calls");
        assert_eq!(upstream.last().body["tool_choice"], "none");
        assert!(
            upstream.last().raw("max_tool_calls").is_none(),
            "it is read here"
        );
    }
}

#[tokio::test]
async fn the_token_budget_ends_before_the_next_call_or_with_a_last_one() {
    for (on_limit, reason, calls) in [
        ("final_answer", "max_total_tokens", 3),
        ("stop", "max_total_tokens", 2),
    ] {
        let (upstream, hook) = (insatiable().await, hook().await);
        let app = TestApp::with_tools(&upstream, &hook).await;
        let body = limited(json!({"limits": {"max_total_tokens": 30}, "on_limit": on_limit}));
        let body = app.post_chat(body).await.completion();
        assert_eq!(body["agent"]["stop_reason"], reason);
        assert_eq!(body["agent"]["model_calls"], calls, "{on_limit}");
        assert_eq!(body["choices"][0]["finish_reason"], "stop");
    }
}

#[tokio::test]
async fn tokens_are_estimated_where_the_model_server_reports_none() {
    let (upstream, hook) = (insatiable().await, hook().await);
    let toml = upstream.with_quirks("stream_options = false");
    let app = TestApp::builder().dispatch(&hook).toml(&toml).start().await;
    // Each call sends 4,000 characters, and a few more.
    let long = "word ".repeat(800);
    let asked = |limits: Value| {
        let body = with(ask_with(&long, ["t"]), "max_tool_rounds", json!(6));
        with(
            body,
            "agent",
            json!({"limits": limits, "on_limit": "stop", "text": "final"}),
        )
    };
    let kinds = |agent: &Value| -> Vec<String> {
        let notices = agent["notices"].as_array().cloned().unwrap_or_default();
        let kind = |notice: &Value| notice["kind"].as_str().unwrap().to_owned();
        notices.iter().map(kind).collect()
    };

    let limited = asked(json!({"max_total_tokens": 2500}));
    let body = app.post_chat(limited.clone()).await.completion();
    assert_eq!(body["agent"]["stop_reason"], "max_total_tokens");
    assert_eq!(body["agent"]["model_calls"], 3);
    assert_eq!(
        kinds(&body["agent"]),
        ["tokens_estimated", "limit_reached"],
        "once, whatever the number of calls"
    );
    assert!(body.get("usage").is_none(), "an estimate is no usage");
    let stream = app.stream_chat(limited).await.collect().await;
    assert_eq!(stream.notices().len(), 2);
    assert_eq!(kinds(stream.agent()), ["tokens_estimated", "limit_reached"]);

    // Without the limit nothing has to be estimated.
    let body = app.post_chat(asked(json!({}))).await.completion();
    assert_eq!(body["agent"]["stop_reason"], "max_tool_rounds");
    assert_eq!(kinds(&body["agent"]), ["limit_reached"]);
}

#[tokio::test]
async fn an_image_does_not_count_as_text_where_tokens_are_estimated() {
    let upstream = ScriptedUpstream::start([calls([("t", json!({}))]), text("Done.")]).await;
    let hook = hook().await;
    let toml = upstream.with_quirks("stream_options = false");
    let app = TestApp::builder().dispatch(&hook).toml(&toml).start().await;
    let mut body = limited(json!({"limits": {"max_total_tokens": 2500}}));
    let url = format!("data:image/png;base64,{}", "A".repeat(40_000));
    body["messages"][0]["content"] = json!([
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": url}},
    ]);
    let body = app.post_chat(body).await.completion();
    assert_eq!(body["agent"]["stop_reason"], "completed");
}

#[tokio::test]
async fn the_time_budget_cancels_a_running_tool() {
    for (on_limit, code) in [("final_answer", 200), ("stop", 200), ("error", 422)] {
        let upstream = insatiable().await;
        let hook = Webhook::start().await.on("t", webhook::hang());
        let app = TestApp::with_tools(&upstream, &hook).await;
        let body = limited(json!({"limits": {"max_seconds": 1.5}, "on_limit": on_limit}));
        let answer = app.post_chat(body).await;
        hook.dropped(0).await;
        if code == 422 {
            answer.assert_error(422, Some("agent_limit_exceeded"));
            continue;
        }
        let body = answer.completion();
        assert_eq!(body["agent"]["stop_reason"], "max_seconds");
        assert_eq!(body["agentic_tool_calls"][0]["status"], "cancelled");
        let expected = if on_limit == "stop" {
            "Call 1."
        } else {
            "Call 1.\n\nEnough."
        };
        assert_eq!(answer.content(), expected);
    }
}

#[tokio::test]
async fn at_the_time_limit_the_model_is_told_which_calls_had_started() {
    let batch = || {
        calls([
            ("t", json!({"n": 1})),
            ("t", json!({"n": 2})),
            ("t", json!({"n": 3})),
        ])
    };
    for (toml, read_only, execution) in [
        ("", false, "sequential"),
        ("max_parallel_tools = 1\n", false, "parallel"),
        ("max_parallel_tools = 1\n", true, "parallel"),
    ] {
        let upstream = ScriptedUpstream::start([batch(), text("Enough.")]).await;
        let hook = Webhook::start()
            .await
            .on_call("t", |call| match call.arguments()["n"] == 1 {
                true => webhook::text("one"),
                false => webhook::hang(),
            });
        let toml = format!(
            "{toml}[[tools]]\nname = \"t\"\ndescription = \"d\"\nread_only = {read_only}\nurl = \"{}\"",
            hook.url()
        );
        let app = TestApp::builder()
            .upstream(&upstream)
            .toml(&toml)
            .start()
            .await;
        let agent = json!({"limits": {"max_seconds": 1.0}, "tool_execution": execution});
        let body = app
            .post_chat(with(ask("Go"), "agent", agent))
            .await
            .completion();
        assert_eq!(body["agent"]["stop_reason"], "max_seconds");
        let shown = body["agentic_tool_calls"].as_array().unwrap();
        let status = |number: u64| {
            let arguments = json!({"n": number}).to_string();
            let call = shown.iter().find(|call| call["arguments"] == arguments);
            call.unwrap()["status"].clone()
        };
        assert_eq!([1, 2, 3].map(status), ["ok", "cancelled", "cancelled"]);
        assert_eq!(hook.calls().len(), 2);
        let told = upstream.last().tool_results();
        let [one, started, waited] = [0, 1, 2].map(|call| told[call].1.as_str());
        assert_eq!(one, "one");
        assert_eq!(
            started.contains("may have taken effect"),
            !read_only,
            "{started}"
        );
        assert!(!started.contains("not run"), "{started}");
        assert!(waited.contains("This call was not run"), "{waited}");
        assert!(!waited.contains("may have taken effect"), "{waited}");
    }
}

#[tokio::test]
async fn a_request_lowers_the_servers_caps_and_never_raises_them() {
    let (upstream, hook) = (insatiable().await, hook().await);
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let app = builder
        .toml("max_tool_rounds = 2\nmax_tool_calls = 50")
        .start()
        .await;
    for (asked, rounds) in [(json!(1), 1), (json!(100), 2), (Value::Null, 2)] {
        let body = with(ask_with("Go", ["t"]), "max_tool_rounds", asked);
        let body = app.post_chat(body).await.completion();
        assert_eq!(body["agent"]["rounds"], rounds);
    }
}

#[tokio::test]
async fn zero_rounds_switch_server_side_tools_off() {
    let upstream =
        ScriptedUpstream::start([calls([("t", json!({}))]), calls([("t", json!({}))])]).await;
    let hook = hook().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    // Without a session: passed through, with the one field removed.
    let body = with(ask_with("Go", ["t"]), "max_tool_rounds", json!(0));
    let passed = app.post_chat(body.clone()).await;
    assert!(passed.completion().get("agent").is_none());
    assert!(upstream.last().raw("max_tool_rounds").is_none());
    // With one: the loop, in which every tool is the client's.
    let kept = app
        .post_chat(with(body, "session_id", json!("s")))
        .await
        .completion();
    assert_eq!(kept["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(
        kept["choices"][0]["message"]["tool_calls"][0]["function"]["name"],
        "t"
    );
    assert!(hook.calls().is_empty());
}

#[tokio::test]
async fn results_that_all_terminate_end_the_turn() {
    let ends = |content: &str| webhook::json(&json!({"content": content, "terminate": true}));
    let upstream = ScriptedUpstream::start([
        calls([("a", json!({})), ("b", json!({}))]),
        text_and_calls("That is all.", [("a", json!({}))]),
        calls([("a", json!({})), ("c", json!({}))]),
        text("Went on."),
    ])
    .await;
    let hook = Webhook::start()
        .await
        .on("a", ends("Form A sent."))
        .on("b", ends("Form B sent."))
        .on("c", webhook::text("no end"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let go = || app.post_chat(ask_with("Go", ["a", "b", "c"]));

    let first = go().await;
    assert_eq!(
        first.content(),
        "Form A sent.\n\nForm B sent.",
        "a silent round is answered by the results"
    );
    assert_eq!(
        first.completion()["agent"]["stop_reason"],
        "terminated_by_tool"
    );
    assert_eq!(go().await.content(), "That is all.");
    assert_eq!(upstream.requests().len(), 2, "no further call");
    assert_eq!(
        go().await.content(),
        "Went on.",
        "one that does not terminate keeps the turn alive"
    );
}

#[tokio::test]
async fn the_models_own_limits_are_reported() {
    for (finish, reason) in [("length", "length"), ("content_filter", "content_filter")] {
        let upstream =
            ScriptedUpstream::start([text("Cut o").finish(finish), text("Cut o").finish(finish)])
                .await;
        let hook = hook().await;
        let app = TestApp::with_tools(&upstream, &hook).await;
        let body = app.post_chat(ask_with("Go", ["t"])).await.completion();
        assert_eq!(body["choices"][0]["finish_reason"], finish);
        assert_eq!(body["agent"]["stop_reason"], reason);
        let stream = app.stream_chat(ask_with("Go", ["t"])).await.collect().await;
        assert_eq!(stream.finish_reason(), finish);
    }
}

#[tokio::test]
async fn permission_deny_runs_nothing_and_tells_the_model() {
    // The second is the name that clients of mistral.rs use. The scripted upstream refuses both fields.
    for field in ["agent_permission", "code_execution_permission"] {
        let script = [calls([("t", json!({}))]), text("Then not.")];
        let upstream = ScriptedUpstream::start(script).await;
        let hook = hook().await;
        let app = TestApp::with_tools(&upstream, &hook).await;
        let body = with(ask_with("Go", ["t"]), field, json!("deny"));
        let body = app.post_chat(body).await.completion();
        assert_eq!(body["agentic_tool_calls"][0]["status"], "denied", "{field}");
        assert!(hook.calls().is_empty(), "{field}");
    }
}

#[tokio::test]
async fn a_turn_that_may_make_no_calls_is_one_call_without_tools() {
    let (upstream, hook) = (insatiable().await, hook().await);
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = with(ask_with("Go", ["t"]), "max_tool_calls", json!(0));
    let answer = app.post_chat(body).await;
    assert_eq!(answer.content(), "Enough.");
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_call_without_tools_has_no_fields_about_tools() {
    let (upstream, hook) = (insatiable().await, hook().await);
    let toml = upstream.with_quirks("final_call = \"remove_tools\"");
    let app = TestApp::builder().dispatch(&hook).toml(&toml).start().await;
    let mut body = with(ask_with("Go", ["t", "u"]), "max_tool_rounds", json!(1));
    body["parallel_tool_calls"] = json!(false);
    // The scripted server refuses such fields without tools.
    assert_eq!(
        app.post_chat(body.clone()).await.content(),
        "Call 1.\n\nEnough."
    );
    assert_eq!(upstream.request(0).body["parallel_tool_calls"], false);
    body["agent"] = json!({"tools": {"deny": ["*"]}});
    body["tool_choice"] = json!("required");
    assert_eq!(app.post_chat(body.clone()).await.content(), "Enough.");
    body["agent"] = json!({"tools": {"deny": ["u"]}});
    body["tool_choice"] = json!({"type": "function", "function": {"name": "u"}});
    app.post_chat(body).await.completion();
    assert!(
        upstream.request(3).body["tool_choice"].is_null(),
        "names what is not offered"
    );
}

#[tokio::test]
async fn a_stopped_turn_keeps_the_text_so_far_in_every_mode() {
    for mode in ["all", "final"] {
        let (upstream, hook) = (insatiable().await, hook().await);
        let app = TestApp::with_tools(&upstream, &hook).await;
        let agent = json!({"limits": {"max_total_tokens": 15}, "on_limit": "stop", "text": mode});
        let plain = app.post_chat(limited(agent.clone())).await;
        assert_eq!(plain.content(), "Call 1.", "{mode}");
        assert_eq!(plain.completion()["agent"]["model_calls"], 1);
        let stream = app.stream_chat(limited(agent)).await.collect().await;
        assert_eq!(stream.text, "Call 2.", "{mode}");
    }
}

#[tokio::test]
async fn a_call_that_the_token_limit_cut_off_is_not_run() {
    let whole = json!({"a": 1});
    let upstream = ScriptedUpstream::start([
        text_and_calls("Now.", [("t", json!("{\"a\": \"hello wor"))]).finish("length"),
        calls([("t", whole.clone()), ("t", json!("{\"a\": \"hello wor"))]).finish("length"),
        text("Done."),
    ])
    .await;
    let hook = hook().await;
    let app = TestApp::with_tools(&upstream, &hook).await;

    // Nothing but a half call: the answer ends at its limit, as it does without tools.
    let body = app.post_chat(ask_with("Go", ["t"])).await.completion();
    assert_eq!(body["choices"][0]["finish_reason"], "length");
    assert_eq!(body["agent"]["stop_reason"], "length");
    assert!(hook.calls().is_empty());

    let body = app.post_chat(ask_with("Go", ["t"])).await.completion();
    assert_eq!(body["choices"][0]["message"]["content"], "Done.");
    assert_eq!(hook.calls().len(), 1);
    assert_eq!(hook.call(0).arguments(), &whole);
    assert!(
        upstream.last().tool_results()[1]
            .1
            .contains("cut off by the token limit")
    );
}
