//! Requests about things that exist: files, sessions, runs, responses and conversations.

use serde_json::{Value, json};

use super::super::record::Golden;
use super::outcome::Cases;
use super::sender::Sender;
use super::{any_upstream, app_with};
use crate::support::app::TestApp;
use crate::support::ask::ask_with;
use crate::support::script::text;
use crate::support::server::Gate;
use crate::support::upstream::ScriptedUpstream;
use crate::support::webhook::Webhook;

const TOOL: &str = "[[tools]]\nname = \"ours\"\ndescription = \"d\"\nurl = \"http://127.0.0.1:1/\"\nparameters = { type = \"object\" }";
const SESSION: &str =
    r#"{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]}"#;
const FORM: &str = "--b\r\ncontent-disposition: form-data; name=\"purpose\"\r\n\r\nuser_data\r\n\
    --b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"\u{e4} \\\"b\\\".html\"\r\ncontent-type: text/html\r\n\r\n0123456789\r\n--b--\r\n";

/// A turn that goes on without its client.
fn kept(session: &str) -> Value {
    let mut body = ask_with("x", ["t"]);
    body["agent"] = json!({"on_disconnect": "finish"});
    body["session_id"] = session.into();
    body
}

/// Sends requests, each a case of its own, and records them below a heading.
async fn cases(
    golden: &mut Golden,
    sender: &Sender,
    heading: &str,
    requests: &[(&str, &str, &str)],
) {
    let mut cases = Cases::default();
    for (number, (method, path, body)) in requests.iter().enumerate() {
        let outcome = sender.send(method, path, (*body).to_owned()).await;
        cases.add(&format!("{number} {method} {path}"), outcome);
    }
    cases.write(golden, heading);
}

/// Records what a list answers to odd queries.
async fn queries(golden: &mut Golden, sender: &Sender, path: &str) {
    let mut cases = Cases::default();
    for query in [
        "limit=1",
        "limit=0",
        "limit=101",
        "limit=10001",
        "limit=x",
        "limit=",
        "order=asc",
        "order=up",
        "after=unknown",
        "after=",
        "limit=1&limit=2",
        "unknown=1",
        "purpose=x",
        "session_id=a/b",
        "x=%ff",
    ] {
        let outcome = sender.send("GET", &format!("{path}?{query}"), "").await;
        cases.add(query, outcome);
    }
    cases.write(golden, &format!("queries of {path}"));
}

async fn id_of(sender: &Sender, path: &str, body: &str) -> String {
    let answer = sender.send("POST", path, body.to_owned()).await.text();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    answer["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn every_endpoint_of_files_and_sessions() {
    let upstream = any_upstream().await;
    let app = app_with(&upstream, "").await;
    let sender = Sender::of(&app);
    let mut golden = Golden::default();
    let form = sender.with("content-type", "multipart/form-data; boundary=b");
    let file = format!("/v1/files/{}", id_of(&form, "/v1/files", FORM).await);
    let content = format!("{file}/content");
    let etag = sender.send("GET", &content, "").await.header("etag");
    let mut answers = Cases::default();
    for (name, header, value) in [
        ("whole", "accept", "*/*"),
        ("a range", "range", "bytes=0-1"),
        ("the end", "range", "bytes=-2"),
        ("from the middle", "range", "bytes=5-"),
        ("behind the end", "range", "bytes=10-"),
        ("two ranges", "range", "bytes=0-1,3-4"),
        ("no range", "range", "bytes=x"),
        ("another unit", "range", "lines=0-1"),
        ("the same", "if-none-match", &etag),
        ("any", "if-none-match", "*"),
        ("another", "if-none-match", "\"another\""),
    ] {
        let sender = sender.with(header, value);
        answers.add(name, sender.send("GET", &content, "").await);
        answers.add(
            &format!("HEAD {name}"),
            sender.send("HEAD", &content, "").await,
        );
    }
    answers.write(&mut golden, &content);
    queries(&mut golden, &sender, "/v1/files").await;
    let session = SESSION.replacen('{', r#"{"id":"other","#, 1);
    let list = [
        ("GET", &*file, ""),
        ("HEAD", &file, ""),
        ("DELETE", &file, ""),
        ("DELETE", &file, ""),
        ("GET", &content, ""),
        ("PUT", "/v1/sessions/s", SESSION),
        ("PUT", "/v1/sessions/s", &session),
        ("PUT", "/v1/sessions/s", r#"{"messages":[{"role":"x"}]}"#),
        ("GET", "/v1/sessions/s", ""),
        ("HEAD", "/v1/sessions/s", ""),
        ("POST", "/v1/sessions/s/cancel", "{}"),
        ("POST", "/v1/sessions/s/fork", r#"{"id":"t"}"#),
        ("POST", "/v1/sessions/s/fork", r#"{"id":"t"}"#),
        ("POST", "/v1/sessions/s/fork", r#"{"id":"a/b"}"#),
        ("POST", "/v1/sessions/s/fork", r#"{"before_message":9}"#),
        ("POST", "/v1/sessions/s/fork", r#"{"before_message":"x"}"#),
        ("DELETE", "/v1/sessions/t", ""),
    ];
    cases(&mut golden, &sender, "one after the other", &list).await;
    queries(&mut golden, &sender, "/v1/sessions").await;
    golden.check("every_endpoint_of_files_and_sessions");
}

#[tokio::test]
async fn every_endpoint_of_answers() {
    let upstream = any_upstream().await;
    let hook = Webhook::start().await;
    let builder = super::builder().upstream(&upstream).dispatch(&hook);
    let app = builder.start().await;
    let sender = Sender::of(&app);
    let mut golden = Golden::default();
    let run = id_of(&sender, "/v1/chat/completions", &kept("s").to_string()).await;
    let run = format!("/v1/chat/completions/{run}");
    let response = id_of(&sender, "/v1/responses", super::RESPONSE).await;
    let response_path = format!("/v1/responses/{response}");
    let item = r#"{"items":[{"role":"user","content":"x"}]}"#;
    let conversation = id_of(&sender, "/v1/conversations", item).await;
    let conversation = format!("/v1/conversations/{conversation}");
    for (path, children) in [
        (
            &run,
            &[
                "",
                "/events",
                "/events?after=1",
                "/events?after=99",
                "/events?after=x",
                "/messages",
                "/messages?limit=1",
            ][..],
        ),
        (
            &response_path,
            &[
                "",
                "?stream=true",
                "?stream=true&starting_after=1",
                "?stream=yes",
                "?starting_after=x",
                "/input_items",
            ][..],
        ),
        (&conversation, &["", "/items", "/items/unknown"][..]),
    ] {
        let paths: Vec<String> = children
            .iter()
            .map(|child| format!("{path}{child}"))
            .collect();
        let requests: Vec<_> = paths
            .iter()
            .map(|path| ("GET", path.as_str(), ""))
            .collect();
        cases(&mut golden, &sender, path, &requests).await;
    }
    queries(
        &mut golden,
        &sender,
        &format!("{response_path}/input_items"),
    )
    .await;
    queries(&mut golden, &sender, &format!("{conversation}/items")).await;
    let previous =
        |id: &str| json!({"model": "m", "input": "x", "previous_response_id": id}).to_string();
    let list = [
        ("POST", &*format!("{run}/cancel"), "{}"),
        ("POST", &format!("{run}/cancel"), r#"{"mode":"x"}"#),
        ("DELETE", &run, ""),
        ("GET", &run, ""),
        ("POST", &format!("{response_path}/cancel"), "{}"),
        ("POST", "/v1/responses", &previous(&response)),
        ("DELETE", &response_path, ""),
        ("GET", &response_path, ""),
        ("POST", "/v1/responses", &previous(&response)),
        (
            "POST",
            "/v1/responses",
            r#"{"model":"m","input":"x","conversation":"conv_00000000000000000000000000000000"}"#,
        ),
        ("POST", &conversation, r#"{"metadata":{"a":"b"}}"#),
        ("POST", &format!("{conversation}/items"), item),
        ("DELETE", &format!("{conversation}/items/unknown"), ""),
        ("DELETE", &conversation, ""),
        ("GET", &conversation, ""),
    ];
    cases(&mut golden, &sender, "one after the other", &list).await;
    golden.check("every_endpoint_of_answers");
}

#[tokio::test]
async fn every_endpoint_of_running_turns() {
    let gate = Gate::new();
    let held = gate.clone();
    let upstream =
        ScriptedUpstream::answering(move |_| text("one two").gate_before(2, &held)).await;
    let lines = format!("session_wait_ms = 0\n{TOOL}");
    let mut app: TestApp = app_with(&upstream, &lines).await;
    let running = app.stream_chat(kept("s")).await;
    let run = running.run_id();
    let sender = Sender::of(&app);
    let background = super::RESPONSE.replacen('{', r#"{"background":true,"#, 1);
    let response = id_of(&sender, "/v1/responses", &background).await;
    upstream.called(2).await;
    let run = format!("/v1/chat/completions/{run}");
    let response = format!("/v1/responses/{response}");
    let mut golden = Golden::default();
    let turn = kept("s").to_string();
    let previous = json!({"model": "m", "input": "x", "previous_response_id": &response["/v1/responses/".len()..]}).to_string();
    let list = [
        ("POST", "/v1/chat/completions", &*turn),
        (
            "POST",
            "/v1/agent/tools/ours/call",
            r#"{"arguments":{},"session_id":"s"}"#,
        ),
        ("GET", "/v1/sessions/s", ""),
        ("PUT", "/v1/sessions/s", SESSION),
        ("DELETE", "/v1/sessions/s", ""),
        ("GET", &run, ""),
        ("HEAD", &run, ""),
        ("GET", &response, ""),
        ("POST", "/v1/responses", &previous),
        ("POST", &format!("{run}/cancel"), r#"{"mode":"x"}"#),
    ];
    cases(&mut golden, &sender, "while they run", &list).await;
    app.kill9().await;
    drop(running);
    app.restart().await;
    let list = [
        ("GET", &*run, ""),
        ("GET", &format!("{run}/events"), ""),
        ("GET", &format!("{run}/messages"), ""),
        ("POST", &format!("{run}/cancel"), "{}"),
        ("GET", &response, ""),
        ("GET", &format!("{response}?stream=true"), ""),
        ("POST", &format!("{response}/cancel"), "{}"),
        ("DELETE", &response, ""),
        ("GET", &response, ""),
        ("DELETE", &run, ""),
        ("GET", &run, ""),
    ];
    cases(
        &mut golden,
        &Sender::of(&app),
        "after the process was killed",
        &list,
    )
    .await;
    golden.check("every_endpoint_of_running_turns");
    gate.open();
}

#[tokio::test]
async fn every_endpoint_without_space() {
    let upstream = any_upstream().await;
    let lines = "session_max_bytes = 4096\nmax_total_session_bytes = 9000\nmax_file_bytes = 8\nmax_messages = 3";
    let app = app_with(&upstream, lines).await;
    let sender = Sender::of(&app);
    let mut golden = Golden::default();
    let user = |bytes: usize| json!({"role": "user", "content": "x".repeat(bytes)});
    let session = |bytes: usize| json!({"messages": [user(bytes)]}).to_string();
    let turn = json!({"model": "m", "session_id": "u", "messages": [user(3000)]}).to_string();
    let response = json!({"model": "m", "input": "x".repeat(3000)}).to_string();
    let many =
        json!({"model": "m", "session_id": "u", "messages": [user(1), user(2), user(3), user(4)]});
    for (name, method, path, body) in [
        ("a large session", "PUT", "/v1/sessions/s", session(5000)),
        ("a session", "PUT", "/v1/sessions/s", session(3500)),
        (
            "a large turn",
            "POST",
            "/v1/chat/completions",
            turn.replace("\"u\"", "\"s\""),
        ),
        (
            "its fork",
            "POST",
            "/v1/sessions/s/fork",
            r#"{"id":"t"}"#.to_owned(),
        ),
        (
            "a second fork",
            "POST",
            "/v1/sessions/s/fork",
            r#"{"id":"u"}"#.to_owned(),
        ),
        ("another session", "PUT", "/v1/sessions/u", session(3500)),
        ("a turn", "POST", "/v1/chat/completions", turn),
        ("a response", "POST", "/v1/responses", response.clone()),
        (
            "a streamed response",
            "POST",
            "/v1/responses",
            response.replacen('{', r#"{"stream":true,"#, 1),
        ),
        (
            "many messages",
            "POST",
            "/v1/chat/completions",
            many.to_string(),
        ),
    ] {
        let mut cases = Cases::default();
        cases.add(
            &format!("{method} {path}"),
            sender.send(method, path, body).await,
        );
        cases.write(&mut golden, name);
    }
    let form = sender.with("content-type", "multipart/form-data; boundary=b");
    let file = [("POST", "/v1/files", FORM)];
    cases(&mut golden, &form, "a large file", &file).await;
    golden.check("every_endpoint_without_space");
}
