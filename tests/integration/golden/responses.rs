//! Conversations through the Responses API: rounds, tools of the client, stored responses.

use http::Method;
use serde_json::{Value, json};

use super::builder;
use super::record::{Exchange, Golden};
use super::response_options::{function, request};
use crate::support::app::TestApp;
use crate::support::script::{Reply, calls, text, text_and_calls};
use crate::support::upstream::{MODEL, ScriptedUpstream};
use crate::support::webhook::{self, Webhook};

/// Two rounds with tools of the server.
fn two_rounds() -> [Reply; 3] {
    [
        text_and_calls("Let me look.", [("t", json!({"n": 1}))]).thinking("Hm."),
        text_and_calls("Once more.", [("t", json!({"n": 2}))]),
        text("Done."),
    ]
}

async fn start(script: Vec<Reply>) -> (ScriptedUpstream, Webhook, TestApp) {
    let upstream = ScriptedUpstream::start(script).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = builder().upstream(&upstream).dispatch(&hook).start().await;
    (upstream, hook, app)
}

fn session_of(response: &Value) -> &str {
    response["session_id"].as_str().unwrap()
}

/// Records what is stored of a response.
async fn stored(golden: &mut Golden, app: &TestApp, response: &Value) {
    golden.session(app.client(), session_of(response)).await;
    let path = format!("/v1/responses/{}", response["id"].as_str().unwrap());
    golden.get(app.client(), &path).await;
    let items = format!("{path}/input_items?order=asc");
    golden.get(app.client(), &items).await;
}

#[tokio::test]
async fn response_rounds() {
    let mut golden = Golden::default();
    for streamed in [true, false] {
        golden.heading(if streamed { "streamed" } else { "whole" });
        let script = two_rounds()
            .into_iter()
            .chain([text("Yes."), text("Fork.")]);
        let (upstream, hook, app) = start(script.collect()).await;
        let more = json!({"stream": streamed, "instructions": "Be brief.", "metadata": {"k": "v"}});
        let first = golden
            .response(app.client(), &request(json!("Go"), more))
            .await;
        golden.upstream(&upstream);
        golden.webhook(&hook);
        let first = first.response();
        stored(&mut golden, &app, &first).await;
        golden.heading("a second turn, and another one behind the first");
        for input in ["And now?", "Or so?"] {
            let more = json!({"stream": streamed, "previous_response_id": first["id"]});
            let body = request(json!(input), more);
            let next = golden.response(app.client(), &body).await.response();
            golden.upstream(&upstream);
            stored(&mut golden, &app, &next).await;
        }
        golden.forget();
    }
    golden.check("response_rounds");
}

#[tokio::test]
async fn response_conversation() {
    let script = two_rounds()
        .into_iter()
        .chain(["Yes.", "So.", "Not stored.", "Own."].map(text));
    let (upstream, _hook, app) = start(script.collect()).await;
    let mut golden = Golden::default();
    let made =
        json!({"metadata": {"k": "v"}, "items": [{"role": "system", "content": "Be brief."}]});
    let create = app
        .client()
        .request(Method::POST, "/v1/conversations")
        .header("content-type", "application/json")
        .body(made.to_string());
    let id = golden.ask(create).await.json()["id"].clone();
    let first = request(json!("Go"), json!({"conversation": id}));
    let first = golden.response(app.client(), &first).await.response();
    let named = json!({"conversation": {"id": id}, "stream": true});
    golden
        .response(app.client(), &request(json!("And now?"), named))
        .await;
    golden.upstream(&upstream);
    let items = format!("/v1/conversations/{}/items?order=asc", id.as_str().unwrap());
    golden.get(app.client(), &items).await;
    golden.heading("items that are referred to");
    let output = first["output"].as_array().unwrap();
    let references = output
        .iter()
        .map(|item| json!({"type": "item_reference", "id": item["id"]}));
    let mut input = vec![json!({"role": "user", "content": "Go"})];
    input.extend(references);
    input.push(json!({"role": "user", "content": "Again?"}));
    for more in [
        json!({}),
        json!({"store": false}),
        json!({"session_id": "own"}),
    ] {
        let body = request(json!(input), more);
        golden.response(app.client(), &body).await;
        golden.upstream(&upstream);
    }
    golden.get(app.client(), "/v1/sessions").await;
    golden.check("response_conversation");
}

/// The outputs for the calls that an answer hands to its client.
fn outputs(answer: &Exchange) -> Vec<Value> {
    let output = answer.response()["output"].clone();
    let calls = output.as_array().unwrap().iter();
    let of_client =
        calls.filter(|item| item["call_id"].is_string() && item["status"] == "completed");
    of_client
        .map(|call| {
            let kind = format!("{}_output", call["type"].as_str().unwrap());
            json!({"type": kind, "call_id": call["call_id"], "output": format!("result of {}", call["name"])})
        })
        .collect()
}

/// The client answers by the id of the response, in the session, and with the whole conversation.
#[tokio::test]
async fn response_client_tools() {
    let grammar = json!({"type": "grammar", "syntax": "lark", "definition": "start: X"});
    let tools = json!([
        function("t"),
        function("mine"),
        {"type": "custom", "name": "free", "description": "Free text.", "format": grammar},
        {"type": "namespace", "name": "ns", "description": "d", "tools": [{"type": "function", "name": "inner"}]},
    ]);
    let batch = || {
        text_and_calls(
            "Both.",
            [
                ("mine", json!({"x": 1})),
                ("free", json!({"input": "a b"})),
                ("t", json!({})),
            ],
        )
    };
    let script = (0..4).flat_map(|_| [batch(), text("Done.")]);
    let (upstream, hook, app) = start(script.collect()).await;
    let mut golden = Golden::default();
    let agent = json!({"client_tools": ["mine", "free", "ns*"]});
    for (heading, stream, store) in [
        ("streamed", true, true),
        ("whole", false, true),
        ("not stored", false, false),
        ("not stored, streamed", true, false),
    ] {
        golden.heading(heading);
        let more = json!({"tools": tools, "agent": agent, "stream": stream, "store": store});
        let first = golden
            .response(app.client(), &request(json!("Go"), more.clone()))
            .await;
        golden.upstream(&upstream);
        golden.webhook(&hook);
        let mut second = request(json!(outputs(&first)), more);
        if store {
            second["previous_response_id"] = first.response()["id"].clone();
        } else {
            let mut input = vec![json!({"role": "user", "content": "Go"})];
            input.extend(first.response()["output"].as_array().unwrap().clone());
            input.extend(outputs(&first));
            second["input"] = json!(input);
        }
        let second = golden.response(app.client(), &second).await.response();
        golden.upstream(&upstream);
        golden.webhook(&hook);
        if store {
            stored(&mut golden, &app, &second).await;
        }
    }
    golden.check("response_client_tools");
}

#[tokio::test]
async fn response_namespace() {
    let tools = json!([{"type": "namespace", "name": "ns", "description": "d", "tools": [
        {"type": "function", "name": "inner", "description": "i", "parameters": {"type": "object"}},
        {"type": "custom", "name": "free"},
    ]}]);
    let upstream = ScriptedUpstream::answering(|request| match request.tool_results().len() {
        0 => {
            let names = request.tool_names();
            calls([
                (names[0].as_str(), json!({"a": 1})),
                (names[1].as_str(), json!({"input": "x"})),
            ])
        }
        _ => text("Done."),
    })
    .await;
    let app = builder().upstream(&upstream).start().await;
    let mut golden = Golden::default();
    for choice in [
        json!("auto"),
        json!({"type": "function", "namespace": "ns", "name": "inner"}),
    ] {
        let more = json!({"tools": tools, "tool_choice": choice});
        let first = golden
            .response(app.client(), &request(json!("Go"), more.clone()))
            .await;
        let mut second = request(json!(outputs(&first)), more);
        second["previous_response_id"] = first.response()["id"].clone();
        second["stream"] = json!(true);
        golden.response(app.client(), &second).await;
        golden.upstream(&upstream);
    }
    golden.check("response_namespace");
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn response_code() {
    let run = |code: &str| calls([("execute_python", json!({"code": code}))]);
    let script = || {
        [
            run("print('out')\nopen('a.csv', 'w').write('1,2')\n1 + 1"),
            text("2"),
        ]
    };
    let upstream = ScriptedUpstream::start((0..3).flat_map(|_| script())).await;
    let app = builder()
        .upstream(&upstream)
        .args(["--enable-code-execution"])
        .start()
        .await;
    let mut golden = Golden::default();
    let tools = |container: Value| json!([{"type": "code_interpreter", "container": container}]);
    let body = json!({"model": MODEL, "input": "Go", "tools": tools(json!({"type": "auto"}))});
    let mut body = body;
    let first = golden.response(app.client(), &body).await.response();
    body["include"] = json!(["code_interpreter_call.outputs"]);
    body["stream"] = json!(true);
    body["tool_choice"] = json!({"type": "code_interpreter"});
    body["tools"] = tools(first["output"][0]["container_id"].clone());
    golden.response(app.client(), &body).await;
    body["agent"] = json!({"progress": "none"});
    body["previous_response_id"] = first["id"].clone();
    golden.response(app.client(), &body).await;
    golden.upstream(&upstream);
    golden.check("response_code");
}
