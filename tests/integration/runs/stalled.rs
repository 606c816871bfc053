//! A client that does not read: it stops no clock, holds nothing for long, and does not keep the process alive.

use super::*;

/// More than all buffers between a tool and such a client hold.
fn flood() -> webhook::ToolReply {
    webhook::progress((0..400).map(|n| format!("{n} {}", "progress ".repeat(2_000))))
}

/// More than all buffers between a model and such a client hold.
fn long_text() -> Reply {
    text(&"word ".repeat(100_000))
}

fn builder(upstream: &ScriptedUpstream, hook: &Webhook, toml: &str) -> Builder {
    let builder = TestApp::builder().upstream(upstream).dispatch(hook);
    builder
        .toml("dispatch_max_answer_bytes = \"64MiB\"")
        .toml(toml)
}

#[tokio::test]
async fn the_time_limit_of_a_tool_runs_while_nobody_reads() {
    let upstream = ScriptedUpstream::start([
        calls([("t", json!({}))]),
        text("It took too long."),
        text("Hello."),
    ])
    .await;
    let hook = Webhook::start().await.on("t", flood().then_hang());
    let toml = "dispatch_timeout = 1\nwrite_timeout = \"5s\"";
    let app = builder(&upstream, &hook, toml).start().await;
    let body = in_session("Go", "s");
    let client = StalledClient::streaming(&app, &body).await;
    hook.dropped(0).await;
    upstream.called(2).await;
    let told = upstream.request(1).tool_results();
    assert!(!told[0].1.is_empty(), "the model is told: {told:?}");
    // The model's stream may wait for the client, but not longer than `write_timeout`; then the session is free.
    assert_eq!(
        app.post_chat(in_session("More", "s")).await.content(),
        "Hello."
    );
    drop(client);
}

#[tokio::test]
async fn the_time_budget_of_a_turn_runs_while_nobody_reads() {
    let upstream = ScriptedUpstream::start([calls([("t", json!({}))]), text("Hello.")]).await;
    let hook = Webhook::start().await.on("t", flood().then_hang());
    // Of the tool's own time limit this test sees nothing.
    let app = builder(&upstream, &hook, "dispatch_timeout = 300")
        .start()
        .await;
    let limits = json!({"limits": {"max_seconds": 1}, "on_limit": "stop"});
    let client = StalledClient::streaming(&app, &agent(in_session("Go", "s"), limits)).await;
    hook.dropped(0).await;
    let next = app.post_chat(in_session("More", "s")).await;
    assert_eq!(next.content(), "Hello.");
    let told = upstream.last().tool_results();
    assert!(told[0].1.contains("cancelled"), "{told:?}");
    none_running(app.client()).await;
    drop(client);
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_disconnected_and_its_model_stream_ends() {
    let upstream = ScriptedUpstream::start([long_text(), long_text()]).await;
    let hook = Webhook::start().await;
    let app = builder(&upstream, &hook, "write_timeout = \"1s\"")
        .start()
        .await;
    // In the loop and passed through.
    for (number, body) in [go(), ask("Go")].into_iter().enumerate() {
        let began = Instant::now();
        let client = StalledClient::streaming(&app, &body).await;
        upstream.dropped(number).await;
        assert!(
            began.elapsed() >= Duration::from_secs(1),
            "not before its time"
        );
        let rest = client.rest().await;
        assert!(rest.starts_with("HTTP/1.1 200"), "{rest:.80}");
        assert!(!rest.contains("[DONE]"), "the stream is broken off");
    }
    none_running(app.client()).await;
}

#[tokio::test]
async fn a_client_that_only_sips_is_disconnected_too() {
    let upstream = ScriptedUpstream::start([long_text()]).await;
    let hook = Webhook::start().await;
    let app = builder(&upstream, &hook, "write_timeout = \"1s\"")
        .start()
        .await;
    let mut client = StalledClient::streaming(&app, &go()).await;
    // A few kilobytes in a second, far less than a buffer.
    let mut pace = tokio::time::interval(Duration::from_millis(50));
    let sipping = async {
        while client.sip().await.is_some() {
            pace.tick().await;
        }
    };
    tokio::select! {
        () = upstream.dropped(0) => {}
        () = sipping => upstream.dropped(0).await,
    }
    none_running(app.client()).await;
}

#[tokio::test]
async fn a_client_for_whom_nothing_waits_is_left_alone() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::start([text("one two").gate_before(2, &gate)]).await;
    let hook = Webhook::start().await;
    let toml = "write_timeout = \"200ms\"\nkeep_alive = 0.5";
    let app = builder(&upstream, &hook, toml).start().await;
    let mut stream = app.stream_chat(go()).await;
    assert_eq!(stream.next_text().await, "one ");
    // Two comments are a second: five times the limit.
    stream.next_comment().await;
    stream.next_comment().await;
    gate.open();
    assert_eq!(stream.collect().await.text, "one two");
}

#[tokio::test]
async fn sigterm_ends_the_process_in_time_whatever_a_client_does() {
    for hangs_in_tool in [false, true] {
        let first = match hangs_in_tool {
            true => calls([("t", json!({}))]),
            false => long_text(),
        };
        let upstream = ScriptedUpstream::start([first]).await;
        let hook = Webhook::start().await.on("t", flood().then_hang());
        let toml = "shutdown_grace = \"1s\"\ndispatch_timeout = 300";
        let mut app = builder(&upstream, &hook, toml).start().await;
        let client = StalledClient::streaming(&app, &in_session("Go", "s")).await;
        match hangs_in_tool {
            true => hook.called(1).await,
            false => upstream.called(1).await,
        }
        let asked = Instant::now();
        app.terminate().await;
        assert_eq!(app.wait_exit().await.code(), Some(0));
        let took = asked.elapsed();
        assert!(took < AT_ONCE, "{took:?}, in a tool: {hangs_in_tool}");
        drop(client);
    }
}

/// Code that prints more than such a client takes, in pieces that are events of their own, and never ends.
const FLOOD_AND_SPIN: &str = "import time
for n in range(1500):
    print('x', flush=True)
    time.sleep(0.001)
while True: pass";

fn with_code(text: &str, session: &str) -> Value {
    let body = with(ask(text), "enable_code_execution", json!(true));
    with(body, "session_id", json!(session))
}

/// The flooding request. Every event names its model, so that a long name fills the buffers within the time limit.
fn flooding() -> Value {
    let model = format!("scripted-{}", "model-".repeat(1_000));
    with(with_code("Flood", "stalled"), "model", json!(model))
}

/// A model that floods for `Flood` and adds for everything else.
async fn coding_model() -> ScriptedUpstream {
    ScriptedUpstream::answering(|request| {
        let messages = request.messages();
        let asked = messages.iter().rfind(|message| message["role"] == "user");
        let code = match asked.is_some_and(|message| content(message) == "Flood") {
            true => FLOOD_AND_SPIN,
            false => "1+1",
        };
        match messages.last().is_some_and(|last| last["role"] == "tool") {
            true => text("Done."),
            false => calls([("execute_python", json!({"code": code}))]),
        }
    })
    .await
}

/// One interpreter, and this time limit for its calls.
fn code_builder(upstream: &ScriptedUpstream, limit: &str) -> Builder {
    let builder = TestApp::builder().upstream(upstream);
    let builder = builder.args(["--enable-code-execution", "--code-exec-timeout", limit]);
    builder.toml("shutdown_grace = \"1s\"\n[sandbox]\nmax_workers = 1\nspares = 0")
}

/// Waits until an interpreter is at work.
async fn interpreter_busy(app: &TestApp) {
    eventually("an interpreter at work", || async {
        let page = app.get("/metrics").await.text();
        page.lines()
            .any(|line| line == "loopwright_code_workers_busy 1")
            .then_some(())
    })
    .await;
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn the_only_interpreter_is_free_again_while_nobody_reads() {
    let upstream = coding_model().await;
    let app = code_builder(&upstream, "2").start().await;
    let client = StalledClient::streaming(&app, &flooding()).await;
    interpreter_busy(&app).await;
    let began = Instant::now();
    let answer = app.post_chat(with_code("Add", "other")).await.completion();
    let took = began.elapsed();
    let call = &answer["agentic_tool_calls"][0];
    assert_eq!(
        (&call["status"], &call["result_content"]),
        (&json!("ok"), &json!("result:\n2"))
    );
    assert!(took < AT_ONCE, "the limit is 2 s: {took:?}");
    drop(client);
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn sigterm_ends_the_process_in_time_while_code_floods_a_client() {
    let upstream = coding_model().await;
    let mut app = code_builder(&upstream, "300").start().await;
    let client = StalledClient::streaming(&app, &flooding()).await;
    interpreter_busy(&app).await;
    let asked = Instant::now();
    app.terminate().await;
    assert_eq!(app.wait_exit().await.code(), Some(0));
    let took = asked.elapsed();
    assert!(took < AT_ONCE, "{took:?}");
    drop(client);
}
