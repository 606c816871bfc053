//! How many statements a turn costs.

use std::path::{Path, PathBuf};

use super::*;

/// Model calls of a turn, all but the last one with a call of the tool.
const ROUNDS: usize = 5;
/// Most statements of a round, on average.
const MOST_PER_ROUND: usize = 3;
/// What replicas do at times of their own begins in one of these ways.
const BACKGROUND: [&str; 9] = [
    "DELETE FROM files",
    "DELETE FROM idempotency_keys",
    "DELETE FROM runs",
    "DELETE FROM sessions",
    "INSERT INTO replicas",
    "SELECT blob FROM dead_blobs",
    "SELECT coalesce(sum(bytes)",
    "SET statement_timeout",
    "WITH settled",
];

fn five_rounds(request: &Recorded) -> Reply {
    let messages = request.messages();
    let from_last = messages.iter().rev();
    let of_turn = from_last.take_while(|message| message["role"] != "user");
    let results = of_turn.filter(|message| message["role"] == "tool").count();
    match results + 1 < ROUNDS {
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
async fn a_round_costs_at_most_three_statements() {
    let mut log = PathBuf::new();
    let server = PostgresServer::start_with(|directory| {
        log = directory.join("log");
        let settings = ["log_statement=all", "log_min_messages=log"];
        let arguments = settings.map(|setting| ["-c".to_owned(), setting.to_owned()]);
        arguments.into_iter().flatten().collect()
    });
    let database = server.create_database().await;
    let upstream = ScriptedUpstream::answering(five_rounds).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    for idempotent in ["true", "false"] {
        let app = TestApp::builder()
            .upstream(&upstream)
            .dispatch(&hook)
            .env("LOOPWRIGHT_SESSION_STORE", &database)
            .toml(&format!("dispatch_idempotent = {idempotent}"))
            .start()
            .await;
        // The first turn makes the session.
        for turn in ["first", "second"] {
            let before = statements(&log).len();
            let answer = app.post_chat(in_session(turn)).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            // The run is recorded and the session free once the next turn may begin.
            eventually("the end of the turn", async || {
                let all = statements(&log);
                let released = all[before..]
                    .iter()
                    .any(|line| line.starts_with("WITH gone"));
                released.then_some(())
            })
            .await;
            let all = statements(&log);
            let used = &all[before..];
            assert!(used.len() >= ROUNDS, "{used:#?}");
            assert!(used.len() <= MOST_PER_ROUND * ROUNDS, "{used:#?}");
        }
    }
}
