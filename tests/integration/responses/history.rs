//! What a turn gets of the history: its model, instructions, images, and as much of it as the model can take.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::files::uploaded;
use super::super::support::app::TestApp;
use super::super::support::script::{calls, error, text};
use super::super::support::upstream::ScriptedUpstream;
use super::{PATH, create, function, text_of, with};

fn stored(input: Value) -> Value {
    json!({"model": "test-model", "input": input})
}

/// The request that follows a response.
fn next(previous: &Value, input: Value) -> Value {
    with(
        stored(input),
        "previous_response_id",
        previous["id"].clone(),
    )
}

fn contents(messages: &[Value]) -> Vec<&str> {
    let contents = messages.iter().map(|one| one["content"].as_str().unwrap());
    contents.collect()
}

#[tokio::test]
async fn the_model_is_that_of_the_response_before() {
    let upstream = ScriptedUpstream::answering(|_| text("Hi.")).await;
    let app = TestApp::with_upstream(&upstream).await;
    let first = create(&app, stored(json!("a"))).await;
    let mut body = next(&first, json!("b"));
    body.as_object_mut().unwrap().remove("model");
    let second = create(&app, body).await;
    assert_eq!(second["model"], "test-model");
    assert_eq!(upstream.last().body["model"], "test-model");
    // After a chat completion too.
    let chat = json!({"model": "test-model", "session_id": "s", "messages": [{"role": "user", "content": "a"}]});
    let chat = app.post_chat(chat).await.completion();
    let id = chat["id"].as_str().unwrap().replace("chatcmpl-", "resp_");
    let third = create(&app, json!({"input": "c", "previous_response_id": id})).await;
    assert_eq!(third["model"], "test-model");
    let answer = app.post(PATH, &json!({"input": "c"})).await;
    answer.assert_error(400, None);
    assert_eq!(answer.json()["error"]["param"], "model");
}

#[tokio::test]
async fn later_instructions_follow_those_of_the_session() {
    let upstream = ScriptedUpstream::answering(|_| text("Hi.")).await;
    let app = TestApp::with_upstream(&upstream).await;
    let said = |instructions: &str, words: &str| json!([{"role": "developer", "content": instructions}, {"role": "user", "content": words}]);
    let first = create(&app, stored(said("A", "a"))).await;
    create(&app, next(&first, said("B", "b"))).await;
    let reminder = "<system-reminder>\nB\n</system-reminder>";
    assert_eq!(
        contents(&upstream.last().messages()),
        ["A", "a", "Hi.", reminder, "b"]
    );
    // Instructions that are added to a conversation that has nothing else.
    let items = |role: &str, text: &str| json!({"items": [{"role": role, "content": text}]});
    let made = app
        .post("/v1/conversations", &items("system", "A"))
        .await
        .json();
    let path = format!("/v1/conversations/{}/items", made["id"].as_str().unwrap());
    app.post(&path, &items("system", "B")).await.json();
    app.post(&path, &items("user", "a")).await.json();
    let page = app.get(&format!("{path}?order=asc")).await.json();
    let texts: Vec<&str> = page["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(text_of)
        .collect();
    assert_eq!(texts, ["A", "B", "a"]);
    create(
        &app,
        with(stored(json!("b")), "conversation", made["id"].clone()),
    )
    .await;
    assert_eq!(contents(&upstream.last().messages()), ["A\n\nB", "a", "b"]);
}

#[tokio::test]
async fn the_oldest_turns_are_left_out_of_a_prompt_that_is_too_long() {
    let refusal = "This model's maximum context length is 5 messages.";
    let upstream = ScriptedUpstream::answering(move |request| match request.messages().len() {
        0..=5 => text("Hi."),
        _ => error(400, refusal),
    })
    .await;
    let app = TestApp::with_upstream(&upstream).await;
    let mut items = vec![json!({"role": "system", "content": "s"})];
    for turn in ["a", "b", "c", "d"] {
        items.push(json!({"role": "user", "content": turn}));
        items.push(json!({"role": "assistant", "content": turn}));
    }
    items.push(json!({"role": "user", "content": "e"}));
    let body = stored(json!(items));
    let refused = app.post(PATH, &body).await;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json()["error"]["message"], refusal);
    let body = with(body, "truncation", json!("auto"));
    let response = create(&app, body.clone()).await;
    assert_eq!(response["truncation"], "auto");
    assert_eq!(response["agent"]["notices"][0]["kind"], "truncated");
    assert_eq!(contents(&upstream.last().messages()), ["s", "d", "d", "e"]);
    // The history has all of it.
    let path = format!(
        "{PATH}/{}/input_items?limit=100",
        response["id"].as_str().unwrap()
    );
    let page = app.get(&path).await.json();
    assert_eq!(page["data"].as_array().unwrap().len(), items.len());
    // A last turn that is too long by itself is refused.
    let input: Vec<Value> = (0..6)
        .map(|_| json!({"role": "user", "content": "x"}))
        .collect();
    let refused = app.post(PATH, &with(body, "input", json!(input))).await;
    assert_eq!(refused.json()["error"]["message"], refusal);
}

#[tokio::test]
async fn a_stored_image_is_shown_to_the_model() {
    let upstream = ScriptedUpstream::answering(|_| text("A dot.")).await;
    let app = TestApp::with_upstream(&upstream).await;
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    png.resize(64, 7);
    let image = uploaded(app.client(), "dot.png", &png).await["id"].clone();
    let table = uploaded(app.client(), "a.csv", b"a,b\n1,2\n").await["id"].clone();
    let say = |id: &Value| {
        let image = json!({"type": "input_image", "file_id": id, "detail": "low"});
        json!([{"role": "user", "content": [{"type": "input_text", "text": "What?"}, image]}])
    };
    let shown = json!({"type": "image_url", "image_url": {
        "url": format!("data:image/png;base64,{}", STANDARD.encode(&png)), "detail": "low"}});
    let first = create(&app, stored(say(&image))).await;
    assert_eq!(upstream.last().messages()[0]["content"][1], shown);
    create(&app, next(&first, json!("Sure?"))).await;
    assert_eq!(upstream.last().messages()[0]["content"][1], shown);
    create(&app, with(stored(say(&image)), "store", json!(false))).await;
    assert_eq!(upstream.last().messages()[0]["content"][1], shown);
    let path = format!("{PATH}/{}/input_items", first["id"].as_str().unwrap());
    let listed = app.get(&path).await.json();
    let expected = json!({"type": "input_image", "file_id": image, "detail": "low"});
    assert_eq!(listed["data"][0]["content"][1], expected);
    let unknown = json!("file-00000000000000000000000000000000");
    for wrong in [table, unknown, json!("x"), json!(7)] {
        let answer = app.post(PATH, &stored(say(&wrong))).await;
        answer.assert_error(400, None);
        assert_eq!(
            answer.json()["error"]["param"],
            "input[0].content[1].file_id",
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn an_output_of_a_call_that_the_session_does_not_hold_is_refused() {
    let upstream = ScriptedUpstream::start([calls([("mine", json!({}))]), text("Done.")]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let body = with(stored(json!("Go")), "tools", json!([function("mine")]));
    let first = create(&app, body).await;
    let output =
        |call: &Value| json!([{"type": "function_call_output", "call_id": call, "output": "2"}]);
    let unknown = output(&json!("call_unknown"));
    for body in [
        next(&first, unknown.clone()),
        with(
            stored(unknown.clone()),
            "conversation",
            first["session_id"].clone(),
        ),
        with(stored(unknown.clone()), "session_id", json!("another")),
        stored(unknown),
    ] {
        let answer = app.post(PATH, &body).await;
        answer.assert_error(400, Some("no_tool_call_found"));
        assert_eq!(answer.json()["error"]["param"], "input");
    }
    let known = next(&first, output(&first["output"][0]["call_id"]));
    assert_eq!(text_of(&create(&app, known).await["output"][0]), "Done.");
}

#[tokio::test]
async fn the_input_is_appended_to_the_session_that_a_body_names() {
    let upstream = ScriptedUpstream::start(["One.", "Two.", "Three.", "Four."].map(text)).await;
    let app = TestApp::with_upstream(&upstream).await;
    let named = |input: Value| with(stored(input), "session_id", json!("s"));
    let first = create(&app, named(json!("a"))).await;
    assert_eq!(first["session_id"], "s");
    // A replay would take the assistant's words for an edit, and drop the history before them.
    let new = json!([
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "An example."},
        {"role": "user", "content": "c"},
    ]);
    let second = create(&app, named(new.clone())).await;
    let sent = upstream.request(1).messages();
    let expected = ["a", "One.", "b", "An example.", "c"];
    assert_eq!(contents(&sent), expected);
    // The words of a request win over where the ids of its items lead to.
    let elsewhere = create(&app, stored(json!("x"))).await;
    let mut items = elsewhere["output"].as_array().unwrap().clone();
    items.push(json!({"role": "user", "content": "d"}));
    let third = create(&app, named(json!(items))).await;
    assert_eq!(third["session_id"], second["session_id"]);
    let sent = upstream.request(3).messages();
    let expected = ["a", "One.", "b", "An example.", "c", "Two.", "Three.", "d"];
    assert_eq!(contents(&sent), expected);
}

#[tokio::test]
async fn a_request_may_say_that_it_replays_the_session_that_it_names() {
    let upstream = ScriptedUpstream::start(["One.", "Two."].map(text)).await;
    let app = TestApp::with_upstream(&upstream).await;
    let named = |input: Value| with(stored(input), "session_id", json!("s"));
    create(&app, named(json!("a"))).await;
    let whole = json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "One."},
        {"role": "user", "content": "b"},
    ]);
    let replayed = with(named(whole), "agent", json!({"session_mode": "replay"}));
    create(&app, replayed).await;
    assert_eq!(
        contents(&upstream.request(1).messages()),
        ["a", "One.", "b"]
    );
}
