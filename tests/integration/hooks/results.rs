//! Hooks that see results, and hooks that see what the model is sent.

use serde_json::{Value, json};

use super::receiver::{Receiver, hang, output, said};
use super::{app, calling, notices, outcomes, owned, tools};
use crate::support::ask::{ask_with, user};
use crate::support::client::Answer;
use crate::support::script::{calls, text};
use crate::support::server::HttpReply;
use crate::support::upstream::ScriptedUpstream;

/// The outcome of one call of `charge` whose result a hook sees, with all of the answer.
async fn seen_by(answer: Value) -> (Answer, Receiver) {
    let receiver = Receiver::always(answer).await;
    let upstream = calling([("charge", json!({"n": 1}))]).await;
    let tools = tools().await;
    let app = app(&upstream, &tools, &receiver.entry("after_tool", "/", "")).await;
    let answer = app.post_chat(ask_with("Pay", ["charge"])).await;
    let told = &upstream.last().tool_results()[0].1;
    assert_eq!(*told, outcomes(&answer)[0].1, "the model is told the same");
    (answer, receiver)
}

#[tokio::test]
async fn a_result_is_replaced_or_added_to() {
    for (answer, expected) in [
        (json!({}), ("ok", "r")),
        (
            json!({"hookSpecificOutput": {"additionalContext": "A note."}}),
            ("ok", "r\nA note."),
        ),
        (
            json!({"hookSpecificOutput": {"updatedToolOutput": "short"}}),
            ("ok", "short"),
        ),
        (
            json!({"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": {"stdout": "x"}}}),
            ("ok", r#"{"stdout":"x"}"#),
        ),
        (
            json!({"decision": "block", "reason": "Not for you."}),
            ("error", "Not for you."),
        ),
        (
            json!({"decision": "block"}),
            ("error", "A hook withheld this result."),
        ),
    ] {
        let (answer, receiver) = seen_by(answer).await;
        assert_eq!(outcomes(&answer), owned([expected]));
        let event = &receiver.bodies()[0];
        assert_eq!(event["hook_event_name"], "PostToolUse");
        assert_eq!(event["tool_input"], json!({"n": 1}));
        assert_eq!(
            event["tool_response"],
            json!({"content": "r", "status": "ok"})
        );
    }
}

#[tokio::test]
async fn a_turn_ends_when_every_result_says_so() {
    for (terminating, ends) in [(&["charge"][..], false), (&["charge", "files"][..], true)] {
        let receiver = Receiver::start(move |_, event| {
            let name = event["tool_name"].as_str().unwrap();
            said(&json!({"terminate": terminating.contains(&name)}))
        })
        .await;
        let upstream = calling([("charge", json!({})), ("files", json!({}))]).await;
        let tools = tools().await;
        let app = app(&upstream, &tools, &receiver.entry("after_tool", "/", "")).await;
        let answer = app.post_chat(ask_with("Go", ["charge", "files"])).await;
        let reason = &answer.completion()["agent"]["stop_reason"];
        let (calls, expected) = match ends {
            true => (1, "terminated_by_tool"),
            false => (2, "completed"),
        };
        assert_eq!(
            (upstream.requests().len(), reason),
            (calls, &json!(expected))
        );
    }
}

#[tokio::test]
async fn a_hook_after_a_call_that_fails_is_passed_over_or_withholds_the_result() {
    let withheld = "The tool was called, but its result is withheld: a hook has to see it first, and it could not be asked.";
    for (on_failure, expected) in [("continue", ("ok", "r")), ("block", ("error", withheld))] {
        for hangs in [false, true] {
            let receiver = Receiver::start(move |_, _| match hangs {
                true => hang(),
                false => HttpReply::whole(500, "text/plain", "no"),
            })
            .await;
            let more = format!("timeout = \"300ms\"\non_failure = \"{on_failure}\"");
            let upstream = calling([("charge", json!({}))]).await;
            let tools = tools().await;
            let app = app(&upstream, &tools, &receiver.entry("after_tool", "/", &more)).await;
            let answer = app.post_chat(ask_with("Pay", ["charge"])).await;
            assert_eq!(outcomes(&answer), owned([expected]));
            assert_eq!(
                notices(&answer).len(),
                usize::from(on_failure == "continue")
            );
        }
    }
}

#[tokio::test]
async fn a_hook_sees_results_before_they_are_shortened() {
    let receiver = Receiver::always(json!({})).await;
    let upstream = calling([("long", json!({}))]).await;
    let long = "x".repeat(5000);
    let tools = tools().await;
    let tools = tools.on("long", super::webhook::text(&long));
    let hooks = format!(
        "max_result_chars = 1000\n{}",
        receiver.entry("after_tool", "/", "")
    );
    let app = app(&upstream, &tools, &hooks).await;
    let answer = app.post_chat(ask_with("Go", ["long"])).await;
    assert_eq!(receiver.bodies()[0]["tool_response"]["content"], long);
    assert!(outcomes(&answer)[0].1.len() < 1500);
}

#[tokio::test]
async fn messages_are_changed_for_one_call_only() {
    let receiver = Receiver::start(|path, event| match path {
        "/secret" => {
            let text = event["messages"].to_string().replace("4711", "[hidden]");
            let messages: Value = serde_json::from_str(&text).unwrap();
            output(&json!({"updatedMessages": messages}))
        }
        _ => output(&json!({"additionalContext": format!("round {}", event["round"])})),
    })
    .await;
    let hooks = receiver.entry("before_model", "/secret", "")
        + &receiver.entry("before_model", "/context", "");
    let upstream = calling([("charge", json!({}))]).await;
    let tools = tools().await;
    let app = app(&upstream, &tools, &hooks).await;
    let answer = app.post_chat(ask_with("My pin is 4711", ["charge"])).await;
    assert_eq!(answer.content(), "Done.");
    let first = upstream.request(0).messages();
    assert_eq!(first, [user("My pin is [hidden]"), user("round 0")]);
    let second = upstream.request(1);
    assert_eq!(second.roles(), ["user", "assistant", "tool", "user"]);
    assert_eq!(second.messages()[3]["content"], "round 1");
    let seen = receiver.bodies();
    assert_eq!(seen[1]["messages"][0]["content"], "My pin is [hidden]");
    assert_eq!(
        seen[2]["messages"][0]["content"], "My pin is 4711",
        "what was said stays"
    );
    assert_eq!(seen[2]["hook_event_name"], "PreModelCall");
}

#[tokio::test]
async fn messages_that_a_hook_makes_invalid_reach_the_model_repaired() {
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "charge", "arguments": "{}"}});
    let calls = |ids: &[&str]| {
        let calls: Vec<Value> = ids.iter().map(|id| call(id)).collect();
        json!({"role": "assistant", "content": null, "tool_calls": calls})
    };
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "charged"});
    for (messages, roles) in [
        // A call without its result.
        (
            json!([user("Pay"), calls(&["a", "b"]), result("b")]),
            &["user", "assistant", "tool", "tool"][..],
        ),
        // A result without its call, and one behind another message.
        (
            json!([
                result("a"),
                user("Pay"),
                calls(&["b"]),
                user("Hm"),
                result("b")
            ]),
            &["user", "user", "assistant", "tool", "user"],
        ),
    ] {
        let changed = json!({"hookSpecificOutput": {"updatedMessages": messages}});
        let receiver = Receiver::always(changed).await;
        // The upstream refuses a history that is not valid.
        let upstream = ScriptedUpstream::start([text("Done.")]).await;
        let tools = tools().await;
        let hook = receiver.entry("before_model", "/", "");
        let app = app(&upstream, &tools, &hook).await;
        let answer = app.post_chat(ask_with("Pay", ["charge"])).await;
        assert_eq!(answer.content(), "Done.");
        assert_eq!(upstream.request(0).roles(), roles);
    }
}

#[tokio::test]
async fn a_model_is_not_called_without_a_hook_that_has_to_agree() {
    for (on_failure, calls) in [("continue", 1), ("block", 0)] {
        let receiver = Receiver::start(|_, _| HttpReply::whole(500, "text/plain", "no")).await;
        let more = format!("on_failure = \"{on_failure}\"");
        for streamed in [false, true] {
            let upstream = ScriptedUpstream::start([text("Hi.")]).await;
            let tools = tools().await;
            let app = app(
                &upstream,
                &tools,
                &receiver.entry("before_model", "/", &more),
            )
            .await;
            let body = ask_with("Hi", ["charge"]);
            let answer = match streamed {
                false => Err(app.post_chat(body).await),
                true => app.client().try_stream_chat(body).await,
            };
            assert_eq!(upstream.requests().len(), calls);
            match answer {
                Ok(stream) => assert_eq!(stream.collect().await.text, "Hi."),
                Err(answer) if calls == 0 => {
                    let message = answer.assert_error(502, Some("hook_failed"));
                    assert!(!message.contains("127.0.0.1"), "{message}");
                }
                Err(answer) => assert_eq!(notices(&answer).len(), 1),
            }
        }
    }
}

#[tokio::test]
async fn a_hook_before_a_model_call_can_end_the_turn() {
    let receiver = Receiver::start(|_, event| match event["round"].as_u64() {
        Some(0) => said(&json!({})),
        _ => said(&json!({"continue": false, "stopReason": "That is enough."})),
    })
    .await;
    let upstream = ScriptedUpstream::start([calls([("charge", json!({}))])]).await;
    let tools = tools().await;
    let app = app(&upstream, &tools, &receiver.entry("before_model", "/", "")).await;
    let answer = app.post_chat(ask_with("Go", ["charge"])).await;
    assert_eq!(answer.content(), "That is enough.");
    let agent = answer.completion()["agent"].clone();
    assert_eq!(agent["stop_reason"], "terminated_by_tool");
}
