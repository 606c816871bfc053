//! Plays the cases against the built binary.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream;
use serde_json::{Map, Value, json};

use super::super::support::app::{Builder, TestApp};
use super::super::support::ask::{tool, tool_with};
use super::AT_ONCE;
use super::client::{Client, Way, connections};
use super::expect;
use super::file::{Case, Turn};
use super::server::{Scene, Stage};

/// Retries that do not take the test's time.
const QUICK: &str = "[retry]\nmax_attempts = 3\nbase_delay = \"1ms\"\n";

/// Where sessions are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Store {
    /// In memory.
    Memory,
    /// In a file or a database, over restarts.
    Kept,
}

/// Something that is not as expected.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    /// The file.
    pub(super) file: String,
    /// The line.
    pub(super) line: usize,
    /// What it is.
    pub(super) text: String,
    /// The conversation in which it came up.
    pub(super) run: String,
}

/// What all conversations of a process have in common.
#[derive(Debug)]
struct House {
    store: Store,
    stage: Arc<Stage>,
    http: reqwest::Client,
}

/// A conversation of a case.
#[derive(Debug)]
pub(super) struct Run {
    /// The case.
    pub(super) case: Arc<Case>,
    /// How the client asks.
    pub(super) way: Way,
    store: Store,
    model: String,
    turns: Vec<Turn>,
    client: Client,
    stage: Arc<Stage>,
    problems: Vec<Problem>,
}

impl Problem {
    /// Something that is wrong with a file.
    pub(super) fn of_file(file: &str, line: usize, text: String) -> Self {
        Self {
            file: file.to_owned(),
            line,
            text,
            run: "the file".to_owned(),
        }
    }
}

/// Plays cases in one process; if it does not start with all of their settings, those of each file in one of their own.
pub(super) async fn group(cases: &[Arc<Case>], store: Store) -> (usize, Vec<Problem>) {
    let cases = cases.to_vec();
    if let Ok(done) = tokio::spawn(played(cases.clone(), store)).await {
        return done;
    }
    let mut files: BTreeMap<String, Vec<Arc<Case>>> = BTreeMap::new();
    for case in cases {
        files.entry(case.file.clone()).or_default().push(case);
    }
    let (mut runs, mut problems) = (0, Vec::new());
    for (file, cases) in files {
        match tokio::spawn(played(cases, store)).await {
            Ok((count, found)) => {
                runs += count;
                problems.extend(found);
            }
            Err(error) => problems.push(Problem::of_file(&file, 1, reason(error))),
        }
    }
    (runs, problems)
}

async fn played(cases: Vec<Arc<Case>>, store: Store) -> (usize, Vec<Problem>) {
    let stage = Arc::new(Stage::default());
    let models = stage.models().await;
    let names: BTreeSet<String> = cases
        .iter()
        .flat_map(|case| case.tools())
        .map(|(name, _)| name)
        .collect();
    let webhook = stage.webhook(names).await;
    let origin = format!("http://{}", models.addr());
    let builder = builder(&cases, store, &origin).dispatch(&webhook);
    let mut app = builder.start().await;
    let house = House {
        store,
        stage,
        http: connections(),
    };
    let mut runs = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        if case.restarts() && store == Store::Memory {
            continue;
        }
        let chat_alone = !case.head["dialects"].is_null();
        let ways = Way::ALL
            .into_iter()
            .filter(|way| !(chat_alone && way.responses));
        runs.extend(ways.map(|way| Run::new(case, number, way, &house)));
    }
    let count = runs.len();
    let mut problems = Vec::new();
    let waiting = both_halves(runs, app.origin(), false, &mut problems).await;
    if waiting.iter().any(|run| !run.turns.is_empty()) {
        app.restart().await;
        both_halves(waiting, app.origin(), true, &mut problems).await;
    }
    let violations = webhook.take_violations().into_iter();
    problems.extend(violations.map(|text| Problem::of_file("the webhook", 0, text)));
    (count, problems)
}

/// Plays the turns before or after the restart. Gives the conversations that go on after it.
async fn both_halves(
    runs: Vec<Run>,
    origin: &str,
    restarted: bool,
    problems: &mut Vec<Problem>,
) -> Vec<Run> {
    let played = stream::iter(runs).map(|mut run| {
        let origin = origin.to_owned();
        let (case, way, store) = (run.case.clone(), run.way, run.store);
        let task = tokio::spawn(async move {
            run.play(&origin, restarted).await;
            run
        });
        async move {
            task.await.map_err(|error| Problem {
                file: case.file.clone(),
                line: case.line,
                text: reason(error),
                run: format!("{} ({way}, {store:?})", case.title),
            })
        }
    });
    let mut runs = Vec::new();
    for run in played.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await {
        match run {
            Ok(mut run) => {
                problems.append(&mut run.problems);
                runs.push(run);
            }
            Err(problem) => problems.push(problem),
        }
    }
    runs
}

fn reason(error: tokio::task::JoinError) -> String {
    let panic = error.into_panic();
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default()
}

fn builder(cases: &[Arc<Case>], store: Store, origin: &str) -> Builder {
    let mut toml = "dispatch_tools = [\"srv_*\"]\n".to_owned();
    if store == Store::Memory {
        toml.push_str("session_store = \"memory:\"\n");
    }
    let server = cases[0].server();
    toml.push_str(&server);
    toml.push('\n');
    if !server.contains("[retry]") {
        toml.push_str(QUICK);
    }
    for (number, case) in cases.iter().enumerate() {
        for (at, settings) in case.upstreams().iter().enumerate() {
            let _infallible = write!(
                toml,
                "[[upstreams]]\nname = \"c{number}-{at}\"\nbase_url = \"{origin}/{at}/v1\"\nmodels = [\"c{number}-*\"]\n"
            );
            for (key, value) in settings.as_object().unwrap() {
                let _infallible = writeln!(toml, "{key} = {}", toml_of(value));
            }
        }
    }
    TestApp::builder().toml(&toml)
}

fn toml_of(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(key, member)| format!("{key} = {}", toml_of(member)));
            format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// A tool of a case as a request declares it.
fn declared(name: &str, given: &Value) -> Value {
    match given.get("parameters") {
        Some(parameters) => tool_with(name, parameters.clone()),
        None => tool(name),
    }
}

impl Run {
    fn new(case: &Arc<Case>, number: usize, way: Way, house: &House) -> Self {
        let model = format!("c{number}-{}", way.words().join("-"));
        let tools = case.tools();
        let mut offered: Vec<Value> = tools
            .iter()
            .map(|(name, given)| declared(name, given))
            .collect();
        let of_client = case.head["client_tools"].as_array().into_iter().flatten();
        offered.extend(of_client.map(|name| tool(name.as_str().unwrap())));
        if way.responses {
            for tool in &mut offered {
                let mut function = tool["function"].take();
                function["type"] = json!("function");
                *tool = function;
            }
        }
        let session = (case.head["session"] == true).then(|| format!("s-{model}"));
        house.stage.enter(&model, Scene::new(tools));
        Self {
            case: case.clone(),
            way,
            store: house.store,
            client: Client::new(&house.http, way, &model, offered, session),
            model,
            turns: case.turns(&way.words()),
            stage: house.stage.clone(),
            problems: Vec::new(),
        }
    }

    /// Plays the turns up to a restart, or all that are left after it.
    async fn play(&mut self, origin: &str, restarted: bool) {
        while let Some(turn) = self.turns.first().cloned() {
            if turn.ask["restart"] == true && !restarted {
                return;
            }
            self.turns.remove(0);
            self.turn(origin, &turn).await;
        }
    }

    async fn turn(&mut self, origin: &str, turn: &Turn) {
        self.stage.with(&self.model, |scene| {
            scene.line = turn.line;
            scene.calls.extend(turn.calls.iter().cloned());
            scene.ran.clear();
        });
        let mut more = Map::new();
        for request in [&self.case.head["request"], &turn.ask["request"]] {
            more.extend(request.as_object().cloned().unwrap_or_default());
        }
        let model = turn.ask["model"].as_str();
        let (view, odd) = self.client.ask(origin, &turn.ask, model, &more).await;
        let (ran, left, mut found) = self.stage.with(&self.model, |scene| {
            let problems = std::mem::take(&mut scene.problems);
            (
                scene.ran.clone(),
                std::mem::take(&mut scene.calls),
                problems,
            )
        });
        found.extend(odd.into_iter().map(|text| (turn.line, text)));
        found.extend(
            left.into_iter()
                .map(|(line, _)| (line, "this model call never came".to_owned())),
        );
        let mut is_error_expected = false;
        for (line, expected) in &turn.expected {
            if let Some(expected) = expected.get("ran") {
                found.extend(ran_problem(expected, &ran).map(|text| (*line, text)));
            }
            if let Some(expected) = expected["got"].as_object() {
                is_error_expected |= expected.contains_key("error");
                found.extend(
                    self.got(expected, &view)
                        .into_iter()
                        .map(|text| (*line, text)),
                );
            }
        }
        if !is_error_expected && let Some(error) = view.get("error") {
            found.push((turn.line, format!("got the error {error}")));
        }
        for (line, text) in found {
            let run = format!("{self}, {:?}", self.store);
            let file = self.case.file.clone();
            self.problems.push(Problem {
                file,
                line,
                text,
                run,
            });
        }
    }

    /// What is wrong with what the client got.
    fn got(&self, expected: &Map<String, Value>, view: &Value) -> Vec<String> {
        let fails = expected.contains_key("error");
        let mut found = Vec::new();
        for (member, expected) in expected {
            let actual = view.get(member);
            let problem = match member.as_str() {
                "message" | "choice" | "raw" if self.way.responses => None,
                // The status of an error that comes within a stream is that of the stream.
                "status" if view["status"] == 200 && self.way.streamed => None,
                "status" if self.way.responses && view["said"].is_array() => None,
                "content" if fails && !self.way.streamed => None,
                "tool_calls" if self.way.responses => expect::problem(&plain(expected), actual),
                _ => expect::problem(expected, actual),
            };
            found.extend(problem.map(|problem| format!("{member}: {problem}")));
        }
        found
    }
}

/// Calls without the members that a response has no place for.
fn plain(calls: &Value) -> Value {
    let mut calls = calls.clone();
    for call in calls.as_array_mut().into_iter().flatten() {
        let function = &call["function"];
        *call = json!({"type": "function", "function": {"name": function["name"], "arguments": function["arguments"]}});
    }
    calls
}

fn ran_problem(expected: &Value, ran: &[Value]) -> Option<String> {
    let sorted = |list: &[Value]| {
        let mut texts: Vec<String> = list.iter().map(ToString::to_string).collect();
        texts.sort();
        texts
    };
    let (expected, ran) = (sorted(expected.as_array().unwrap()), sorted(ran));
    (expected != ran).then(|| format!("ran {ran:?}, expected {expected:?}"))
}
