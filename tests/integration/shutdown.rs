//! The end of the process in the midst of clients that do not read and of code that runs.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::support::app::TestApp;
use super::support::ask::{ask, ask_with, with};
use super::support::script::{calls, text};
use super::support::stalled::StalledClient;
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::Webhook;
use super::support::{AT_ONCE, eventually};

/// A client that reads the beginning of an answer, up to a text.
async fn stalled(app: &TestApp, body: &Value, until: &str) -> StalledClient {
    let client = StalledClient::streaming(app, body).await;
    client.until(until).await
}

/// Stops the process and returns how long that took.
async fn stop(app: &mut TestApp) -> Duration {
    let began = Instant::now();
    app.terminate().await;
    assert_eq!(app.wait_exit().await.code(), Some(0));
    began.elapsed()
}

#[tokio::test]
async fn sigterm_ends_the_process_in_time_although_clients_do_not_read() {
    let upstream = {
        let long = "word ".repeat(100_000);
        ScriptedUpstream::start([text(&long), text(&long)]).await
    };
    let hook = Webhook::start().await;
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let mut app = builder.toml("shutdown_grace = \"1s\"").start().await;
    let _in_the_loop = stalled(&app, &ask_with("Go", ["t"]), "word").await;
    let _passed_through = stalled(&app, &ask("Go"), "word").await;
    let took = stop(&mut app).await;
    assert!(took < AT_ONCE, "{took:?}");
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn a_stalled_code_call_delays_no_shutdown_and_other_sessions_keep_their_files() {
    let run = |code: &str| calls([("execute_python", json!({"code": code}))]);
    let flood = "for n in range(12000): print(n, end='', flush=True)\nwhile True: pass";
    let upstream = ScriptedUpstream::start([
        run("open('kept.txt', 'w').write('kept')"),
        text("written"),
        run(flood),
        run("open('kept.txt').read()"),
        text("read"),
    ])
    .await;
    let mut app = TestApp::builder()
        .upstream(&upstream)
        .args(["--enable-code-execution", "--code-exec-timeout", "300"])
        .toml("shutdown_grace = \"1s\"\n[sandbox]\nmax_workers = 2\nspares = 0")
        .start()
        .await;
    let with_code = |session: &str| {
        let body = with(ask("x"), "enable_code_execution", json!(true));
        with(body, "session_id", json!(session))
    };
    app.post_chat(with_code("kept")).await.completion();
    let _stalled = stalled(&app, &with_code("stalled"), "agentic_tool_output").await;
    eventually("the code runs", || async {
        let ready = app.get("/readyz").await.json();
        (ready["code_execution"]["busy"] == 1).then_some(())
    })
    .await;
    let took = stop(&mut app).await;
    assert!(took < AT_ONCE, "{took:?}");
    app.restart().await;
    let read = app.post_chat(with_code("kept")).await.completion();
    let result = read["agentic_tool_calls"][0]["result_content"].as_str();
    assert!(result.unwrap().contains("'kept'"), "{read}");
}
