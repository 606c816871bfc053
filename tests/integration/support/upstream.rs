//! A scripted model server, as strict as the strictest in the field and as unreliable as the script wants it.

use std::collections::VecDeque;
use std::sync::Arc;

use async_stream::stream;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::{Method, StatusCode};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::Response;
use hyper::body::{Frame, Incoming};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::chat::Spelling;
use super::recorded::Recorded;
use super::script::Reply;
use super::server::{Arrived, Handler, HttpReply, Outgoing, Server};
use super::{protocol, within};

/// The model that the server lists and that requests ask for by default.
pub(crate) const MODEL: &str = "scripted-model";

/// A running scripted model server. Dropping it fails the test when a request broke the protocol.
pub(crate) struct ScriptedUpstream {
    server: Server,
    shared: Arc<Shared>,
}

struct Shared {
    script: Mutex<Script>,
    chats: watch::Sender<Vec<Recorded>>,
    others: watch::Sender<Vec<Recorded>>,
    violations: Mutex<Vec<String>>,
    manner: Mutex<Manner>,
}

/// Where replies come from.
enum Script {
    Queue(VecDeque<Reply>),
    Rule(Box<dyn FnMut(&Recorded) -> Reply + Send>),
}

/// How the server behaves beside the script.
#[derive(Debug, Clone)]
struct Manner {
    strict: bool,
    models: Vec<String>,
    /// What is answered to requests for the models, instead of a list of them; the last one over and over.
    listings: VecDeque<HttpReply>,
}

impl ScriptedUpstream {
    /// Starts a server that gives these replies, one per model call.
    pub(crate) async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::with(Script::Queue(replies.into_iter().collect())).await
    }

    /// Starts a server that makes its reply from the request.
    pub(crate) async fn answering(rule: impl FnMut(&Recorded) -> Reply + Send + 'static) -> Self {
        Self::with(Script::Rule(Box::new(rule))).await
    }

    async fn with(script: Script) -> Self {
        let shared = Arc::new(Shared {
            script: Mutex::new(script),
            chats: watch::Sender::new(Vec::new()),
            others: watch::Sender::new(Vec::new()),
            violations: Mutex::new(Vec::new()),
            manner: Mutex::new(Manner {
                strict: true,
                models: vec![MODEL.to_owned()],
                listings: VecDeque::new(),
            }),
        });
        let handler: Handler = {
            let shared = shared.clone();
            Arc::new(move |arrived| Box::pin(shared.clone().handle(arrived)))
        };
        Self {
            server: Server::start(handler).await,
            shared,
        }
    }

    /// Takes requests that break the protocol, for tests of pass-through.
    pub(crate) fn lenient(self) -> Self {
        self.shared.manner.lock().strict = false;
        self
    }

    /// Lists these models.
    pub(crate) fn models(self, models: &[&str]) -> Self {
        self.shared.manner.lock().models = models.iter().map(|id| (*id).to_owned()).collect();
        self
    }

    /// Answers requests for the models with these in turn, and with the last one from then on.
    pub(crate) fn listing(self, answers: impl IntoIterator<Item = HttpReply>) -> Self {
        self.shared.manner.lock().listings = answers.into_iter().collect();
        self
    }

    /// The base URL, ending in `/v1`.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.server.addr())
    }

    /// The configuration that makes this the only model server, with these quirks.
    pub(crate) fn with_quirks(&self, quirks: &str) -> String {
        let url = self.base_url();
        format!("[[upstreams]]\nname = \"u\"\nbase_url = \"{url}\"\n[upstreams.quirks]\n{quirks}")
    }

    /// Adds a reply at the end of the script.
    pub(crate) fn push(&self, reply: Reply) {
        match &mut *self.shared.script.lock() {
            Script::Queue(queue) => queue.push_back(reply),
            Script::Rule(_) => panic!("the script is a rule"),
        }
    }

    /// How many replies nobody has asked for yet.
    pub(crate) fn remaining(&self) -> usize {
        match &*self.shared.script.lock() {
            Script::Queue(queue) => queue.len(),
            Script::Rule(_) => 0,
        }
    }

    /// The model calls so far.
    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.shared.chats.borrow().clone()
    }

    /// The model call with this number, from 0.
    pub(crate) fn request(&self, number: usize) -> Recorded {
        let requests = self.requests();
        match requests.get(number) {
            Some(request) => request.clone(),
            None => panic!("{} model calls, no number {number}", requests.len()),
        }
    }

    /// The last model call.
    pub(crate) fn last(&self) -> Recorded {
        self.requests().pop().expect("no model call yet")
    }

    /// Requests to other endpoints so far.
    pub(crate) fn others(&self) -> Vec<Recorded> {
        self.shared.others.borrow().clone()
    }

    /// Waits until there have been `count` model calls in all.
    pub(crate) async fn called(&self, count: usize) {
        let mut chats = self.shared.chats.subscribe();
        within(
            &format!("{count} model calls"),
            chats.wait_for(|seen| seen.len() >= count),
        )
        .await
        .unwrap();
    }

    /// Waits until the peer has dropped model call `number` before its answer was complete.
    pub(crate) async fn dropped(&self, number: usize) {
        self.called(number + 1).await;
        self.request(number).dropped().await;
    }

    /// Fails unless the results in an `agentic_tool_calls` list are the very texts that the model was given, in this order.
    /// The model server knows the calls by ids of its own.
    pub(crate) fn assert_same_results(&self, agentic_tool_calls: &Value) {
        let calls = agentic_tool_calls.as_array().expect("a list of calls");
        let given = self.last().tool_results();
        let mut given = given.iter().map(|(_, content)| content.as_str());
        for call in calls {
            let content = call["result_content"].as_str().expect("a result");
            assert!(
                given.any(|text| text == content),
                "the result of {call} among {:?}",
                self.last().tool_results()
            );
        }
    }

    /// The violations so far, forgotten by the server.
    pub(crate) fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut *self.shared.violations.lock())
    }

    /// Fails when a request broke the protocol.
    pub(crate) fn assert_clean(&self) {
        let violations = self.take_violations();
        assert!(
            violations.is_empty(),
            "requests to the model server broke the protocol:\n{}",
            violations.join("\n")
        );
    }
}

impl Drop for ScriptedUpstream {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_clean();
        }
    }
}

impl Shared {
    async fn handle(self: Arc<Self>, arrived: Arrived) -> Outgoing {
        let (head, body) = arrived.request.into_parts();
        let mut recorded = Recorded {
            method: head.method,
            path: head.uri.to_string(),
            headers: head.headers,
            bytes: Bytes::new(),
            body: Value::Null,
            outcome: arrived.outcome,
        };
        let models = self.manner.lock().models.clone();
        match (&recorded.method, head.uri.path()) {
            (&Method::POST, "/v1/chat/completions") => {
                let Ok(body) = body.collect().await else {
                    return Outgoing::Scripted(HttpReply::default());
                };
                recorded.bytes = body.to_bytes();
                Outgoing::Scripted(self.chat(recorded))
            }
            (&Method::POST, "/tokenize") => {
                let bytes = body.collect().await.unwrap().to_bytes();
                recorded.body = serde_json::from_slice(&bytes).unwrap();
                let answer = tokenized(&recorded.body);
                self.others.send_modify(|seen| seen.push(recorded));
                answer
            }
            (&Method::GET, "/v1/models") => {
                // What loopwright asks by itself after its start comes at a time that no test knows.
                if !recorded.header("user-agent").is_some_and(is_look) {
                    self.others.send_modify(|seen| seen.push(recorded));
                }
                if let Some(reply) = self.next_listing() {
                    return Outgoing::Scripted(reply);
                }
                let data: Vec<Value> = models.iter().map(|id| model_json(id)).collect();
                scripted(200, &json!({"object": "list", "data": data}))
            }
            (&Method::GET, path) if path.starts_with("/v1/models/") => {
                let found = models.iter().find(|id| path.ends_with(&format!("/{id}")));
                let answer = match found {
                    Some(id) => scripted(200, &model_json(id)),
                    None => scripted(404, &json!({"error": {"message": "no such model"}})),
                };
                self.others.send_modify(|seen| seen.push(recorded));
                answer
            }
            _ => self.echo(recorded, body),
        }
    }

    fn next_listing(&self) -> Option<HttpReply> {
        let listings = &mut self.manner.lock().listings;
        match listings.len() {
            0 | 1 => listings.front().cloned(),
            _ => listings.pop_front(),
        }
    }

    /// Records a model call, checks it and picks its reply.
    fn chat(&self, mut recorded: Recorded) -> HttpReply {
        // Held to the end, so that numbers, replies and records of parallel calls agree.
        let mut script = self.script.lock();
        let number = self.chats.borrow().len();
        let mut found = Vec::new();
        match serde_json::from_slice(&recorded.bytes) {
            Ok(body) => {
                recorded.body = body;
                found.extend(protocol::violations(&recorded.body));
            }
            Err(error) => found.push(format!("the body is not JSON: {error}")),
        }
        let media = recorded.header("content-type").unwrap_or_default();
        if !media.starts_with("application/json") {
            found.push(format!("the content type is `{media}`"));
        }
        if self.manner.lock().strict {
            self.complain(number, found);
        }
        let spelling = Spelling {
            number,
            model: recorded.body["model"].as_str().unwrap_or(MODEL).to_owned(),
            stream: recorded.body["stream"] == true,
            include_usage: recorded.body["stream_options"]["include_usage"] == true,
        };
        let reply = match &mut *script {
            Script::Queue(queue) => queue.pop_front(),
            Script::Rule(rule) => Some(rule(&recorded)),
        };
        self.chats.send_modify(|seen| seen.push(recorded));
        match reply {
            Some(reply) => reply.spell(&spelling),
            None => {
                self.complain(number, vec!["the script has no reply left".to_owned()]);
                HttpReply::whole(500, "text/plain", "the script has no reply left")
            }
        }
    }

    fn complain(&self, number: usize, found: Vec<String>) {
        let mut violations = self.violations.lock();
        violations.extend(
            found
                .into_iter()
                .map(|text| format!("model call {number}: {text}")),
        );
    }

    /// Sends the body back while it still arrives.
    fn echo(self: Arc<Self>, recorded: Recorded, body: Incoming) -> Outgoing {
        let mut response = Response::builder()
            .status(StatusCode::OK)
            .header("x-echo-method", recorded.method.as_str())
            .header("x-echo-path", &recorded.path)
            .header("x-request-id", "echo-request");
        if let Some(media) = recorded.headers.get("content-type") {
            response = response.header("content-type", media);
        }
        let mut number = 0;
        self.others.send_modify(|seen| {
            number = seen.len();
            seen.push(recorded);
        });
        let frames = stream!({
            let mut frames = BodyStream::new(body);
            let mut bytes = BytesMut::new();
            while let Some(frame) = frames.next().await {
                if let Some(data) = frame.as_ref().ok().and_then(Frame::data_ref) {
                    bytes.extend_from_slice(data);
                }
                yield frame.map_err(std::io::Error::other);
            }
            self.others.send_modify(|seen| {
                seen[number].body = serde_json::from_slice(&bytes).unwrap_or_default();
                seen[number].bytes = bytes.freeze();
            });
        });
        let body = StreamBody::new(frames).boxed_unsync();
        Outgoing::Response(response.body(body).unwrap())
    }
}

/// Whether a user agent is that of loopwright looking at its model servers.
fn is_look(agent: &str) -> bool {
    agent.starts_with("loopwright/") && agent.ends_with(" (look)")
}

/// An entry that does not tell what the server is.
fn model_json(id: &str) -> Value {
    json!({"id": id, "object": "model", "created": 1_780_000_000, "owned_by": "scripted", "root": id, "max_model_len": 32_768})
}

/// The answer of vLLM's `/tokenize`: a thousand tokens for a message, and one for a tool. It has no model `other`.
fn tokenized(request: &Value) -> Outgoing {
    if request["model"] == "other" {
        return scripted(404, &json!({"error": {"message": "no such model"}}));
    }
    let count = |list: &str| request[list].as_array().map_or(0, Vec::len);
    let count = count("messages") * 1000 + count("tools");
    scripted(
        200,
        &json!({"count": count, "max_model_len": 32_768, "tokens": vec![7; count], "token_strs": null}),
    )
}

fn scripted(status: u16, body: &Value) -> Outgoing {
    Outgoing::Scripted(HttpReply::whole(
        status,
        "application/json",
        body.to_string(),
    ))
}
