//! Requests that are huge or odd are refused with the field, and what belongs to another key does not exist.

use http::Method;
use serde_json::{Value, json};

use super::super::support::app::TestApp;
use super::super::support::client::{Answer, Client};
use super::super::support::script::text;
use super::super::support::upstream::ScriptedUpstream;
use super::{PATH, create, request, response, text_of, with};

const CONVERSATIONS: &str = "/v1/conversations";
const KEYS: &str = "[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"\n[[api_keys]]\nname = \"bob\"\nenv = \"BOB\"\n";
const ALICE: &str = "alice-alice-alice";
const BOB: &str = "bob-bob-bob-bob-bob";

async fn post_text(app: &TestApp, path: &str, body: String) -> Answer {
    let request = app.client().request(Method::POST, path);
    let request = request
        .header("content-type", "application/json")
        .body(body);
    Answer::of(request).await
}

/// Fails unless the answer is a 400 about a field that the request has.
fn assert_refused(answer: &Answer, field: &str, body: &str) {
    assert_eq!(answer.status, 400, "{body}: {}", answer.text());
    let param = answer.json()["error"]["param"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(param.starts_with(field), "{param} for {body}");
}

#[tokio::test]
async fn fields_of_every_wrong_type_are_refused_by_name() {
    let upstream = ScriptedUpstream::answering(|_| text("Hi.")).await;
    let app = TestApp::with_upstream(&upstream).await;
    let kept = create(&app, json!({"model": "test-model", "input": "Keep me."})).await;
    let values = [
        json!(7),
        json!(-1.5),
        json!(true),
        json!("\u{0}\n\"\\"),
        json!([[]]),
        json!([7]),
        json!([{"type": {}}]),
        json!({"type": ["x"]}),
        json!({"": {"": [null]}}),
    ];
    for field in [
        "model",
        "input",
        "instructions",
        "tools",
        "tool_choice",
        "text",
        "reasoning",
        "metadata",
        "include",
        "store",
        "stream",
        "stream_options",
        "background",
        "conversation",
        "previous_response_id",
        "max_output_tokens",
        "max_tool_calls",
        "truncation",
        "temperature",
        "top_p",
        "top_logprobs",
        "parallel_tool_calls",
        "user",
        "service_tier",
        "agent",
        "session_id",
        "prompt",
        "safety_identifier",
        "prompt_cache_key",
    ] {
        for value in &values {
            let body = with(request(json!("Hi")), field, value.clone()).to_string();
            let answer = post_text(&app, PATH, body.clone()).await;
            assert!(
                [200, 400, 404].contains(&answer.status.as_u16()),
                "{body}: {}",
                answer.text()
            );
            if answer.status == 400 {
                assert_refused(&answer, field, &body);
            }
        }
    }
    let path = format!("{PATH}/{}", kept["id"].as_str().unwrap());
    assert_eq!(response(&app.get(&path).await), kept);
}

#[tokio::test]
async fn items_and_tools_of_odd_shapes_are_refused_with_their_place() {
    let upstream = ScriptedUpstream::answering(|_| text("Hi.")).await;
    let app = TestApp::with_upstream(&upstream).await;
    let say = |content: Value| json!({"role": "user", "content": content});
    for item in [
        json!(null),
        json!("x"),
        json!([]),
        json!({}),
        json!({"type": 7}),
        json!({"type": "nothing"}),
        json!({"role": "tool", "content": "x"}),
        json!({"role": 7, "content": "x"}),
        json!({"role": "user"}),
        say(json!(7)),
        say(json!([7])),
        say(json!([{"type": "nothing"}])),
        say(json!([{"type": "input_text"}])),
        say(json!([{"type": "input_image", "image_url": 7}])),
        say(json!([{"type": "input_file", "file_url": "http://x"}])),
        say(json!([{"type": "input_file", "file_id": "../../etc/passwd"}])),
        json!({"type": "function_call"}),
        json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}),
        json!({"type": "custom_tool_call", "call_id": "c", "name": "f"}),
        json!({"type": "function_call_output", "output": "x"}),
        json!({"type": "function_call_output", "call_id": "c", "output": [7]}),
        json!({"type": "mcp_call", "name": 7}),
        json!({"type": "item_reference"}),
        json!({"type": "mcp_approval_response", "approval_request_id": "x", "approve": true}),
    ] {
        let body = request(json!([say(json!("Hi")), item])).to_string();
        let answer = post_text(&app, PATH, body.clone()).await;
        assert_refused(&answer, "input", &body);
        let body = json!({"items": [item]}).to_string();
        let answer = post_text(&app, CONVERSATIONS, body.clone()).await;
        assert_refused(&answer, "items", &body);
    }
    for tool in [
        json!(null),
        json!("x"),
        json!({}),
        json!({"type": 7}),
        json!({"type": "nothing"}),
        json!({"type": "function"}),
        json!({"type": "function", "name": ""}),
        json!({"type": "function", "name": 7}),
        json!({"type": "function", "name": "f", "parameters": []}),
        json!({"type": "function", "name": "f", "strict": "yes"}),
        json!({"type": "custom", "name": "f", "format": "x"}),
        json!({"type": "namespace", "name": "n"}),
        json!({"type": "namespace", "name": "n", "tools": [7]}),
        json!({"type": "code_interpreter", "container": {"type": 7}}),
        json!({"type": "mcp", "server_label": 7}),
    ] {
        let body = with(request(json!("Hi")), "tools", json!([tool])).to_string();
        let answer = post_text(&app, PATH, body.clone()).await;
        assert_refused(&answer, "tools", &body);
    }
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn deep_and_long_requests_are_answered() {
    let upstream = ScriptedUpstream::answering(|_| text("Hi.")).await.lenient();
    let app = TestApp::builder()
        .upstream(&upstream)
        .toml("max_messages = 4000")
        .start()
        .await;
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    for (field, place) in [
        ("input", "\"input\":X"),
        ("input", "\"input\":[{\"role\":\"user\",\"content\":X}]"),
        ("tools", "\"input\":\"Hi\",\"tools\":X"),
        ("metadata", "\"input\":\"Hi\",\"metadata\":{\"a\":X}"),
        ("text", "\"input\":\"Hi\",\"text\":{\"format\":X}"),
    ] {
        let members = place.replace('X', &deep(100_000));
        let body = format!("{{\"model\":\"test-model\",{members}}}");
        let answer = post_text(&app, PATH, body).await;
        assert_eq!(answer.status, 400, "{place}: {}", answer.text());
        let param = answer.json()["error"]["param"]
            .as_str()
            .unwrap_or(field)
            .to_owned();
        assert!(param.starts_with(field), "{param} for {place}");
    }
    let items = |count: usize| -> Value {
        let item = |number: usize| json!({"role": "user", "content": number.to_string()});
        (0..count).map(item).collect()
    };
    let answer = app.post(PATH, &request(items(4001))).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    create(&app, json!({"model": "test-model", "input": items(4000)})).await;
    let unknown: Vec<Value> = (0..2000)
        .map(|number| json!({"type": "item_reference", "id": format!("msg_{number:032x}_0")}))
        .collect();
    let answer = app.post(PATH, &request(json!(unknown))).await;
    answer.assert_error(404, Some("item_not_found"));
    let long = "x".repeat(100_000);
    for (field, value) in [
        ("previous_response_id", json!(format!("resp_{long}"))),
        ("conversation", json!(format!("conv_{long}"))),
        ("session_id", json!(long)),
        ("include", json!([long])),
    ] {
        let answer = app
            .post(PATH, &with(request(json!("Hi")), field, value))
            .await;
        assert!(
            [400, 404].contains(&answer.status.as_u16()),
            "{field}: {}",
            answer.text()
        );
        assert_eq!(answer.json()["error"]["param"], field);
    }
    // What is echoed comes back as it was.
    let tool = json!({
        "type": "function", "name": "f", "description": "\u{2028}\r\n\u{0}</script>", "parameters": {"type": "object", "x": [1.0e-7]},
        "strict": false, "odd\n": {"": null},
    });
    let body = with(request(json!("Hi")), "tools", json!([tool]));
    assert_eq!(create(&app, body).await["tools"][0], tool);
}

/// A response of alice with its items, and the same for bob's eyes.
async fn two_keys(upstream: &ScriptedUpstream) -> (TestApp, Client, Client) {
    let app = TestApp::builder()
        .upstream(upstream)
        .env("ALICE", ALICE)
        .env("BOB", BOB)
        .toml(KEYS)
        .start()
        .await;
    let (alice, bob) = (app.client().key(ALICE), app.client().key(BOB));
    (app, alice, bob)
}

#[tokio::test]
async fn what_belongs_to_another_key_does_not_exist_at_any_endpoint() {
    let upstream = ScriptedUpstream::answering(|_| text("Hi.")).await;
    let (_app, alice, bob) = two_keys(&upstream).await;
    let made = response(
        &alice
            .post(PATH, &json!({"model": "test-model", "input": "a"}))
            .await,
    );
    let of_response = format!("{PATH}/{}", made["id"].as_str().unwrap());
    let conversation = format!("{CONVERSATIONS}/{}", made["session_id"].as_str().unwrap());
    let items = format!("{conversation}/items");
    let page = alice.get(&items).await.json();
    let item = format!("{items}/{}", page["data"][0]["id"].as_str().unwrap());
    let run = made["id"].as_str().unwrap().strip_prefix("resp_").unwrap();
    let container = format!("/v1/containers/cntr_{run}");
    let more = json!({"items": [{"role": "user", "content": "b"}]});
    for (method, path, body) in [
        (Method::GET, of_response.clone(), Value::Null),
        (
            Method::GET,
            format!("{of_response}?stream=true"),
            Value::Null,
        ),
        (
            Method::GET,
            format!("{of_response}/input_items"),
            Value::Null,
        ),
        (Method::POST, format!("{of_response}/cancel"), json!({})),
        (Method::DELETE, of_response.clone(), Value::Null),
        (Method::GET, conversation.clone(), Value::Null),
        (Method::POST, conversation.clone(), json!({"metadata": {}})),
        (Method::GET, items.clone(), Value::Null),
        (Method::POST, items.clone(), more),
        (Method::GET, item.clone(), Value::Null),
        (Method::DELETE, item, Value::Null),
        (Method::DELETE, conversation.clone(), Value::Null),
        (Method::GET, container.clone(), Value::Null),
        (Method::GET, format!("{container}/files"), Value::Null),
        (
            Method::GET,
            format!("{container}/files/file-{}", "0".repeat(32)),
            Value::Null,
        ),
        (
            Method::GET,
            format!("{container}/files/file-{}/content", "0".repeat(32)),
            Value::Null,
        ),
    ] {
        let answer = match body {
            Value::Null => Answer::of(bob.request(method.clone(), &path)).await,
            body => bob.send(method.clone(), &path, &body).await,
        };
        assert_eq!(answer.status, 404, "{method} {path}: {}", answer.text());
    }
    let of_bob = |field: &str, value: Value| {
        with(json!({"model": "test-model", "input": "b"}), field, value)
    };
    let reference = json!([{"type": "item_reference", "id": page["data"][0]["id"]}]);
    for (body, status) in [
        (of_bob("previous_response_id", made["id"].clone()), 400),
        (of_bob("conversation", made["session_id"].clone()), 404),
        (of_bob("input", reference), 404),
    ] {
        assert_eq!(bob.post(PATH, &body).await.status, status, "{body}");
    }
    // An id that bob sends as his own leads nowhere, and to nothing of alice.
    let mut own = made["output"].as_array().unwrap().clone();
    own.push(json!({"role": "user", "content": "b"}));
    let answered = response(
        &bob.post(PATH, &json!({"model": "test-model", "input": own}))
            .await,
    );
    assert_ne!(answered["session_id"], made["session_id"]);
    assert_eq!(response(&alice.get(&of_response).await), made);
    assert_eq!(alice.get(&items).await.json(), page);
    assert_eq!(text_of(&made["output"][0]), "Hi.");
}

#[tokio::test]
async fn references_are_counted_before_they_are_looked_up() {
    let upstream = ScriptedUpstream::answering(|_| text("Hi.")).await;
    let builder = TestApp::builder().upstream(&upstream);
    let app = builder.toml("max_messages = 5").start().await;
    let made = create(&app, json!({"model": "test-model", "input": "Keep me."})).await;
    let known = made["output"][0]["id"].clone();
    let refer = |id: &Value| json!({"type": "item_reference", "id": id});
    let to = |id: &Value, count: usize| json!(vec![refer(id); count]);
    let unknown = json!("msg_0123456789abcdef0123456789abcdef_0");
    for path in [PATH, "/v1/responses/input_tokens"] {
        // To one item many times, and to items that do not exist.
        for id in [&known, &unknown] {
            let body = json!({"model": "test-model", "input": to(id, 6)});
            let answer = app.post(path, &body).await;
            answer.assert_error(400, None);
            let error = answer.json()["error"].clone();
            assert_eq!(error["param"], "input");
            let message = error["message"].as_str().unwrap();
            assert!(
                message.contains("6 item references; at most 5"),
                "{message}"
            );
        }
        let body = json!({"model": "test-model", "input": to(&known, 5)});
        assert_eq!(app.post(path, &body).await.status, 200);
        let body = json!({"model": "test-model", "input": to(&unknown, 5)});
        app.post(path, &body)
            .await
            .assert_error(404, Some("item_not_found"));
    }
}
