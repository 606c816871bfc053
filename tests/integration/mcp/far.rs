//! A strict MCP server over streamable HTTP, whose every request is kept and checked.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::HeaderMap;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::floods::Flood;
use super::oauth::IssuerAnswer;
use crate::support::server::{Arrived, Handler, HttpReply, Outgoing, Part, Server};

/// One request.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) message: Value,
}

/// What the server does.
#[derive(Debug, Default)]
pub(super) struct FarState {
    pub(super) seen: Vec<Seen>,
    /// What was wrong with requests.
    pub(super) violations: Vec<String>,
    /// The tokens that are accepted; all requests if there are none.
    pub(super) tokens: HashSet<String>,
    /// The open sessions, and what each remembers.
    pub(super) sessions: BTreeMap<String, Vec<String>>,
    pub(super) ended: Vec<String>,
    /// Answers every request in place of the server.
    pub(super) instead: Option<HttpReply>,
    /// The description of its protected resource, if it has one.
    pub(super) resource_metadata: Option<String>,
    /// Gives tokens, if there is one.
    pub(super) issuer: Option<Issuer>,
    /// The version of the protocol that it answers with; by default one of its own.
    pub(super) version: Option<String>,
    /// What it answers to a method, in place of its own answer.
    pub(super) answers: BTreeMap<String, HttpReply>,
    /// What it answers to a call of a tool, with the id of the call in place of `ID`.
    pub(super) calls: BTreeMap<String, HttpReply>,
    /// The answer to a request in a session that it does not know, in place of 404.
    pub(super) lost: Option<HttpReply>,
    /// It redirects `/mcp` there with this status.
    pub(super) redirect: Option<(u16, String)>,
    /// It floods the stream that is opened by GET.
    pub(super) flood: Option<Flood>,
    /// Tools that it has besides its own.
    pub(super) more_tools: usize,
    next_session: usize,
}

/// An authorization server for client credentials.
#[derive(Debug, Default)]
pub(super) struct Issuer {
    pub(super) origin: String,
    pub(super) secret: String,
    pub(super) resource: String,
    pub(super) scope: String,
    pub(super) expires_in: Option<u64>,
    pub(super) issued: usize,
    /// Named in place of its own.
    pub(super) token_endpoint: Option<String>,
    /// Answers in place of the token endpoint.
    pub(super) instead: Option<HttpReply>,
    /// Its tokens are not accepted.
    pub(super) useless: bool,
}

/// A running server.
pub(crate) struct Far {
    server: Server,
    pub(super) state: Arc<Mutex<FarState>>,
}

impl Far {
    pub(crate) async fn start() -> Self {
        let state: Arc<Mutex<FarState>> = Arc::default();
        let handler: Handler = {
            let state = state.clone();
            Arc::new(move |arrived| {
                let state = state.clone();
                Box::pin(async move {
                    let flood = state.lock().flood.clone();
                    match flood.filter(|_| arrived.request.method() == "GET") {
                        Some(flood) => Outgoing::Response(flood.response()),
                        None => Outgoing::Scripted(answer(arrived, &state).await),
                    }
                })
            })
        };
        Self {
            server: Server::start(handler).await,
            state,
        }
    }

    pub(super) fn origin(&self) -> String {
        format!("http://{}", self.server.addr())
    }

    pub(crate) fn url(&self) -> String {
        format!("{}/mcp", self.origin())
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.state.lock().seen.clone()
    }

    /// How many requests came.
    pub(crate) fn requests(&self) -> usize {
        self.state.lock().seen.len()
    }

    /// How many messages of a method came.
    pub(super) fn count(&self, method: &str) -> usize {
        let seen = self.seen();
        seen.iter()
            .filter(|seen| seen.message["method"] == method)
            .count()
    }

    pub(super) fn assert_clean(&self) {
        let violations = self.state.lock().violations.clone();
        assert!(violations.is_empty(), "{violations:#?}");
    }
}

pub(super) fn header(headers: &HeaderMap, name: &str) -> String {
    let value = headers.get(name).map(|value| value.to_str().unwrap());
    value.unwrap_or_default().to_owned()
}

pub(super) fn json_reply(status: u16, body: &Value) -> HttpReply {
    HttpReply::whole(status, "application/json", body.to_string())
}

fn with_header(mut reply: HttpReply, name: &str, value: &str) -> HttpReply {
    reply.headers.push((name.to_owned(), value.to_owned()));
    reply
}

/// The reply with the id of a request in place of `ID`.
fn with_id(mut reply: HttpReply, id: &Value) -> HttpReply {
    for part in &mut reply.body {
        if let Part::Bytes(bytes) = part {
            let at = bytes.windows(2).position(|two| two == b"ID");
            if let Some(at) = at {
                let id = id.to_string().into_bytes();
                *bytes = [&bytes[..at], &id[..], &bytes[at + 2..]].concat().into();
            }
        }
    }
    reply
}

async fn answer(arrived: Arrived, state: &Mutex<FarState>) -> HttpReply {
    let (head, body) = arrived.request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut state = state.lock();
    let seen = Seen {
        method: head.method.to_string(),
        path: head.uri.path().to_owned(),
        headers: head.headers,
        message,
    };
    state.seen.push(seen.clone());
    if let Some(reply) = &state.instead {
        return reply.clone();
    }
    let form = String::from_utf8_lossy(&body);
    let kind = header(&seen.headers, "content-type");
    let issued = state
        .issuer
        .as_mut()
        .and_then(|it| it.answer(&seen.path, &form, &kind));
    match issued {
        Some(IssuerAnswer::Reply(reply)) => return reply,
        Some(IssuerAnswer::Granted(token, reply)) => {
            state.tokens.insert(token);
            return reply;
        }
        Some(IssuerAnswer::Violations(wrong)) => {
            state.violations.extend(wrong);
            return json_reply(400, &json!({"error": "invalid_request"}));
        }
        None => {}
    }
    state.answer(&seen)
}

impl FarState {
    fn answer(&mut self, seen: &Seen) -> HttpReply {
        if let Some(text) = seen
            .path
            .contains("/.well-known/oauth-protected-resource")
            .then(|| self.resource_metadata.clone())
            .flatten()
        {
            return HttpReply::whole(200, "application/json", text);
        }
        if let Some((status, target)) = self.redirect.as_ref().filter(|_| seen.path == "/mcp") {
            return with_header(json_reply(*status, &json!({})), "location", target);
        }
        if !seen.path.starts_with("/mcp") {
            return json_reply(404, &json!({}));
        }
        let authorization = header(&seen.headers, "authorization");
        let token = authorization.strip_prefix("Bearer ").unwrap_or_default();
        if !self.tokens.is_empty() && !self.tokens.contains(token) {
            let refused = HttpReply::whole(401, "text/plain", "no");
            return with_header(refused, "www-authenticate", "Bearer realm=\"far\"");
        }
        let message = &seen.message;
        let method = message["method"].as_str().unwrap_or_default();
        let session = header(&seen.headers, "mcp-session-id");
        if seen.method == "POST" {
            let accept = header(&seen.headers, "accept");
            if !accept.contains("application/json") || !accept.contains("text/event-stream") {
                self.violations.push(format!("accept: {accept}"));
            }
            if header(&seen.headers, "content-type") != "application/json" {
                self.violations.push(format!("content-type of {method}"));
            }
        }
        let result = |result: Value| {
            json_reply(
                200,
                &json!({"jsonrpc": "2.0", "id": message["id"], "result": result}),
            )
        };
        if method == "initialize" {
            if !session.is_empty() {
                self.violations.push("initialize in a session".to_owned());
            }
            self.next_session += 1;
            let session = format!("session-{}", self.next_session);
            self.sessions.insert(session.clone(), Vec::new());
            let answer = result(json!({
                "protocolVersion": self.version(),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "far", "version": "1"},
            }));
            return with_header(answer, "mcp-session-id", &session);
        }
        if !self.sessions.contains_key(&session) {
            if session.is_empty() {
                self.violations.push(format!("{method} without a session"));
            }
            let lost = self.lost.clone();
            return lost.unwrap_or_else(|| json_reply(404, &json!({})));
        }
        if let Some(reply) = self.answers.get(method) {
            return reply.clone();
        }
        if header(&seen.headers, "mcp-protocol-version") != self.version() {
            self.violations
                .push(format!("{} {method} without its version", seen.method));
        }
        match (seen.method.as_str(), method) {
            ("DELETE", _) => {
                self.sessions.remove(&session);
                self.ended.push(session);
                json_reply(200, &json!({}))
            }
            ("GET", _) => json_reply(405, &json!({})),
            (_, "tools/list") => result(tools(self.more_tools)),
            (_, "tools/call") => self.call(message, &session, &seen.headers),
            (_, "ping") => result(json!({})),
            _ => HttpReply::whole(202, "application/json", ""),
        }
    }

    fn version(&self) -> &str {
        self.version.as_deref().unwrap_or("2025-06-18")
    }

    fn call(&mut self, message: &Value, session: &str, headers: &HeaderMap) -> HttpReply {
        let say = |text: &str| {
            let result = json!({"content": [{"type": "text", "text": text}]});
            json_reply(
                200,
                &json!({"jsonrpc": "2.0", "id": message["id"], "result": result}),
            )
        };
        let arguments = &message["params"]["arguments"];
        let name = message["params"]["name"].as_str().unwrap_or_default();
        if let Some(reply) = self.calls.get(name) {
            return with_id(reply.clone(), &message["id"]);
        }
        match name {
            "echo" => say(arguments["text"].as_str().unwrap_or("echoed")),
            "remember" => {
                let facts = self.sessions.entry(session.to_owned()).or_default();
                facts.extend(arguments["fact"].as_str().map(ToOwned::to_owned));
                say(&format!("{session}: {}", facts.join(",")))
            }
            "leak" => {
                let key = header(headers, "x-api-key");
                say(&format!("{} {key}", header(headers, "authorization")))
            }
            "leak_error" => {
                let message_text = header(headers, "authorization");
                let error = json!({"code": -32000, "message": message_text});
                json_reply(
                    200,
                    &json!({"jsonrpc": "2.0", "id": message["id"], "error": error}),
                )
            }
            "team" => say(&header(headers, "x-team")),
            "cut" => HttpReply {
                body: vec![Part::Reset],
                ..HttpReply::default()
            },
            "hang" => HttpReply {
                before_head: vec![Part::Hang],
                ..HttpReply::default()
            },
            "moved" => {
                let moved = HttpReply::whole(307, "text/plain", "");
                let to = arguments["to"].as_str().unwrap_or_default();
                with_header(moved, "location", to)
            }
            other => say(&format!("called {other}")),
        }
    }
}

fn tools(more: usize) -> Value {
    let names = [
        "echo",
        "remember",
        "team",
        "cut",
        "hang",
        "moved",
        "leak",
        "leak_error",
    ];
    let more = (0..more).map(|number| format!("more_{number}"));
    let names = names.into_iter().map(ToOwned::to_owned).chain(more);
    let tools = names.map(|name| {
        json!({
            "name": name,
            "description": format!("The tool {name}."),
            "inputSchema": {"type": "object"},
            "annotations": {"readOnlyHint": name != "remember", "idempotentHint": true},
        })
    });
    json!({"tools": tools.collect::<Vec<_>>()})
}
