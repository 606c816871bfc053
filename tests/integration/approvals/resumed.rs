//! A request that resumes a suspended turn need not repeat what the turn has asked for.

use std::collections::BTreeMap;

use super::alone::{approve, ended, waiting};
use super::cancelled::suspended;
use super::{
    Builder, ScriptedUpstream, TestApp, Value, Webhook, ask_with, asked, calls, charge, hook, json,
    pay, server, statuses, text, with,
};
use crate::support::eventually;
use crate::support::upstream::MODEL;

/// The server searches the web for requests that ask for it.
const OFFERS: &str = "[search]\non_request = true\n\
    [[search.providers]]\nname = \"searxng\"\nurl = \"http://127.0.0.1:1\"\n";

/// What a turn asks for, in a chat request.
fn chats() -> Vec<(&'static str, Value)> {
    let own = ask_with("", ["charge", "read", "mine"])["tools"].clone();
    let format =
        json!({"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}});
    let rules = json!([{"tool": "read", "effect": "deny"}]);
    vec![
        ("tools", json!({})),
        (
            "sampling",
            json!({"temperature": 0.25, "top_p": 1.0e0, "seed": 7, "stop": ["a", "b"], "max_tokens": 100}),
        ),
        (
            "members of the upstream",
            json!({"x-own": {"a": [1, 2]}, "chat_template_kwargs": {"think": false}}),
        ),
        ("the form of the answer", json!({"response_format": format})),
        (
            "a choice",
            json!({"tool_choice": "required", "parallel_tool_calls": false}),
        ),
        (
            "the only tool",
            json!({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "charge"}}]}}}),
        ),
        (
            "tools of the client",
            json!({"tools": own, "agent": {"client_tools": ["mine"]}}),
        ),
        ("a filter", json!({"agent": {"tools": {"deny": ["read"]}}})),
        (
            "the only tools",
            json!({"agent": {"tools": {"allow": ["charge"]}}}),
        ),
        ("rules", json!({"agent": {"permissions": rules}})),
        (
            "a permission",
            json!({"agent_permission": "deny", "agent": {"permissions": [{"tool": "charge", "effect": "allow"}]}}),
        ),
        ("web search", json!({"web_search_options": {}})),
        ("the end user", json!({"user": "somebody"})),
        (
            "limits",
            json!({"agent": {"limits": {"max_tool_calls": 9}, "on_limit": "stop"}}),
        ),
    ]
}

fn merged(mut body: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

async fn start() -> (ScriptedUpstream, Webhook, TestApp) {
    let script = [
        calls([charge(5)]),
        calls([("read", json!({}))]),
        text("Paid."),
    ];
    let (upstream, hook) = (ScriptedUpstream::start(script).await, hook().await);
    let app = offering(server(&upstream, &hook, "")).start().await;
    (upstream, hook, app)
}

fn offering(builder: Builder) -> Builder {
    builder.toml(OFFERS)
}

/// What the servers got behind a wait, and what became of the calls.
#[derive(Debug, PartialEq)]
struct Seen {
    bodies: Vec<Value>,
    calls: Vec<(String, Value, Value)>,
    statuses: Vec<String>,
}

impl Seen {
    fn of(upstream: &ScriptedUpstream, hook: &Webhook, statuses: Vec<String>) -> Self {
        let requests = upstream.requests();
        let context = |call: &super::super::support::webhook::Call| {
            let user = call.body["context"]["user"].clone();
            (call.name.clone(), call.arguments().clone(), user)
        };
        Self {
            bodies: requests.into_iter().map(|request| request.body).collect(),
            calls: hook.calls().iter().map(context).collect(),
            statuses,
        }
    }
}

/// A turn that waits, and is resumed by this request.
async fn resumed(first: Value, next: Value) -> Seen {
    let (upstream, hook, app) = start().await;
    let approval = asked(&app.post_chat(first).await).remove(0);
    approve(app.client(), &approval).await;
    let answer = app.post_chat(next).await;
    assert_eq!(answer.content(), "Paid.");
    Seen::of(&upstream, &hook, statuses(&answer))
}

#[tokio::test]
async fn a_request_without_messages_has_what_the_turn_has_asked_for() {
    let bare = json!({"model": MODEL, "messages": [], "session_id": "s"});
    for (name, more) in chats() {
        let first = merged(pay(), &more);
        let whole = with(first.clone(), "messages", json!([]));
        let expected = resumed(first.clone(), whole).await;
        let found = resumed(first, bare.clone()).await;
        assert_eq!(found, expected, "{name}");
    }
}

#[tokio::test]
async fn what_a_request_without_messages_names_counts() {
    for (name, more, member, expected) in [
        (
            "another temperature",
            json!({"temperature": 1}),
            "temperature",
            json!(1),
        ),
        (
            "another seed",
            json!({"seed": 8}),
            "temperature",
            json!(0.25),
        ),
        (
            "no member of its own",
            json!({}),
            "temperature",
            json!(0.25),
        ),
    ] {
        let first = with(pay(), "temperature", json!(0.25));
        let bare = json!({"model": MODEL, "messages": [], "session_id": "s"});
        let found = resumed(first, merged(bare, &more)).await;
        assert_eq!(found.bodies[1][member], expected, "{name}");
    }
    let first = with(pay(), "agent", json!({"tools": {"deny": ["nothing"]}}));
    let bare = json!({"model": MODEL, "messages": [], "session_id": "s", "agent": {"tools": {"deny": ["read"]}}});
    let found = resumed(first, bare).await;
    assert_eq!(names(&found.bodies[0]), ["charge", "read"]);
    assert_eq!(names(&found.bodies[1]), ["charge"]);
}

/// As in every request.
#[tokio::test]
async fn a_member_that_is_null_counts_as_absent() {
    let first = with(pay(), "temperature", json!(0.25));
    let bare = json!({"model": MODEL, "messages": [], "session_id": "s", "temperature": null, "tools": null});
    let found = resumed(first, bare).await;
    assert_eq!(names(&found.bodies[1]), ["charge", "read"]);
    assert_eq!(found.bodies[1]["temperature"], 0.25);
}

/// The choice of the turn names a tool that the request does not declare any more.
#[tokio::test]
async fn tools_of_a_request_replace_those_of_the_turn_and_nothing_else() {
    let choice = json!({"type": "function", "function": {"name": "charge"}});
    let first = merged(pay(), &json!({"temperature": 0.25, "tool_choice": choice}));
    let tools = ask_with("", ["read"])["tools"].clone();
    let next = json!({"model": MODEL, "messages": [], "session_id": "s", "tools": tools});
    let found = resumed(first, next).await;
    assert_eq!(names(&found.bodies[1]), ["read"]);
    assert_eq!(found.bodies[1]["temperature"], 0.25);
}

/// The names of the functions that are offered.
fn names(body: &Value) -> Vec<&str> {
    let tools = body["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect()
}

/// What a turn asks for, in a request of the Responses API.
fn responses() -> BTreeMap<&'static str, Value> {
    BTreeMap::from([
        ("instructions", json!({"instructions": "Be brief."})),
        (
            "sampling",
            json!({"temperature": 0.25, "top_p": 0.5, "max_output_tokens": 900}),
        ),
        (
            "a choice",
            json!({"tool_choice": "required", "parallel_tool_calls": false}),
        ),
        (
            "a form",
            json!({"text": {"format": {"type": "json_object"}}, "reasoning": {"effort": "low"}}),
        ),
        ("a filter", json!({"agent": {"tools": {"deny": ["read"]}}})),
        (
            "the end user",
            json!({"user": "somebody", "metadata": {"a": "1"}}),
        ),
    ])
}

fn pay_response() -> Value {
    let tools = ask_with("", ["charge", "read"])["tools"].clone();
    let function = |tool: &Value| {
        let function = &tool["function"];
        json!({"type": "function", "name": function["name"], "parameters": function["parameters"]})
    };
    let tools: Vec<Value> = tools.as_array().unwrap().iter().map(function).collect();
    json!({"model": MODEL, "input": "Pay", "tools": tools, "session_id": "s"})
}

/// A response that waits, and is resumed by a request with the same members or without any, in this dialect.
async fn resumed_response(first: &Value, next: Value, path: &str) -> Seen {
    let (upstream, hook, app) = start().await;
    let begun = app.post("/v1/responses", first).await.json();
    let approval = eventually("a question", || async {
        let list = app.get("/v1/agent/approvals").await.json();
        list["data"].get(0).cloned()
    })
    .await;
    approve(app.client(), &approval).await;
    let next = match next.get("input") {
        Some(_) => with(next, "previous_response_id", begun["id"].clone()),
        None => next,
    };
    let answer = app.post(path, &next).await;
    assert!(answer.text().contains("Paid."), "{}", answer.text());
    Seen::of(&upstream, &hook, Vec::new())
}

#[tokio::test]
async fn a_response_without_input_has_what_the_turn_has_asked_for() {
    const RESPONSES: &str = "/v1/responses";
    for (name, more) in responses() {
        let first = merged(pay_response(), &more);
        let whole = with(first.clone(), "input", json!([]));
        let expected = resumed_response(&first, whole, RESPONSES).await;
        let bare = json!({"model": MODEL, "input": [], "session_id": "s"});
        let found = resumed_response(&first, bare, RESPONSES).await;
        assert_eq!(found, expected, "{name}");
        let bare = json!({"model": MODEL, "messages": [], "session_id": "s"});
        let found = resumed_response(&first, bare, "/v1/chat/completions").await;
        assert_eq!(found.bodies, expected.bodies, "{name}, by a chat request");
    }
}

#[tokio::test]
async fn a_run_that_resumes_by_itself_has_what_its_request_has_asked_for() {
    for (name, more) in chats() {
        let first = merged(pay(), &more);
        let whole = with(first.clone(), "messages", json!([]));
        let expected = resumed(first.clone(), whole).await;
        let (upstream, hook, app) = start().await;
        let mut background = first;
        background["agent"]["background"] = json!(true);
        let id = app.post_chat(background).await.json()["id"].clone();
        let approval = waiting(app.client(), &id).await.remove(0);
        suspended(&app).await;
        approve(app.client(), &approval).await;
        let answer = ended(app.client(), &id).await;
        assert_eq!(answer.content(), "Paid.");
        let found = Seen::of(&upstream, &hook, statuses(&answer));
        assert_eq!(found, expected, "{name}");
    }
}

/// What needs the server's own Python.
#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn a_request_without_messages_has_the_python_of_the_turn() {
    let first = with(pay(), "enable_code_execution", json!(true));
    let bare = json!({"model": MODEL, "messages": [], "session_id": "s"});
    let mut seen = Vec::new();
    for next in [with(first.clone(), "messages", json!([])), bare] {
        let script = [calls([charge(5)]), text("Paid.")];
        let (upstream, hook) = (ScriptedUpstream::start(script).await, hook().await);
        let builder = server(&upstream, &hook, "enable_code_execution = true");
        let app = builder.start().await;
        let approval = asked(&app.post_chat(first.clone()).await).remove(0);
        approve(app.client(), &approval).await;
        assert_eq!(app.post_chat(next).await.content(), "Paid.");
        seen.push((upstream.last().tool_names(), upstream.last().body));
    }
    assert!(seen[0].0.len() > 2, "{:?}", seen[0].0);
    assert_eq!(seen[0], seen[1]);
}
