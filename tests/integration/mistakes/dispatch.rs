//! A dispatch URL without patterns, patterns that match nothing, and webhooks that say no.

use serde_json::{Value, json};

use crate::support::app::{Builder, TestApp};
use crate::support::ask::{ask_with, with};
use crate::support::script::{calls, text};
use crate::support::upstream::ScriptedUpstream;
use crate::support::webhook::{self, Webhook};

/// A request as a coding agent sends it: the shell is one of the user's machine.
fn coding(tool: &str) -> Value {
    json!({
        "model": "test-model", "input": "Say hi", "store": false,
        "tools": [{"type": "function", "name": tool, "description": "Runs a command.", "strict": false,
            "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}}],
    })
}

async fn webhook_for(tool: &str) -> Webhook {
    Webhook::start().await.on(tool, webhook::text("r"))
}

/// With a dispatch URL and no patterns.
fn url_alone(upstream: &ScriptedUpstream, hook: &Webhook) -> Builder {
    let url = format!("tool_dispatch_url = \"{}\"", hook.url());
    TestApp::builder().upstream(upstream).toml(&url)
}

#[tokio::test]
async fn without_patterns_the_tools_of_a_coding_agent_stay_with_it() {
    for tool in ["exec_command", "shell", "apply_patch"] {
        let asked = || calls([(tool, json!({"cmd": "echo hi"}))]);
        let upstream = ScriptedUpstream::start([asked(), asked(), text("Done.")]).await;
        let hook = webhook_for(tool).await;
        let app = url_alone(&upstream, &hook).start().await;
        let warned = app.logs();
        assert!(warned.contains("WARN"), "{warned}");
        assert!(warned.contains("--dispatch-tools '*'"), "{warned}");

        let response = app.post("/v1/responses", &coding(tool)).await.json();
        assert_eq!(response["output"][0]["type"], "function_call", "{response}");
        assert_eq!(response["output"][0]["name"], tool);
        assert_eq!(response["agent"]["stop_reason"], "client_tools");
        assert_eq!(hook.calls().len(), 0);
        let line = format!("`{tool}` is declared by a request of the Responses API and stays");
        assert_eq!(app.logs().matches(&line).count(), 1, "{}", app.logs());

        let body = app.post_chat(ask_with("Go", [tool])).await.completion();
        assert_eq!(body["choices"][0]["finish_reason"], "tool_calls", "{body}");
        let called = &body["choices"][0]["message"]["tool_calls"][0]["function"]["name"];
        assert_eq!(called, tool);
        assert_eq!(hook.calls().len(), 0);
        let line = format!("`{tool}` is declared and stays with the client, because client_tool");
        assert_eq!(app.logs().matches(&line).count(), 1, "{}", app.logs());
    }
}

/// The names that a client of chat completions keeps without patterns, and names like them that a company may have.
#[tokio::test]
async fn client_tool_names_are_the_names_of_coding_agents_and_no_others() {
    let upstream = ScriptedUpstream::answering(|seen| {
        let called = seen.body["tools"][0]["function"]["name"].clone();
        match seen.tool_results().is_empty() {
            true => calls([(called.as_str().unwrap(), json!({}))]),
            false => text("Done."),
        }
    })
    .await;
    let mut hook = Webhook::start().await;
    let ours = [
        "write_invoice",
        "edit_order",
        "grep_tickets",
        "crm_read",
        "bash_report",
        "strings_replace",
    ];
    for name in ours {
        hook = hook.on(name, webhook::text("r"));
    }
    let app = url_alone(&upstream, &hook).start().await;
    let goes_to_webhook = async |app: &TestApp, name: &str| {
        let before = hook.calls().len();
        let body = app.post_chat(ask_with("Go", [name])).await.completion();
        let called = hook.calls().len() > before;
        let handed = body["choices"][0]["finish_reason"] == "tool_calls";
        assert_ne!(called, handed, "{name}: {body}");
        called
    };
    for name in [
        "bash",
        "Bash",
        "WRITE",
        "str_replace_based_edit_tool",
        "run_in_terminal",
        "read_file",
    ] {
        assert!(!goes_to_webhook(&app, name).await, "{name}");
    }
    for name in ours {
        assert!(goes_to_webhook(&app, name).await, "{name}");
    }
    // A direct call is no way around it.
    let direct = app
        .post("/v1/agent/tools/bash/call", &json!({"arguments": {}}))
        .await;
    assert_eq!(direct.status, 404);

    let own = url_alone(&upstream, &hook).toml("client_tool_names = [\"CRM_*\"]");
    let app = own.start().await;
    assert!(!goes_to_webhook(&app, "crm_read").await);
    assert!(goes_to_webhook(&app, "edit_order").await);
}

#[tokio::test]
async fn a_pattern_for_everything_takes_the_tools_of_every_dialect() {
    let asked = || calls([("shell", json!({"cmd": "echo hi"}))]);
    let upstream = ScriptedUpstream::start([asked(), text("A"), asked(), text("B")]).await;
    let hook = webhook_for("shell").await;
    let builder = url_alone(&upstream, &hook).args(["--dispatch-tools", "*"]);
    let app = builder.start().await;
    assert!(!app.logs().contains("--dispatch-tools '*'"), "no warning");
    let response = app.post("/v1/responses", &coding("shell")).await.json();
    assert_eq!(response["status"], "completed", "{response}");
    let body = app.post_chat(ask_with("Go", ["shell"])).await.completion();
    assert_eq!(body["choices"][0]["message"]["content"], "B");
    assert_eq!(hook.calls().len(), 2);
}

#[tokio::test]
async fn without_patterns_a_tool_of_the_settings_goes_to_the_dispatch_url_in_every_dialect() {
    let asked = || calls([("crm_read", json!({}))]);
    let upstream = ScriptedUpstream::start([asked(), text("A"), asked(), text("B")]).await;
    let hook = webhook_for("crm_read").await;
    let builder =
        url_alone(&upstream, &hook).toml("[[tools]]\nname = \"crm_read\"\ndescription = \"d\"");
    let app = builder.start().await;
    let body = json!({"model": "test-model", "input": "Go", "store": false});
    let response = app.post("/v1/responses", &body).await.json();
    assert_eq!(response["status"], "completed", "{response}");
    app.post_chat(ask_with("Go", ["mine"])).await.completion();
    assert_eq!(hook.calls().len(), 2);
}

#[tokio::test]
async fn the_log_says_once_where_each_declared_function_goes() {
    let upstream = ScriptedUpstream::answering(|_| text("Fine.")).await;
    let hook = Webhook::start().await;
    let builder = url_alone(&upstream, &hook).args(["--dispatch-tools", "crm_*"]);
    let app = builder.start().await;
    for _ in 0..2 {
        let body = ask_with("Go", ["get_weather", "crm_read", "mine"]);
        let body = with(body, "agent", json!({"client_tools": ["mine"]}));
        app.post_chat(body).await.completion();
    }
    let logs = app.logs();
    for line in [
        "`get_weather` is declared and matches no pattern of dispatch_tools; it stays with the client",
        "`crm_read` is declared by a request; its calls go to the dispatch URL",
    ] {
        assert_eq!(logs.matches(line).count(), 1, "{line}: {logs}");
    }
    assert!(
        !logs.contains("`mine`"),
        "the request said so itself: {logs}"
    );

    // Callers choose the names, so only so many are remembered, and none that is no name.
    let names: Vec<String> = (0..300).map(|number| format!("name_{number}")).collect();
    let entry = |name: &str| json!({"type": "function", "function": {"name": name}});
    let mut tools: Vec<Value> = names.iter().map(|name| entry(name)).collect();
    // A server-side tool has the request refused for the name, before the model server sees it.
    tools.extend([entry("a\nfalse line"), entry("crm_read")]);
    let body = with(ask_with("Go", ["x"]), "tools", json!(tools));
    app.post_chat(body).await.assert_error(400, None);
    let logs = app.logs();
    assert!(logs.matches("matches no pattern").count() <= 256);
    assert!(!logs.contains("false line"), "{logs}");
}

#[tokio::test]
async fn the_model_is_told_why_a_webhook_refused_a_call() {
    let long = format!("{}é", "x".repeat(1023));
    for (reply, expected) in [
        (
            webhook::refusal(404, "application/json", r#"{"detail":"no such customer"}"#),
            "status 404: no such customer",
        ),
        (
            webhook::refusal(422, "application/problem+json", r#"{"title":"bad"}"#),
            r#"status 422: {"title":"bad"}"#,
        ),
        (
            webhook::refusal(409, "text/plain; charset=utf-8", "already closed\n"),
            "status 409: already closed",
        ),
        (
            webhook::refusal(400, "text/plain", &long),
            &format!("status 400: {}", "x".repeat(1023)),
        ),
        (
            webhook::refusal(404, "text/html", "<h1>No</h1>"),
            "status 404",
        ),
        (
            webhook::refusal(500, "application/json", r#"{"detail":"at line 7"}"#),
            "status 500",
        ),
        (webhook::refusal(403, "application/json", ""), "status 403"),
    ] {
        for own_url in [false, true] {
            let asked = calls([("t", json!({}))]);
            let upstream = ScriptedUpstream::start([asked, text("Done.")]).await;
            let hook = Webhook::start().await.on("t", reply.clone());
            let builder = TestApp::builder().upstream(&upstream);
            let app = match own_url {
                true => {
                    let entry = "[[tools]]\nname = \"t\"\ndescription = \"d\"\nmax_retries = 0";
                    builder.toml(&format!("{entry}\nurl = \"{}\"", hook.url()))
                }
                false => builder.dispatch(&hook).toml("dispatch_max_retries = 0"),
            };
            let app = app.start().await;
            let body = match own_url {
                true => {
                    json!({"model": "test-model", "messages": [{"role": "user", "content": "Go"}]})
                }
                false => ask_with("Go", ["t"]),
            };
            app.post_chat(body).await.completion();
            let told = upstream.last().tool_results()[0].1.clone();
            assert!(told.ends_with(expected), "{told}\nexpected {expected}");
            let words = expected
                .split_once(": ")
                .map_or("at line 7", |(_, words)| words);
            assert!(!app.logs().contains(words), "{}", app.logs());
        }
    }
}
