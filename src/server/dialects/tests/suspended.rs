//! Turns that are suspended and resume.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::process::Process;
#[cfg(feature = "postgres")]
use super::server::PostgresServer;
use agent::AgentError;
use agent::control::{AbortReason, TurnControl};
use agent::driver::Run;
use agent::session::StoredMessage;
use agent::stop::StopReason;
use protocol::openai::message::Role;
#[cfg(feature = "postgres")]
use store::PostgresUrl;
use store::StoreUrl;
use tools::ToolKind;
use tools::gate::{Gate, GateWait, Verdict};

/// A database that one process after another opens.
struct Database {
    directory: tempfile::TempDir,
    url: StoreUrl,
}

/// Lets calls of `charge` and `never` wait until they are approved.
struct Decisions {
    gate: Arc<Gate>,
    approved: Arc<Mutex<HashSet<String>>>,
}

impl Database {
    fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = StoreUrl::Sqlite(directory.path().join("sessions.db"));
        Self { directory, url }
    }

    #[cfg(feature = "postgres")]
    async fn postgres() -> Self {
        let url = PostgresServer::shared().create_database().await;
        Self {
            directory: tempfile::tempdir().unwrap(),
            url: StoreUrl::Postgres(PostgresUrl::parse(&url).unwrap()),
        }
    }

    async fn process(&self, decisions: &Decisions) -> Process {
        let files = self.directory.path().join("files");
        Process::start(&self.url, &files, decisions.gate.clone(), ToolKind::Custom).await
    }

    /// A process whose tools are of another kind.
    async fn changed_process(&self, decisions: &Decisions) -> Process {
        let files = self.directory.path().join("files");
        let kind = ToolKind::WebSearch;
        Process::start(&self.url, &files, decisions.gate.clone(), kind).await
    }
}

impl Decisions {
    fn none_yet() -> Self {
        let approved = Arc::<Mutex<HashSet<String>>>::default();
        let known = approved.clone();
        let gate = Gate::scripted(move |_, tool| {
            let asks = matches!(&*tool, "charge" | "never") && !known.lock().contains(&tool);
            async move {
                match asks {
                    true => Verdict::Wait(Box::new(GateWait::example(1))),
                    false => Verdict::Run,
                }
            }
        });
        Self { gate, approved }
    }

    fn approve(&self, tool: &str) {
        self.approved.lock().insert(tool.to_owned());
    }
}

fn pay() -> Value {
    json!({"session_id": "s", "messages": [{"role": "user", "content": "pay"}]})
}

fn nothing_new() -> Value {
    json!({"session_id": "s", "messages": []})
}

/// The messages of a session: roles and texts.
fn shown(messages: &[StoredMessage]) -> Vec<String> {
    let shown = messages.iter().map(|stored| {
        let message = &stored.message;
        match message.role() {
            Role::Assistant if !message.tool_calls().is_empty() => {
                let calls = message.tool_calls().iter().map(|call| call.name.as_str());
                format!("asks for {}", calls.collect::<Vec<_>>().join(", "))
            }
            role => format!("{}: {}", role.as_str(), message.content_text()),
        }
    });
    shown.collect()
}

const ASKED: &str = "asks for read, charge, picture";

async fn another_process_finishes_the_batch(database: Database) {
    let decisions = Decisions::none_yet();
    let first = database.process(&decisions).await;
    waits(&first).await;
    first.end().await;
    let second = database.process(&decisions).await;
    waits_again(&second).await;
    second.end().await;
    decisions.approve("charge");
    let third = database.process(&decisions).await;
    finishes(&third).await;
    third.end().await;
}

/// A turn with three calls: one waits and the others run.
async fn waits(process: &Process) {
    let asked = &[
        ("read", "{\"n\":1}"),
        ("charge", "{\"cents\":5}"),
        ("picture", "{}"),
    ];
    process.model.asks(asked);
    let (mut events, outcome) = process.run(pay()).await;
    assert_eq!(outcome.stop_reason, StopReason::ApprovalRequired);
    assert_eq!(outcome.finish_reason.as_str(), "stop");
    events[3..].sort_unstable();
    let expected = [
        "calling read",
        "calling charge",
        "calling picture",
        "complete picture ok picture {}",
        "complete read ok read {\"n\":1}",
        "waiting charge",
    ];
    assert_eq!(events, expected);
    assert_eq!(process.calls_of("charge"), 0);
    let stored = process.stored("s").await;
    assert_eq!(shown(&stored.messages), ["user: pay", ASKED]);
    assert!(stored.turn.is_some());
}

/// Checks the events of the first three calls. The calls that ran end in any order.
fn assert_told(events: &[String]) {
    let expected = ["calling read", "calling charge", "calling picture"];
    assert_eq!(events[..3], expected);
    let mut completed = events[3..5].to_vec();
    completed.sort_unstable();
    let expected = [
        "complete picture ok picture {}",
        "complete read ok read {\"n\":1}",
    ];
    assert_eq!(completed, expected);
}

/// Before the decision, a request waits as the first one did.
async fn waits_again(process: &Process) {
    let (events, outcome) = process.run(nothing_new()).await;
    assert_eq!(outcome.stop_reason, StopReason::ApprovalRequired);
    assert_told(&events);
    assert_eq!(events[5..], ["waiting charge"]);
}

async fn finishes(process: &Process) {
    process.model.says("paid");
    let (events, outcome) = process.run(pay()).await;
    let results = ["read {\"n\":1}", "charge {\"cents\":5}", "picture {}"];
    let completed = format!("complete charge ok {}", results[1]);
    assert_told(&events);
    assert_eq!(events[5..], [&completed, "text paid"]);
    let counts = (outcome.stop_reason, outcome.rounds, outcome.model_calls);
    assert_eq!(counts, (StopReason::Completed, 1, 2));
    let called = ["read", "charge", "picture"].map(|tool| process.calls_of(tool));
    assert_eq!(called, [0, 1, 0]);
    // The model gets all results, in the order of its calls, and the image of an earlier process.
    let sent = process.model.last_sent();
    let texts = sent[2..5]
        .iter()
        .map(|one| one["content"].as_str().unwrap());
    assert_eq!(texts.collect::<Vec<_>>(), results);
    let url = sent[5]["content"][1]["image_url"]["url"].as_str();
    let is_shown = url.is_some_and(|url| url.starts_with("data:image/png;base64,iVBOR"));
    assert!(is_shown, "{sent:?}");
    let stored = process.stored("s").await;
    let mut expected = vec!["user: pay".to_owned(), ASKED.to_owned()];
    expected.extend(results.map(|result| format!("tool: {result}")));
    expected.push("user: Image returned by the tool 'picture':".to_owned());
    expected.push("assistant: paid".to_owned());
    assert_eq!(shown(&stored.messages), expected);
    assert_eq!(stored.turn, None);
}

/// Runs a turn with two calls that wait, resumes it once one is approved, and returns while that one runs.
async fn running(process: &Process, decisions: &Decisions) -> (Run, TurnControl) {
    process.model.asks(&[("never", "{}"), ("charge", "{}")]);
    let (_, outcome) = process.run(pay()).await;
    assert_eq!(outcome.stop_reason, StopReason::ApprovalRequired);
    decisions.approve("never");
    let (mut run, control) = process.begin(nothing_new()).await;
    until_called(&mut run, process, 1).await;
    (run, control)
}

/// Drives a run until the tool `never` was called this number of times.
async fn until_called(run: &mut Run, process: &Process, calls: usize) {
    let called = async {
        while process.calls_of("never") < calls {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let driven = async { while let Ok(Some(_)) = run.next().await {} };
    let called = async {
        tokio::select! {
            () = called => true,
            () = driven => false,
        }
    };
    let called = tokio::time::timeout(Duration::from_secs(60), called).await;
    assert_eq!(called, Ok(true), "the tool is not called");
}

/// A call that had started is answered as interrupted. An undecided call still waits.
async fn goes_on_after_the_end(process: &Process, decisions: &Decisions) {
    let (events, outcome) = process.run(nothing_new()).await;
    assert_eq!(outcome.stop_reason, StopReason::ApprovalRequired);
    let interrupted = "complete never interrupted The call was interrupted: the server stopped";
    assert!(
        events.iter().any(|event| event.starts_with(interrupted)),
        "{events:?}"
    );
    assert_eq!(events.last().unwrap(), "waiting charge");
    decisions.approve("charge");
    process.model.says("I do not know whether that worked");
    let (events, outcome) = process.run(nothing_new()).await;
    assert_eq!(outcome.stop_reason, StopReason::Completed);
    assert_eq!(events[..2], ["calling never", "calling charge"]);
    assert!(events[2].starts_with(interrupted), "{events:?}");
    assert_eq!(events[3], "complete charge ok charge {}");
    assert_eq!(
        (process.calls_of("never"), process.calls_of("charge")),
        (0, 1)
    );
    assert_eq!(process.stored("s").await.turn, None);
}

async fn a_call_that_has_started_is_not_run_again(database: Database) {
    let decisions = Decisions::none_yet();
    let first = database.process(&decisions).await;
    // As a crash.
    drop(Box::pin(running(&first, &decisions)).await);
    first.end().await;
    let second = database.process(&decisions).await;
    goes_on_after_the_end(&second, &decisions).await;
    second.end().await;
}

async fn two_calls_that_have_started_are_not_run_again(database: Database) {
    let decisions = Decisions::none_yet();
    let first = database.process(&decisions).await;
    first
        .model
        .asks(&[("never", "{\"n\":1}"), ("never", "{\"n\":2}")]);
    first.run(pay()).await;
    decisions.approve("never");
    let (mut run, _control) = first.begin(nothing_new()).await;
    until_called(&mut run, &first, 2).await;
    drop(run);
    first.end().await;
    let second = database.process(&decisions).await;
    second.model.says("I do not know");
    let (events, _) = second.run(nothing_new()).await;
    assert_eq!(second.calls_of("never"), 0);
    let interrupted = |event: &&String| event.contains("It may have taken effect");
    assert_eq!(events.iter().filter(interrupted).count(), 2, "{events:?}");
    second.end().await;
}

async fn what_was_not_asked_yet_outlives_the_end_of_its_process(database: Database) {
    let decisions = Decisions::none_yet();
    let first = database.process(&decisions).await;
    first.model.asks(&[("charge", "{}")]);
    first.run(pay()).await;
    // It ends before the gate is asked again.
    for reason in [AbortReason::NoReader, AbortReason::Shutdown] {
        for events in 0..3 {
            let (mut run, control) = first.begin(nothing_new()).await;
            for _ in 0..events {
                run.next().await.unwrap();
            }
            control.abort(reason);
            while let Ok(Some(_)) = run.next().await {}
        }
    }
    first.end().await;
    decisions.approve("charge");
    let second = database.process(&decisions).await;
    second.model.says("paid");
    let (events, _) = second.run(nothing_new()).await;
    assert_eq!(
        events[..2],
        ["calling charge", "complete charge ok charge {}"]
    );
    assert_eq!(second.calls_of("charge"), 1);
    second.end().await;
}

async fn what_waits_outlives_the_end_of_its_process(database: Database) {
    let decisions = Decisions::none_yet();
    let first = database.process(&decisions).await;
    let (mut run, control) = Box::pin(running(&first, &decisions)).await;
    control.abort(AbortReason::Shutdown);
    let ended = loop {
        match run.next().await {
            Ok(Some(_)) => {}
            ended => break ended,
        }
    };
    assert!(matches!(ended.unwrap_err().error, AgentError::Stopping));
    drop(run);
    first.end().await;
    // The call that was cancelled has its answer.
    let second = database.process(&decisions).await;
    let (events, _) = second.run(nothing_new()).await;
    assert_eq!(events[..2], ["calling never", "calling charge"]);
    assert!(
        events[2].starts_with("complete never cancelled"),
        "{events:?}"
    );
    assert_eq!(events[3..], ["waiting charge"]);
    decisions.approve("charge");
    second.model.says("one of two");
    second.run(nothing_new()).await;
    let sent = second.model.last_sent();
    let cancelled = sent[2]["content"].as_str().unwrap();
    assert!(
        cancelled.contains("It may have taken effect"),
        "{cancelled}"
    );
    assert_eq!(sent[3]["content"], "charge {}");
    second.end().await;
}

async fn a_session_that_goes_on_has_the_results(database: Database) {
    let decisions = Decisions::none_yet();
    let first = database.process(&decisions).await;
    first.model.asks(&[("read", "{}"), ("charge", "{}")]);
    first.run(pay()).await;
    first.end().await;
    decisions.approve("charge");
    let second = database.process(&decisions).await;
    second.model.says("as you like");
    let body = json!({"session_id": "s", "messages": [{"role": "user", "content": "no, wait"}]});
    let (events, _) = second.run(body).await;
    assert_eq!(events, ["text as you like"]);
    assert_eq!(second.calls_of("charge"), 0);
    let stored = second.stored("s").await;
    let expected = [
        "user: pay",
        "asks for read, charge",
        "tool: read {}",
        "tool: This call was not run: the user went on.",
        "user: no, wait",
        "assistant: as you like",
    ];
    assert_eq!(shown(&stored.messages), expected);
    assert_eq!(stored.turn, None);
    second.end().await;
}

async fn a_tool_that_has_changed_is_not_called(database: Database) {
    let decisions = Decisions::none_yet();
    let first = database.process(&decisions).await;
    first.model.asks(&[("charge", "{}")]);
    first.run(pay()).await;
    first.end().await;
    decisions.approve("charge");
    let second = database.changed_process(&decisions).await;
    second.model.says("then not");
    let (events, _) = second.run(nothing_new()).await;
    assert_eq!(second.calls_of("charge"), 0);
    let changed = "complete charge error This call was not run: the tool 'charge' has changed";
    assert!(events[1].starts_with(changed), "{events:?}");
    second.end().await;
}

async fn an_unstored_turn_cannot_wait(database: Database) {
    let decisions = Decisions::none_yet();
    let process = database.process(&decisions).await;
    process.model.asks(&[("charge", "{}")]);
    process.model.says("not paid");
    let body = json!({"store": false, "messages": [{"role": "user", "content": "pay"}]});
    let (events, outcome) = process.run(body).await;
    assert_eq!(outcome.stop_reason, StopReason::Completed);
    assert!(
        events[1].starts_with("complete charge denied"),
        "{events:?}"
    );
    assert_eq!(process.calls_of("charge"), 0);
    process.end().await;
}

macro_rules! both_engines {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(super::Database::sqlite()).await;
                }
            )*
        }

        #[cfg(feature = "postgres")]
        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                #[ignore = "needs PostgreSQL"]
                async fn $name() {
                    super::$name(super::Database::postgres().await).await;
                }
            )*
        }
    };
}

both_engines! {
    another_process_finishes_the_batch,
    a_call_that_has_started_is_not_run_again,
    two_calls_that_have_started_are_not_run_again,
    what_waits_outlives_the_end_of_its_process,
    what_was_not_asked_yet_outlives_the_end_of_its_process,
    a_session_that_goes_on_has_the_results,
    a_tool_that_has_changed_is_not_called,
    an_unstored_turn_cannot_wait,
}
