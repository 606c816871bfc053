//! Recorded conversations with servers that requests declare: the answers in both dialects, and the questions about calls.

use super::*;
use crate::golden::builder;
use crate::golden::record::Golden;
use crate::support::script::{Reply, calls, text, text_and_calls};
use crate::support::upstream::MODEL;

/// A server that requests may declare, and one that answers them.
async fn stage(script: Vec<Reply>) -> (Far, ScriptedUpstream, TestApp) {
    let upstream = ScriptedUpstream::start(script).await;
    let server = builder().upstream(&upstream).toml(LOCAL);
    (Far::start().await, upstream, server.start().await)
}

fn body(input: Value, server: &Value, more: &Value) -> Value {
    let mut body = json!({"model": MODEL, "input": input, "tools": [server]});
    let members = more.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(members);
    body
}

#[tokio::test]
async fn declared_servers() {
    let choices = [
        json!("auto"),
        json!({"type": "mcp", "server_label": "far"}),
        json!({"type": "mcp", "server_label": "far", "name": "echo"}),
        json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "mcp", "server_label": "far", "name": "team"}]}),
    ];
    let script = choices.iter().chain(&choices).flat_map(|_| {
        let call = text_and_calls("Look.", [("far__echo", json!({"text": "a"}))]);
        [call, text("Done.")]
    });
    let (far, upstream, app) = stage(script.collect()).await;
    let mut server = entry("far", &far.url());
    server["headers"] = json!({"X-Team": "blue"});
    server["allowed_tools"] = json!(["echo", "team"]);
    server["server_description"] = json!("Holds the handbook.");
    let mut golden = Golden::default();
    for (index, choice) in choices.iter().enumerate() {
        golden.heading(&choice.to_string());
        let more = json!({"tool_choice": choice, "stream": index % 2 == 0});
        let request = body(json!("Go"), &server, &more);
        golden.response(app.client(), &request).await;
        let chat = with(
            with(ask("Go"), "tools", json!([server])),
            "tool_choice",
            choice.clone(),
        );
        golden.chat(app.client(), &chat).await;
        golden.line("");
        golden.bodies(&upstream);
    }
    golden.check("declared_servers");
}

/// The response that waits is followed by one with the decision, for a call before and a call behind another one.
#[tokio::test]
async fn questions_of_declared_servers() {
    let script = || {
        [
            text_and_calls("First.", [("far__team", json!({}))]),
            text_and_calls("Second.", [("far__remember", json!({"fact": "a"}))]),
            calls([("far__remember", json!({"fact": "b"}))]),
            text("Done."),
        ]
    };
    let script = script().into_iter().chain(script());
    let (far, upstream, app) = stage(script.collect()).await;
    let mut server = entry("far", &far.url());
    server["require_approval"] = json!({"never": {"tool_names": ["team"]}});
    let mut golden = Golden::default();
    for stream in [false, true] {
        golden.heading(if stream { "streamed" } else { "whole" });
        let mut more = json!({"stream": stream});
        let first = body(json!("Go"), &server, &more);
        let mut answer = golden.response(app.client(), &first).await.response();
        for approve in [true, false] {
            let asked = answer["output"].as_array().unwrap().last().unwrap();
            let decision = json!({
                "type": "mcp_approval_response", "approval_request_id": asked["id"], "approve": approve, "reason": "so",
            });
            more["previous_response_id"] = answer["id"].clone();
            let next = body(json!([decision]), &server, &more);
            answer = golden.response(app.client(), &next).await.response();
            golden.line("");
            golden.bodies(&upstream);
        }
        let session = answer["session_id"].as_str().unwrap();
        golden.session(app.client(), session).await;
    }
    golden.check("questions_of_declared_servers");
}
