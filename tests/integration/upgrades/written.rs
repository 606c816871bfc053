//! What a process has written before it is killed.

use http::Method;
use serde_json::{Value, json};

use super::{CHAT_HEADER, LONG, in_background, input, long, nameless, people, repeated, turn};
use crate::files::{uploaded, uploaded_for};
use crate::support::app::TestApp;
use crate::support::ask::{assistant, user, with};
use crate::support::client::{Answer, Client};
use crate::support::eventually;
use crate::support::webhook::Webhook;

/// Turns of the large session. Of more messages than a fork copies, SQLite makes a trunk.
const TURNS: usize = 40;

/// Writes a bit of everything. Returns the ids by which it is found again; two runs are still going on.
pub(super) async fn fill(app: &TestApp, hook: &Webhook) -> Value {
    let [alice, bob] = people(app);
    let mut runs = chats(&alice, &bob).await;
    forks(&alice).await;
    let waiting = calls_of_the_client(&alice).await;
    let responses = responses(&alice).await;
    runs.extend(in_the_background(&alice).await);
    uploaded(&alice, "own.txt", b"own").await;
    let [(held, key), (broken, broken_key)] = repeated();
    let held = alice
        .header("idempotency-key", key)
        .post_chat(held)
        .await
        .completion();
    runs.push(held["id"].clone());
    let with_key = alice.header("idempotency-key", broken_key);
    runs.push(accepted(&with_key.post_chat(broken).await));
    let broken = in_background(input(&json!("Never end")));
    let broken = alice.post("/v1/responses", &broken).await;
    assert_eq!(broken.status, 200, "{}", broken.text());
    let broken = broken.json()["id"].clone();
    eventually("the calls that never end", || async {
        let calls = hook.calls();
        let hanging = calls.iter().filter(|call| call.name == "hang");
        (hanging.count() == 2).then_some(())
    })
    .await;
    let made = responses.as_object().unwrap().values();
    let all = made.chain(waiting.as_object().unwrap().values());
    let all = all.filter(|id| id.as_str().unwrap().starts_with("resp_"));
    runs.extend(all.cloned());
    runs.push(broken.clone());
    json!({"runs": runs, "waiting": waiting, "responses": responses, "broken": broken})
}

async fn chats(alice: &Client, bob: &Client) -> Vec<Value> {
    let system = |text: &str| json!({"role": "system", "content": text});
    let mut runs = Vec::new();
    for (id, messages) in [
        ("plain", json!([system("Be brief."), user("Q1")])),
        ("plain", json!([user("Q2")])),
        ("rounds", json!([user("Look")])),
        ("rounds", json!([user("Look closely")])),
        (
            "long",
            json!([system(&long("Rule", LONG)), user("Say much")]),
        ),
        ("long", json!([user(&long("Said", 20_000))])),
        ("long", json!([user(&long("Told", LONG))])),
        ("doomed", json!([user("Say much")])),
        ("unfinished", json!([user("Look closely")])),
    ] {
        let answer = alice.post_chat(turn(id, &messages)).await.completion();
        if !["doomed", "unfinished"].contains(&id) {
            runs.push(answer["id"].clone());
        }
    }
    bob.post_chat(turn("plain", &json!([user("Mine?")])))
        .await
        .completion();
    let nameless = nameless(&json!([user("Look")]));
    let in_chat = alice.header(CHAT_HEADER, "chat-1");
    for client in [alice, &in_chat] {
        let answer = client.post_chat(nameless.clone()).await.completion();
        runs.push(answer["id"].clone());
    }
    uploaded_for(alice, "rounds", "of-the-session.txt", b"of the session").await;
    runs
}

async fn forks(alice: &Client) {
    let messages: Vec<Value> = (0..TURNS)
        .flat_map(|number| {
            [
                user(&format!("Q{number}")),
                assistant(&format!("A{number}")),
            ]
        })
        .collect();
    let sources =
        json!([{"index": 1, "sources": [{"number": 1, "url": "https://a.test/", "title": "A"}]}]);
    let cited = json!([user("Cite"), assistant("As said [1].")]);
    for (id, messages, agent) in [
        ("large", json!(messages), json!({})),
        ("imported", cited, json!({"message_meta": sources})),
    ] {
        let body = json!({"created_at": 1_780_000_000, "updated_at": 1_780_000_001, "messages": messages, "agent": agent});
        let put = alice
            .send(Method::PUT, &format!("/v1/sessions/{id}"), &body)
            .await;
        assert_eq!(put.status, 201, "{}", put.text());
    }
    more(alice, "large").await;
    for (source, id, before) in [
        ("plain", "plain-fork", None),
        ("rounds", "rounds-fork", None),
        ("long", "long-fork", None),
        ("large", "large-fork", None),
        ("large-fork", "large-fork-of-fork", Some(140)),
        ("large", "large-edited", None),
    ] {
        let mut body = json!({"id": id});
        if let Some(before) = before {
            body["before_message"] = before.into();
        }
        let path = format!("/v1/sessions/{source}/fork");
        let forked = alice.post(&path, &body).await;
        assert_eq!(forked.status, 201, "{}", forked.text());
        more(alice, id).await;
        more(alice, source).await;
        if id == "large-fork" {
            // So many more that its own fork makes a second trunk.
            let mut appended = turn(id, &[&messages[..70], &[user("And")]].concat().into());
            appended["agent"]["session_mode"] = "append".into();
            let answer = alice.post_chat(appended).await;
            assert_eq!(answer.content(), "re And");
        }
    }
    edit(alice, "large-edited", &messages[..30]).await;
}

/// Appends a turn.
pub(super) async fn more(client: &Client, session: &str) {
    let answer = client
        .post_chat(turn(session, &json!([user("More")])))
        .await;
    assert_eq!(answer.content(), "re More", "{session}");
}

/// Replays the first messages and another one.
pub(super) async fn edit(client: &Client, session: &str, first: &[Value]) {
    let mut messages = first.to_vec();
    messages.push(user("Edited"));
    let answer = client.post_chat(turn(session, &messages.into())).await;
    assert_eq!(answer.content(), "re Edited", "{session}");
}

/// Turns that wait for their client: in a session, in none, and a response.
async fn calls_of_the_client(alice: &Client) -> Value {
    let asked = json!([user("Use both")]);
    let named = alice.post_chat(turn("waiting", &asked)).await.completion();
    let unnamed = alice.post_chat(nameless(&asked)).await.completion();
    for answer in [&named, &unnamed] {
        assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
    }
    let response = created(alice, input(&json!("Use both"))).await;
    json!({"named": "waiting", "unnamed": unnamed["session_id"], "response": response["id"]})
}

/// Stored responses one after the other, a fork of the first, and a conversation.
async fn responses(alice: &Client) -> Value {
    let ask = async |text: &str, field: &str, value: &Value| {
        created(alice, with(input(&json!(text)), field, value.clone())).await["id"].clone()
    };
    let asked = with(input(&json!("a")), "instructions", json!("Be brief."));
    let first = created(alice, with(asked, "metadata", json!({"a": "1"}))).await["id"].clone();
    let second = ask("Look", "previous_response_id", &first).await;
    let fork = ask("c", "previous_response_id", &first).await;
    let much = ask("Say much", "previous_response_id", &fork).await;
    let items =
        json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]);
    let body = json!({"items": items, "metadata": {"topic": "trains", "plan": "long"}});
    let made = alice.post("/v1/conversations", &body).await;
    assert_eq!(made.status, 200, "{}", made.text());
    let conversation = made.json()["id"].clone();
    let inside = ask("Look", "conversation", &conversation).await;
    let path = format!("/v1/conversations/{}/items", conversation.as_str().unwrap());
    let added = json!({"items": [{"role": "user", "content": "Sure?"}]});
    let added = alice.post(&path, &added).await;
    assert_eq!(added.status, 200, "{}", added.text());
    json!({"first": first, "second": second, "fork": fork, "much": much, "conversation": conversation, "inside": inside})
}

/// Runs in the background that have ended.
async fn in_the_background(alice: &Client) -> Vec<Value> {
    let mut runs = Vec::new();
    for said in ["Look", "Say much"] {
        let chat = in_background(turn("background", &json!([user(said)])));
        runs.push(accepted(&alice.post_chat(chat).await));
        let response = in_background(input(&json!(said)));
        let response = alice.post("/v1/responses", &response).await;
        runs.push(response.json()["id"].clone());
        for run in &runs {
            ended(alice, run).await;
        }
    }
    runs
}

/// The id of a run in the background.
pub(super) fn accepted(answer: &Answer) -> Value {
    assert_eq!(answer.status, 202, "{}", answer.text());
    answer.json()["id"].clone()
}

/// Waits for the answer of a run.
pub(super) async fn ended(client: &Client, run: &Value) -> Answer {
    let path = format!("/v1/chat/completions/{}", run.as_str().unwrap());
    eventually("the end of a run", || async {
        let answer = client.get(&path).await;
        (answer.status != 202).then_some(answer)
    })
    .await
}

/// Sends a request of the Responses API and takes the response.
pub(super) async fn created(client: &Client, body: Value) -> Value {
    let answer = client.post("/v1/responses", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}
