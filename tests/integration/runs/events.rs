//! The event log: a stream that was cut anywhere goes on where it ended.

use super::*;

/// A run that goes on without a client, with every kind of event in its stream.
fn request() -> Value {
    with(
        finishing(go()),
        "stream_options",
        json!({"include_usage": true}),
    )
}

async fn tool_server() -> Webhook {
    let events = [
        json!({"progress": "half"}),
        json!({"progress": "most"}),
        json!({"content": "r"}),
    ];
    Webhook::start().await.on("t", webhook::sse(events))
}

#[tokio::test]
async fn a_stream_that_is_cut_after_any_event_continues_there() {
    let upstream = ScriptedUpstream::answering(one_round).await;
    let hook = tool_server().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let uncut = app.stream_chat(request()).await.collect().await.data();
    assert!(uncut.len() > 10, "{uncut:?}");
    assert_eq!(uncut.last().unwrap(), "[DONE]");
    for cut in 0..=uncut.len() {
        let mut stream = app.stream_chat(request()).await;
        let id = stream.run_id();
        let mut seen = Vec::new();
        while seen.len() < cut {
            seen.push(stream.next_frame().await.unwrap().data);
        }
        drop(stream);
        let rest = app.client().events(&id, cut).await.unwrap();
        let (rest, _) = rest.collect_with_problems().await;
        let numbers: Vec<usize> = (cut + 1..=uncut.len()).collect();
        assert_eq!(rest.numbers(), numbers, "cut after {cut}");
        seen.extend(rest.data());
        // The whole log is a stream as the contract has it.
        let log = app.client().events(&id, 0).await.unwrap().collect().await;
        assert_eq!(seen, log.data(), "cut after {cut}");
        assert_eq!(
            comparable_data(&seen),
            comparable_data(&uncut),
            "cut after {cut}"
        );
    }
    assert_eq!(hook.calls().len(), uncut.len() + 2, "one effect each");
}

#[tokio::test]
async fn the_log_of_a_running_run_is_followed_live() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::start([text("one two three").gate_before(2, &gate)]).await;
    let hook = Webhook::start().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let mut stream = app.stream_chat(request()).await;
    let id = stream.run_id();
    assert_eq!(stream.next_text().await, "one ");
    let mut behind = app.client().events(&id, 0).await.unwrap();
    assert_eq!(behind.next_text().await, "one ");
    gate.open();
    let whole = app.client().events(&id, 0).await.unwrap().collect().await;
    assert_eq!(whole.text, "one two three");
    let behind = behind.collect().await;
    assert_eq!(behind.data(), whole.data());
    assert_eq!(stream.collect().await.data(), whole.data());
}

#[tokio::test]
async fn where_to_begin_is_checked() {
    let upstream = ScriptedUpstream::answering(one_round).await;
    let hook = tool_server().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let stream = app.stream_chat(request()).await;
    let id = stream.run_id();
    let all = stream.collect().await.data();
    let events = format!("{}/events", path(&id));
    // After the last one there is nothing, which is no error; beyond it there was never anything.
    let last = app.client().events(&id, all.len()).await.unwrap();
    let (last, _) = last.collect_with_problems().await;
    assert_eq!(last.data(), Vec::<String>::new());
    for after in [
        (all.len() + 1).to_string(),
        "-1".to_owned(),
        "two".to_owned(),
    ] {
        let answer = app.get(&format!("{events}?after={after}")).await;
        assert_eq!(answer.status, 400, "{after}: {}", answer.text());
        answer.assert_error(400, None);
    }
    // Without `after` from the beginning, or where a browser's own reader stopped; `after` goes before that.
    let resumed = app.client().header("last-event-id", "3");
    for (client, query, first) in [
        (app.client(), "", 1),
        (&resumed, "", 4),
        (&resumed, "?after=5", 6),
        (&resumed, "?after=0", 1),
    ] {
        let answer = client.get(&format!("{events}{query}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let media = answer.header("content-type").unwrap_or_default();
        assert!(media.starts_with("text/event-stream"), "{media}");
        let body = answer.text();
        let number = body.lines().find_map(|line| line.strip_prefix("id: "));
        assert_eq!(number, Some(first.to_string().as_str()), "{query}");
        assert!(body.ends_with("data: [DONE]\n\n"), "{body}");
    }
}

#[tokio::test]
async fn a_log_belongs_to_its_key() {
    let upstream = ScriptedUpstream::answering(one_round).await;
    let hook = tool_server().await;
    let app = keyed(&upstream, &hook).await;
    let (alice, bob) = (app.client().key(ALICE), app.client().key(BOB));
    let stream = alice.stream_chat(request()).await;
    let id = stream.run_id();
    let all = stream.collect().await;
    let own = alice.events(&id, 0).await.unwrap().collect().await;
    assert_eq!(own.data(), all.data());
    let unknown = "chatcmpl-0123456789abcdef0123456789abcdef";
    let mut messages = Vec::new();
    for (client, id) in [
        (&bob, id.as_str()),
        (&alice, unknown),
        (&alice, "chatcmpl-%21"),
    ] {
        let answer = client.get(&format!("{}/events", path(id))).await;
        messages.push(
            answer
                .assert_error(404, Some("not_found"))
                .replace(id, "ID"),
        );
    }
    assert_eq!(
        messages[0], messages[1],
        "of another key, or not there at all: the same"
    );
    app.client()
        .get(&format!("{}/events", path(&id)))
        .await
        .assert_error(401, Some("invalid_api_key"));
}

#[tokio::test]
async fn the_log_has_the_dress_of_the_first_reader() {
    let upstream = ScriptedUpstream::answering(one_round).await;
    let hook = tool_server().await;
    let app = TestApp::with_tools(&upstream, &hook).await;
    let of_log = async |id: &str| app.client().events(id, 0).await.unwrap().collect().await;
    for (progress, names) in [("named", true), ("chunk", false), ("none", false)] {
        let options = json!({"on_disconnect": "finish", "progress": progress});
        let stream = app.stream_chat(agent(go(), options)).await;
        let id = stream.run_id();
        let all = stream.collect().await;
        let log = of_log(&id).await;
        assert_eq!(log.data(), all.data());
        assert_eq!(log.progress.is_empty(), progress == "none", "{progress}");
        assert!(log.usage.is_none());
        let named = |event: &super::super::support::collect::Progress| event.event.is_some();
        assert!(
            log.progress.iter().all(|event| named(event) == names),
            "{progress}"
        );
    }
    // For a run that was not streamed: named, with usage.
    let body = app.post_chat(finishing(go())).await.completion();
    let log = of_log(body["id"].as_str().unwrap()).await;
    assert!(log.progress.iter().all(|event| event.event.is_some()));
    assert_eq!(log.usage.as_ref(), Some(&body["usage"]));
    assert_eq!(log.text, body["choices"][0]["message"]["content"]);
    assert_eq!(log.id, body["id"]);
}

#[tokio::test]
async fn a_log_ends_with_the_process_and_the_answer_does_not() {
    let upstream = ScriptedUpstream::answering(one_round).await;
    let hook = tool_server().await;
    let mut app = TestApp::with_tools(&upstream, &hook).await;
    let stream = app.stream_chat(request()).await;
    let id = stream.run_id();
    stream.collect().await;
    let before = app.get(&path(&id)).await.completion();
    app.restart().await;
    let events = app.get(&format!("{}/events", path(&id))).await;
    events.assert_error(410, Some("events_expired"));
    assert_eq!(app.get(&path(&id)).await.completion(), before);
}
