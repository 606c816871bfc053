//! Runs with a record from their start: they go on by themselves once all is decided.

use super::{
    Answer, Client, Method, ScriptedUpstream, Value, ask_with, asked, calls, charge, decide,
    decided, hook, json, pay, question, server, start, statuses, text, user, with,
};
use crate::support::eventually;
use crate::support::server::Gate;
use crate::support::webhook::{self, Webhook};
#[cfg(feature = "otlp")]
use crate::traces::collector::{Collector, Span, named};

/// The body of a run that goes on without a client.
fn finishing() -> Value {
    with(pay(), "agent", json!({"on_disconnect": "finish"}))
}

pub(super) fn in_background() -> Value {
    with(pay(), "agent", json!({"background": true}))
}

pub(super) fn path(id: &Value) -> String {
    format!("/v1/chat/completions/{}", id.as_str().unwrap())
}

/// Waits until a run has an answer.
pub(super) async fn ended(client: &Client, id: &Value) -> Answer {
    eventually("the end of a run", || async {
        let answer = client.get(&path(id)).await;
        (answer.status != 202).then_some(answer)
    })
    .await
}

/// Waits until a run waits for decisions, and gives its approvals.
pub(super) async fn waiting(client: &Client, id: &Value) -> Vec<Value> {
    eventually("a question", || async {
        let answer = client.get(&path(id)).await;
        assert_eq!(answer.status, 202, "{}", answer.text());
        let approvals = answer.json()["approvals"].as_array().unwrap().clone();
        (!approvals.is_empty()).then_some(approvals)
    })
    .await
}

pub(super) async fn approve(client: &Client, approval: &Value) -> Value {
    decided(client, approval, json!({"decision": "approve"})).await
}

#[tokio::test]
async fn a_run_in_the_background_goes_on_by_itself() {
    let script = [
        calls([charge(5), charge(6), ("read", json!({}))]),
        calls([charge(7)]),
        text("Paid."),
    ];
    let (upstream, hook, app) = start(script, "").await;
    let id = app.post_chat(in_background()).await.json()["id"].clone();
    let approvals = waiting(app.client(), &id).await;
    assert_eq!(approvals.len(), 2);
    assert_eq!(approvals[0]["run_id"], id);
    approve(app.client(), &approvals[0]).await;
    // One is decided, the other is not.
    let rest = waiting(app.client(), &id).await;
    assert_eq!(rest.len(), 1);
    let edited = json!({"decision": "approve", "arguments": {"account": "a", "cents": 1}});
    decided(app.client(), &rest[0], edited).await;
    // The next round asks again, in the same run.
    let next = eventually("the next question", || async {
        let found = waiting(app.client(), &id).await;
        (found[0]["arguments"]["cents"] == 7).then_some(found)
    })
    .await;
    let deny = json!({"decision": "deny", "message": "enough"});
    decided(app.client(), &next[0], deny).await;
    let answer = ended(app.client(), &id).await;
    assert_eq!(answer.content(), "Paid.");
    assert_eq!(answer.completion()["id"], id);
    let mut cents: Vec<Value> = (hook.calls().iter())
        .map(|call| call.arguments()["cents"].clone())
        .collect();
    cents.sort_by_key(Value::as_u64);
    assert_eq!(cents, [Value::Null, json!(1), json!(5)]);
    assert!(
        upstream.last().tool_results()[3].1.contains("enough"),
        "{:?}",
        upstream.last().tool_results()
    );
}

#[tokio::test]
#[cfg(feature = "otlp")]
async fn a_run_that_goes_on_has_a_trace_with_a_link_to_the_first() {
    let collector = Collector::start().await;
    let script = [calls([charge(5)]), text("Paid.")];
    let (_upstream, _hook, app) = start(script, &collector.toml()).await;
    let id = app.post_chat(in_background()).await.json()["id"].clone();
    let approvals = waiting(app.client(), &id).await;
    approve(app.client(), &approvals[0]).await;
    ended(app.client(), &id).await;
    let of_run = |spans: &[Span], name: &str| {
        let spans = spans.iter().filter(|span| span.name == name);
        spans.cloned().collect::<Vec<_>>()
    };
    let found = eventually("both parts of the run", || async {
        let exports = collector.exports().into_iter();
        let spans: Vec<Span> = exports.flat_map(|export| export.spans).collect();
        (of_run(&spans, "invoke_agent").len() == 2).then_some(spans)
    });
    let spans = found.await;
    let server = named(&spans, "POST /v1/chat/completions");
    let [first, second] = of_run(&spans, "invoke_agent").try_into().unwrap();
    assert_eq!(first.parent, server.id);
    assert_eq!(second.parent, "");
    assert_ne!(second.trace, first.trace);
    assert_eq!(second.links, [(server.trace.clone(), server.id.clone())]);
    let calls = of_run(&spans, "execute_tool charge");
    let statuses: Vec<_> = calls
        .iter()
        .map(|call| call.get("loopwright.tool.status"))
        .collect();
    assert_eq!(statuses, ["waiting", "ok"]);
    assert_eq!(calls[1].trace, second.trace);
}

#[tokio::test]
async fn an_answer_under_a_key_is_asked_for_again() {
    let script = [calls([charge(5)]), text("Paid.")];
    let (_upstream, hook, app) = start(script, "").await;
    let keyed = app.client().header("idempotency-key", "k");
    let first = keyed.post_chat(pay()).await;
    let approval = asked(&first).remove(0);
    let id = first.completion()["id"].clone();
    assert_eq!(waiting(app.client(), &id).await.len(), 1);
    // It waits still: the request attaches to it.
    let again = keyed.post_chat(pay()).await;
    assert_eq!(asked(&again)[0]["approval_id"], approval["approval_id"]);
    assert_eq!(again.completion()["id"], id);
    approve(app.client(), &approval).await;
    let answer = ended(app.client(), &id).await;
    assert_eq!(answer.content(), "Paid.");
    let replayed = keyed.post_chat(pay()).await;
    assert_eq!(replayed.content(), "Paid.");
    assert_eq!(replayed.header("idempotency-replayed"), Some("true"));
    assert_eq!(hook.names(), ["charge"]);
}

#[tokio::test]
async fn a_stream_under_a_key_waits_again_and_goes_on() {
    let script = [calls([charge(5)]), text("Paid.")];
    let (_upstream, hook, app) = start(script, "approval_wait = 0.2").await;
    let keyed = app.client().header("idempotency-key", "k");
    let mut first = keyed.stream_chat(pay()).await;
    let approval = question(&mut first).await;
    let ended = first.collect().await;
    assert_eq!(ended.agent()["stop_reason"], "approval_required");
    let mut second = keyed.stream_chat(pay()).await;
    let again = question(&mut second).await;
    assert_eq!(again["approval_id"], approval["approval_id"]);
    approve(app.client(), &approval).await;
    // In the stream if that waits still, else by itself.
    let _rest = second.collect().await;
    let answer = ended_text(app.client(), &again["id"]).await;
    assert_eq!(answer, "Paid.");
    assert_eq!(hook.names(), ["charge"]);
}

async fn ended_text(client: &Client, id: &Value) -> String {
    ended(client, id).await.content()
}

#[tokio::test]
async fn a_run_whose_reader_left_goes_on_by_itself() {
    let script = [calls([charge(5)]), text("Paid.")];
    let (_upstream, hook, app) = start(script, "approval_wait = 0").await;
    let mut stream = app.stream_chat(finishing()).await;
    let approval = question(&mut stream).await;
    drop(stream);
    let id = approval["id"].clone();
    waiting(app.client(), &id).await;
    approve(app.client(), &approval).await;
    assert_eq!(ended(app.client(), &id).await.content(), "Paid.");
    assert_eq!(hook.names(), ["charge"]);
}

#[tokio::test]
async fn what_nobody_decides_in_time_is_denied_and_the_run_goes_on() {
    let script = [calls([charge(5)]), text("Not paid.")];
    let (upstream, hook, app) = start(script, "approval_timeout = 1").await;
    let id = app.post_chat(in_background()).await.json()["id"].clone();
    let answer = ended(app.client(), &id).await;
    assert_eq!(answer.content(), "Not paid.");
    assert_eq!(statuses(&answer), ["charge denied"]);
    assert!(
        upstream.last().tool_results()[0]
            .1
            .contains("nobody decided")
    );
    assert!(hook.calls().is_empty());
}

#[tokio::test]
async fn a_run_that_waits_outlives_its_process() {
    let upstream =
        ScriptedUpstream::start([calls([charge(5), ("read", json!({}))]), text("Paid.")]).await;
    let hook = hook().await;
    let mut app = server(&upstream, &hook, "").start().await;
    let keyed = app.client().header("idempotency-key", "k");
    // Killed in its stream, and killed once more while nothing reads it.
    let mut stream = keyed.stream_chat(pay()).await;
    let approval = question(&mut stream).await;
    hook.called(1).await;
    app.kill9().await;
    drop(stream);
    app.restart().await;
    assert_eq!(waiting(app.client(), &approval["id"]).await.len(), 1);
    app.kill9().await;
    app.restart().await;
    approve(app.client(), &approval).await;
    let answer = ended(app.client(), &approval["id"]).await;
    assert_eq!(answer.content(), "Paid.");
    assert_eq!(hook.names().last().map(String::as_str), Some("charge"));
    let made = hook.names().into_iter().filter(|name| name == "charge");
    assert_eq!(made.count(), 1);
    let keyed = app.client().header("idempotency-key", "k");
    assert_eq!(keyed.stream_chat(pay()).await.collect().await.text, "Paid.");
}

#[tokio::test]
async fn a_decision_before_the_end_of_the_process_counts_after_it() {
    let upstream = ScriptedUpstream::start([calls([charge(5)]), text("Paid.")]).await;
    let hook = hook().await;
    let mut app = server(&upstream, &hook, "approval_wait = 0").start().await;
    let ended_first = app.stream_chat(finishing()).await.collect().await;
    let approval = ended_first.agent()["approvals"][0].clone();
    let id = json!(ended_first.id);
    app.terminate().await;
    app.wait_exit().await;
    app.restart().await;
    approve(app.client(), &approval).await;
    app.kill9().await;
    app.restart().await;
    let answer = ended(app.client(), &id).await;
    assert_eq!(answer.content(), "Paid.");
    assert_eq!(hook.calls().len(), 1);
}

#[tokio::test]
async fn a_request_of_the_session_can_take_the_turn_on() {
    let script = [calls([charge(5)]), text("Never mind.")];
    let (_upstream, hook, app) = start(script, "").await;
    let first = app.post_chat(finishing()).await;
    let approval = asked(&first).remove(0);
    let id = first.completion()["id"].clone();
    let say = with(pay(), "messages", json!([user("Forget it")]));
    assert_eq!(app.post_chat(say).await.content(), "Never mind.");
    // The run has its answer, which says what waited.
    let answer = ended(app.client(), &id).await;
    assert_eq!(asked(&answer)[0]["approval_id"], approval["approval_id"]);
    assert!(hook.calls().is_empty());
}

#[tokio::test]
async fn a_response_in_the_background_goes_on_by_itself() {
    let script = [calls([charge(5)]), text("Paid.")];
    let (upstream, hook, app) = start(script, "").await;
    let tool = ask_with("", ["charge"])["tools"][0]["function"].clone();
    let tool = json!({"type": "function", "name": tool["name"], "parameters": tool["parameters"]});
    let body = json!({"model": "m", "input": "Pay", "instructions": "Be brief.", "background": true, "tools": [tool]});
    let begun = app.client().post("/v1/responses", &body).await;
    let path = format!("/v1/responses/{}", begun.json()["id"].as_str().unwrap());
    let approval = eventually("a question", || async {
        let list = app.get("/v1/agent/approvals").await.json();
        list["data"].get(0).cloned()
    })
    .await;
    let unfinished = app.get(&path).await.json();
    assert!(["queued", "in_progress"].contains(&unfinished["status"].as_str().unwrap()));
    approve(app.client(), &approval).await;
    let response = eventually("the response", || async {
        let response = app.get(&path).await.json();
        (response["status"] != "in_progress").then_some(response)
    })
    .await;
    assert!(
        response["output"].to_string().contains("Paid."),
        "{response}"
    );
    assert_eq!(hook.names(), ["charge"]);
    let sent = upstream.last().messages();
    assert_eq!(sent[0]["content"], "Be brief.", "{sent:?}");
}

#[tokio::test]
async fn a_run_that_waits_can_be_deleted() {
    let script = [calls([charge(5)]), text("Hello.")];
    let (_upstream, hook, app) = start(script, "").await;
    let id = app.post_chat(in_background()).await.json()["id"].clone();
    let approval = waiting(app.client(), &id).await.remove(0);
    let deleted = app
        .client()
        .send(Method::DELETE, &path(&id), &json!({}))
        .await;
    assert_eq!(deleted.status, 200);
    assert_eq!(app.get(&path(&id)).await.status, 404);
    let list = app.get("/v1/agent/approvals").await.json();
    assert_eq!(list["data"], json!([]));
    // The session goes on without it.
    let late = decide(app.client(), &approval, json!({"decision": "approve"})).await;
    late.assert_error(409, Some("approval_decided"));
    let say = with(pay(), "messages", json!([user("Hi")]));
    assert_eq!(app.post_chat(say).await.content(), "Hello.");
    assert!(hook.calls().is_empty());
}

#[tokio::test]
async fn a_run_that_finds_its_session_busy_goes_on_later() {
    let script = [calls([charge(5)]), text("Paid.")];
    let (upstream, hook) = (
        ScriptedUpstream::start(script).await,
        Webhook::start().await,
    );
    let gate = Gate::new();
    let hook = hook.on("charge", webhook::text("charged"));
    let hook = hook.on("slow", webhook::text("done").gated(&gate));
    let app = server(&upstream, &hook, "session_wait_ms = 1500")
        .start()
        .await;
    let id = app.post_chat(in_background()).await.json()["id"].clone();
    let approval = waiting(app.client(), &id).await.remove(0);
    let client = app.client();
    let body = json!({"session_id": approval["session_id"]});
    let holds_the_session = client.post("/v1/agent/tools/slow/call", &body);
    let decides = async {
        hook.called(1).await;
        approve(client, &approval).await;
        // The attempt begins beside the call, and fails.
        for running in ["loopwright_runs 2\n", "loopwright_runs 1\n"] {
            eventually(running, || async {
                let metrics = client.get("/metrics").await.text();
                metrics.contains(running).then_some(())
            })
            .await;
        }
        assert_eq!(client.get(&path(&id)).await.status, 202);
        gate.open();
    };
    let (held, ()) = tokio::join!(holds_the_session, decides);
    assert_eq!(held.status, 200, "{}", held.text());
    let answer = eventually("the answer", || async {
        let answer = client.get(&path(&id)).await;
        (answer.status == 200).then_some(answer)
    })
    .await;
    assert_eq!(answer.content(), "Paid.");
    assert_eq!(hook.names(), ["slow", "charge"]);
}

#[cfg(feature = "postgres")]
#[tokio::test]
#[ignore = "needs PostgreSQL; tests/run installs it"]
async fn another_replica_goes_on_with_the_run() {
    use crate::support::postgres::PostgresServer;

    let upstream = ScriptedUpstream::start([calls([charge(5)]), text("Paid.")]).await;
    let hook = hook().await;
    let database = PostgresServer::shared().create_database().await;
    let replica = async || -> super::TestApp {
        let builder = server(&upstream, &hook, "");
        let builder = builder.env("LOOPWRIGHT_SESSION_STORE", &database);
        builder.start().await
    };
    let (mut first, second) = (replica().await, replica().await);
    let id = first.post_chat(in_background()).await.json()["id"].clone();
    waiting(first.client(), &id).await;
    waiting(second.client(), &id).await;
    first.kill9().await;
    let approval = waiting(second.client(), &id).await.remove(0);
    approve(second.client(), &approval).await;
    assert_eq!(ended(second.client(), &id).await.content(), "Paid.");
    assert_eq!(hook.names(), ["charge"]);
}

/// A run in the background that waits, and its approval.
pub(super) async fn waits(client: &Client, session: &str) -> (Value, Value) {
    let body = with(in_background(), "session_id", json!(session));
    let id = client.post_chat(body).await.json()["id"].clone();
    let approval = waiting(client, &id).await.remove(0);
    (id, approval)
}

#[tokio::test]
async fn a_run_that_waits_can_be_cancelled() {
    let upstream = ScriptedUpstream::answering(|request| match request.messages().len() {
        1 => calls([charge(5)]),
        _ => text("Hello."),
    });
    let (upstream, hook) = (upstream.await, hook().await);
    let app = server(&upstream, &hook, "").start().await;
    let client = app.client();
    for (session, mode) in [("one", json!({})), ("two", json!({"mode": "after_round"}))] {
        let (id, approval) = waits(client, session).await;
        let cancel = match session {
            "one" => format!("{}/cancel", path(&id)),
            _ => format!("/v1/sessions/{session}/cancel"),
        };
        let answer = client.post(&cancel, &mode).await;
        assert_eq!(answer.status, 202);
        assert_eq!(answer.json()["id"], id);
        // The part before the wait may not have ended when its question is there.
        let answer = ended(client, &id).await;
        assert_eq!(answer.completion()["agent"]["stop_reason"], "cancelled");
        assert_eq!(statuses(&answer), ["charge cancelled"]);
        let late = decide(client, &approval, json!({"decision": "approve"})).await;
        late.assert_error(409, Some("approval_decided"));
        let again = client.post(&cancel, &mode).await;
        again.assert_error(409, Some("not_running"));
        // The session goes on without it.
        let say = with(pay(), "messages", json!([user("Hi")]));
        let say = with(say, "session_id", json!(session));
        assert_eq!(client.post_chat(say).await.content(), "Hello.");
    }
    let list = client.get("/v1/agent/approvals").await.json();
    assert_eq!(list["data"], json!([]));
    assert!(hook.calls().is_empty());
}

#[tokio::test]
async fn a_response_that_waits_can_be_cancelled() {
    let script = [calls([charge(5)]), text("Hello.")];
    let (_upstream, hook, app) = start(script, "dispatch_tools = [\"*\"]").await;
    let tools = json!([{"type": "function", "name": "charge", "parameters": {"type": "object"}}]);
    let body = json!({"model": "m", "input": "Pay", "background": true, "tools": tools});
    let id = app.client().post("/v1/responses", &body).await.json()["id"].clone();
    let path = format!("/v1/responses/{}", id.as_str().unwrap());
    eventually("a question", || async {
        let list = app.get("/v1/agent/approvals").await.json();
        list["data"].get(0).cloned()
    })
    .await;
    let cancelled = app
        .client()
        .post(&format!("{path}/cancel"), &json!({}))
        .await;
    assert_eq!(cancelled.status, 200, "{}", cancelled.text());
    assert_eq!(cancelled.json()["status"], "cancelled");
    assert_eq!(app.get(&path).await.json()["status"], "cancelled");
    assert!(hook.calls().is_empty());
}
