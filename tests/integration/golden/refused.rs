//! Requests that are refused, with status, type, `param` and code of each, or are taken although they look odd.

use http::Method;
use serde_json::{Value, json};

use super::builder;
use super::record::{Golden, chat};
use crate::support::ask::{ask, ask_with, tool, user, with};
use crate::support::script::text;
use crate::support::upstream::ScriptedUpstream;
use crate::support::webhook::Webhook;

fn agent(agent: Value) -> Value {
    with(ask_with("x", ["t"]), "agent", agent)
}

fn messages(messages: Value) -> Value {
    with(ask_with("x", ["t"]), "messages", messages)
}

fn tools(tools: Value) -> Value {
    with(ask("x"), "tools", tools)
}

fn session(id: Value) -> Value {
    with(ask("x"), "session_id", id)
}

#[tokio::test]
async fn refused_requests() {
    let upstream = ScriptedUpstream::answering(|_| text("Taken."))
        .await
        .lenient();
    let hook = Webhook::start().await;
    let configured = "[[tools]]\nname = \"ours\"\ndescription = \"d\"\nurl = \"http://127.0.0.1:1/\"\nparameters = { type = \"object\" }";
    let app = builder()
        .upstream(&upstream)
        .dispatch(&hook)
        .toml("dispatch_tools = [\"t*\"]\nmax_messages = 20")
        .toml(configured)
        .start()
        .await;
    let mut golden = Golden::default();
    let choice = |name: &str| json!({"type": "function", "function": {"name": name}});
    let no_model = json!({"messages": [user("x")], "tools": [tool("t")]});
    let bodies = [
        json!([]),
        json!("x"),
        no_model.clone(),
        with(no_model.clone(), "model", json!(1)),
        with(no_model, "model", json!("")),
        json!({"model": "m", "tools": [tool("t")]}),
        messages(json!("x")),
        messages(json!([])),
        messages(json!([1])),
        messages(json!([user("x"), {"content": "no role"}])),
        messages(json!([{"role": "user", "content": 1}])),
        messages(json!([{"role": "assistant", "tool_calls": "x"}])),
        messages(json!([{"role": "assistant", "tool_calls": [{"id": 1}]}])),
        messages(json!([user("x"), {"role": "tool", "content": "no id"}])),
        messages((0..21).map(|_| user("x")).collect()),
        with(ask_with("x", ["t"]), "stream", json!("yes")),
        with(ask_with("x", ["t"]), "stream_options", json!("x")),
        with(ask_with("x", ["t"]), "n", json!(2)),
        with(ask_with("x", ["t"]), "n", json!("x")),
        with(ask_with("x", ["t"]), "store", json!("x")),
        with(ask_with("x", ["t"]), "tool_choice", choice("other")),
        with(ask_with("x", ["t"]), "tool_choice", json!("sometimes")),
        with(
            ask_with("x", ["t"]),
            "tool_choice",
            json!({"type": "web_search"}),
        ),
        with(ask_with("x", ["t"]), "max_tool_rounds", json!(-1)),
        with(ask_with("x", ["t"]), "max_tool_rounds", json!("3")),
        with(ask_with("x", ["t"]), "max_tool_calls", json!("3")),
        with(ask("x"), "enable_code_execution", json!(true)),
        with(ask("x"), "enable_code_execution", json!("yes")),
        with(ask("x"), "files", json!([{"name": "a"}])),
        with(ask("x"), "agent_permission", json!("ask")),
        with(ask("x"), "agent_permission", json!("perhaps")),
        tools(json!("x")),
        tools(json!([1])),
        tools(json!([{"type": "function"}])),
        tools(json!([{"type": "function", "function": {"name": "no spaces"}}])),
        tools(json!([tool("ours")])),
        tools(json!([tool("t"), tool("t")])),
        tools(json!([{"type": "web_search"}])),
        tools(json!([{"type": "code_interpreter", "container": {"type": "auto"}}])),
        tools(json!([{"type": "mcp", "server_label": "x"}, tool("t")])),
        session(json!(1)),
        session(json!("")),
        session(json!("a/b")),
        agent(json!("x")),
        agent(json!({"unknown": 1})),
        agent(json!({"on_limit": "explode"})),
        agent(json!({"session_mode": 1})),
        agent(json!({"tool_execution": "both"})),
        agent(json!({"text": "none"})),
        agent(json!({"progress": "loud"})),
        agent(json!({"on_disconnect": "finish"})),
        agent(json!({"client_tools": "t"})),
        agent(json!({"client_tools": ["[a"]})),
        agent(json!({"tools": {"only": ["t"]}})),
        agent(json!({"tools": {"deny": ["[a"]}})),
        agent(json!({"limits": {"max_seconds": 0}})),
        agent(json!({"limits": {"max_seconds": "1"}})),
        agent(json!({"limits": {"max_cost_usd": 1}})),
        agent(json!({"limits": {"max_tool_calls": -1}})),
        agent(json!({"limits": {"more": 1}})),
    ];
    for body in &bodies {
        golden.heading(&body.to_string());
        golden.chat(app.client(), body).await;
        golden.upstream(&upstream);
    }
    for text in ["", "{", "{\"model\":\"m\",}", "null"] {
        golden.heading(text);
        golden.ask(chat(app.client(), text)).await;
    }
    golden.heading("not JSON by its type");
    let request = app
        .client()
        .request(Method::POST, "/v1/chat/completions")
        .header("content-type", "text/plain");
    golden.ask(request.body("{}")).await;
    golden.heading("a header that is no session id");
    let client = app.client().header("x-session-id", "a/b");
    golden.ask(chat(&client, &ask("x").to_string())).await;
    golden.upstream(&upstream);
    golden.check("refused_requests");
}

#[tokio::test]
async fn keys_hosts_and_models() {
    let upstream = ScriptedUpstream::start([text("x")]).await;
    let toml = format!(
        "[[upstreams]]\nname = \"only\"\nbase_url = \"{}\"\nmodels = [\"scripted-*\"]\n[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"",
        upstream.base_url()
    );
    let app = builder()
        .env("ALICE", "a-key-of-alice-in-this-test")
        .toml(&toml)
        .start()
        .await;
    let mut golden = Golden::default();
    let alice = app.client().key("a-key-of-alice-in-this-test");
    golden.heading("no key, a wrong key");
    golden.chat(app.client(), &ask("x")).await;
    let wrong = app.client().key("wrong");
    golden.ask(chat(&wrong, &ask("x").to_string())).await;
    golden.heading("an unknown model, whole and with a tool");
    for body in [ask("x"), ask_with("x", ["t"])] {
        let body = with(body, "model", json!("another"));
        golden.ask(chat(&alice, &body.to_string())).await;
    }
    golden.heading("the right key");
    golden.ask(chat(&alice, &ask("x").to_string())).await;
    golden.upstream(&upstream);
    let app = builder().upstream(&upstream).start().await;
    golden.heading("a foreign host name");
    let request = chat(app.client(), &ask("x").to_string()).header("host", "evil.test");
    golden.ask(request).await;
    golden.check("keys_hosts_and_models");
}
