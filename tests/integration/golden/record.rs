//! A conversation as text: every request and every answer, byte for byte.
//!
//! A body is shown line by line: `| ` before a line that ends with a line feed, `> ` before a last line that does not.
//! Bytes that no editor shows are escaped. What differs from run to run is replaced by [`super::stable`].

use std::fmt::Write as _;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use reqwest::{Body, RequestBuilder, Response};
use serde_json::Value;

use super::stable::{self, Stable};
use crate::support::client::Client;
use crate::support::described::{self, Asked};
use crate::support::upstream::ScriptedUpstream;
use crate::support::webhook::Webhook;
use crate::support::{eventually, within};

/// The record of a conversation.
#[derive(Debug, Default)]
pub(crate) struct Golden {
    text: String,
    model_calls: usize,
    tool_calls: usize,
}

/// A streamed answer that is still arriving.
#[derive(Debug)]
pub(crate) struct Reading {
    asked: Asked,
    response: Response,
    bytes: Vec<u8>,
}

/// A complete answer.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// The bytes of the body.
    pub(crate) body: Bytes,
}

impl Golden {
    /// Adds a line.
    pub(crate) fn line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{line}");
    }

    /// Adds a heading.
    pub(crate) fn heading(&mut self, heading: &str) {
        let _ = writeln!(self.text, "\n## {heading}");
    }

    /// Sends a chat request and records the answer.
    pub(crate) async fn chat(&mut self, client: &Client, body: &Value) -> Exchange {
        self.ask(chat(client, &body.to_string())).await
    }

    /// Sends the same chat request, first streamed.
    pub(crate) async fn streamed_chat(&mut self, client: &Client, body: &Value) -> Exchange {
        let mut body = body.clone();
        body["stream"] = true.into();
        self.chat(client, &body).await
    }

    /// Sends a request of the Responses API, and records the request and the answer.
    pub(crate) async fn response(&mut self, client: &Client, body: &Value) -> Exchange {
        let body = body.to_string();
        self.line("\n### POST /v1/responses");
        self.body(&body);
        self.ask(response(client, "", &body)).await
    }

    /// Sends a request and records the answer.
    pub(crate) async fn ask(&mut self, request: RequestBuilder) -> Exchange {
        let reading = Reading::start(request).await;
        self.answer(reading).await
    }

    /// Sends a request and records in few lines what becomes of it: the status, a refusal with its words, and the body that
    /// the model server got. `shown` stands for the request.
    pub(super) async fn verdict(
        &mut self,
        shown: &str,
        request: RequestBuilder,
        upstream: &ScriptedUpstream,
    ) -> (StatusCode, String) {
        let sent = request.try_clone().unwrap().build().unwrap();
        let (status, words) = refusal(request).await;
        self.line("");
        self.body(shown);
        self.line(format!("{} {words}", status.as_u16()).trim_end());
        self.bodies_besides(upstream, sent.body().and_then(Body::as_bytes));
        (status, words)
    }

    /// Records no more than the bodies of the model calls since the last look.
    pub(crate) fn bodies(&mut self, upstream: &ScriptedUpstream) {
        self.bodies_besides(upstream, None);
    }

    fn bodies_besides(&mut self, upstream: &ScriptedUpstream, sent: Option<&[u8]>) {
        let requests = upstream.requests();
        for request in requests.iter().skip(self.model_calls) {
            match sent == Some(&request.bytes[..]) {
                true => self.line("model call with the same body"),
                false => {
                    self.line("model call");
                    self.body(&String::from_utf8_lossy(&request.bytes));
                }
            }
        }
        self.model_calls = requests.len();
    }

    /// Records the answer, read to its end.
    pub(crate) async fn answer(&mut self, mut reading: Reading) -> Exchange {
        let mut ending = "";
        loop {
            match within("the rest of an answer", reading.response.chunk()).await {
                Ok(Some(bytes)) => reading.bytes.extend_from_slice(&bytes),
                Ok(None) => break,
                Err(_) => {
                    ending = "(the body breaks off)\n";
                    break;
                }
            }
        }
        let (status, headers) = (
            reading.response.status(),
            reading.response.headers().clone(),
        );
        let body = Bytes::from(reading.bytes);
        if ending.is_empty() {
            reading.asked.answered(status.as_u16(), &headers, &body);
        }
        self.received(status, &headers, &body);
        self.text.push_str(ending);
        Exchange { body }
    }

    /// Records the model calls since the last look.
    pub(crate) fn upstream(&mut self, upstream: &ScriptedUpstream) {
        let requests = upstream.requests();
        for request in requests.iter().skip(self.model_calls) {
            let head = format!("{} {}", request.method, request.path);
            self.request("model call", &head, &request.headers, &request.bytes);
        }
        self.model_calls = requests.len();
    }

    /// Records the tool calls since the last look, those of one batch in the order of their names.
    pub(crate) fn webhook(&mut self, webhook: &Webhook) {
        let all = webhook.calls();
        let mut calls: Vec<_> = all.iter().skip(self.tool_calls).collect();
        calls.sort_by_key(|call| (call.body["round"].as_u64(), call.name.clone()));
        for call in calls {
            let head = format!("{} {}", call.method, call.path);
            self.request("tool call", &head, &call.headers, &call.bytes);
        }
        self.tool_calls = all.len();
    }

    /// Records a stored session.
    pub(crate) async fn session(&mut self, client: &Client, id: &str) {
        idle(client).await;
        let path = format!("/v1/sessions/{id}");
        self.get(client, &path).await;
    }

    /// Records the answer to a `GET`.
    pub(crate) async fn get(&mut self, client: &Client, path: &str) {
        let _ = writeln!(self.text, "\n### GET {path}");
        self.ask(client.request(Method::GET, path)).await;
    }

    /// Begins anew with other servers.
    pub(crate) fn forget(&mut self) {
        (self.model_calls, self.tool_calls) = (0, 0);
    }

    /// Compares the record with the golden file of this name.
    pub(crate) fn check(&self, name: &str) {
        self.check_with(name, Stable::default());
    }

    /// The same with placeholders of another kind.
    pub(crate) fn check_with(&self, name: &str, mut stable: Stable) {
        let text = stable.of(&self.text);
        insta::with_settings!({snapshot_path => ".", prepend_module_to_snapshot => false, omit_expression => true}, {
            insta::assert_snapshot!(name, text);
        });
    }

    fn received(&mut self, status: StatusCode, headers: &HeaderMap, body: &Bytes) {
        let _ = writeln!(self.text, "\n### answer {}", status.as_u16());
        self.headers(headers, body);
        let words = stable::without_words(&String::from_utf8_lossy(body));
        self.body(&words);
    }

    fn request(&mut self, what: &str, head: &str, headers: &HeaderMap, body: &Bytes) {
        let _ = writeln!(self.text, "\n### {what} {head}");
        self.headers(headers, body);
        self.body(&String::from_utf8_lossy(body));
    }

    fn headers(&mut self, headers: &HeaderMap, body: &Bytes) {
        let mut lines: Vec<String> = headers
            .iter()
            .map(|(name, value)| {
                let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
                let length = name == "content-length" && value == body.len().to_string();
                let value = if length { "<length>".to_owned() } else { value };
                format!("{name}: {value}\n")
            })
            .collect();
        // Headers of one name keep their order, as the sort is stable over whole names.
        lines.sort_by(|one, other| one.split(':').next().cmp(&other.split(':').next()));
        self.text.extend(lines);
    }

    fn body(&mut self, body: &str) {
        for line in body.split_inclusive('\n') {
            let (mark, line) = match line.strip_suffix('\n') {
                Some(line) => ('|', line),
                None => ('>', line),
            };
            let _ = writeln!(self.text, "{mark} {}", visible(line));
        }
    }
}

impl Reading {
    /// Sends a request and waits for the head of the answer.
    pub(crate) async fn start(request: RequestBuilder) -> Self {
        let (asked, response) = described::send("the head of an answer", request).await;
        Self {
            asked,
            response,
            bytes: Vec::new(),
        }
    }

    /// Reads on until the body holds a text.
    pub(crate) async fn until(&mut self, text: &str) {
        while !String::from_utf8_lossy(&self.bytes).contains(text) {
            let more = within(text, self.response.chunk()).await.unwrap();
            let more = more.unwrap_or_else(|| panic!("the answer ends before {text}"));
            self.bytes.extend_from_slice(&more);
        }
    }
}

impl Exchange {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The chunks of a stream.
    pub(crate) fn chunks(&self) -> Vec<Value> {
        let text = String::from_utf8_lossy(&self.body);
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter_map(|data| serde_json::from_str(data).ok())
            .collect()
    }

    /// The response, or that of the last event of a stream.
    pub(crate) fn response(&self) -> Value {
        match serde_json::from_slice(&self.body) {
            Ok(whole) => whole,
            Err(_) => self.chunks().last().unwrap()["response"].clone(),
        }
    }

    /// The session that a stream names in its finish chunk, or an answer in its body.
    pub(crate) fn session_id(&self) -> String {
        let chunks = self.chunks();
        let whole = serde_json::from_slice(&self.body).ok();
        let id = chunks
            .iter()
            .chain(whole.as_ref())
            .find_map(|object: &Value| object["session_id"].as_str());
        id.expect("a session id").to_owned()
    }
}

/// Sends a request; the status, and the body of a refusal.
pub(super) async fn refusal(request: RequestBuilder) -> (StatusCode, String) {
    let (asked, response) = described::send("the head of an answer", request).await;
    let (status, headers) = (response.status(), response.headers().clone());
    let body = within("an answer", response.bytes()).await.unwrap();
    if status.is_success() {
        return (status, String::new());
    }
    asked.answered(status.as_u16(), &headers, &body);
    (status, String::from_utf8_lossy(&body).into_owned())
}

/// A request with this body to the Responses API, such as `""` or `"/input_tokens"` behind its path.
pub(super) fn response(client: &Client, path: &str, body: &str) -> RequestBuilder {
    client
        .request(Method::POST, &format!("/v1/responses{path}"))
        .header("content-type", "application/json")
        .body(body.to_owned())
}

/// A chat request with this body.
pub(crate) fn chat(client: &Client, body: &str) -> RequestBuilder {
    client
        .request(Method::POST, "/v1/chat/completions")
        .header("content-type", "application/json")
        .body(body.to_owned())
}

/// Waits until no turn runs: a lock is given back a moment after its answer has ended.
async fn idle(client: &Client) {
    eventually("all turns to end", || async {
        let list = client.get("/v1/sessions").await.json();
        let running = |entry: &Value| entry["running"].is_string();
        let any = list["data"].as_array().unwrap().iter().any(running);
        (!any).then_some(())
    })
    .await;
}

fn visible(line: &str) -> String {
    line.chars()
        .map(|character| match character {
            ' '..='~' => character.to_string(),
            other if other.is_control() || !other.is_alphanumeric() => {
                format!("{}", other.escape_unicode())
            }
            other => other.to_string(),
        })
        .collect()
}
