//! Code that the model has run.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::builder;
use super::record::Golden;
use crate::support::ask::{ask, with};
use crate::support::script::{Reply, calls, text};
use crate::support::upstream::{MODEL, ScriptedUpstream};

/// Code whose value is a picture of one pixel.
const PICTURE: &str = r#"
import base64
class Picture:
    def __repr__(self):
        return "a picture"
    def _repr_png_(self):
        return base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
Picture()
"#;

fn run(code: &str) -> Reply {
    calls([("execute_python", json!({"code": code}))])
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn code_and_files() {
    let script = || {
        vec![
            run("print('out')\nopen('a.csv', 'w').write(open('in.csv').read() + '3,4\\n')\n1 + 1"),
            run("raise ValueError('no')"),
            run(PICTURE),
            calls([
                ("read_file", json!({"name": "a.csv"})),
                ("list_files", json!({})),
            ]),
            calls([("reset_python", json!({}))]),
            text("Done."),
        ]
    };
    let replies = script().into_iter().chain([text("More.")]).chain(script());
    let upstream = ScriptedUpstream::start(replies).await;
    let app = builder()
        .args(["--enable-code-execution"])
        .toml(&upstream.with_quirks("images = true"))
        .start()
        .await;
    let mut golden = Golden::default();
    let data = format!("data:text/csv;base64,{}", STANDARD.encode("1,2\n"));
    let file = json!({"type": "file", "file": {"filename": "in.csv", "file_data": data}});
    let message = json!({"role": "user", "content": [{"type": "text", "text": "Go"}, file]});
    let body = |id: &str, stream: bool| {
        json!({
            "model": MODEL, "session_id": id, "stream": stream, "messages": [message], "enable_code_execution": true,
            "files": [{"name": "a.csv", "format": "csv", "description": "the sums"}, {"name": "b.txt"}],
            "agent": {"tool_execution": "sequential"},
        })
    };
    golden.heading("streamed");
    golden.chat(app.client(), &body("streamed", true)).await;
    golden.upstream(&upstream);
    golden.session(app.client(), "streamed").await;
    let more = with(ask("More"), "session_id", json!("streamed"));
    golden.chat(app.client(), &more).await;
    golden.upstream(&upstream);
    golden.heading("whole");
    golden.chat(app.client(), &body("whole", false)).await;
    golden.session(app.client(), "whole").await;
    let files = app.get("/v1/files").await.json();
    let made = |file: &&Value| file["filename"] == "a.csv";
    let made = files["data"].as_array().unwrap().iter().find(made).unwrap();
    let id = made["id"].as_str().unwrap();
    golden.get(app.client(), &format!("/v1/files/{id}")).await;
    golden
        .get(app.client(), &format!("/v1/files/{id}/content"))
        .await;
    golden.get(app.client(), "/v1/agent/tools").await;
    golden.check("code_and_files");
}
