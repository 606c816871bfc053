//! A scripted tool server, which holds every call against section 6 of the wire contract.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

use super::server::{Arrived, Gate, Handler, HttpReply, Outcome, Outgoing, Part, Server, ended};
use super::{dispatch_contract, within};

/// A running scripted tool server. Dropping it fails the test when a call broke the contract.
pub(crate) struct Webhook {
    server: Server,
    shared: Arc<Shared>,
}

/// An answer of a tool.
#[derive(Debug, Clone)]
pub(crate) struct ToolReply(HttpReply);

/// A call as it came in.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// The method.
    pub(crate) method: Method,
    /// The path and the query.
    pub(crate) path: String,
    /// The headers.
    pub(crate) headers: HeaderMap,
    /// The bytes of the body.
    pub(crate) bytes: Bytes,
    /// The body, or null where it is not JSON.
    pub(crate) body: Value,
    /// The tool that is called.
    pub(crate) name: String,
    outcome: watch::Receiver<Outcome>,
}

/// Makes the answer to a call.
type Rule = Arc<dyn Fn(&Call) -> ToolReply + Send + Sync>;

struct Shared {
    once: Mutex<HashMap<String, VecDeque<ToolReply>>>,
    rules: Mutex<HashMap<String, Rule>>,
    calls: watch::Sender<Vec<Call>>,
    violations: Mutex<Vec<String>>,
    secret: Option<String>,
}

/// The tool answers with this JSON value.
pub(crate) fn json(value: &Value) -> ToolReply {
    ToolReply(HttpReply::whole(200, "application/json", value.to_string()))
}

/// The tool answers with this text.
pub(crate) fn text(text: &str) -> ToolReply {
    ToolReply(HttpReply::whole(
        200,
        "text/plain; charset=utf-8",
        text.to_owned(),
    ))
}

/// The tool server answers with this status.
pub(crate) fn status(code: u16, headers: &[(&str, &str)], body: &str) -> ToolReply {
    let mut reply = HttpReply::whole(code, "application/json", body.to_owned());
    let headers = headers.iter();
    reply
        .headers
        .extend(headers.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    ToolReply(reply)
}

/// The tool server answers with this status and a body of this media type.
pub(crate) fn refusal(code: u16, media_type: &str, body: &str) -> ToolReply {
    ToolReply(HttpReply::whole(code, media_type, body.to_owned()))
}

/// The tool answers with an event stream: one event for each value.
pub(crate) fn sse<const N: usize>(events: [Value; N]) -> ToolReply {
    let piece = |event: Value| Part::Bytes(format!("data: {event}\n\n").into());
    ToolReply(HttpReply {
        headers: vec![("content-type".to_owned(), "text/event-stream".to_owned())],
        body: events.into_iter().map(piece).collect(),
        ..HttpReply::default()
    })
}

/// The tool answers with an event stream of progress texts, and nothing else so far.
pub(crate) fn progress(texts: impl IntoIterator<Item = String>) -> ToolReply {
    let event = |text: String| {
        let event = serde_json::json!({ "progress": text });
        Part::Bytes(format!("data: {event}\n\n").into())
    };
    ToolReply(HttpReply {
        headers: vec![("content-type".to_owned(), "text/event-stream".to_owned())],
        body: texts.into_iter().map(event).collect(),
        ..HttpReply::default()
    })
}

/// The tool server takes the call and never answers.
pub(crate) fn hang() -> ToolReply {
    ToolReply(HttpReply {
        before_head: vec![Part::Hang],
        ..HttpReply::default()
    })
}

/// The tool server takes the call and resets the connection.
pub(crate) fn reset() -> ToolReply {
    ToolReply(HttpReply {
        before_head: vec![Part::Reset],
        ..HttpReply::default()
    })
}

impl ToolReply {
    /// Waits at the gate before it answers.
    pub(crate) fn gated(mut self, gate: &Gate) -> Self {
        self.0.before_head.push(Part::Wait(gate.clone()));
        self
    }

    /// Waits at the gate before every piece of the body; one `release` is one piece.
    pub(crate) fn gate_pieces(mut self, gate: &Gate) -> Self {
        let pieces = self.0.body.into_iter();
        self.0.body = pieces
            .flat_map(|piece| [Part::Wait(gate.clone()), piece])
            .collect();
        self
    }

    /// Falls silent after the body; the connection stays open.
    pub(crate) fn then_hang(mut self) -> Self {
        self.0.body.push(Part::Hang);
        self
    }

    /// Resets the connection after the body.
    pub(crate) fn then_reset(mut self) -> Self {
        self.0.body.push(Part::Reset);
        self
    }
}

impl Webhook {
    /// Starts a server that knows no tool yet.
    pub(crate) async fn start() -> Self {
        Self::with(None).await
    }

    /// Starts a server that takes only calls signed with this secret (`whsec_…`).
    pub(crate) async fn signed(secret: &str) -> Self {
        Self::with(Some(secret.to_owned())).await
    }

    async fn with(secret: Option<String>) -> Self {
        let shared = Arc::new(Shared {
            once: Mutex::default(),
            rules: Mutex::default(),
            calls: watch::Sender::new(Vec::new()),
            violations: Mutex::default(),
            secret,
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

    /// Answers every call of a tool so.
    pub(crate) fn on(self, name: &str, reply: ToolReply) -> Self {
        self.on_call(name, move |_| reply.clone())
    }

    /// Answers every call of a tool by a rule.
    pub(crate) fn on_call(
        self,
        name: &str,
        rule: impl Fn(&Call) -> ToolReply + Send + Sync + 'static,
    ) -> Self {
        let mut rules = self.shared.rules.lock();
        rules.insert(name.to_owned(), Arc::new(rule));
        drop(rules);
        self
    }

    /// Answers one call of a tool so, before [`Self::on`] is asked; several queue up.
    pub(crate) fn once(self, name: &str, reply: ToolReply) -> Self {
        let mut once = self.shared.once.lock();
        once.entry(name.to_owned()).or_default().push_back(reply);
        drop(once);
        self
    }

    /// The dispatch URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/run", self.server.addr())
    }

    /// A URL of its own for one tool; a `GET` there carries the arguments as its query.
    pub(crate) fn tool_url(&self, name: &str) -> String {
        format!("http://{}/tools/{name}", self.server.addr())
    }

    /// The calls so far, retries included.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.shared.calls.borrow().clone()
    }

    /// The call with this number, from 0.
    pub(crate) fn call(&self, number: usize) -> Call {
        let calls = self.calls();
        match calls.get(number) {
            Some(call) => call.clone(),
            None => panic!("{} calls, no number {number}", calls.len()),
        }
    }

    /// The names of the tools in the order they were called.
    pub(crate) fn names(&self) -> Vec<String> {
        self.calls().into_iter().map(|call| call.name).collect()
    }

    /// Waits until there have been `count` calls in all.
    pub(crate) async fn called(&self, count: usize) {
        let mut calls = self.shared.calls.subscribe();
        within(
            &format!("{count} calls of tools"),
            calls.wait_for(|seen| seen.len() >= count),
        )
        .await
        .unwrap();
    }

    /// Waits until the peer has dropped call `number` before its answer was complete.
    pub(crate) async fn dropped(&self, number: usize) {
        self.called(number + 1).await;
        let outcome = self.call(number).outcome;
        let end = within("the peer to go away", ended(outcome)).await;
        assert_eq!(end, Outcome::Dropped, "the answer was taken to its end");
    }

    /// The violations so far, forgotten by the server.
    pub(crate) fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut *self.shared.violations.lock())
    }

    /// Fails when a call broke the contract.
    pub(crate) fn assert_clean(&self) {
        let violations = self.take_violations();
        assert!(
            violations.is_empty(),
            "calls to the webhook broke the contract:\n{}",
            violations.join("\n")
        );
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_clean();
        }
    }
}

impl Call {
    /// The arguments.
    pub(crate) fn arguments(&self) -> &Value {
        &self.body["arguments"]
    }

    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// How the exchange stands.
    pub(crate) fn outcome(&self) -> Outcome {
        *self.outcome.borrow()
    }
}

impl Shared {
    async fn handle(self: Arc<Self>, arrived: Arrived) -> Outgoing {
        let (head, body) = arrived.request.into_parts();
        let Ok(body) = body.collect().await else {
            return Outgoing::Scripted(HttpReply::default());
        };
        let bytes = body.to_bytes();
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let path = head.uri.path().to_owned();
        let name = match body["name"].as_str() {
            Some(name) => name.to_owned(),
            None => path.rsplit('/').next().unwrap_or_default().to_owned(),
        };
        let call = Call {
            method: head.method,
            path: head.uri.to_string(),
            headers: head.headers,
            bytes,
            body,
            name,
            outcome: arrived.outcome,
        };
        let mut found = match call.method {
            Method::POST => dispatch_contract::violations(&call, &self.calls.borrow()),
            _ if call.bytes.is_empty() => Vec::new(),
            _ => vec!["a body where the query is meant to carry the arguments".to_owned()],
        };
        found.extend(self.signature(&call));
        let reply = self.reply(&call);
        if reply.is_none() {
            found.push(format!("nobody scripted the tool `{}`", call.name));
        }
        self.calls.send_modify(|calls| {
            let number = calls.len();
            let found = found
                .into_iter()
                .map(|text| format!("call {number}: {text}"));
            self.violations.lock().extend(found);
            calls.push(call);
        });
        Outgoing::Scripted(match reply {
            Some(reply) => reply.0,
            None => HttpReply::whole(404, "text/plain", "no such tool"),
        })
    }

    fn reply(&self, call: &Call) -> Option<ToolReply> {
        let queued = self
            .once
            .lock()
            .get_mut(&call.name)
            .and_then(VecDeque::pop_front);
        if queued.is_some() {
            return queued;
        }
        let rule = self.rules.lock().get(&call.name).cloned();
        rule.map(|rule| rule(call))
    }

    fn signature(&self, call: &Call) -> Option<String> {
        let Some(secret) = &self.secret else {
            let signed = call.headers.contains_key("webhook-signature");
            return signed.then(|| "signed, though there is no secret".to_owned());
        };
        let verifier = standardwebhooks::Webhook::new(secret).unwrap();
        match verifier.verify(&call.bytes, &call.headers) {
            Ok(()) => None,
            Err(error) => Some(format!("the signature: {error}")),
        }
    }
}
