//! Sessions through the API: joining, replay and append, owners, list, export, import, fork, delete, one at a time.

use http::Method;
use serde_json::{Value, json};

use super::support::app::TestApp;
use super::support::ask::{ask, ask_with, assistant, tool, user, with};
use super::support::script::{calls, text, text_and_calls};
use super::support::server::Gate;
use super::support::upstream::{MODEL, ScriptedUpstream};
use super::support::webhook::{self, Webhook};
use super::support::within;

fn in_session(id: &str, messages: Value) -> Value {
    json!({"model": MODEL, "session_id": id, "messages": messages, "tools": [tool("t")]})
}

#[tokio::test]
async fn the_next_turn_sends_the_expanded_history() {
    let upstream = ScriptedUpstream::start([
        text_and_calls("Looking.", [("t", json!({"a": 1}))]),
        text("Found."),
        text("As I said."),
    ])
    .await;
    let hook = Webhook::start().await.on("t", webhook::text("the result"));
    let app = TestApp::with_tools(&upstream, &hook).await;

    app.post_chat(in_session("s", json!([user("First")])))
        .await
        .completion();
    // Only what is new.
    app.post_chat(in_session("s", json!([user("Second")])))
        .await
        .completion();

    let seen = upstream.last();
    assert_eq!(
        seen.roles(),
        ["user", "assistant", "tool", "assistant", "user"]
    );
    assert_eq!(seen.messages()[1]["content"], "Looking.");
    assert_eq!(seen.tool_results()[0].1, "the result");
    assert_eq!(seen.messages()[3]["content"], "Found.");
}

#[tokio::test]
async fn a_client_that_replays_what_it_saw_gets_the_same_history() {
    let upstream = ScriptedUpstream::start([
        text_and_calls("Looking.", [("t", json!({"a": 1}))]),
        text("Found."),
        text("Third."),
    ])
    .await;
    let hook = Webhook::start().await.on("t", webhook::text("the result"));
    let app = TestApp::with_tools(&upstream, &hook).await;

    let first = app
        .post_chat(in_session("s", json!([user("First")])))
        .await
        .content();
    assert_eq!(first, "Looking.\n\nFound.");
    let replayed = json!([user("First"), assistant(&first), user("Second")]);
    app.post_chat(in_session("s", replayed)).await.completion();
    assert_eq!(
        upstream.last().roles(),
        ["user", "assistant", "tool", "assistant", "user"]
    );
}

#[tokio::test]
async fn an_edit_and_a_regeneration_leave_the_stored_rest_behind() {
    let upstream = ScriptedUpstream::start(["A1", "A2", "A2 again", "A1 edited"].map(text)).await;
    let app = TestApp::with_upstream(&upstream).await;
    let send = async |messages: Value| {
        let body = json!({"model": MODEL, "session_id": "s", "messages": messages});
        app.post_chat(body).await.content()
    };
    send(json!([user("Q1")])).await;
    send(json!([user("Q2")])).await;
    // The client throws A2 away and asks again.
    send(json!([user("Q1"), assistant("A1"), user("Q2")])).await;
    let texts = |seen: &[Value]| -> Vec<String> {
        seen.iter()
            .map(|message| message["content"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(texts(&upstream.last().messages()), ["Q1", "A1", "Q2"]);
    // The client edits its first question.
    let edited = json!({"model": MODEL, "session_id": "s", "messages": [user("Q1 better")], "agent": {"session_mode": "replay"}});
    app.post_chat(edited).await.completion();
    assert_eq!(texts(&upstream.last().messages()), ["Q1 better"]);
    let export = app.get("/v1/sessions/s").await.json();
    assert_eq!(
        texts(export["messages"].as_array().unwrap()),
        ["Q1 better", "A1 edited"]
    );
}

#[tokio::test]
async fn instructions_are_replaced_and_take_no_part_in_the_comparison() {
    let upstream = ScriptedUpstream::start(["A1", "A2", "A3"].map(text)).await;
    let app = TestApp::with_upstream(&upstream).await;
    let system = |text: &str| json!({"role": "system", "content": text});
    let send = async |messages: Value| {
        let body = json!({"model": MODEL, "session_id": "s", "messages": messages});
        app.post_chat(body).await.completion()
    };
    send(json!([system("Be brief."), user("Q1")])).await;
    send(json!([
        system("Be long."),
        user("Q1"),
        assistant("A1"),
        user("Q2")
    ]))
    .await;
    assert_eq!(upstream.last().messages()[0]["content"], "Be long.");
    assert_eq!(
        upstream.last().roles(),
        ["system", "user", "assistant", "user"]
    );
    send(json!([user("Q3")])).await;
    assert_eq!(
        upstream.last().messages()[0]["content"],
        "Be long.",
        "kept where none is sent"
    );
    assert_eq!(upstream.last().messages().len(), 6);
}

#[tokio::test]
async fn the_session_id_may_come_in_a_header() {
    let upstream = ScriptedUpstream::start(["A1", "A2", "A3"].map(text)).await;
    let app = TestApp::with_upstream(&upstream).await;
    let first = app.client().header("x-session-id", "s");
    let answer = first.post_chat(ask("Q1")).await;
    assert_eq!(answer.header("x-session-id"), Some("s"));
    first.post_chat(ask("Q2")).await.completion();
    assert_eq!(upstream.last().roles(), ["user", "assistant", "user"]);
    assert!(
        upstream.last().header("x-session-id").is_none(),
        "stays here"
    );
    let bad = app
        .client()
        .header("x-session-id", "a/b")
        .post_chat(ask("Q"))
        .await;
    bad.assert_error(400, None);
    assert_eq!(bad.json()["error"]["param"], "x-session-id");
    // The body is nearer to the conversation than a header that a front end adds to everything.
    let body = with(ask("Q"), "session_id", json!("other"));
    let both = first.post_chat(body).await;
    assert_eq!(both.header("x-session-id"), Some("other"));
    assert_eq!(upstream.last().roles(), ["user"]);
}

#[tokio::test]
async fn without_an_id_nothing_is_read_and_a_passed_through_request_stores_nothing() {
    let upstream = ScriptedUpstream::start(["A1", "A2"].map(text)).await;
    let app = TestApp::with_upstream(&upstream).await;
    app.post_chat(ask("Q1")).await;
    app.post_chat(ask("Q2")).await;
    assert_eq!(upstream.last().roles(), ["user"]);
    assert_eq!(app.get("/v1/sessions").await.json()["data"], json!([]));
}

#[tokio::test]
async fn client_and_server_tools_share_a_batch_and_the_client_goes_on_without_a_session() {
    let upstream = ScriptedUpstream::start([
        text_and_calls(
            "Both.",
            [
                ("mine", json!({"x": 1})),
                ("t", json!({})),
                ("mine", json!({"x": 2})),
            ],
        ),
        text("Done."),
    ])
    .await;
    let hook = Webhook::start()
        .await
        .on("t", webhook::text("server result"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let mut body = ask_with("Go", ["mine", "t"]);
    body["agent"] = json!({"client_tools": ["mi*"]});

    let stream = app.stream_chat(body.clone()).await.collect().await;
    assert_eq!(stream.finish_reason(), "tool_calls");
    assert_eq!(stream.agent()["stop_reason"], "client_tools");
    let own: Vec<(&str, &str)> = stream
        .tool_calls
        .iter()
        .map(|call| (call.name.as_str(), call.arguments.as_str()))
        .collect();
    assert_eq!(own, [("mine", r#"{"x":1}"#), ("mine", r#"{"x":2}"#)]);
    assert_eq!(hook.names(), ["t"], "the server's call has run already");

    // A plain client: it appends the assistant's message as it saw it and its own results, and knows no session.
    let seen: Vec<Value> = stream
        .tool_calls
        .iter()
        .map(|call| json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}))
        .collect();
    body["messages"] = json!([
        user("Go"),
        {"role": "assistant", "content": "Both.", "tool_calls": seen},
        {"role": "tool", "tool_call_id": stream.tool_calls[1].id, "content": "client 2"},
        {"role": "tool", "tool_call_id": stream.tool_calls[0].id, "content": "client 1"},
    ]);
    let answer = app.post_chat(body).await;
    assert_eq!(answer.content(), "Done.");
    let completion = answer.completion();
    assert_eq!(
        completion["session_id"].as_str(),
        stream.session_id(),
        "led back to the same session"
    );
    assert_eq!(hook.names(), ["t"], "nothing runs twice");
    let results: Vec<String> = upstream
        .last()
        .tool_results()
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    assert_eq!(
        results,
        ["client 1", "server result", "client 2"],
        "in the order of the calls"
    );
}

#[tokio::test]
async fn a_plain_answer_with_client_calls_has_them_and_nothing_else() {
    let upstream =
        ScriptedUpstream::start([calls([("mine", json!({"x": 1})), ("t", json!({}))])]).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = with(
        ask_with("Go", ["mine", "t"]),
        "agent",
        json!({"client_tools": ["mine"]}),
    );
    let body = app.post_chat(body).await.completion();
    let choice = &body["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["content"], Value::Null);
    assert_eq!(choice["message"]["tool_calls"].as_array().unwrap().len(), 1);
    assert_eq!(
        choice["message"]["tool_calls"][0]["function"]["name"],
        "mine"
    );
    assert_eq!(body["agentic_tool_calls"].as_array().unwrap().len(), 1);
    assert_eq!(body["agentic_tool_calls"][0]["name"], "t");
}

#[tokio::test]
async fn store_false_leaves_nothing_behind_and_still_waits_for_the_client() {
    let upstream = ScriptedUpstream::start([
        calls([("mine", json!({})), ("t", json!({}))]),
        text("Done."),
    ])
    .await;
    let hook = Webhook::start()
        .await
        .on("t", webhook::text("server result"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let mut body = ask_with("Go", ["mine", "t"]);
    body["store"] = json!(false);
    body["agent"] = json!({"client_tools": ["mine"]});
    let first = app.post_chat(body.clone()).await;
    assert!(first.header("x-session-id").is_none());
    let first = first.completion();
    assert!(first.get("session_id").is_none(), "{first}");
    let call = &first["choices"][0]["message"]["tool_calls"][0];
    body["messages"] = json!([
        user("Go"),
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "client result"},
    ]);
    assert_eq!(app.post_chat(body.clone()).await.content(), "Done.");
    // Sent again, with other extensions: the same turn goes on.
    upstream.push(text("Done again."));
    body["session_id"] = json!("s");
    body.as_object_mut().unwrap().remove("store");
    assert_eq!(app.post_chat(body).await.content(), "Done again.");
    let results: Vec<String> = upstream
        .last()
        .tool_results()
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    assert_eq!(results, ["client result", "server result"]);
    assert_eq!(app.get("/v1/sessions").await.json()["data"], json!([]));
}

#[tokio::test]
async fn a_session_belongs_to_the_key_that_made_it() {
    let upstream =
        ScriptedUpstream::start([calls([("mine", json!({}))]), text("For the other.")]).await;
    let app = TestApp::builder()
        .upstream(&upstream)
        .env("ALICE", "alice-key-0123456789")
        .env("BOB", "bob-key-0123456789ab")
        .toml("[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"\n[[api_keys]]\nname = \"bob\"\nenv = \"BOB\"")
        .start()
        .await;
    let alice = app.client().key("alice-key-0123456789");
    let bob = app.client().key("bob-key-0123456789ab");
    let mut body = ask_with("Go", ["mine"]);
    body["session_id"] = json!("s");
    let first = alice.post_chat(body.clone()).await.completion();
    let call = &first["choices"][0]["message"]["tool_calls"][0];

    for answer in [
        bob.get("/v1/sessions/s").await,
        bob.delete("/v1/sessions/s").await,
        bob.post("/v1/sessions/s/fork", &json!({})).await,
    ] {
        answer.assert_error(404, Some("not_found"));
    }
    assert_eq!(bob.get("/v1/sessions").await.json()["data"], json!([]));
    // The call's id, were it known to the other key, leads nowhere.
    body.as_object_mut().unwrap().remove("session_id");
    body["max_tool_rounds"] = json!(3);
    body["messages"] = json!([
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "r"},
    ]);
    bob.post_chat(body).await.completion();
    assert!(!upstream.last().raw("messages").unwrap().contains("Go"));
    assert_eq!(
        alice.get("/v1/sessions/s").await.json()["messages"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert!(
        upstream.last().header("authorization").is_none(),
        "our keys never travel"
    );
}

#[tokio::test]
async fn sessions_are_listed_in_pages_exported_imported_forked_and_deleted() {
    let upstream = ScriptedUpstream::start((0..5).map(|n| text(&format!("A{n}")))).await;
    let app = TestApp::with_upstream(&upstream).await;
    for n in 0..5 {
        let body = json!({"model": MODEL, "session_id": format!("s{n}"), "messages": [user(&format!("Question {n}"))]});
        app.post_chat(body).await.completion();
    }
    let mut after = String::new();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let page = app
            .get(&format!("/v1/sessions?limit=2{after}"))
            .await
            .json();
        let data = page["data"].as_array().unwrap().clone();
        seen.extend(
            data.iter()
                .map(|entry| entry["id"].as_str().unwrap().to_owned()),
        );
        after = format!("&after={}", seen.last().unwrap());
        assert_eq!(page["has_more"], json!(seen.len() < 5));
        assert_eq!(data[0]["message_count"], 2);
        assert_eq!(data[0]["running"], Value::Null);
        assert!(data[0]["title"].as_str().unwrap().starts_with("Question"));
        assert!(data[0]["created_at"].as_i64().unwrap() > 1_700_000_000);
    }
    assert_eq!(seen, ["s4", "s3", "s2", "s1", "s0"], "last written first");
    for bad in ["limit=0", "limit=x", "limit=101", "after=a/b"] {
        app.get(&format!("/v1/sessions?{bad}"))
            .await
            .assert_error(400, None);
    }

    let export = app.get("/v1/sessions/s1").await.json();
    assert_eq!(export["id"], "s1");
    assert_eq!(export["messages"][1]["content"], "A1");
    let put = async |id: &str, body: Value| {
        let path = format!("/v1/sessions/{id}");
        app.client().send(Method::PUT, &path, &body).await
    };
    assert_eq!(put("copy", export.clone()).await.status, 201);
    assert_eq!(put("copy", export.clone()).await.status, 200);
    assert_eq!(
        app.get("/v1/sessions/copy").await.json()["messages"],
        export["messages"]
    );

    let fork = app
        .post(
            "/v1/sessions/s1/fork",
            &json!({"before_message": 1, "id": "branch"}),
        )
        .await;
    assert_eq!(fork.status, 201);
    let fork = fork.json();
    assert_eq!(fork["stats"], json!({"message_count": 1}));
    assert_eq!(
        (&fork["id"], &fork["title"], fork.get("messages")),
        (&json!("branch"), &json!("Question 1"), None)
    );
    assert_eq!(
        app.get("/v1/sessions/branch").await.json()["messages"],
        json!([user("Question 1")])
    );
    app.post("/v1/sessions/s1/fork", &json!({"id": "branch"}))
        .await
        .assert_error(409, Some("session_exists"));
    app.post("/v1/sessions/s1/fork", &json!({"before_message": 9}))
        .await
        .assert_error(400, None);
    let whole = app.post("/v1/sessions/s1/fork", &json!({})).await.json();
    assert_ne!(whole["id"], "s1");
    let path = format!("/v1/sessions/{}", whole["id"].as_str().unwrap());
    assert_eq!(app.get(&path).await.json()["messages"], export["messages"]);

    let deleted = app.client().delete("/v1/sessions/s1").await;
    assert_eq!(
        deleted.json(),
        json!({"id": "s1", "object": "session.deleted", "deleted": true})
    );
    app.get("/v1/sessions/s1")
        .await
        .assert_error(404, Some("not_found"));
    app.client()
        .delete("/v1/sessions/s1")
        .await
        .assert_error(404, Some("not_found"));
}

#[tokio::test]
async fn a_bad_import_is_refused_by_field_and_changes_nothing() {
    let upstream = ScriptedUpstream::start([text("A")]).await;
    let app = TestApp::with_upstream(&upstream).await;
    app.post_chat(json!({"model": MODEL, "session_id": "s", "messages": [user("Q")]}))
        .await
        .completion();
    let before = app.get("/v1/sessions/s").await.json();
    for (body, param) in [
        (json!({"messages": "x"}), "messages"),
        (json!({}), "messages"),
        (
            json!({"messages": [user("Q"), {"content": "no role"}]}),
            "messages[1]",
        ),
        (
            json!({"messages": [{"role": "user", "content": ["no part"]}]}),
            "messages[0]",
        ),
        (
            json!({"messages": [user("Q"), {"role": "human", "content": "unknown"}]}),
            "messages[1].role",
        ),
    ] {
        let answer = app
            .client()
            .send(Method::PUT, "/v1/sessions/s", &body)
            .await;
        let message = answer.assert_error(400, None);
        let named = answer.json()["error"]["param"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(named.starts_with(param), "{param}: {named}: {message}");
    }
    assert_eq!(app.get("/v1/sessions/s").await.json(), before);
}

#[tokio::test]
async fn one_turn_at_a_time_and_waiting_is_bounded() {
    let gate = Gate::new();
    let upstream =
        ScriptedUpstream::start([text("A1").gate_head(&gate), text("A2"), text("A3")]).await;
    let app = TestApp::builder()
        .upstream(&upstream)
        .toml("session_wait_ms = 300")
        .start()
        .await;
    let body = |text: &str| json!({"model": MODEL, "session_id": "s", "messages": [user(text)]});
    let (first, busy) = tokio::join!(app.post_chat(body("Q1")), async {
        upstream.called(1).await;
        let listed = app.get("/v1/sessions").await.json();
        assert!(
            listed["data"]
                .as_array()
                .unwrap()
                .iter()
                .all(|entry| entry["running"].is_string()),
            "{listed}"
        );
        let busy = app.post_chat(body("Q2")).await;
        // Another session is not held up.
        app.post_chat(json!({"model": MODEL, "session_id": "other", "messages": [user("Q")]}))
            .await
            .completion();
        gate.open();
        busy
    });
    busy.assert_error(409, Some("session_busy"));
    first.completion();
    app.post_chat(body("Q3")).await.completion();
    assert_eq!(upstream.last().roles(), ["user", "assistant", "user"]);
}

#[tokio::test]
async fn a_second_turn_waits_for_the_first() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::start([text("A1").gate_head(&gate), text("A2")]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let body = |text: &str| json!({"model": MODEL, "session_id": "s", "messages": [user(text)]});
    let waiting = async {
        upstream.called(1).await;
        let second = app.post_chat(body("Q2"));
        tokio::pin!(second);
        // It is sent, and nothing comes of it while the first turn runs.
        tokio::select! {
            answer = &mut second => panic!("did not wait: {}", answer.text()),
            _ = app.get("/healthz") => {}
        }
        gate.open();
        second.await
    };
    let (first, second) = within("both turns", async {
        tokio::join!(app.post_chat(body("Q1")), waiting)
    })
    .await;
    assert_eq!(
        (first.content(), second.content()),
        ("A1".into(), "A2".into())
    );
    assert_eq!(upstream.last().roles(), ["user", "assistant", "user"]);
}

#[tokio::test]
async fn idle_sessions_expire() {
    let upstream = ScriptedUpstream::start([text("A")]).await;
    let app = TestApp::builder()
        .upstream(&upstream)
        .toml("session_ttl = \"1s\"")
        .start()
        .await;
    app.post_chat(json!({"model": MODEL, "session_id": "s", "messages": [user("Q")]}))
        .await
        .completion();
    super::support::eventually("the session to expire", || async {
        (app.get("/v1/sessions/s").await.status == 404).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_export_of_mistral_rs_is_taken() {
    let upstream = ScriptedUpstream::start([text("Indeed.")]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let plain = json!({"messages": [
        {"role": "user", "content": {"Left": "Weather?"}},
        {"role": "assistant", "content": {"Left": ""}, "tool_calls": [
            {"type": "function", "function": {"name": "web_search", "arguments": "{\"query\":\"weather\"}"}}
        ]},
        {"role": "tool", "content": {"Left": "sunny"}},
        {"role": "assistant", "content": {"Left": "It is sunny."}},
    ]});
    assert_eq!(
        app.client()
            .send(Method::PUT, "/v1/sessions/m", &plain)
            .await
            .status,
        201
    );
    app.post_chat(json!({"model": MODEL, "session_id": "m", "messages": [user("Really?")]}))
        .await
        .completion();
    let seen = upstream.last();
    assert_eq!(
        seen.roles(),
        ["user", "assistant", "tool", "assistant", "user"]
    );
    assert_eq!(seen.messages()[0]["content"], "Weather?");
}

#[tokio::test]
async fn a_client_may_answer_its_calls_without_offering_tools_again() {
    let upstream = ScriptedUpstream::start([
        calls([("mine", json!({})), ("t", json!({}))]),
        text("Done."),
        text("Passed."),
    ])
    .await;
    let hook = Webhook::start()
        .await
        .on("t", webhook::text("server result"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = with(
        ask_with("Go", ["mine", "t"]),
        "agent",
        json!({"client_tools": ["mine"]}),
    );
    let first = app.post_chat(body).await.completion();
    let call = first["choices"][0]["message"]["tool_calls"][0].clone();
    let answered = |call: &Value| {
        json!({"model": MODEL, "messages": [
            user("Go"),
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": "client result"},
        ]})
    };
    let answer = app.post_chat(answered(&call)).await;
    assert_eq!(answer.content(), "Done.");
    let session = answer.completion()["session_id"].clone();
    assert_eq!(session, first["session_id"]);
    assert_eq!(
        upstream.last().tool_results().len(),
        2,
        "the hidden result is there"
    );
    // A call that no turn waits for is the upstream's business.
    let foreign = json!({"id": "call_elsewhere", "type": "function", "function": {"name": "x", "arguments": "{}"}});
    let body = answered(&foreign);
    app.post_chat(body.clone()).await;
    assert_eq!(upstream.last().bytes, body.to_string());
}

#[tokio::test]
async fn a_session_or_a_store_without_space_is_refused_before_the_model_is_called() {
    let upstream = ScriptedUpstream::start([text("A")]).await;
    let app = TestApp::builder()
        .upstream(&upstream)
        .toml("session_max_bytes = 4096\nmax_total_session_bytes = 9000")
        .start()
        .await;
    let turn = |session: &str, bytes: usize| json!({"model": MODEL, "session_id": session, "messages": [user(&"x".repeat(bytes))]});
    app.post_chat(turn("s", 3000)).await.completion();
    let before = app.get("/v1/sessions/s").await.json();
    let too_large = app.post_chat(turn("s", 1500)).await;
    too_large.assert_error(413, Some("session_too_large"));
    assert!(too_large.text().contains("session_max_bytes is 4096"));
    let import = json!({"messages": [user(&"x".repeat(5000))]});
    let client = app.client();
    for id in ["s", "new"] {
        let path = format!("/v1/sessions/{id}");
        client
            .send(Method::PUT, &path, &import)
            .await
            .assert_error(413, Some("session_too_large"));
    }
    assert_eq!(app.get("/v1/sessions/s").await.json(), before);
    // Two sessions fit, and none of them may be deleted.
    let fork = app.post("/v1/sessions/s/fork", &json!({"id": "t"})).await;
    assert_eq!(fork.status, 201);
    let full = [
        app.post("/v1/sessions/s/fork", &json!({"id": "u"})).await,
        app.post_chat(turn("u", 3000)).await,
        client.send(Method::PUT, "/v1/sessions/u", &before).await,
    ];
    for full in full {
        full.assert_error(507, Some("storage_full"));
        assert!(full.text().contains("max_total_session_bytes (9000 bytes)"));
        assert_eq!(full.headers["x-should-retry"], "false");
    }
    assert_eq!(upstream.requests().len(), 1);
    assert_eq!(client.delete("/v1/sessions/t").await.status, 200);
    let fork = app.post("/v1/sessions/s/fork", &json!({"id": "u"})).await;
    assert_eq!(fork.status, 201);
}
