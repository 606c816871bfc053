//! Ten rounds of tools over servers that are as strict as the real ones of their kind.

use std::collections::HashSet;
use std::sync::Arc;

use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::super::support::app::TestApp;
use super::super::support::ask::tool;
use super::super::support::protocol;
use super::super::support::server::{Handler, HttpReply, Outgoing, Server};
use super::super::support::webhook::{self, Webhook};
use super::client::{Client, Way, connections};
use super::server::reply;

/// Rounds of tools before the answer.
const ROUNDS: usize = 10;
/// The round whose tool says nothing.
const SILENT: u64 = 3;
/// Kinds that refuse or drop the role `developer`.
const NO_DEVELOPER: [&str; 4] = ["deepseek", "mistral", "vllm", "llama.cpp"];
/// Members that every server takes of a message.
const COMMON: [&str; 5] = ["role", "content", "name", "tool_calls", "tool_call_id"];
/// Members that Mistral takes of a request.
const OF_MISTRAL: [&str; 16] = [
    "model",
    "messages",
    "tools",
    "tool_choice",
    "temperature",
    "top_p",
    "max_tokens",
    "stream",
    "stop",
    "random_seed",
    "response_format",
    "presence_penalty",
    "frequency_penalty",
    "n",
    "parallel_tool_calls",
    "safe_prompt",
];

/// A kind of server: what its model says in a round, and what is wrong with an assistant message that comes back.
struct Kind {
    name: &'static str,
    says: fn(usize) -> Map<String, Value>,
    refuses: fn(&Value) -> Vec<String>,
}

const KINDS: [Kind; 9] = [
    Kind {
        name: "gemini",
        says: no_more,
        refuses: gemini,
    },
    Kind {
        name: "openrouter",
        says: reasoning_details,
        refuses: openrouter,
    },
    Kind {
        name: "litellm",
        says: thinking_blocks,
        refuses: litellm,
    },
    Kind {
        name: "moonshot",
        says: reasoning_content,
        refuses: has_reasoning,
    },
    Kind {
        name: "deepseek",
        says: reasoning_content,
        refuses: has_reasoning,
    },
    Kind {
        name: "mistral",
        says: no_more,
        refuses: mistral,
    },
    Kind {
        name: "groq",
        says: groq_reasoning,
        refuses: groq,
    },
    Kind {
        name: "vllm",
        says: reasoning_content,
        refuses: text_content,
    },
    Kind {
        name: "llama.cpp",
        says: reasoning_content,
        refuses: text_content,
    },
];

fn no_more(_round: usize) -> Map<String, Value> {
    Map::new()
}

fn members(json: Value) -> Map<String, Value> {
    json.as_object().cloned().unwrap_or_default()
}

fn reasoning_details(round: usize) -> Map<String, Value> {
    members(
        json!({"reasoning": format!("Step {round}."), "reasoning_details": [
            {"type": "reasoning.text", "text": format!("Step {round}."), "signature": format!("seal-{round}"), "format": "anthropic-claude-v1", "index": 0},
        ]}),
    )
}

fn thinking_blocks(round: usize) -> Map<String, Value> {
    members(
        json!({"reasoning_content": format!("Step {round}."), "thinking_blocks": [
            {"type": "thinking", "thinking": format!("Step {round}."), "signature": format!("seal-{round}")},
        ]}),
    )
}

/// Reasoning, none, and an empty one in turn.
fn reasoning_content(round: usize) -> Map<String, Value> {
    match round % 3 {
        0 => members(json!({"reasoning_content": format!("Step {round}.")})),
        1 => Map::new(),
        _ => members(json!({"reasoning_content": ""})),
    }
}

fn groq_reasoning(round: usize) -> Map<String, Value> {
    members(json!({"reasoning": format!("Step {round}.")}))
}

/// The numbers of the calls of an assistant message.
fn rounds_of(message: &Value) -> Vec<usize> {
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    calls
        .filter_map(|call| {
            serde_json::from_str::<Value>(call["function"]["arguments"].as_str()?).ok()
        })
        .filter_map(|arguments| usize::try_from(arguments["round"].as_u64()?).ok())
        .collect()
}

fn seal(round: usize) -> Value {
    json!({"google": {"thought_signature": format!("seal-{round}")}})
}

fn gemini(message: &Value) -> Vec<String> {
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    let sealed = rounds_of(message).into_iter().zip(calls);
    let broken = sealed.filter(|(round, call)| call["extra_content"] != seal(*round));
    broken
        .map(|(_, call)| format!("Function call is missing its thought_signature: {call}"))
        .collect()
}

/// The member that the model's own answer had, in one piece.
fn same(message: &Value, field: &str, says: fn(usize) -> Map<String, Value>) -> Vec<String> {
    let rounds = rounds_of(message).into_iter();
    let broken = rounds.filter(|round| message[field] != says(*round)[field]);
    broken
        .map(|round| {
            format!(
                "Invalid `signature` in `thinking` block of step {round}: {}",
                message[field]
            )
        })
        .collect()
}

fn openrouter(message: &Value) -> Vec<String> {
    same(message, "reasoning_details", reasoning_details)
}

fn litellm(message: &Value) -> Vec<String> {
    same(message, "thinking_blocks", thinking_blocks)
}

fn has_reasoning(message: &Value) -> Vec<String> {
    let missing = message["tool_calls"].is_array() && !message["reasoning_content"].is_string();
    missing
        .then(|| "reasoning_content is missing in an assistant message with calls".to_owned())
        .into_iter()
        .collect()
}

fn unknown(message: &Value, more: &[&str]) -> Vec<String> {
    let keys = message
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, _)| key.as_str());
    let unknown = keys.filter(|key| !COMMON.contains(key) && !more.contains(key));
    unknown
        .map(|key| format!("property '{key}' is unsupported"))
        .collect()
}

fn groq(message: &Value) -> Vec<String> {
    unknown(message, &["reasoning"])
}

fn mistral(message: &Value) -> Vec<String> {
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    let ids = calls.filter_map(|call| call["id"].as_str());
    let short = |id: &&str| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let bad = ids
        .filter(|id| !short(id))
        .map(|id| format!("Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9."));
    bad.chain(unknown(message, &["prefix"])).collect()
}

fn text_content(message: &Value) -> Vec<String> {
    let bad = message
        .get("content")
        .is_some_and(|content| !content.is_string());
    bad.then(|| format!("content must be a string: {message}"))
        .into_iter()
        .collect()
}

impl Kind {
    /// Everything that the server refuses in a request.
    fn problems(&self, body: &Value) -> Vec<String> {
        let mut found = protocol::violations(body);
        let messages: Vec<&Value> = body["messages"].as_array().into_iter().flatten().collect();
        for message in &messages {
            if message["role"] == "assistant" {
                found.extend((self.refuses)(message));
            }
            if message["role"] == "tool" {
                let content = message["content"].as_str().unwrap_or_default();
                found.extend(
                    content
                        .trim()
                        .is_empty()
                        .then(|| format!("a blank tool message: {message}")),
                );
                let named = message["name"] == "srv_step";
                found.extend(
                    (self.name == "gemini" && !named)
                        .then(|| "function_response.name: Name cannot be empty".to_owned()),
                );
            }
            if message["role"] == "developer" && NO_DEVELOPER.contains(&self.name) {
                found.push("unknown role: developer".to_owned());
            }
            if self.name == "llama.cpp" && !message["content"].is_string() {
                found.push(format!("no content: {message}"));
            }
        }
        if self.name == "mistral" {
            let keys = body
                .as_object()
                .into_iter()
                .flatten()
                .map(|(key, _)| key.as_str());
            let unknown = keys.filter(|key| !OF_MISTRAL.contains(key));
            found.extend(unknown.map(|key| format!("Extra inputs are not permitted: {key}")));
            let roles: Vec<&str> = messages
                .iter()
                .filter_map(|message| message["role"].as_str())
                .collect();
            let pairs = roles.windows(2);
            let bad = pairs.filter(|pair| {
                matches!(
                    pair,
                    ["user", "user"] | ["assistant", "assistant"] | ["tool", "user" | "system"]
                )
            });
            found.extend(
                bad.map(|pair| format!("Unexpected role '{}' after role '{}'", pair[1], pair[0])),
            );
        }
        found
    }

    /// The answer to a request: the next call, or the text.
    fn line(&self, body: &Value) -> Value {
        let messages = body["messages"].as_array().into_iter().flatten();
        let asked: HashSet<usize> = messages.flat_map(rounds_of).collect();
        let round = asked.len();
        if round >= ROUNDS {
            return json!({"say": "Done."});
        }
        let mut call = json!({"id": format!("up{round:07}"), "type": "function",
            "function": {"name": "srv_step", "arguments": json!({"round": round}).to_string()}});
        if self.name == "gemini" {
            call["extra_content"] = seal(round);
        }
        let mut message = (self.says)(round);
        message.insert("content".to_owned(), Value::Null);
        message.insert("tool_calls".to_owned(), json!([call]));
        match body["stream"] == true {
            true => json!({"stream": deltas(&message)}),
            false => json!({"whole": message}),
        }
    }
}

/// A message in pieces: blocks in three, with the signature last.
fn deltas(message: &Map<String, Value>) -> Vec<Value> {
    let mut deltas = vec![json!({"role": "assistant", "content": ""})];
    for (field, member) in message {
        match (field.as_str(), member) {
            ("tool_calls" | "content", _) => {}
            (_, Value::Array(blocks)) => {
                let pieces = blocks.iter().flat_map(pieces_of);
                deltas.extend(pieces.map(|piece| json!({field: [piece]})));
            }
            (_, member) => deltas.push(json!({field: member})),
        }
    }
    let mut call = message["tool_calls"][0].clone();
    call["index"] = json!(0);
    let arguments = call["function"]["arguments"].take();
    let (first, second) = arguments.as_str().unwrap().split_at(4);
    call["function"]["arguments"] = json!(first);
    deltas.push(json!({"tool_calls": [call]}));
    deltas.push(json!({"tool_calls": [{"index": 0, "function": {"arguments": second}}]}));
    deltas.push(json!({"$finish": "tool_calls"}));
    deltas
}

fn pieces_of(block: &Value) -> Vec<Value> {
    let field = if block["thinking"].is_string() {
        "thinking"
    } else {
        "text"
    };
    let (first, second) = block[field].as_str().unwrap().split_at(2);
    let mut start = block.clone();
    start.as_object_mut().unwrap().remove("signature");
    let mut middle = start.clone();
    let mut end = block.clone();
    end.as_object_mut().unwrap().remove(field);
    start[field] = json!(first);
    middle[field] = json!(second);
    vec![start, middle, end]
}

/// Starts a server of this kind. It says what it refused.
async fn serve(kind: &'static Kind, refused: Arc<Mutex<Vec<String>>>) -> Server {
    let handler: Handler = Arc::new(move |arrived| {
        let refused = refused.clone();
        Box::pin(async move {
            let accepted = arrived.request.headers().get("accept-encoding").cloned();
            let bytes = arrived
                .request
                .into_body()
                .collect()
                .await
                .unwrap()
                .to_bytes();
            let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            let problems = kind.problems(&body);
            if problems.is_empty() {
                let accepted = accepted.as_ref().and_then(|value| value.to_str().ok());
                return Outgoing::Scripted(reply(&kind.line(&body), &body, accepted).await);
            }
            let message = problems.join("\n");
            refused.lock().push(message.clone());
            let error = json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": null}});
            Outgoing::Scripted(HttpReply::whole(400, "application/json", error.to_string()))
        })
    });
    Server::start(handler).await
}

/// Ten rounds and another turn with a server of this kind, in one way.
async fn converse(
    kind: &'static Kind,
    way: Way,
    app: &TestApp,
    http: &reqwest::Client,
) -> Option<String> {
    let model = format!("m-{}", way.words().join("-"));
    let mut tool = tool("srv_step");
    if way.responses {
        tool = tool["function"].take();
        tool["type"] = json!("function");
    }
    let mut client = Client::new(http, way, &model, vec![tool], Some(format!("s-{model}")));
    let first = json!([
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Go"},
    ]);
    for turn in [first, json!("And now?")] {
        let (view, odd) = client
            .ask(app.origin(), &json!({"turn": turn}), None, &Map::new())
            .await;
        if view["content"] != "Done." || !odd.is_empty() {
            let fault = if view["error"].is_null() {
                &view["content"]
            } else {
                &view["error"]["message"]
            };
            return Some(format!(
                "{} ({way}), turn {turn}: {fault} {odd:?}",
                kind.name
            ));
        }
    }
    None
}

async fn all_ways(kind: &'static Kind) -> Vec<String> {
    let refused = Arc::new(Mutex::new(Vec::new()));
    let server = serve(kind, refused.clone()).await;
    let webhook = Webhook::start().await.on_call("srv_step", |call| {
        let round = call.arguments()["round"].as_u64().unwrap();
        let text = if round % 4 == SILENT {
            String::new()
        } else {
            format!("step {round}")
        };
        webhook::text(&text)
    });
    let mut toml = format!(
        "dispatch_tools = [\"srv_*\"]\n[[upstreams]]\nname = \"u\"\nbase_url = \"http://{}/v1\"\n",
        server.addr()
    );
    // What stands in front of many kinds of servers is none of its own.
    if kind.name != "litellm" {
        toml.push_str(&format!("kind = \"{}\"\n", kind.name));
    }
    let app = TestApp::builder()
        .dispatch(&webhook)
        .toml(&toml)
        .start()
        .await;
    let http = connections();
    let mut problems = Vec::new();
    for way in Way::ALL {
        problems.extend(converse(kind, way, &app, &http).await);
    }
    problems
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_rounds_go_well_with_the_strictest_server_of_every_kind() {
    let kinds = KINDS
        .iter()
        .map(|kind| (kind, tokio::spawn(all_ways(kind))));
    let kinds: Vec<_> = kinds.collect();
    let mut problems = Vec::new();
    for (kind, task) in kinds {
        match task.await {
            Ok(found) => problems.extend(found),
            Err(error) => problems.push(format!("{}: {error}", kind.name)),
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}
