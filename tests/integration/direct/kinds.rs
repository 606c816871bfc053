//! Each kind of tool: code, the web, MCP servers, results with files and images.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::*;
#[cfg(feature = "mcp")]
use crate::mcp::fake;

/// A PNG image of one pixel.
pub(super) const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

#[tokio::test]
async fn images_and_files_come_with_the_entry() {
    let parts = json!({"content": [
        {"type": "text", "text": "seen"},
        {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{PIXEL}")}},
    ]});
    let hook = Webhook::start().await.on("t", webhook::json(&parts));
    let app = builder(&hook).await.start().await;
    let entry = entry(app.client(), "t", json!({})).await;
    assert_eq!(entry["result_content"], "seen");
    assert_eq!(entry["result_images_base64"], json!([PIXEL]));
}

#[cfg(feature = "mcp")]
#[tokio::test]
async fn a_tool_of_an_mcp_server_is_called() {
    let hook = Webhook::start().await;
    let settings = fake::server("fake", "", "");
    let app = keyed(&hook, "").await.toml(&settings).start().await;
    let client = app.client().key(ALICE);
    let tool = eventually("the tools of the server", async || {
        let tools = client.get("/v1/agent/tools").await.json();
        let tools = tools["data"].as_array().cloned().unwrap_or_default();
        tools
            .into_iter()
            .find(|tool| tool["name"] == "fake__remember")
    })
    .await;
    assert_eq!(tool["source"], "mcp");
    let first = entry(&client, "fake__remember", json!({"fact": "a"})).await;
    assert_eq!(first["status"], "ok", "{first}");
    // The connection of the key lasts.
    let second = entry(&client, "fake__remember", json!({"fact": "b"})).await;
    let text = second["result_content"].as_str().unwrap();
    assert!(text.ends_with("a,b"), "{text}");
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn code_runs_in_its_session_or_in_a_workspace_of_its_own() {
    let hook = Webhook::start().await;
    let app = builder(&hook)
        .await
        .args(["--enable-code-execution"])
        .start()
        .await;
    let run = async |code: &str, session: Option<&str>| {
        let body = json!({"arguments": {"code": code}, "session_id": session});
        let answer = call(app.client(), "execute_python", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    };
    assert_eq!(
        run("x = 1\nx + 1", None).await["result_content"],
        "result:\n2"
    );
    let lost = run("x", None).await;
    assert!(
        lost["result_content"]
            .as_str()
            .unwrap()
            .contains("NameError"),
        "{lost}"
    );
    let session = json!({"id": "s", "messages": [{"role": "user", "content": "hello"}]});
    app.client()
        .send(http::Method::PUT, "/v1/sessions/s", &session)
        .await;
    run("y = 20\nopen('note.txt', 'w').write('kept')", Some("s")).await;
    let kept = run("(y, open('note.txt').read())", Some("s")).await;
    assert_eq!(kept["result_content"], "result:\n(20, 'kept')");
    // Files come with the answer.
    let made = run("open('a.csv', 'w').write('a,b')", None).await;
    assert_eq!(made["files"][0]["filename"], "a.csv", "{made}");
    let data = made["files"][0]["data"].as_str().unwrap();
    assert_eq!(STANDARD.decode(data).unwrap(), b"a,b");
    assert_eq!(made["file_ids"][0], made["files"][0]["id"]);
}
