//! Servers that answer what a table says: what is odd costs itself and nothing else.

use std::time::Duration;

use serde_json::{Value, json};

use super::far::{Far, json_reply};
use super::{fake, in_state, record, result, start, start_with};
use crate::support::server::HttpReply;

fn tool(name: &str) -> Value {
    json!({"name": name, "description": "d", "inputSchema": {"type": "object"}})
}

/// What a server answers to a call, and the status and a part of the text of the result.
const ANSWERS: &[(&str, &str, &str)] = &[
    // A block, or a member of one, that is not known.
    (
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"42 rows"},{"type":"json","json":{"a":1}}]}}"#,
        "ok",
        "42 rows\n{\"json\"",
    ),
    (
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"42 rows"},{"type":"widget"}]}}"#,
        "ok",
        "42 rows\n",
    ),
    (
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":null},{"type":"text","text":"42 rows"}]}}"#,
        "ok",
        "42 rows",
    ),
    (
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"image","data":"aGk="},{"type":"text","text":"42 rows"}]}}"#,
        "ok",
        "could not be read",
    ),
    (
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"resource_link","uri":"https://h/r"},{"type":"text","text":"42 rows"}]}}"#,
        "ok",
        "https://h/r",
    ),
    (
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"42 rows","annotations":"none"}]}}"#,
        "ok",
        "42 rows",
    ),
    (
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":"42 rows"}}"#,
        "ok",
        "42 rows",
    ),
    (
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":{"type":"text","text":"42 rows"}}}"#,
        "ok",
        "42 rows",
    ),
    (
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":"no paper","isError":"true"}}"#,
        "error",
        "no paper",
    ),
    // Texts that were cut, and bytes of another charset.
    (
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"the tool box is open \ud83d"}]}}"#,
        "ok",
        "the tool box is open \u{fffd}",
    ),
    (
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"\udd27 open"}]}}"#,
        "ok",
        "\u{fffd} open",
    ),
    (
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"f BYTE r"}]}}"#,
        "ok",
        "f \u{fffd} r",
    ),
    // What is no JSON fails its call at once.
    (
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[],"structuredContent":{"mean":NaN}}}"#,
        "error",
        "the answer is no JSON",
    ),
    (
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[],"structuredContent":{"top":-Infinity}}}"#,
        "error",
        "the answer is no JSON",
    ),
    (
        r#"{"result":{'content':[]},"jsonrpc":"2.0","id":ID}"#,
        "error",
        "the answer is no JSON",
    ),
];

#[tokio::test]
async fn one_odd_member_of_an_answer_costs_itself_only() {
    let names: Vec<String> = (0..ANSWERS.len()).map(|row| format!("t{row}")).collect();
    let calls = names.iter().zip(ANSWERS);
    let calls: serde_json::Map<String, Value> = calls
        .map(|(name, (answer, ..))| (name.clone(), json!(answer)))
        .collect();
    let tools: Vec<Value> = names.iter().map(|name| tool(name)).collect();
    let (app, _upstream) = start(&fake::table(
        "fake",
        &json!({"tools": tools, "calls": calls}),
    ))
    .await;
    for (name, (answer, status, part)) in names.iter().zip(ANSWERS) {
        let call = record(app.client(), &format!("fake__{name}"), json!({})).await;
        let content = call["result_content"].as_str().unwrap_or_default();
        assert_eq!(call["status"], *status, "{answer}: {content}");
        assert!(content.contains(part), "{answer}: {content}");
    }
}

#[tokio::test]
async fn one_odd_member_of_a_tool_costs_itself_only() {
    let odd = [
        (
            "annotations",
            json!({"readOnlyHint": "true", "idempotentHint": true}),
        ),
        ("annotations", json!("none")),
        ("outputSchema", json!([])),
        ("title", json!(7)),
        ("icons", json!("icon.png")),
        ("_meta", json!(null)),
        ("inputSchema", json!(null)),
    ];
    let tools = odd.iter().enumerate().map(|(row, (member, value))| {
        let mut tool = tool(&format!("t{row}"));
        tool[*member] = value.clone();
        tool
    });
    let mut tools: Vec<Value> = tools.collect();
    tools.push(json!({"description": "has no name"}));
    let (app, _upstream) = start(&fake::table("fake", &json!({"tools": tools}))).await;
    let listed = in_state(app.client(), "fake", "ready").await;
    let expected: Vec<String> = (0..odd.len()).map(|row| format!("fake__t{row}")).collect();
    assert_eq!(listed["tools"], json!(expected));
}

#[tokio::test]
async fn schemas_go_out_as_model_servers_take_them() {
    let schemas = [
        (
            json!({"type": "object", "properties": null, "required": null}),
            json!({"type": "object", "properties": {}}),
        ),
        (
            json!({"type": null}),
            json!({"type": "object", "properties": {}}),
        ),
        (
            json!({"type": "OBJECT", "properties": []}),
            json!({"type": "object", "properties": {}}),
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "array", "items": null, "enum": null}}}),
            json!({"type": "object", "properties": {"a": {"type": "array"}}}),
        ),
    ];
    let tools = schemas.iter().enumerate().map(|(row, (schema, _))| {
        let mut tool = tool(&format!("t{row}"));
        tool["inputSchema"] = schema.clone();
        tool
    });
    let tools: Vec<Value> = tools.collect();
    let (app, upstream) = start(&fake::table("fake", &json!({"tools": tools}))).await;
    app.post_chat(crate::support::ask::ask("Hello"))
        .await
        .completion();
    let sent = upstream.last();
    for (entry, (_, expected)) in sent.body["tools"].as_array().unwrap().iter().zip(&schemas) {
        assert_eq!(entry["function"]["parameters"], *expected);
    }
}

#[tokio::test]
async fn the_newest_version_that_both_know_is_tried() {
    for versions in [
        json!(["2024-11-05"]),
        json!(["1999-01-01", "2025-03-26", "2024-11-05"]),
    ] {
        let table = json!({"versions": versions, "tools": [tool("t")]});
        let (app, _upstream) = start(&fake::table("fake", &table)).await;
        in_state(app.client(), "fake", "ready").await;
    }
    let table = json!({"versions": ["1999-01-01"], "tools": [tool("t")]});
    let (app, _upstream) = start(&fake::table("fake", &table)).await;
    let down = in_state(app.client(), "fake", "down").await;
    let reason = down["reason"].as_str().unwrap();
    assert!(reason.contains("Unsupported protocol version"), "{reason}");
}

#[tokio::test]
async fn a_server_that_needs_longer_than_the_start_of_the_product_is_offered_later() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("go");
    let table = json!({"wait": file.to_str().unwrap(), "tools": [tool("t")]});
    let toml = format!("mcp_start_timeout = 0.2\n{}", fake::table("fake", &table));
    let (app, _upstream) = start(&toml).await;
    in_state(app.client(), "fake", "down").await;
    std::fs::write(&file, "").unwrap();
    let ready = in_state(app.client(), "fake", "ready").await;
    assert_eq!(ready["tools"], json!(["fake__t"]));
    let logs = app.logs();
    assert!(!logs.contains("MCP server is down"), "{logs}");
}

/// The same over HTTP: as one JSON text, without a content type, and as an event.
#[tokio::test]
async fn answers_over_http_are_read_as_loosely_as_those_on_standard_output() {
    for form in ["application/json", "", "text/event-stream"] {
        let far = Far::start().await;
        far.state.lock().more_tools = ANSWERS.len();
        for (row, (answer, ..)) in ANSWERS.iter().enumerate() {
            let mut bytes = answer.as_bytes().to_vec();
            if let Some(at) = answer.find("BYTE") {
                bytes.splice(at..at + 4, [0xfc]);
            }
            if form == "text/event-stream" {
                bytes = [b"data: ", &bytes[..], b"\n\n"].concat();
            }
            let mut reply = HttpReply::whole(200, form, bytes);
            reply.headers.retain(|(_, value)| !value.is_empty());
            let calls = &mut far.state.lock().calls;
            calls.insert(format!("more_{row}"), reply);
        }
        let (app, _upstream) = start(&far_toml(&far)).await;
        for (row, (answer, status, part)) in ANSWERS.iter().enumerate() {
            let call = record(app.client(), &format!("far__more_{row}"), json!({})).await;
            let content = call["result_content"].as_str().unwrap_or_default();
            assert_eq!(call["status"], *status, "{form} {answer}: {content}");
            assert!(content.contains(part), "{form} {answer}: {content}");
        }
        assert_eq!(far.count("initialize"), 1, "no answer ends the connection");
    }
}

#[tokio::test]
async fn a_failure_over_http_says_what_the_server_said_without_credentials() {
    let rows = [
        (
            json_reply(500, &json!({"error": "out of paper"})),
            "HTTP 500; it says: out of paper",
        ),
        (
            json_reply(422, &json!({"detail": "no such table"})),
            "HTTP 422; it says: no such table",
        ),
        (
            HttpReply::whole(429, "text/plain", "slow down"),
            "HTTP 429; it says: slow down",
        ),
        (
            HttpReply::whole(403, "text/plain", "the key s3cret-key is old"),
            "suffice; it says: the key [hidden] is old",
        ),
        (
            HttpReply::whole(502, "text/html", "<h1>Bad gateway</h1>"),
            "HTTP 502",
        ),
        (
            json_reply(
                400,
                &json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32602, "message": "no such file"}}),
            ),
            "no such file (-32602)",
        ),
        (
            HttpReply::whole(200, "text/html", "<h1>Hello</h1>"),
            "content type",
        ),
        (
            HttpReply::whole(200, "application/json", "[1, 2]"),
            "no message of the protocol",
        ),
    ];
    let far = Far::start().await;
    far.state.lock().more_tools = rows.len();
    for (row, (reply, _)) in rows.iter().enumerate() {
        let calls = &mut far.state.lock().calls;
        calls.insert(format!("more_{row}"), reply.clone());
    }
    let toml = format!(
        "{}headers = {{ x-api-key = \"s3cret-key\" }}\n",
        far_toml(&far)
    );
    let (app, _upstream) = start(&toml).await;
    for (row, (_, expected)) in rows.iter().enumerate() {
        let call = record(app.client(), &format!("far__more_{row}"), json!({})).await;
        let content = call["result_content"].as_str().unwrap_or_default();
        assert_eq!(call["status"], "error", "{expected}: {content}");
        assert!(content.contains(expected), "{expected}: {content}");
        assert!(!content.contains("<h1>"), "{content}");
    }
}

fn far_toml(far: &Far) -> String {
    format!("[mcp_servers.far]\nurl = \"{}\"\n", far.url())
}

#[tokio::test]
async fn a_redirect_to_the_same_origin_that_keeps_the_body_is_followed() {
    let elsewhere = Far::start().await;
    for (status, target, state) in [
        (307, "/mcp/".to_owned(), "ready"),
        (308, "/mcp/v2".to_owned(), "ready"),
        (302, "/mcp/".to_owned(), "down"),
        (307, elsewhere.url(), "down"),
        // For ever.
        (307, "/mcp".to_owned(), "down"),
    ] {
        let far = Far::start().await;
        far.state.lock().redirect = Some((status, target.clone()));
        let (app, _upstream) = start(&far_toml(&far)).await;
        let entry = in_state(app.client(), "far", state).await;
        if state == "down" {
            let reason = entry["reason"].as_str().unwrap();
            assert!(
                reason.contains(&format!("redirects to {target}")),
                "{reason}"
            );
        }
        if state == "ready" {
            assert_eq!(
                result(app.client(), "far__echo", json!({"text": "x"})).await,
                "x"
            );
        }
    }
    assert_eq!(elsewhere.seen().len(), 0);
}

#[tokio::test]
async fn whatever_it_answers_to_ping_a_server_that_lists_its_tools_is_alive() {
    for reply in [
        json_reply(405, &json!({})),
        json_reply(501, &json!({})),
        json_reply(400, &json!({"error": {"code": "invalid_payload"}})),
        HttpReply::whole(200, "text/html", "<p>pong"),
    ] {
        let far = Far::start().await;
        far.state.lock().answers.insert("ping".to_owned(), reply);
        let (app, _upstream) = start(&far_toml(&far)).await;
        crate::support::eventually("the list after a ping", || async {
            (far.count("ping") > 0 && far.count("tools/list") > 1).then_some(())
        })
        .await;
        in_state(app.client(), "far", "ready").await;
        assert_eq!(far.count("initialize"), 1);
    }
}

#[tokio::test]
async fn a_session_that_the_server_has_lost_is_opened_anew_whatever_status_says_so() {
    const KEYS: &str =
        "[[api_keys]]\nname = \"a\"\nenv = \"A\"\n[[api_keys]]\nname = \"b\"\nenv = \"B\"\n";
    for (status, text) in [
        (401, "Session not found"),
        (400, "Bad Request: No valid session ID provided"),
        (404, "gone"),
    ] {
        let far = Far::start().await;
        far.state.lock().lost = Some(HttpReply::whole(status, "text/plain", text));
        let toml = format!("{KEYS}{}", far_toml(&far));
        let (app, _upstream) = start_with(&toml, |builder| {
            builder
                .env("A", "alice-alice-alice")
                .env("B", "bob-bob-bob-bob-bob")
        })
        .await;
        let client = app.client().key("alice-alice-alice");
        assert_eq!(
            result(&client, "far__echo", json!({"text": "x"})).await,
            "x"
        );
        far.state.lock().sessions.clear();
        let call = tokio::time::timeout(
            Duration::from_secs(20),
            record(&client, "far__echo", json!({"text": "y"})),
        );
        let call = call.await.unwrap();
        assert_eq!(
            (&call["status"], &call["result_content"]),
            (&json!("ok"), &json!("y")),
            "{status}"
        );
    }
}
