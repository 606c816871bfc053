//! How long connections to declared servers are kept, how many there are, and what operators see of them.

use super::*;

#[tokio::test]
async fn operators_see_how_many_servers_requests_declare_and_no_name_of_one() {
    let far = Far::start().await;
    let (app, _upstream) = start(LOCAL).await;
    let has = async |line: &str| {
        let page = app.get("/metrics").await.text();
        assert!(page.lines().any(|found| found == line), "{line}: {page}");
        assert!(!page.contains("far") && !page.contains("/mcp"), "{page}");
    };
    has("loopwright_mcp_request_servers_total{outcome=\"ok\"} 0").await;
    let server = entry("far", &far.url());
    result(app.client(), "far__echo", json!({}), &server).await;
    record(app.client(), "far__cut", json!({}), &server).await;
    let gone = entry("far", "http://127.0.0.1:9/mcp");
    let body = with(ask("Hello"), "tools", json!([gone]));
    app.post_chat(body).await.completion();
    has("loopwright_mcp_request_servers_total{outcome=\"ok\"} 2").await;
    has("loopwright_mcp_request_servers_total{outcome=\"error\"} 1").await;
    has("loopwright_tool_calls_total{tool=\"mcp_request\",status=\"ok\"} 1").await;
    has("loopwright_tool_calls_total{tool=\"mcp_request\",status=\"error\"} 1").await;
    has("loopwright_tool_duration_seconds_count{tool=\"mcp_request\"} 2").await;
    has("loopwright_tool_calls_total{tool=\"dispatch\",status=\"ok\"} 0").await;
}

#[tokio::test]
async fn idle_connections_end_and_their_number_is_bounded() {
    let far = Far::start().await;
    let idle = format!("{LOCAL}idle_ttl = 0.2\n");
    let (app, _upstream) = start(&idle).await;
    let server = |token: &str| {
        let mut server = entry("far", &far.url());
        server["authorization"] = json!(token);
        server
    };
    result(app.client(), "far__echo", json!({}), &server("a")).await;
    eventually("the idle session to end", || async {
        (far.state.lock().ended == ["session-1"]).then_some(())
    })
    .await;
    drop(app);

    let bounded = format!("{LOCAL}max_connections_per_owner = 1\nmax_connections = 2\n");
    let (app, _upstream) = start_for_two(&bounded).await;
    let (alice, bob) = (app.client().key(ALICE), app.client().key(BOB));
    result(&alice, "far__echo", json!({}), &server("a")).await;
    result(&bob, "far__echo", json!({}), &server("a")).await;
    result(&alice, "far__echo", json!({}), &server("b")).await;
    eventually("the unused session to make way", || async {
        (far.state.lock().ended == ["session-1", "session-2"]).then_some(())
    })
    .await;
    // While it is in use, there is none to make way; others are not concerned.
    let hanging = calling("far__hang", &json!({}), &[server("b")]);
    let mut hanging = alice.stream_chat(hanging).await;
    hanging
        .next_progress("agentic_tool_call_progress", "calling")
        .await;
    eventually("the call to hang", || async {
        (far.count("tools/call") == 5).then_some(())
    })
    .await;
    let body = with(ask("Hello"), "tools", json!([server("c")]));
    let answer = alice.post_chat(body).await.completion();
    assert!(
        answer["agent"]["notices"]
            .to_string()
            .contains("as it can have"),
        "{answer}"
    );
    result(&bob, "far__echo", json!({}), &server("a")).await;
}

#[tokio::test]
async fn the_list_of_a_declared_server_is_bounded() {
    let far = Far::start().await;
    far.state.lock().more_tools = 500;
    let (app, upstream) = start(LOCAL).await;
    let body = with(ask("Hello"), "tools", json!([entry("far", &far.url())]));
    app.client().post_chat(body).await.completion();
    assert_eq!(upstream.last().tool_names().len(), 200);
}

#[tokio::test]
async fn a_silent_server_holds_a_request_only_so_long() {
    let far = Far::start().await;
    far.state.lock().instead = Some(HttpReply {
        before_head: vec![crate::support::server::Part::Hang],
        ..HttpReply::default()
    });
    let (app, _upstream) = start(&format!("mcp_start_timeout = 0.3\n{LOCAL}")).await;
    let began = std::time::Instant::now();
    let body = with(ask("Hello"), "tools", json!([entry("far", &far.url())]));
    let answer = app.client().post_chat(body).await.completion();
    assert!(
        answer["agent"]["notices"]
            .to_string()
            .contains("within 0.3 s"),
        "{answer}"
    );
    assert!(began.elapsed() < AT_ONCE);
}
