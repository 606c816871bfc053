//! Turns in one piece and as a stream.

use serde_json::{Value, json};

use super::super::support::app::TestApp;
use super::super::support::script::{calls, calls_of, reasoning, text, text_and_calls};
use super::super::support::server::Gate;
use super::super::support::upstream::ScriptedUpstream;
use super::super::support::webhook::{self, Webhook};
use super::{create, function, kinds, last, request, stream, text_of, types, with};

#[tokio::test]
async fn a_text_is_answered_with_every_field() {
    let upstream = ScriptedUpstream::start([text("Hello there.").usage(20, 4)]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let body = json!({
        "model": "test-model", "input": "Hi", "instructions": "Be brief.", "store": false, "temperature": 0.5,
        "metadata": {"a": "b"}, "text": {"verbosity": "low"}, "reasoning": {"effort": "low"}, "max_output_tokens": 50,
    });
    let response = create(&app, body).await;
    assert_eq!(response["status"], "completed");
    assert!(response["id"].as_str().unwrap().starts_with("resp_"));
    assert!(response["completed_at"].is_u64());
    assert_eq!(response["instructions"], "Be brief.");
    assert_eq!(response["temperature"], 0.5);
    assert_eq!(response["metadata"], json!({"a": "b"}));
    assert_eq!(
        response["text"],
        json!({"format": {"type": "text"}, "verbosity": "low"})
    );
    assert_eq!(
        response["reasoning"],
        json!({"effort": "low", "summary": null})
    );
    for (field, default) in [
        ("background", json!(false)),
        ("error", Value::Null),
        ("incomplete_details", Value::Null),
        ("previous_response_id", Value::Null),
        ("conversation", Value::Null),
        ("tools", json!([])),
        ("tool_choice", json!("auto")),
        ("parallel_tool_calls", json!(true)),
        ("max_output_tokens", json!(50)),
        ("max_tool_calls", Value::Null),
        ("top_p", json!(1.0)),
        ("presence_penalty", json!(0)),
        ("frequency_penalty", json!(0)),
        ("top_logprobs", json!(0)),
        ("truncation", json!("disabled")),
        ("store", json!(false)),
        ("service_tier", json!("default")),
        ("user", Value::Null),
        ("safety_identifier", Value::Null),
        ("prompt_cache_key", Value::Null),
    ] {
        assert_eq!(response.get(field), Some(&default), "{field}");
    }
    assert_eq!(response["usage"]["input_tokens"], 20);
    assert_eq!(
        response["usage"]["output_tokens_details"]["reasoning_tokens"],
        0
    );
    let item = &response["output"][0];
    assert_eq!(
        item["content"][0],
        json!({"type": "output_text", "text": "Hello there.", "annotations": [], "logprobs": []})
    );
    assert_eq!(
        (&item["role"], &item["phase"]),
        (&json!("assistant"), &json!("final_answer"))
    );
    let sent = upstream.last().body;
    assert_eq!(
        sent["messages"],
        json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
    );
    assert_eq!(sent["max_completion_tokens"], 50);
    assert_eq!(
        (&sent["verbosity"], &sent["reasoning_effort"]),
        (&json!("low"), &json!("low"))
    );
    for field in [
        "instructions",
        "input",
        "metadata",
        "text",
        "reasoning",
        "max_output_tokens",
    ] {
        assert!(sent.get(field).is_none(), "{field}");
    }
}

#[tokio::test]
async fn a_text_is_streamed_in_the_order_of_openai() {
    let upstream = ScriptedUpstream::start([reasoning("Let me think.", "Hello there.")]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let events = stream(app.client(), request(json!("Hi"))).await;
    assert_eq!(
        types(&events),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.reasoning_text.delta",
            "response.reasoning_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    let deltas = events
        .iter()
        .filter(|one| one["type"] == "response.output_text.delta");
    let deltas: Vec<&str> = deltas.map(|one| one["delta"].as_str().unwrap()).collect();
    assert_eq!(deltas, ["Hello ", "there."]);
    assert_eq!(kinds(last(&events)), ["reasoning", "message"]);
    assert_eq!(
        last(&events)["output"][0]["content"][0]["text"],
        "Let me think."
    );
}

#[tokio::test]
async fn reasoning_comes_as_a_summary_and_is_given_back_to_the_model() {
    let upstream =
        ScriptedUpstream::start([reasoning("Let me think.", "Hello."), text("Again.")]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let body = with(
        request(json!("Hi")),
        "reasoning",
        json!({"summary": "auto"}),
    );
    let body = with(body, "include", json!(["reasoning.encrypted_content"]));
    let events = stream(app.client(), body).await;
    assert!(types(&events).contains(&"response.reasoning_summary_text.delta"));
    let output = last(&events)["output"].clone();
    assert_eq!(output[0]["summary"][0]["text"], "Let me think.");
    let mut input = vec![json!({"role": "user", "content": "Hi"})];
    input.extend(output.as_array().unwrap().iter().cloned());
    input.push(
        json!({"type": "reasoning", "id": "rs_x", "summary": [], "encrypted_content": "another's"}),
    );
    input.push(json!({"role": "user", "content": "And?"}));
    create(&app, request(json!(input))).await;
    let sent = upstream.last().messages();
    assert_eq!(sent[1]["content"], "Hello.");
    assert_eq!(sent[1]["reasoning_content"], "Let me think.");
    assert_eq!(sent.len(), 3);
}

#[tokio::test]
async fn a_tool_round_is_an_item_between_two_messages() {
    let replies = || {
        [
            text_and_calls("Let me look.", [("t", json!({"id": 7}))]).usage(20, 10),
            text("It is open.").usage(40, 5),
        ]
    };
    let upstream = ScriptedUpstream::start(replies().into_iter().chain(replies())).await;
    let hook = Webhook::start().await.on("t", webhook::text("open"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = with(request(json!("Ticket 7?")), "tools", json!([function("t")]));
    let response = create(&app, body.clone()).await;
    assert_eq!(kinds(&response), ["message", "mcp_call", "message"]);
    let output = &response["output"];
    assert_eq!(
        (text_of(&output[0]), &output[0]["phase"]),
        ("Let me look.\n\n", &json!("commentary"))
    );
    assert_eq!(
        (text_of(&output[2]), &output[2]["phase"]),
        ("It is open.", &json!("final_answer"))
    );
    let call = &output[1];
    assert_eq!(
        (&call["server_label"], &call["name"]),
        (&json!("loopwright"), &json!("t"))
    );
    assert_eq!(
        (&call["arguments"], &call["output"]),
        (&json!(r#"{"id":7}"#), &json!("open"))
    );
    assert!(call.get("error").is_none(), "{call}");
    assert_eq!(response["usage"]["input_tokens"], 60);
    assert_eq!(response["agent"]["rounds"], 1);
    assert_eq!(response["tools"][0]["strict"], Value::Null);
    let events = stream(app.client(), body).await;
    let calls: Vec<&str> = types(&events)
        .into_iter()
        .filter(|kind| kind.contains("mcp"))
        .collect();
    assert_eq!(
        calls,
        [
            "response.mcp_call.in_progress",
            "response.mcp_call_arguments.delta",
            "response.mcp_call_arguments.done",
            "response.mcp_call.completed",
        ]
    );
    assert_eq!(kinds(last(&events)), ["message", "mcp_call", "message"]);
}

#[tokio::test]
async fn the_texts_of_all_rounds_joined_are_the_answer_of_chat() {
    let call = || ("t", json!({"id": 7}));
    for ends in [["Let me look.", "More."], ["So:\n", "- a\n\n"], ["", "…"]] {
        let replies = || {
            let rounds = ends.map(|said| text_and_calls(said, [call()]));
            rounds.into_iter().chain([text("It is open.")])
        };
        let more = replies().chain(replies()).chain([text("Yes.")]);
        let upstream = ScriptedUpstream::start(replies().chain(more)).await;
        let hook = Webhook::start().await.on("t", webhook::text("open"));
        let toml = "repeat_threshold = 0";
        let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
        let app = builder
            .toml(toml)
            .args(["--dispatch-tools", "*"])
            .start()
            .await;
        let chat = json!({
            "model": "test-model", "messages": [{"role": "user", "content": "Ticket 7?"}],
            "tools": [{"type": "function", "function": {"name": "t", "parameters": {"type": "object"}}}],
        });
        let chat = app.post_chat(chat).await.json();
        let answer = &chat["choices"][0]["message"]["content"];
        let body = with(request(json!("Ticket 7?")), "tools", json!([function("t")]));
        let response = create(&app, body.clone()).await;
        let items = response["output"].as_array().unwrap();
        let texts = items.iter().filter(|item| item["type"] == "message");
        assert_eq!(json!(texts.map(text_of).collect::<String>()), *answer);
        let events = stream(app.client(), body).await;
        let deltas = events
            .iter()
            .filter(|event| event["type"] == "response.output_text.delta");
        let deltas = deltas.map(|event| event["delta"].as_str().unwrap());
        assert_eq!(json!(deltas.collect::<String>()), *answer);

        // The model gets its own texts back, without what separates them.
        let mut input = vec![json!({"role": "user", "content": "Ticket 7?"})];
        input.extend(items.iter().cloned());
        input.push(json!({"role": "user", "content": "Sure?"}));
        let body = with(request(json!(input)), "tools", json!([function("t")]));
        create(&app, body).await;
        let sent = upstream.last().messages();
        let said: Vec<&Value> = sent
            .iter()
            .filter(|message| message["role"] == "assistant")
            .map(|message| &message["content"])
            .collect();
        assert_eq!(said, [ends[0], ends[1], "It is open."]);
    }
}

#[tokio::test]
async fn a_failed_call_says_why() {
    let upstream = ScriptedUpstream::start([calls([("t", json!({}))]), text("Sorry.")]).await;
    let hook = Webhook::start()
        .await
        .on("t", webhook::status(404, &[], "gone"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = with(request(json!("Go")), "tools", json!([function("t")]));
    let events = stream(app.client(), body).await;
    assert!(types(&events).contains(&"response.mcp_call.failed"));
    let call = &last(&events)["output"][0];
    assert_eq!(call["status"], "failed");
    assert_eq!(call["error"]["type"], "mcp_tool_execution_error");
    assert!(
        call["error"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("404")
    );
    assert!(call.get("output").is_none(), "{call}");
}

#[tokio::test]
async fn the_client_runs_its_own_calls() {
    let upstream = ScriptedUpstream::start([
        text_and_calls("Wait.", [("mine", json!({"a": 1})), ("t", json!({}))]),
        text("Done."),
    ])
    .await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::builder()
        .upstream(&upstream)
        .dispatch(&hook)
        .toml("dispatch_tools = [\"t\"]")
        .start()
        .await;
    let body = with(
        request(json!("Go")),
        "tools",
        json!([function("mine"), function("t")]),
    );
    let events = stream(app.client(), body.clone()).await;
    let response = last(&events);
    assert_eq!(kinds(response), ["message", "function_call", "mcp_call"]);
    assert_eq!(response["status"], "completed");
    assert_eq!(response["agent"]["stop_reason"], "client_tools");
    let call = &response["output"][1];
    assert_eq!(
        (&call["name"], &call["arguments"]),
        (&json!("mine"), &json!(r#"{"a":1}"#))
    );
    assert!(call["id"].as_str().unwrap().starts_with("fc_"));
    // The output alone continues the turn that waits.
    let output =
        json!([{"type": "function_call_output", "call_id": call["call_id"], "output": "2"}]);
    let body = with(body, "input", output);
    let response = create(&app, body).await;
    assert_eq!(text_of(&response["output"][0]), "Done.");
    let sent = upstream.last();
    assert_eq!(sent.roles(), ["user", "assistant", "tool", "tool"]);
    assert_eq!(sent.tool_results()[0].1, "2");
    assert_eq!(hook.calls().len(), 1);
}

#[tokio::test]
async fn items_of_a_batch_stand_in_the_order_of_the_model_whoever_runs_the_calls() {
    let batches: [&[&str]; 6] = [
        &["t", "mine"],
        &["mine", "t"],
        &["t", "mine", "t", "yours"],
        &["mine", "t", "yours", "t"],
        &["unknown", "mine", "t"],
        &["t", "t", "mine", "yours"],
    ];
    for batch in batches {
        let reply = || {
            let called = batch.iter().enumerate();
            let called: Vec<(&str, Value)> = called
                .map(|(at, name)| (*name, json!({"at": at})))
                .collect();
            calls_of(&called)
        };
        let upstream = ScriptedUpstream::start([reply(), reply()]).await;
        let hook = Webhook::start().await.on("t", webhook::text("r"));
        let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
        let app = builder.toml("dispatch_tools = [\"t\"]").start().await;
        let tools = json!(["mine", "yours", "t"].map(function));
        let body = json!({"model": "test-model", "input": "Go", "tools": tools});
        let whole = create(&app, body.clone()).await;
        let events = stream(app.client(), body).await;
        let streamed = last(&events);
        let id = streamed["id"].as_str().unwrap();
        let stored = app.get(&format!("/v1/responses/{id}")).await.json();
        let expected = batch.iter().enumerate();
        let expected = expected.filter(|(_, name)| **name != "unknown");
        let expected: Vec<Value> = expected
            .map(|(at, name)| json!([name, format!("{{\"at\":{at}}}")]))
            .collect();
        for response in [&whole, streamed, &stored] {
            let items = response["output"].as_array().unwrap().iter();
            let found: Vec<Value> = items
                .map(|item| json!([item["name"], item["arguments"]]))
                .collect();
            assert_eq!(found, expected, "{batch:?}");
        }
        let deltas = events
            .iter()
            .filter(|event| event["type"] == "response.function_call_arguments.delta");
        for item in streamed["output"].as_array().unwrap() {
            let of_item = deltas
                .clone()
                .filter(|event| event["item_id"] == item["id"]);
            let text: String = of_item
                .map(|event| event["delta"].as_str().unwrap())
                .collect();
            if item["type"] == "function_call" {
                assert_eq!(json!(text), item["arguments"], "{batch:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_conversation_is_complete_in_itself() {
    let upstream = ScriptedUpstream::start([calls([("mine", json!({}))]), text("Done.")]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let body = with(request(json!("Go")), "tools", json!([function("mine")]));
    let response = create(&app, body.clone()).await;
    let mut input = vec![json!({"role": "user", "content": "Go"})];
    input.extend(response["output"].as_array().unwrap().iter().cloned());
    let call = &response["output"][0]["call_id"];
    input.push(json!({"type": "function_call_output", "call_id": call, "output": [{"type": "input_text", "text": "2"}]}));
    let response = create(&app, with(body, "input", json!(input))).await;
    assert_eq!(text_of(&response["output"][0]), "Done.");
    assert_eq!(upstream.last().roles(), ["user", "assistant", "tool"]);
}

#[tokio::test]
async fn the_limit_is_in_the_field_that_the_server_takes() {
    let upstream = ScriptedUpstream::start([text("Hi.")]).await;
    let quirks = upstream.with_quirks("max_tokens_field = \"max_tokens\"");
    let app = TestApp::builder().toml(&quirks).start().await;
    create(
        &app,
        with(request(json!("Go")), "max_output_tokens", json!(50)),
    )
    .await;
    let sent = upstream.last().body;
    assert_eq!(sent["max_tokens"], 50);
    assert!(sent.get("max_completion_tokens").is_none(), "{sent}");
}

#[tokio::test]
async fn later_instructions_are_words_of_the_user_unless_the_server_takes_them() {
    for (quirks, roles) in [
        ("", ["system", "user", "user"]),
        ("mid_system = true", ["system", "user", "system"]),
    ] {
        let upstream = ScriptedUpstream::answering(|_| text("Hi.")).await.lenient();
        let app = TestApp::builder()
            .toml(&upstream.with_quirks(quirks))
            .start()
            .await;
        let said = json!([
            {"role": "system", "content": "a"}, {"role": "developer", "content": "b"},
            {"role": "user", "content": "c"}, {"role": "system", "content": "d"},
        ]);
        create(&app, request(said.clone())).await;
        let chat = json!({"model": "test-model", "messages": said, "session_id": "s"});
        app.post_chat(chat).await.completion();
        for number in 0..2 {
            let sent = upstream.request(number);
            assert_eq!(sent.roles(), roles, "{number}");
            let messages = sent.messages();
            assert_eq!(messages[0]["content"], "a\n\nb");
            let late = match quirks {
                "" => "<system-reminder>\nd\n</system-reminder>",
                _ => "d",
            };
            assert_eq!(messages[2]["content"], late);
        }
    }
}

#[tokio::test]
async fn the_limit_on_output_is_one_of_the_whole_turn() {
    let upstream = ScriptedUpstream::start([
        text_and_calls("Hm.", [("t", json!({}))]).usage(20, 30),
        text_and_calls("Hm.", [("t", json!({}))]).usage(20, 20),
    ])
    .await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = with(request(json!("Go")), "tools", json!([function("t")]));
    let response = create(&app, with(body, "max_output_tokens", json!(50))).await;
    assert_eq!(upstream.request(0).body["max_completion_tokens"], 50);
    assert_eq!(upstream.request(1).body["max_completion_tokens"], 20);
    assert_eq!(response["status"], "incomplete");
    assert_eq!(
        response["incomplete_details"],
        json!({"reason": "max_output_tokens"})
    );
    assert_eq!(response["completed_at"], Value::Null);
}

#[tokio::test]
async fn a_limit_with_stop_is_incomplete_and_with_an_answer_completed() {
    let replies = [calls([("t", json!({}))]), calls([("t", json!({}))])];
    let upstream = ScriptedUpstream::start(
        replies
            .into_iter()
            .chain([calls([("t", json!({}))]), text("So far.")]),
    )
    .await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = with(request(json!("Go")), "tools", json!([function("t")]));
    let body = with(body, "max_tool_calls", json!(1));
    let response = create(
        &app,
        with(body.clone(), "agent", json!({"on_limit": "stop"})),
    )
    .await;
    assert_eq!(
        response["incomplete_details"],
        json!({"reason": "max_tool_calls"})
    );
    let response = create(&app, body).await;
    assert_eq!(response["status"], "completed");
    assert_eq!(response["agent"]["stop_reason"], "max_tool_calls");
}

#[tokio::test]
async fn the_arguments_of_the_clients_calls_are_forwarded_as_they_arrive() {
    let gate = Gate::new();
    // A role chunk, the beginning of the call, and its arguments in three pieces.
    let reply = calls([("mine", json!({"text": "0123456789"}))]).gate_before(3, &gate);
    let upstream = ScriptedUpstream::start([reply]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let body = with(request(json!("Go")), "tools", json!([function("mine")]));
    gate.open();
    let events = stream(app.client(), body).await;
    let deltas = events
        .iter()
        .filter(|one| one["type"] == "response.function_call_arguments.delta");
    let deltas: Vec<&str> = deltas.map(|one| one["delta"].as_str().unwrap()).collect();
    assert!(deltas.len() > 2, "{deltas:?}");
    let call = &last(&events)["output"][0];
    assert_eq!(call["arguments"], deltas.concat());
    assert_eq!(
        (&call["status"], &call["name"]),
        (&json!("completed"), &json!("mine"))
    );
}

#[tokio::test]
async fn white_space_of_a_round_is_no_message() {
    let script = [text_and_calls("\n\n", [("t", json!({}))]), text("\n Cold.")];
    let upstream = ScriptedUpstream::start(script).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = with(request(json!("Go")), "tools", json!([function("t")]));
    let response = create(&app, body).await;
    let items = response["output"].as_array().unwrap().iter();
    let messages: Vec<&Value> = items.filter(|item| item["type"] == "message").collect();
    assert_eq!(messages.len(), 1, "{response}");
    assert_eq!(text_of(messages[0]), " Cold.");
}
