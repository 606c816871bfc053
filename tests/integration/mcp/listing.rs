//! The tools of declared MCP servers in responses.

use serde_json::{Value, json};

use super::far::Far;
use super::start;

const LOCAL: &str = "[mcp_requests]\nprivate = [\"127.0.0.1\"]\n";
const PATH: &str = "/v1/responses";

fn entry(label: &str, url: &str) -> Value {
    json!({
        "type": "mcp", "server_label": label, "server_url": url, "require_approval": "never", "allowed_tools": ["echo"],
        "authorization": "hush-hush",
    })
}

fn kinds(response: &Value) -> Vec<&str> {
    let items = response["output"].as_array().unwrap().iter();
    items.map(|item| item["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_response_lists_the_tools_of_its_servers() {
    let far = Far::start().await;
    let (app, _upstream) = start(LOCAL).await;
    let body = json!({
        "model": "test-model", "input": "docs__echo {\"text\":\"hi\"}",
        "tools": [entry("docs", &far.url()), entry("gone", "http://127.0.0.1:9/mcp")],
    });
    let response = app.post(PATH, &body).await.json();
    assert_eq!(
        kinds(&response),
        ["mcp_list_tools", "mcp_list_tools", "mcp_call", "message"],
        "{response}"
    );
    let [listed, failed, call, _] = &response["output"].as_array().unwrap()[..] else {
        panic!("{response}");
    };
    assert_eq!(listed["server_label"], "docs");
    assert_eq!(listed["tools"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed["tools"][0]["name"], "echo");
    assert_eq!(listed["tools"][0]["input_schema"]["type"], "object");
    assert!(listed.get("error").is_none(), "{listed}");
    assert_eq!(
        (&failed["server_label"], &failed["tools"]),
        (&json!("gone"), &json!([]))
    );
    assert!(!failed["error"].as_str().unwrap().is_empty());
    assert_eq!(
        (&call["server_label"], &call["name"]),
        (&json!("docs"), &json!("echo"))
    );
    assert!(!response.to_string().contains("hush-hush"));

    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    let text = app.post(PATH, &streamed).await.text();
    let events = text.lines().filter_map(|line| line.strip_prefix("event: "));
    let events: Vec<&str> = events.take(11).collect();
    assert_eq!(
        events,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.mcp_list_tools.in_progress",
            "response.mcp_list_tools.completed",
            "response.output_item.done",
            "response.output_item.added",
            "response.mcp_list_tools.in_progress",
            "response.mcp_list_tools.failed",
            "response.output_item.done",
            "response.output_item.added",
        ]
    );
    let last = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let last: Value = serde_json::from_str(last.rev().nth(1).unwrap()).unwrap();
    assert_eq!(kinds(&last["response"]), kinds(&response));

    // A client that wants no items of the server's calls gets none of these either.
    let mut quiet = body;
    quiet["agent"] = json!({"progress": "none"});
    let response = app.post(PATH, &quiet).await.json();
    assert_eq!(kinds(&response), ["message"]);
    far.assert_clean();
}

#[tokio::test]
async fn a_choice_of_a_server_forces_one_of_its_tools() {
    let far = Far::start().await;
    let (app, upstream) = start(LOCAL).await;
    let choice = |name: Option<&str>| {
        let mut choice = json!({"type": "mcp", "server_label": "docs"});
        if let Some(name) = name {
            choice["name"] = json!(name);
        }
        choice
    };
    let ask = |allowed: Value, choice: Value| {
        let mut server = entry("docs", &far.url());
        server["allowed_tools"] = allowed;
        json!({"model": "test-model", "input": "docs__echo {\"text\":\"hi\"}", "tools": [server], "tool_choice": choice})
    };
    let function = |name: &str| json!({"type": "function", "function": {"name": name}});
    let both = json!(["echo", "team"]);
    let all = json!([function("docs__echo"), function("docs__team")]);
    for (allowed, asked, first, later) in [
        (
            json!(["echo"]),
            choice(None),
            function("docs__echo"),
            json!("auto"),
        ),
        (
            both.clone(),
            choice(Some("team")),
            function("docs__team"),
            json!("auto"),
        ),
        (
            both.clone(),
            choice(None),
            json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": all}}),
            json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": all}}),
        ),
        (
            both.clone(),
            json!({"type": "allowed_tools", "mode": "auto", "tools": [choice(None)]}),
            json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": all}}),
            json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": all}}),
        ),
    ] {
        let before = upstream.requests().len();
        let response = app.post(PATH, &ask(allowed, asked.clone())).await.json();
        assert_eq!(response["tool_choice"], asked, "{response}");
        let sent = |round: usize| upstream.request(before + round).body["tool_choice"].clone();
        assert_eq!((sent(0), sent(1)), (first, later), "{asked}");
    }
    for (asked, word) in [
        (choice(Some("nothing")), "nothing"),
        (json!({"type": "mcp", "server_label": "other"}), "other"),
        (json!({"type": "mcp"}), "server_label"),
    ] {
        let answer = app.post(PATH, &ask(both.clone(), asked)).await;
        answer.assert_error(400, None);
        let error = &answer.json()["error"];
        assert_eq!(error["param"], "tool_choice", "{error}");
        assert!(error["message"].as_str().unwrap().contains(word), "{error}");
    }
}

#[tokio::test]
async fn a_choice_of_a_server_that_is_down_is_dropped_with_it() {
    let (app, upstream) = start(LOCAL).await;
    let body = json!({
        "model": "test-model", "input": "Hello", "tool_choice": {"type": "mcp", "server_label": "gone"},
        "tools": [
            entry("gone", "http://127.0.0.1:9/mcp"),
            {"type": "function", "name": "own", "parameters": {"type": "object"}},
        ],
    });
    let response = app.post(PATH, &body).await.json();
    assert_eq!(
        kinds(&response),
        ["mcp_list_tools", "message"],
        "{response}"
    );
    let sent = upstream.last();
    assert_eq!(sent.tool_names(), ["own"]);
    assert_eq!(sent.body.get("tool_choice"), None);
}
