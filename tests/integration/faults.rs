//! Model servers that fail: every fault, streamed and not, retries, fail-over, dialects.

use serde_json::{Value, json};

use super::support::app::TestApp;
use super::support::ask::{ask_with, with};
use super::support::client::Answer;
use super::support::collect::Collected;
use super::support::script::{self, Reply, calls, text, text_and_calls};
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::{self, Webhook};
use super::support::{unreachable_url, within};

/// Retries that do not take the test's time.
const QUICK: &str = "[retry]\nmax_attempts = 3\nbase_delay = \"1ms\"";
/// The same without retries.
const ONCE: &str = "[retry]\nmax_attempts = 1";

/// One failing upstream with time-outs of a test.
fn upstream_table(upstream: &ScriptedUpstream) -> String {
    format!(
        "[[upstreams]]\nname = \"only\"\nbase_url = \"{}\"\nfirst_byte_timeout = 0.3\nidle_timeout = 0.3\n",
        upstream.base_url()
    )
}

/// Runs the same fault streamed and not.
async fn both(fault: impl Fn() -> Reply) -> (Answer, Result<(Collected, Vec<String>), Answer>) {
    let upstream = ScriptedUpstream::start([fault(), fault()]).await;
    let hook = Webhook::start().await;
    let toml = format!("{ONCE}\n{}", upstream_table(&upstream));
    let app = TestApp::builder().dispatch(&hook).toml(&toml).start().await;
    let plain = app.post_chat(ask_with("Go", ["t"])).await;
    let streamed = match app.client().try_stream_chat(ask_with("Go", ["t"])).await {
        Ok(reader) => Ok(reader.collect_with_problems().await),
        Err(answer) => Err(answer),
    };
    (plain, streamed)
}

#[tokio::test]
async fn a_fault_before_the_first_byte_keeps_its_status_in_both_forms() {
    for (fault, status, code) in [
        (script::reset as fn() -> Reply, 502, "upstream_unreachable"),
        (script::garbage, 502, "upstream_unreachable"),
        (script::hang, 504, "upstream_timeout"),
    ] {
        let (plain, streamed) = both(fault).await;
        plain.assert_error(status, Some(code));
        match streamed {
            Err(answer) => {
                answer.assert_error(status, Some(code));
            }
            // What is broken inside a successful answer shows only once the stream has begun.
            Ok((stream, _)) => assert_eq!(stream.error.unwrap()["code"], code),
        }
    }
}

#[tokio::test]
async fn a_fault_inside_the_answer_is_an_error_and_never_a_clean_end() {
    for (fault, code) in [
        (
            text("one two three four").reset_after(3),
            "upstream_unreachable",
        ),
        (
            text("one two three four").cut_after(3),
            "upstream_unreachable",
        ),
        (
            text("one two three four").truncate_after(3),
            "upstream_unreachable",
        ),
        (text("one two three four").hang_after(3), "upstream_timeout"),
    ] {
        let (plain, streamed) = both(|| fault.clone()).await;
        let status = if code == "upstream_timeout" { 504 } else { 502 };
        plain.assert_error(status, Some(code));
        let Ok((stream, problems)) = streamed else {
            panic!("a stream that has begun")
        };
        assert_eq!(stream.text, "one two ", "what came is passed on");
        assert_eq!(stream.error.as_ref().unwrap()["code"], code);
        assert!(stream.finish.is_none());
        assert!(problems.is_empty(), "{problems:?}");
    }
}

#[tokio::test]
async fn an_upstreams_own_error_comes_as_it_came() {
    for status in [400, 401, 404, 422, 500] {
        let body = r#"{"error":{"message":"its own words","type":"x","param":"messages","code":"its_code"},"more":1}"#;
        let (plain, streamed) =
            both(|| script::status(status, &[("x-ratelimit-remaining", "3")], body)).await;
        assert_eq!(plain.status, status);
        assert_eq!(plain.text(), body);
        let Err(answer) = streamed else {
            panic!("{status} is no stream")
        };
        assert_eq!(answer.status, status);
        assert_eq!(answer.text(), body);
    }
}

#[tokio::test]
async fn an_error_inside_a_successful_stream_is_passed_on_as_error() {
    let error = r#"{"error":{"message":"out of memory","type":"x","param":null,"code":"oom"}}"#;
    let (plain, streamed) = both(|| script::raw_sse([format!("data: {error}\n\n")])).await;
    assert!(plain.status.is_server_error(), "{}", plain.text());
    assert_eq!(plain.json()["error"]["code"], "oom");
    let error = match streamed {
        Ok((stream, _)) => stream.error.unwrap(),
        Err(answer) => answer.json()["error"].clone(),
    };
    assert_eq!(error["code"], "oom");
}

#[tokio::test]
async fn two_500s_then_fine_is_fine_and_a_notice_says_so() {
    let replies = || {
        [
            script::error(500, "busy"),
            script::error(503, "busy"),
            text("Fine."),
        ]
    };
    let upstream = ScriptedUpstream::start(replies().into_iter().chain(replies())).await;
    let hook = Webhook::start().await;
    let app = TestApp::builder()
        .upstream(&upstream)
        .dispatch(&hook)
        .toml(QUICK)
        .start()
        .await;
    assert_eq!(
        app.post_chat(ask_with("Go", ["t"])).await.content(),
        "Fine."
    );
    let stream = app.stream_chat(ask_with("Go", ["t"])).await.collect().await;
    assert_eq!(stream.text, "Fine.");
    assert!(!stream.notices().is_empty());
    let first = upstream.request(0).bytes;
    assert!(
        upstream
            .requests()
            .iter()
            .all(|request| request.bytes == first),
        "the very same request"
    );
}

#[tokio::test]
async fn retries_happen_between_rounds_too_and_run_no_tool_twice() {
    let upstream = ScriptedUpstream::start([
        calls([("t", json!({}))]),
        script::error(500, "busy"),
        script::reset(),
        text("Fine."),
    ])
    .await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::builder()
        .upstream(&upstream)
        .dispatch(&hook)
        .toml(QUICK)
        .start()
        .await;
    let stream = app.stream_chat(ask_with("Go", ["t"])).await.collect().await;
    assert_eq!(stream.text, "Fine.");
    assert_eq!(hook.calls().len(), 1);
}

#[tokio::test]
async fn a_plain_answer_survives_a_break_in_the_middle() {
    let upstream =
        ScriptedUpstream::start([text("one two three").cut_after(2), text("Whole.")]).await;
    let hook = Webhook::start().await;
    let app = TestApp::builder()
        .upstream(&upstream)
        .dispatch(&hook)
        .toml(QUICK)
        .start()
        .await;
    assert_eq!(
        app.post_chat(ask_with("Go", ["t"])).await.content(),
        "Whole."
    );
}

#[tokio::test]
async fn what_the_client_has_seen_is_not_asked_for_again() {
    let upstream = ScriptedUpstream::start([text("one two three").cut_after(2)]).await;
    let hook = Webhook::start().await;
    let app = TestApp::builder()
        .upstream(&upstream)
        .dispatch(&hook)
        .toml(QUICK)
        .start()
        .await;
    let (stream, _) = app
        .stream_chat(ask_with("Go", ["t"]))
        .await
        .collect_with_problems()
        .await;
    assert_eq!(stream.text, "one ");
    assert!(stream.error.is_some());
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn retry_after_is_honoured_up_to_the_longest_wait() {
    // Longer than the longest wait: given up at once, and the client is told the server's own words.
    let upstream = ScriptedUpstream::start([script::status(
        429,
        &[("retry-after", "3600")],
        "{\"error\":{\"message\":\"slow down\"}}",
    )])
    .await;
    let hook = Webhook::start().await;
    let app = TestApp::builder()
        .upstream(&upstream)
        .dispatch(&hook)
        .toml(QUICK)
        .start()
        .await;
    let answer = app.post_chat(ask_with("Go", ["t"])).await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.header("retry-after"), Some("3600"));
    assert_eq!(upstream.requests().len(), 1);
    // Short enough: waited for.
    let upstream = ScriptedUpstream::start([
        script::status(429, &[("retry-after", "1")], "{}"),
        text("Fine."),
    ])
    .await;
    let app = TestApp::builder()
        .upstream(&upstream)
        .dispatch(&hook)
        .toml(QUICK)
        .start()
        .await;
    let began = std::time::Instant::now();
    assert_eq!(
        app.post_chat(ask_with("Go", ["t"])).await.content(),
        "Fine."
    );
    assert!(began.elapsed().as_millis() >= 1000);
}

#[tokio::test]
async fn an_exhausted_quota_is_never_retried() {
    let body = r#"{"error":{"message":"quota","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#;
    let upstream = ScriptedUpstream::start([script::status(429, &[], body)]).await;
    let hook = Webhook::start().await;
    let app = TestApp::builder()
        .upstream(&upstream)
        .dispatch(&hook)
        .toml(QUICK)
        .start()
        .await;
    assert_eq!(app.post_chat(ask_with("Go", ["t"])).await.status, 429);
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn an_error_after_a_tool_has_run_tells_the_sdk_not_to_retry() {
    for (idempotent, expected) in [(false, Some("false")), (true, None)] {
        let upstream =
            ScriptedUpstream::start([calls([("t", json!({}))]), script::error(400, "no")]).await;
        let hook = Webhook::start().await.on("t", webhook::text("r"));
        let toml = format!("dispatch_idempotent = {idempotent}");
        let app = TestApp::builder()
            .upstream(&upstream)
            .dispatch(&hook)
            .toml(&toml)
            .start()
            .await;
        let answer = app.post_chat(ask_with("Go", ["t"])).await;
        assert_eq!(answer.status, 400);
        assert_eq!(answer.header("x-should-retry"), expected);
    }
}

#[tokio::test]
async fn the_next_upstream_takes_over_in_the_loop_and_in_pass_through() {
    let second =
        ScriptedUpstream::start([text("From the second."), text("From the second.")]).await;
    let toml = format!(
        "{QUICK}\n[[upstreams]]\nname = \"a\"\nbase_url = \"{}\"\n[[upstreams]]\nname = \"b\"\nbase_url = \"{}\"",
        unreachable_url().await,
        second.base_url()
    );
    let hook = Webhook::start().await;
    let app = TestApp::builder().dispatch(&hook).toml(&toml).start().await;
    assert_eq!(
        app.post_chat(ask_with("Go", ["t"])).await.content(),
        "From the second."
    );
    let passed = app.post_chat(super::support::ask::ask("Go")).await;
    assert_eq!(
        passed.json()["choices"][0]["message"]["content"],
        "From the second."
    );
}

#[tokio::test]
async fn nobody_listening_is_a_502_without_the_address() {
    let url = unreachable_url().await;
    let hook = Webhook::start().await;
    let app = TestApp::builder()
        .upstream_url(&url)
        .dispatch(&hook)
        .toml(ONCE)
        .start()
        .await;
    for body in [ask_with("Go", ["t"]), super::support::ask::ask("Go")] {
        let message = app
            .post_chat(body)
            .await
            .assert_error(502, Some("upstream_unreachable"));
        assert!(!message.contains("127.0.0.1"), "{message}");
    }
}

#[tokio::test]
async fn a_late_head_is_a_200_with_keep_alives_and_then_the_error() {
    let upstream = ScriptedUpstream::start([script::hang()]).await;
    let hook = Webhook::start().await;
    let toml = format!(
        "first_byte_wait = 0.1\nkeep_alive = 0.05\n{ONCE}\n[[upstreams]]\nname = \"only\"\nbase_url = \"{}\"\nfirst_byte_timeout = 1",
        upstream.base_url()
    );
    let app = TestApp::builder().dispatch(&hook).toml(&toml).start().await;
    let mut stream = app.stream_chat(ask_with("Go", ["t"])).await;
    assert_eq!(stream.next_comment().await, "keep-alive");
    let (stream, problems) = stream.collect_with_problems().await;
    assert_eq!(stream.error.unwrap()["code"], "upstream_timeout");
    assert!(problems.is_empty(), "{problems:?}");
}

#[tokio::test]
async fn an_upstream_that_cannot_stream_serves_both_forms() {
    let upstream = ScriptedUpstream::start([
        text_and_calls("Look.", [("t", json!({"a": 1}))]),
        text("Done."),
        text_and_calls("Look.", [("t", json!({"a": 1}))]),
        text("Done."),
    ])
    .await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let toml = upstream.with_quirks("streams = false");
    let app = TestApp::builder().dispatch(&hook).toml(&toml).start().await;
    assert_eq!(
        app.post_chat(ask_with("Go", ["t"])).await.content(),
        "Look.\n\nDone."
    );
    let stream = app.stream_chat(ask_with("Go", ["t"])).await.collect().await;
    assert_eq!(stream.text, "Look.\n\nDone.");
    assert!(
        upstream
            .requests()
            .iter()
            .all(|request| request.body["stream"] != true)
    );
}

#[tokio::test]
async fn an_upstream_without_stream_options_is_not_sent_them() {
    let upstream = ScriptedUpstream::start([text("x")]).await;
    let hook = Webhook::start().await;
    let toml = upstream.with_quirks("stream_options = false");
    let app = TestApp::builder().dispatch(&hook).toml(&toml).start().await;
    let stream = app.stream_chat(ask_with("Go", ["t"])).await.collect().await;
    assert_eq!(stream.text, "x");
    assert!(upstream.last().raw("stream_options").is_none());
}

/// Dialects of the field: each is the same answer, a call of `t` with `{"a":1}`, in another spelling.
#[tokio::test]
async fn every_dialect_of_a_call_is_understood() {
    let chunk = |delta: Value, finish: Value| {
        let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
        format!("data: {chunk}\n\n")
    };
    let done = "data: [DONE]\n\n".to_owned();
    let open = Value::Null;
    let call = |index: Value, id: Value, name: &str, arguments: Value| {
        let mut call =
            json!({"type": "function", "function": {"name": name, "arguments": arguments}});
        if !index.is_null() {
            call["index"] = index;
        }
        if !id.is_null() {
            call["id"] = id;
        }
        json!({"tool_calls": [call]})
    };
    let whole = r#"{"a":1}"#;
    let dialects: [(&str, Vec<String>); 9] = [
        (
            "whole call in one delta",
            vec![chunk(
                call(json!(0), json!("x"), "t", json!(whole)),
                json!("tool_calls"),
            )],
        ),
        (
            "no index",
            vec![chunk(
                call(open.clone(), json!("x"), "t", json!(whole)),
                json!("tool_calls"),
            )],
        ),
        (
            "no id",
            vec![chunk(
                call(json!(0), open.clone(), "t", json!(whole)),
                json!("tool_calls"),
            )],
        ),
        (
            "arguments as an object",
            vec![chunk(
                call(json!(0), json!("x"), "t", json!({"a": 1})),
                json!("tool_calls"),
            )],
        ),
        (
            "finish reason stop",
            vec![chunk(
                call(json!(0), json!("x"), "t", json!(whole)),
                json!("stop"),
            )],
        ),
        (
            "name repeated in every delta",
            vec![
                chunk(
                    call(json!(0), json!("x"), "t", json!("{\"a\"")),
                    open.clone(),
                ),
                chunk(
                    call(json!(0), json!("x"), "t", json!(":1}")),
                    json!("tool_calls"),
                ),
            ],
        ),
        (
            "empty name later",
            vec![
                chunk(
                    call(json!(0), json!("x"), "t", json!("{\"a\"")),
                    open.clone(),
                ),
                chunk(
                    call(json!(0), json!(""), "", json!(":1}")),
                    json!("tool_calls"),
                ),
            ],
        ),
        (
            "legacy function_call",
            vec![
                chunk(
                    json!({"function_call": {"name": "t", "arguments": ""}}),
                    open.clone(),
                ),
                chunk(
                    json!({"function_call": {"arguments": whole}}),
                    json!("function_call"),
                ),
            ],
        ),
        (
            "carriage returns and U+2028 inside the text",
            vec![
                chunk(json!({"content": "a\u{2028}b"}), open.clone()).replace('\n', "\r\n"),
                chunk(
                    call(json!(0), json!("x"), "t", json!(whole)),
                    json!("tool_calls"),
                )
                .replace('\n', "\r"),
            ],
        ),
    ];
    for (dialect, mut frames) in dialects {
        frames.push(done.clone());
        let upstream = ScriptedUpstream::start([script::raw_sse(frames), text("Done.")]).await;
        let hook = Webhook::start().await.on("t", webhook::text("r"));
        let app = TestApp::with_tools(&upstream, &hook).await;
        let stream = app.stream_chat(ask_with("Go", ["t"])).await.collect().await;
        assert!(
            stream.text.ends_with("Done."),
            "{dialect}: {}",
            stream.transcript()
        );
        assert_eq!(hook.calls().len(), 1, "{dialect}");
        assert_eq!(hook.call(0).arguments(), &json!({"a": 1}), "{dialect}");
    }
}

#[tokio::test]
async fn inline_thinking_is_split_off_where_the_quirk_says_so() {
    let upstream = ScriptedUpstream::start([text("<think>Hm, hm.</think>Yes.")]).await;
    let hook = Webhook::start().await;
    let toml = upstream.with_quirks("think_tags = true");
    let app = TestApp::builder().dispatch(&hook).toml(&toml).start().await;
    let stream = app.stream_chat(ask_with("Go", ["t"])).await.collect().await;
    assert_eq!(
        (stream.text.as_str(), stream.reasoning.as_str()),
        ("Yes.", "Hm, hm.")
    );
}

#[tokio::test]
async fn short_call_ids_are_made_for_servers_that_insist() {
    let upstream = ScriptedUpstream::start([calls([("t", json!({}))]), text("x")]).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let toml = upstream.with_quirks("call_ids = \"short\"");
    let app = TestApp::builder().dispatch(&hook).toml(&toml).start().await;
    app.post_chat(ask_with("Go", ["t"])).await.completion();
    let id = upstream.last().tool_results()[0].0.clone();
    assert!(
        id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
        "{id}"
    );
}

#[tokio::test]
async fn a_stream_without_end_is_cut_at_its_limit() {
    let upstream = ScriptedUpstream::start([text(&"word ".repeat(20_000))]).await;
    let hook = Webhook::start().await;
    let toml = format!(
        "{ONCE}\n[[upstreams]]\nname = \"u\"\nbase_url = \"{}\"\nmax_stream_bytes = \"64KiB\"",
        upstream.base_url()
    );
    let app = TestApp::builder().dispatch(&hook).toml(&toml).start().await;
    app.post_chat(ask_with("Go", ["t"]))
        .await
        .assert_error(502, Some("upstream_unreachable"));
}

#[tokio::test]
async fn model_patterns_choose_the_upstream_and_names_are_mapped() {
    let qwen = ScriptedUpstream::start([text("qwen"), text("qwen")])
        .await
        .models(&["Qwen/small"]);
    let other = ScriptedUpstream::start([text("other")])
        .await
        .models(&["gpt-x"]);
    let toml = format!(
        "[[upstreams]]\nname = \"q\"\nbase_url = \"{}\"\nmodels = [\"Qwen/*\", \"fast\"]\nmodel_map = {{ \"fast\" = \"Qwen/small\" }}\nheaders = {{ x-team = \"a\" }}\n\
         [[upstreams]]\nname = \"o\"\nbase_url = \"{}\"\nmodels = [\"gpt-*\"]",
        qwen.base_url(),
        other.base_url()
    );
    let hook = Webhook::start().await;
    let app = TestApp::builder().dispatch(&hook).toml(&toml).start().await;
    let model = |name: &str| with(ask_with("Go", ["t"]), "model", json!(name));
    assert_eq!(app.post_chat(model("fast")).await.content(), "qwen");
    assert_eq!(qwen.last().body["model"], "Qwen/small");
    assert_eq!(qwen.last().header("x-team"), Some("a"));
    assert_eq!(app.post_chat(model("gpt-x")).await.content(), "other");
    // Passed through, the name is mapped as well.
    let passed = with(super::support::ask::ask("Go"), "model", json!("fast"));
    assert_eq!(
        app.post_chat(passed).await.json()["choices"][0]["message"]["content"],
        "qwen"
    );
    assert_eq!(qwen.last().body["model"], "Qwen/small");
    let unknown = app.post_chat(model("llama")).await;
    assert!(
        unknown
            .assert_error(404, Some("model_not_found"))
            .contains("llama")
    );
    let listed = app.get("/v1/models").await.json();
    let mut ids: Vec<&str> = listed["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, ["Qwen/small", "fast", "gpt-x"]);
    assert_eq!(
        app.get("/v1/models/Qwen/small").await.json()["id"],
        "Qwen/small"
    );
    app.get("/v1/models/none")
        .await
        .assert_error(404, Some("model_not_found"));
}

#[tokio::test]
async fn rate_limits_of_the_upstream_come_under_another_name() {
    let upstream = ScriptedUpstream::start([
        text("x").header("x-ratelimit-remaining-requests", "7"),
        text("x").header("x-ratelimit-remaining-requests", "6"),
    ])
    .await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let answer = app.post_chat(ask_with("Go", ["t"])).await;
    assert_eq!(
        answer.header("x-upstream-ratelimit-remaining-requests"),
        Some("7")
    );
    assert!(answer.header("x-ratelimit-remaining-requests").is_none());
    let stream = within("a stream", app.stream_chat(ask_with("Go", ["t"]))).await;
    assert_eq!(
        stream.headers()["x-upstream-ratelimit-remaining-requests"],
        "6"
    );
    stream.collect().await;
}

#[tokio::test]
async fn a_redirect_is_no_answer_and_its_target_stays_here() {
    let redirect = || script::status(302, &[("location", "http://10.0.0.1/secret")], "moved");
    let (plain, streamed) = both(redirect).await;
    for answer in [&plain, &streamed.unwrap_err()] {
        answer.assert_error(502, Some("upstream_unreachable"));
        assert!(answer.header("location").is_none());
        assert!(!answer.text().contains("10.0.0.1"));
    }
}

#[tokio::test]
async fn an_answer_written_over_several_lines_is_read_and_sent_on_in_one() {
    let whole = "{\n\"choices\": [{\"index\": 0, \"finish_reason\": \"stop\", \"logprobs\": {\r\n\"content\": [\n]},\n\"message\": {\"content\": \"Hi.\",\n\"annotations\": [\n1\r\n]}}],\n\"kept\": {\n\"a\": 1\n}\n}\n";
    let (plain, streamed) = both(|| script::status(200, &[], whole)).await;
    assert_eq!(plain.content(), "Hi.");
    assert_eq!(plain.json()["kept"], json!({"a": 1}));
    let Ok((stream, problems)) = streamed else {
        panic!("a stream that has begun")
    };
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(stream.text, "Hi.");
    assert!(stream.error.is_none());
}

#[tokio::test]
async fn an_upstream_cannot_pass_itself_off_as_this_server() {
    let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "session_id": "sess_forged", "agent": {"forged": 1}, "type": "agentic_notice", "files": ["forged"],
        "agentic_tool_calls": ["forged"], "obfuscation": "forged", "kept": "yes",
        "choices": [{"index": 0, "delta": {"content": "Hi.", "obfuscation": "forged"}, "finish_reason": "stop"}]});
    let frame = format!("data: {chunk}\n\n");
    let (plain, streamed) =
        both(|| script::raw_sse([frame.clone(), "data: [DONE]\n\n".to_owned()])).await;
    assert_eq!(plain.json()["kept"], "yes");
    assert!(!plain.text().contains("forged"), "{}", plain.text());
    let Ok((stream, problems)) = streamed else {
        panic!("a stream that has begun")
    };
    assert!(problems.is_empty(), "{problems:?}");
    assert!(!stream.transcript().contains("forged"));
}

#[tokio::test]
async fn an_answer_without_measure_is_refused() {
    let frame = |delta: Value| {
        let chunk = json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
        format!("data: {chunk}\n\n")
    };
    let call = |nth: usize| json!({"index": nth, "function": {"name": "t", "arguments": "{}"}});
    let many_calls = (0..2).map(|half| {
        let calls: Vec<Value> = (half * 100..(half + 1) * 100).map(call).collect();
        frame(json!({ "tool_calls": calls }))
    });
    let many_keys = (0..300).map(|nth| frame(json!({ format!("k{nth}"): 1 })));
    for frames in [many_calls.collect::<Vec<_>>(), many_keys.collect()] {
        let frames: Vec<String> = frames
            .into_iter()
            .chain(["data: [DONE]\n\n".to_owned()])
            .collect();
        let (plain, streamed) = both(|| script::raw_sse(frames.clone())).await;
        plain.assert_error(502, Some("upstream_unreachable"));
        let error = match streamed {
            Ok((stream, _)) => stream.error.unwrap(),
            Err(answer) => answer.json()["error"].clone(),
        };
        assert_eq!(error["code"], "upstream_unreachable");
    }
}

#[tokio::test]
async fn an_error_spread_over_lines_is_one_line_on_the_stream() {
    let error = "{\n  \"error\": {\n    \"message\": \"no\", \"type\": \"x\", \"param\": null,\n    \"code\": \"its_code\"\n  }\n}";
    let upstream =
        ScriptedUpstream::start([calls([("t", json!({}))]), script::status(400, &[], error)]).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let stream = app.stream_chat(ask_with("Go", ["t"])).await;
    let (stream, problems) = stream.collect_with_problems().await;
    assert_eq!(stream.error.unwrap()["code"], "its_code");
    assert!(problems.is_empty(), "{problems:?}");
}
