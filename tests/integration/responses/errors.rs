//! Requests that are refused, and turns that fail.

use serde_json::{Value, json};

use super::super::support::app::TestApp;
use super::super::support::script::{error, text};
use super::super::support::upstream::ScriptedUpstream;
use super::{PATH, events, request, types, with};

#[tokio::test]
async fn errors_name_the_field() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let base = request(json!("Hi"));
    for (field, value, param, code) in [
        ("model", Value::Null, "model", None),
        ("input", Value::Null, "input", None),
        ("input", json!([]), "input", None),
        (
            "input",
            json!([{"type": "computer_call"}]),
            "input[0]",
            None,
        ),
        ("include", json!(["everything"]), "include", None),
        (
            "tools",
            json!([{"type": "computer_use"}]),
            "tools[0]",
            Some("unsupported_tool"),
        ),
        (
            "tools",
            json!([{"type": "web_search"}]),
            "tools[0]",
            Some("unsupported_tool"),
        ),
        ("tools", json!([{"type": "function"}]), "tools[0]", None),
        (
            "tool_choice",
            json!({"type": "function", "name": "x"}),
            "tool_choice",
            None,
        ),
        ("prompt", json!({"id": "p"}), "prompt", None),
        ("moderation", json!({}), "moderation", None),
        ("truncation", json!("on"), "truncation", None),
        ("metadata", json!({"a": 1}), "metadata", None),
        ("temperature", json!("hot"), "temperature", None),
        ("max_output_tokens", json!(-1), "max_output_tokens", None),
        ("text", json!({"format": "json"}), "text.format", None),
        (
            "agent",
            json!({"progress": "chunk"}),
            "agent.progress",
            None,
        ),
        ("agent", json!({"tols": {}}), "agent.tols", None),
        ("session_id", json!("a b"), "session_id", None),
        (
            "input",
            json!([{"type": "function_call_output", "call_id": "x", "output": "1"}]),
            "input",
            Some("no_tool_call_found"),
        ),
    ] {
        let answer = app.post(PATH, &with(base.clone(), field, value)).await;
        answer.assert_error(400, code);
        assert_eq!(answer.json()["error"]["param"], param, "{field}");
    }
    let unknown = json!([{"type": "item_reference", "id": "msg_1"}]);
    let answer = app.post(PATH, &with(base.clone(), "input", unknown)).await;
    answer.assert_error(404, Some("item_not_found"));
    let answer = app.post(PATH, &with(base, "model", json!(7))).await;
    answer.assert_error(400, None);
}

#[tokio::test]
async fn a_failure_before_the_head_is_an_error_with_its_status() {
    let upstream = ScriptedUpstream::start([error(400, "too long"), error(400, "too long")]).await;
    let app = TestApp::with_upstream(&upstream).await;
    for body in [
        request(json!("Hi")),
        with(request(json!("Hi")), "stream", json!(true)),
    ] {
        let answer = app.post(PATH, &body).await;
        assert_eq!(answer.status, 400);
        assert_eq!(answer.json()["error"]["message"], "too long");
    }
}

#[tokio::test]
async fn a_failure_in_mid_stream_is_seen_by_every_client() {
    let upstream = ScriptedUpstream::start([text("one two three").cut_after(3)]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let body = with(request(json!("Hi")), "stream", json!(true));
    let events = events(&app.post(PATH, &body).await);
    let kinds = types(&events);
    assert_eq!(
        kinds[kinds.len() - 5..],
        [
            "error",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.failed",
        ]
    );
    let error = events.iter().find(|one| one["type"] == "error").unwrap();
    for member in ["code", "message", "param"] {
        assert_eq!(error[member], error["error"][member], "{error}");
    }
    assert_eq!(error["code"], "upstream_unreachable");
    let response = &events.last().unwrap()["response"];
    assert_eq!(response["status"], "failed");
    assert_eq!(response["error"]["code"], "upstream_unreachable");
    assert_eq!(response["output"][0]["status"], "incomplete");
}
