//! `/mcp`: the tools as an MCP server, with the official client, and with messages as they are on the wire.

use http::Method;
use rmcp::ServiceExt;
use rmcp::model::{CallToolRequestParams, CallToolResult, ClientConfig, Tool};
use rmcp::service::{RoleClient, RunningService, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;

use super::*;
use crate::mcp::fake;

type McpClient = RunningService<RoleClient, ClientConfig>;

/// The official client, with a key.
async fn connected(app: &TestApp, key: Option<&str>) -> McpClient {
    let url = format!("{}/mcp", app.origin());
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    if let Some(key) = key {
        config = config.auth_header(key);
    }
    let transport = StreamableHttpClientTransport::from_config(config);
    ClientConfig::default().serve(transport).await.unwrap()
}

async fn called(
    client: &McpClient,
    tool: &str,
    arguments: Value,
) -> Result<CallToolResult, ServiceError> {
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    let asked = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
    client.call_tool(asked).await
}

fn text_of(result: &CallToolResult) -> &str {
    &result.content[0].as_text().unwrap().text
}

/// A message as it is on the wire.
fn message(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

fn initialize(version: &str) -> Value {
    let client = json!({"name": "test", "version": "1"});
    message(
        "initialize",
        json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client}),
    )
}

/// Sends a body to `/mcp` with further headers.
async fn send(client: &Client, body: String, headers: &[(&str, &str)]) -> reqwest::Response {
    let mut request = client.request(Method::POST, "/mcp").body(body);
    let accept = ("accept", "application/json, text/event-stream");
    for (name, value) in [accept, ("content-type", "application/json")]
        .iter()
        .chain(headers)
    {
        request = request.header(*name, *value);
    }
    request.send().await.unwrap()
}

async fn answered(client: &Client, body: &Value) -> Value {
    let response = send(client, body.to_string(), &[]).await;
    assert_eq!(response.status(), 200);
    serde_json::from_str(&response.text().await.unwrap()).unwrap()
}

/// The code of an error answer.
async fn refused(response: reqwest::Response, status: u16) -> Option<String> {
    assert_eq!(response.status(), status);
    let body: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    assert!(body["error"]["message"].is_string(), "{body}");
    body["error"]["code"].as_str().map(str::to_owned)
}

#[tokio::test]
async fn the_official_client_lists_and_calls_the_tools_of_its_key() {
    let hook = Webhook::start()
        .await
        .on("read", webhook::json(&json!({"content": {"lines": 2}})))
        .on(
            "fail",
            webhook::json(&json!({"content": "gone", "is_error": true})),
        )
        .on("ask", webhook::text("r"))
        .on("never", webhook::text("r"));
    let tools = [
        configured(&hook, "read", "read_only = true\nopen_world = false"),
        configured(&hook, "fail", "idempotent = true"),
        configured(&hook, "ask", ""),
        configured(&hook, "never", ""),
    ];
    let rules = "[[permissions]]\ntool = \"ask\"\neffect = \"ask\"\n[[permissions]]\ntool = \"never\"\neffect = \"deny\"\n\
                 [[permissions]]\ntool = \"read\"\nargument = \"/path\"\nmatch = \"path\"\npatterns = [\"/etc/**\"]\n\
                 effect = \"deny\"\n";
    let settings = tools.concat() + rules;
    let app = keyed(&hook, &settings).await.start().await;
    let client = connected(&app, Some(ALICE)).await;
    let server = client.peer_info().unwrap();
    assert_eq!(server.server_info.clone().unwrap().name, "loopwright");
    let listed = client.list_all_tools().await.unwrap();
    let names: Vec<&str> = listed.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["read", "fail", "ask"]);
    let hints = |tool: &Tool| {
        let hints = tool.annotations.clone().unwrap();
        [
            hints.read_only_hint,
            hints.destructive_hint,
            hints.idempotent_hint,
            hints.open_world_hint,
        ]
        .map(Option::unwrap)
    };
    assert_eq!(hints(&listed[0]), [true, false, false, false]);
    assert_eq!(hints(&listed[1]), [false, true, true, true]);
    assert_eq!(listed[0].input_schema["required"], json!(["path"]));
    assert_eq!(listed[0].description.as_deref(), Some("Reads a file."));
    let read = called(&client, "read", json!({"path": "/x"}))
        .await
        .unwrap();
    assert_eq!(
        (text_of(&read), read.is_error),
        (r#"{"lines":2}"#, Some(false))
    );
    assert_eq!(read.structured_content, Some(json!({"lines": 2})));
    assert_eq!(hook.call(0).body["owner"], "alice");
    let failed = called(&client, "fail", json!({"path": "/x"}))
        .await
        .unwrap();
    assert_eq!((text_of(&failed), failed.is_error), ("gone", Some(true)));
    let made = hook.calls().len();
    for (tool, arguments, word) in [
        ("read", json!({"path": "/etc/passwd"}), "not permitted"),
        ("ask", json!({"path": "/x"}), "needs an approval"),
        ("never", json!({"path": "/x"}), "not permitted"),
        ("read", json!({"lines": 1}), "path"),
    ] {
        let refused = called(&client, tool, arguments).await.unwrap();
        assert_eq!(refused.is_error, Some(true));
        assert!(text_of(&refused).contains(word), "{}", text_of(&refused));
    }
    assert_eq!(hook.calls().len(), made);
    let Err(ServiceError::McpError(unknown)) = called(&client, "a b", json!({})).await else {
        panic!("there is no such tool");
    };
    assert!(unknown.message.contains("there is no tool"), "{unknown}");
    client.cancel().await.unwrap();
}

#[tokio::test]
async fn images_and_files_are_blocks() {
    let reply = json!({
        "content": "seen", "images": [kinds::PIXEL],
        "files": [{"name": "a b.csv", "mime_type": "text/csv", "data": "YSxi"}],
    });
    let hook = Webhook::start().await.on("t", webhook::json(&reply));
    let app = builder(&hook).await.start().await;
    let client = connected(&app, None).await;
    let result = called(&client, "t", json!({})).await.unwrap();
    let blocks = serde_json::to_value(&result.content).unwrap();
    assert_eq!(blocks[0]["text"], "seen");
    assert_eq!(blocks[1]["type"], "image");
    assert_eq!(
        (&blocks[1]["data"], &blocks[1]["mimeType"]),
        (&json!(kinds::PIXEL), &json!("image/png"))
    );
    assert_eq!(blocks[2]["resource"]["blob"], "YSxi", "{blocks}");
    assert_eq!(blocks[2]["resource"]["uri"], "file:///a%20b%2Ecsv");
    client.cancel().await.unwrap();
}

#[tokio::test]
async fn live_output_is_progress_for_a_client_that_asks_for_it() {
    let progress = || {
        webhook::sse([
            json!({"progress": "one"}),
            json!({"progress": "two"}),
            json!({"content": "r"}),
        ])
    };
    let hook = Webhook::start().await.on_call("t", move |_| progress());
    let app = builder(&hook).await.start().await;
    let plain = message("tools/call", json!({"name": "t", "arguments": {}}));
    assert_eq!(answered(app.client(), &plain).await["id"], 1);
    let asking = json!({"name": "t", "arguments": {}, "_meta": {"progressToken": "p"}});
    let response = send(app.client(), message("tools/call", asking).to_string(), &[]).await;
    let kind = response.headers()["content-type"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(kind.starts_with("text/event-stream"), "{kind}");
    let events = response.text().await.unwrap();
    let data = events.lines().filter_map(|line| line.strip_prefix("data:"));
    let events: Vec<Value> = data
        .filter_map(|data| serde_json::from_str(data.trim()).ok())
        .collect();
    let told = events
        .iter()
        .filter(|event| event["method"] == "notifications/progress");
    let told: Vec<&Value> = told.map(|event| &event["params"]).collect();
    assert!(told.iter().all(|params| params["progressToken"] == "p"));
    let messages: Vec<&str> = told
        .iter()
        .filter_map(|params| params["message"].as_str())
        .collect();
    assert_eq!(messages.concat(), "onetwo", "{events:?}");
    assert!(
        events.last().unwrap()["result"]["content"].is_array(),
        "{events:?}"
    );
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_call() {
    let hook = Webhook::start().await.on("t", webhook::hang());
    let app = builder(&hook).await.start().await;
    for (number, meta) in [(1, json!({})), (2, json!({"progressToken": 1}))] {
        let client = app.client().clone();
        let body = message(
            "tools/call",
            json!({"name": "t", "arguments": {}, "_meta": meta}),
        )
        .to_string();
        let asking = tokio::spawn(async move { send(&client, body, &[]).await.text().await });
        hook.called(number).await;
        asking.abort();
        let count = format!(" {number}");
        eventually("the end of the call", async || {
            let metrics = app.get("/metrics").await.text();
            let ended = |line: &&str| line.contains("cancelled") && line.ends_with(&count);
            let mut lines = metrics
                .lines()
                .filter(|line| line.starts_with("loopwright_tool_calls"));
            lines.find(ended).map(|_| ())
        })
        .await;
    }
}

#[tokio::test]
async fn versions_are_negotiated() {
    let hook = Webhook::start().await;
    let app = builder(&hook).await.start().await;
    for (offered, answer) in [
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2024-11-05", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let answer_to = answered(app.client(), &initialize(offered)).await;
        assert_eq!(
            answer_to["result"]["protocolVersion"], answer,
            "{answer_to}"
        );
    }
    let list = message("tools/list", json!({})).to_string();
    let known = send(
        app.client(),
        list.clone(),
        &[("mcp-protocol-version", "2025-06-18")],
    )
    .await;
    assert_eq!(known.status(), 200);
    let unknown = send(
        app.client(),
        list,
        &[("mcp-protocol-version", "1999-01-01")],
    )
    .await;
    assert_eq!(refused(unknown, 400).await, None);
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
    assert_eq!(send(app.client(), note, &[]).await.status(), 202);
}

#[tokio::test]
async fn a_message_that_takes_much_memory_is_refused_before_it_is_parsed() {
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = keyed(&hook, "").await.start().await;
    let zeros = vec![0; 300_000];
    let heavy = message(
        "tools/call",
        json!({"name": "x", "arguments": {"a": zeros}}),
    );
    let client = app.client().key(ALICE);
    let answer = send(&client, heavy.to_string(), &[]).await;
    assert_eq!(refused(answer, 400).await, None);
    let odd = client.request(Method::POST, "/mcp");
    let odd = odd.header("content-type", "application/json");
    let odd = odd.header("accept", "application/json, text/event-stream");
    let body = [heavy.to_string().as_bytes(), b"\xff"].concat();
    let answer = odd.body(body).send().await.unwrap();
    assert_eq!(refused(answer, 400).await, None);
}

#[tokio::test]
async fn what_is_no_message_of_an_allowed_caller_is_refused() {
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let settings = "max_body_bytes = 4096\ncors_origins = [\"https://page.example\"]\n";
    let app = keyed(&hook, settings).await.start().await;
    let list = message("tools/list", json!({})).to_string();
    let no_key = send(app.client(), list.clone(), &[]).await;
    assert_eq!(
        refused(no_key, 401).await.as_deref(),
        Some("invalid_api_key")
    );
    let client = app.client().key(ALICE);
    let own = app.origin().to_owned();
    for (origin, allowed) in [
        (own.as_str(), true),
        ("https://page.example", true),
        ("https://evil.example", false),
        ("null", false),
        ("http://127.0.0.1:1", false),
    ] {
        let response = send(&client, list.clone(), &[("origin", origin)]).await;
        match allowed {
            true => assert_eq!(response.status(), 200, "{origin}"),
            false => {
                let code = refused(response, 403).await;
                assert_eq!(code.as_deref(), Some("origin_not_allowed"), "{origin}");
            }
        }
    }
    let long = message(
        "tools/call",
        json!({"name": "t", "arguments": {"a": "x".repeat(5000)}}),
    );
    let long = send(&client, long.to_string(), &[]).await;
    assert_eq!(
        refused(long, 413).await.as_deref(),
        Some("request_too_large")
    );
    for body in [
        "{",
        "[]",
        "1",
        "{\"jsonrpc\":\"1.0\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":5}",
    ] {
        let response = send(&client, body.to_owned(), &[]).await;
        let status = response.status();
        assert!(status.is_client_error(), "{body}: {status}");
        let body: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        assert!(body["error"].is_object(), "{body}");
    }
    let text = client
        .request(Method::POST, "/mcp")
        .header("content-type", "text/plain")
        .body(list.clone());
    assert_eq!(
        refused(text.send().await.unwrap(), 415).await.as_deref(),
        Some("unsupported_media_type")
    );
    let narrow = client
        .request(Method::POST, "/mcp")
        .header("content-type", "application/json")
        .body(list);
    let narrow = narrow.header("accept", "text/html").send().await.unwrap();
    assert_eq!(refused(narrow, 406).await, None);
    for method in [Method::GET, Method::DELETE, Method::PUT] {
        let response = client.request(method, "/mcp").send().await.unwrap();
        assert_eq!(
            refused(response, 405).await.as_deref(),
            Some("method_not_allowed")
        );
    }
    assert!(hook.calls().is_empty());
}

#[tokio::test]
async fn a_key_sees_its_own_mcp_servers_and_no_others() {
    let hook = Webhook::start().await;
    let settings = fake::server("fake", "", "keys = [\"alice\"]");
    let app = keyed(&hook, "").await.toml(&settings).start().await;
    let alice = connected(&app, Some(ALICE)).await;
    eventually("the tools of the server", async || {
        let tools = alice.list_all_tools().await.unwrap();
        tools.into_iter().find(|tool| tool.name == "fake__remember")
    })
    .await;
    let remembered = called(&alice, "fake__remember", json!({"fact": "a"}))
        .await
        .unwrap();
    assert!(
        text_of(&remembered).ends_with(": a"),
        "{}",
        text_of(&remembered)
    );
    let bob = connected(&app, Some(BOB)).await;
    assert!(bob.list_all_tools().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_server_that_is_its_own_client_offers_itself_its_own_tools_only() {
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let settings = format!(
        "listen = \"127.0.0.1:{port}\"\nmcp_start_timeout = 1\n{}[mcp_servers.self]\nurl = \"http://127.0.0.1:{port}/mcp\"\n",
        configured(&hook, "read", "")
    );
    let hook = hook.on("read", webhook::text("r"));
    let mut app = builder(&hook).await.toml(&settings).start().await;
    for _ in 0..2 {
        let names = eventually("its own tools", async || {
            let tools = app.get("/v1/agent/tools").await.json();
            let tools = tools["data"].as_array().cloned().unwrap_or_default();
            let names: Vec<String> = tools
                .iter()
                .map(|tool| tool["name"].as_str().unwrap().to_owned())
                .collect();
            names.contains(&"self__read".to_owned()).then_some(names)
        })
        .await;
        assert_eq!(names, ["read", "self__read"]);
        let client = connected(&app, None).await;
        let listed = client.list_all_tools().await.unwrap();
        let listed: Vec<&str> = listed.iter().map(|tool| &*tool.name).collect();
        assert_eq!(listed, ["read", "self__read"]);
        let result = called(&client, "self__read", json!({"path": "/x"}))
            .await
            .unwrap();
        assert_eq!(text_of(&result), "r");
        client.cancel().await.unwrap();
        let as_itself = [("x-loopwright-client", "mcp")];
        let list = message("tools/list", json!({})).to_string();
        let own = send(app.client(), list, &as_itself)
            .await
            .text()
            .await
            .unwrap();
        assert!(own.contains("\"read\"") && !own.contains("self__"), "{own}");
        let call = message(
            "tools/call",
            json!({"name": "self__read", "arguments": {"path": "/x"}}),
        );
        let hidden = send(app.client(), call.to_string(), &as_itself)
            .await
            .text()
            .await
            .unwrap();
        assert!(hidden.contains("there is no tool"), "{hidden}");
        app.restart().await;
    }
}

#[tokio::test]
#[ignore = "needs the official Python package; tests/run installs it"]
async fn the_official_python_client_calls_a_tool() {
    let events = || webhook::sse([json!({"progress": "half"}), json!({"content": "done"})]);
    let hook = Webhook::start().await.on_call("read", move |_| events());
    let app = keyed(&hook, &configured(&hook, "read", ""))
        .await
        .start()
        .await;
    let python = std::env::var("LOOPWRIGHT_TEST_MCP_PYTHON");
    let python = python.unwrap_or_else(|_| panic!("tests/run installs the Python package"));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/client.py");
    let url = format!("{}/mcp", app.origin());
    let ran = tokio::process::Command::new(python)
        .args([script, &url, ALICE, "read", r#"{"path": "/x"}"#])
        .output()
        .await
        .unwrap();
    let (out, errors) = (
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
    );
    let said: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{errors}"));
    assert_eq!(said["tools"], json!(["read"]));
    assert_eq!(said["progress"], json!(["half"]));
    assert_eq!(said["result"]["content"][0]["text"], "done", "{said}");
    assert_eq!(said["result"]["isError"], false);
}
