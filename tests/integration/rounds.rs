//! The loop: rounds, batches, text over rounds, usage, and both forms of answer.

use serde_json::{Value, json};

use super::support::app::TestApp;
use super::support::ask::{ask, ask_with, assistant, tool, user, with};
use super::support::collect::TOOL_PROGRESS;
use super::support::script::{calls, reasoning, text, text_and_calls};
use super::support::server::Gate;
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::{self, Webhook};

/// A webhook that knows one tool.
async fn ticket_hook() -> Webhook {
    let answer = json!({"content": {"status": "open"}});
    Webhook::start()
        .await
        .on("get_ticket", webhook::json(&answer))
}

#[tokio::test]
async fn one_round_is_answered_in_one_piece() {
    let upstream = ScriptedUpstream::start([
        text_and_calls("Let me look.", [("get_ticket", json!({"id": 7}))]).usage(20, 10),
        text("It is open.").usage(40, 5),
    ])
    .await;
    let hook = ticket_hook().await;
    let app = TestApp::with_tools(&upstream, &hook).await;

    let answer = app.post_chat(ask_with("Ticket 7?", ["get_ticket"])).await;
    let body = answer.completion();

    assert_eq!(answer.content(), "Let me look.\n\nIt is open.");
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
    assert!(
        body["choices"][0]["message"].get("tool_calls").is_none(),
        "{body}"
    );
    assert_eq!(body["usage"]["prompt_tokens"], 60);
    assert_eq!(body["usage"]["completion_tokens"], 15);
    assert_eq!(body["agent"]["stop_reason"], "completed");
    assert_eq!(body["agent"]["rounds"], 1);
    assert_eq!(body["agent"]["model_calls"], 2);
    assert_eq!(body["agent"]["usage_by_round"].as_array().unwrap().len(), 2);
    assert_eq!(body["agent"]["usage_by_round"][1]["prompt_tokens"], 40);
    let call = &body["agentic_tool_calls"][0];
    assert_eq!(call["name"], "get_ticket");
    assert_eq!(call["round"], 0);
    assert_eq!(call["arguments"], r#"{"id":7}"#);
    assert_eq!(call["status"], "ok");
    assert_eq!(call["result_content"], r#"{"status":"open"}"#);
    assert!(call["duration_ms"].is_u64(), "{call}");
    assert!(call.get("repairs").is_none(), "nothing was mended: {call}");
    upstream.assert_same_results(&body["agentic_tool_calls"]);
    let session = body["session_id"].as_str().unwrap();
    assert!(session.starts_with("sess_"), "{session}");
    assert!(
        answer.header("x-session-id").is_none(),
        "the request named no session"
    );
    assert!(answer.header("x-request-id").is_some());
    assert!(
        answer
            .header("openai-processing-ms")
            .unwrap()
            .parse::<u64>()
            .is_ok()
    );
    assert!(
        answer
            .header("x-loopwright-overhead-ms")
            .unwrap()
            .parse::<f64>()
            .is_ok()
    );

    assert_eq!(hook.call(0).arguments(), &json!({"id": 7}));
    assert_eq!(hook.call(0).body["session_id"], session);
    assert_eq!(hook.call(0).body["round"], 0);
    assert_eq!(upstream.last().roles(), ["user", "assistant", "tool"]);
}

#[tokio::test]
async fn one_round_is_streamed_as_the_same_text() {
    let upstream = ScriptedUpstream::start([
        text_and_calls("Let me look.", [("get_ticket", json!({"id": 7}))]).usage(20, 10),
        text("It is open.").usage(40, 5),
    ])
    .await;
    let hook = ticket_hook().await;
    let app = TestApp::with_tools(&upstream, &hook).await;

    let mut body = ask_with("Ticket 7?", ["get_ticket"]);
    body["stream_options"] = json!({"include_usage": true});
    let stream = app.stream_chat(body).await.collect().await;

    assert_eq!(stream.text, "Let me look.\n\nIt is open.");
    assert_eq!(stream.finish_reason(), "stop");
    assert!(stream.tool_calls.is_empty());
    let usage = stream.usage.as_ref().unwrap();
    assert_eq!(
        (&usage["prompt_tokens"], &usage["completion_tokens"]),
        (&json!(60), &json!(15))
    );
    assert_eq!(stream.agent()["rounds"], 1);
    assert!(stream.session_id().is_some());
    let calling = stream.phase("calling");
    assert_eq!(calling.len(), 1);
    assert_eq!(calling[0]["tool_name"], "get_ticket");
    assert_eq!(
        calling[0]["data"],
        json!({"tool_type": "custom", "arguments": {"id": 7}})
    );
    let complete = stream.phase("complete");
    assert_eq!(complete[0]["status"], "ok");
    assert_eq!(complete[0]["data"]["content"], r#"{"status":"open"}"#);
    assert_eq!(complete[0]["tool_call_id"], calling[0]["tool_call_id"]);
    assert!(
        stream
            .progress
            .iter()
            .all(|event| event.event.as_deref() == Some("agentic_tool_call_progress"))
    );
}

#[tokio::test]
async fn five_rounds_share_one_prefix_byte_for_byte() {
    let script = (0..5)
        .map(|round| text_and_calls(&format!("Round {round}."), [("step", json!({"n": round}))]));
    let upstream = ScriptedUpstream::start(script.chain([text("Done.")])).await;
    let hook = Webhook::start().await.on("step", webhook::text("ok"));
    let app = TestApp::with_tools(&upstream, &hook).await;

    let stream = app
        .stream_chat(ask_with("Go", ["step"]))
        .await
        .collect()
        .await;

    assert_eq!(
        stream.text,
        "Round 0.\n\nRound 1.\n\nRound 2.\n\nRound 3.\n\nRound 4.\n\nDone."
    );
    assert_eq!(stream.agent()["rounds"], 5);
    assert_eq!(stream.agent()["model_calls"], 6);
    let rounds: Vec<&Value> = stream
        .phase("complete")
        .iter()
        .map(|chunk| &chunk["round"])
        .collect();
    assert_eq!(rounds, [0, 1, 2, 3, 4]);
    let requests = upstream.requests();
    for pair in requests.windows(2) {
        assert_eq!(pair[0].raw("tools"), pair[1].raw("tools"));
        let (before, after) = (
            pair[0].raw("messages").unwrap(),
            pair[1].raw("messages").unwrap(),
        );
        let prefix = before.strip_suffix(']').unwrap();
        assert!(after.starts_with(prefix), "{before}\n{after}");
        assert_eq!(pair[1].messages().len(), pair[0].messages().len() + 2);
    }
}

#[tokio::test]
async fn a_batch_of_five_runs_in_parallel_and_answers_in_order() {
    let batch = ["a", "b", "c", "d", "e"].map(|name| (name, json!({"of": name})));
    let upstream = ScriptedUpstream::start([calls(batch), text("All there.")]).await;
    // Nobody answers before all five have arrived; then the last one is the first to answer.
    let gates: Vec<Gate> = (0..5).map(|_| Gate::new()).collect();
    let mut hook = Webhook::start().await;
    for (name, gate) in ["a", "b", "c", "d", "e"].iter().zip(&gates) {
        hook = hook.on(name, webhook::text(&format!("result {name}")).gated(gate));
    }
    let app = TestApp::with_tools(&upstream, &hook).await;

    let mut stream = app
        .stream_chat(ask_with("Go", ["a", "b", "c", "d", "e"]))
        .await;
    hook.called(5).await;
    for gate in gates.iter().rev() {
        gate.open();
        let done = stream.next_progress(TOOL_PROGRESS, "complete").await;
        assert!(
            done["data"]["content"]
                .as_str()
                .unwrap()
                .starts_with("result")
        );
    }
    let stream = stream.collect().await;

    let order: Vec<&Value> = stream
        .phase("complete")
        .iter()
        .map(|chunk| &chunk["tool_name"])
        .collect();
    assert_eq!(
        order,
        ["e", "d", "c", "b", "a"],
        "progress in the order they finish"
    );
    let results: Vec<String> = upstream
        .last()
        .tool_results()
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    assert_eq!(
        results,
        ["result a", "result b", "result c", "result d", "result e"]
    );
}

#[tokio::test]
async fn no_more_calls_run_at_once_than_allowed_and_sequential_ones_alone() {
    let batch = || calls(["a", "b", "c"].map(|name| (name, json!({}))));
    let upstream = ScriptedUpstream::start([batch(), text("x")]).await;
    let gate = Gate::new();
    let hook = ["a", "b", "c"]
        .iter()
        .fold(Webhook::start().await, |hook, name| {
            hook.on(name, webhook::text("r").gated(&gate))
        });
    let app = TestApp::builder()
        .upstream(&upstream)
        .dispatch(&hook)
        .toml("max_parallel_tools = 2")
        .start()
        .await;

    let first = app.stream_chat(ask_with("Go", ["a", "b", "c"])).await;
    hook.called(2).await;
    assert_eq!(hook.calls().len(), 2, "the third waits for a place");
    gate.release(3);
    first.collect().await;
    assert_eq!(hook.calls().len(), 3);

    for (field, value) in [
        ("agent", json!({"tool_execution": "sequential"})),
        ("parallel_tool_calls", json!(false)),
    ] {
        let before = hook.calls().len();
        upstream.push(batch());
        upstream.push(text("y"));
        let body = with(ask_with("Go", ["a", "b", "c"]), field, value.clone());
        let answer = app.stream_chat(body).await;
        for count in before + 1..=before + 3 {
            hook.called(count).await;
            assert_eq!(hook.calls().len(), count, "{field}: one after another");
            gate.release(1);
        }
        answer.collect().await;
        assert_eq!(hook.names()[before..], ["a", "b", "c"]);
        if field == "parallel_tool_calls" {
            assert_eq!(upstream.last().body[field], value, "the model is told too");
        }
    }
}

#[tokio::test]
async fn text_final_leaves_the_earlier_rounds_out_of_both_forms() {
    let script = || {
        [
            text_and_calls("Thinking aloud.", [("t", json!({}))]),
            text("The answer."),
        ]
    };
    let upstream = ScriptedUpstream::start(script().into_iter().chain(script())).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = with(ask_with("Go", ["t"]), "agent", json!({"text": "final"}));

    assert_eq!(app.post_chat(body.clone()).await.content(), "The answer.");
    let stream = app.stream_chat(body).await.collect().await;
    assert_eq!(stream.text, "The answer.");
    assert_eq!(stream.phase("complete").len(), 1);
}

#[tokio::test]
async fn reasoning_and_text_arrive_apart_and_reasoning_goes_back_with_the_history() {
    let upstream = ScriptedUpstream::start([
        calls([("t", json!({}))]).thinking("I should look."),
        reasoning("Now I know.", "Yes."),
    ])
    .await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;

    let stream = app.stream_chat(ask_with("Go", ["t"])).await.collect().await;

    assert_eq!(stream.text, "Yes.");
    assert_eq!(stream.reasoning, "I should look.Now I know.");
    for frame in &stream.frames {
        assert!(
            !(frame.data.contains("\"content\":\"Y") && frame.data.contains("reasoning")),
            "never in one chunk together"
        );
    }
    assert_eq!(
        upstream.last().messages()[1]["reasoning_content"],
        "I should look."
    );
}

#[tokio::test]
async fn progress_comes_as_the_request_wants_it() {
    let replies = (0..5).flat_map(|_| [calls([("t", json!({}))]), text("x")]);
    let upstream = ScriptedUpstream::start(replies).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let sdk = app.client().header("x-stainless-lang", "python");
    let named = Some("agentic_tool_call_progress");
    for (client, progress, events, name) in [
        (app.client(), None, 2, named),
        (&sdk, None, 2, None),
        (&sdk, Some("named"), 2, named),
        (app.client(), Some("chunk"), 2, None),
        (app.client(), Some("none"), 0, None),
    ] {
        let mut body = ask_with("Go", ["t"]);
        if let Some(progress) = progress {
            body["agent"] = json!({"progress": progress});
        }
        let stream = client.stream_chat(body).await.collect().await;
        assert_eq!(stream.progress.len(), events, "{progress:?}");
        assert!(
            stream
                .progress
                .iter()
                .all(|event| event.event.as_deref() == name),
            "{progress:?}"
        );
    }
}

#[tokio::test]
async fn a_delta_leaves_the_moment_it_arrives() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::start([text("one two three").gate(&gate)]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    gate.release(2);
    let mut stream = app.stream_chat(ask_with("Go", ["t"])).await;
    for word in ["one ", "two ", "three"] {
        assert_eq!(
            stream.next_text().await,
            word,
            "while the upstream waits at the gate"
        );
        gate.release(1);
    }
    gate.open();
    assert_eq!(stream.collect().await.text, "one two three");
}

#[tokio::test]
async fn a_tool_choice_that_nobody_declared_is_refused() {
    let upstream = ScriptedUpstream::start([text("ok")]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    let body = |name: &str| with(ask_with("Go", ["t"]), "tool_choice", named(name));
    let refused = app.post_chat(body("other")).await;
    assert_eq!(refused.status, 400);
    let error = &refused.json()["error"];
    assert_eq!(error["param"], "tool_choice");
    assert!(
        error["message"].as_str().unwrap().contains("'other'"),
        "{error}"
    );
    assert!(upstream.requests().is_empty());
    app.post_chat(body("t")).await.completion();
}

#[tokio::test]
async fn a_forced_tool_choice_binds_only_the_first_round() {
    let upstream = ScriptedUpstream::start([calls([("t", json!({}))]), text("x")]).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    app.post_chat(with(
        ask_with("Go", ["t"]),
        "tool_choice",
        json!("required"),
    ))
    .await
    .completion();
    assert_eq!(upstream.request(0).body["tool_choice"], "required");
    assert_eq!(upstream.request(1).body["tool_choice"], "auto");
}

#[tokio::test]
async fn unknown_fields_reach_the_upstream_as_they_were_written() {
    let upstream = ScriptedUpstream::start([text("x")]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = format!(
        r#"{{"model":"scripted-model","temperature":1.50,"x_vendor":{{"a": [1,  2.0e3]}},"messages":[{{"role":"user","content":"hi","x_extra":"\u00e4"}}],"tools":[{}]}}"#,
        tool("t")
    );
    let request = app
        .client()
        .request(http::Method::POST, "/v1/chat/completions");
    let request = request
        .header("content-type", "application/json")
        .body(body);
    super::support::client::Answer::of(request)
        .await
        .completion();
    let seen = upstream.last();
    assert_eq!(seen.raw("temperature").as_deref(), Some("1.50"));
    assert_eq!(
        seen.raw("x_vendor").as_deref(),
        Some(r#"{"a": [1,  2.0e3]}"#)
    );
    assert!(
        seen.raw("messages")
            .unwrap()
            .contains(r#""x_extra":"\u00e4""#)
    );
}

#[tokio::test]
async fn a_client_without_sessions_may_send_its_own_history() {
    let upstream = ScriptedUpstream::start([text("Still here.")]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let mut body = ask("x");
    body["tools"] = json!([tool("t")]);
    body["messages"] = json!([user("Hi"), assistant("Hello"), user("There?")]);
    assert_eq!(app.post_chat(body).await.content(), "Still here.");
    assert_eq!(upstream.last().roles(), ["user", "assistant", "user"]);
}

#[tokio::test]
async fn arguments_over_several_lines_stay_one_line_on_the_stream() {
    let written = "{\n  \"city\": \"Oslo\"\n}";
    let upstream = ScriptedUpstream::start([calls([("t", json!(written))]), text("x")]).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let stream = app.stream_chat(ask_with("Go", ["t"])).await.collect().await;
    assert_eq!(
        stream.phase("calling")[0]["data"]["arguments"],
        json!({"city": "Oslo"})
    );
}

#[tokio::test]
async fn white_space_is_no_text_of_a_round() {
    let script = || {
        [
            text_and_calls("\n\n", [("t", json!({}))]),
            text_and_calls(" \n", [("t", json!({"n": 2}))]),
            text("Cold."),
        ]
    };
    for mode in ["all", "final"] {
        let upstream = ScriptedUpstream::start(script().into_iter().chain(script())).await;
        let hook = Webhook::start().await.on("t", webhook::text("r"));
        let app = TestApp::with_tools(&upstream, &hook).await;
        let body = with(ask_with("Go", ["t"]), "agent", json!({"text": mode}));
        assert_eq!(app.post_chat(body.clone()).await.content(), "Cold.");
        let stream = app.stream_chat(body).await.collect().await;
        assert_eq!(stream.text, "Cold.", "{mode}");
        // The server gets its own words back.
        assert_eq!(upstream.last().messages()[1]["content"], "\n\n");
        assert_eq!(upstream.last().messages()[3]["content"], " \n");
    }
}

#[tokio::test]
async fn white_space_around_rounds_gives_one_answer_in_both_forms() {
    for (rounds, expected) in [
        (["A.\n", "\n\n", "\n\nB."], "A.\n\n\nB."),
        (["\n", "  A.", "\n"], "  A."),
        (["", "\n\n", " \n "], ""),
        (["\n\nA.", "", "\r\n  B."], "A.\n\n  B."),
    ] {
        let [first, second, last] = rounds;
        let script = [
            text_and_calls(first, [("t", json!({}))]),
            text_and_calls(second, [("t", json!({"n": 2}))]),
            text(last),
        ];
        let script = script.clone().into_iter().chain(script);
        let upstream = ScriptedUpstream::start(script.chain([text("Next.")])).await;
        let hook = Webhook::start().await.on("t", webhook::text("r"));
        let app = TestApp::with_tools(&upstream, &hook).await;
        let body = with(ask_with("Go", ["t"]), "session_id", json!("s"));
        let whole = app.post_chat(ask_with("Go", ["t"])).await.content();
        let stream = app.stream_chat(body.clone()).await.collect().await.text;
        assert_eq!((whole.as_str(), stream.as_str()), (expected, expected));
        // The client sends what it saw, and the hidden rounds stay.
        let messages = [user("Go"), assistant(&stream), user("And?")];
        let body = with(body, "messages", messages.to_vec().into());
        app.post_chat(body).await.completion();
        assert_eq!(upstream.last().messages().len(), 7, "{rounds:?}");
    }
}

#[tokio::test]
async fn white_space_beside_a_clients_call_is_no_content() {
    let script = [text_and_calls("\n\n", [("mine", json!({}))])];
    let upstream = ScriptedUpstream::start(script.iter().cycle().take(2).cloned()).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let agent = json!({"client_tools": ["mine"]});
    let body = with(ask_with("Go", ["mine"]), "agent", agent);
    let stream = app.stream_chat(body.clone()).await.collect().await;
    assert_eq!(stream.tool_calls[0].name, "mine");
    for frame in &stream.frames {
        assert!(!frame.data.contains("\\n"), "{}", frame.data);
    }
    let whole = app.post_chat(body).await.completion();
    assert_eq!(whole["choices"][0]["message"]["content"], Value::Null);
}

#[tokio::test]
async fn an_answer_that_breaks_off_after_white_space_is_asked_for_again() {
    // The first chunk has no text, the second one the white space.
    let upstream = ScriptedUpstream::start([text("\n\n Half").cut_after(2), text("Cold.")]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let stream = app.stream_chat(ask_with("Go", ["t"])).await.collect().await;
    assert_eq!((stream.text.as_str(), &stream.error), ("Cold.", &None));
}
