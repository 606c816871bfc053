//! Runs that a version suspended before turns had drafts, with the schemas 18 of SQLite and 10 of PostgreSQL: this version is
//! told the decisions, and each run goes on to one whole answer. Runs of this version do the very same.
//!
//! `suspended/sqlite` and `suspended/postgres` hold what that version left. With the path of its binary in
//! `LOOPWRIGHT_EARLIER_BINARY`, the tests of this module whose name ends with `likewise` write both anew.

use std::path::Path;

use serde_json::{Value, json};

use super::kept::{self, Engine, Kept, KeptSet};
use super::told::{self, Told};
use super::{EARLIER, Recorded};
use crate::hooks::receiver::{Receiver, output};
use crate::support::app::{Builder, TestApp};
use crate::support::ask::{ask_with, tool, with};
use crate::support::eventually;
use crate::support::script::{Reply, calls, text, text_and_calls};
use crate::support::upstream::{MODEL, ScriptedUpstream};
use crate::support::webhook::{self, Webhook};

/// Every charge is asked about.
const ASK: &str = "[[permissions]]\ntool = \"charge\"\nargument = \"/account\"\nmatch = \"glob\"\npatterns = [\"*\"]\neffect = \"ask\"";
const TOOLS: [&str; 3] = ["charge", "read", "wire"];
/// What the user says: it decides on what the model does.
const SAID: [&str; 3] = ["Wire", "Remember", "Edit"];

fn charge(account: &str, cents: u32) -> (&'static str, Value) {
    ("charge", json!({"account": account, "cents": cents}))
}

/// A model that does what the message of the user says.
fn model(request: &Recorded) -> Reply {
    let messages = request.messages();
    let said = messages.iter().find(|message| message["role"] == "user");
    let rounds = messages
        .iter()
        .filter(|message| message["tool_calls"].is_array());
    let read = ("read", json!({}));
    match (said.unwrap()["content"].as_str().unwrap(), rounds.count()) {
        ("Wire", 0) => text_and_calls("First.", [read, ("wire", json!({"cents": 9}))]),
        ("Remember", 0) => text_and_calls("First.", [read, charge("a", 1)]),
        ("Remember", 1 | 3) => calls([charge("a", 1)]),
        ("Remember", 2) => calls([charge("b", 2)]),
        ("Edit", 0) => text_and_calls("First.", [charge("a", 5), read, charge("a", 6)]),
        _ => text("Done."),
    }
    .usage(10, 1)
}

async fn hook() -> Webhook {
    let hook = Webhook::start().await;
    let hook = hook.on("charge", webhook::text("charged"));
    hook.on("read", webhook::text("balance 9"))
        .on("wire", webhook::text("wired"))
}

/// A policy server that wants a person asked.
async fn policy() -> Receiver {
    let asks = json!({"permissionDecision": "ask", "permissionDecisionReason": "sure?"});
    Receiver::start(move |_, _| output(&asks)).await
}

fn server(upstream: &ScriptedUpstream, hook: &Webhook, policy: &Receiver) -> Builder {
    let hooks = policy.entry("before_tool", "/", "tools = [\"wire\"]");
    let builder = TestApp::builder().upstream(upstream).dispatch(hook);
    // The same call again and again is no mistake here.
    builder.toml(&format!("repeat_threshold = 0\n{ASK}\n{hooks}"))
}

/// The path and the body of a run in the background.
fn request(said: &str, is_chat: bool) -> (&'static str, Value) {
    if is_chat {
        let body = with(ask_with(said, TOOLS), "user", json!("somebody"));
        return (
            "/v1/chat/completions",
            with(body, "agent", json!({"background": true})),
        );
    }
    let functions = TOOLS.map(|name| {
        let parameters = tool(name)["function"]["parameters"].clone();
        json!({"type": "function", "name": name, "parameters": parameters})
    });
    let body =
        json!({"model": MODEL, "input": said, "instructions": "Be brief.", "tools": functions});
    ("/v1/responses", with(body, "background", json!(true)))
}

/// The runs by what they do: whether it is one of chat completions, and its id.
async fn suspended(app: &TestApp) -> Vec<Value> {
    let mut runs = Vec::new();
    for said in SAID {
        for is_chat in [true, false] {
            let (path, body) = request(said, is_chat);
            let id = app.post(path, &body).await.json()["id"].clone();
            decide_first(app, said, &id).await;
            runs.push(
                json!({"said": said, "path": format!("{path}/{}", id.as_str().unwrap()), "id": id}),
            );
        }
    }
    runs
}

/// The calls of a run that wait, once there are so many.
async fn asked(app: &TestApp, id: &Value, count: usize) -> Vec<Value> {
    let run = |id: &Value| {
        let id = id.as_str().unwrap();
        id.trim_start_matches("chatcmpl-")
            .trim_start_matches("resp_")
            .to_owned()
    };
    eventually("the questions of a run", || async {
        let list = app.get("/v1/agent/approvals").await.json();
        let all = list["data"].as_array().unwrap().iter();
        let own = all.filter(|one| run(&one["run_id"]) == run(id));
        let own: Vec<Value> = own.cloned().collect();
        (own.len() == count).then_some(own)
    })
    .await
}

async fn decide(app: &TestApp, approval: &Value, decision: &Value) {
    let path = format!(
        "/v1/agent/approvals/{}",
        approval["approval_id"].as_str().unwrap()
    );
    let answer = app.post(&path, decision).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// Waits until no run runs: those that wait are suspended, and what is decided does not run in their first part.
async fn suspends(app: &TestApp) {
    eventually("the end of the first parts of runs", || async {
        let metrics = app.get("/metrics").await.text();
        metrics.contains("loopwright_runs 0\n").then_some(())
    })
    .await;
}

/// What is decided before the process is killed.
async fn decide_first(app: &TestApp, said: &str, id: &Value) {
    match said {
        "Remember" => {
            let first = asked(app, id, 1).await.remove(0);
            let remember = json!({"decision": "approve", "remember_for_session": true});
            decide(app, &first, &remember).await;
            eventually("the next question", || async {
                let next = asked(app, id, 1).await.remove(0);
                (next["arguments"]["account"] == "b").then_some(())
            })
            .await;
        }
        "Edit" => {
            suspends(app).await;
            let both = asked(app, id, 2).await;
            let first = both.iter().find(|one| one["arguments"]["cents"] == 5);
            let edited = json!({"decision": "approve", "arguments": {"account": "a", "cents": 50}});
            decide(app, first.unwrap(), &edited).await;
        }
        _ => drop(asked(app, id, 1).await),
    }
}

/// Decides what is left, and gives the calls that follow from it, as the webhook has them.
async fn decide_rest(app: &TestApp, run: &Value) -> Vec<(&'static str, Value)> {
    let approval = asked(app, &run["id"], 1).await.remove(0);
    let approve = json!({"decision": "approve"});
    match run["said"].as_str().unwrap() {
        "Wire" => {
            decide(app, &approval, &approve).await;
            vec![("wire", json!({"cents": 9}))]
        }
        "Remember" => {
            decide(app, &approval, &approve).await;
            vec![charge("b", 2), charge("a", 1)]
        }
        _ => {
            let edited = json!({"account": "a", "cents": 60});
            decide(app, &approval, &with(approve, "arguments", edited)).await;
            vec![charge("a", 50), charge("a", 60)]
        }
    }
}

/// The answer of a run that has ended.
async fn ended(app: &TestApp, run: &Value) -> Value {
    let path = run["path"].as_str().unwrap();
    eventually("the end of a run", || async {
        let answer = app.get(path).await;
        let body = answer.json();
        let is_over =
            answer.status != 202 && body["status"] != "in_progress" && body["status"] != "queued";
        is_over.then_some(body)
    })
    .await
}

/// An answer of the whole turn, in either dialect.
fn assert_whole(run: &Value, body: &Value) {
    let said = run["said"].as_str().unwrap();
    let is_chat = body["object"] == "chat.completion";
    let texts: String = match is_chat {
        true => body["choices"][0]["message"]["content"]
            .as_str()
            .unwrap()
            .to_owned(),
        false => {
            assert_eq!(body["status"], "completed", "{body}");
            let items = body["output"].as_array().unwrap().iter();
            let items = items.filter(|item| item["type"] == "message");
            let texts = items.map(|item| item["content"][0]["text"].as_str().unwrap());
            texts.collect()
        }
    };
    assert_eq!(texts, "First.\n\nDone.", "{said}: {body}");
    let (calls, rounds) = match said {
        "Wire" => (2, 1),
        "Remember" => (5, 4),
        _ => (3, 1),
    };
    let agent = &body["agent"];
    assert_eq!(agent["rounds"], rounds, "{said}: {body}");
    assert_eq!(agent["model_calls"], rounds + 1, "{said}: {body}");
    let told = match is_chat {
        true => body["agentic_tool_calls"].as_array().unwrap().len(),
        false => {
            let items = body["output"].as_array().unwrap().iter();
            items
                .filter(|item| item["type"].as_str().unwrap().ends_with("_call"))
                .count()
        }
    };
    assert_eq!(told, calls, "{said}: {body}");
    let tokens = match is_chat {
        true => &body["usage"]["prompt_tokens"],
        false => &body["usage"]["input_tokens"],
    };
    assert_eq!(*tokens, 10 * (rounds + 1), "{said}: {body}");
}

/// Decides about everything that waits, and holds the answers and the effects.
async fn goes_on(kept: &Kept) {
    let (upstream, hook, policy) = (
        ScriptedUpstream::answering(model).await,
        hook().await,
        policy().await,
    );
    let mut app = kept
        .restored(server(&upstream, &hook, &policy))
        .await
        .start()
        .await;
    let runs = kept.told().ids;
    let runs = runs.as_array().unwrap();
    let mut expected = Vec::new();
    let mut answers = Vec::new();
    for run in runs {
        expected.extend(decide_rest(&app, run).await);
        let answer = ended(&app, run).await;
        assert_whole(run, &answer);
        answers.push(answer);
    }
    let made = hook.calls();
    let made = made
        .iter()
        .map(|call| (call.name.clone(), call.arguments().to_string()));
    let mut made: Vec<_> = made.collect();
    let expected = expected
        .into_iter()
        .map(|(name, arguments)| (name.to_owned(), arguments.to_string()));
    let mut expected: Vec<_> = expected.collect();
    made.sort();
    expected.sort();
    assert_eq!(
        made, expected,
        "each effect once, and none of those before the wait"
    );
    app.restart().await;
    for (run, answer) in runs.iter().zip(answers) {
        assert_eq!(ended(&app, run).await, answer);
    }
    assert_eq!(hook.calls().len(), expected.len());
}

/// Has a process suspend runs, kills it, and keeps what it left.
async fn write(engine: Engine, directory: &Path, earlier: Option<&str>) {
    let (upstream, hook, policy) = (
        ScriptedUpstream::answering(model).await,
        hook().await,
        policy().await,
    );
    let kept = Kept::at(engine, directory);
    let (builder, place) = kept.fresh(server(&upstream, &hook, &policy)).await;
    let builder = match earlier {
        Some(path) => builder.program(path, []),
        None => builder,
    };
    let mut app = told::started(builder).await;
    let runs = suspended(&app).await;
    suspends(&app).await;
    app.kill9().await;
    kept.keep(&mut app, &place, false).await;
    kept.keep_told(&json!(runs), &Told::new());
}

async fn of_this_version(engine: Engine) {
    let directory = tempfile::tempdir().unwrap();
    let earlier = std::env::var(EARLIER).ok();
    let directory = match earlier {
        Some(_) => kept::directory(engine, KeptSet::Suspended),
        None => directory.path().to_owned(),
    };
    write(engine, &directory, earlier.as_deref()).await;
    goes_on(&Kept::at(engine, &directory)).await;
}

#[tokio::test]
async fn suspended_runs_of_an_earlier_version_resume() {
    goes_on(&Kept::of_earlier(Engine::Sqlite, KeptSet::Suspended)).await;
}

#[tokio::test]
async fn suspended_runs_of_this_version_resume_likewise() {
    of_this_version(Engine::Sqlite).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn suspended_runs_of_an_earlier_version_in_a_database_resume() {
    goes_on(&Kept::of_earlier(Engine::Postgres, KeptSet::Suspended)).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn suspended_runs_of_this_version_in_a_database_resume_likewise() {
    of_this_version(Engine::Postgres).await;
}
