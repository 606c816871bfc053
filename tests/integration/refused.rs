//! Turns that fail before their first round was stored: the session is as it was before the request, in every dialect.

use serde_json::{Value, json};

use super::files::uploaded;
use super::support::app::TestApp;
use super::support::ask::{ask, assistant, tool, user, with};
use super::support::client::{Answer, Client};
use super::support::eventually;
use super::support::recorded::Recorded;
use super::support::script::{calls, error, reset, text};
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::{self, Webhook};

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";

/// What a model server does with a turn that it refuses.
const FAILURES: [&str; 4] = ["refuse", "reset", "break", "limit"];

/// A request: where it goes, and its body.
type Request = (&'static str, Value);

fn last_user(request: &Recorded) -> Value {
    let messages = request.messages();
    let asked = messages.iter().rfind(|message| message["role"] == "user");
    asked.unwrap()["content"].clone()
}

/// A model server that fails the turns that ask for it, and answers all others.
async fn model_server() -> ScriptedUpstream {
    ScriptedUpstream::answering(|request| {
        let asked = match last_user(request) {
            Value::Array(parts) => parts[0]["text"].clone(),
            text => text,
        };
        match asked.as_str().unwrap_or_default() {
            "refuse" => error(400, "this model takes no images"),
            "reset" => reset(),
            "break" => text("one two three").cut_after(3),
            "limit" => calls([("t", json!({}))]),
            _ => text("Fine."),
        }
    })
    .await
}

async fn server(upstream: &ScriptedUpstream) -> (TestApp, Webhook) {
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let builder = TestApp::builder().upstream(upstream).dispatch(&hook);
    let app = builder.toml("[retry]\nmax_attempts = 1").start().await;
    (app, hook)
}

/// A request that asks for this failure. The limit is one on tool calls, of which the model asks for one.
fn failing((path, body): Request, failure: &str, streamed: bool) -> Request {
    let body = with(body, "stream", json!(streamed));
    if failure != "limit" {
        return (path, body);
    }
    let mut agent = body["agent"].clone();
    agent["on_limit"] = json!("error");
    agent["limits"] = json!({"max_tool_calls": 0});
    let tools = match path {
        CHAT => json!([tool("t")]),
        _ => json!([{"type": "function", "name": "t", "parameters": {"type": "object"}}]),
    };
    (path, with(with(body, "agent", agent), "tools", tools))
}

/// Sends a request whose turn fails.
async fn fail(client: &Client, (path, body): &Request) -> Answer {
    let answer = client.post(path, body).await;
    let failed = answer.status != 200 || answer.text().contains("\"error\":{");
    assert!(failed, "{body}: {}", answer.text());
    let is_limited = body["agent"]["on_limit"] == "error";
    assert_eq!(answer.text().contains("agent_limit_exceeded"), is_limited);
    answer
}

/// What is shown of all sessions.
async fn sessions(client: &Client) -> Vec<Value> {
    let list = client.get("/v1/sessions?limit=100").await.json();
    let mut shown = vec![list.clone()];
    for row in list["data"].as_array().unwrap() {
        let path = format!("/v1/sessions/{}", row["id"].as_str().unwrap());
        shown.push(client.get(&path).await.json());
    }
    shown
}

/// The same, once no run holds a session any more.
async fn settled(client: &Client) -> Vec<Value> {
    eventually("the end of the runs", async || {
        let shown = sessions(client).await;
        let rows = shown[0]["data"].as_array().unwrap();
        let is_idle = rows.iter().all(|row| row["running"].is_null());
        is_idle.then_some(shown)
    })
    .await
}

fn contents(request: &Recorded) -> Vec<Value> {
    let messages = request.messages();
    let contents = messages.iter().map(|message| message["content"].clone());
    contents.collect()
}

#[tokio::test]
async fn a_first_turn_that_fails_leaves_no_session() {
    let upstream = model_server().await;
    let (app, hook) = server(&upstream).await;
    let chat = |failure: &str| with(ask(failure), "session_id", json!("s"));
    let response = |failure: &str| json!({"model": "m", "input": failure});
    for failure in FAILURES {
        let ways = [
            (CHAT, chat(failure)),
            (
                CHAT,
                with(chat(failure), "agent", json!({"session_mode": "append"})),
            ),
            (
                CHAT,
                with(chat(failure), "agent", json!({"session_mode": "replay"})),
            ),
            (RESPONSES, response(failure)),
            (RESPONSES, with(response(failure), "session_id", json!("s"))),
        ];
        for (number, way) in ways.into_iter().enumerate() {
            for streamed in [false, true] {
                fail(app.client(), &failing(way.clone(), failure, streamed)).await;
                let left = settled(app.client()).await;
                assert_eq!(left.len(), 1, "{failure} {number} {streamed}: {left:?}");
            }
        }
    }
    assert_eq!(hook.calls().len(), 0);
    assert_eq!(app.post_chat(chat("Go")).await.content(), "Fine.");
    assert_eq!(contents(&upstream.last()), ["Go"]);
}

#[tokio::test]
async fn a_later_turn_that_fails_changes_nothing_of_its_session() {
    let upstream = model_server().await;
    let (app, hook) = server(&upstream).await;
    let client = app.client();
    let first = with(
        json!({"model": "m", "input": "Go"}),
        "session_id",
        json!("s"),
    );
    let first = with(first, "instructions", json!("Be brief."));
    let first = client.post(RESPONSES, &first).await.json();
    let system = json!({"role": "system", "content": "Be kind."});
    let before = settled(client).await;
    for failure in FAILURES {
        let chat = |messages: Value, mode: &str| {
            let body = json!({"model": "m", "messages": messages, "session_id": "s"});
            (CHAT, with(body, "agent", json!({"session_mode": mode})))
        };
        let response = |field: &str, value: &Value| {
            let body = json!({"model": "m", "input": failure});
            (RESPONSES, with(body, field, value.clone()))
        };
        let seen = [user("Go"), assistant("Fine.")];
        let ways = [
            chat(json!([system, user(failure)]), "auto"),
            chat(json!([user(failure)]), "append"),
            // An edit, and the whole conversation with one question more.
            chat(json!([user(failure)]), "replay"),
            chat(json!([seen[0], seen[1], user(failure)]), "replay"),
            response("previous_response_id", &first["id"]),
            response("conversation", &json!("s")),
            response("session_id", &json!("s")),
        ];
        for (number, way) in ways.into_iter().enumerate() {
            for streamed in [false, true] {
                fail(client, &failing(way.clone(), failure, streamed)).await;
                let after = settled(client).await;
                assert_eq!(after, before, "{failure} {number} {streamed}");
            }
        }
    }
    assert_eq!(hook.calls().len(), 0);
    // The next turns do not see what failed.
    for (field, value) in [
        ("previous_response_id", &first["id"]),
        ("conversation", &json!("s")),
    ] {
        let body = with(json!({"model": "m", "input": "More"}), field, value.clone());
        assert_eq!(client.post(RESPONSES, &body).await.status, 200);
        assert_eq!(contents(&upstream.last())[..2], ["Go", "Fine."]);
        let asked = contents(&upstream.last());
        assert!(!asked.contains(&json!("refuse")), "{asked:?}");
    }
    let body = with(ask("Last"), "session_id", json!("s"));
    assert_eq!(client.post_chat(body).await.content(), "Fine.");
    let expected = ["Go", "Fine.", "More", "Fine.", "More", "Fine.", "Last"];
    assert_eq!(contents(&upstream.last()), expected);
}

#[tokio::test]
async fn the_record_of_a_run_keeps_the_error_and_nothing_else_is_left() {
    let upstream = model_server().await;
    let (app, _hook) = server(&upstream).await;
    let client = app.client();
    let chat = with(ask("refuse"), "agent", json!({"background": true}));
    let chat = client.post_chat(with(chat, "session_id", json!("s")));
    let run = chat.await.json()["id"].as_str().unwrap().to_owned();
    let read = eventually("the stored error", async || {
        let read = client.get(&format!("{CHAT}/{run}")).await;
        (read.status != 202).then_some(read)
    });
    let read = read.await;
    assert_eq!(read.status, 400);
    assert!(read.text().contains("takes no images"), "{}", read.text());
    let body = json!({"model": "m", "input": "refuse", "background": true});
    let made = client.post(RESPONSES, &body).await.json();
    let path = format!("{RESPONSES}/{}", made["id"].as_str().unwrap());
    let read = eventually("the failed response", async || {
        let read = client.get(&path).await.json();
        (read["status"] == "failed").then_some(read)
    });
    assert_eq!(read.await["error"]["message"], "this model takes no images");
    assert_eq!(settled(client).await.len(), 1);
    // A response that failed is nothing to go on from.
    let next = json!({"model": "m", "input": "Go", "previous_response_id": made["id"]});
    let answer = client.post(RESPONSES, &next).await;
    answer.assert_error(400, Some("previous_response_not_found"));
}

#[tokio::test]
async fn a_fork_for_a_turn_that_fails_is_gone() {
    let upstream = model_server().await;
    let (app, _hook) = server(&upstream).await;
    let client = app.client();
    let mut body = json!({"model": "m", "input": "Go"});
    let first = client.post(RESPONSES, &body).await.json();
    body["previous_response_id"] = first["id"].clone();
    client.post(RESPONSES, &body).await.json();
    let before = settled(client).await;
    body["input"] = json!("refuse");
    let unknown = json!([{"role": "user", "content": [{"type": "input_image", "file_id": "file-00000000000000000000000000000000"}]}]);
    let unanswered = json!([{"type": "function_call_output", "call_id": "call_1", "output": "x"}]);
    for input in [json!("refuse"), unknown, unanswered] {
        body["input"] = input;
        fail(client, &(RESPONSES, body.clone())).await;
        assert_eq!(settled(client).await, before, "{body}");
    }
    body["input"] = json!("More");
    assert_eq!(client.post(RESPONSES, &body).await.status, 200);
    assert_eq!(contents(&upstream.last()), ["Go", "Fine.", "More"]);
    assert_eq!(settled(client).await.len(), before.len() + 1);
}

#[tokio::test]
async fn a_file_belongs_to_the_session_once_its_turn_is_stored() {
    let upstream = model_server().await;
    let (app, _hook) = server(&upstream).await;
    let client = app.client();
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    png.resize(64, 7);
    let image = uploaded(client, "dot.png", &png).await;
    let path = format!("/v1/files/{}", image["id"].as_str().unwrap());
    let first = json!({"model": "m", "input": "Go", "session_id": "s"});
    client.post(RESPONSES, &first).await.json();
    let before = settled(client).await;
    let say = |text: &str, session: &str| {
        let image = json!({"type": "input_image", "file_id": image["id"]});
        let input =
            json!([{"role": "user", "content": [{"type": "input_text", "text": text}, image]}]);
        json!({"model": "m", "input": input, "session_id": session})
    };
    for session in ["s", "new"] {
        fail(client, &(RESPONSES, say("refuse", session))).await;
        assert_eq!(settled(client).await, before, "{session}");
        assert_eq!(client.get(&path).await.json(), image);
    }
    assert_eq!(client.post(RESPONSES, &say("Look", "s")).await.status, 200);
    let stored = client.get("/v1/sessions/s").await.json();
    assert_eq!(stored["files"][0]["id"], image["id"], "{stored}");
    assert_eq!(client.get(&path).await.json()["session_id"], "s");
}

#[tokio::test]
async fn a_response_that_failed_after_a_round_is_continued_by_its_retry_alone() {
    let upstream = ScriptedUpstream::answering(|request| {
        let asked = last_user(request);
        let messages = request.messages();
        let turn = messages
            .iter()
            .rposition(|message| message["role"] == "user");
        let has_paid = messages[turn.unwrap()..]
            .iter()
            .any(|it| it["role"] == "tool");
        match (asked.as_str().unwrap(), has_paid) {
            ("Pay", false) => calls([("t", json!({}))]),
            ("Pay", true) if request.body["temperature"] != 0 => error(400, "no"),
            _ => text("Fine."),
        }
    })
    .await;
    let (app, hook) = server(&upstream).await;
    let client = app.client();
    let first = json!({"model": "m", "input": "Go"});
    let first = client.post(RESPONSES, &first).await.json();
    let tools = json!([{"type": "function", "name": "t", "parameters": {"type": "object"}}]);
    let next = |input: &str| {
        let body = json!({"model": "m", "input": input, "previous_response_id": first["id"]});
        with(
            with(body, "tools", tools.clone()),
            "agent",
            json!({"client_tools": []}),
        )
    };
    fail(client, &(RESPONSES, next("Pay"))).await;
    let failed = settled(client).await;
    assert_eq!(failed[1]["messages"].as_array().unwrap().len(), 5);
    // Another question continues after the response that it names, and what was done stays where it is.
    let other = client.post(RESPONSES, &next("More")).await.json();
    assert_eq!(contents(&upstream.last()), ["Go", "Fine.", "More"]);
    assert_ne!(other["session_id"], first["session_id"]);
    let kept = settled(client).await;
    assert!(kept.contains(&failed[1]), "{kept:?}");
    // The same question goes on from the completed round.
    let retry = with(next("Pay"), "temperature", json!(0));
    let retried = client.post(RESPONSES, &retry).await.json();
    assert_eq!(retried["session_id"], first["session_id"], "{retried}");
    assert_eq!(hook.calls().len(), 1, "the tool has run once");
}

#[tokio::test]
async fn a_chat_goes_on_after_a_question_that_was_refused() {
    let upstream = ScriptedUpstream::start([
        error(400, "no images"),
        text("Fine."),
        error(413, "too large"),
        text("Better."),
    ])
    .await;
    let (app, _hook) = server(&upstream).await;
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    let picture = json!({"role": "user", "content": [image]});
    let send = async |messages: Value| {
        let body = json!({"model": "m", "messages": messages, "session_id": "s"});
        app.post_chat(body).await
    };
    send(json!([picture])).await.assert_error(400, None);
    assert_eq!(send(json!([user("Words")])).await.content(), "Fine.");
    assert_eq!(contents(&upstream.last()), ["Words"]);
    send(json!([picture])).await.assert_error(413, None);
    let all = json!([user("Words"), assistant("Fine."), user("More")]);
    assert_eq!(send(all).await.content(), "Better.");
    assert_eq!(contents(&upstream.last()), ["Words", "Fine.", "More"]);
}
