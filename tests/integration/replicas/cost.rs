//! How many statements a turn costs.

use std::path::{Path, PathBuf};

use super::*;

/// Rounds with a call of the tool, of a turn that begins with this word.
const ROUNDS: [(&str, usize); 2] = [("short", 0), ("long", 4)];
/// Most statements of a turn besides: for its lease, its history, what was asked, its answer and its record.
const MOST_PER_TURN: usize = 6;
/// What replicas do at times of their own begins in one of these ways.
const BACKGROUND: [&str; 17] = [
    "DELETE FROM files",
    "DELETE FROM idempotency_keys",
    "DELETE FROM runs",
    "DELETE FROM sessions",
    "INSERT INTO replicas",
    "LISTEN",
    "SELECT blob FROM dead_blobs",
    "SELECT CAST(coalesce(sum(bytes)",
    "SELECT count(*) FROM approvals",
    "SELECT holds_lock_6",
    "SELECT pg_advisory_lock",
    "SELECT r.owner, r.id FROM parked_turns",
    "SELECT suspected, dead",
    "SELECT trusted, credit",
    "SET statement_timeout",
    "UPDATE expiry_time",
    "WITH settled",
];

fn as_asked(request: &Recorded) -> Reply {
    let messages = request.messages();
    let asked = messages
        .iter()
        .rposition(|message| message["role"] == "user");
    let (before, results) = messages.split_at(asked.unwrap() + 1);
    let results = results
        .iter()
        .filter(|message| message["role"] == "tool")
        .count();
    let word = &before.last().unwrap()["content"];
    let rounds = ROUNDS.iter().find(|(asked, _)| word == asked).unwrap().1;
    match results < rounds {
        true => calls([("t", json!({"round": results}))]),
        false => text("Done."),
    }
}

/// The first lines of the statements that a server has logged, without those in the background.
fn statements(log: &Path) -> Vec<String> {
    let log = std::fs::read_to_string(log).unwrap();
    let lines = log.lines().filter_map(|line| {
        let (_, said) = line.split_once(" LOG:  ")?;
        let statement = said.strip_prefix("statement: ");
        let statement = statement.or_else(|| {
            said.strip_prefix("execute ")?
                .split_once(": ")
                .map(|(_, it)| it)
        });
        statement.map(|it| it.trim_start().to_owned())
    });
    let is_background = |line: &String| BACKGROUND.iter().any(|start| line.starts_with(start));
    lines.filter(|line| !is_background(line)).collect()
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_tool_round_costs_one_statement_or_two() {
    let mut log = PathBuf::new();
    let server = PostgresServer::start_with(|directory| {
        log = directory.join("log");
        let settings = ["log_statement=all", "log_min_messages=log"];
        let arguments = settings.map(|setting| ["-c".to_owned(), setting.to_owned()]);
        arguments.into_iter().flatten().collect()
    });
    let database = server.create_database().await;
    let upstream = ScriptedUpstream::answering(as_asked).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    for idempotent in [true, false] {
        let app = TestApp::builder()
            .upstream(&upstream)
            .dispatch(&hook)
            .env("LOOPWRIGHT_SESSION_STORE", &database)
            .toml(&format!("dispatch_idempotent = {idempotent}"))
            .start()
            .await;
        // The first turns make the session.
        for (asked, rounds) in ROUNDS.into_iter().chain(ROUNDS) {
            let before = statements(&log).len();
            let answer = app.post_chat(in_session(asked)).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            eventually("the end of the turn", async || {
                let all = statements(&log);
                let used = &all[before..];
                let is_done = |start| used.iter().any(|line| line.starts_with(start));
                // Its run is recorded, and its session is free.
                (is_done("WITH ended") && is_done("WITH gone")).then_some(())
            })
            .await;
            let all = statements(&log);
            let used = &all[before..];
            // A call that may not be made twice is stored before it runs.
            let per_round = if idempotent { 1 } else { 2 };
            let most = MOST_PER_TURN + rounds * per_round;
            assert!(used.len() > rounds, "{used:#?}");
            assert!(used.len() <= most, "{asked}, {idempotent}: {used:#?}");
        }
    }
}
