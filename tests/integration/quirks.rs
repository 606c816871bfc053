//! What is particular to a model server: what it sends, what it takes, and the presets of known servers.

mod providers;
mod waits;

use serde_json::{Value, json};

use super::support::app::{Builder, TestApp};
use super::support::ask::{ask, ask_with, with};
use super::support::recorded::Recorded;
use super::support::script::{self, calls, reasoning, text, text_and_calls};
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::{self, Webhook};

/// An entry of `[[upstreams]]` with these lines.
fn entry(upstream: &ScriptedUpstream, name: &str, lines: &str) -> String {
    let url = upstream.base_url();
    format!("[[upstreams]]\nname = \"{name}\"\nbase_url = \"{url}\"\n{lines}\n")
}

async fn hook() -> Webhook {
    Webhook::start().await.on("t", webhook::text("r"))
}

/// A server between this hook and an upstream with these lines.
async fn app(upstream: &ScriptedUpstream, hook: &Webhook, lines: &str) -> TestApp {
    builder(upstream, hook, lines).start().await
}

fn builder(upstream: &ScriptedUpstream, hook: &Webhook, lines: &str) -> Builder {
    let toml = entry(upstream, "u", lines);
    TestApp::builder().dispatch(hook).toml(&toml)
}

/// The messages of a request without ids.
fn shape(request: &Recorded) -> Vec<(String, Value)> {
    let messages = request.messages().into_iter();
    let pair = |message: Value| {
        let role = message["role"].as_str().unwrap().to_owned();
        (role, message["content"].clone())
    };
    messages.map(pair).collect()
}

/// A chunk as llama-cpp-python sends it: the fragment in both forms, id and name every time.
fn twice(fragment: &str) -> String {
    let function = json!({"name": "t", "arguments": fragment});
    let call =
        json!({"index": 0, "id": "call__0_t_cmpl-1", "type": "function", "function": function});
    let delta =
        json!({"role": null, "content": null, "function_call": function, "tool_calls": [call]});
    chunk(&json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": null}))
}

fn chunk(choice: &Value) -> String {
    let chunk = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]});
    format!("data: {chunk}\n\n")
}

#[tokio::test]
async fn a_call_in_both_forms_is_one_call_on_a_stream() {
    let blank =
        json!({"role": "assistant", "content": null, "function_call": null, "tool_calls": null});
    let end = json!({"role": null, "content": null, "function_call": null, "tool_calls": null});
    let stream = script::raw_sse([
        chunk(&json!({"index": 0, "delta": blank, "finish_reason": null})),
        twice("{\"city\":"),
        twice(" \"Os"),
        twice("lo\"}"),
        // White space after the end is the same call as well.
        twice(" "),
        chunk(&json!({"index": 0, "delta": end, "finish_reason": "tool_calls"})),
        "data: [DONE]\n\n".to_owned(),
    ]);
    let upstream = ScriptedUpstream::start([stream, text("Done.")]).await;
    let hook = hook().await;
    let app = app(&upstream, &hook, "").await;
    let answer = app.post_chat(ask_with("Go", ["t"])).await;
    assert_eq!(answer.content(), "Done.");
    assert_eq!(hook.calls().len(), 1);
    assert_eq!(hook.calls()[0].arguments(), &json!({"city": "Oslo"}));
    let sent = &upstream.last().messages()[1];
    assert_eq!(sent["tool_calls"].as_array().unwrap().len(), 1);
    assert_eq!(sent["content"], "", "{sent}");
}

#[tokio::test]
async fn a_call_in_both_forms_is_one_call_in_a_whole_answer() {
    let function = json!({"name": "t", "arguments": "{\"city\": \"Oslo\"}"});
    let call = json!({"id": "c", "type": "function", "function": function});
    let message = json!({"role": "assistant", "content": null, "function_call": function, "tool_calls": [call]});
    let body =
        json!({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]});
    let kind = [("content-type", "application/json")];
    let whole = script::status(200, &kind, body.to_string());
    let upstream = ScriptedUpstream::start([whole, text("Done.")]).await;
    let hook = hook().await;
    let app = app(&upstream, &hook, "quirks = { streams = false }").await;
    let answer = app.post_chat(ask_with("Go", ["t"])).await;
    assert_eq!(answer.content(), "Done.");
    assert_eq!(hook.calls().len(), 1);
    assert_eq!(hook.calls()[0].arguments(), &json!({"city": "Oslo"}));
}

#[tokio::test]
async fn the_content_of_a_message_with_calls_alone_is_what_the_server_takes() {
    for (quirk, expected) in [
        ("", Some(json!(""))),
        ("empty_content = \"leave_out\"", None),
        ("empty_content = \"null\"", Some(Value::Null)),
        ("empty_content = \"empty\"", Some(json!(""))),
    ] {
        let upstream = ScriptedUpstream::start([
            calls([("t", json!({}))]),
            text_and_calls("Wait.", [("t", json!({"n": 2}))]),
            text("Done."),
            text("Again."),
        ])
        .await;
        let hook = hook().await;
        let app = app(&upstream, &hook, &format!("[upstreams.quirks]\n{quirk}")).await;
        let body = with(ask_with("Go", ["t"]), "session_id", json!("s"));
        app.post_chat(body.clone()).await.completion();
        let in_turn = upstream.last().messages();
        assert_eq!(in_turn[1].get("content"), expected.as_ref(), "{quirk}");
        assert_eq!(in_turn[3]["content"], "Wait.");
        // A later turn sends the same bytes, so that the prompt cache stays valid.
        let before = upstream.last();
        app.post_chat(body).await.completion();
        assert_eq!(upstream.last().messages()[..5], before.messages()[..5]);
        // What the client's own history has instead is brought into that form.
        upstream.push(text("Here."));
        let call =
            json!({"id": "c", "type": "function", "function": {"name": "t", "arguments": "{}"}});
        let messages = json!([
            {"role": "user", "content": "Go"},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "r"},
        ]);
        let body = with(ask_with("Go", ["t"]), "messages", messages);
        app.post_chat(body).await.completion();
        let sent = upstream.last().messages();
        assert_eq!(sent[1].get("content"), expected.as_ref(), "{quirk}");
    }
}

#[tokio::test]
async fn developer_messages_become_system_messages_where_the_server_knows_no_other() {
    let messages =
        json!([{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Go"}]);
    for (lines, expected) in [
        ("", "developer"),
        ("quirks = { developer_role = false }", "system"),
        ("kind = \"vllm\"", "system"),
        (
            "kind = \"vllm\"\nquirks = { developer_role = true }",
            "developer",
        ),
    ] {
        let upstream = ScriptedUpstream::start([text("a"), text("b")]).await;
        let hook = hook().await;
        let app = app(&upstream, &hook, lines).await;
        let body = with(ask_with("Go", ["t"]), "messages", messages.clone());
        app.post_chat(body).await.completion();
        assert_eq!(shape(&upstream.last())[0].0, expected, "{lines}");
        // Passed through, byte for byte.
        let body = with(ask("Go"), "messages", messages.clone());
        app.post_chat(body.clone()).await;
        assert_eq!(upstream.last().bytes, body.to_string());
    }
}

#[tokio::test]
async fn roles_alternate_where_the_server_insists() {
    let say = |role: &str, content: &str| json!({"role": role, "content": content});
    let messages = json!([
        say("system", "A"),
        say("system", "B"),
        say("user", "C"),
        say("user", "D"),
        say("assistant", "E"),
        say("system", "F"),
        say("user", "G"),
    ]);
    let pair = |role: &str, content: &str| (role.to_owned(), json!(content));
    let shared = [
        pair("assistant", "E"),
        pair("user", "<system-reminder>\nF\n</system-reminder>\n\nG"),
    ];
    for (roles, first) in [
        (
            "alternate",
            vec![pair("system", "A\n\nB"), pair("user", "C\n\nD")],
        ),
        (
            "alternate_without_system",
            vec![pair("user", "A\n\nB\n\nC\n\nD")],
        ),
    ] {
        let image = webhook::json(&json!({"content": "a chart", "images": [PNG]}));
        let hook = Webhook::start().await.on("t", image);
        let upstream = ScriptedUpstream::start([calls([("t", json!({}))]), text("x")]).await;
        let quirks = format!("quirks = {{ roles = \"{roles}\", images = true }}");
        let app = app(&upstream, &hook, &quirks).await;
        let body = with(ask_with("Go", ["t"]), "messages", messages.clone());
        app.post_chat(body).await.completion();
        let expected = [first, shared.to_vec()].concat();
        assert_eq!(shape(&upstream.request(0)), expected);
        // The images of a round are a user message, which may not follow a result.
        let all = shape(&upstream.last());
        assert_eq!(all[..expected.len()], expected);
        let roles: Vec<&str> = all[expected.len()..]
            .iter()
            .map(|(role, _)| &**role)
            .collect();
        assert_eq!(roles, ["assistant", "tool", "assistant", "user"]);
    }
}

#[tokio::test]
async fn marks_for_a_prompt_cache_stay_where_their_text_ends() {
    let mark = json!({"type": "ephemeral", "ttl": "1h"});
    let part = |text: &str| json!({"type": "text", "text": text});
    let marked = |text: &str| json!({"type": "text", "text": text, "cache_control": mark});
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    let messages = json!([
        {"role": "system", "content": "Long manual.", "cache_control": mark},
        {"role": "system", "content": "Today is Monday.", "name": "clock"},
        {"role": "user", "content": "C"},
        {"role": "assistant", "content": "D"},
        {"role": "system", "content": [marked("E"), image]},
        {"role": "developer", "content": "F", "cache_control": mark},
        {"role": "user", "content": "G"},
    ]);
    let leading = json!([marked("Long manual."), part("Today is Monday.")]);
    let late = [
        marked("<system-reminder>\nE"),
        image,
        part("\n</system-reminder>"),
    ];
    let marked_text = "<system-reminder>\nF\n</system-reminder>";
    let say = |role: &str, content: Value| json!({"role": role, "content": content});
    let named =
        |role: &str, content: Value| json!({"role": role, "content": content, "name": "clock"});
    let any = json!([
        named("system", leading.clone()),
        say("user", json!("C")),
        say("assistant", json!("D")),
        say("user", json!(late)),
        {"role": "user", "content": marked_text, "cache_control": mark},
        say("user", json!("G")),
    ]);
    let last = [&late[..], &[marked(marked_text), part("G")]].concat();
    let alternate = json!([
        named("system", leading.clone()),
        say("user", json!("C")),
        say("assistant", json!("D")),
        say("user", json!(last)),
    ]);
    let first = json!([leading[0], leading[1], part("C")]);
    let without_system = json!([
        named("user", first),
        say("assistant", json!("D")),
        say("user", json!(last)),
    ]);
    for (roles, expected) in [
        ("any", any),
        ("alternate", alternate),
        ("alternate_without_system", without_system),
    ] {
        let hook = hook().await;
        let upstream = ScriptedUpstream::start([text("x"), text("y")]).await;
        let quirks = format!("quirks = {{ roles = \"{roles}\" }}");
        let app = app(&upstream, &hook, &quirks).await;
        let body = with(ask_with("Go", ["t"]), "messages", messages.clone());
        let body = with(body, "session_id", json!("s"));
        app.post_chat(body).await.completion();
        let sent = upstream.last().messages();
        assert_eq!(json!(sent), expected, "{roles}");
        // The next turn begins with the same messages.
        let next = with(ask_with("More", ["t"]), "session_id", json!("s"));
        app.post_chat(next).await.completion();
        assert_eq!(upstream.last().messages()[..sent.len()], sent);
        // Instructions of a turn come before those of the session.
        upstream.push(text("z"));
        let body =
            json!({"model": "m", "input": "Last", "instructions": "Now.", "conversation": "s"});
        assert_eq!(app.post("/v1/responses", &body).await.status, 200);
        let content = upstream.last().messages()[0]["content"].clone();
        assert_eq!(
            content.as_array().unwrap()[..2],
            [part("Now."), marked("Long manual.")]
        );
    }
}

const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

#[tokio::test]
async fn a_session_has_one_opaque_key_for_the_upstreams_affinity_header() {
    let rule = |request: &Recorded| match request.tool_results().is_empty() {
        true => calls([("t", json!({}))]),
        false => text("Done."),
    };
    let upstream = ScriptedUpstream::answering(rule).await;
    let hook = hook().await;
    let app = app(&upstream, &hook, "affinity_header = \"X-Worker-Key\"").await;
    let mut seen = Vec::new();
    for session in [
        Some("of-the-caller"),
        Some("of-the-caller"),
        Some("another"),
        None,
    ] {
        let mut body = ask_with("Go", ["t"]);
        if let Some(id) = session {
            body["session_id"] = json!(id);
        }
        let before = upstream.requests().len();
        // A value of the client's own counts for nothing.
        let client = app.client().header("x-worker-key", "mine");
        client.post_chat(body).await.completion();
        let keys: Vec<String> = upstream.requests()[before..]
            .iter()
            .map(|request| request.header("x-worker-key").unwrap().to_owned())
            .collect();
        assert!(
            keys.iter().all(|key| *key == keys[0]),
            "one key for all calls of a turn"
        );
        assert!(
            keys[0].len() == 64 && !keys[0].contains("caller"),
            "{}",
            keys[0]
        );
        seen.push(keys[0].clone());
    }
    assert_eq!(seen[0], seen[1]);
    assert!(seen[0] != seen[2] && seen[0] != seen[3] && seen[2] != seen[3]);
}

#[tokio::test]
async fn without_an_affinity_header_nothing_tells_of_the_session() {
    let upstream = ScriptedUpstream::start([text("x")]).await;
    let hook = hook().await;
    let app = app(&upstream, &hook, "").await;
    let body = with(ask_with("Go", ["t"]), "session_id", json!("s"));
    app.post_chat(body).await.completion();
    let names: Vec<String> = upstream
        .last()
        .headers
        .keys()
        .map(ToString::to_string)
        .collect();
    let told = names
        .iter()
        .any(|name| name.contains("session") || name.contains("affinity"));
    assert!(!told, "{names:?}");
}

#[tokio::test]
async fn the_kind_of_server_sets_its_quirks_and_the_file_wins() {
    for (lines, final_tools, short_ids) in [
        ("", true, false),
        ("kind = \"openai\"", true, false),
        ("kind = \"ollama\"", false, false),
        (
            "kind = \"ollama\"\nquirks = { final_call = \"tool_choice_none\" }",
            true,
            false,
        ),
        ("kind = \"mistral\"", true, true),
        (
            "kind = \"mistral\"\nquirks = { call_ids = \"standard\" }",
            true,
            false,
        ),
    ] {
        let upstream = ScriptedUpstream::start([calls([("t", json!({}))]), text("x")]).await;
        let hook = hook().await;
        let app = app(&upstream, &hook, lines).await;
        let body = with(ask_with("Go", ["t"]), "max_tool_rounds", json!(1));
        app.post_chat(body).await.completion();
        let last = upstream.last();
        assert_eq!(last.body.get("tools").is_some(), final_tools, "{lines}");
        assert_eq!(last.tool_results()[0].0.len() == 9, short_ids, "{lines}");
    }
}

#[tokio::test]
async fn check_config_shows_the_quirks_that_a_kind_implies_and_refuses_unknown_ones() {
    let upstream = ScriptedUpstream::start([]).await;
    let hook = hook().await;
    let lines = "kind = \"mistral\"\nquirks = { roles = \"any\" }";
    let builder_all = builder(&upstream, &hook, lines).args(["--all"]);
    let ended = builder_all.run("check-config").await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    for shown in [
        "kind = \"mistral\"",
        "call_ids = \"short\"",
        "roles = \"any\"",
        "developer_role = false",
        "streams = true",
    ] {
        assert!(ended.stdout.contains(shown), "{shown}: {}", ended.stdout);
    }
    for (lines, problem) in [
        (
            "kind = \"llamacpp\"",
            "`llama.cpp`, `vllm`, `sglang`, `ollama`, `openai`, `mistral`, `gemini`",
        ),
        (
            "quirks = { roles = \"strict\" }",
            "`alternate_without_system`",
        ),
        (
            "affinity_header = \"host\"",
            "affinity_header: `host` means something else",
        ),
        ("affinity_header = \"a b\"", "is not a header name"),
    ] {
        let ended = builder(&upstream, &hook, lines).run("check-config").await;
        assert_eq!(ended.code, Some(2), "{lines}");
        assert!(ended.stderr.contains(problem), "{lines}: {}", ended.stderr);
    }
}

#[tokio::test]
async fn reasoning_is_stored_also_where_it_is_not_sent_back() {
    let upstream = ScriptedUpstream::start([
        calls([("t", json!({}))]).thinking("I should look."),
        reasoning("Now I know.", "Yes."),
    ])
    .await;
    let hook = hook().await;
    let app = app(&upstream, &hook, "quirks = { send_reasoning = false }").await;
    let body = with(ask_with("Go", ["t"]), "session_id", json!("s"));
    app.post_chat(body).await.completion();
    let sent = upstream.last().messages();
    assert!(sent[1].get("reasoning_content").is_none(), "{}", sent[1]);
    let stored = app.get("/v1/sessions/s").await.text();
    assert!(
        stored.contains("I should look.") && stored.contains("Now I know."),
        "{stored}"
    );
}

#[tokio::test]
async fn a_closing_tag_of_reasoning_alone_is_never_shown() {
    let answer = "They want the weather.\n</think>\n\nCold.";
    for streams in [true, false] {
        for (quirk, open) in [("true", false), ("\"open\"", true)] {
            let upstream = ScriptedUpstream::start([text(answer), text(answer)]).await;
            let lines = format!("quirks = {{ think_tags = {quirk}, streams = {streams} }}");
            let app = app(&upstream, &hook().await, &lines).await;
            let whole = app.post_chat(ask_with("Go", ["t"])).await.completion();
            let message = &whole["choices"][0]["message"];
            assert_eq!(message["content"], "Cold.", "{lines}");
            assert_eq!(
                message["reasoning_content"], "They want the weather.",
                "{lines}"
            );
            let stream = app.stream_chat(ask_with("Go", ["t"])).await.collect().await;
            let seen = (stream.reasoning.as_str(), stream.text.as_str());
            // Text that was passed on cannot be taken back.
            let expected = match open || !streams {
                true => ("They want the weather.", "Cold."),
                false => ("", "They want the weather.\n\nCold."),
            };
            assert_eq!(seen, expected, "{lines}");
        }
    }
}

#[tokio::test]
async fn reasoning_before_a_call_goes_back_as_reasoning() {
    let call = "<tool_call>{\"name\": \"t\", \"arguments\": {}}</tool_call>";
    let written = text(&format!("I should look.\n</think>\n\n{call}"));
    let own = text_and_calls("I should look.\n</think>\n\n", [("t", json!({}))]);
    for (quirks, first) in [
        ("think_tags = true, text_calls = true", &written),
        ("think_tags = \"open\", text_calls = true", &written),
        ("think_tags = true", &own),
        ("think_tags = \"open\"", &own),
    ] {
        let script = [first.clone(), text("Hm.\n</think>\n\nDone.")];
        let upstream = ScriptedUpstream::start(script.clone().into_iter().chain(script)).await;
        let lines = format!("quirks = {{ {quirks} }}");
        let app = app(&upstream, &hook().await, &lines).await;
        let check = || {
            let message = upstream.last().messages()[1].clone();
            assert_eq!(message["reasoning_content"], "I should look.", "{quirks}");
            assert!(message["content"].as_str().is_none_or(str::is_empty));
            assert_eq!(message["tool_calls"][0]["function"]["name"], "t");
        };
        let whole = app.post_chat(ask_with("Go", ["t"])).await.completion();
        let message = &whole["choices"][0]["message"];
        assert_eq!(message["content"], "Done.", "{quirks}");
        assert_eq!(message["reasoning_content"], "I should look.Hm.");
        check();
        if quirks.contains("open") {
            let stream = app.stream_chat(ask_with("Go", ["t"])).await.collect().await;
            let seen = (stream.reasoning.as_str(), stream.text.as_str());
            assert_eq!(seen, ("I should look.Hm.", "Done."), "{quirks}");
            check();
        }
    }
}

#[tokio::test]
async fn another_word_for_think_tags_is_refused() {
    let upstream = ScriptedUpstream::start([]).await;
    let hook = hook().await;
    let ended = builder(&upstream, &hook, "quirks = { think_tags = \"closed\" }")
        .run("check-config")
        .await;
    assert_ne!(ended.code, Some(0));
    assert!(
        ended.stderr.contains("true, false or \"open\""),
        "{}",
        ended.stderr
    );
}
