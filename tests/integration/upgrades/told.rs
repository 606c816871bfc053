//! What a server tells of everything that it stores.

use std::collections::BTreeMap;

use protocol::ids::hex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::people;
use crate::support::app::{Builder, TestApp};
use crate::support::client::{Answer, Client};
use crate::support::{described, eventually};

/// Longest text that is told as it is.
const SHOWN: usize = 200;
/// Longest list that is told as it is.
const LISTED: usize = 10;

/// Answers by the owner who asks and the path.
pub(super) type Told = BTreeMap<String, Value>;

/// Starts a server whose answers need not be what this version describes.
pub(super) async fn started(builder: Builder) -> TestApp {
    let app = builder.start().await;
    described::ended(app.origin());
    app
}

/// Everything that is told, once the runs of the process before are known to be over.
pub(super) async fn of(app: &TestApp, ids: &Value) -> Told {
    let mut told = Told::new();
    let [alice, bob] = people(app);
    for run in ids["runs"].as_array().unwrap() {
        of_run(&alice, run.as_str().unwrap(), &mut told).await;
    }
    for (name, client) in [("alice", alice), ("bob", bob)] {
        let mut asking = Asking {
            name,
            client,
            told: &mut told,
        };
        for path in asking.paths("/v1/sessions").await {
            asking.ask(&path).await;
            let conversation = path.replace("/v1/sessions", "/v1/conversations");
            asking.ask(&conversation).await;
            let items = format!("{conversation}/items?order=asc&limit=100");
            asking.ask(&items).await;
        }
        for path in asking.paths("/v1/files").await {
            asking.ask(&path).await;
            asking.ask(&format!("{path}/content")).await;
        }
    }
    told
}

/// What is told of a run of alice.
async fn of_run(alice: &Client, run: &str, told: &mut Told) {
    let chat = format!("/v1/chat/completions/{run}");
    let response = format!("/v1/responses/{}", run.replace("chatcmpl-", "resp_"));
    eventually("the end of a run", || async {
        let answer = alice.get(&chat).await;
        (answer.status != 202).then_some(())
    })
    .await;
    let mut asking = Asking {
        name: "alice",
        client: alice.clone(),
        told,
    };
    for path in [
        chat.clone(),
        response.clone(),
        format!("{response}/input_items?order=asc&limit=100"),
    ] {
        asking.ask(&path).await;
    }
}

struct Asking<'a> {
    name: &'static str,
    client: Client,
    told: &'a mut Told,
}

impl Asking<'_> {
    /// The paths of what is in a list.
    async fn paths(&mut self, list: &str) -> Vec<String> {
        let path = format!("{list}?limit=100");
        self.ask(&path).await;
        let found = self.client.get(&path).await.json();
        let entries = found["data"].as_array().unwrap().iter();
        entries
            .map(|entry| format!("{list}/{}", entry["id"].as_str().unwrap()))
            .collect()
    }

    async fn ask(&mut self, path: &str) {
        let answer = self.client.get(path).await;
        let shown = json!({"status": answer.status.as_u16(), "body": body(&answer)});
        self.told.insert(format!("{} {path}", self.name), shown);
    }
}

/// The body, of an error its code, with long texts and lists folded.
fn body(answer: &Answer) -> Value {
    match serde_json::from_slice::<Value>(&answer.body) {
        Ok(body) if answer.status.as_u16() >= 400 => body["error"]["code"].clone(),
        Ok(body) => folded(body),
        Err(_) => folded(answer.text().into()),
    }
}

fn folded(value: Value) -> Value {
    match value {
        Value::String(text) if text.len() > SHOWN => {
            let start: String = text.chars().take(20).collect();
            let digest = hex(&Sha256::digest(&text));
            format!("{start}… {} bytes {digest}", text.len()).into()
        }
        Value::Array(list) if list.len() > LISTED => {
            let digest = hex(&Sha256::digest(Value::from(list.as_slice()).to_string()));
            let ends = [&list[0], &list[list.len() - 1]].map(|entry| folded(entry.clone()));
            json!({"entries": list.len(), "digest": digest, "ends": ends})
        }
        Value::Array(list) => list.into_iter().map(folded).collect(),
        Value::Object(members) => {
            let members = members.into_iter();
            Value::Object(members.map(|(name, value)| (name, folded(value))).collect())
        }
        other => other,
    }
}
