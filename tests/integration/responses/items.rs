//! Items of tools, and which of them are shown.

use serde_json::{Value, json};

use super::super::support::app::TestApp;
use super::super::support::script::{calls, text};
use super::super::support::upstream::ScriptedUpstream;
use super::super::support::webhook::{self, Webhook};
use super::{create, function, kinds, last, request, stream, types, with};

#[tokio::test]
async fn custom_tools_and_namespaces_come_back_as_they_were_declared() {
    let upstream = ScriptedUpstream::start([calls([
        ("patch", json!({"input": "*** Begin\n\"x\""})),
        ("crm__find", json!({"id": 1})),
    ])])
    .await;
    let app = TestApp::with_upstream(&upstream).await;
    let grammar = json!({"type": "grammar", "syntax": "lark", "definition": "start: /x/"});
    let tools = json!([
        {"type": "custom", "name": "patch", "description": "Patches.", "format": grammar},
        {"type": "namespace", "name": "crm", "description": "CRM.", "tools": [function("find")]},
    ]);
    let choice = json!({"type": "custom", "name": "patch"});
    let body = with(request(json!("Go")), "tools", tools.clone());
    let events = stream(app.client(), with(body, "tool_choice", choice.clone())).await;
    let response = last(&events);
    assert_eq!(kinds(response), ["custom_tool_call", "function_call"]);
    assert_eq!(response["output"][0]["input"], "*** Begin\n\"x\"");
    assert_eq!(response["output"][1]["namespace"], "crm");
    assert_eq!(response["output"][1]["name"], "find");
    assert!(types(&events).contains(&"response.custom_tool_call_input.done"));
    assert_eq!(
        (&response["tools"], &response["tool_choice"]),
        (&tools, &choice)
    );
    let sent = upstream.last();
    assert_eq!(sent.tool_names(), ["patch", "crm__find"]);
    assert_eq!(sent.body["tool_choice"]["function"]["name"], "patch");
    let description = sent.body["tools"][0]["function"]["description"]
        .as_str()
        .unwrap();
    assert!(description.contains("start: /x/"), "{description}");
}

#[tokio::test]
async fn tools_that_the_input_declares_are_offered_as_those_of_the_request() {
    let called = || {
        calls([
            ("functions__exec", json!({"input": "ls"})),
            ("wait", json!({})),
        ])
    };
    let upstream = ScriptedUpstream::start([called(), called(), text("Done.")]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let declared = json!({"type": "additional_tools", "role": "developer", "tools": [
        {"type": "namespace", "name": "functions", "tools": [function("find"), {"type": "custom", "name": "exec"}]},
        function("wait"),
    ]});
    let user = || json!({"type": "message", "role": "user", "content": "Go"});
    let body = request(json!([declared, user()]));
    let body = with(body, "tools", json!([function("plain")]));
    let events = stream(app.client(), body).await;
    let response = last(&events);
    assert_eq!(kinds(response), ["custom_tool_call", "function_call"]);
    let call = &response["output"][0];
    assert_eq!(
        (&call["namespace"], &call["name"], &call["input"]),
        (&json!("functions"), &json!("exec"), &json!("ls"))
    );
    assert_eq!(response["tools"].as_array().unwrap().len(), 1);
    assert_eq!(
        upstream.last().tool_names(),
        ["plain", "functions__find", "functions__exec", "wait"]
    );

    // An agent declares its tools anew in each turn; the last declaration counts.
    let mut again = declared.clone();
    again["tools"][1]["description"] = "Waits longer.".into();
    let body = request(json!([declared, user(), again, user()]));
    create(&app, body).await;
    let sent = upstream.last();
    assert_eq!(
        sent.tool_names(),
        ["functions__find", "functions__exec", "wait"]
    );
    assert_eq!(
        sent.body["tools"][2]["function"]["description"],
        "Waits longer."
    );

    for (tools, param) in [
        (json!({"a": 1}), "input[0].tools"),
        (json!([{"type": "function"}]), "input[0].tools[0]"),
        (json!([{"type": "computer"}]), "input[0].tools[0]"),
    ] {
        let declared = json!({"type": "additional_tools", "tools": tools});
        let answer = app
            .post("/v1/responses", &request(json!([declared, user()])))
            .await;
        assert_eq!(answer.status, 400, "{param}");
        assert_eq!(answer.json()["error"]["param"], param);
    }
}

#[tokio::test]
async fn what_a_client_ran_by_itself_is_shown_to_the_model_with_one_notice() {
    let upstream = ScriptedUpstream::start([text("Fine."), text("Fine.")]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let input = json!([
        {"role": "user", "content": "Which files are here?"},
        {"type": "local_shell_call", "id": "s", "call_id": "c", "status": "completed",
         "action": {"type": "exec", "command": ["ls"], "env": {}}},
        {"type": "local_shell_call_output", "id": "c", "output": "a.rs"},
        {"role": "user", "content": "And?"},
    ]);
    let response = create(&app, request(input)).await;
    let notices = response["agent"]["notices"].as_array().unwrap();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert_eq!(notices[0]["kind"], "input_as_text");
    let sent = upstream.last().messages();
    assert_eq!(
        sent[2]["content"],
        "The output of the client's command:\na.rs"
    );
    let unknown = request(json!([{"type": "teleport_call"}]));
    let answer = app.post("/v1/responses", &unknown).await;
    let message = answer.assert_error(400, None);
    assert!(
        message.contains("input[0]") && message.contains("teleport_call"),
        "{message}"
    );
}

#[tokio::test]
async fn a_search_that_must_not_be_live_is_left_out_with_a_notice() {
    let upstream = ScriptedUpstream::start([text("Hi.")]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let tools = json!([{"type": "web_search", "external_web_access": false}]);
    let response = create(&app, with(request(json!("Go")), "tools", tools)).await;
    assert_eq!(response["agent"]["notices"][0]["kind"], "tool_left_out");
    assert!(upstream.last().body.get("tools").is_none());
}

#[tokio::test]
async fn tools_that_the_settings_list_are_left_out_with_a_notice() {
    let upstream = ScriptedUpstream::start([text("Hi.")]).await;
    let app = TestApp::builder()
        .upstream(&upstream)
        .toml("ignore_tools = [\"computer_*\", \"mcp\"]")
        .start()
        .await;
    let tools = json!([
        {"type": "computer_use_preview", "display_width": 1},
        {"type": "mcp", "server_label": "x", "server_url": "https://x", "authorization": "secret"},
    ]);
    let body = with(request(json!("Go")), "tools", tools);
    let response = create(&app, body.clone()).await;
    let notices = response["agent"]["notices"].as_array().unwrap();
    let kinds: Vec<&str> = notices
        .iter()
        .filter_map(|one| one["kind"].as_str())
        .collect();
    assert_eq!(kinds, ["tool_left_out"; 2]);
    assert!(
        notices[0]["message"]
            .as_str()
            .unwrap()
            .contains("'tools[0]'")
    );
    assert!(!response.to_string().contains("secret"));
    assert!(upstream.last().body.get("tools").is_none());
    let other = with(body, "tools", json!([{"type": "file_search"}]));
    let refused = app.post(super::PATH, &other).await;
    refused.assert_error(400, Some("unsupported_tool"));
}

#[tokio::test]
async fn progress_decides_which_calls_are_shown() {
    let upstream = ScriptedUpstream::answering(|request| match request.tool_results().len() {
        0 => calls([("t", json!({}))]),
        _ => text("Done."),
    })
    .await;
    let events = [json!({"progress": "Half."}), json!({"content": "r"})];
    let hook = Webhook::start().await.on("t", webhook::sse(events));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = with(request(json!("Go")), "tools", json!([function("t")]));
    let agent = |progress: &str| with(body.clone(), "agent", json!({"progress": progress}));
    let strict = app
        .client()
        .header("user-agent", "ai/5.0 ai-sdk/openai/2.0.131");
    let quiet = app.client().header("x-loopwright-progress", "none");
    for (client, body, shown) in [
        (app.client(), body.clone(), true),
        (app.client(), agent("declared"), false),
        (app.client(), agent("none"), false),
        (&quiet, body.clone(), false),
        (&quiet, agent("auto"), true),
        (&strict, body.clone(), false),
    ] {
        let events = stream(client, body.clone()).await;
        let found = kinds(last(&events)).contains(&"mcp_call");
        assert_eq!(found, shown, "{body}");
        assert!(
            !types(&events)
                .iter()
                .any(|kind| kind.starts_with("loopwright."))
        );
    }
    let events = stream(app.client(), agent("named")).await;
    let output = events
        .iter()
        .find(|one| one["type"] == "loopwright.tool_output");
    assert_eq!(output.unwrap()["text"], "Half.");
}

#[tokio::test]
async fn a_call_that_waits_has_an_event_for_clients_that_ask_for_it() {
    let called = || calls([("t", json!({}))]);
    let upstream = ScriptedUpstream::start([called(), called()]).await;
    let hook = Webhook::start().await;
    let settings = "dispatch_tools = ['*']\nagent_permission = 'ask'\napproval_wait = 0\n";
    let app = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let app = app.toml(settings).start().await;
    for (progress, told) in [("named", 1), ("auto", 0)] {
        let body = with(request(json!("Go")), "tools", json!([function("t")]));
        let body = with(body, "agent", json!({"progress": progress}));
        let events = stream(app.client(), with(body, "store", json!(true))).await;
        let response = last(&events);
        assert_eq!(response["agent"]["stop_reason"], "approval_required");
        let name = "loopwright.approval_required";
        let found: Vec<&Value> = events.iter().filter(|one| one["type"] == name).collect();
        assert_eq!(found.len(), told, "{progress}");
        for event in found {
            assert_eq!(event["approval"], response["agent"]["approvals"][0]);
            assert_eq!(event["approval"]["tool"], "t");
            assert_eq!(event["approval"]["arguments"], json!({}));
        }
    }
    assert!(hook.calls().is_empty());
}

#[tokio::test]
async fn a_refusal_is_a_part_of_its_own() {
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]});
        format!("data: {chunk}\n\n")
    };
    let upstream = ScriptedUpstream::start([super::super::support::script::raw_sse([
        chunk(json!({"role": "assistant", "refusal": "I "}), Value::Null),
        chunk(json!({"refusal": "won't."}), Value::Null),
        chunk(json!({}), json!("stop")),
        "data: [DONE]\n\n".to_owned(),
    ])])
    .await;
    let app = TestApp::with_upstream(&upstream).await;
    let events = stream(app.client(), request(json!("Go"))).await;
    let content = &last(&events)["output"][0]["content"];
    assert_eq!(
        *content,
        json!([{"type": "refusal", "refusal": "I won't."}])
    );
    assert!(types(&events).contains(&"response.refusal.delta"));
}
