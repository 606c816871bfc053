//! Tools that the client runs.

use serde_json::{Value, json};

use super::builder;
use super::record::Golden;
use crate::support::ask::{ask_with, user, with};
use crate::support::script::{text, text_and_calls};
use crate::support::upstream::ScriptedUpstream;
use crate::support::webhook::{self, Webhook};

/// The calls that a client is handed, as it sends them back, and its answers to them.
pub(super) fn answered(calls: &[Value], said: &str) -> Value {
    let results = calls.iter().enumerate().map(|(number, call)| {
        json!({"role": "tool", "tool_call_id": call["id"], "content": format!("client result {number}")})
    });
    let mut messages = vec![
        user("Go"),
        json!({"role": "assistant", "content": said, "tool_calls": calls}),
    ];
    messages.extend(results);
    messages.into()
}

/// The calls of a stream, which come whole.
fn streamed_calls(chunks: &[Value]) -> Vec<Value> {
    let calls = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"].as_array());
    let mut calls: Vec<Value> = calls.flatten().cloned().collect();
    for call in &mut calls {
        call.as_object_mut().unwrap().remove("index");
    }
    calls
}

#[tokio::test]
async fn client_tools_alone() {
    let script = || {
        [
            text_and_calls(
                "Yours.",
                [("mine", json!({"x": 1})), ("mine", json!({"x": 2}))],
            ),
            text("Done."),
        ]
    };
    let upstream = ScriptedUpstream::start(script().into_iter().chain(script())).await;
    let hook = Webhook::start().await;
    let app = builder().upstream(&upstream).dispatch(&hook).start().await;
    let mut golden = Golden::default();
    let agent = json!({"client_tools": ["mi*"]});
    let mut body = with(ask_with("Go", ["mine", "t"]), "agent", agent);
    for (streamed, heading) in [(true, "streamed"), (false, "whole")] {
        golden.heading(heading);
        body["stream"] = json!(streamed);
        body["messages"] = json!([user("Go")]);
        let first = golden.chat(app.client(), &body).await;
        let calls = match streamed {
            true => streamed_calls(&first.chunks()),
            false => handed(&first.json()),
        };
        body["messages"] = answered(&calls, "Yours.");
        golden.chat(app.client(), &body).await;
        golden.upstream(&upstream);
    }
    golden.get(app.client(), "/v1/sessions").await;
    golden.check("client_tools_alone");
}

fn handed(answer: &Value) -> Vec<Value> {
    let calls = &answer["choices"][0]["message"]["tool_calls"];
    calls.as_array().unwrap().clone()
}

/// The client answers without a session id; the server finds its own way back, streamed and not, stored and not.
#[tokio::test]
async fn both_kinds_in_one_batch() {
    let script = || {
        [
            text_and_calls(
                "Both.",
                [
                    ("mine", json!({"x": 1})),
                    ("t", json!({})),
                    ("mine", json!({"x": 2})),
                ],
            ),
            text("Done."),
        ]
    };
    let upstream = ScriptedUpstream::start((0..3).flat_map(|_| script())).await;
    let hook = Webhook::start()
        .await
        .on("t", webhook::text("server result"));
    let app = builder().upstream(&upstream).dispatch(&hook).start().await;
    let mut golden = Golden::default();
    let agent = json!({"client_tools": ["mi*"]});
    let body = with(ask_with("Go", ["mine", "t"]), "agent", agent);

    golden.heading("streamed");
    let first = golden.streamed_chat(app.client(), &body).await;
    golden.session(app.client(), &first.session_id()).await;
    let mut second = body.clone();
    second["messages"] = answered(&streamed_calls(&first.chunks()), "Both.");
    let second = golden.streamed_chat(app.client(), &second).await;
    golden.session(app.client(), &second.session_id()).await;
    golden.upstream(&upstream);
    golden.webhook(&hook);

    golden.heading("whole; the answer offers no tools");
    let first = golden.chat(app.client(), &body).await.json();
    let messages = answered(&handed(&first), "Both.");
    let second = golden
        .chat(
            app.client(),
            &json!({"model": "scripted-model", "messages": messages}),
        )
        .await;
    golden.session(app.client(), &second.session_id()).await;
    golden.upstream(&upstream);
    golden.webhook(&hook);

    golden.heading("not stored");
    let body = with(body, "store", json!(false));
    let first = golden.chat(app.client(), &body).await.json();
    let second = with(body, "messages", answered(&handed(&first), "Both."));
    golden.chat(app.client(), &second).await;
    golden.upstream(&upstream);
    golden.webhook(&hook);
    golden.check("both_kinds_in_one_batch");
}
