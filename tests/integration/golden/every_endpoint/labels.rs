//! What the log and the metrics call the requests to every path.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::record::Golden;
use super::sender::Sender;
use super::{CHAT, ENDPOINTS, KEY, OPERATOR, any_upstream, filled, paths, with_keys};
use crate::support::eventually;

#[tokio::test]
async fn every_endpoint_labels() {
    let upstream = any_upstream().await;
    let app = with_keys(&upstream, "")
        .args(["--log-format", "json", "--log-level", "debug"])
        .start()
        .await;
    let (nobody, alice) = (Sender::of(&app), Sender::of(&app).key(KEY));
    let mut asked: Vec<String> = Vec::new();
    let mut ask = async |sender: &Sender, method: &str, path: &str, body: &str| {
        let sender = sender.with("x-request-id", &format!("case-{}", asked.len()));
        sender.send(method, path, body.to_owned()).await;
        asked.push(format!("{method} {path}"));
    };
    for (method, path, body) in ENDPOINTS {
        ask(&alice, method, &filled(path, "unknown"), body).await;
    }
    let turn = CHAT.replacen('{', r#"{"session_id":"s","#, 1);
    ask(&alice, "POST", "/v1/chat/completions", &turn).await;
    for path in paths() {
        for method in ["GET", "POST", "PATCH", "TRACE"] {
            ask(&alice, method, &path, "").await;
        }
    }
    for path in [
        "/v1/chat/completions",
        "/v1/embeddings",
        "/nothing",
        "/healthz",
        "/metrics",
    ] {
        ask(&nobody, "GET", path, "").await;
    }
    let records = eventually("the records of all requests", || async {
        let records = records(&app.logs());
        (records.len() >= asked.len()).then_some(records)
    })
    .await;
    let mut golden = Golden::default();
    golden.heading("log");
    for (number, asked) in asked.iter().enumerate() {
        golden.line(&format!(
            "{asked} -> {}",
            records[&format!("case-{number}")]
        ));
    }
    golden.heading("metrics");
    let page = nobody
        .key(OPERATOR)
        .send("GET", "/metrics", "")
        .await
        .text();
    let counts = |line: &&str| line.contains("_requests_total{") || line.contains("refused");
    let mut lines: Vec<&str> = page.lines().filter(counts).collect();
    lines.sort_unstable();
    for line in lines.into_iter().filter(|line| !line.starts_with('#')) {
        golden.line(line);
    }
    golden.check("every_endpoint_labels");
}

/// The records of requests in the log, by the ids of the requests.
fn records(logs: &str) -> BTreeMap<String, String> {
    let records = logs.lines().filter_map(|line| {
        let record: Value = serde_json::from_str(line).ok()?;
        let id = record["request_id"].as_str()?.to_owned();
        (record["message"] == "request").then(|| (id, shown(&record)))
    });
    records.collect()
}

fn shown(record: &Value) -> String {
    let members = [
        "level", "status", "route", "path", "owner", "model", "upstream", "ended", "cause",
    ];
    let shown = members.map(|name| match &record[name] {
        Value::Null => String::new(),
        Value::String(text) => format!("{name}={text} "),
        other => format!("{name}={other} "),
    });
    shown.concat().trim_end().to_owned()
}
