//! The request of a call: line, headers, query, body and signature.

use super::*;

#[tokio::test]
async fn a_request_has_exactly_the_documented_form() {
    let server = Server::start(vec![content("found")]).await;
    let mut settings = server.settings();
    settings.headers = header("authorization", "Bearer t");
    let (mut invocation, _progress) = invocation();
    let tool = tool(settings, false);
    let context = Arc::get_mut(&mut invocation.context).unwrap();
    context.trace = header("traceparent", "00-1-2-01");
    context.trace.extend(header("tracestate", "a=b"));
    assert_eq!(tool.call(&invocation).await.unwrap().content, "found");
    let context = Arc::get_mut(&mut invocation.context).unwrap();
    context.session_id = Some(SessionId::parse("s").unwrap());
    context.user = Some("u\"".into());
    context.owner = Owner::key("alice");
    tool.call(&invocation).await.unwrap();

    let [short, full] = server.requests().try_into().unwrap();
    assert_eq!(
        short.body,
        r#"{"name":"get_ticket","arguments":{"id":7},"tool_call_id":"call_1","request_id":"req_1","round":2,"model":"m","timeout_ms":20000}"#
    );
    let workspace = WorkspaceId::of(&Owner::key("alice"), &SessionId::parse("s").unwrap());
    assert_eq!(
        full.body,
        format!(
            r#"{{"name":"get_ticket","arguments":{{"id":7}},"tool_call_id":"call_1","session_id":"s","session_key":"{}","owner":"alice","request_id":"req_1","round":2,"model":"m","user":"u\"","timeout_ms":20000}}"#,
            workspace.as_str()
        )
    );
    assert_eq!(short.line, "POST /run?key=secret HTTP/1.1");
    let mut headers = short.headers;
    let key = headers.remove("idempotency-key").unwrap();
    assert!(key.starts_with("msg_") && key.len() == 28, "{key}");
    assert_ne!(full.headers["idempotency-key"], key);
    let expected = [
        (
            "accept",
            "application/json, text/event-stream, text/plain;q=0.9, */*;q=0.1",
        ),
        ("authorization", "Bearer t"),
        ("content-length", &short.body.len().to_string()),
        ("content-type", "application/json"),
        ("host", &server.address.to_string()),
        ("traceparent", "00-1-2-01"),
        ("tracestate", "a=b"),
        ("user-agent", USER_AGENT),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(headers, BTreeMap::from(expected));
}

#[tokio::test]
async fn configured_headers_replace_defaults_but_not_the_idempotency_key() {
    let server = Server::start(vec![content("")]).await;
    let mut settings = server.settings();
    for (name, value) in [
        ("user-agent", "own"),
        ("idempotency-key", "own"),
        ("content-length", "1"),
        ("accept-encoding", "gzip"),
    ] {
        settings.headers.extend(header(name, value));
    }
    call(&tool(settings, false)).await.unwrap();
    let headers = server.requests().remove(0).headers;
    assert_eq!(headers["user-agent"], "own");
    assert!(headers["idempotency-key"].starts_with("msg_"));
    assert!(!headers.contains_key("accept-encoding"));
    let parent: Vec<&str> = headers["traceparent"].split('-').collect();
    let lengths: Vec<usize> = parent.iter().map(|part| part.len()).collect();
    assert_eq!(lengths, [2, 32, 16, 2], "{parent:?}");
}

#[tokio::test]
async fn arguments_of_a_get_tool_are_sent_in_the_query() {
    let server = Server::start(vec![content("")]).await;
    let mut settings = server.settings();
    settings.method = Method::GET;
    settings.secret = Some(SECRET.into());
    let tool = tool(settings, false);
    let (mut invocation, _progress) = invocation();
    let arguments = json!({"b": true, "l": ["x y", 2, null], "n": 1.5, "no": null, "o": {"k": "ä&"}, "s": "t=u"});
    invocation.arguments = arguments.as_object().unwrap().clone();
    tool.call(&invocation).await.unwrap();
    invocation.arguments.clear();
    tool.call(&invocation).await.unwrap();
    let [with, without] = server.requests().try_into().unwrap();
    assert_eq!(
        with.line,
        "GET /run?key=secret&b=true&l=x+y&l=2&n=1.5&o=%7B%22k%22%3A%22%C3%A4%26%22%7D&s=t%3Du HTTP/1.1"
    );
    assert_eq!(without.line, "GET /run?key=secret HTTP/1.1");
    assert_eq!(with.body, "");
    assert!(!with.headers.contains_key("content-type"));
    verify(&with);

    invocation.arguments = json!({"s": "x".repeat(40_000)})
        .as_object()
        .unwrap()
        .clone();
    let error = tool.call(&invocation).await.unwrap_err();
    assert!(matches!(error, ToolError::Rejected(_)), "{error}");
}

#[tokio::test]
async fn arguments_cannot_replace_the_configured_query() {
    let server = Server::start(vec![content("")]).await;
    let mut settings = server.settings();
    settings.method = Method::GET;
    let tool = tool(settings, false);
    let (mut invocation, _progress) = invocation();
    for key in ["key", "KEY", "key[]", "key[0]", "k%65y", "key ", "+key"] {
        invocation.arguments =
            serde_json::Map::from_iter([("a".into(), 1.into()), (key.into(), "x".into())]);
        let error = tool.call(&invocation).await.unwrap_err();
        assert!(matches!(error, ToolError::Rejected(_)), "{key}: {error}");
        assert!(error.to_string().contains(key), "{error}");
    }
    assert_eq!(server.requests().len(), 0);
    let arguments = json!({"key": null, "keys": 1, "ke": 2, "[": 3});
    invocation.arguments = arguments.as_object().unwrap().clone();
    tool.call(&invocation).await.unwrap();
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn put_patch_and_delete_send_a_body_like_post() {
    for method in [Method::PUT, Method::PATCH, Method::DELETE] {
        let server = Server::start(vec![content("")]).await;
        let mut settings = server.settings();
        settings.method = method.clone();
        call(&tool(settings, false)).await.unwrap();
        let request = server.requests().remove(0);
        assert_eq!(request.line, format!("{method} /run?key=secret HTTP/1.1"));
        assert!(request.body.starts_with(r#"{"name":"get_ticket""#));
    }
}

fn verify(request: &Request) {
    let headers: HeaderMap = request
        .headers
        .iter()
        .filter_map(|(name, value)| Some((name.parse().ok()?, value.parse().ok()?)))
        .collect::<Vec<(::http::HeaderName, ::http::HeaderValue)>>()
        .into_iter()
        .collect();
    let webhook = Webhook::new(SECRET).unwrap();
    webhook.verify(request.body.as_bytes(), &headers).unwrap();
    assert_eq!(
        request.headers["webhook-id"],
        request.headers["idempotency-key"]
    );
}

#[tokio::test]
async fn signatures_verify_and_retries_keep_the_idempotency_key() {
    let server = Server::start(vec![plain("429 Too Many Requests"), content("a")]).await;
    let mut settings = server.settings();
    settings.secret = Some(SECRET.into());
    assert_eq!(call(&tool(settings, false)).await.unwrap().content, "a");
    let [first, second] = server.requests().try_into().unwrap();
    verify(&first);
    verify(&second);
    assert_eq!(
        first.headers["idempotency-key"],
        second.headers["idempotency-key"]
    );
    assert_eq!(first.headers["traceparent"], second.headers["traceparent"]);
    assert_eq!(first.body, second.body);
}

#[tokio::test]
async fn a_dispatched_tool_calls_the_dispatch_endpoint() {
    let server = Server::start(vec![content("a")]).await;
    let settings = Settings {
        dispatch: Some(DispatchSettings {
            tools: None,
            client_tool_names: Vec::new(),
            endpoint: server.settings(),
            sequential: true,
            idempotent: true,
        }),
        http_tools: Vec::new(),
        max_parallel_tools: 8,
        max_result_chars: 1000,
        connect_timeout: LONG,
        code_by_default: false,
        certificates: net::CaCertificates::default(),
    };
    let client = WebhookClient::new(&settings).unwrap();
    let endpoint = Endpoint::dispatch(&client, settings.dispatch.as_ref().unwrap()).unwrap();
    let definition = ToolDefinition::function("get_ticket", "d", "{}");
    let tool = HttpTool::dispatched(&Arc::new(endpoint), definition);
    let policy = tool.policy();
    assert!(policy.sequential && policy.idempotent && policy.source == ToolSource::Dispatch);
    assert_eq!(policy.timeout, LONG);
    assert_eq!(call(&tool).await.unwrap().content, "a");
    let body: Value = serde_json::from_str(&server.requests().remove(0).body).unwrap();
    assert_eq!(body["name"], "get_ticket");
}
