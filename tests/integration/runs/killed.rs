//! kill -9 at random moments of a turn whose tool has effects: the history tells of each of them, once.

use std::collections::HashMap;

use tokio::task::JoinSet;

use super::*;

/// Processes that are killed.
const KILLS: usize = 200;
/// Servers that are killed at the same time.
const LANES: usize = 4;
/// Rounds of a turn.
const ROUNDS: usize = 5;

/// What a tool did: session, number.
type Effect = (String, u64);

/// A model that asks for an effect in each of its rounds, and has an answer then or for any other question.
fn five_rounds(request: &Recorded) -> Reply {
    let messages = request.messages();
    let asked = messages
        .iter()
        .rposition(|message| message["role"] == "user");
    let turn = &messages[asked.unwrap_or_default()..];
    let rounds = turn
        .iter()
        .filter(|message| message["tool_calls"].is_array())
        .count();
    match content(&turn[0]).strip_prefix("Turn ") {
        Some(session) if rounds < ROUNDS => text_and_calls(
            &format!("Round {rounds}."),
            [("t", json!({"session": session, "n": rounds}))],
        ),
        Some(_) => text("Five rounds."),
        None => text("Going on."),
    }
}

fn effect(arguments: &Value) -> Effect {
    let session = arguments["session"].as_str().unwrap_or_default();
    (
        session.to_owned(),
        arguments["n"].as_u64().unwrap_or(u64::MAX),
    )
}

/// How often each effect is told in a history; every call in it has exactly one result right after it.
fn told(messages: &[Value]) -> HashMap<Effect, usize> {
    let mut told = HashMap::new();
    for (position, message) in messages.iter().enumerate() {
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let arguments = call["function"]["arguments"].as_str().unwrap();
            let arguments: Value = serde_json::from_str(arguments).unwrap();
            *told.entry(effect(&arguments)).or_default() += 1;
            let results = messages[position + 1..].iter();
            let results = results.take_while(|message| message["role"] == "tool");
            let own = results.filter(|result| result["tool_call_id"] == call["id"]);
            assert_eq!(own.count(), 1, "the results of {call} in {messages:?}");
        }
    }
    told
}

/// One turn, killed somewhere within `length`; then the history is held against the effects.
async fn kill_and_look(app: &mut TestApp, hook: &Webhook, session: &str, length: Duration) {
    let body = in_session(&format!("Turn {session}"), session);
    let streamed = rand::random::<bool>();
    let request = app
        .client()
        .request(http::Method::POST, "/v1/chat/completions")
        .header("content-type", "application/json")
        .body(with(body, "stream", json!(streamed)).to_string());
    let reading = tokio::spawn(async move {
        if let Ok(mut answer) = request.send().await {
            while let Ok(Some(_)) = answer.chunk().await {}
        }
        // The connection stays open until the process is gone: a client that leaves is another story.
        std::future::pending::<()>().await;
    });
    // Waits for nothing: this is the random moment.
    tokio::time::sleep(length.mul_f64(rand::random::<f64>())).await;
    app.kill9().await;
    reading.abort();
    app.restart().await;
    // The next turn is valid for the strict model server, whether or not anything was stored.
    let next = json!({"model": MODEL, "session_id": session, "messages": [user("Go on")]});
    assert_eq!(
        app.post_chat(next).await.content(),
        "Going on.",
        "{session}"
    );
    assert_told(app, hook, session).await;
}

/// Fails unless the history of a session tells of every effect in it, exactly once.
async fn assert_told(app: &TestApp, hook: &Webhook, session: &str) {
    let calls = hook.calls();
    let done = calls.iter().map(|call| effect(call.arguments()));
    let done: Vec<Effect> = done.filter(|(own, _)| own == session).collect();
    let told = told(&history(app.client(), session).await);
    for effect in &done {
        assert_eq!(told.get(effect), Some(&1), "{effect:?} of {done:?}");
    }
    let mut once = done.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), done.len(), "an effect twice: {done:?}");
    // At most one call was written down and not begun.
    assert!(told.len() <= done.len() + 1, "{told:?} for {done:?}");
}

/// Kills one server again and again.
async fn lane(lane: usize) {
    let upstream = ScriptedUpstream::answering(five_rounds).await;
    let hook = Webhook::start().await.on_call("t", |call| {
        webhook::text(&format!("done {}", call.arguments()["n"]))
    });
    let mut app = TestApp::with_tools(&upstream, &hook).await;
    // How long a turn takes here: the second one, with everything warm.
    let mut length = Duration::ZERO;
    for warm in 0..2 {
        let session = format!("whole-{lane}-{warm}");
        let began = Instant::now();
        let body = in_session(&format!("Turn {session}"), &session);
        assert!(
            app.post_chat(body)
                .await
                .content()
                .ends_with("Five rounds.")
        );
        length = began.elapsed().mul_f64(1.1);
        assert_told(&app, &hook, &session).await;
    }
    let sessions: Vec<String> = (lane..KILLS)
        .step_by(LANES)
        .map(|kill| format!("kill-{kill}"))
        .collect();
    for session in &sessions {
        kill_and_look(&mut app, &hook, session, length).await;
    }
    // The last words of a process may have come to the tool after the first look.
    for session in &sessions {
        assert_told(&app, &hook, session).await;
    }
    let effects = hook.calls().len() - 2 * ROUNDS;
    let all = sessions.len() * ROUNDS;
    assert!(
        0 < effects && effects < all,
        "kills fell within turns: {effects} of {all}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_anywhere_leaves_a_history_that_tells_of_every_effect_once() {
    let mut lanes = JoinSet::new();
    for number in 0..LANES {
        lanes.spawn(lane(number));
    }
    while let Some(ended) = lanes.join_next().await {
        if let Err(error) = ended {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}
