//! A policy server, and the settings that name it.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::support::server::{Handler, HttpReply, Outgoing, Part, Server};

/// A policy server that answers as a test says.
pub(crate) struct Receiver {
    server: Server,
    seen: Arc<Mutex<Vec<Seen>>>,
}

/// A request as it came in.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Bytes,
    pub(crate) body: Value,
}

impl Receiver {
    /// A server that answers by the path and the body of a request.
    pub(crate) async fn start(
        decide: impl Fn(&str, &Value) -> HttpReply + Send + Sync + 'static,
    ) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = seen.clone();
        let decide = Arc::new(decide);
        let handler: Handler = Arc::new(move |arrived| {
            let (noted, decide) = (noted.clone(), decide.clone());
            Box::pin(async move {
                let (head, body) = arrived.request.into_parts();
                let bytes = match body.collect().await {
                    Ok(body) => body.to_bytes(),
                    Err(_) => return Outgoing::Scripted(HttpReply::default()),
                };
                let seen = Seen {
                    path: head.uri.path().to_owned(),
                    headers: head.headers,
                    body: serde_json::from_slice(&bytes).unwrap_or_default(),
                    bytes,
                };
                let reply = decide(&seen.path, &seen.body);
                noted.lock().push(seen);
                Outgoing::Scripted(reply)
            })
        });
        Self {
            server: Server::start(handler).await,
            seen,
        }
    }

    /// A server that gives every request this answer.
    pub(crate) async fn always(answer: Value) -> Self {
        Self::start(move |_, _| said(&answer)).await
    }

    /// The entry of a hook with further lines. Its URL has a token in its query.
    pub(crate) fn entry(&self, on: &str, path: &str, more: &str) -> String {
        let url = format!("http://{}{path}?token=t0p-secret", self.server.addr());
        format!("[[hooks]]\non = \"{on}\"\nurl = \"{url}\"\n{more}\n")
    }

    /// The section of the approver with further lines.
    pub(crate) fn approver(&self, more: &str) -> String {
        let addr = self.server.addr();
        format!("[approver]\nurl = \"http://{addr}/\"\n{more}\n")
    }

    /// The webhook that hears of calls which wait, with further lines.
    pub(crate) fn approval_webhook(&self, more: &str) -> String {
        let addr = self.server.addr();
        format!("[approval_webhook]\nurl = \"http://{addr}/\"\n{more}\n")
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    /// The bodies of the requests so far.
    pub(crate) fn bodies(&self) -> Vec<Value> {
        self.seen().into_iter().map(|seen| seen.body).collect()
    }
}

/// An answer of status 200.
pub(crate) fn said(answer: &Value) -> HttpReply {
    HttpReply::whole(200, "application/json", answer.to_string())
}

/// An answer with these members of `hookSpecificOutput`.
pub(crate) fn output(members: &Value) -> HttpReply {
    said(&json!({"hookSpecificOutput": members}))
}

/// Nothing at all.
pub(crate) fn hang() -> HttpReply {
    HttpReply {
        before_head: vec![Part::Hang],
        ..HttpReply::default()
    }
}
