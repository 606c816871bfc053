//! The end of a suspended run as cancelled opens no turn.

use super::alone::{in_background, path, waiting};
use super::suspended::{STORE, charging, directory, serving, stop};
use super::{ScriptedUpstream, TestApp, hook, json, server, statuses, with};
use crate::hooks::receiver::Receiver;
use crate::mcp::far::Far;
use crate::support::eventually;
use crate::support::server::HttpReply;
use crate::support::upstream::MODEL;
use rusqlite::Connection;

/// Counts that change where a turn is opened.
fn work(upstream: &ScriptedUpstream, far: &Far, policy: &Receiver) -> [usize; 4] {
    [
        upstream.requests().len(),
        upstream.others().len(),
        far.requests(),
        policy.seen().len(),
    ]
}

/// Cancels a run that waits, in the process that began it or in one that does not serve its model.
async fn assert_opens_no_turn(by_session: bool, restarts: bool, declares: bool) {
    let (upstream, hook, dir) = (charging().await, hook().await, directory());
    let far = Far::start().await;
    let allow = || HttpReply::whole(200, "application/json", "{}");
    let policy = Receiver::start(move |_, _| allow()).await;
    let hooks = ["before_model", "before_tool", "after_tool", "before_finish"];
    let hooks = hooks.map(|on| policy.entry(on, "/", "")).concat();
    let more = format!("{hooks}\n[mcp_requests]\nprivate = [\"127.0.0.1\"]");
    let served = async |model: &str| {
        let builder = serving(&upstream, &hook, dir.path(), model, &more);
        builder.start().await
    };
    let mut app = served(MODEL).await;
    let mut body = with(in_background(), "session_id", json!("s"));
    if declares {
        let declared = json!({"type": "mcp", "server_label": "far", "server_url": far.url()});
        body["tools"].as_array_mut().unwrap().push(declared);
    }
    let id = app.post_chat(body).await.json()["id"].clone();
    waiting(app.client(), &id).await;
    suspended(&app).await;
    if restarts {
        stop(&mut app).await;
        app = served("other").await;
    }
    let before = work(&upstream, &far, &policy);
    let cancel = match by_session {
        true => "/v1/sessions/s/cancel".to_owned(),
        false => format!("{}/cancel", path(&id)),
    };
    let cancelled = app.post(&cancel, &json!({})).await;
    assert_eq!(cancelled.status, 202, "{}", cancelled.text());
    let answer = app.get(&path(&id)).await;
    let stopped = answer.completion()["agent"]["stop_reason"].clone();
    assert_eq!(stopped, "cancelled");
    assert_eq!(statuses(&answer), ["charge cancelled"]);
    assert_eq!(work(&upstream, &far, &policy), before);
    assert!(hook.calls().is_empty());
    assert_ended(&app).await;
}

/// The session has the call as cancelled, and the turn is counted once.
async fn assert_ended(app: &TestApp) {
    let session = app.get("/v1/sessions/s").await.json();
    let messages = session["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 3, "{session}");
    let result = messages[2]["content"].as_str().unwrap();
    assert!(result.contains("cancelled"), "{session}");
    let metrics = app.get("/metrics").await.text();
    let counted = "loopwright_turns_total{stop_reason=\"cancelled\"} 1\n";
    assert!(metrics.contains(counted), "{metrics}");
}

/// Waits until no run runs: those that wait are suspended.
pub(super) async fn suspended(app: &TestApp) {
    eventually("the end of the first part", || async {
        let metrics = app.get("/metrics").await.text();
        metrics.contains("loopwright_runs 0\n").then_some(())
    })
    .await;
}

/// How the run is cancelled, and whether another process does it.
const WAYS: [(bool, bool); 4] = [(false, false), (true, false), (false, true), (true, true)];

#[tokio::test]
async fn the_end_of_a_suspended_run_opens_no_turn() {
    for (by_session, restarts) in WAYS {
        assert_opens_no_turn(by_session, restarts, false).await;
    }
}

#[tokio::test]
async fn the_end_of_a_suspended_run_connects_to_no_server() {
    for (by_session, restarts) in WAYS {
        assert_opens_no_turn(by_session, restarts, true).await;
    }
}

/// A process that cannot read the turn knows its dialect by the path alone.
#[tokio::test]
async fn a_response_that_cannot_be_read_ends_as_a_response() {
    let (upstream, hook) = (charging().await, hook().await);
    let mut app = server(&upstream, &hook, STORE).start().await;
    let tool = json!({"type": "function", "name": "charge", "parameters": {"type": "object"}});
    let body = json!({"model": MODEL, "input": "Pay", "background": true, "tools": [tool]});
    let id = app.post("/v1/responses", &body).await.json()["id"].clone();
    let path = format!("/v1/responses/{}", id.as_str().unwrap());
    eventually("a question", || async {
        let list = app.get("/v1/agent/approvals").await.json();
        list["data"].get(0).cloned()
    })
    .await;
    suspended(&app).await;
    stop(&mut app).await;
    let database = Connection::open(app.dir().join("sessions.db")).unwrap();
    let sql = "UPDATE parked_turns SET turn = replace(turn, '\"form\":2', '\"form\":99')";
    assert_eq!(database.execute(sql, []).unwrap(), 1);
    drop(database);
    app.restart().await;
    assert_eq!(app.get(&path).await.json()["status"], "in_progress");
    let cancelled = app.post(&format!("{path}/cancel"), &json!({})).await;
    assert_eq!(cancelled.status, 200, "{}", cancelled.text());
    assert_eq!(cancelled.json()["status"], "cancelled");
    let stored = app.get(&path).await.json();
    assert_eq!(
        (&stored["id"], &stored["status"]),
        (&id, &json!("cancelled"))
    );
    assert!(hook.calls().is_empty());
}
