//! Answers that are cut off or spoiled at any byte: no call runs with less than was meant, no answer ends well with less
//! than was meant, and nothing of a whole answer is lost on its way back.
//!
//! A byte is spoiled by a control character inside of JSON, which a reader can tell. What cannot be told from a good
//! answer is not tried: other letters in a text, or a line of the event stream whose name says that it is no data.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value, json};

use super::super::support::app::TestApp;
use super::super::support::ask::tool;
use super::super::support::server::{Arrived, Handler, HttpReply, Outgoing, Part, Server};
use super::super::support::webhook::{self, Webhook};
use super::AT_ONCE;
use super::client::{Client, Way, connections};
use super::server::{reply, spelled};

/// How many answers are tried in every way, unless `LOOPWRIGHT_REPLAY_CASES` says otherwise.
const CASES: usize = 64;

/// What the model means to say in the first round, and what becomes of it.
#[derive(Debug, Clone)]
struct Case {
    text: String,
    reasoning: String,
    calls: Vec<(Value, String)>,
    /// Where it breaks, as a fraction of its length.
    place: f64,
    fault: Fault,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// The connection is closed in the middle.
    Closed,
    /// The body ends in order, but too early.
    Ended,
    /// A byte is another.
    Spoiled,
}

/// A conversation about a case.
#[derive(Debug)]
struct Scene {
    case: Case,
    asked: usize,
    ran: Vec<Value>,
    problems: Vec<String>,
}

type Scenes = Arc<Mutex<HashMap<String, Scene>>>;

fn words() -> impl Strategy<Value = String> {
    "[a-z][a-z \"\\\\\n{}é😀]{0,12}[a-z]"
}

fn cases() -> impl Strategy<Value = Case> {
    let arguments = (words(), any::<u16>()).prop_map(|(city, n)| json!({"city": city, "n": n}));
    let calls = prop::collection::vec((arguments, words()), 0..3);
    let fault = prop_oneof![
        1 => Just(Fault::None),
        3 => Just(Fault::Closed),
        3 => Just(Fault::Ended),
        3 => Just(Fault::Spoiled),
    ];
    let text = prop_oneof![Just(String::new()), words()];
    let reasoning = prop_oneof![Just(String::new()), words()];
    (text, reasoning, calls, 0.0..1.0, fault).prop_map(|(text, reasoning, calls, place, fault)| {
        Case {
            text: if text.is_empty() && calls.is_empty() {
                "Yes.".to_owned()
            } else {
                text
            },
            reasoning,
            calls: numbered(calls),
            place,
            fault,
        }
    })
}

/// Every call is another one, so that it is known which of them ran.
fn numbered(calls: Vec<(Value, String)>) -> Vec<(Value, String)> {
    let numbered = calls
        .into_iter()
        .enumerate()
        .map(|(number, (mut arguments, member))| {
            arguments["number"] = json!(number);
            (arguments, member)
        });
    numbered.collect()
}

impl Case {
    /// The message that is meant.
    fn message(&self) -> Value {
        let mut message = json!({"content": self.text, "x_state": {"of": self.text}});
        if !self.reasoning.is_empty() {
            message["reasoning_content"] = json!(self.reasoning);
        }
        if !self.calls.is_empty() {
            let call = |(number, (arguments, member)): (usize, &(Value, String))| {
                json!({"id": format!("up-{number}"), "type": "function", "seal": {"of": member},
                    "function": {"name": "srv_look", "arguments": arguments.to_string(), "mark": member}})
            };
            message["tool_calls"] = self.calls.iter().enumerate().map(call).collect();
        }
        message
    }

    /// The answer as it arrives.
    fn broken(&self, body: &Value) -> HttpReply {
        let (media, frames) = spelled(&json!({"say": self.message()}), body);
        let mut bytes = frames.concat();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a place inside the answer"
        )]
        let mut place = (self.place * bytes.len() as f64) as usize;
        let mut parts = Vec::new();
        match self.fault {
            Fault::None => parts.push(Part::Bytes(Bytes::from(bytes))),
            Fault::Spoiled => {
                // The next byte inside of JSON.
                while !is_in_data(&bytes, place) {
                    place = (place + 1) % bytes.len();
                }
                bytes[place] = 0;
                parts.push(Part::Bytes(Bytes::from(bytes)));
            }
            Fault::Closed | Fault::Ended => {
                bytes.truncate(place);
                let middle = bytes.split_off(place / 2);
                parts.extend([bytes, middle].map(|piece| Part::Bytes(Bytes::from(piece))));
                parts.extend((self.fault == Fault::Closed).then_some(Part::Cut));
            }
        }
        HttpReply {
            headers: vec![("content-type".to_owned(), media.to_owned())],
            body: parts,
            ..HttpReply::default()
        }
    }

    /// What is wrong with the message that goes back.
    fn back(&self, message: &Value) -> Vec<String> {
        let mut found = Vec::new();
        let meant = self.message();
        for member in ["x_state", "reasoning_content"] {
            if message[member] != meant[member] {
                found.push(format!("{member} went back as {}", message[member]));
            }
        }
        let calls = |message: &Value| {
            message["tool_calls"]
                .as_array()
                .cloned()
                .unwrap_or_default()
        };
        let (sent, meant) = (calls(message), calls(&meant));
        if sent.len() != meant.len() {
            found.push(format!("{} of {} calls went back", sent.len(), meant.len()));
        }
        for (sent, meant) in sent.iter().zip(meant) {
            if sent["seal"] != meant["seal"]
                || sent["function"]["mark"] != meant["function"]["mark"]
            {
                found.push(format!("the call went back as {sent}"));
            }
        }
        found
    }

    /// The text of a whole turn.
    fn answer(&self) -> String {
        match (self.calls.is_empty(), self.text.is_empty()) {
            (true, _) => self.text.clone(),
            (false, true) => "Done.".to_owned(),
            (false, false) => format!("{}\n\nDone.", self.text),
        }
    }
}

/// Whether a byte is inside of the JSON of a line.
fn is_in_data(bytes: &[u8], place: usize) -> bool {
    let start = bytes[..place]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |end| end + 1);
    let line = &bytes[start..];
    let line = &line[..line
        .iter()
        .position(|byte| *byte == b'\n')
        .unwrap_or(line.len())];
    let json = line.iter().position(|byte| *byte == b'{');
    json.is_some_and(|json| (json..line.len()).contains(&(place - start)))
}

async fn answer(scenes: Scenes, arrived: Arrived) -> HttpReply {
    let bytes = arrived
        .request
        .into_body()
        .collect()
        .await
        .unwrap()
        .to_bytes();
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let model = body["model"].as_str().unwrap_or_default().to_owned();
    let line = {
        let mut scenes = scenes.lock();
        let Some(scene) = scenes.get_mut(&model) else {
            return HttpReply::whole(404, "application/json", "{}");
        };
        let messages = body["messages"].as_array().cloned().unwrap_or_default();
        if messages.iter().any(|message| message["role"] == "tool") {
            let problems = scene.case.back(&messages[1]);
            scene.problems.extend(problems);
            json!({"say": "Done."})
        } else {
            scene.asked += 1;
            if scene.asked == 1 {
                return scene.case.broken(&body);
            }
            json!({"say": scene.case.message()})
        }
    };
    reply(&line, &body, None).await
}

/// What is wrong with a conversation.
async fn converse(
    http: &reqwest::Client,
    origin: &str,
    way: Way,
    model: &str,
    scenes: &Scenes,
) -> Vec<String> {
    let mut offered = tool("srv_look");
    if way.responses {
        offered = offered["function"].take();
        offered["type"] = json!("function");
    }
    let mut client = Client::new(http, way, model, vec![offered], None);
    let (view, odd) = client
        .ask(origin, &json!({"turn": "Go"}), None, &Map::new())
        .await;
    let scene = scenes.lock().remove(model).unwrap();
    let mut found = [scene.problems, odd].concat();
    let meant: Vec<&Value> = scene
        .case
        .calls
        .iter()
        .map(|(arguments, _)| arguments)
        .collect();
    for (place, ran) in scene.ran.iter().enumerate() {
        if !meant.contains(&ran) || scene.ran[..place].contains(ran) {
            found.push(format!("ran {ran}"));
        }
    }
    if view.get("error").is_none() {
        let calls = view["tool_calls"] != json!([]);
        if view["finish_reason"] == "stop" && (view["content"] != scene.case.answer() || calls) {
            found.push(format!(
                "ended well with {} instead of {:?}",
                view["content"],
                scene.case.answer()
            ));
        }
        if view["finish_reason"] == "stop" && scene.ran.len() != meant.len() {
            found.push(format!(
                "ended well after {} of {} calls",
                scene.ran.len(),
                meant.len()
            ));
        }
    } else if scene.case.fault == Fault::None {
        found.push(format!("the error {}", view["error"]));
    }
    let told = format!(
        "{:?} at {:.3} of {} ({way}, {model})",
        scene.case.fault,
        scene.case.place,
        scene.case.message()
    );
    found
        .into_iter()
        .map(|text| format!("{text}: {told}"))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_breaks_anywhere_never_counts_as_whole() {
    let scenes = Scenes::default();
    let handler: Handler = {
        let scenes = scenes.clone();
        Arc::new(move |arrived| {
            let scenes = scenes.clone();
            Box::pin(async move { Outgoing::Scripted(answer(scenes, arrived).await) })
        })
    };
    let server = Server::start(handler).await;
    let hook = {
        let scenes = scenes.clone();
        Webhook::start().await.on_call("srv_look", move |call| {
            let mut scenes = scenes.lock();
            let model = call.body["model"].as_str().unwrap_or_default();
            if let Some(scene) = scenes.get_mut(model) {
                scene.ran.push(call.arguments().clone());
            }
            webhook::text("cold")
        })
    };
    let url = format!("http://{}/v1", server.addr());
    let toml = format!(
        "dispatch_tools = [\"srv_*\"]\nsession_store = \"memory:\"\n[retry]\nbase_delay = \"1ms\"\n\
         [[upstreams]]\nname = \"streams\"\nbase_url = \"{url}\"\nmodels = [\"s-*\"]\n\
         [[upstreams]]\nname = \"whole\"\nbase_url = \"{url}\"\nmodels = [\"w-*\"]\nquirks = {{ streams = false }}\n"
    );
    let app = TestApp::builder().dispatch(&hook).toml(&toml).start().await;
    let wanted = std::env::var("LOOPWRIGHT_REPLAY_CASES")
        .ok()
        .and_then(|text| text.parse().ok());
    let mut runner = TestRunner::deterministic();
    let mut runs = Vec::new();
    for number in 0..wanted.unwrap_or(CASES) {
        let case = cases().new_tree(&mut runner).unwrap().current();
        for way in Way::ALL {
            for form in ["s", "w"] {
                let model = format!("{form}-{number}-{}", way.words().join("-"));
                let scene = Scene {
                    case: case.clone(),
                    asked: 0,
                    ran: Vec::new(),
                    problems: Vec::new(),
                };
                scenes.lock().insert(model.clone(), scene);
                runs.push((way, model));
            }
        }
    }
    let (http, origin, scenes) = (&connections(), app.origin(), &scenes);
    let conversations = stream::iter(runs)
        .map(|(way, model)| async move { converse(http, origin, way, &model, scenes).await });
    let problems: Vec<Vec<String>> = conversations.buffer_unordered(AT_ONCE).collect().await;
    let problems = problems.concat();
    assert!(
        problems.is_empty(),
        "{} problems\n{}",
        problems.len(),
        problems.join("\n\n")
    );
}
