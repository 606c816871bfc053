//! Hooks: policy servers that are asked about calls, results, model calls and ends of turns.

mod announced;
mod approver;
pub(super) mod receiver;
mod results;
mod settings;

use serde_json::{Value, json};

use self::receiver::{Receiver, hang, output, said};
use super::support::app::TestApp;
use super::support::ask::{ask, ask_with, tool_with, with};
use super::support::client::Answer;
use super::support::script::{calls, text};
use super::support::server::HttpReply;
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::{self, Webhook};

/// A model that makes these calls and then answers.
async fn calling<const N: usize>(made: [(&str, Value); N]) -> ScriptedUpstream {
    ScriptedUpstream::start([calls(made), text("Done.")]).await
}

/// The tools that the server runs.
async fn tools() -> Webhook {
    let hook = Webhook::start().await;
    ["Bash", "charge", "files"]
        .into_iter()
        .fold(hook, |hook, name| hook.on(name, webhook::text("r")))
}

async fn app(upstream: &ScriptedUpstream, tools: &Webhook, hooks: &str) -> TestApp {
    let builder = TestApp::builder().upstream(upstream).dispatch(tools);
    builder.toml(hooks).start().await
}

/// The statuses and the results of the calls of an answer.
fn outcomes(answer: &Answer) -> Vec<(String, String)> {
    let body = answer.completion();
    let entries = body["agentic_tool_calls"].as_array().cloned();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let entries = entries.unwrap_or_default();
    let entries = entries.iter();
    entries
        .map(|entry| (word(&entry["status"]), word(&entry["result_content"])))
        .collect()
}

fn owned<const N: usize>(outcomes: [(&str, &str); N]) -> Vec<(String, String)> {
    let outcomes = outcomes.into_iter();
    outcomes
        .map(|(status, result)| (status.to_owned(), result.to_owned()))
        .collect()
}

/// The notices of the kind `hook` of an answer.
fn notices(answer: &Answer) -> Vec<String> {
    let body = answer.completion();
    let all = body["agent"]["notices"].as_array().cloned();
    let all = all.unwrap_or_default().into_iter();
    let of_hooks = all.filter(|notice| notice["kind"] == "hook");
    of_hooks
        .map(|notice| notice["message"].as_str().unwrap().to_owned())
        .collect()
}

/// As the documentation of Claude Code writes it: it knows nothing of this server.
fn documented(event: &Value) -> HttpReply {
    let command = event["tool_input"]["command"].as_str().unwrap_or_default();
    match event["tool_name"] == "Bash" && command.contains("rm -rf") {
        true => output(&json!({
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": "Destructive command blocked by hook",
        })),
        false => HttpReply {
            status: 204,
            ..HttpReply::default()
        },
    }
}

#[tokio::test]
async fn a_receiver_for_claude_code_works_unchanged() {
    let receiver = Receiver::start(|_, event| documented(event)).await;
    let hooks = receiver.entry("before_tool", "/", "tools = [\"Ba*\"]");
    for streamed in [false, true] {
        let upstream = calling([
            ("Bash", json!({"command": "rm -rf /tmp/build"})),
            ("Bash", json!({"command": "ls"})),
            ("files", json!({})),
        ])
        .await;
        let tools = tools().await;
        let app = app(&upstream, &tools, &hooks).await;
        let body = ask_with("Clean up", ["Bash", "files"]);
        match streamed {
            false => assert_eq!(app.post_chat(body).await.content(), "Done."),
            true => assert_eq!(app.stream_chat(body).await.collect().await.text, "Done."),
        }
        let results: Vec<String> = (upstream.last().tool_results().into_iter())
            .map(|(_, result)| result)
            .collect();
        let denied = "This call of 'Bash' is not permitted: Destructive command blocked by hook";
        assert_eq!(results, [denied, "r", "r"]);
        let mut names = tools.names();
        names.sort_unstable();
        assert_eq!(names, ["Bash", "files"]);
    }
    let seen = receiver.bodies();
    assert_eq!(seen.len(), 4, "not about files");
    for event in seen {
        assert_eq!(event["hook_event_name"], "PreToolUse");
        let digest = event["arguments_sha256"].as_str().unwrap();
        assert!(digest.len() == 64 && digest == digest.to_lowercase());
        for member in [
            "tool_use_id",
            "session_id",
            "session_key",
            "request_id",
            "run_id",
            "model",
        ] {
            assert!(event[member].is_string(), "{member}: {event}");
        }
        assert_eq!(event["round"], 0);
    }
}

#[tokio::test]
async fn two_hooks_both_change_the_arguments() {
    let receiver = Receiver::start(|path, event| {
        let mut arguments = event["tool_input"].clone();
        arguments[&path[1..]] = json!(true);
        output(&json!({"updatedInput": arguments, "additionalContext": format!("by {path}")}))
    })
    .await;
    let hooks = receiver.entry("before_tool", "/a", "") + &receiver.entry("before_tool", "/b", "");
    let upstream = calling([("charge", json!({"n": 1}))]).await;
    let tools = tools().await;
    let app = app(&upstream, &tools, &hooks).await;
    let answer = app.post_chat(ask_with("Pay", ["charge"])).await;
    let expected = json!({"n": 1, "a": true, "b": true});
    assert_eq!(*tools.call(0).arguments(), expected);
    let read = |text: &Value| serde_json::from_str::<Value>(text.as_str().unwrap()).unwrap();
    let entry = answer.completion()["agentic_tool_calls"][0].clone();
    assert_eq!(read(&entry["arguments"]), expected);
    let asked = &upstream.last().messages()[1]["tool_calls"][0]["function"];
    assert_eq!(read(&asked["arguments"]), expected);
    assert_eq!(outcomes(&answer), owned([("ok", "r\nby /a\nby /b")]));
    assert_eq!(
        receiver.bodies()[1]["tool_input"],
        json!({"n": 1, "a": true})
    );
}

#[tokio::test]
async fn rules_see_what_a_hook_has_made_of_the_arguments() {
    let receiver = Receiver::start(|_, _| {
        output(&json!({"permissionDecision": "allow", "updatedInput": {"path": "/etc/passwd"}}))
    })
    .await;
    let rules = "[[permissions]]\nargument = '/path'\nmatch = 'path'\npatterns = ['/etc/**']\n\
                 effect = 'deny'\nreason = 'system files'\n";
    let upstream = calling([("files", json!({"path": "/srv/a"}))]).await;
    let tools = tools().await;
    let hooks = format!("{rules}{}", receiver.entry("before_tool", "/", ""));
    let app = app(&upstream, &tools, &hooks).await;
    let answer = app.post_chat(ask_with("Read", ["files"])).await;
    let denied = "This call of 'files' is not permitted: system files";
    assert_eq!(outcomes(&answer), owned([("denied", denied)]));
    assert!(tools.calls().is_empty());
}

#[tokio::test]
async fn what_does_not_fit_and_what_has_no_reason_is_denied() {
    let schema =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let unfit = "This call of 'charge' is not permitted: a hook changed its arguments, and they do not fit the tool any more";
    let plain = "This call of 'charge' is not permitted. Answer without it.";
    for (answer, expected) in [
        (
            json!({"hookSpecificOutput": {"updatedInput": {"n": "five"}}}),
            unfit,
        ),
        // It could be repaired, but a hook says what it means.
        (
            json!({"hookSpecificOutput": {"updatedInput": {"n": "5"}}}),
            unfit,
        ),
        (
            json!({"hookSpecificOutput": {"permissionDecision": "deny"}}),
            plain,
        ),
        (json!({"decision": "block"}), plain),
    ] {
        let receiver = Receiver::always(answer).await;
        let upstream = calling([("charge", json!({"n": 1}))]).await;
        let tools = tools().await;
        let app = app(&upstream, &tools, &receiver.entry("before_tool", "/", "")).await;
        let body = with(
            ask("Pay"),
            "tools",
            json!([tool_with("charge", schema.clone())]),
        );
        let answer = app.post_chat(body).await;
        assert_eq!(outcomes(&answer), owned([("denied", expected)]));
        assert_eq!(answer.content(), "Done.");
        assert!(tools.calls().is_empty());
    }
}

/// A hook that fails, and the reason that the metrics name.
fn failing(kind: &str) -> HttpReply {
    match kind {
        "timeout" => hang(),
        "status" => HttpReply::whole(500, "text/plain", "no"),
        "invalid" => HttpReply::whole(200, "application/json", "yes"),
        "too_large" => said(&json!({"systemMessage": "x".repeat(2 * 1024 * 1024)})),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_hook_that_fails_is_passed_over_or_denies() {
    for kind in ["timeout", "status", "invalid", "too_large"] {
        for on_failure in ["continue", "block"] {
            let receiver = Receiver::start(move |_, _| failing(kind)).await;
            // The others answer, however busy the machine is.
            let longest = if kind == "timeout" { "300ms" } else { "30s" };
            let more = format!(
                "timeout = \"{longest}\"\non_failure = \"{on_failure}\"\ntools = [\"charge\"]\n\
                 headers = {{ x-key = \"h3ader-secret\" }}"
            );
            let hooks = receiver.entry("before_tool", "/", &more);
            let charge = |n: u32| ("charge", json!({"n": n}));
            let upstream = calling([charge(1), charge(2), ("files", json!({}))]).await;
            let tools = tools().await;
            let app = app(&upstream, &tools, &hooks).await;
            let answer = app.post_chat(ask_with("Pay", ["charge", "files"])).await;
            let denied = "This call of 'charge' is not permitted: a hook has to agree, and it could not be asked";
            let said = notices(&answer);
            if on_failure == "continue" {
                assert_eq!(outcomes(&answer), owned([("ok", "r"); 3]), "{kind}");
                assert_eq!(said.len(), 1, "{said:?}");
                assert!(
                    said[0].starts_with("hooks[0] (PreToolUse) failed 2 times"),
                    "{said:?}"
                );
            } else {
                let expected = owned([("denied", denied), ("denied", denied), ("ok", "r")]);
                assert_eq!(outcomes(&answer), expected, "{kind}");
                assert_eq!(said.len(), 0, "{said:?}");
            }
            assert_eq!(receiver.seen()[0].headers["x-key"], "h3ader-secret");
            let logs = app.logs();
            assert!(logs.contains("a hook failed"), "{logs}");
            for secret in ["t0p-secret", "h3ader-secret"] {
                assert!(!logs.contains(secret), "{logs}");
                assert!(!answer.text().contains(secret), "{}", answer.text());
            }
            let page = app.get("/metrics").await.text();
            let line = format!(
                "loopwright_hook_failures_total{{hook_event=\"PreToolUse\",reason=\"{kind}\"}} 2"
            );
            assert!(page.contains(&line), "{page}");
        }
    }
}

#[tokio::test]
async fn a_hook_can_end_the_turn_with_its_text() {
    for streamed in [false, true] {
        let receiver = Receiver::start(|_, event| match event["tool_name"].as_str() {
            Some("charge") => said(&json!({"continue": false, "stopReason": "Budget is gone."})),
            _ => said(&json!({})),
        })
        .await;
        let upstream =
            ScriptedUpstream::start([calls([("charge", json!({})), ("files", json!({}))])]).await;
        let tools = tools().await;
        // The second call comes when the first has ended.
        let settings = format!(
            "dispatch_sequential = true\n{}",
            receiver.entry("before_tool", "/", "")
        );
        let app = app(&upstream, &tools, &settings).await;
        let body = ask_with("Pay", ["charge", "files"]);
        let agent = match streamed {
            false => {
                let answer = app.post_chat(body).await;
                assert_eq!(answer.content(), "Budget is gone.");
                let denied = "This call of 'charge' is not permitted. Answer without it.";
                let not_run = "This call was not run: a hook has ended the turn.";
                assert_eq!(
                    outcomes(&answer),
                    owned([("denied", denied), ("cancelled", not_run)])
                );
                answer.completion()["agent"].clone()
            }
            true => {
                let stream = app.stream_chat(body).await.collect().await;
                assert_eq!(stream.text, "Budget is gone.");
                assert_eq!(stream.finish_reason(), "stop");
                stream.agent().clone()
            }
        };
        assert_eq!(agent["stop_reason"], "terminated_by_tool");
        assert!(tools.calls().is_empty());
        assert_eq!(upstream.requests().len(), 1);
    }
}

#[tokio::test]
async fn a_hook_that_always_blocks_sends_the_model_back_three_times() {
    let again = json!({"decision": "block", "reason": "Run the tests."});
    for streamed in [false, true] {
        let receiver = Receiver::always(again.clone()).await;
        let replies = ["One.", "Two.", "Three.", "Four."].map(text);
        let upstream = ScriptedUpstream::start(replies).await;
        let tools = tools().await;
        let app = app(&upstream, &tools, &receiver.entry("before_finish", "/", "")).await;
        let body = ask_with("Build", ["charge"]);
        let all = "One.\n\nTwo.\n\nThree.\n\nFour.";
        let agent = match streamed {
            false => {
                let answer = app.post_chat(body).await;
                assert_eq!(answer.content(), all);
                answer.completion()["agent"].clone()
            }
            true => {
                let stream = app.stream_chat(body).await.collect().await;
                assert_eq!(stream.text, all, "what was sent stays");
                stream.agent().clone()
            }
        };
        assert_eq!(agent["stop_reason"], "completed");
        let last = upstream.request(3);
        assert_eq!(
            last.roles(),
            [
                "user",
                "assistant",
                "user",
                "assistant",
                "user",
                "assistant",
                "user"
            ]
        );
        assert_eq!(last.messages()[2]["content"], "Run the tests.");
        let seen = receiver.bodies();
        let member = |name: &str| {
            seen.iter()
                .map(|event| event[name].clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(member("last_assistant_message"), ["One.", "Two.", "Three."]);
        assert_eq!(member("stop_hook_active"), [false, true, true]);
    }
}
