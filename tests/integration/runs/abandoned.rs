//! Runs that are left at random moments leave nothing behind.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinSet;

use super::*;

/// Runs that are started and left.
const RUNS: usize = 1000;
/// Runs that are started and left while they run code; an interpreter takes its time.
const CODE_RUNS: usize = 24;
/// Clients at the same time.
const LANES: usize = 8;
/// The tools are reached more often.
const CALLS: usize = 10;
/// Longest stay of a client, in microseconds: every moment of a turn lies within it.
const STAY: u64 = 60_000;
/// Descriptors that may be open besides those at the start: pooled connections to the model server and the tool, and
/// those of the clients that ask.
const POOLED: usize = 8 * LANES;

/// The text of the last user message.
fn asked(request: &Recorded) -> String {
    let messages = request.messages();
    let user = messages.iter().rfind(|message| message["role"] == "user");
    user.map(|message| content(message).to_owned())
        .unwrap_or_default()
}

/// A model that comes to a stop where the question says.
fn stopping(request: &Recorded) -> Reply {
    match asked(request).as_str() {
        "head" => script::hang(),
        "stream" => text("one two three four five").hang_after(rand::random_range(1..5)),
        "tool" => text_and_calls("Let me see.", [("t", json!({"n": rand::random::<u32>()}))]),
        "pass" => text("one two three four five"),
        _ => text("Again."),
    }
}

/// Asks, reads for a while, and leaves.
async fn ask_and_leave(client: Client, body: Value, stay: Duration) {
    let request = client
        .request(http::Method::POST, "/v1/chat/completions")
        .header("content-type", "application/json")
        .body(body.to_string());
    let reading = async {
        if let Ok(mut answer) = request.send().await {
            while let Ok(Some(_)) = answer.chunk().await {}
        }
    };
    // Whether it came to an end before does not matter.
    let _left = tokio::time::timeout(stay, reading).await;
}

/// The question, streamed or not, in a session of the lane, in none, or in one that somebody else holds.
fn body(run: usize, lane: usize) -> Value {
    let question = ["head", "stream", "tool", "tool", "pass"][run % 5];
    let body = with(
        ask_with(question, ["t"]),
        "stream",
        json!(!run.is_multiple_of(3)),
    );
    match run % 4 {
        0 => with(body, "session_id", json!(format!("lane-{lane}"))),
        1 => with(body, "session_id", json!("held")),
        _ => body,
    }
}

#[tokio::test]
async fn a_thousand_runs_that_are_left_leave_nothing_but_their_history() {
    let upstream = ScriptedUpstream::answering(stopping).await;
    let reached = Arc::new(AtomicUsize::new(0));
    let counted = reached.clone();
    let hook = Webhook::start().await.on_call("t", move |call| {
        counted.fetch_add(1, Ordering::Relaxed);
        match call.arguments()["n"].as_u64().unwrap_or_default() % 2 {
            0 => webhook::hang(),
            _ => webhook::text("r"),
        }
    });
    let app = TestApp::with_tools(&upstream, &hook).await;
    app.post_chat(in_session("warm up", "warm"))
        .await
        .completion();
    let descriptors = app.descriptors();
    let mut holder = app.stream_chat(in_session("stream", "held")).await;
    holder.next_chunk().await;
    let mut lanes = JoinSet::new();
    for lane in 0..LANES {
        let (client, reached) = (app.client().clone(), reached.clone());
        lanes.spawn(async move {
            let mut run = lane;
            // A slow machine takes longer to reach the tools.
            while run < RUNS || reached.load(Ordering::Relaxed) <= CALLS && run < 20 * RUNS {
                let longest = STAY * u64::try_from(1 + run / RUNS).unwrap();
                let stay = Duration::from_micros(rand::random_range(0..longest));
                ask_and_leave(client.clone(), body(run, lane), stay).await;
                run += LANES;
            }
        });
    }
    while let Some(lane) = lanes.join_next().await {
        lane.unwrap();
    }
    assert!(
        hook.calls().len() > CALLS,
        "tools were reached: {}",
        hook.calls().len()
    );
    drop(holder);
    none_running(app.client()).await;
    eventually("the descriptors closed", || async {
        (app.descriptors() <= descriptors + POOLED).then_some(())
    })
    .await;
    // Every lease is free, and the strict model server takes every history.
    let named: HashSet<String> = (0..LANES).map(|lane| format!("lane-{lane}")).collect();
    let named: HashSet<String> = named
        .into_iter()
        .chain(["held".into(), "warm".into()])
        .collect();
    for session in &named {
        let began = Instant::now();
        let again = app.post_chat(in_session("again", session)).await;
        assert_eq!(again.content(), "Again.", "{session}");
        assert!(
            began.elapsed() < AT_ONCE,
            "{session}: {:?}",
            began.elapsed()
        );
    }
    // What was asked without a session is there only where a tool had started.
    let page = app.get("/v1/sessions?limit=100").await.json();
    for row in page["data"].as_array().unwrap() {
        assert_eq!(row["running"], Value::Null, "{row}");
        let id = row["id"].as_str().unwrap();
        if !named.contains(id) {
            let messages = history(app.client(), id).await;
            assert_eq!(roles(&messages)[..3], ["user", "assistant", "tool"], "{id}");
        }
    }
    let started: HashSet<String> = hook
        .calls()
        .iter()
        .filter_map(|call| call.body["session_id"].as_str().map(ToOwned::to_owned))
        .collect();
    let stored = session_ids(app.client()).await;
    let nameless = stored.iter().filter(|id| !named.contains(*id));
    // A call is written before it runs, so that some were left before they reached the tool. Their result says so.
    for id in nameless.filter(|id| !started.contains(*id)) {
        let messages = history(app.client(), id).await;
        let result = content(&messages[2]).to_lowercase();
        assert!(result.contains("cancelled"), "{id}: {result}");
    }
    assert!(
        started.iter().all(|id| stored.contains(id)),
        "every call that began is in a history"
    );
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn runs_that_are_left_in_code_leave_no_interpreter_at_work() {
    let upstream = ScriptedUpstream::answering(|request| {
        let messages = request.messages();
        let answered = messages.last().is_some_and(|last| last["role"] == "tool");
        let code = match asked(request).as_str() {
            "spin" => "print('begun')\nwhile True: pass",
            _ => "1+1",
        };
        match answered {
            true => text("Done."),
            false => calls([("execute_python", json!({"code": code}))]),
        }
    })
    .await;
    let builder = TestApp::builder().upstream(&upstream);
    let builder = builder.args(["--enable-code-execution"]);
    let app = builder.toml("[sandbox]\nmax_workers = 2").start().await;
    let code = |question: &str| {
        let body = with(ask(question), "enable_code_execution", json!(true));
        with(body, "stream", json!(true))
    };
    let mut lanes = JoinSet::new();
    for lane in 0..4 {
        let (client, body) = (app.client().clone(), code("spin"));
        lanes.spawn(async move {
            for run in (lane..CODE_RUNS).step_by(4) {
                let stay = Duration::from_millis(rand::random_range(0..1_500));
                let body = match run % 2 {
                    0 => with(body.clone(), "session_id", json!(format!("code-{lane}"))),
                    _ => body.clone(),
                };
                ask_and_leave(client.clone(), body, stay).await;
            }
        });
    }
    while let Some(lane) = lanes.join_next().await {
        lane.unwrap();
    }
    none_running(app.client()).await;
    eventually("idle interpreters", || async {
        let page = app.get("/metrics").await.text();
        let free = |line: &str| {
            line == "loopwright_code_workers_busy 0" || line == "loopwright_code_calls_waiting 0"
        };
        (page.lines().filter(|line| free(line)).count() == 2).then_some(())
    })
    .await;
    let add = with(code("add"), "stream", json!(false));
    let answer = app
        .post_chat(with(add, "session_id", json!("code-0")))
        .await
        .completion();
    let call = answer["agentic_tool_calls"][0].clone();
    // The interpreter may have been restarted, which the result then notes.
    let result = call["result_content"].as_str().unwrap();
    assert!(result.starts_with("result:\n2"), "{call}");
}
