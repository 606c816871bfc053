//! Calls that a person decides about: streamed and not, over a restart, by the own key or an operator.

mod alone;
#[cfg(feature = "mcp")]
mod cancelled;
mod killed;
mod many;
#[cfg(feature = "mcp")]
mod resumed;
#[cfg(feature = "mcp")]
mod suspended;
mod unstored;
mod whole;

use http::Method;
use serde_json::{Value, json};

use super::support::app::{Builder, TestApp};
use super::support::ask::{ask_with, assistant, user, with};
use super::support::client::{Answer, Client};
use super::support::events::EventReader;
use super::support::eventually;
use super::support::script::{Reply, calls, raw_sse, text};
use super::support::server::Gate;
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::{self, Webhook};
use super::support::within;

/// Every charge is asked about; the rule looks at the account.
const ASK: &str = r#"
    [[permissions]]
    tool = "charge"
    argument = "/account"
    match = "glob"
    patterns = ["*"]
    effect = "ask"
    reason = "money"
"#;
const REQUIRED: &str = "agentic_tool_approval_required";

fn charge(cents: u32) -> (&'static str, Value) {
    ("charge", json!({"account": "a", "cents": cents}))
}

async fn hook() -> Webhook {
    let hook = Webhook::start()
        .await
        .on("charge", webhook::text("charged"));
    hook.on("read", webhook::text("balance 9"))
}

fn server(upstream: &ScriptedUpstream, hook: &Webhook, more: &str) -> Builder {
    // Keys of the top level come first.
    let builder = TestApp::builder().upstream(upstream).dispatch(hook);
    builder.toml(&format!("{more}\n{ASK}"))
}

async fn start<const N: usize>(
    script: [Reply; N],
    more: &str,
) -> (ScriptedUpstream, Webhook, TestApp) {
    let (upstream, hook) = (ScriptedUpstream::start(script).await, hook().await);
    let app = server(&upstream, &hook, more).start().await;
    (upstream, hook, app)
}

fn pay() -> Value {
    with(
        ask_with("Pay", ["charge", "read"]),
        "session_id",
        json!("s"),
    )
}

fn go_on() -> Value {
    with(pay(), "messages", json!([]))
}

/// The approvals of an answer that waits.
fn asked(answer: &Answer) -> Vec<Value> {
    let body = answer.completion();
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
    assert_eq!(body["agent"]["stop_reason"], "approval_required", "{body}");
    let said = body["choices"][0]["message"]["content"].as_str().unwrap();
    let approvals = body["agent"]["approvals"].as_array().unwrap().clone();
    for approval in &approvals {
        assert!(
            said.contains(approval["approval_id"].as_str().unwrap()),
            "{said}"
        );
    }
    approvals
}

async fn decide(client: &Client, approval: &Value, body: Value) -> Answer {
    let id = approval["approval_id"].as_str().unwrap();
    client
        .post(&format!("/v1/agent/approvals/{id}"), &body)
        .await
}

async fn decided(client: &Client, approval: &Value, body: Value) -> Value {
    let answer = decide(client, approval, body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["status"].clone()
}

fn statuses(answer: &Answer) -> Vec<String> {
    let body = answer.completion();
    let entries = body["agentic_tool_calls"].as_array().cloned();
    let status = |entry: &Value| {
        format!(
            "{} {}",
            entry["name"].as_str().unwrap(),
            entry["status"].as_str().unwrap()
        )
    };
    entries.unwrap_or_default().iter().map(status).collect()
}

/// The event that a stream asks with.
async fn question(stream: &mut EventReader) -> Value {
    loop {
        let chunk = stream.next_chunk().await;
        if chunk["type"] == REQUIRED {
            return chunk;
        }
    }
}

#[tokio::test]
async fn a_turn_that_is_not_streamed_ends_and_goes_on_with_the_next_request() {
    let script = [calls([charge(5), ("read", json!({}))]), text("Paid.")];
    let (upstream, hook, app) = start(script, "").await;
    let first = app.post_chat(pay()).await;
    let approvals = asked(&first);
    assert_eq!(
        statuses(&first),
        ["read ok"],
        "what the batch holds besides has run"
    );
    assert_eq!(hook.names(), ["read"]);
    let approval = &approvals[0];
    assert_eq!(approval["tool"], "charge");
    assert_eq!(approval["arguments"], json!({"account": "a", "cents": 5}));
    assert_eq!(
        (&approval["session_id"], &approval["reason"]),
        (&json!("s"), &json!("money"))
    );
    assert_eq!(approval["rule"], json!({"level": "server", "index": 0}));
    let listed = app.get("/v1/agent/approvals").await.json();
    assert_eq!(listed["data"][0]["approval_id"], approval["approval_id"]);
    assert_eq!(listed["data"][0]["run_id"], first.completion()["id"]);

    // Nobody has decided yet.
    assert_eq!(
        asked(&app.post_chat(go_on()).await)[0]["approval_id"],
        approval["approval_id"]
    );
    assert_eq!(
        decided(app.client(), approval, json!({"decision": "approve"})).await,
        "queued"
    );
    assert_eq!(
        app.get("/v1/agent/approvals").await.json()["data"],
        json!([])
    );
    let second = app.post_chat(go_on()).await;
    assert_eq!(second.content(), "Paid.");
    assert_eq!(
        hook.names(),
        ["read", "charge"],
        "calls that have run do not run again"
    );
    // The answer is that of the whole turn.
    assert_eq!(statuses(&second), ["charge ok", "read ok"]);
    // Results are in the order of the calls, and the sentence is not among them.
    let sent = upstream.last().messages();
    let contents: Vec<&str> = sent
        .iter()
        .map(|one| one["content"].as_str().unwrap_or("-"))
        .collect();
    assert_eq!(contents, ["Pay", "", "charged", "balance 9"]);
    let again = decide(app.client(), approval, json!({"decision": "deny"})).await;
    again.assert_error(409, Some("approval_decided"));
    let nothing = app.post_chat(go_on()).await;
    assert_eq!(
        (nothing.status.as_u16(), &nothing.json()["error"]["param"]),
        (400, &json!("messages"))
    );
}

#[tokio::test]
async fn a_stream_waits_and_goes_on() {
    let (upstream, hook, app) = start([calls([charge(5)]), text("Paid.")], "").await;
    let mut stream = app.stream_chat(pay()).await;
    let asked = question(&mut stream).await;
    assert_eq!(asked["tool"]["label"], "charge");
    assert_eq!(asked["arguments"]["cents"], 5);
    assert!(hook.calls().is_empty());
    assert_eq!(upstream.requests().len(), 1);
    assert_eq!(
        decided(app.client(), &asked, json!({"decision": "approve"})).await,
        "resolved"
    );
    let rest = stream.collect().await;
    assert_eq!(rest.text, "Paid.");
    assert_eq!(rest.agent()["stop_reason"], "completed");
    assert_eq!(rest.phase("complete").len(), 1);
    assert_eq!(rest.phase("calling").len(), 1, "the calls are told once");
    assert_eq!(hook.names(), ["charge"]);
}

#[tokio::test]
async fn a_stream_that_waits_too_long_ends_as_one_that_is_not_streamed() {
    let script = [calls([charge(5)]), text("Paid.")];
    let (_upstream, hook, app) = start(script, "approval_wait = 0.2").await;
    let ended = app.stream_chat(pay()).await.collect().await;
    assert_eq!(ended.finish_reason(), "stop");
    assert_eq!(ended.agent()["stop_reason"], "approval_required");
    let approval = ended.agent()["approvals"][0].clone();
    assert!(
        ended
            .text
            .contains(approval["approval_id"].as_str().unwrap())
    );
    decided(app.client(), &approval, json!({"decision": "approve"})).await;
    assert_eq!(app.stream_chat(go_on()).await.collect().await.text, "Paid.");
    assert_eq!(hook.names(), ["charge"]);
}

#[tokio::test]
async fn a_reader_that_leaves_parks_the_turn() {
    let (_upstream, hook, app) = start([calls([charge(5)]), text("Paid.")], "").await;
    let mut stream = app.stream_chat(pay()).await;
    let asked = question(&mut stream).await;
    drop(stream);
    decided(app.client(), &asked, json!({"decision": "approve"})).await;
    let answer = app.post_chat(go_on()).await;
    assert_eq!(answer.content(), "Paid.");
    assert_eq!(hook.names(), ["charge"]);
}

#[tokio::test]
async fn denied_calls_are_told_with_the_message_and_edited_ones_run_as_edited() {
    let script = [
        calls([charge(5), charge(6), ("read", json!({}))]),
        text("Partly."),
    ];
    let (upstream, hook, app) = start(script, "").await;
    let approvals = asked(&app.post_chat(pay()).await);
    let deny = json!({"decision": "deny", "message": "not today"});
    decided(app.client(), &approvals[0], deny).await;
    // While some are decided and some not, the answer waits for the rest.
    let rest = asked(&app.post_chat(go_on()).await);
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0]["approval_id"], approvals[1]["approval_id"]);
    for (wrong, param) in [
        (json!({"decision": "maybe"}), "decision"),
        (json!({}), "decision"),
        (json!({"decision": "approve", "arguments": 5}), "arguments"),
        (json!({"decision": "deny", "arguments": {}}), "arguments"),
        (
            json!({"decision": "approve", "remember_for_session": "all"}),
            "remember_for_session",
        ),
        (json!({"decision": "approve", "why": "x"}), "why"),
    ] {
        let answer = decide(app.client(), &rest[0], wrong).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.json()["error"]["param"]),
            (400, &json!(param))
        );
    }
    let edited = json!({"account": "a", "cents": 1});
    let approve = json!({"decision": "approve", "arguments": edited});
    decided(app.client(), &rest[0], approve).await;
    let answer = app.post_chat(go_on()).await;
    assert_eq!(answer.content(), "Partly.");
    assert_eq!(hook.names(), ["read", "charge"]);
    assert_eq!(*hook.call(1).arguments(), edited);
    let sent = upstream.last().messages();
    assert!(sent[2]["content"].as_str().unwrap().contains("not today"));
    let entries = answer.completion()["agentic_tool_calls"].clone();
    let edited_entry = (entries.as_array().unwrap().iter())
        .find(|entry| entry["status"] == "ok" && entry["name"] == "charge");
    assert_eq!(edited_entry.unwrap()["edited"], true);
    let history = &sent[1]["tool_calls"][1]["function"]["arguments"];
    let history: Value = serde_json::from_str(history.as_str().unwrap()).unwrap();
    assert_eq!(history, edited);
}

#[tokio::test]
async fn a_user_who_goes_on_is_not_held_up() {
    let script = [
        calls([charge(5)]),
        text("Never mind."),
        calls([charge(6)]),
        text("Done, and hello."),
    ];
    let (upstream, hook, app) = start(script, "").await;
    let first = app.post_chat(pay()).await;
    let approval = asked(&first).remove(0);
    let say = |content: &str| with(pay(), "messages", json!([user(content)]));
    // Before the decision: the call is refused.
    assert_eq!(
        app.post_chat(say("Forget it")).await.content(),
        "Never mind."
    );
    let told = upstream.last().messages()[2]["content"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(told.contains("the user went on"), "{told}");
    let late = decide(app.client(), &approval, json!({"decision": "approve"})).await;
    late.assert_error(409, Some("approval_decided"));
    // After the decision: the call runs first, and the message follows its result. The client repeats what it saw.
    let approval = asked(&app.post_chat(say("Pay again")).await).remove(0);
    decided(app.client(), &approval, json!({"decision": "approve"})).await;
    assert_eq!(
        app.post_chat(say("Hello?")).await.content(),
        "Done, and hello."
    );
    assert_eq!(hook.names(), ["charge"]);
    let sent = upstream.last().messages();
    let end: Vec<&str> = sent[sent.len() - 2..]
        .iter()
        .map(|one| one["content"].as_str().unwrap())
        .collect();
    assert_eq!(end, ["charged", "Hello?"]);
}

#[tokio::test]
async fn a_client_that_repeats_the_conversation_goes_on() {
    let script = [calls([charge(5)]), text("Paid."), text("Welcome.")];
    let (_upstream, hook, app) = start(script, "").await;
    let first = app.post_chat(pay()).await;
    let (said, approval) = (first.content(), asked(&first).remove(0));
    decided(app.client(), &approval, json!({"decision": "approve"})).await;
    let seen = json!([user("Pay"), assistant(&said)]);
    assert_eq!(
        app.post_chat(with(pay(), "messages", seen)).await.content(),
        "Paid."
    );
    let seen = json!([
        user("Pay"),
        assistant(&said),
        assistant("Paid."),
        user("Thanks")
    ]);
    assert_eq!(
        app.post_chat(with(pay(), "messages", seen)).await.content(),
        "Welcome."
    );
    assert_eq!(hook.names(), ["charge"]);
    let stored = app.get("/v1/sessions/s").await.json();
    let roles: Vec<&str> = stored["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(
        roles,
        [
            "user",
            "assistant",
            "tool",
            "assistant",
            "user",
            "assistant"
        ]
    );
}

#[tokio::test]
async fn grants_last_as_long_as_the_session_and_never_beat_a_deny() {
    let account = |name: &str| ("charge", json!({"account": name, "cents": 1}));
    let script = [
        calls([account("a")]),
        calls([account("a")]),
        calls([account("b")]),
        calls([account("c")]),
        calls([account("evil")]),
        text("Done."),
        calls([account("a")]),
    ];
    let deny = "[[permissions]]\nargument = '/account'\nmatch = 'glob'\npatterns = ['evil']\neffect = 'deny'\n";
    let (_upstream, hook, app) = start(script, deny).await;
    let first = asked(&app.post_chat(pay()).await).remove(0);
    let same = json!({"decision": "approve", "remember_for_session": true});
    decided(app.client(), &first, same).await;
    // The second call has the same account; the third another one.
    let second = asked(&app.post_chat(go_on()).await).remove(0);
    assert_eq!(second["arguments"]["account"], "b");
    assert_eq!(hook.calls().len(), 2);
    let all = json!({"decision": "approve", "remember_for_session": "tool"});
    decided(app.client(), &second, all).await;
    let answer = app.post_chat(go_on()).await;
    assert_eq!(answer.content(), "Done.");
    let all = [["charge ok"; 4].as_slice(), &["charge denied"]].concat();
    assert_eq!(statuses(&answer), all);
    // Another session has no grants.
    asked(
        &app.post_chat(with(pay(), "session_id", json!("other")))
            .await,
    );
}

#[tokio::test]
async fn after_two_denials_of_the_same_call_nobody_is_asked() {
    let script = [
        calls([charge(5)]),
        calls([charge(5)]),
        calls([charge(5)]),
        text("I give up."),
    ];
    let (_upstream, hook, app) = start(script, "repeat_threshold = 0").await;
    let mut answer = app.post_chat(pay()).await;
    for _ in 0..2 {
        let approval = asked(&answer).remove(0);
        decided(app.client(), &approval, json!({"decision": "deny"})).await;
        answer = app.post_chat(go_on()).await;
    }
    assert_eq!(answer.content(), "I give up.");
    assert_eq!(statuses(&answer), ["charge denied"; 3]);
    assert!(hook.calls().is_empty());
}

#[tokio::test]
async fn what_nobody_decides_in_time_is_denied() {
    let script = [calls([charge(5)]), text("Not paid.")];
    let (upstream, hook, app) = start(script, "approval_timeout = 1").await;
    let approval = asked(&app.post_chat(pay()).await).remove(0);
    within("the end of the approval", async {
        while app.get("/v1/agent/approvals").await.json()["data"] != json!([]) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let late = decide(app.client(), &approval, json!({"decision": "approve"})).await;
    late.assert_error(409, Some("approval_decided"));
    assert_eq!(app.post_chat(go_on()).await.content(), "Not paid.");
    assert!(
        upstream.last().messages()[2]["content"]
            .as_str()
            .unwrap()
            .contains("nobody decided")
    );
    assert!(hook.calls().is_empty());
}

#[tokio::test]
async fn a_stream_notices_that_its_question_has_expired() {
    let script = [calls([charge(5)]), text("Not paid.")];
    let (_upstream, hook, app) = start(script, "approval_timeout = 1").await;
    let stream = app.stream_chat(pay()).await.collect().await;
    assert_eq!(stream.text, "Not paid.");
    assert!(hook.calls().is_empty());
}

#[tokio::test]
async fn an_answer_counts_also_when_no_rule_asks_any_more() {
    let upstream = ScriptedUpstream::start([calls([charge(5)]), text("Not paid.")]).await;
    let hook = hook().await;
    let rules =
        |word: &str| format!("agent_permission = \"{word}\"\nsession_store = \"sqlite:s.db\"\n");
    let builder = || TestApp::builder().upstream(&upstream).dispatch(&hook);
    let mut app = builder().toml(&rules("ask")).start().await;
    let approval = asked(&app.post_chat(pay()).await).remove(0);
    decided(app.client(), &approval, json!({"decision": "deny"})).await;
    app.terminate().await;
    app.wait_exit().await;
    let store = app.dir().join("s.db");
    let again = rules("auto").replace("s.db", store.to_str().unwrap());
    let second = builder().toml(&again).start().await;
    assert_eq!(second.post_chat(go_on()).await.content(), "Not paid.");
    assert!(hook.calls().is_empty());
}

#[tokio::test]
async fn a_grant_covers_one_question_and_not_others_about_the_same_call() {
    let pay_as = |account: &str, mode: &str| ("charge", json!({"account": account, "mode": mode}));
    let script = [
        calls([pay_as("a", "read")]),
        calls([pay_as("a", "read")]),
        calls([pay_as("a", "write")]),
        text("Done."),
    ];
    let more = "[[permissions]]\ntool = 'charge'\nargument = '/mode'\nmatch = 'glob'\npatterns = ['write']\neffect = 'ask'\n";
    let (_upstream, hook, app) = start(script, &format!("repeat_threshold = 0\n{more}")).await;
    let first = asked(&app.post_chat(pay()).await).remove(0);
    let same = json!({"decision": "approve", "remember_for_session": true});
    decided(app.client(), &first, same).await;
    let second = asked(&app.post_chat(go_on()).await).remove(0);
    assert_eq!(
        second["arguments"]["mode"], "write",
        "another rule asks about it as well"
    );
    assert_eq!(hook.calls().len(), 2);
}

#[tokio::test]
async fn nothing_new_in_replay_goes_on_and_keeps_the_history() {
    let script = [calls([charge(5)]), text("Paid."), text("Welcome.")];
    let (_upstream, hook, app) = start(script, "").await;
    let first = app.post_chat(pay()).await;
    let (said, approval) = (first.content(), asked(&first).remove(0));
    decided(app.client(), &approval, json!({"decision": "approve"})).await;
    let replay = |messages: Value| {
        let body = with(pay(), "messages", messages);
        with(body, "agent", json!({"session_mode": "replay"}))
    };
    assert_eq!(app.post_chat(replay(json!([]))).await.content(), "Paid.");
    // Another client has seen the sentence only, and not the answer.
    let seen = json!([user("Pay"), assistant(&said), user("Thanks")]);
    assert_eq!(app.post_chat(replay(seen)).await.content(), "Welcome.");
    assert_eq!(hook.names(), ["charge"]);
    let stored = app.get("/v1/sessions/s").await.json();
    assert_eq!(stored["messages"].as_array().unwrap().len(), 6, "{stored}");
}

#[tokio::test]
async fn what_runs_beside_a_question_ends_although_the_reader_leaves() {
    let upstream =
        ScriptedUpstream::start([calls([charge(5), ("read", json!({}))]), text("Paid.")]).await;
    let gate = Gate::new();
    let hook = Webhook::start()
        .await
        .on("charge", webhook::text("charged"));
    let hook = hook.on("read", webhook::text("balance 9").gated(&gate));
    let app = server(&upstream, &hook, "").start().await;
    let mut stream = app.stream_chat(pay()).await;
    let approval = question(&mut stream).await;
    hook.called(1).await;
    drop(stream);
    eventually("the end of the stream", || async {
        let metrics = app.client().get("/metrics").await.text();
        metrics.contains("loopwright_open_streams 0").then_some(())
    })
    .await;
    gate.open();
    decided(app.client(), &approval, json!({"decision": "approve"})).await;
    assert_eq!(app.post_chat(go_on()).await.content(), "Paid.");
    assert_eq!(hook.names(), ["read", "charge"]);
    let sent = upstream.last().messages();
    assert_eq!(
        (&sent[2]["content"], &sent[3]["content"]),
        (&json!("charged"), &json!("balance 9"))
    );
}

#[tokio::test]
async fn lists_are_of_the_own_key_and_operators_see_all() {
    let keys = "[[api_keys]]\nname = 'a'\nenv = 'A'\n[[api_keys]]\nname = 'b'\nenv = 'B'\n\
                [[api_keys]]\nname = 'o'\nenv = 'O'\noperator = true\n";
    let upstream = ScriptedUpstream::answering(|request| match request.messages().len() {
        1 => calls([charge(5)]),
        _ => text("Paid."),
    })
    .await;
    let hook = hook().await;
    let names = ["A", "B", "O"];
    let key = |name: &str| format!("key-{name}-of-sixteen-characters");
    let builder = names
        .into_iter()
        .fold(server(&upstream, &hook, ""), |builder, name| {
            builder.env(name, &key(name))
        });
    let app = builder.toml(keys).start().await;
    let [a, b, operator] = names.map(|name| app.client().key(&key(name)));
    let of_a = asked(&a.post_chat(pay()).await).remove(0);
    let of_b = asked(&b.post_chat(pay()).await).remove(0);
    let count = async |client: &Client| {
        let list = client.get("/v1/agent/approvals").await.json();
        list["data"].as_array().unwrap().len()
    };
    assert_eq!(
        (count(&a).await, count(&b).await, count(&operator).await),
        (1, 1, 2)
    );
    let foreign = decide(&b, &of_a, json!({"decision": "approve"})).await;
    foreign.assert_error(404, Some("not_found"));
    decided(&operator, &of_a, json!({"decision": "approve"})).await;
    decided(&b, &of_b, json!({"decision": "deny"})).await;
    assert_eq!(a.post_chat(go_on()).await.content(), "Paid.");
    assert_eq!(hook.calls().len(), 1);
    let audit: Vec<String> = app
        .logs()
        .lines()
        .filter(|line| line.contains("audit"))
        .map(str::to_owned)
        .collect();
    assert!(
        audit
            .iter()
            .any(|line| line.contains("by=\"o\"") && line.contains("owner=\"a\"")),
        "{audit:?}"
    );
    assert!(
        audit.iter().all(|line| !line.contains("cents")),
        "{audit:?}"
    );
}

#[tokio::test]
async fn large_arguments_crowd_nobody_out_of_the_list_of_an_operator() {
    let keys = "[[api_keys]]\nname = 'a'\nenv = 'A'\n[[api_keys]]\nname = 'o'\nenv = 'O'\noperator = true\n";
    let account = "a".repeat(2 << 20);
    let call = |cents: u32| {
        let arguments = json!({"account": account, "cents": cents}).to_string();
        let function = json!({"name": "charge", "arguments": arguments});
        json!({"index": cents, "id": format!("c{cents}"), "type": "function", "function": function})
    };
    let chunk = |delta: Value, finish: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [choice]});
        format!("data: {chunk}\n\n")
    };
    let many = (0..10).map(|cents| chunk(json!({"tool_calls": [call(cents)]}), None));
    let end = [
        chunk(json!({}), Some("tool_calls")),
        "data: [DONE]\n\n".to_owned(),
    ];
    let upstream = ScriptedUpstream::start([raw_sse(many.chain(end)), calls([charge(5)])]).await;
    let hook = hook().await;
    let key = |name: &str| format!("key-{name}-of-sixteen-characters");
    let builder = server(&upstream, &hook, "").toml(keys);
    let app = builder
        .env("A", &key("A"))
        .env("O", &key("O"))
        .start()
        .await;
    let [a, operator] = ["A", "O"].map(|name| app.client().key(&key(name)));
    let answer = a.post_chat(pay()).await;
    assert_eq!(asked(&answer).len(), 10);
    let own = asked(&operator.post_chat(pay()).await).remove(0);
    let list = operator.get("/v1/agent/approvals").await;
    assert!(list.body.len() < 17 << 20, "{}", list.body.len());
    let list = list.json()["data"].as_array().unwrap().clone();
    assert!(list.len() > 5 && list.len() < 10, "{}", list.len());
    let ids = list.iter().map(|one| one["approval_id"].as_str());
    assert!(ids.is_sorted());
    let is_own = |one: &Value| one["approval_id"] == own["approval_id"];
    assert!(list.iter().any(is_own));
}

#[tokio::test]
async fn a_decision_counts_for_the_size_of_its_session() {
    let script = [calls([charge(5), charge(6)]), text("Done.")];
    let (upstream, _hook, app) = start(script, "session_max_bytes = 262144").await;
    let [first, second] = asked(&app.post_chat(pay()).await).try_into().unwrap();
    let half = "n".repeat(150_000);
    let long = json!({"decision": "deny", "message": half});
    decided(app.client(), &first, long.clone()).await;
    let refused = decide(app.client(), &second, long).await;
    refused.assert_error(413, Some("session_too_large"));
    let arguments = json!({"account": half, "cents": 1});
    let edited = json!({"decision": "approve", "arguments": arguments});
    let refused = decide(app.client(), &second, edited).await;
    refused.assert_error(413, Some("session_too_large"));
    // Nothing was lost by it.
    decided(app.client(), &second, json!({"decision": "deny"})).await;
    assert_eq!(app.post_chat(go_on()).await.content(), "Done.");
    assert!(upstream.last().tool_results()[0].1.contains("nnn"));
}

#[tokio::test]
async fn without_a_store_nobody_can_decide() {
    let script = [calls([charge(5)]), text("Not paid.")];
    let (_upstream, hook, app) = start(script, "").await;
    let mut body = ask_with("Pay", ["charge"]);
    body["store"] = json!(false);
    let answer = app.post_chat(body).await;
    assert_eq!(answer.content(), "Not paid.");
    assert_eq!(statuses(&answer), ["charge denied"]);
    assert!(hook.calls().is_empty());
}

#[tokio::test]
async fn a_turn_that_waits_can_be_cancelled() {
    let (_upstream, hook, app) = start([calls([charge(5)]), text("Hello.")], "").await;
    let mut stream = app.stream_chat(pay()).await;
    question(&mut stream).await;
    let path = "/v1/sessions/s/cancel";
    assert_eq!(
        app.client()
            .send(Method::POST, path, &json!({}))
            .await
            .status,
        202
    );
    assert_eq!(stream.collect().await.agent()["stop_reason"], "cancelled");
    assert_eq!(
        app.get("/v1/agent/approvals").await.json()["data"],
        json!([])
    );
    let say = with(pay(), "messages", json!([user("Hi")]));
    assert_eq!(app.post_chat(say).await.content(), "Hello.");
    assert!(hook.calls().is_empty());
}

/// The gate that holds a call of the webhook.
fn held(hook: Webhook, gate: &Gate) -> Webhook {
    hook.once("charge", webhook::text("charged").gated(gate))
}
