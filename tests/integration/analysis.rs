//! The conversation that code execution is for: a table goes in, a figure and a workbook come out, with the packages that
//! the container image has. `LOOPWRIGHT_TEST_CODE_PYTHON` names an interpreter that has them.

use serde_json::{Value, json};

use super::files::{content_path, uploaded};
use super::support::app::{Builder, TestApp};
use super::support::ask::{ask, with};
use super::support::script::{Reply, calls, text};
use super::support::upstream::{MODEL, ScriptedUpstream};

const TABLE: &str = "city,month,sales\nOslo,1,10\nOslo,2,14\nLima,1,7\nLima,2,9\n";

fn builder(upstream: &ScriptedUpstream) -> Builder {
    code_builder().upstream(upstream)
}

fn code_builder() -> Builder {
    let python = std::env::var("LOOPWRIGHT_TEST_CODE_PYTHON")
        .expect("LOOPWRIGHT_TEST_CODE_PYTHON names an interpreter with the packages of docker/python-packages.txt");
    TestApp::builder().args([
        "--enable-code-execution",
        "--code-exec-timeout",
        "8",
        "--code-exec-python",
        &python,
    ])
}

fn run(code: &str) -> Reply {
    calls([("execute_python", json!({"code": code}))])
}

fn turn(content: Value) -> Value {
    json!({
        "model": MODEL,
        "session_id": "sales",
        "enable_code_execution": true,
        "messages": [{"role": "user", "content": content}],
    })
}

fn call(body: &Value, number: usize) -> &Value {
    &body["agentic_tool_calls"][number]
}

fn is_png(base64: &Value) -> bool {
    base64
        .as_str()
        .is_some_and(|text| text.starts_with("iVBORw0KGgo"))
}

#[tokio::test]
#[ignore = "needs Python with the packages of the container image"]
async fn a_table_becomes_a_figure_and_a_workbook_over_several_turns() {
    let upstream = ScriptedUpstream::start([
        run("import pandas as pd\nsales = pd.read_csv('sales.csv')\ntotals = sales.groupby('city')['sales'].sum()\ntotals"),
        text("Oslo sold more."),
        run("import matplotlib.pyplot as plt\nprint('drawing', len(totals))\ntotals.plot.bar()"),
        text("Here is the figure."),
        run("totals.to_excel('totals.xlsx')\nwhile True: pass"),
        run("float(totals['Oslo'])"),
        run("import ctypes\nctypes.string_at(0)"),
        run("import os, pandas as pd\nint(pd.read_excel('totals.xlsx')['sales'].sum()), sorted(os.listdir('.'))"),
        text("Done."),
    ])
    .await;
    let app = builder(&upstream).start().await;
    let table = uploaded(app.client(), "sales.csv", TABLE.as_bytes()).await;

    let first = turn(json!([
        {"type": "text", "text": "Who sold more?"},
        {"type": "file", "file": {"file_id": table["id"]}},
    ]));
    let first = app.post_chat(first).await.completion();
    let told = call(&first, 0)["result_content"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        told.contains("Lima    16") && told.contains("Oslo    24"),
        "{told}"
    );

    let second = app
        .stream_chat(turn(json!("Show me.")))
        .await
        .collect()
        .await;
    assert!(
        second.transcript().contains("drawing 2"),
        "{}",
        second.transcript()
    );
    let data = &second.phase("complete")[0]["data"];
    let images = data["images_base64"].as_array().unwrap();
    assert!(images.len() == 1 && is_png(&images[0]), "{data}");

    let third = app
        .post_chat(turn(json!("As a workbook.")))
        .await
        .completion();
    let statuses: Vec<&Value> = (0..4)
        .map(|number| &call(&third, number)["status"])
        .collect();
    assert_eq!(statuses, ["timeout", "ok", "error", "ok"], "{third}");
    assert_eq!(call(&third, 1)["result_content"], "result:\n24.0");
    let told = call(&third, 3)["result_content"].as_str().unwrap();
    assert!(
        told.contains("(40, ['sales.csv', 'totals.xlsx'])"),
        "{told}"
    );
    let book = &third["files"][0];
    assert_eq!(book["filename"], "totals.xlsx");
    assert_eq!(
        book["mime_type"],
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
    );
    let downloaded = app.get(&content_path(book)).await;
    assert!(downloaded.body.starts_with(b"PK"));
    assert_eq!(
        downloaded.body.len() as u64,
        book["bytes"].as_u64().unwrap()
    );
}

#[tokio::test]
#[ignore = "needs Python with the packages of the container image"]
async fn figures_come_without_being_asked_for_and_animations_as_frames() {
    let animation = "import matplotlib.pyplot as plt\nfrom matplotlib.animation import FuncAnimation\nfigure, axes = plt.subplots()\nline, = axes.plot([0, 1], [0, 1])\nFuncAnimation(figure, lambda i: line.set_ydata([0, i]), frames=5)";
    let upstream = ScriptedUpstream::start([
        run("import matplotlib.pyplot as plt\nfor n in range(2):\n    plt.figure()\n    plt.plot([1, 2, n])"),
        run(animation),
        text("done"),
    ])
    .await;
    let quirks = upstream.with_quirks("images = true");
    let app = code_builder().toml(&quirks).start().await;
    let body = with(ask("x"), "enable_code_execution", json!(true));
    let body = with(body, "session_id", json!("s"));
    let collected = app.stream_chat(body).await.collect().await;
    let complete = collected.phase("complete");
    let images = complete[0]["data"]["images_base64"].as_array().unwrap();
    assert!(images.len() == 2 && images.iter().all(is_png));
    let frames = complete[1]["data"]["video_frames_base64"]
        .as_array()
        .unwrap();
    assert!(
        frames.len() == 5 && frames.iter().all(is_png),
        "{}",
        frames.len()
    );
    assert_eq!(complete[1]["data"]["video_frame_count"], 5);
    let sent = upstream.last().body.to_string();
    assert_eq!(sent.matches("data:image/png;base64,").count(), 7);
    // The history names them all by their files.
    let stored = app.get("/v1/sessions/s").await.text();
    assert_eq!(stored.matches("\"type\":\"image_file\"").count(), 7);
    assert!(!stored.contains("base64"), "{stored}");
}
