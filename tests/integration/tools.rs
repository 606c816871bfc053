//! Tools over HTTP through the loop: the dispatch contract, configured tools, who runs what, bad calls, repairs, caps.

use serde_json::{Value, json};

use super::support::app::TestApp;
use super::support::ask::{ask, ask_with, tool, tool_with, with};
use super::support::recorded::Recorded;
use super::support::script::{calls, text};
use super::support::server::Gate;
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::{self, Webhook};

/// What the model was given for the only call of a turn, and how the call is reported.
async fn result(reply: webhook::ToolReply, toml: &str) -> (String, Value) {
    let upstream = ScriptedUpstream::start([calls([("t", json!({"a": 1}))]), text("x")]).await;
    let hook = Webhook::start().await.on("t", reply);
    let app = TestApp::builder()
        .upstream(&upstream)
        .dispatch(&hook)
        .toml(toml)
        .start()
        .await;
    let body = app.post_chat(ask_with("Go", ["t"])).await.completion();
    upstream.assert_same_results(&body["agentic_tool_calls"]);
    let (_, content) = upstream.last().tool_results().remove(0);
    (content, body["agentic_tool_calls"][0].clone())
}

#[tokio::test]
async fn every_form_of_answer_becomes_a_text_for_the_model() {
    for (reply, expected, status) in [
        (webhook::json(&json!({"content": "plain"})), "plain", "ok"),
        (
            webhook::json(&json!({"content": {"a": [1]}})),
            r#"{"a":[1]}"#,
            "ok",
        ),
        (
            webhook::json(
                &json!({"content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}),
            ),
            "one\ntwo",
            "ok",
        ),
        (
            webhook::json(&json!({"content": null})),
            "(no output)",
            "ok",
        ),
        (
            webhook::json(&json!({"content": "broken", "is_error": true})),
            "broken",
            "error",
        ),
        (
            webhook::json(&json!({"status": "open"})),
            r#"{"status":"open"}"#,
            "ok",
        ),
        (webhook::json(&json!("just text")), "just text", "ok"),
        (webhook::json(&json!([1, 2])), "[1,2]", "ok"),
        (webhook::json(&Value::Null), "(no output)", "ok"),
        (webhook::text("not JSON"), "not JSON", "ok"),
        (webhook::status(204, &[], ""), "(no output)", "ok"),
        (
            webhook::status(201, &[], "{\"content\":\"made\"}"),
            "made",
            "ok",
        ),
        (
            webhook::sse([json!({"progress": "half"}), json!({"content": "done"})]),
            "done",
            "ok",
        ),
    ] {
        let (content, call) = result(reply, "").await;
        assert_eq!(content, expected);
        assert_eq!(call["status"], status, "{call}");
    }
}

#[tokio::test]
async fn failures_are_news_for_the_model_and_give_nothing_away() {
    for (reply, part) in [
        (
            webhook::status(500, &[], "stack trace at /srv/app.py"),
            "500",
        ),
        (webhook::refusal(404, "text/html", "secret path"), "404"),
        (
            webhook::status(302, &[("location", "http://127.0.0.1:1/elsewhere")], ""),
            "302",
        ),
        (
            webhook::json(&json!({"content": "x", "is_error": "yes"})),
            "is_error",
        ),
        (webhook::sse([json!({"progress": "half"})]), "end"),
        (webhook::reset(), "connection"),
    ] {
        let (content, call) = result(reply, "").await;
        assert_eq!(call["status"], "error", "{call}");
        assert!(content.contains(part), "{part}: {content}");
        for leak in [
            "http://",
            "127.0.0.1",
            "stack",
            "secret",
            "app.py",
            "location",
        ] {
            assert!(!content.contains(leak), "{leak}: {content}");
        }
    }
}

#[tokio::test]
async fn a_tool_that_takes_too_long_or_says_too_much_is_cut_off() {
    let (content, call) = result(webhook::hang(), "dispatch_timeout = 0.3").await;
    assert_eq!(call["status"], "timeout");
    assert!(content.contains("0.3 s"), "{content}");
    let (content, call) = result(
        webhook::text(&"x".repeat(5000)),
        "dispatch_max_answer_bytes = 4096",
    )
    .await;
    assert_eq!(call["status"], "error");
    assert!(content.contains("4096"), "{content}");
}

#[tokio::test]
async fn a_call_says_whose_it_is_and_is_the_same_over_retries() {
    let upstream = ScriptedUpstream::start(
        [(); 3]
            .into_iter()
            .flat_map(|()| [calls([("t", json!({}))]), text("x")]),
    )
    .await;
    let hook = Webhook::signed("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD").await;
    let hook = hook
        .on("t", webhook::text("done"))
        .once("t", webhook::status(429, &[("retry-after", "0")], "{}"));
    let app = TestApp::builder()
        .upstream(&upstream)
        .dispatch(&hook)
        .toml("dispatch_secret_env = \"SECRET\"\ndispatch_timeout = 7.5\n[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"\n[[api_keys]]\nname = \"bob\"\nenv = \"BOB\"")
        .env("SECRET", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")
        .env("ALICE", "alice-alice-alice")
        .env("BOB", "bob-bob-bob-bob-bob")
        .start()
        .await;
    // The same words of both callers: the session and the user.
    let body = with(ask_with("Go", ["t"]), "session_id", json!("1"));
    let body = with(body, "user", json!("root"));
    for key in [
        "alice-alice-alice",
        "alice-alice-alice",
        "bob-bob-bob-bob-bob",
    ] {
        let client = app.client().key(key);
        assert_eq!(client.post_chat(body.clone()).await.content(), "x");
    }
    let calls = hook.calls();
    let [first, retry, alice, bob] = calls.as_slice() else {
        panic!("{} calls", calls.len());
    };
    assert_eq!(first.bytes, retry.bytes);
    for (call, owner) in [(first, "alice"), (alice, "alice"), (bob, "bob")] {
        assert_eq!(call.body["owner"], owner);
        assert_eq!(call.body["session_id"], "1");
        assert_eq!(call.body["user"], "root");
        assert_eq!(call.body["timeout_ms"], 7500);
    }
    let session_key = |call: &webhook::Call| call.body["session_key"].clone();
    assert_eq!(session_key(first), session_key(alice));
    assert_ne!(session_key(alice), session_key(bob));
    for word in ["alice", "bob", "\"1\""] {
        assert!(!session_key(alice).to_string().contains(word));
    }
}

#[tokio::test]
async fn what_surely_did_nothing_is_retried_and_the_rest_only_if_idempotent() {
    for (idempotent, reply, tries) in [
        (false, webhook::status(429, &[("retry-after", "0")], ""), 3),
        (false, webhook::status(503, &[("retry-after", "0")], ""), 3),
        (false, webhook::status(503, &[], ""), 1),
        (false, webhook::status(500, &[], ""), 1),
        (false, webhook::reset(), 1),
        (true, webhook::status(500, &[], ""), 3),
        (true, webhook::reset(), 3),
        (true, webhook::status(400, &[], ""), 1),
    ] {
        let upstream = ScriptedUpstream::start([calls([("t", json!({}))]), text("x")]).await;
        let hook = Webhook::start().await.on("t", reply.clone());
        let toml = format!("dispatch_idempotent = {idempotent}");
        let app = TestApp::builder()
            .upstream(&upstream)
            .dispatch(&hook)
            .toml(&toml)
            .start()
            .await;
        app.post_chat(ask_with("Go", ["t"])).await.completion();
        // The scripted server fails the test if a retry has another idempotency key.
        assert_eq!(
            hook.calls().len(),
            tries,
            "idempotent {idempotent}: {reply:?}"
        );
    }
}

#[tokio::test]
async fn a_retry_that_works_is_an_ordinary_result() {
    let upstream = ScriptedUpstream::start([calls([("t", json!({}))]), text("x")]).await;
    let hook = Webhook::start()
        .await
        .once("t", webhook::status(429, &[("retry-after", "0")], ""))
        .on("t", webhook::text("fine"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = app.post_chat(ask_with("Go", ["t"])).await.completion();
    assert_eq!(body["agentic_tool_calls"][0]["result_content"], "fine");
    assert_eq!(
        hook.call(0).header("idempotency-key"),
        hook.call(1).header("idempotency-key")
    );
}

#[tokio::test]
async fn calls_carry_signature_headers_and_trace() {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let upstream = ScriptedUpstream::start([calls([("t", json!({}))]), text("x")]).await;
    let hook = Webhook::signed(secret).await.on("t", webhook::text("r"));
    let app = TestApp::builder()
        .upstream(&upstream)
        .dispatch(&hook)
        .env("HOOK_SECRET", secret)
        .env("HOOK_AUTH", "Bearer tool-key")
        .toml("dispatch_secret_env = \"HOOK_SECRET\"\ndispatch_headers = { authorization = { env = \"HOOK_AUTH\" } }")
        .start()
        .await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let client = app
        .client()
        .header("traceparent", trace)
        .header("x-request-id", "my-request");
    let body = with(ask_with("Go", ["t"]), "user", json!("u-1"));
    let answer = client.post_chat(body).await;
    let call = hook.call(0);
    assert_eq!(call.header("authorization"), Some("Bearer tool-key"));
    assert_eq!(
        call.header("traceparent").map(|value| &value[3..35]),
        Some(&trace[3..35])
    );
    assert_eq!(call.header("webhook-id"), call.header("idempotency-key"));
    assert_eq!(call.body["request_id"], "my-request");
    assert_eq!(call.body["user"], "u-1");
    assert_eq!(call.body["model"], "scripted-model");
    assert_eq!(answer.header("x-request-id"), Some("my-request"));
}

#[tokio::test]
async fn progress_lines_reach_the_client_while_the_tool_runs() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::start([calls([("t", json!({}))]), text("x")]).await;
    let events = [
        json!({"progress": "one"}),
        json!({"progress": "two"}),
        json!({"content": "done"}),
    ];
    let hook = Webhook::start()
        .await
        .on("t", webhook::sse(events).gate_pieces(&gate));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let mut stream = app.stream_chat(ask_with("Go", ["t"])).await;
    for text in ["one", "two"] {
        gate.release(1);
        let output = loop {
            let chunk = stream.next_chunk().await;
            if chunk["type"] == "agentic_tool_output" {
                break chunk;
            }
        };
        assert_eq!(
            (&output["text"], &output["stream"]),
            (&json!(text), &json!("progress"))
        );
    }
    gate.open();
    assert_eq!(
        stream.collect().await.phase("complete")[0]["data"]["content"],
        "done"
    );
}

#[tokio::test]
async fn configured_tools_need_no_declaration() {
    let upstream = ScriptedUpstream::start([
        calls([
            ("get_ticket", json!({"number": 4})),
            ("search", json!({"q": "a b", "tags": ["x", "y"]})),
        ]),
        text("x"),
    ])
    .await;
    let hook = Webhook::start()
        .await
        .on("get_ticket", webhook::text("open"))
        .on("search", webhook::text("hits"));
    let toml = format!(
        r#"
[[tools]]
name = "get_ticket"
description = "Reads a ticket."
url = "{}"
parameters = {{ type = "object", properties = {{ number = {{ type = "integer" }} }}, required = ["number"] }}
headers = {{ x-team = {{ env = "TEAM" }} }}
[[tools]]
name = "search"
description = "Searches."
method = "GET"
url = "{}"
parameters = {{ type = "object" }}
"#,
        hook.tool_url("get_ticket"),
        hook.tool_url("search")
    );
    let app = TestApp::builder()
        .upstream(&upstream)
        .env("TEAM", "blue")
        .toml(&toml)
        .start()
        .await;
    let body = app.post_chat(ask("Go")).await.completion();
    assert_eq!(upstream.request(0).tool_names(), ["get_ticket", "search"]);
    assert_eq!(body["agentic_tool_calls"].as_array().unwrap().len(), 2);
    let calls = hook.calls();
    let posted = calls.iter().find(|call| call.name == "get_ticket").unwrap();
    assert_eq!(posted.header("x-team"), Some("blue"));
    assert_eq!(posted.arguments(), &json!({"number": 4}));
    let asked = calls.iter().find(|call| call.name == "search").unwrap();
    assert_eq!(asked.path, "/tools/search?q=a+b&tags=x&tags=y");

    let listed = app.get("/v1/agent/tools").await.json();
    assert_eq!(listed["data"][0]["name"], "get_ticket");
    assert_eq!(listed["data"][0]["source"], "http");
    assert_eq!(
        listed["data"][0]["parameters"]["required"],
        json!(["number"])
    );
    assert_eq!(listed["data"][1]["description"], "Searches.");
}

#[tokio::test]
async fn a_configured_tool_without_a_url_goes_to_the_dispatch_url() {
    let batch = calls([("crm_read", json!({"number": 4})), ("client", json!({}))]);
    let upstream = ScriptedUpstream::start([batch]).await;
    let hook = Webhook::start().await.on("crm_read", webhook::text("open"));
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let toml = r#"
dispatch_tools = ["crm_*"]
dispatch_headers = { x-team = "blue" }
[[tools]]
name = "crm_read"
description = "Reads a ticket."
parameters = { type = "object", properties = { number = { type = "integer" } }, required = ["number"] }
timeout = 7
"#;
    let app = builder.toml(toml).start().await;
    let body = app.post_chat(ask_with("Go", ["client"])).await;
    let body = body.completion();
    assert_eq!(upstream.request(0).tool_names(), ["client", "crm_read"]);
    let call = &body["agentic_tool_calls"][0];
    assert_eq!(call["result_content"], "open");
    let answered = &body["choices"][0]["message"]["tool_calls"];
    assert_eq!(answered[0]["function"]["name"], "client");
    let posted = &hook.calls()[0];
    assert_eq!(posted.name, "crm_read");
    assert_eq!(posted.arguments(), &json!({"number": 4}));
    assert_eq!(posted.header("x-team"), Some("blue"));
    assert_eq!(posted.body["timeout_ms"], 7000);
}

#[tokio::test]
async fn a_client_tool_with_the_name_of_a_server_side_one_is_refused() {
    let upstream = ScriptedUpstream::start([]).await;
    let toml = "[[tools]]\nname = \"t\"\ndescription = \"d\"\nurl = \"http://127.0.0.1:1/\"\nparameters = { type = \"object\" }";
    let app = TestApp::builder()
        .upstream(&upstream)
        .toml(toml)
        .start()
        .await;
    let answer = app.post_chat(ask_with("Go", ["t"])).await;
    let message = answer.assert_error(400, None);
    assert!(message.contains("'t'"), "{message}");
    assert_eq!(answer.json()["error"]["param"], "tools");
}

#[tokio::test]
async fn globs_decide_who_runs_what() {
    let batch = || {
        calls([
            ("ours_a", json!({})),
            ("ours_b", json!({})),
            ("theirs", json!({})),
        ])
    };
    let upstream = ScriptedUpstream::start([batch(), batch(), text("x")]).await;
    let hook = Webhook::start()
        .await
        .on("ours_a", webhook::text("r"))
        .on("ours_b", webhook::text("r"));
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let app = builder.toml("dispatch_tools = [\"ours_*\"]").start().await;
    let tools = ["ours_a", "ours_b", "theirs"];

    let body = app.post_chat(ask_with("Go", tools)).await.completion();
    assert_eq!(
        body["choices"][0]["message"]["tool_calls"][0]["function"]["name"],
        "theirs"
    );
    assert_eq!(hook.calls().len(), 2);

    // Left out by the request: not offered, never dispatched, never shown; the model is told what exists.
    let body = with(
        ask_with("Go", ["ours_a", "ours_b"]),
        "agent",
        json!({"tools": {"deny": ["*_b"]}}),
    );
    let body = app.post_chat(body).await.completion();
    assert_eq!(upstream.request(1).tool_names(), ["ours_a"]);
    let shown: Vec<&Value> = body["agentic_tool_calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| &call["name"])
        .collect();
    assert_eq!(shown, ["ours_a"]);
    assert_eq!(hook.names()[2..], ["ours_a"]);
    let told = &upstream.last().tool_results()[1].1;
    assert!(
        told.contains("no tool named 'ours_b'") && told.contains("ours_a"),
        "{told}"
    );
}

#[tokio::test]
async fn a_name_nobody_declared_is_explained_to_the_model_and_hidden_from_the_client() {
    let upstream = ScriptedUpstream::start([calls([("ghost", json!({}))]), text("Sorry.")]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let stream = app.stream_chat(ask_with("Go", ["t"])).await.collect().await;
    assert_eq!(stream.text, "Sorry.");
    assert!(stream.progress.is_empty(), "{}", stream.transcript());
    assert!(
        upstream.last().tool_results()[0]
            .1
            .contains("available tools are: t")
    );
}

#[tokio::test]
async fn a_call_that_ends_inside_a_value_is_not_run_whatever_the_end_of_the_answer_says() {
    let cut = [
        r#"{"path":"app.conf","content":"[server]\nport = 80"#,
        r#"{"path":"app.conf","content":"x\u00e"#,
        r#"{"n":12"#,
        r#"{"list":[1,2"#,
        r#"{"force":tru"#,
        r#"{"path":"a","content"#,
        r#"{"path":"a","content":"#,
        r#"{"path":"a","#,
        "{",
        "```json\n{\"content\":\"half",
        r#""{\"content\":\"half"#,
        r#"{"arguments":{"content":"half"#,
    ];
    let rule = |finish: &'static str| {
        move |request: &Recorded| {
            let asked = request.messages()[0]["content"].clone();
            match request.tool_results().len() {
                0 => calls([("t", asked)]).finish(finish),
                1 => calls([("t", json!({"whole": true}))]),
                _ => text("Done."),
            }
        }
    };
    for finish in ["tool_calls", "stop"] {
        let upstream = ScriptedUpstream::answering(rule(finish)).await;
        let hook = Webhook::start().await.on("t", webhook::text("r"));
        let app = TestApp::with_tools(&upstream, &hook).await;
        for (number, raw) in cut.into_iter().enumerate() {
            let whole = app.post_chat(ask_with(raw, ["t"])).await.completion();
            let stream = app.stream_chat(ask_with(raw, ["t"])).await.collect().await;
            assert_eq!(stream.text, "Done.", "{raw}");
            assert_eq!(hook.calls().len(), 2 * number + 2, "{raw}");
            assert_eq!(hook.call(2 * number).arguments(), &json!({"whole": true}));
            let call = &whole["agentic_tool_calls"][0];
            assert_eq!(
                (&call["status"], &call["arguments"]),
                (&json!("error"), &json!("{}"))
            );
            assert_eq!(call.get("repairs"), None);
            let (sent, told) = (upstream.last(), upstream.last().tool_results());
            let stored = &sent.messages()[1]["tool_calls"][0]["function"]["arguments"];
            assert_eq!(stored, "{}", "no guess enters the history");
            let told = &told[0].1;
            assert!(told.contains("cut off before they were complete"), "{told}");
            assert!(told.contains("Call the tool again"), "{told}");
        }
    }
}

#[tokio::test]
async fn arguments_are_mended_where_that_is_safe_and_explained_where_not() {
    let schema = json!({
        "type": "object",
        "properties": {"n": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}},
    });
    for (written, given, repairs) in [
        (
            json!(r#"{"n": 1, "tags": ["a"]}"#),
            Some(json!({"n": 1, "tags": ["a"]})),
            None,
        ),
        (
            json!(r#"{"n": 1, "tags": "a"}"#),
            Some(json!({"n": 1, "tags": ["a"]})),
            Some("bare_string_to_array"),
        ),
        (
            json!(r#"{"n": "1"}"#),
            Some(json!({"n": 1})),
            Some("string_to_number"),
        ),
        (
            json!(r#"{"n": 1, "tags": ["a""#),
            Some(json!({"n": 1, "tags": ["a"]})),
            Some("truncation_fixed"),
        ),
        (
            json!("```json\n{\"n\": 1}\n```"),
            Some(json!({"n": 1})),
            Some("code_fence_removed"),
        ),
        (json!(""), Some(json!({})), Some("empty_to_object")),
        (json!(r#"{"n": "many"}"#), None, None),
        (json!("no JSON at all"), None, None),
    ] {
        let upstream = ScriptedUpstream::start([calls([("t", written.clone())]), text("x")]).await;
        let hook = Webhook::start().await.on("t", webhook::text("r"));
        let app = TestApp::with_tools(&upstream, &hook).await;
        let body = with(ask("Go"), "tools", json!([tool_with("t", schema.clone())]));
        let body = app.post_chat(body).await.completion();
        let call = &body["agentic_tool_calls"][0];
        match given {
            Some(given) => {
                assert_eq!(hook.call(0).arguments(), &given, "{written}");
                let stored: Value =
                    serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
                assert_eq!(stored, given, "the stored call is what the tool was given");
                let told = upstream.last().tool_results()[0].1.clone();
                assert_eq!(call["result_content"], told);
                let page = app.get("/metrics").await.text();
                match repairs {
                    Some(repair) => {
                        assert_eq!(call["repairs"], json!([repair]));
                        // Of empty arguments there is nothing to learn.
                        let learns = repair != "empty_to_object";
                        assert_eq!(told.contains("[This call was corrected"), learns, "{told}");
                        let counted =
                            format!("loopwright_call_repairs_total{{repair=\"{repair}\"}} 1\n");
                        assert!(page.contains(&counted), "{page}");
                    }
                    None => {
                        assert_eq!(told, "r");
                        assert_eq!(
                            call["arguments"], written,
                            "valid arguments stay as they were written"
                        );
                    }
                }
            }
            None => {
                assert!(hook.calls().is_empty(), "{written}");
                assert_eq!(call["status"], "error");
                assert!(!call["result_content"].as_str().unwrap().is_empty());
            }
        }
    }
}

#[tokio::test]
async fn a_name_that_surely_means_another_is_matched() {
    let upstream = ScriptedUpstream::start([calls([("Get-Ticket", json!({}))]), text("x")]).await;
    let hook = Webhook::start().await.on("get_ticket", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = app
        .post_chat(ask_with("Go", ["get_ticket"]))
        .await
        .completion();
    assert_eq!(body["agentic_tool_calls"][0]["name"], "get_ticket");
    assert_eq!(
        body["agentic_tool_calls"][0]["repairs"],
        json!(["name_matched"])
    );
    let told = &upstream.last().tool_results()[0].1;
    assert!(
        told.contains("the name of the tool was corrected"),
        "{told}"
    );
}

#[tokio::test]
async fn a_note_about_a_repair_is_no_part_of_a_final_answer() {
    let batch = calls([("t", json!(r#"{"n": "1"}"#))]);
    let upstream = ScriptedUpstream::start([batch]).await;
    let reply = webhook::json(&json!({"content": "Done.", "terminate": true}));
    let hook = Webhook::start().await.on("t", reply);
    let app = TestApp::with_tools(&upstream, &hook).await;
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let body = with(ask("Go"), "tools", json!([tool_with("t", schema)]));
    let answer = app.post_chat(body).await;
    assert_eq!(answer.content(), "Done.");
}

#[tokio::test]
async fn a_long_result_is_shortened_for_the_model_and_kept_whole_in_the_session() {
    let long: String = (0..5000).map(|n| format!("line {n}\n")).collect();
    let upstream = ScriptedUpstream::start([calls([("t", json!({}))]), text("x")]).await;
    let hook = Webhook::start().await.on("t", webhook::text(&long));
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let app = builder.toml("max_result_chars = 2000").start().await;
    let body = app
        .post_chat(with(ask_with("Go", ["t"]), "session_id", json!("s")))
        .await
        .completion();
    let given = body["agentic_tool_calls"][0]["result_content"]
        .as_str()
        .unwrap();
    assert!(given.chars().count() <= 2000, "{}", given.len());
    assert!(
        given.starts_with("line 0\n") && given.ends_with("line 4999\n"),
        "head and tail"
    );
    upstream.assert_same_results(&body["agentic_tool_calls"]);
    let export = app.get("/v1/sessions/s").await.json();
    let meta = export["agent"]["message_meta"].as_array().unwrap();
    assert!(
        meta.iter().any(|entry| entry["full_text"] == long.as_str()),
        "the whole text is in the session"
    );
}

#[tokio::test]
async fn images_are_shown_to_models_that_see_and_named_to_those_that_do_not() {
    let pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    for sees in [true, false] {
        let upstream = ScriptedUpstream::start([calls([("t", json!({}))]), text("x")]).await;
        let reply = webhook::json(&json!({"content": "a chart", "images": [pixel]}));
        let hook = Webhook::start().await.on("t", reply);
        let toml = upstream.with_quirks(&format!("images = {sees}"));
        let app = TestApp::builder().dispatch(&hook).toml(&toml).start().await;
        let body = app.post_chat(ask_with("Go", ["t"])).await.completion();
        assert_eq!(
            body["agentic_tool_calls"][0]["result_images_base64"],
            json!([pixel])
        );
        let last = upstream.last();
        if sees {
            assert_eq!(last.roles(), ["user", "assistant", "tool", "user"]);
            let parts = last.messages()[3]["content"].clone();
            assert_eq!(
                parts[1]["image_url"]["url"],
                format!("data:image/png;base64,{pixel}")
            );
        } else {
            assert_eq!(last.roles(), ["user", "assistant", "tool"]);
            assert!(last.tool_results()[0].1.contains("cannot be shown"));
        }
    }
}

#[tokio::test]
async fn images_that_are_no_png_reach_the_client_as_files() {
    let gif = "R0lGODlhAQABAAAAACw=";
    let png = "iVBORw0KGgo=";
    for stored in [true, false] {
        let script = || [calls([("t", json!({}))]), text("x")];
        let upstream = ScriptedUpstream::start(script().into_iter().chain(script())).await;
        let url = format!("data:image/gif;base64,{gif}");
        let reply = webhook::json(&json!({"content": "charts", "images": [png, url]}));
        let hook = Webhook::start().await.on("t", reply);
        let toml = upstream.with_quirks("images = true");
        let app = TestApp::builder().dispatch(&hook).toml(&toml).start().await;
        let request = with(ask_with("Go", ["t"]), "store", json!(stored));
        let body = app.post_chat(request.clone()).await.completion();
        let call = &body["agentic_tool_calls"][0];
        assert_eq!(call["result_images_base64"], json!([png]));
        let file = &body["files"][0];
        assert_eq!(file["name"], "image_2.gif");
        assert_eq!(file["mime_type"], "image/gif");
        assert_eq!(file["data"], gif);
        let ids = call["file_ids"].as_array().unwrap();
        assert!(ids.contains(&file["id"]), "{ids:?}");
        // The model sees both.
        let parts = upstream.last().messages()[3]["content"].clone();
        assert_eq!(parts[3]["image_url"]["url"], url);

        let stream = app.stream_chat(request).await.collect().await;
        let events = stream.progress.iter().map(|progress| &progress.chunk);
        let produced: Vec<_> = events
            .filter(|chunk| chunk["type"] == "file_produced")
            .map(|chunk| &chunk["file"]["name"])
            .collect();
        assert_eq!(produced, ["image_2.gif"]);
    }
}

#[tokio::test]
async fn files_come_with_the_answer_and_as_events() {
    let upstream = ScriptedUpstream::start([
        calls([("t", json!({}))]),
        text("x"),
        calls([("t", json!({}))]),
        text("x"),
    ])
    .await;
    let file =
        json!({"name": "../../etc/report.txt", "mime_type": "text/plain", "data": "aGVsbG8="});
    let reply = webhook::json(&json!({"content": "made", "files": [file]}));
    let hook = Webhook::start().await.on("t", reply);
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = app.post_chat(ask_with("Go", ["t"])).await.completion();
    let made = &body["files"][0];
    assert_eq!(made["name"], "report.txt", "a plain name");
    assert_eq!(made["filename"], "report.txt");
    assert_eq!(
        (&made["size"], &made["bytes"], &made["data"]),
        (&json!(5), &json!(5), &json!("aGVsbG8="))
    );
    assert_eq!(made["object"], "file");
    assert_eq!(
        body["agentic_tool_calls"][0]["file_ids"],
        json!([made["id"]])
    );
    let stream = app.stream_chat(ask_with("Go", ["t"])).await.collect().await;
    let produced: Vec<&Value> = stream
        .progress
        .iter()
        .map(|event| &event.chunk)
        .filter(|chunk| chunk["type"] == "file_produced")
        .collect();
    assert_eq!(produced.len(), 1);
    assert_eq!(
        stream.phase("complete")[0]["file_ids"],
        json!([produced[0]["file"]["id"]])
    );
}

#[tokio::test]
async fn hosted_tools_go_where_the_upstream_has_them_and_are_refused_elsewhere() {
    let upstream = ScriptedUpstream::start([text("x")]).await.lenient();
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = with(ask("Go"), "tools", json!([{"type": "web_search"}]));
    let answer = app.post_chat(body.clone()).await;
    let message = answer.assert_error(400, None);
    assert!(message.contains("web_search"), "{message}");
    let toml = upstream.with_quirks("hosted_tools = [\"web_search\"]");
    let app = TestApp::builder().dispatch(&hook).toml(&toml).start().await;
    let mut body = body;
    body["tools"].as_array_mut().unwrap().push(tool("t"));
    app.post_chat(body).await.completion();
    assert_eq!(upstream.last().body["tools"].as_array().unwrap().len(), 2);
}
