//! The servers that people use, which `tests/run` installs.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::{in_state, record, result, start, start_with};
use crate::support::ask::ask;
use crate::support::client::Client;
use crate::support::eventually;

const PYTHON_SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/server.py");

fn installed(variable: &str) -> String {
    let found = std::env::var(variable);
    found.unwrap_or_else(|_| panic!("{variable} is not set; tests/run installs the servers"))
}

/// A table that starts one of the npm servers.
fn npm(name: &str, package: &str, argument: &str) -> String {
    let (node, modules) = (
        installed("LOOPWRIGHT_TEST_MCP_NODE"),
        installed("LOOPWRIGHT_TEST_MCP_MODULES"),
    );
    let script = format!("{modules}/@modelcontextprotocol/{package}/dist/index.js");
    let args = match argument {
        "" => json!([script]),
        argument => json!([script, argument]),
    };
    format!("[mcp_servers.{name}]\ncommand = {node:?}\nargs = {args}\n")
}

fn python_stdio() -> String {
    let python = installed("LOOPWRIGHT_TEST_MCP_PYTHON");
    format!("[mcp_servers.python]\ncommand = {python:?}\nargs = [{PYTHON_SERVER:?}]\n")
}

/// Starts the Python server over streamable HTTP, or with an argument over SSE.
async fn python_http(arguments: &[&str], path: &str) -> (Child, String) {
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let child = Command::new(installed("LOOPWRIGHT_TEST_MCP_PYTHON"))
        .args([PYTHON_SERVER, &port.to_string()])
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    eventually("the Python server to listen", || async {
        TcpStream::connect(("127.0.0.1", port)).await.ok()
    })
    .await;
    let table = format!("[mcp_servers.python]\nurl = \"http://127.0.0.1:{port}{path}\"\n");
    (child, table)
}

#[tokio::test]
#[ignore = "needs the MCP servers that tests/run installs"]
async fn everything() {
    let (app, upstream) = start(&npm("all", "server-everything", "")).await;
    let client = app.client();
    in_state(client, "all", "ready").await;
    let echoed = result(client, "all__echo", json!({"message": "hi"})).await;
    assert!(echoed.contains("hi"), "{echoed}");
    let summed = result(client, "all__get-sum", json!({"a": 2, "b": 3})).await;
    assert!(summed.contains('5'), "{summed}");
    let image = record(client, "all__get-tiny-image", json!({})).await;
    assert_eq!(
        image["result_images_base64"].as_array().unwrap().len(),
        1,
        "{image}"
    );
    let structured = result(
        client,
        "all__get-structured-content",
        json!({"location": "Chicago"}),
    )
    .await;
    assert!(structured.contains("temperature"), "{structured}");
    let asked = ask(r#"all__trigger-long-running-operation {"duration": 1, "steps": 3}"#);
    let collected = app.stream_chat(asked).await.collect().await;
    let chunks = collected.progress.iter().map(|progress| &progress.chunk);
    let steps = chunks.filter(|chunk| chunk["type"] == "agentic_tool_output");
    assert!(steps.count() >= 2, "{}", collected.transcript());
    let wrong = record(client, "all__get-sum", json!({"a": "x"})).await;
    assert_eq!(wrong["status"], "error", "{wrong}");
    upstream.assert_clean();
}

#[tokio::test]
#[ignore = "needs the MCP servers that tests/run installs"]
async fn two_keys_do_not_see_each_others_facts() {
    let dir = tempfile::tempdir().unwrap();
    let keys = "[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"\n[[api_keys]]\nname = \"bob\"\nenv = \"BOB\"\n";
    let file = format!("{}/${{OWNER}}.jsonl", dir.path().display());
    let server = npm("memory", "server-memory", "");
    let toml = format!("{server}env = {{ MEMORY_FILE_PATH = {file:?} }}\n{keys}");
    let (app, _upstream) = start_with(&toml, |builder| {
        builder
            .env("ALICE", "alice-alice-alice")
            .env("BOB", "bob-bob-bob-bob-bob")
    })
    .await;
    let (alice, bob) = (
        app.client().key("alice-alice-alice"),
        app.client().key("bob-bob-bob-bob-bob"),
    );
    let fact = json!({"entities": [{"name": "Velmouth", "entityType": "town", "observations": ["has a lighthouse"]}]});
    let made = record(&alice, "memory__create_entities", fact).await;
    assert_eq!(made["status"], "ok", "{made}");
    let graph = async |client: &Client| result(client, "memory__read_graph", json!({})).await;
    assert!(graph(&alice).await.contains("lighthouse"));
    assert!(!graph(&bob).await.contains("lighthouse"));
    assert!(dir.path().join("alice.jsonl").exists());
}

#[tokio::test]
#[ignore = "needs the MCP servers that tests/run installs"]
async fn files() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.txt"), "from a file").unwrap();
    let toml = npm(
        "files",
        "server-filesystem",
        &dir.path().display().to_string(),
    );
    let (app, _upstream) = start(&toml).await;
    in_state(app.client(), "files", "ready").await;
    let path = dir.path().join("a.txt");
    let read = result(app.client(), "files__read_text_file", json!({"path": path})).await;
    assert!(read.contains("from a file"), "{read}");
    let outside = record(
        app.client(),
        "files__read_text_file",
        json!({"path": "/etc/passwd"}),
    )
    .await;
    assert_eq!(outside["status"], "error", "{outside}");
}

async fn python(client: &Client) {
    in_state(client, "python", "ready").await;
    assert_eq!(
        result(client, "python__add", json!({"a": 2, "b": 3}))
            .await
            .lines()
            .next(),
        Some("5")
    );
    let drawn = record(client, "python__picture", json!({})).await;
    assert_eq!(
        drawn["result_images_base64"].as_array().map(Vec::len),
        Some(1),
        "{drawn}"
    );
    let failed = record(client, "python__fail", json!({})).await;
    assert_eq!(failed["status"], "error", "{failed}");
    let body = ask(r#"python__walk {"steps": 3}"#);
    let collected = client.stream_chat(body).await.collect().await;
    let chunks = collected.progress.iter().map(|progress| &progress.chunk);
    let steps: Vec<&Value> = chunks
        .filter(|chunk| chunk["type"] == "agentic_tool_output")
        .collect();
    assert_eq!(steps.len(), 3, "{steps:?}");
    let mut waiting = client.stream_chat(ask("python__wait {}")).await;
    // Only a call that has begun can be cancelled.
    while waiting.next_chunk().await["type"] != "agentic_tool_output" {}
    drop(waiting);
    eventually("the call to be cancelled", || async {
        let counted = result(client, "python__how_many_cancelled", json!({})).await;
        counted.contains("1 cancelled").then_some(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs the MCP servers that tests/run installs"]
async fn python_over_standard_input_and_output() {
    let (app, _upstream) = start(&python_stdio()).await;
    python(app.client()).await;
}

#[tokio::test]
#[ignore = "needs the MCP servers that tests/run installs"]
async fn python_over_http() {
    let (mut server, toml) = python_http(&[], "/mcp").await;
    let (app, _upstream) = start(&toml).await;
    python(app.client()).await;
    server.kill().await.unwrap();
    let lost = record(app.client(), "python__add", json!({"a": 1, "b": 1})).await;
    assert_eq!(lost["status"], "error", "{lost}");
    in_state(app.client(), "python", "down").await;
}

#[tokio::test]
#[ignore = "needs the MCP servers that tests/run installs"]
async fn python_over_sse() {
    let (_server, toml) = python_http(&["sse"], "/sse").await;
    let (app, _upstream) = start(&toml).await;
    python(app.client()).await;
}
