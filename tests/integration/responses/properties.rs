//! The same conversation, brought back in every way, is the same for the model.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::super::support::app::TestApp;
use super::super::support::script::{Reply, text, text_and_calls};
use super::super::support::upstream::ScriptedUpstream;
use super::super::support::webhook::{self, Webhook};
use super::{PATH, create, function, with};

/// How many conversations are tried, each in every way.
const CASES: usize = 16;
/// An image of one pixel.
const PNG: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// What the model does in a round.
#[derive(Debug, Clone)]
struct Round {
    text: String,
    thinking: Option<String>,
    calls: Calls,
}

/// Which tools it calls: the server's, the client's, or both.
#[derive(Debug, Clone, Copy)]
enum Calls {
    Server,
    TwoOfServer,
    Client,
    Both,
}

#[derive(Debug, Clone)]
struct Turn {
    user: Value,
    rounds: Vec<Round>,
    text: String,
}

/// How a conversation is brought back.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Previous,
    Conversation,
    Items,
    References,
}

fn words() -> impl Strategy<Value = String> {
    "[a-z][a-z \"\\\\\n{}é]{0,12}[a-z]"
}

fn rounds() -> impl Strategy<Value = Round> {
    let calls = prop_oneof![
        Just(Calls::Server),
        Just(Calls::TwoOfServer),
        Just(Calls::Client),
        Just(Calls::Both)
    ];
    let text = prop_oneof![Just(String::new()), words()];
    (text, proptest::option::of(words()), calls).prop_map(|(text, thinking, calls)| Round {
        text,
        thinking,
        calls,
    })
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let plain = words().prop_map(Value::from);
    let parts = words().prop_map(|text| {
        json!([
            {"type": "input_text", "text": text},
            {"type": "input_image", "image_url": PNG, "detail": "low"},
        ])
    });
    let turn = (
        prop_oneof![plain, parts],
        prop::collection::vec(rounds(), 0..3),
        words(),
    );
    let turn = turn.prop_map(|(user, rounds, text)| Turn { user, rounds, text });
    prop::collection::vec(turn, 1..3)
}

impl Round {
    /// What the model answers. The number makes every call another one.
    fn reply(&self, number: usize) -> Reply {
        let (own, mine) = (json!({"n": number}), json!({"m": number}));
        let reply = match self.calls {
            Calls::Server => text_and_calls(&self.text, [("t", own)]),
            Calls::TwoOfServer => text_and_calls(
                &self.text,
                [("t", own), ("t", json!({"n": number, "two": true}))],
            ),
            Calls::Client => text_and_calls(&self.text, [("mine", mine)]),
            Calls::Both => text_and_calls(&self.text, [("mine", mine), ("t", own)]),
        };
        match &self.thinking {
            Some(thinking) => reply.thinking(thinking),
            None => reply,
        }
    }

    fn ends_response(&self) -> bool {
        matches!(self.calls, Calls::Client | Calls::Both)
    }
}

/// A client that keeps what it sent and received.
struct Conversation<'a> {
    app: &'a TestApp,
    upstream: &'a ScriptedUpstream,
    last: Value,
    items: Vec<Value>,
    /// The ids of the responses.
    responses: Vec<String>,
}

impl Conversation<'_> {
    fn body(input: Value) -> Value {
        let tools = json!([function("t"), function("mine")]);
        json!({"model": "test-model", "input": input, "tools": tools})
    }

    /// Sends what is new after the last response.
    async fn send(&mut self, input: Vec<Value>) {
        let mut body = Self::body(json!(input));
        if let Some(last) = self.last.get("id") {
            body["previous_response_id"] = last.clone();
        }
        self.last = create(self.app, body).await;
        self.items.extend(input);
        let output = self.last["output"].as_array().unwrap();
        self.items.extend(output.iter().cloned());
        self.responses
            .push(self.last["id"].as_str().unwrap().to_owned());
    }

    async fn take(&mut self, turn: &Turn, number: &mut usize) {
        let mut replies: Vec<Reply> = Vec::new();
        let mut inputs = vec![vec![
            json!({"type": "message", "role": "user", "content": turn.user}),
        ]];
        let mut at = vec![0];
        for round in &turn.rounds {
            *number += 1;
            replies.push(round.reply(*number));
            if round.ends_response() {
                inputs.push(Vec::new());
                at.push(replies.len());
            }
        }
        replies.push(text(&turn.text));
        replies
            .into_iter()
            .for_each(|reply| self.upstream.push(reply));
        for (index, mut input) in inputs.into_iter().enumerate() {
            if index > 0 {
                let output = self.last["output"].as_array().unwrap();
                let calls = output.iter().filter(|item| item["type"] == "function_call");
                input.extend(calls.map(|call| {
                    json!({"type": "function_call_output", "call_id": call["call_id"], "output": format!("{index}")})
                }));
            }
            self.send(input).await;
        }
    }

    /// The messages of the model when the conversation goes on.
    async fn brought_back(&self, way: Way) -> Vec<Value> {
        self.upstream.push(text("Yes."));
        let more = json!({"type": "message", "role": "user", "content": "Sure?"});
        let body = match way {
            Way::Previous => with(
                Self::body(json!([more])),
                "previous_response_id",
                self.last["id"].clone(),
            ),
            Way::Conversation => with(
                Self::body(json!([more])),
                "conversation",
                self.last["session_id"].clone(),
            ),
            Way::Items => {
                let mut items = self.items.clone();
                items.push(more);
                Self::body(json!(items))
            }
            Way::References => {
                let mut items = self.references().await;
                items.push(more);
                Self::body(json!(items))
            }
        };
        create(self.app, body).await;
        self.upstream.last().messages()
    }

    /// References to all that requests brought and responses answered.
    async fn references(&self) -> Vec<Value> {
        let mut items = Vec::new();
        for id in &self.responses {
            let path = format!("{PATH}/{id}");
            let input = self
                .app
                .get(&format!("{path}/input_items?order=asc"))
                .await
                .json();
            let output = self.app.get(&path).await.json();
            items.extend(input["data"].as_array().unwrap().iter().cloned());
            items.extend(output["output"].as_array().unwrap().iter().cloned());
        }
        let refer = |item: Value| json!({"type": "item_reference", "id": item["id"]});
        items.into_iter().map(refer).collect()
    }
}

/// The messages without the ids of calls, which differ.
fn anonymous(messages: &[Value]) -> String {
    // A model server knows its calls by ids of its own, or by loopwright's where it does not know what is brought back.
    let mut text = json!(messages)
        .to_string()
        .replace("chatcmpl-tool-", "call_");
    let mut number = 0;
    while let Some(at) = text.find("call_") {
        let id: String = text[at..]
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
            .collect();
        if id == "call_id" {
            text.replace_range(at..at + 1, "C");
            continue;
        }
        number += 1;
        text = text.replace(&id, &format!("id{number}"));
    }
    text
}

#[tokio::test]
async fn a_conversation_that_is_brought_back_in_any_way_is_the_same_for_the_model() {
    let upstream = ScriptedUpstream::start([]).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::builder()
        .upstream(&upstream)
        .dispatch(&hook)
        .toml("dispatch_tools = [\"t\"]")
        .start()
        .await;
    let mut runner = TestRunner::deterministic();
    for _ in 0..CASES {
        let case = turns().new_tree(&mut runner).unwrap().current();
        let mut expected = None;
        for way in [
            Way::Previous,
            Way::Conversation,
            Way::Items,
            Way::References,
        ] {
            let mut conversation = Conversation {
                app: &app,
                upstream: &upstream,
                last: Value::Null,
                items: Vec::new(),
                responses: Vec::new(),
            };
            let mut number = 0;
            for turn in &case {
                conversation.take(turn, &mut number).await;
            }
            let messages = anonymous(&conversation.brought_back(way).await);
            let expected = expected.get_or_insert_with(|| messages.clone());
            assert_eq!(messages, *expected, "{way:?} of {case:#?}");
        }
    }
}
