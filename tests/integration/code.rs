//! Code execution over HTTP: a conversation with an interpreter, its files in and out, what it leaves behind.
//!
//! The code in these tests is harmless: it counts, prints, reads and writes in its own working directory.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};

use super::files::uploaded_for;
use super::support::app::{Builder, TestApp};
use super::support::ask::{ask, ask_with, user, with};
use super::support::script::{Reply, calls, text};
use super::support::storage::Storage;
use super::support::upstream::{MODEL, ScriptedUpstream};

fn builder(upstream: &ScriptedUpstream) -> Builder {
    TestApp::builder()
        .upstream(upstream)
        .args(["--enable-code-execution"])
}

/// The model runs a piece of code.
fn run(code: &str) -> Reply {
    calls([("execute_python", json!({"code": code}))])
}

/// A request that may run code.
fn with_code(body: Value) -> Value {
    with(body, "enable_code_execution", json!(true))
}

fn in_session(body: Value, id: &str) -> Value {
    with(body, "session_id", json!(id))
}

/// The results of the calls of an answer, in order.
fn results(body: &Value) -> Vec<String> {
    let calls = body["agentic_tool_calls"].as_array().unwrap();
    let content = |call: &Value| call["result_content"].as_str().unwrap().to_owned();
    calls.iter().map(content).collect()
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn variables_stay_between_calls_and_turns_and_go_with_the_session() {
    let upstream = ScriptedUpstream::start([
        run("x = 20\nprint('set')"),
        run("x + 1"),
        text("21"),
        run("x * 2"),
        text("40"),
        run("x"),
        text("gone"),
    ])
    .await;
    let app = builder(&upstream).start().await;
    let ask = |words: &str| in_session(with_code(ask(words)), "s");
    let first = app.post_chat(ask("one")).await.completion();
    assert_eq!(results(&first), ["stdout:\nset", "result:\n21"]);
    assert_eq!(first["agentic_tool_calls"][0]["status"], "ok");
    upstream.assert_same_results(&first["agentic_tool_calls"]);
    let second = app.post_chat(ask("two")).await.completion();
    assert_eq!(results(&second), ["result:\n40"]);
    app.client().delete("/v1/sessions/s").await;
    let third = app.post_chat(ask("three")).await.completion();
    assert!(results(&third)[0].contains("NameError"), "{third}");
    assert_eq!(third["agentic_tool_calls"][0]["status"], "error");
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn a_stream_shows_code_its_live_output_and_what_it_came_to() {
    let upstream = ScriptedUpstream::start([
        run("import sys\nprint('out')\nprint('err', file=sys.stderr)\n1 + 1"),
        text("2"),
    ])
    .await;
    let app = builder(&upstream).start().await;
    let collected = app.stream_chat(with_code(ask("x"))).await.collect().await;
    let calling = collected.phase("calling")[0];
    assert_eq!(calling["data"]["tool_type"], "code_execution");
    assert!(calling["data"]["code"].as_str().unwrap().contains("1 + 1"));
    let data = &collected.phase("complete")[0]["data"];
    assert_eq!(data["stdout"], "out\n");
    assert_eq!(data["stderr"], "err\n");
    assert_eq!(data["result"], "2");
    assert!(data["working_directory"].is_string(), "{data}");
    assert!(data["execution_time_ms"].is_u64(), "{data}");
    assert_eq!(data.get("exception"), None);
    let transcript = collected.transcript();
    assert!(transcript.contains("agentic_tool_output"), "{transcript}");
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn code_that_runs_out_of_time_or_crashes_is_told_and_the_turn_goes_on() {
    let upstream = ScriptedUpstream::start([
        run("kept = 1\nprint('begun')\nwhile True: pass"),
        run("kept"),
        run("import os\nopen('file', 'w').write('x')\nos._exit(3)"),
        run("open('file').read(), 'kept' in globals()"),
        text("done"),
    ])
    .await;
    let app = builder(&upstream)
        .args(["--code-exec-timeout", "1"])
        .start()
        .await;
    let body = app.post_chat(with_code(ask("x"))).await.completion();
    let told = results(&body);
    let statuses: Vec<&Value> = body["agentic_tool_calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| &call["status"])
        .collect();
    assert_eq!(statuses, ["timeout", "ok", "error", "ok"]);
    assert!(told[0].starts_with("stdout:\nbegun\n"), "{}", told[0]);
    assert!(
        told[0].contains("Variables and files are kept"),
        "{}",
        told[0]
    );
    assert_eq!(told[1], "result:\n1");
    assert!(
        told[2].contains("variables and imports are lost, files are kept"),
        "{}",
        told[2]
    );
    assert!(told[3].starts_with("result:\n('x', False)"), "{}", told[3]);
    let notices = body["agent"]["notices"].to_string();
    assert!(notices.contains("interpreter_lost"), "{notices}");
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn code_that_ends_itself_has_not_failed_unless_it_says_so_and_keeps_its_variables() {
    let upstream = ScriptedUpstream::start([
        run("import sys\nx = 1\nsys.exit()"),
        run("quit()"),
        run("sys.exit(0)"),
        run("sys.exit(3)"),
        run("x"),
        text("done"),
    ])
    .await;
    let app = builder(&upstream).start().await;
    let body = app.post_chat(with_code(ask("x"))).await.completion();
    let calls = body["agentic_tool_calls"].as_array().unwrap();
    let statuses: Vec<&Value> = calls.iter().map(|call| &call["status"]).collect();
    assert_eq!(statuses, ["ok", "ok", "ok", "error", "ok"]);
    let told = results(&body);
    let clean = "exception:\nsys.exit() was called; the interpreter goes on";
    assert_eq!(told[..2], [clean, clean]);
    assert!(told[3].contains("line 1"), "{}", told[3]);
    assert!(told[3].ends_with("the interpreter goes on"), "{}", told[3]);
    assert_eq!(told[4], "result:\n1");
}

#[tokio::test]
async fn a_server_that_cannot_run_code_says_why_in_one_line() {
    let upstream = ScriptedUpstream::start([]).await;
    let missing = ["--code-exec-python", "/nowhere/python3"];
    let ended = builder(&upstream).args(missing).run("serve").await;
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert_eq!(
        ended.stderr,
        "loopwright: cannot start code execution: there is no Python interpreter '/nowhere/python3'; install one or set \
         --code-exec-python\n"
    );
}

#[tokio::test]
#[ignore = "needs Python"]
async fn a_directory_for_working_files_that_cannot_be_used_is_named() {
    let upstream = ScriptedUpstream::start([]).await;
    let ended = builder(&upstream)
        .toml("[sandbox]\nwork_dir = \"/dev/null/work\"\n")
        .run("serve")
        .await;
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    for part in ["/dev/null/work: ", "set sandbox.work_dir"] {
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn files_that_code_writes_come_back_and_missing_ones_are_told_once() {
    let upstream = ScriptedUpstream::start([
        run("import os\nos.makedirs('out')\nopen('out/a.csv', 'w').write('a,b\\n1,2\\n')"),
        run("1"),
        text("done"),
    ])
    .await;
    let app = builder(&upstream).start().await;
    let files = json!([
        {"name": "out/a.csv", "format": "csv", "description": "the sums"},
        {"name": "b.txt"},
    ]);
    let body = with(with_code(ask("x")), "files", files);
    let body = app.post_chat(body).await.completion();
    let sent = upstream.request(0).raw("tools").unwrap();
    assert!(sent.contains("out/a.csv (csv): the sums"), "{sent}");
    let made = &body["files"][0];
    assert_eq!(made["filename"], "a.csv");
    assert_eq!(made["mime_type"], "text/csv");
    assert_eq!(made["data"], STANDARD.encode("a,b\n1,2\n"));
    assert_eq!(made["session_id"], body["session_id"]);
    assert_eq!(
        body["agentic_tool_calls"][0]["file_ids"],
        json!([made["id"]])
    );
    let notices = body["agent"]["notices"].as_array().unwrap();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert_eq!(notices[0]["kind"], "file_not_produced");
    assert!(
        notices[0]["message"]
            .as_str()
            .unwrap()
            .ends_with(": 'b.txt'"),
        "{notices:?}"
    );
    for told in results(&body) {
        assert!(!told.contains("b.txt"), "{told}");
    }
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn a_file_has_the_same_type_in_stored_and_unstored_turns() {
    let write = "open('report.jsonl', 'w').write('{}\\n')";
    let replies = [run(write), text("done"), run(write), text("done")];
    let upstream = ScriptedUpstream::start(replies).await;
    let app = builder(&upstream).start().await;
    for store in [true, false] {
        let body = with(with_code(ask("x")), "store", json!(store));
        let body = app.post_chat(body).await.completion();
        assert_eq!(body["session_id"].is_string(), store, "{body}");
        let made = &body["files"][0];
        assert_eq!(made["filename"], "report.jsonl", "store: {store}");
        assert_eq!(made["mime_type"], "application/jsonl", "store: {store}");
        let told = &results(&body)[0];
        assert!(told.contains("report.jsonl (application/jsonl, "), "{told}");
        if store {
            let id = made["id"].as_str().unwrap();
            let content = app.get(&format!("/v1/files/{id}/content")).await;
            assert_eq!(content.header("content-type"), Some("application/jsonl"));
        }
    }
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn a_missing_file_is_told_even_when_no_tool_runs() {
    let upstream = ScriptedUpstream::start([text("no")]).await;
    let app = builder(&upstream).start().await;
    let body = with(with_code(ask("x")), "files", json!([{"name": "a"}]));
    let collected = app.stream_chat(body).await.collect().await;
    let notices = collected.notices();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(
        notices[0].to_string().contains("file_not_produced"),
        "{notices:?}"
    );
}

/// Code whose value is a picture of one pixel.
const PICTURE: &str = r#"
import struct, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
class Picture:
    def _repr_png_(self):
        head = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
        body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")
        return b"\x89PNG\r\n\x1a\n" + body
Picture()
"#;

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn a_picture_is_shown_to_the_client_and_to_a_model_that_takes_images() {
    for takes_images in [true, false] {
        let upstream = ScriptedUpstream::start([run(PICTURE), text("seen")]).await;
        let quirks = upstream.with_quirks(&format!("images = {takes_images}"));
        let app = TestApp::builder()
            .args(["--enable-code-execution"])
            .toml(&quirks)
            .start()
            .await;
        let collected = app.stream_chat(with_code(ask("x"))).await.collect().await;
        let data = &collected.phase("complete")[0]["data"];
        let image = data["images_base64"][0].as_str().unwrap();
        assert!(image.starts_with("iVBOR"), "{data}");
        let told = upstream.last().tool_results().remove(0).1;
        assert!(told.contains("1 image captured"), "{told}");
        assert_eq!(told.contains("cannot be shown"), !takes_images, "{told}");
        let shown = json!(upstream.last().messages()).to_string();
        assert_eq!(
            shown.contains(&format!("base64,{image}")),
            takes_images,
            "{shown}"
        );
    }
}

fn csv_part(name: &str, content: &str) -> Value {
    let data = format!("data:text/csv;base64,{}", STANDARD.encode(content));
    json!({"type": "file", "file": {"filename": name, "file_data": data}})
}

fn user_with(parts: Value) -> Value {
    json!({"role": "user", "content": parts})
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn a_file_that_a_user_sends_lies_in_the_working_directory_and_is_sent_once() {
    let upstream = ScriptedUpstream::start([
        run("open('sales.csv').read(), open('sales (2).csv').read()"),
        text("read"),
        calls([
            ("read_file", json!({"name": "sales.csv"})),
            ("list_files", json!({})),
        ]),
        text("again"),
    ])
    .await;
    let app = builder(&upstream).start().await;
    let see = json!({"type": "text", "text": "see"});
    let first = user_with(json!([
        see,
        csv_part("sales.csv", "a,b\n"),
        csv_part("sales.csv", "c\n")
    ]));
    let body = json!({"model": MODEL, "messages": [first], "session_id": "s"});
    let answer = app.post_chat(with_code(body)).await.completion();
    assert_eq!(results(&answer), ["result:\n('a,b\\n', 'c\\n')"]);
    let told = upstream.request(0).messages()[0]["content"].clone();
    assert_eq!(told[0], see);
    assert_eq!(
        told[1]["text"],
        "[file 'sales.csv' (text/csv, 4 bytes) is in the working directory]"
    );
    assert_eq!(
        told[2]["text"],
        "[file 'sales (2).csv' (text/csv, 2 bytes) is in the working directory]"
    );
    // A client that knows nothing of sessions' histories sends it all again.
    let messages = json!([first, {"role": "assistant", "content": "read"}, user("more")]);
    let body = json!({"model": MODEL, "messages": messages, "session_id": "s"});
    let answer = app.post_chat(with_code(body)).await.completion();
    let told = results(&answer);
    assert_eq!(
        told[0],
        "sales.csv (text/csv, 4 bytes), lines 1-1 of 1:\n\na,b"
    );
    assert!(told[1].contains("- sales (2).csv (2 bytes)"), "{}", told[1]);
    assert_eq!(
        upstream.request(2).roles(),
        ["user", "assistant", "tool", "assistant", "user"]
    );
    let stored = app.get("/v1/sessions/s").await.json();
    let part = &stored["messages"][0]["content"][1];
    let id = part["file"]["file_id"].as_str().unwrap();
    assert!(id.starts_with("file-") && id.len() == 37, "{part}");
    assert_eq!(part["file"].get("file_data"), None);
    assert_eq!(stored["messages"].as_array().unwrap().len(), 9, "{stored}");
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn a_copy_of_a_session_keeps_the_files_that_its_messages_name() {
    let upstream =
        ScriptedUpstream::start([text("one"), run("open('sales.csv').read()"), text("two")]).await;
    let app = builder(&upstream).start().await;
    let message = user_with(json!([csv_part("sales.csv", "a,b\n")]));
    let body = json!({"model": MODEL, "messages": [message], "session_id": "s"});
    app.post_chat(with_code(body)).await.completion();
    let exported = app.get("/v1/sessions/s").await.json();
    let copy = app
        .client()
        .send(Method::PUT, "/v1/sessions/copy", &exported)
        .await;
    let files = copy.json()["files"].clone();
    assert_eq!(files[0]["id"], exported["files"][0]["id"], "{files}");
    app.client().delete("/v1/sessions/s").await;
    let answer = app
        .post_chat(in_session(with_code(ask("more")), "copy"))
        .await
        .completion();
    assert_eq!(results(&answer), ["result:\n'a,b\\n'"]);
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn without_the_tool_a_file_goes_to_the_model_as_it_came() {
    let upstream = ScriptedUpstream::start([text("one"), text("two")])
        .await
        .lenient();
    let app = builder(&upstream).start().await;
    let message = user_with(json!([csv_part("a.csv", "a,b\n")]));
    let body = json!({"model": MODEL, "messages": [message], "session_id": "s"});
    app.post_chat(body).await.completion();
    assert_eq!(
        upstream.last().messages()[0]["content"],
        json!([csv_part("a.csv", "a,b\n")])
    );
    // From the history, where only the id stands.
    app.post_chat(in_session(ask("more"), "s"))
        .await
        .completion();
    assert_eq!(
        upstream.last().messages()[0]["content"],
        json!([csv_part("a.csv", "a,b\n")])
    );
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn what_cannot_be_used_is_refused_by_name() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = builder(&upstream).start().await;
    let unknown = "file-0123456789abcdef0123456789abcdef";
    let sent = |part: Value| json!({"model": MODEL, "messages": [user("a"), user_with(json!([part]))], "session_id": "s"});
    let tool = |tool: Value| with(ask("x"), "tools", json!([tool]));
    for (body, param) in [
        (
            sent(json!({"type": "file", "file": {"file_data": "data:text/csv;base64,%%"}})),
            "messages[1].content[0].file.file_data",
        ),
        (
            sent(json!({"type": "input_file", "file_data": "data:,x"})),
            "messages[1].content[0].file_data",
        ),
        (
            sent(json!({"type": "file", "file": {"file_id": unknown}})),
            "messages[1].content[0].file.file_id",
        ),
        (
            tool(json!({"type": "code_interpreter", "container": "cntr_1"})),
            "tools[0].container",
        ),
        (
            tool(
                json!({"type": "code_interpreter", "container": {"type": "auto", "file_ids": [unknown]}}),
            ),
            "tools[0].container.file_ids[0]",
        ),
        (with(ask("x"), "files", json!([{"name": "a"}])), "files"),
        (
            with_code(with(ask("x"), "files", json!([{"name": "../a"}]))),
            "files[0].name",
        ),
        (with_code(ask_with("x", ["execute_python"])), "tools"),
    ] {
        let answer = app.post_chat(body.clone()).await;
        answer.assert_error(400, None);
        assert_eq!(answer.json()["error"]["param"], param, "{body}");
    }
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn the_tools_are_offered_to_those_who_ask_and_may() {
    let upstream = ScriptedUpstream::answering(|_| text("x")).await.lenient();
    let app = builder(&upstream).start().await;
    let all = ["execute_python", "reset_python", "read_file", "list_files"];
    let interpreter = json!([{"type": "code_interpreter", "container": {"type": "auto"}}]);
    let deny = json!({"tools": {"deny": ["*_python"]}});
    for (body, offered) in [
        (ask("x"), &[][..]),
        (with_code(ask("x")), &all[..]),
        (with(ask("x"), "tools", interpreter.clone()), &all[..]),
        (
            with_code(with(ask("x"), "tools", interpreter.clone())),
            &all[..],
        ),
        (with_code(with(ask("x"), "agent", deny)), &all[2..]),
        (with_code(with(ask("x"), "max_tool_rounds", json!(0))), &[]),
    ] {
        app.post_chat(body.clone()).await;
        assert_eq!(upstream.last().tool_names(), offered, "{body}");
    }
    let choice = json!({"type": "code_interpreter"});
    let body = with(with(ask("x"), "tools", interpreter), "tool_choice", choice);
    app.post_chat(body).await.completion();
    let sent: Value = serde_json::from_str(&upstream.last().raw("tool_choice").unwrap()).unwrap();
    assert_eq!(
        sent,
        json!({"type": "function", "function": {"name": "execute_python"}})
    );
    let listed = app.get("/v1/agent/tools").await.json();
    let names: Vec<&Value> = listed["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["name"])
        .collect();
    assert_eq!(names, all);
    assert_eq!(listed["data"][0]["source"], "built_in");
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn an_unstored_turn_keeps_its_variables_over_the_clients_calls_and_leaves_nothing() {
    let upstream = ScriptedUpstream::start([
        run("x = 5\nopen('a.txt', 'w').write('hi')"),
        calls([("mine", json!({}))]),
        run("x, open('in.csv').read()"),
        text("done"),
        run("x"),
        text("gone"),
    ])
    .await;
    let app = builder(&upstream).start().await;
    let message = user_with(json!([csv_part("in.csv", "1\n")]));
    let mut body = with_code(ask_with("x", ["mine"]));
    body["messages"] = json!([message]);
    body["store"] = json!(false);
    let first = app.post_chat(body.clone()).await.completion();
    assert_eq!(first.get("session_id"), None);
    assert_eq!(first["files"][0]["data"], STANDARD.encode("hi"));
    assert_eq!(first["files"][0].get("session_id"), None);
    let call = first["choices"][0]["message"].clone();
    let id = call["tool_calls"][0]["id"].clone();
    body["messages"] =
        json!([message, call, {"role": "tool", "tool_call_id": id, "content": "ok"}]);
    let second = app.post_chat(body.clone()).await.completion();
    assert_eq!(results(&second), ["result:\n(5, '1\\n')"]);
    body["messages"] = json!([user("other")]);
    let third = app.post_chat(body).await.completion();
    assert!(results(&third)[0].contains("NameError"), "{third}");
    let sessions = app.get("/v1/sessions").await.json();
    assert_eq!(sessions["data"], json!([]));
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn readiness_and_metrics_show_the_interpreters() {
    let upstream = ScriptedUpstream::start([run("1"), text("x")]).await;
    let app = builder(&upstream).start().await;
    app.post_chat(with_code(ask("x"))).await.completion();
    let ready = app.get("/readyz").await.json();
    let code = &ready["code_execution"];
    assert!(
        code["level"].is_string() && code["properties"].is_object(),
        "{ready}"
    );
    assert!(code["workers"].as_u64().unwrap() >= 1, "{ready}");
    let page = app.get("/metrics").await.text();
    let level = code["level"].as_str().unwrap();
    for line in [
        format!("loopwright_code_isolation{{level=\"{level}\"}} 1"),
        "loopwright_code_cell_duration_seconds_count 1".to_owned(),
        r#"loopwright_tool_calls_total{tool="execute_python",status="ok"} 1"#.to_owned(),
    ] {
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
}

#[tokio::test]
async fn the_hosted_interpreter_is_nobodys_where_code_execution_is_off() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let body = with(ask("x"), "tools", json!([{"type": "code_interpreter"}]));
    let message = app.post_chat(body).await.assert_error(400, None);
    assert!(message.contains("code_interpreter"), "{message}");
    assert_eq!(app.get("/readyz").await.json().get("code_execution"), None);
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn files_that_were_uploaded_for_a_session_or_named_by_the_tool_are_there() {
    let upstream = ScriptedUpstream::start([
        run("open('own.txt').read()"),
        text("done"),
        run("open('named.txt').read(), open('own.txt').read()"),
        text("done"),
    ])
    .await;
    let app = builder(&upstream).start().await;
    uploaded_for(app.client(), "s", "own.txt", b"own").await;
    let first = in_session(with_code(ask("x")), "s");
    let first = app.post_chat(first).await.completion();
    assert_eq!(results(&first), ["result:\n'own'"]);
    let named = super::files::uploaded(app.client(), "named.txt", b"named").await;
    let tools = json!([{"type": "code_interpreter", "container": {"type": "auto", "file_ids": [named["id"]]}}]);
    let second = in_session(with(ask("again"), "tools", tools), "s");
    let second = app.post_chat(second).await.completion();
    assert_eq!(results(&second), ["result:\n('named', 'own')"]);
    let kept = app.get("/v1/sessions/s").await.json();
    let names: Vec<&Value> = kept["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| &file["filename"])
        .collect();
    assert_eq!(names, ["own.txt", "named.txt"]);
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn a_file_that_nobody_gets_is_told_to_the_model_and_the_client() {
    let upstream = ScriptedUpstream::start([
        run("open('big.bin', 'wb').write(bytes(9_000_000))"),
        text("done"),
    ])
    .await;
    let app = builder(&upstream).start().await;
    let mut body = with_code(ask("x"));
    body["store"] = json!(false);
    let answer = app.post_chat(body).await.completion();
    assert_eq!(answer["files"][0].get("data"), None);
    assert_eq!(answer["files"][0]["status"], "processed");
    let told = &results(&answer)[0];
    let (_, after) = told
        .split_once("not handed to the user after all:\n- ")
        .unwrap();
    assert!(
        after.starts_with("the file 'big.bin' is too large"),
        "{told}"
    );
    upstream.assert_same_results(&answer["agentic_tool_calls"]);
    let notices = answer["agent"]["notices"].to_string();
    assert!(notices.contains("'big.bin' is too large"), "{notices}");
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn code_of_a_session_that_ran_elsewhere_finds_its_files_and_the_model_is_told_of_the_rest() {
    let storage = Storage::start().await;
    let upstream = ScriptedUpstream::start([
        run("x = 1\nopen('plot.txt', 'w').write('old')"),
        text("one"),
        run("open('plot.txt', 'w').write('new'), open('other.txt', 'w').write('y')"),
        text("two"),
        run("import os\nsorted(os.listdir()), open('plot.txt').read(), 'x' in globals()"),
        text("three"),
        run("sorted(os.listdir())"),
        text("four"),
    ])
    .await;
    let mut app = storage.keep_files(builder(&upstream)).start().await;
    uploaded_for(app.client(), "s", "sent.csv", b"1,2").await;
    let ask = |words: &str| in_session(with_code(ask(words)), "s");
    for words in ["one", "two"] {
        app.post_chat(ask(words)).await.completion();
    }
    // What is on another replica: the sessions and the stored files, but no interpreter and no working files.
    app.terminate().await;
    app.wait_exit().await;
    std::fs::remove_dir_all(app.dir().join("sessions-work")).unwrap();
    app.restart().await;
    let told = results(&app.post_chat(ask("three")).await.completion());
    let expected = "result:\n(['other.txt', 'plot.txt', 'sent.csv'], 'new', False)";
    assert!(told[0].starts_with(expected), "{}", told[0]);
    let notice = "variables and imports of earlier calls are lost";
    assert!(told[0].contains(notice), "{}", told[0]);
    let told = results(&app.post_chat(ask("four")).await.completion());
    assert_eq!(told, ["result:\n['other.txt', 'plot.txt', 'sent.csv']"]);
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn a_session_in_which_no_code_ran_is_not_told_that_variables_are_lost() {
    let late = || calls([("execute_python", json!({"code": "print('late')"}))]);
    let upstream = ScriptedUpstream::start([
        calls([("execute_python", json!({"cod": 1}))]),
        text("broken"),
        run("1"),
        text("one"),
        late(),
        text("denied"),
        run("2"),
        text("two"),
        calls([("list_files", json!({}))]),
        text("listed"),
        run("3"),
        text("three"),
    ])
    .await;
    let app = builder(&upstream).start().await;
    for (session, more, expected) in [
        ("broken", json!({}), "result:\n1"),
        ("denied", json!({"agent_permission": "deny"}), "result:\n2"),
        ("listed", json!({}), "result:\n3"),
    ] {
        let first = in_session(with_code(ask("first")), session);
        let first = more
            .as_object()
            .unwrap()
            .iter()
            .fold(first, |body, (key, value)| with(body, key, value.clone()));
        app.post_chat(first).await.completion();
        let then = in_session(with_code(ask("then")), session);
        let told = results(&app.post_chat(then).await.completion());
        assert_eq!(told, [expected], "{session}");
    }
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn after_a_reset_only_the_files_can_be_lost_elsewhere() {
    let upstream = ScriptedUpstream::start([
        run("x = 1"),
        calls([("reset_python", json!({}))]),
        text("one"),
        run("'x' in globals()"),
        text("two"),
    ])
    .await;
    let mut app = builder(&upstream).start().await;
    let ask = |words: &str| in_session(with_code(ask(words)), "s");
    app.post_chat(ask("one")).await.completion();
    app.terminate().await;
    app.wait_exit().await;
    std::fs::remove_dir_all(app.dir().join("sessions-work")).unwrap();
    app.restart().await;
    let told = results(&app.post_chat(ask("two")).await.completion());
    assert!(told[0].contains("other files are lost"), "{}", told[0]);
    assert!(!told[0].contains("variables"), "{}", told[0]);
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn a_virtual_environment_below_tmp_can_be_used_and_not_be_changed() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let environment = folder.path().join("v");
    let mut make = std::process::Command::new("python3");
    make.args(["-m", "venv", "--without-pip"]).arg(&environment);
    assert!(make.status().unwrap().success());
    let packages = std::fs::read_dir(environment.join("lib")).unwrap();
    let packages = packages.map(|entry| entry.unwrap().path().join("site-packages"));
    std::fs::write(packages.last().unwrap().join("own.py"), "word = 'found'").unwrap();
    let code = "import sys, own, os\nopen('/tmp/x', 'w').write('x')\n\
                own.word, sys.prefix, os.access(own.__file__, os.W_OK)";
    let upstream = ScriptedUpstream::start([run(code), text("done")]).await;
    let python = environment.join("bin/python");
    let app = TestApp::builder()
        .upstream(&upstream)
        .args([
            "--enable-code-execution",
            "--code-exec-python",
            python.to_str().unwrap(),
        ])
        .start()
        .await;
    let told = results(&app.post_chat(with_code(ask("go"))).await.completion());
    let expected = format!("result:\n('found', '{}', False)", environment.display());
    assert_eq!(told, [expected]);
}
