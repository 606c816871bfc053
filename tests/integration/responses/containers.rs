//! Containers that a request names.

use serde_json::{Value, json};

use super::super::support::app::TestApp;
use super::super::support::script::{Reply, calls, text};
use super::super::support::upstream::ScriptedUpstream;
use super::{PATH, response};

const KEYS: &str = "[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"\n[[api_keys]]\nname = \"bob\"\nenv = \"BOB\"\n";
const ALICE: &str = "alice-alice-alice";
const BOB: &str = "bob-bob-bob-bob-bob";

fn run(code: &str) -> Reply {
    calls([("execute_python", json!({"code": code}))])
}

/// A request with the interpreter of a container.
fn with_container(container: &Value) -> Value {
    let tool = json!({"type": "code_interpreter", "container": container});
    json!({
        "model": "test-model", "input": "Go", "tools": [tool], "include": ["code_interpreter_call.outputs"],
    })
}

#[tokio::test]
async fn an_unknown_container_is_not_found() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    for id in ["cntr_unknown", "cntr_", "x"] {
        let answer = app.post(PATH, &with_container(&json!(id))).await;
        answer.assert_error(404, Some("container_not_found"));
        assert_eq!(answer.json()["error"]["param"], "tools[0].container");
    }
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn code_runs_in_the_container_that_the_request_names() {
    let upstream = ScriptedUpstream::start([
        run("x = 20"),
        text("Set."),
        run("x + 1"),
        text("21"),
        run("'x' in globals()"),
        text("No."),
    ])
    .await;
    let app = TestApp::builder()
        .upstream(&upstream)
        .args(["--enable-code-execution"])
        .toml(KEYS)
        .env("ALICE", ALICE)
        .env("BOB", BOB)
        .start()
        .await;
    let (alice, bob) = (app.client().key(ALICE), app.client().key(BOB));
    let auto = json!({"type": "auto"});
    let first = response(&alice.post(PATH, &with_container(&auto)).await);
    let container = &first["output"][0]["container_id"];
    let foreign = bob.post(PATH, &with_container(container)).await;
    foreign.assert_error(404, Some("container_not_found"));
    // A request that refers to nothing else is another conversation with the same interpreter.
    let second = response(&alice.post(PATH, &with_container(container)).await);
    assert_ne!(second["session_id"], first["session_id"]);
    let call = &second["output"][0];
    assert_eq!(&call["container_id"], container);
    assert!(call["outputs"][0]["logs"].as_str().unwrap().contains("21"));
    assert_eq!(second["tools"][0]["container"], *container);
    let third = response(&alice.post(PATH, &with_container(&auto)).await);
    let logs = &third["output"][0]["outputs"][0]["logs"];
    assert!(logs.as_str().unwrap().contains("False"), "{third}");
    let session = first["session_id"].as_str().unwrap();
    let deleted = alice.delete(&format!("/v1/sessions/{session}")).await;
    assert_eq!(deleted.status, 200);
    alice
        .post(PATH, &with_container(container))
        .await
        .assert_error(404, Some("container_not_found"));
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn a_call_of_code_has_its_outputs_and_the_answer_its_files() {
    let code = "print('out')\nopen('table.csv', 'w').write('a,b')\n7 * 6";
    let upstream = ScriptedUpstream::answering(move |request| match request.tool_results().len() {
        0 => run(code),
        _ => text("42"),
    })
    .await;
    let app = TestApp::builder()
        .upstream(&upstream)
        .args(["--enable-code-execution"])
        .start()
        .await;
    let auto = with_container(&json!({"type": "auto"}));
    let made = response(&app.post(PATH, &auto).await);
    let call = &made["output"][0];
    assert_eq!(
        (&call["type"], &call["code"], &call["status"]),
        (
            &json!("code_interpreter_call"),
            &json!(code),
            &json!("completed")
        )
    );
    assert_eq!(call["outputs"][0]["type"], "logs");
    let logs = call["outputs"][0]["logs"].as_str().unwrap();
    assert!(logs.contains("out\n") && logs.contains("42"), "{logs}");
    let citation = &made["output"][1]["content"][0]["annotations"][0];
    assert_eq!(
        (
            &citation["type"],
            &citation["filename"],
            &citation["container_id"]
        ),
        (
            &json!("container_file_citation"),
            &json!("table.csv"),
            &call["container_id"]
        )
    );
    let container = format!("/v1/containers/{}", call["container_id"].as_str().unwrap());
    assert_eq!(app.get(&container).await.json()["object"], "container");
    let file = citation["file_id"].as_str().unwrap();
    let listed = app.get(&format!("{container}/files")).await.json();
    assert_eq!(listed["data"][0]["id"], file);
    for path in [
        format!("{container}/files/{file}"),
        format!("/v1/files/{file}"),
    ] {
        assert_eq!(app.get(&path).await.json()["id"], file);
        assert_eq!(app.get(&format!("{path}/content")).await.text(), "a,b");
    }
    // Without being asked for, the outputs are left out.
    let mut plain = auto;
    plain.as_object_mut().unwrap().remove("include");
    let made = response(&app.post(PATH, &plain).await);
    assert_eq!(made["output"][0]["outputs"], Value::Null);
}
