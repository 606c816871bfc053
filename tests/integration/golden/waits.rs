//! Turns that wait for decisions of a person, in both dialects: asked again, resumed by a request, resumed by themselves.

use http::Method;
use serde_json::{Value, json};

use super::builder;
use super::record::{Golden, Reading, chat, response};
use super::response_options::function;
use crate::support::app::TestApp;
use crate::support::ask::{ask_with, assistant, user, with};
use crate::support::client::Client;
use crate::support::eventually;
use crate::support::script::{Reply, calls, text, text_and_calls};
use crate::support::upstream::{MODEL, ScriptedUpstream};
use crate::support::webhook::{self, Webhook};

/// Every charge is asked about.
const ASK: &str = "[[permissions]]\ntool = \"charge\"\neffect = \"ask\"\nreason = \"money\"";
/// No answer is held up by a call that waits.
const AT_ONCE: &str = "approval_wait = 0";
/// A stream waits in place for as long as it takes.
const IN_PLACE: &str = "approval_wait = 600";

fn charge(cents: u32) -> (&'static str, Value) {
    ("charge", json!({"account": "a", "cents": cents}))
}

fn read() -> (&'static str, Value) {
    ("read", json!({}))
}

/// Rounds with text before, between and behind two waits.
fn script() -> [Reply; 5] {
    [
        text_and_calls("First.", [read()]).usage(10, 1),
        text_and_calls("Second.", [charge(5)]).usage(20, 2),
        text_and_calls("Third.", [charge(6)]).usage(30, 3),
        text_and_calls("Fourth.", [read()]).usage(40, 4),
        text("Last.").usage(50, 5),
    ]
}

/// A batch of calls of which two wait.
fn batch() -> [Reply; 2] {
    [calls([charge(5), charge(6)]), text("Partly.")]
}

struct Stage {
    upstream: ScriptedUpstream,
    hook: Webhook,
    app: TestApp,
    golden: Golden,
}

impl Stage {
    async fn start(script: impl IntoIterator<Item = Reply>, wait: &str) -> Self {
        let upstream = ScriptedUpstream::start(script).await;
        let hook = Webhook::start()
            .await
            .on("read", webhook::text("balance 9"));
        let hook = hook.on("charge", webhook::text("charged"));
        let server = builder().upstream(&upstream).dispatch(&hook);
        let app = server.toml(&format!("{wait}\n{ASK}")).start().await;
        Self {
            upstream,
            hook,
            app,
            golden: Golden::default(),
        }
    }

    fn client(&self) -> Client {
        self.app.client().clone()
    }

    /// Waits for a question that has not been asked before.
    async fn question(&self, before: &mut Vec<Value>) -> Value {
        let found = eventually("a question", || async {
            let list = self.app.get("/v1/agent/approvals").await.json();
            let mut listed = list["data"].as_array().unwrap().iter();
            let new = listed.find(|one| !before.contains(&one["approval_id"]));
            new.cloned()
        })
        .await;
        before.push(found["approval_id"].clone());
        found
    }

    /// Decides, and records the answer.
    async fn decide(&mut self, approval: &Value, decision: Value) {
        self.golden.line(&format!("\n### decision {decision}"));
        let id = approval["approval_id"].as_str().unwrap();
        let request = self
            .app
            .client()
            .request(Method::POST, &format!("/v1/agent/approvals/{id}"))
            .header("content-type", "application/json");
        self.golden.ask(request.body(decision.to_string())).await;
    }

    /// Approves the next two questions one after the other. Whether a run takes a decision at once is not recorded.
    async fn approve_both(&self) {
        let mut before = Vec::new();
        for _ in 0..2 {
            let approval = self.question(&mut before).await;
            let id = approval["approval_id"].as_str().unwrap();
            let path = format!("/v1/agent/approvals/{id}");
            let decision = json!({"decision": "approve"});
            assert_eq!(self.app.post(&path, &decision).await.status, 200);
        }
    }

    /// Begins a run in the background; how far it has come by then is not recorded.
    async fn begin(&self, path: &str, body: &Value) -> String {
        let begun = self.app.post(path, body).await.json();
        format!("{path}/{}", begun["id"].as_str().unwrap())
    }

    /// Waits until a run is over, and records its answer.
    async fn ended(&mut self, path: &str) {
        eventually("the end of a run", || async {
            let answer = self.app.get(path).await;
            let body = answer.json();
            let status = body["status"].as_str().unwrap_or_default();
            let is_over = !["queued", "in_progress"].contains(&status);
            (answer.status != 202 && is_over).then_some(())
        })
        .await;
        self.golden.get(self.app.client(), path).await;
    }

    /// Records what the servers got and what is stored, and compares.
    async fn check(mut self, session: &str, name: &str) {
        self.golden.heading("afterwards");
        self.golden.session(self.app.client(), session).await;
        self.golden
            .get(self.app.client(), "/v1/agent/approvals")
            .await;
        self.golden.upstream(&self.upstream);
        for call in self.hook.calls() {
            let mut body = call.body;
            // Of the request or of the decision that the call was made for.
            body.as_object_mut().unwrap().remove("request_id");
            self.golden.line(&format!("tool call {body}"));
        }
        self.golden.check(name);
    }
}

/// A chat request in a session of this id.
fn pay(more: Value) -> Value {
    let body = ask_with("Pay", ["charge", "read"]);
    let mut body = with(body, "session_id", json!("s"));
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// The same request of the Responses API.
fn pay_response(more: Value) -> Value {
    let tools = ["charge", "read"].map(function);
    let mut body = json!({"model": MODEL, "input": "Pay", "tools": tools, "session_id": "s"});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

fn chat_path(answer: &Value) -> String {
    format!("/v1/chat/completions/{}", answer["id"].as_str().unwrap())
}

fn response_path(answer: &Value) -> String {
    format!("/v1/responses/{}", answer["id"].as_str().unwrap())
}

/// Each next request has no message, and gets the whole answer.
#[tokio::test]
async fn waits_of_chats() {
    let mut stage = Stage::start(script().into_iter().chain(script()), AT_ONCE).await;
    for (streamed, session) in [(false, "s"), (true, "streamed")] {
        stage.golden.heading(session);
        let (client, mut before) = (stage.client(), Vec::new());
        let first = pay(json!({"stream": streamed, "session_id": session}));
        let next = with(first.clone(), "messages", json!([]));
        stage.golden.chat(&client, &first).await;
        for _ in 0..2 {
            let approval = stage.question(&mut before).await;
            stage.golden.line("\n### asked again");
            stage.golden.chat(&client, &next).await;
            stage
                .decide(&approval, json!({"decision": "approve"}))
                .await;
            stage.golden.chat(&client, &next).await;
        }
        stage.golden.session(&client, session).await;
    }
    stage.check("streamed", "waits_of_chats").await;
}

/// The client sends what it has shown, and gets what follows.
#[tokio::test]
async fn waits_of_chats_that_show_the_earlier_part() {
    let mut stage = Stage::start(script(), AT_ONCE).await;
    let (client, mut before) = (stage.client(), Vec::new());
    let mut messages = vec![user("Pay")];
    let mut answer = stage.golden.chat(&client, &pay(json!({}))).await.json();
    for _ in 0..2 {
        let shown = answer["choices"][0]["message"]["content"].as_str().unwrap();
        messages.push(assistant(shown));
        let approval = stage.question(&mut before).await;
        stage
            .decide(&approval, json!({"decision": "approve"}))
            .await;
        let next = pay(json!({"messages": messages}));
        answer = stage.golden.chat(&client, &next).await.json();
    }
    stage
        .check("s", "waits_of_chats_that_show_the_earlier_part")
        .await;
}

#[tokio::test]
async fn waits_of_streams_in_place() {
    let mut stage = Stage::start(script(), IN_PLACE).await;
    let body = pay(json!({"stream": true, "agent": {"on_disconnect": "finish"}}));
    let reading = Reading::start(chat(stage.app.client(), &body.to_string())).await;
    stage.approve_both().await;
    let answer = stage.golden.answer(reading).await;
    stage.ended(&chat_path(&answer.chunks()[0])).await;
    stage.check("s", "waits_of_streams_in_place").await;
}

#[tokio::test]
async fn waits_of_response_streams_in_place() {
    let mut stage = Stage::start(script(), IN_PLACE).await;
    let body = pay_response(json!({"stream": true, "agent": {"progress": "named"}}));
    let reading = Reading::start(response(stage.app.client(), "", &body.to_string())).await;
    stage.approve_both().await;
    let answer = stage.golden.answer(reading).await.response();
    stage.ended(&response_path(&answer)).await;
    stage.check("s", "waits_of_response_streams_in_place").await;
}

#[tokio::test]
async fn waits_in_the_background() {
    let mut stage = Stage::start(script().into_iter().chain(script()), AT_ONCE).await;
    let client = stage.client();
    stage.golden.heading("a chat");
    let body = pay(json!({"agent": {"background": true}, "session_id": "chat"}));
    let run = stage.begin("/v1/chat/completions", &body).await;
    stage.approve_both().await;
    stage.ended(&run).await;
    stage.golden.session(&client, "chat").await;
    stage.golden.heading("a response");
    let body = pay_response(json!({"background": true}));
    let run = stage.begin("/v1/responses", &body).await;
    stage.approve_both().await;
    stage.ended(&run).await;
    stage
        .golden
        .get(&client, "/v1/conversations/s/items?order=asc")
        .await;
    stage.check("s", "waits_in_the_background").await;
}

/// Each next response follows the one that waited, with no input.
#[tokio::test]
async fn waits_of_responses() {
    let mut stage = Stage::start(script().into_iter().chain(script()), AT_ONCE).await;
    for (streamed, session) in [(false, "s"), (true, "streamed")] {
        stage.golden.heading(session);
        let (client, mut before) = (stage.client(), Vec::new());
        let first = pay_response(json!({"stream": streamed, "session_id": session}));
        let mut answer = stage.golden.response(&client, &first).await.response();
        for _ in 0..2 {
            let approval = stage.question(&mut before).await;
            stage
                .decide(&approval, json!({"decision": "approve"}))
                .await;
            let mut next = first.clone();
            next["input"] = json!([]);
            next["previous_response_id"] = answer["id"].clone();
            answer = stage.golden.response(&client, &next).await.response();
        }
        stage.golden.get(&client, &response_path(&answer)).await;
        stage.golden.session(&client, session).await;
    }
    stage.check("streamed", "waits_of_responses").await;
}

/// The run goes on by itself, and the request with the key gets its answer.
#[tokio::test]
async fn waits_under_a_key() {
    let mut stage = Stage::start(script().into_iter().chain(script()), AT_ONCE).await;
    let client = stage.client().header("idempotency-key", "k");
    stage.golden.heading("a chat");
    let body = pay(json!({"session_id": "chat"}));
    let first = stage.golden.chat(&client, &body).await.json();
    stage.golden.get(&stage.client(), &chat_path(&first)).await;
    stage.approve_both().await;
    stage.ended(&chat_path(&first)).await;
    stage.golden.chat(&client, &body).await;
    stage.golden.heading("a response");
    let client = stage.client().header("idempotency-key", "k2");
    let first = stage
        .golden
        .response(&client, &pay_response(json!({})))
        .await;
    stage.approve_both().await;
    stage.ended(&response_path(&first.json())).await;
    stage
        .golden
        .response(&client, &pay_response(json!({})))
        .await;
    stage.check("s", "waits_under_a_key").await;
}

#[tokio::test]
async fn denied_and_edited_calls() {
    let mut stage = Stage::start(batch().into_iter().chain(batch()), AT_ONCE).await;
    let client = stage.client();
    let deny = json!({"decision": "deny", "message": "not today"});
    let edited = json!({"decision": "approve", "arguments": {"account": "a", "cents": 1}});
    stage.golden.heading("a chat");
    let first = pay(json!({"session_id": "chat"}));
    let answer = stage.golden.chat(&client, &first).await.json();
    let approvals = answer["agent"]["approvals"].as_array().unwrap().clone();
    stage.decide(&approvals[0], deny.clone()).await;
    let next = with(first, "messages", json!([]));
    stage.golden.chat(&client, &next).await;
    stage.decide(&approvals[1], edited.clone()).await;
    stage.decide(&approvals[1], deny.clone()).await;
    stage.golden.chat(&client, &next).await;
    stage.golden.session(&client, "chat").await;
    stage.golden.heading("a response");
    let answer = stage
        .golden
        .response(&client, &pay_response(json!({})))
        .await
        .json();
    let approvals = answer["agent"]["approvals"].as_array().unwrap().clone();
    stage.decide(&approvals[0], edited).await;
    stage.decide(&approvals[1], deny).await;
    let next = pay_response(json!({"input": [], "previous_response_id": answer["id"]}));
    stage.golden.response(&client, &next).await;
    stage.check("s", "denied_and_edited_calls").await;
}

/// A message of the user ends the wait; a cancelled run has an answer, and its question is gone.
#[tokio::test]
async fn waits_that_end_otherwise() {
    let waits = || [text_and_calls("First.", [charge(5)]), text("Never mind.")];
    let cancelled = || text_and_calls("First.", [charge(5)]);
    let script = waits()
        .into_iter()
        .chain(waits())
        .chain([cancelled(), cancelled()]);
    let mut stage = Stage::start(script, AT_ONCE).await;
    let client = stage.client();
    stage.golden.heading("the user goes on");
    stage.golden.chat(&client, &pay(json!({}))).await;
    stage
        .golden
        .chat(&client, &pay(json!({"messages": [user("Forget it")]})))
        .await;
    let first = stage
        .golden
        .response(&client, &pay_response(json!({"session_id": "r"})))
        .await;
    let next = json!({"input": "Forget it", "previous_response_id": first.json()["id"], "session_id": "r"});
    stage.golden.response(&client, &pay_response(next)).await;
    stage.golden.heading("cancelled");
    let chat = pay(json!({"agent": {"background": true}, "session_id": "c"}));
    let of_chat = stage.begin("/v1/chat/completions", &chat).await;
    let background = pay_response(json!({"background": true, "session_id": "d"}));
    let mut before = Vec::new();
    let mut approvals = vec![stage.question(&mut before).await];
    let of_response = stage.begin("/v1/responses", &background).await;
    approvals.push(stage.question(&mut before).await);
    for (path, approval) in [of_chat, of_response].iter().zip(approvals) {
        let cancel = client.request(Method::POST, &format!("{path}/cancel"));
        stage.golden.ask(cancel).await;
        stage.ended(path).await;
        stage
            .decide(&approval, json!({"decision": "approve"}))
            .await;
    }
    stage.check("s", "waits_that_end_otherwise").await;
}
