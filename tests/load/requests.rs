//! The requests that the load generator sends, framed and ready to be written.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::{answers, script::Plan};

/// Whether a request offers the tool, which is what makes it one for the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tools {
    /// No tools: passed through.
    None,
    /// The tool behind the webhook.
    Lookup,
}

/// The API that a request is one of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Chat completions.
    Chat,
    /// The Responses API.
    Responses,
}

/// How a request is put.
pub(crate) type Asked = (Dialect, Tools);

/// A request to be passed through.
pub(crate) const CHAT: Asked = (Dialect::Chat, Tools::None);

/// One request for a completion in one piece.
pub(crate) fn plain(address: SocketAddr, plan: Plan, tools: Tools, history: usize) -> Vec<u8> {
    chat(address, &body(plan, tools, &messages(history)))
}

/// One request for a stream.
pub(crate) fn stream(address: SocketAddr, plan: Plan, (dialect, tools): Asked) -> Vec<u8> {
    let mut body = body(plan, tools, &messages(0));
    body["stream"] = json!(true);
    match dialect {
        Dialect::Chat => chat(address, &body),
        Dialect::Responses => post(address, "/v1/responses", &as_response(body)),
    }
}

/// The same request for a response.
fn as_response(mut body: Value) -> Value {
    body["input"] = body["messages"].take();
    for tool in body["tools"].as_array_mut().into_iter().flatten() {
        let mut function = tool["function"].take();
        function["type"] = json!("function");
        *tool = function;
    }
    if let Some(fields) = body.as_object_mut() {
        fields.remove("messages");
    }
    body
}

/// What a client that runs the tools itself sends: a streamed model call and a webhook call for every round, then the last model call.
pub(crate) fn client_loop(address: SocketAddr, rounds: usize, history: usize) -> Vec<Vec<u8>> {
    let mut messages = messages(history);
    let mut requests = Vec::new();
    for round in 0..=rounds {
        let mut model = body(Plan::Rounds(rounds), Tools::Lookup, &messages);
        model["stream"] = json!(true);
        model["stream_options"] = json!({"include_usage": true});
        requests.push(chat(address, &model));
        if round < rounds {
            let id = format!("call_{round}");
            let call = json!({
                "name": "lookup", "arguments": {"n": round}, "tool_call_id": id,
                "session_id": "0199a1b2-0000-7000-8000-000000000000", "request_id": "0199a1b2-0000-7000-8000-000000000001",
                "round": round, "model": Plan::Rounds(rounds).model(), "user": null,
            });
            requests.push(post(address, "/tool", &call));
            messages.push(json!({
                "role": "assistant", "content": null,
                "tool_calls": [{"id": id, "type": "function", "function": {"name": "lookup", "arguments": format!("{{\"n\":{round}}}")}}],
            }));
            messages.push(json!({"role": "tool", "tool_call_id": id, "content": "ok"}));
        }
    }
    requests
}

/// A request whose session has an interpreter. Sent again it takes the place of what it brought before, so that the
/// history of the session does not grow.
pub(crate) fn code(address: SocketAddr, plan: Plan, session: &str) -> Vec<u8> {
    let mut body = body(plan, Tools::None, &messages(0));
    body["session_id"] = json!(session);
    body["enable_code_execution"] = json!(true);
    body["agent"] = json!({"session_mode": "replay"});
    chat(address, &body)
}

/// A request for the loop in a session. Sent again it takes the place of what it brought before.
pub(crate) fn replayed(address: SocketAddr, plan: Plan, history: usize, session: &str) -> Vec<u8> {
    let mut body = body(plan, Tools::Lookup, &messages(history));
    body["session_id"] = json!(session);
    body["agent"] = json!({"session_mode": "replay"});
    chat(address, &body)
}

/// A request that stores a conversation of so many messages of 1 KB.
pub(crate) fn import(address: SocketAddr, session: &str, history: usize) -> Vec<u8> {
    let body = json!({"messages": messages(history)});
    framed(address, ("PUT", &format!("/v1/sessions/{session}")), &body)
}

/// The model calls of a client that runs the cells itself.
pub(crate) fn client_cells(address: SocketAddr, plan: Plan, rounds: usize) -> Vec<Vec<u8>> {
    let mut messages = messages(0);
    let mut requests = Vec::new();
    for round in 0..=rounds {
        let mut model = body(plan, Tools::None, &messages);
        model["stream"] = json!(true);
        model["stream_options"] = json!({"include_usage": true});
        model["tools"] = json!([{"type": "function", "function": {
            "name": "execute_python", "description": "Runs Python code.",
            "parameters": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
        }}]);
        requests.push(chat(address, &model));
        let id = format!("call_{round}");
        let arguments = json!({"code": answers::cell(round)}).to_string();
        messages.push(json!({
            "role": "assistant", "content": null,
            "tool_calls": [{"id": id, "type": "function", "function": {"name": "execute_python", "arguments": arguments}}],
        }));
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": "result:\n2"}));
    }
    requests
}

/// A request without a body.
pub(crate) fn bare(address: SocketAddr, method: &str, path: &str) -> Vec<u8> {
    format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer load\r\n\r\n")
        .into_bytes()
}

/// A conversation of `history` messages of 1 KB; a short one for 0.
fn messages(history: usize) -> Vec<Value> {
    if history == 0 {
        return vec![
            json!({"role": "system", "content": "You are a helpful assistant. Answer briefly, and look things up where you can."}),
            json!({"role": "user", "content": "What is the state of ticket 1234, and who looks after it at present?"}),
        ];
    }
    let text = "lorem ipsum dolor sit amet, consectetur adipiscing elit sed do. ".repeat(16);
    (0..history)
        .map(|index| {
            // Counted from the end, so that the last message is the user's.
            let role = if (history - index) % 2 == 1 {
                "user"
            } else {
                "assistant"
            };
            json!({"role": role, "content": text})
        })
        .collect()
}

fn body(plan: Plan, tools: Tools, messages: &[Value]) -> Value {
    let mut body = json!({"model": plan.model(), "messages": messages, "temperature": 0.2});
    if tools == Tools::Lookup {
        body["tools"] = json!([{"type": "function", "function": {
            "name": "lookup", "description": "Looks a number up.",
            "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        }}]);
    }
    body
}

fn chat(address: SocketAddr, body: &Value) -> Vec<u8> {
    post(address, "/v1/chat/completions", body)
}

fn post(address: SocketAddr, path: &str, body: &Value) -> Vec<u8> {
    framed(address, ("POST", path), body)
}

fn framed(address: SocketAddr, (method, path): (&str, &str), body: &Value) -> Vec<u8> {
    let body = body.to_string();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nuser-agent: load\r\naccept: */*\r\n\
         authorization: Bearer load\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
