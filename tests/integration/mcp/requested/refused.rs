//! Declarations that are refused, and servers that are not connected to.

use super::*;

#[tokio::test]
async fn what_cannot_be_used_is_refused_by_name() {
    let far = Far::start().await;
    let toml = format!(
        "[mcp_requests]\nhosts = [\"mcp.example.org\", \"10.0.0.1\"]\nprivate = [\"127.0.0.1\"]\n{}",
        fake::server("own", "", "")
    );
    let (app, upstream) = start(&toml).await;
    in_state(app.client(), "own", "ready").await;
    let url = far.url();
    let changed = |member: &str, value: Value| {
        let mut entry = entry("far", &url);
        match value {
            Value::Null => drop(entry.as_object_mut().unwrap().remove(member)),
            value => entry[member] = value,
        }
        entry
    };
    let many: Vec<String> = (0..300).map(|number| number.to_string()).collect();
    for (member, value, words) in [
        ("server_label", Value::Null, "1 to 40"),
        ("server_label", json!(""), "1 to 40"),
        ("server_label", json!("a b"), "1 to 40"),
        ("server_label", json!("l".repeat(41)), "1 to 40"),
        ("server_label", json!("own"), "another label"),
        ("server_url", Value::Null, "is missing"),
        ("server_url", json!(3), "must be a string"),
        ("server_url", json!("mcp.example.org"), "not a complete URL"),
        (
            "server_url",
            json!("https://elsewhere.org/mcp"),
            "'elsewhere.org'",
        ),
        (
            "server_url",
            json!("https://mcp.example.org:22/mcp"),
            "port 22",
        ),
        (
            "server_url",
            json!("http://mcp.example.org:443/mcp"),
            "https://",
        ),
        ("server_url", json!("https://10.0.0.1/mcp"), "public"),
        ("server_url", json!("https://localhost/mcp"), "public"),
        (
            "server_url",
            json!("https://u:p@mcp.example.org/mcp"),
            "password",
        ),
        ("require_approval", json!("sometimes"), "\"never\""),
        ("require_approval", json!(["echo"]), "\"never\""),
        (
            "require_approval",
            json!({"never": ["echo"]}),
            "'tool_names'",
        ),
        (
            "require_approval",
            json!({"always": {"tool_names": many}}),
            "at most 256",
        ),
        ("authorization", json!(["t"]), "access token"),
        ("authorization", json!("a\nb"), "access token"),
        ("authorization", json!(" "), "access token"),
        ("headers", json!(["x"]), "object"),
        ("headers", json!({"x": 1}), "object"),
        ("headers", json!({"a b": "x"}), "no name"),
        ("headers", json!({"x": "a\nb"}), "cannot be sent"),
        ("headers", json!({"Host": "x"}), "leave it out"),
        ("headers", json!({"mcp-session-id": "x"}), "leave it out"),
        ("headers", json!({"x": "a".repeat(20_000)}), "16384 bytes"),
        ("allowed_tools", json!("echo"), "list"),
        ("allowed_tools", json!([1]), "list"),
        ("allowed_tools", json!({"read_only": "yes"}), "tool_names"),
        (
            "allowed_tools",
            json!({"tool_names": ["echo"], "approval": true}),
            "nothing else",
        ),
        ("allowed_tools", json!({"tool_names": many}), "at most 256"),
        ("allowed_tools", json!(many), "at most 256"),
        ("server_description", json!("d".repeat(3000)), "2048"),
        ("connector_id", json!("connector_gmail"), "is not known"),
    ] {
        let body = with(
            ask("Hello"),
            "tools",
            json!([tool("own"), changed(member, value.clone())]),
        );
        let refused = app.client().post_chat(body).await;
        let message = refused.assert_error(400, None);
        assert_eq!(
            refused.json()["error"]["param"],
            format!("tools[1].{member}"),
            "{message}"
        );
        assert!(message.contains(words), "{member} {value}: {message}");
    }
    let twice = json!([entry("far", &url), entry("far", &url)]);
    let refused = app
        .client()
        .post_chat(with(ask("Hello"), "tools", twice))
        .await;
    assert_eq!(refused.json()["error"]["param"], "tools[1].server_label");
    let nine: Vec<Value> = (0..9)
        .map(|number| entry(&format!("s{number}"), &url))
        .collect();
    let refused = app
        .client()
        .post_chat(with(ask("Hello"), "tools", json!(nine)))
        .await;
    assert_eq!(refused.json()["error"]["param"], "tools[8]");
    assert!(far.seen().is_empty(), "{:?}", far.seen());
    // Names are known once the server has listed its tools.
    let clash = json!([tool("far__echo"), entry("far", &url)]);
    let refused = app
        .client()
        .post_chat(with(ask("Hello"), "tools", clash))
        .await;
    let message = refused.assert_error(400, None);
    assert_eq!(refused.json()["error"]["param"], "tools", "{message}");
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn without_hosts_no_request_brings_a_server() {
    let far = Far::start().await;
    let (app, _upstream) = start("").await;
    let body = with(ask("Hello"), "tools", json!([entry("far", &far.url())]));
    let message = app.client().post_chat(body).await.assert_error(400, None);
    assert!(message.contains("'mcp' is not offered"), "{message}");
    assert!(far.seen().is_empty());
}

#[tokio::test]
async fn a_request_without_rounds_connects_to_nothing() {
    let far = Far::start().await;
    let (app, upstream) = start(LOCAL).await;
    let body = with(ask("Hello"), "tools", json!([entry("far", &far.url())]));
    app.client()
        .post_chat(with(body, "max_tool_rounds", json!(0)))
        .await
        .completion();
    assert_eq!(upstream.last().tool_names(), [""; 0]);
    assert!(far.seen().is_empty());
}
