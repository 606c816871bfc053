//! What the settings hold of secrets stays there.

use serde_json::json;

use super::http::HttpFake;
use super::{fake, in_state, record, start_with};
use crate::support::ask::{ask, with};

const SECRETS: [&str; 5] = [
    "env-secret-1",
    "arg-secret-2",
    "bearer-secret-3",
    "header-secret-4",
    "query-secret",
];

#[tokio::test]
async fn secrets_of_servers_are_in_no_answer_log_metric_or_file() {
    let far = HttpFake::start().await;
    let table = fake::server("fake", "", "")
        .replace("\"--nocapture\"", "\"--nocapture\", \"--skip\", \"${ARG}\"")
        + "TOKEN = \"${TOKEN}\"\n";
    let toml = format!(
        "session_store = \"sqlite:kept.db\"\n{table}[mcp_servers.far]\nurl = \"{}\"\nbearer_token = \"${{BEARER}}\"\n\
         headers = {{ x-team = \"header-secret-4\" }}\n[mcp_servers.gone]\ncommand = \"no-such-program\"\n\
         args = [\"arg-secret-2\"]\n[mcp_servers.lost]\nurl = \"http://127.0.0.1:1/?q=query-secret\"\n",
        far.url()
    );
    let (mut app, _upstream) = start_with(&toml, |builder| {
        builder
            .env("TOKEN", SECRETS[0])
            .env("ARG", SECRETS[1])
            .env("BEARER", SECRETS[2])
    })
    .await;
    for name in ["fake", "far"] {
        in_state(app.client(), name, "ready").await;
    }
    let mut seen = Vec::new();
    for tool in [
        "fake__crash",
        "fake__error",
        "far__broken",
        "far__denied",
        "far__moved",
    ] {
        seen.push(record(app.client(), tool, json!({})).await.to_string());
    }
    let body = with(ask("fake__crash {}"), "session_id", json!("s-1"));
    seen.push(app.post_chat(body).await.text());
    for path in ["/v1/agent/tools", "/readyz", "/metrics", "/v1/sessions/s-1"] {
        seen.push(app.get(path).await.text());
    }
    seen.push(app.logs());
    app.terminate().await;
    app.wait_exit().await;
    for entry in std::fs::read_dir(app.dir()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("kept.db") {
            let bytes = std::fs::read(path).unwrap();
            seen.push(String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    assert!(seen.iter().any(|text| text.contains("SQLite format")));
    for text in seen {
        for secret in SECRETS {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
}
