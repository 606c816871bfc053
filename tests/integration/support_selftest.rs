//! The support held against itself: what it lets through and what it catches, with no loopwright in between.

use http::Method;
use serde_json::{Value, json};

use crate::support::app::TestApp;
use crate::support::client::Client;
use crate::support::script::{self, Reply};
use crate::support::server::Gate;
use crate::support::upstream::{MODEL, ScriptedUpstream};
use crate::support::webhook::{self, Webhook};
use crate::support::{eventually, protocol, unreachable_url, within};

/// Stands in for the binary: says that it is ready, and stays until it is told to go.
const STAND_IN: &str = "echo starting >&2; echo 'loopwright ready on http://127.0.0.1:9' >&2; \
    trap 'exit 0' TERM; while :; do read -r _ < fifo; done";

fn direct(upstream: &ScriptedUpstream) -> Client {
    Client::new(upstream.base_url().trim_end_matches("/v1"))
}

fn ask(text: &str) -> Value {
    json!({"model": MODEL, "messages": [{"role": "user", "content": text}]})
}

#[tokio::test]
async fn a_scripted_answer_is_the_same_streamed_and_whole() {
    let say = || {
        let calls = [
            ("get_weather", json!({"city": "Porto"})),
            ("now", json!({})),
        ];
        script::text_and_calls("Let me look.", calls)
            .thinking("a city is named")
            .usage(7, 3)
    };
    let upstream = ScriptedUpstream::start([say(), say()]).await;
    let client = direct(&upstream);
    let mut body = ask("weather?");
    let whole = client.post_chat(body.clone()).await.completion();
    assert_eq!(whole["usage"]["total_tokens"], 10);
    assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls");
    let message = &whole["choices"][0]["message"];
    assert_eq!(message["reasoning_content"], "a city is named");

    body["stream_options"] = json!({"include_usage": true});
    let reader = client.stream_chat(body).await;
    let (collected, problems) = reader.collect_with_problems().await;
    // A model server has no `agent` to speak of; everything else is as the contract has it.
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("agent"), "{problems:?}");
    assert_eq!(collected.text, "Let me look.");
    assert_eq!(collected.reasoning, "a city is named");
    assert_eq!(collected.finish_reason(), "tool_calls");
    assert_eq!(collected.usage.as_ref().unwrap()["total_tokens"], 10);
    for (position, call) in collected.tool_calls.iter().enumerate() {
        let function = &message["tool_calls"][position]["function"];
        assert_eq!(function["name"], call.name);
        assert_eq!(function["arguments"], call.arguments);
    }
    assert_eq!(upstream.requests().len(), 2);
    assert_eq!(upstream.request(1).roles(), ["user"]);
    assert_eq!(upstream.remaining(), 0);
}

#[tokio::test]
async fn every_fault_of_the_script_reaches_the_client_as_that_fault() {
    let two = script::text("one two three");
    let cases: [(&str, Reply, bool); 4] = [
        ("truncated", two.clone().truncate_after(2), true),
        ("cut", two.clone().cut_after(2), false),
        ("reset", two.clone().reset_after(2), false),
        ("garbage", script::garbage(), true),
    ];
    for (name, reply, ends_cleanly) in cases {
        let upstream = ScriptedUpstream::start([reply]).await;
        let reader = direct(&upstream).stream_chat(ask("hi")).await;
        let (bytes, error) = reader.raw().await;
        assert_eq!(error.is_none(), ends_cleanly, "{name}: {error:?}");
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        assert_eq!(text.matches("data: ").count(), 2, "{name}: {text}");
        assert!(!text.contains("[DONE]"), "{name}: {text}");
    }

    let replies = [
        script::status(429, &[("retry-after", "1")], r#"{"error":{}}"#),
        script::reset(),
    ];
    let upstream = ScriptedUpstream::start(replies).await;
    let client = direct(&upstream);
    let answer = client.post_chat(ask("hi")).await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.header("retry-after"), Some("1"));
    let request = client.request(Method::POST, "/v1/chat/completions");
    let request = request.header("content-type", "application/json");
    let broken = within("a reset", request.body(ask("hi").to_string()).send()).await;
    assert!(broken.is_err(), "{broken:?}");
    let nobody = Client::new(&unreachable_url().await);
    assert!(nobody.request(Method::GET, "/").send().await.is_err());
}

#[tokio::test]
async fn a_gate_holds_each_frame_back_until_it_is_released() {
    let gate = Gate::new();
    let head = Gate::new();
    let reply = script::text("one two").gate(&gate).gate_head(&head);
    let upstream = ScriptedUpstream::start([reply]).await;
    let client = direct(&upstream);
    let reading = client.stream_chat(ask("hi"));
    let (mut reader, ()) = tokio::join!(reading, async {
        head.reached(1).await;
        head.open();
    });
    gate.release(2);
    assert_eq!(reader.next_text().await, "one ");
    gate.reached(3).await;
    gate.release(1);
    assert_eq!(reader.next_text().await, "two");
    gate.open();
    assert_eq!(
        reader.next_chunk().await["choices"][0]["finish_reason"],
        "stop"
    );
}

#[tokio::test]
async fn a_peer_that_goes_away_is_noticed_before_and_within_the_answer() {
    let replies = [script::text("one two").hang_after(2), script::hang()];
    let upstream = ScriptedUpstream::start(replies).await;
    let client = direct(&upstream);
    let mut reader = client.stream_chat(ask("hi")).await;
    assert_eq!(reader.next_text().await, "one ");
    drop(reader);
    upstream.dropped(0).await;

    tokio::select! {
        answer = client.post_chat(ask("hi")) => panic!("an answer: {answer:?}"),
        () = upstream.called(2) => {}
    }
    upstream.dropped(1).await;
}

fn assert_caught(body: &Value, expected: &str) {
    let found = protocol::violations(body);
    if expected.is_empty() {
        assert_eq!(found, Vec::<String>::new(), "{body}");
    } else {
        let caught = found.iter().any(|text| text.contains(expected));
        assert!(caught, "{body}: {found:?}");
    }
}

#[test]
fn a_conversation_that_breaks_the_protocol_is_caught() {
    let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}});
    let calls = |calls: Value| json!({"role": "assistant", "content": null, "tool_calls": calls});
    let user = &json!({"role": "user", "content": "hi"});
    let both = &calls(json!([call("a", "{}"), call("b", "{\"x\":1}")]));
    let one = &calls(json!([call("a", "{}")]));
    let list = &calls(json!([call("a", "[1]")]));
    let broken = &calls(json!([call("a", "{\"x\":")]));
    let empty = &json!({"role": "assistant", "content": ""});
    let no_calls = &json!({"role": "assistant", "content": "x", "tool_calls": []});
    let a = &json!({"role": "tool", "tool_call_id": "a", "content": ""});
    let b = &json!({"role": "tool", "tool_call_id": "b", "content": ""});
    let cases: [(&[&Value], &str); 13] = [
        (&[user, both, a, b, user], ""),
        (&[user, both, a], "`b` at the end was not answered"),
        (&[both, a, user], "`b` before it was not answered"),
        (&[both, b, a], "out of order"),
        (&[user, a], "answers no call"),
        (&[both, a, b, b], "`b` answers no call"),
        (&[both, a, user, b], "`b` answers no call"),
        (&[list, a], "no JSON object"),
        (&[broken, a], "no JSON object"),
        (&[empty], "empty assistant message"),
        (&[no_calls], "tool_calls"),
        (&[one, a, one, a], "used twice"),
        (&[], "not a list with messages"),
    ];
    for (messages, expected) in cases {
        assert_caught(&json!({"model": "m", "messages": messages}), expected);
    }
}

#[test]
fn a_request_with_wrong_fields_is_caught() {
    let with = |key: &str, value: Value| {
        let mut body = ask("hi");
        body[key] = value;
        body
    };
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {}}});
    let unnamed = json!({"type": "function", "function": {"name": "a b"}});
    let cases = [
        (with("temperature", json!(0.5)), ""),
        (with("tools", json!([tool])), ""),
        (with("tools", json!([tool, tool])), "offered twice"),
        (with("tools", json!([])), "`tools`"),
        (with("tools", json!([unnamed])), "no name"),
        (with("tool_choice", json!("auto")), "without `tools`"),
        (with("agent", json!({})), "own field `agent`"),
        (with("session_id", json!("s")), "own field `session_id`"),
        (with("stream_options", json!({})), "without `stream`"),
        (with("model", json!(null)), "`model` is missing"),
        (json!([]), "not a JSON object"),
    ];
    for (body, expected) in cases {
        assert_caught(&body, expected);
    }
}

#[tokio::test]
async fn the_server_remembers_violations_and_an_empty_script_is_one() {
    let upstream = ScriptedUpstream::start([script::text("fine")]).await;
    let client = direct(&upstream);
    let body = json!({"model": MODEL, "messages": [], "agent": {}});
    assert_eq!(client.post_chat(body).await.content(), "fine");
    assert_eq!(client.post_chat(ask("hi")).await.status, 500);
    let found = upstream.take_violations().join("\n");
    for expected in ["`agent`", "`messages`", "no reply left"] {
        assert!(found.contains(expected), "{found}");
    }
    upstream.assert_clean();
}

#[tokio::test]
async fn a_rule_answers_by_the_request() {
    let upstream = ScriptedUpstream::answering(|request| {
        let said = request.messages()[0]["content"].to_string();
        script::text(&format!("{said} {}", request.raw("model").unwrap()))
    })
    .await;
    let content = direct(&upstream).post_chat(ask("echo")).await.content();
    assert_eq!(content, format!("\"echo\" \"{MODEL}\""));
}

#[tokio::test]
async fn other_endpoints_list_models_and_echo_bytes() {
    let upstream = ScriptedUpstream::start([]).await.models(&["a", "org/b"]);
    let client = direct(&upstream);
    let models = client.get("/v1/models").await.json();
    assert_eq!(models["data"][1]["id"], "org/b");
    assert_eq!(client.get("/v1/models/org/b").await.json()["id"], "org/b");
    assert_eq!(client.get("/v1/models/c").await.status, 404);
    let body = json!({"input": ["a"], "unknown": 1.50});
    let answer = client.post("/v1/embeddings?x=1", &body).await;
    assert_eq!(answer.text(), body.to_string());
    assert_eq!(answer.header("x-echo-path"), Some("/v1/embeddings?x=1"));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let recorded = upstream.others().pop().unwrap();
    assert_eq!((recorded.body, recorded.bytes), (body, answer.body));
}

/// One chunk as loopwright has it, with these fields besides.
fn chunk(choice: &Value, more: &Value) -> String {
    let mut chunk = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [choice],
    });
    for (key, value) in more.as_object().unwrap() {
        chunk[key] = value.clone();
    }
    format!("data: {chunk}\n\n")
}

fn delta(delta: &Value) -> String {
    chunk(
        &json!({"index": 0, "delta": delta, "finish_reason": null}),
        &json!({}),
    )
}

fn role() -> String {
    delta(&json!({"role": "assistant", "content": ""}))
}

fn finish() -> String {
    let agent = json!({"agent": {"stop_reason": "completed"}, "session_id": "s"});
    chunk(
        &json!({"index": 0, "delta": {}, "finish_reason": "stop"}),
        &agent,
    )
}

fn progress(phase: &str) -> String {
    let kind = "agentic_tool_call_progress";
    let choice = json!({"index": 0, "delta": {}, "finish_reason": null});
    let chunk = chunk(
        &choice,
        &json!({
            "type": kind, "round": 0, "tool_name": "f", "tool_call_id": "call_1", "phase": phase,
            "data": {"tool_type": "custom", "arguments": {}, "content": "x"},
            "status": "ok", "duration_ms": 1,
        }),
    );
    format!("event: {kind}\n{chunk}")
}

async fn assert_stream_caught(stream: String, expected: &str) {
    let upstream = ScriptedUpstream::start([script::raw_sse([stream.clone()])]).await;
    let reader = direct(&upstream).stream_chat(ask("hi")).await;
    let (_, problems) = reader.collect_with_problems().await;
    if expected.is_empty() {
        assert_eq!(problems, Vec::<String>::new(), "{stream}");
    } else {
        let found = problems.iter().any(|text| text.contains(expected));
        assert!(found, "{stream}\nwanted {expected}, found {problems:?}");
    }
}

#[tokio::test]
async fn a_stream_whose_chunks_break_the_contract_is_caught() {
    let error = json!({"error": {"message": "m", "type": "t", "param": null, "code": null}});
    let error = &*format!("data: {error}\n\n");
    let (role, finish, done) = (&*role(), &*finish(), "data: [DONE]\n\n");
    let (calling, complete) = (&*progress("calling"), &*progress("complete"));
    let text = &*delta(&json!({"content": "hi"}));
    let both = &*delta(&json!({"content": "hi", "reasoning_content": "hm"}));
    let other = &*text.replace("chatcmpl-1", "chatcmpl-2");
    let alive = ": keep-alive\n";
    let cases: [(&[&str], &str); 15] = [
        (&[role, text, alive, calling, complete, finish, done], ""),
        (&[role, text, error, done], ""),
        (&[role, text, finish], "no [DONE]"),
        (&[role, text, done], "neither a finish chunk nor an error"),
        (
            &[role, finish, error, done],
            "both a finish chunk and an error",
        ),
        (&[role, error, text, done], "after an error"),
        (&[role, role, finish, done], "2 chunks have a role"),
        (&[text, role, finish, done], "the first chunk has no role"),
        (&[role, finish, finish, done], "after the finish chunk"),
        (&[role, both, finish, done], "text and reasoning"),
        (&[role, other, finish, done], "`id` or `model` changed"),
        (&[role, calling, finish, done], "never completed"),
        (&[role, complete, finish, done], "out of turn"),
        (
            &[role, calling, text, complete, finish, done],
            "calls are running",
        ),
        (&[role, finish, done, done], "after [DONE]"),
    ];
    for (frames, expected) in cases {
        assert_stream_caught(frames.concat(), expected).await;
    }
}

#[tokio::test]
async fn a_stream_whose_lines_break_the_contract_is_caught() {
    let cases = [
        ("id: 1\n", "the line `id: 1`"),
        ("retry: 10\n", "the line `retry: 10`"),
        ("data: \n\n", "the data ``"),
        (": comment\n\n", "a blank line without an event"),
        ("event: x\n\n", "an event without data"),
        ("data: {\n\n", "no JSON object"),
        ("data: 1\ndata: 2\n\n", "two data lines"),
        ("data: {}\r\n\r\n", "\\r"),
    ];
    for (lines, expected) in cases {
        let stream = format!("{}{lines}{}data: [DONE]\n\n", role(), finish());
        assert_stream_caught(stream, expected).await;
    }
    let cut = format!("{}{}data: [DONE]\n\ndata: x", role(), finish());
    assert_stream_caught(cut, "in the middle of an event").await;
}

#[tokio::test]
async fn a_comment_is_seen_before_the_event_that_follows_it() {
    let gate = Gate::new();
    let pieces = [": keep-alive\n", "data: {}\n\n"];
    let reply = script::raw_sse(pieces).gate_before(1, &gate);
    let upstream = ScriptedUpstream::start([reply]).await;
    let mut reader = direct(&upstream).stream_chat(ask("hi")).await;
    assert_eq!(reader.next_comment().await, "keep-alive");
    gate.open();
    assert_eq!(reader.next_frame().await.unwrap().comments, ["keep-alive"]);
}

/// A call as WIRE §6 has it.
fn call(name: &str, id: &str, arguments: &Value) -> Value {
    json!({
        "name": name, "arguments": arguments, "tool_call_id": id, "session_id": "s",
        "session_key": "k", "request_id": "r", "round": 0, "model": "m", "timeout_ms": 1,
    })
}

async fn dispatch(hook: &Webhook, key: &str, body: &Value) -> String {
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let client = Client::new(hook.url().trim_end_matches("/run"))
        .header("user-agent", "loopwright/0")
        .header("traceparent", trace)
        .header("idempotency-key", key);
    client.post("/run", body).await.text()
}

#[tokio::test]
async fn a_webhook_answers_by_tool_and_records_calls() {
    let gate = Gate::new();
    let hook = Webhook::start()
        .await
        .on_call("echo", |call| webhook::json(call.arguments()))
        .once("flaky", webhook::status(503, &[("retry-after", "0")], "{}"))
        .on("flaky", webhook::text("fine"))
        .on(
            "slow",
            webhook::sse([json!({"progress": "half"}), json!({"content": "x"})]).gate_pieces(&gate),
        );
    let arguments = json!({"a": 1});
    let echo = call("echo", "c1", &arguments);
    assert_eq!(dispatch(&hook, "k1", &echo).await, arguments.to_string());
    let flaky = call("flaky", "c2", &json!({}));
    assert_eq!(dispatch(&hook, "k2", &flaky).await, "{}");
    assert_eq!(dispatch(&hook, "k2", &flaky).await, "fine");
    gate.release(2);
    let slow = dispatch(&hook, "k3", &call("slow", "c3", &json!({}))).await;
    assert_eq!(slow.matches("data: ").count(), 2);
    assert_eq!(hook.names(), ["echo", "flaky", "flaky", "slow"]);
    assert_eq!(hook.call(0).arguments(), &arguments);
    let query = Client::new(&hook.tool_url("echo")).get("?a=1").await;
    assert_eq!(query.status, 200);
    assert_eq!(hook.call(4).path, "/tools/echo?a=1");
}

#[tokio::test]
async fn a_call_that_breaks_the_contract_is_caught() {
    let hook = Webhook::start().await.on("f", webhook::text("x"));
    let good = call("f", "c1", &json!({}));
    dispatch(&hook, "k1", &good).await;
    hook.assert_clean();
    dispatch(&hook, "k2", &good).await;
    dispatch(&hook, "k1", &call("f", "c2", &json!({}))).await;
    let keys = hook.take_violations();
    assert!(
        keys.iter().all(|text| text.contains("one per call")),
        "{keys:?}"
    );
    let mut bad = call("g", "c3", &json!("{}"));
    bad["round"] = json!("0");
    bad["api_key"] = json!("x");
    bad["model"].take();
    Client::new(&hook.url()).post("", &bad).await;
    let found = hook.take_violations().join("\n");
    let expected = [
        "`arguments`",
        "`round`",
        "`api_key`",
        "`model`",
        "user agent",
        "traceparent",
        "idempotency key",
        "nobody scripted",
    ];
    for expected in expected {
        assert!(found.contains(expected), "{expected} not in {found}");
    }
}

#[tokio::test]
async fn a_signed_webhook_takes_only_signed_calls() {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let hook = Webhook::signed(secret).await.on("f", webhook::text("x"));
    let body = call("f", "c1", &json!({}));
    dispatch(&hook, "k", &body).await;
    assert_eq!(hook.take_violations().len(), 1);
}

#[tokio::test]
async fn a_webhook_notices_that_its_caller_went_away() {
    let hook = Webhook::start().await.on("f", webhook::hang());
    let body = call("f", "c1", &json!({}));
    tokio::select! {
        answer = dispatch(&hook, "k", &body) => panic!("an answer: {answer}"),
        () = hook.called(1) => {}
    }
    hook.dropped(0).await;
}

#[tokio::test]
async fn an_app_is_started_stopped_killed_and_started_again() {
    let mut builder = TestApp::builder()
        .upstream_url("http://127.0.0.1:9/v1")
        .toml("listen = \"127.0.0.1:1\"\n[[tools]]\nname = \"x\"")
        .env("LOOPWRIGHT_TEST", "1")
        .program(
            "/bin/sh",
            [
                "-c",
                &format!("mkfifo fifo 2>/dev/null; env >&2; {STAND_IN}"),
            ],
        );
    let config = builder.dir().join("loopwright.toml");
    let mut app = builder.start().await;
    assert_eq!(app.origin(), "http://127.0.0.1:9");
    let text = std::fs::read_to_string(config).unwrap();
    assert!(
        text.contains("upstream = \"http://127.0.0.1:9/v1\""),
        "{text}"
    );
    assert_eq!(text.matches("listen").count(), 1, "{text}");
    assert!(app.logs().contains("LOOPWRIGHT_TEST=1"), "{}", app.logs());
    let first = app.pid();
    app.restart().await;
    assert_ne!(app.pid(), first);
    app.kill9().await;
    app.restart().await;
    app.terminate().await;
    assert_eq!(app.wait_exit().await.code(), Some(0));
    app.restart().await;
    let pid = app.pid();
    drop(app);
    let gone = || async move {
        (!std::path::Path::new(&format!("/proc/{pid}/fd/0")).exists()).then_some(())
    };
    eventually("the process to be gone", gone).await;
}

#[tokio::test]
async fn a_program_that_ends_by_itself_leaves_its_status_and_words() {
    let ended = TestApp::builder()
        .program("/bin/sh", ["-c", "echo out; echo err >&2; exit 2"])
        .run("check-config")
        .await;
    assert_eq!(ended.code, Some(2));
    assert_eq!(
        (ended.stdout.as_str(), ended.stderr.as_str()),
        ("out\n", "err\n")
    );
}
