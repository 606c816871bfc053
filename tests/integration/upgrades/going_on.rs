//! Going on with everything that is stored.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};

use super::kept::Writing;
use super::told::{self, Told};
use super::written::{accepted, created, edit, ended, more};
use super::{input, nameless, people, repeated, turn};
use crate::support::app::TestApp;
use crate::support::ask::{user, with};
use crate::support::client::Client;
use crate::support::eventually;
use crate::support::upstream::ScriptedUpstream;

/// Holds what is told against what was told, goes on, and starts twice more.
pub(super) async fn all(app: &mut TestApp, upstream: &ScriptedUpstream, kept: &Writing) {
    let ids = &kept.ids;
    compare(&kept.told, &told::of(app, ids).await);
    let [alice, bob] = people(app);
    let foreign = format!("/v1/chat/completions/{}", text(&ids["runs"][0]));
    assert_eq!(bob.get(&foreign).await.status, 404);
    keys(&alice).await;
    calls_of_the_client(&alice, upstream, &ids["waiting"]).await;
    responses(&alice, upstream, &ids["responses"]).await;
    every_session(&alice).await;
    every_session(&bob).await;
    forks(&alice).await;
    let before = told::of(app, ids).await;
    app.restart().await;
    compare(&before, &told::of(app, ids).await);
    let [alice, bob] = people(app);
    files(&alice).await;
    for client in [&alice, &bob] {
        delete_all(client).await;
    }
    app.restart().await;
    for client in people(app) {
        assert_eq!(listed(&client, "/v1/sessions").await, Vec::<String>::new());
        assert_eq!(listed(&client, "/v1/files").await, Vec::<String>::new());
    }
    let [alice, _] = people(app);
    more(&alice, "plain").await;
}

/// Fails with what differs.
fn compare(before: &Told, after: &Told) {
    let differing = |path: &&String| before.get(*path) != after.get(*path);
    let paths = before.keys().chain(after.keys()).filter(differing);
    let differing: BTreeMap<&String, [Option<&Value>; 2]> = paths
        .map(|path| (path, [before.get(path), after.get(path)]))
        .collect();
    assert!(differing.is_empty(), "{differing:#?}");
}

/// Requests that are repeated under their keys: one gets the stored answer, one that was broken off is finished.
async fn keys(alice: &Client) {
    let [(held, key), (broken, broken_key)] = repeated();
    let answer = alice
        .header("idempotency-key", key)
        .post_chat(held.clone())
        .await;
    assert_eq!(answer.header("idempotency-replayed"), Some("true"));
    assert_eq!(answer.content(), "Let me look.\n\nre Look");
    let other = with(held, "user", json!("somebody"));
    let reused = alice.header("idempotency-key", key).post_chat(other).await;
    reused.assert_error(422, Some("idempotency_key_reused"));
    let with_key = alice.header("idempotency-key", broken_key);
    let run = accepted(&with_key.post_chat(broken).await);
    assert_eq!(ended(alice, &run).await.content(), "re Never end");
    let stored = alice.get("/v1/sessions/broken").await.json();
    let told = stored["messages"][4]["content"].as_str().unwrap();
    assert!(told.contains("interrupted"), "{stored}");
}

/// The client answers what it was asked, and the turns go on.
async fn calls_of_the_client(alice: &Client, upstream: &ScriptedUpstream, waiting: &Value) {
    for (name, as_named) in [("named", true), ("unnamed", false)] {
        let session = text(&waiting[name]);
        let path = format!("/v1/sessions/{session}");
        let stored = alice.get(&path).await.json()["messages"].clone();
        let calls = stored[1]["tool_calls"].as_array().unwrap();
        let call = calls.iter().find(|call| call["function"]["name"] == "mine");
        let result = json!({"role": "tool", "tool_call_id": call.unwrap()["id"], "content": "client result"});
        let body = match as_named {
            true => turn(session, &json!([result])),
            false => nameless(&json!([
                user("Use both"),
                {"role": "assistant", "content": "Both.", "tool_calls": [call.unwrap()]},
                result
            ])),
        };
        let answer = alice.post_chat(body).await;
        assert_eq!(answer.content(), "re Use both");
        assert_eq!(answer.json()["session_id"], session);
        assert_both_results(upstream);
    }
    let path = format!("/v1/responses/{}", text(&waiting["response"]));
    let response = alice.get(&path).await.json();
    let items = response["output"].as_array().unwrap();
    let call = items.iter().find(|item| item["type"] == "function_call");
    let output = json!({"type": "function_call_output", "call_id": call.unwrap()["call_id"], "output": "client result"});
    let body = with(
        input(&json!([output])),
        "previous_response_id",
        response["id"].clone(),
    );
    let answer = created(alice, body).await;
    assert_eq!(answer["session_id"], response["session_id"]);
    assert_both_results(upstream);
}

fn assert_both_results(upstream: &ScriptedUpstream) {
    let results = upstream.last().tool_results();
    let results: Vec<&str> = results.iter().map(|(_, result)| result.as_str()).collect();
    assert_eq!(results, ["client result", "server result"]);
}

/// The newest response goes on in its session, an older one is forked, and a conversation goes on.
async fn responses(alice: &Client, upstream: &ScriptedUpstream, ids: &Value) {
    let session = async |id: &Value| {
        let response = alice.get(&format!("/v1/responses/{}", text(id))).await;
        response.json()["session_id"].clone()
    };
    let ask = async |field: &str, id: &Value| {
        let body = with(input(&json!("More")), field, id.clone());
        created(alice, body).await["session_id"].clone()
    };
    let roles = |expected: &[&str]| assert_eq!(upstream.last().roles(), expected);
    let second = session(&ids["second"]).await;
    assert_eq!(ask("previous_response_id", &ids["second"]).await, second);
    let look = ["user", "assistant", "tool", "tool", "assistant", "tool"];
    let begun = ["user", "assistant"];
    roles(&[&begun[..], &look, &["assistant", "user"]].concat());
    assert_ne!(ask("previous_response_id", &ids["first"]).await, second);
    roles(&["user", "assistant", "user"]);
    let much = session(&ids["much"]).await;
    assert_eq!(ask("previous_response_id", &ids["much"]).await, much);
    roles(&[&begun[..], &begun, &begun, &["user"]].concat());
    assert_eq!(
        ask("conversation", &ids["conversation"]).await,
        ids["conversation"]
    );
    let said = ["assistant", "user", "user"];
    roles(&[&["system", "user"], &look[..], &said].concat());

    let path = format!("/v1/conversations/{}", text(&ids["conversation"]));
    let changed = json!({"metadata": {"topic": "ships"}});
    let changed = alice.post(&path, &changed).await.json();
    assert_eq!(changed["metadata"]["topic"], "ships");
    let items = format!("{path}/items?order=asc&limit=100");
    let before = alice.get(&items).await.json()["data"].clone();
    let mut left = before.as_array().unwrap().clone();
    let deleted = left.remove(1);
    let deleted = format!("{path}/items/{}", text(&deleted["id"]));
    assert_eq!(alice.delete(&deleted).await.status, 200);
    let after = alice.get(&items).await.json();
    assert_eq!(after["data"], json!(left));
}

/// A turn more in each session.
async fn every_session(client: &Client) {
    for path in listed(client, "/v1/sessions").await {
        let mut expected = history(client, &path).await;
        let (_, session) = path.rsplit_once('/').unwrap();
        more(client, session).await;
        let now = history(client, &path).await;
        if expected
            .last()
            .is_some_and(|last| last["tool_calls"].is_array())
        {
            let told = now[expected.len()].clone();
            assert!(text(&told["content"]).contains("interrupted"), "{told}");
            expected.push(told);
        }
        expected.push(user("More"));
        let (said, begun) = now.split_last().unwrap();
        assert_eq!(begun, expected, "{path}");
        assert_eq!(said["content"], "re More");
    }
}

async fn history(client: &Client, path: &str) -> Vec<Value> {
    let stored = client.get(path).await.json();
    stored["messages"].as_array().unwrap().clone()
}

/// Forks that are changed, and whose source is deleted.
async fn forks(alice: &Client) {
    for id in [
        "plain",
        "rounds",
        "long",
        "large",
        "large-fork",
        "large-fork-of-fork",
        "large-edited",
    ] {
        let path = format!("/v1/sessions/{id}");
        let whole = alice.get(&path).await.json();
        let messages = whole["messages"].as_array().unwrap();
        let fork = format!("{id}-again");
        let forked = alice
            .post(&format!("{path}/fork"), &json!({"id": fork}))
            .await;
        assert_eq!(forked.status, 201, "{}", forked.text());
        let copy = format!("/v1/sessions/{fork}");
        let copied = alice.get(&copy).await.json();
        for part in ["messages", "agent"] {
            assert_eq!(copied[part], whole[part], "{part} of {fork}");
        }
        assert_eq!(
            copied["files"].as_array().map(Vec::len),
            whole["files"].as_array().map(Vec::len)
        );
        more(alice, &fork).await;
        if id.starts_with("large") {
            edit(alice, &fork, &messages[..10]).await;
        }
        assert_eq!(alice.get(&path).await.json(), whole, "{id}");
    }
    let fork = "/v1/sessions/large-fork";
    let before = alice.get(fork).await.json();
    assert_eq!(alice.delete("/v1/sessions/large").await.status, 200);
    assert_eq!(alice.get("/v1/sessions/large").await.status, 404);
    assert_eq!(alice.get(fork).await.json(), before);
    let import = json!({"messages": before["messages"], "agent": before["agent"]});
    let put = alice.send(Method::PUT, "/v1/sessions/large", &import).await;
    assert_eq!(put.status, 201, "{}", put.text());
    assert_eq!(
        history(alice, "/v1/sessions/large").await,
        *before["messages"].as_array().unwrap()
    );
}

/// A file of two sessions goes with the second one; another one goes when it is told to.
async fn files(alice: &Client) {
    let files = alice.get("/v1/files?limit=100").await.json();
    let named = |name: &str| {
        let mut files = files["data"].as_array().unwrap().iter();
        let file = files.rfind(|file| file["filename"] == name);
        format!("/v1/files/{}", text(&file.unwrap()["id"]))
    };
    let [own, shared] = ["own.txt", "of-the-session.txt"].map(named);
    for (session, status) in [("rounds", 200), ("rounds-fork", 200), ("rounds-again", 404)] {
        let path = format!("/v1/sessions/{session}");
        assert_eq!(alice.delete(&path).await.status, 200);
        // Of a large session it goes a moment later.
        eventually("the status of the file", || async {
            (alice.get(&shared).await.status == status).then_some(())
        })
        .await;
    }
    let content = alice.get(&format!("{own}/content")).await;
    assert_eq!(content.text(), "own");
    assert_eq!(alice.delete(&own).await.status, 200);
    assert_eq!(alice.get(&own).await.status, 404);
}

async fn delete_all(client: &Client) {
    for list in ["/v1/sessions", "/v1/files"] {
        for path in listed(client, list).await {
            // A file may have gone with its session.
            let status = client.delete(&path).await.status;
            assert!(status == 200 || list == "/v1/files", "{path}: {status}");
        }
    }
}

/// The paths of what is in a list.
async fn listed(client: &Client, list: &str) -> Vec<String> {
    let page = client.get(&format!("{list}?limit=100")).await.json();
    assert_eq!(page["has_more"], false);
    let entries = page["data"].as_array().unwrap().iter();
    entries
        .map(|entry| format!("{list}/{}", text(&entry["id"])))
        .collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}
