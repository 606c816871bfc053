//! Runs that wait for a decision about a call of a server that their request has declared. The process keeps its secrets.

use super::*;
use crate::support::client::Answer;
use crate::support::script::{calls, text};

/// A run in the background whose call of a declared server waits, with the header that the server is to get.
struct Suspended {
    far: Far,
    _upstream: ScriptedUpstream,
    app: TestApp,
    server: Value,
    id: String,
    question: String,
}

impl Suspended {
    async fn start() -> Self {
        let far = Far::start().await;
        let script = [calls([("far__team", json!({}))]), text("Done.")];
        let upstream = ScriptedUpstream::start(script).await;
        let app = TestApp::builder().upstream(&upstream).toml(LOCAL);
        let app = app.start().await;
        let mut server = entry("far", &far.url());
        server["require_approval"] = json!("always");
        server["headers"] = json!({"X-Team": "blue"});
        let body = with(ask("Go"), "tools", json!([server]));
        let body = with(body, "session_id", json!("s"));
        let body = with(body, "agent", json!({"background": true}));
        let id = app.post_chat(body).await.json()["id"].clone();
        let id = id.as_str().unwrap().to_owned();
        let path = format!("/v1/chat/completions/{id}");
        let question = eventually("a question", || async {
            let answer = app.client().get(&path).await.json();
            let approval = answer["approvals"].get(0)?;
            Some(approval["approval_id"].as_str()?.to_owned())
        });
        Self {
            question: question.await,
            far,
            _upstream: upstream,
            app,
            server,
            id,
        }
    }

    async fn approve(&self) {
        let path = format!("/v1/agent/approvals/{}", self.question);
        let decision = json!({"decision": "approve"});
        let decided = self.app.client().post(&path, &decision).await;
        assert_eq!(decided.status, 200, "{}", decided.text());
    }

    async fn show(&self) -> Answer {
        let path = format!("/v1/chat/completions/{}", self.id);
        self.app.client().get(&path).await
    }
}

#[tokio::test]
async fn a_run_resumes_with_the_servers_that_its_request_has_declared() {
    let run = Suspended::start().await;
    run.approve().await;
    let answer = eventually("the answer", || async {
        let answer = run.show().await;
        (answer.status != 202).then_some(answer)
    });
    let answer = answer.await.completion();
    assert_eq!(answer["agentic_tool_calls"][0]["result_content"], "blue");
    run.far.assert_clean();
}

#[tokio::test]
async fn after_a_restart_a_request_declares_them_again() {
    let mut run = Suspended::start().await;
    run.app.restart().await;
    run.approve().await;
    let blocked = eventually("the reason", || async {
        let answer = run.show().await;
        assert_eq!(answer.status, 202, "{}", answer.text());
        answer.json()["blocked"].as_str().map(str::to_owned)
    });
    let blocked = blocked.await;
    assert!(blocked.contains("declares MCP servers"), "{blocked}");
    assert_eq!(
        run.app
            .logs()
            .matches("a suspended run cannot resume")
            .count(),
        1
    );
    let body = with(ask("Go"), "messages", json!([]));
    let body = with(body, "session_id", json!("s"));
    let body = with(body, "tools", json!([run.server]));
    let answer = run.app.post_chat(body).await.completion();
    assert_eq!(answer["agentic_tool_calls"][0]["result_content"], "blue");
    assert_eq!(answer["choices"][0]["message"]["content"], "Done.");
}
