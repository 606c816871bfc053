//! What is kept of runs that have ended, how much of it and how long: answers, event logs, and answers that are not
//! stored.

use super::*;

/// A text of so many kilobytes, in words that the model streams one by one.
fn kilobytes(count: usize) -> String {
    vec!["x".repeat(999); count].join(" ")
}

/// A model that has this answer for everybody.
async fn answering(answer: String) -> ScriptedUpstream {
    ScriptedUpstream::answering(move |_| text(&answer)).await
}

/// A server for two API keys with these settings, and a client of each key.
async fn server(upstream: &ScriptedUpstream, settings: &str) -> (TestApp, Client, Client) {
    let builder = TestApp::builder().upstream(upstream).toml(settings);
    let builder = builder.toml(KEYS).env("ALICE", ALICE).env("BOB", BOB);
    let app = builder.dispatch_url("http://127.0.0.1:1/").start().await;
    let (alice, bob) = (app.client().key(ALICE), app.client().key(BOB));
    (app, alice, bob)
}

/// Lets a run end that goes on without a client, and gives its id once the store has its answer.
async fn finished(client: &Client) -> String {
    let answer = client.post_chat(finishing(go())).await.completion();
    answer["id"].as_str().unwrap().to_owned()
}

/// Waits until an id leads nowhere.
async fn gone(client: &Client, id: &str) {
    eventually("the end of a record", || async {
        (client.get(&path(id)).await.status == 404).then_some(())
    })
    .await;
    let messages = client.get(&format!("{}/messages", path(id))).await;
    messages.assert_error(404, Some("not_found"));
}

/// What the events of a run are answered with.
async fn events(client: &Client, id: &str, after: usize) -> Answer {
    let path = format!("{}/events?after={after}", path(id));
    client.get(&path).await
}

#[tokio::test]
async fn an_answer_is_kept_for_its_time() {
    let upstream = answering("Hello.".to_owned()).await;
    let (_app, alice, _) = server(&upstream, "answer_ttl = 2").await;
    let keyed = alice.header("idempotency-key", "k");
    let answer = keyed.post_chat(go()).await.completion();
    let id = answer["id"].as_str().unwrap();
    gone(&alice, id).await;
    // The key outlives the answer, so that nothing is done twice.
    let again = keyed.post_chat(go()).await;
    again.assert_error(410, Some("answer_expired"));
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn the_oldest_answers_of_the_largest_key_go_when_all_are_too_large() {
    let upstream = answering(kilobytes(20)).await;
    let (_app, alice, bob) = server(&upstream, "max_total_answer_bytes = \"80KiB\"").await;
    let of_bob = finished(&bob).await;
    let keyed = alice.header("idempotency-key", "k");
    let first = keyed.post_chat(go()).await.completion();
    let first = first["id"].as_str().unwrap();
    let mut later = Vec::new();
    for _ in 0..3 {
        later.push(finished(&alice).await);
    }
    gone(&alice, first).await;
    for (client, id) in [(&bob, &of_bob), (&alice, &later[1]), (&alice, &later[2])] {
        assert_eq!(client.get(&path(id)).await.content(), kilobytes(20));
    }
    let requests = upstream.requests().len();
    let again = keyed.post_chat(go()).await;
    again.assert_error(410, Some("answer_expired"));
    assert_eq!(upstream.requests().len(), requests);
}

#[tokio::test]
async fn an_answer_above_the_limit_is_not_kept_and_drives_no_other_out() {
    let answers = [kilobytes(20), kilobytes(90)];
    let upstream = ScriptedUpstream::start(answers.each_ref().map(|answer| text(answer))).await;
    let (_app, alice, _) = server(&upstream, "max_total_answer_bytes = \"80KiB\"").await;
    let small = finished(&alice).await;
    let keyed = alice.header("idempotency-key", "k");
    let large = keyed.post_chat(go()).await;
    assert_eq!(large.content(), answers[1], "the client has it");
    gone(&alice, large.completion()["id"].as_str().unwrap()).await;
    let again = keyed.post_chat(go()).await;
    again.assert_error(410, Some("answer_expired"));
    assert_eq!(alice.get(&path(&small)).await.content(), answers[0]);
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn the_oldest_logs_of_a_key_go_when_it_has_its_part() {
    let upstream = answering(kilobytes(20)).await;
    let (_app, alice, bob) = server(&upstream, "max_total_event_bytes = \"256KiB\"").await;
    let of_bob = finished(&bob).await;
    let mut of_alice = Vec::new();
    for _ in 0..4 {
        of_alice.push(finished(&alice).await);
    }
    let first = events(&alice, &of_alice[0], 0).await;
    first.assert_error(410, Some("events_expired"));
    // The answer is not the log.
    let answer = alice.get(&path(&of_alice[0])).await;
    assert_eq!(answer.content(), kilobytes(20));
    for (client, id) in [(&alice, &of_alice[3]), (&bob, &of_bob)] {
        let whole = client.events(id, 0).await.unwrap().collect().await;
        assert_eq!(whole.text, kilobytes(20));
    }
}

#[tokio::test]
async fn the_logs_of_ended_runs_go_before_those_of_running_ones() {
    let gate = Gate::new();
    let held = text(&kilobytes(30)).gate_before(29, &gate);
    let upstream = ScriptedUpstream::start([text(&kilobytes(40)), held]).await;
    let (_app, alice, _) = server(&upstream, "max_total_event_bytes = \"256KiB\"").await;
    let ended = finished(&alice).await;
    let mut running = alice.stream_chat(finishing(go())).await;
    for _ in 0..28 {
        running.next_text().await;
    }
    let first = events(&alice, &ended, 0).await;
    first.assert_error(410, Some("events_expired"));
    let whole = alice.events(&running.run_id(), 0).await.unwrap();
    gate.open();
    assert_eq!(whole.collect().await.text, kilobytes(30));
    running.collect().await;
}

#[tokio::test]
async fn a_running_run_keeps_its_last_lines_when_its_key_has_no_more() {
    let gate = Gate::new();
    let held = text(&kilobytes(120)).gate_before(110, &gate);
    let upstream = ScriptedUpstream::start([held]).await;
    let (_app, alice, _) = server(&upstream, "max_total_event_bytes = \"256KiB\"").await;
    let stream = alice.stream_chat(finishing(go())).await;
    let id = stream.run_id();
    // Without a reader it goes on at full speed.
    drop(stream);
    let tail = eventually("the last lines before the gate", || async {
        alice.events(&id, 100).await.ok()
    })
    .await;
    let first = events(&alice, &id, 0).await;
    first.assert_error(410, Some("events_expired"));
    gate.open();
    let (tail, _) = tail.collect_with_problems().await;
    assert_eq!(tail.numbers().first(), Some(&101));
    assert_eq!(tail.data().last().unwrap(), "[DONE]");
    let whole = ended(&alice, &id).await;
    assert_eq!(whole.content(), kilobytes(120), "the answer is whole");
}

#[tokio::test]
async fn a_log_has_the_last_four_mebibytes_of_a_run() {
    let long = vec!["x".repeat(99_999); 60].join(" ");
    let upstream = answering(long.clone()).await;
    let (_app, alice, _) = server(&upstream, "").await;
    let id = finished(&alice).await;
    let first = events(&alice, &id, 0).await;
    first.assert_error(410, Some("events_expired"));
    let tail = alice.events(&id, 50).await.unwrap();
    let (tail, _) = tail.collect_with_problems().await;
    assert_eq!(tail.data().last().unwrap(), "[DONE]");
    assert_eq!(alice.get(&path(&id)).await.content(), long);
}

#[tokio::test]
async fn answers_in_memory_are_counted_and_the_oldest_go_first() {
    let upstream = answering(kilobytes(20)).await;
    let (_app, alice, bob) = server(&upstream, "max_total_event_bytes = \"256KiB\"").await;
    let body = with(go(), "store", json!(false));
    let send = async |client: &Client, key: &str| {
        let client = client.header("idempotency-key", key);
        client.post_chat(body.clone()).await
    };
    send(&bob, "k").await.completion();
    for key in ["a", "b", "c"] {
        send(&alice, key).await.completion();
    }
    // What was done is not done again, and another key has lost nothing.
    send(&alice, "a")
        .await
        .assert_error(410, Some("answer_expired"));
    for (client, key) in [(&alice, "c"), (&bob, "k")] {
        let again = send(client, key).await;
        assert_eq!(again.header("idempotency-replayed"), Some("true"), "{key}");
        assert_eq!(again.content(), kilobytes(20));
    }
    assert_eq!(upstream.requests().len(), 4);
}

#[tokio::test]
async fn an_answer_that_is_too_large_for_memory_is_not_made_again() {
    let answers = [kilobytes(10), kilobytes(90)];
    let upstream = ScriptedUpstream::start(answers.each_ref().map(|answer| text(answer))).await;
    let (_app, alice, _) = server(&upstream, "max_total_event_bytes = \"256KiB\"").await;
    let body = with(go(), "store", json!(false));
    let send = async |key: &str| {
        let client = alice.header("idempotency-key", key);
        client.post_chat(body.clone()).await
    };
    assert_eq!(send("small").await.content(), answers[0]);
    assert_eq!(send("large").await.content(), answers[1]);
    send("large")
        .await
        .assert_error(410, Some("answer_expired"));
    assert_eq!(upstream.requests().len(), 2);
}
