//! Lists and calls over standard input and output.

use serde_json::{Value, json};

use super::fake;
use super::{in_state, record, result, server, start, start_with};
use crate::support::app::TestApp;
use crate::support::ask::{ask, ask_with, with};
use crate::support::eventually;
use crate::support::script::{calls, text};
use crate::support::upstream::ScriptedUpstream;
#[cfg(feature = "otlp")]
use crate::traces::collector::{Collector, named};

#[tokio::test]
async fn tools_are_offered_whole_and_called_by_their_own_names() {
    let (app, upstream) = start(&fake::server("fake", "", "")).await;
    assert_eq!(
        result(app.client(), "fake__echo", json!({"text": "hi"})).await,
        "hi"
    );
    let request = upstream.request(0);
    let tools = request.body["tools"].as_array().unwrap().clone();
    let nested = tools
        .iter()
        .find(|tool| tool["function"]["name"] == "fake__nested")
        .unwrap();
    assert_eq!(
        nested["function"]["parameters"],
        json!({
            "type": "object",
            "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}}},
            "properties": {"at": {"anyOf": [{"$ref": "#/$defs/point"}, {"type": "null"}]}},
        })
    );
    assert_eq!(nested["function"]["description"], "The tool nested.");
    assert_eq!(request.raw("tools"), upstream.request(1).raw("tools"));

    let listed = app.get("/v1/agent/tools").await.json();
    let tools = listed["data"].as_array().unwrap();
    let echo = tools
        .iter()
        .find(|tool| tool["name"] == "fake__echo")
        .unwrap();
    assert_eq!(
        (&echo["source"], &echo["state"]),
        (&json!("mcp"), &json!("ready"))
    );
    assert_eq!(echo["parameters"]["required"], json!(["text"]));
    let status = app.get("/readyz").await.json();
    assert_eq!(status["mcp_servers"]["fake"]["state"], "ready");
}

#[tokio::test]
async fn every_form_of_result_reaches_model_and_client() {
    let (app, upstream) = start(&fake::server("fake", "", "")).await;
    let call = record(app.client(), "fake__parts", json!({})).await;
    let content = call["result_content"].as_str().unwrap();
    assert!(
        content.starts_with("one\n[r](https://h/r)\n{\"sum\":3}"),
        "{content}"
    );
    assert_eq!(call["result_images_base64"], json!(["iVBORw0KGgo="]));
    assert_eq!(call["file_ids"].as_array().unwrap().len(), 2, "{call}");
    assert_eq!(call["status"], "ok");

    let call = record(app.client(), "fake__fail", json!({})).await;
    assert_eq!(
        (&call["status"], &call["result_content"]),
        (&json!("error"), &json!("out of paper"))
    );
    let call = record(app.client(), "fake__error", json!({})).await;
    let content = call["result_content"].as_str().unwrap();
    assert_eq!(call["status"], "error");
    assert!(content.contains("the press is stuck"), "{content}");
    upstream.assert_clean();
}

#[tokio::test]
async fn progress_is_streamed_in_order() {
    let (app, _upstream) = start(&fake::server("fake", "", "")).await;
    let collected = app
        .stream_chat(ask("fake__progress {}"))
        .await
        .collect()
        .await;
    let outputs: Vec<_> = collected
        .progress
        .iter()
        .map(|progress| &progress.chunk)
        .filter(|chunk| chunk["type"] == "agentic_tool_output")
        .map(|chunk| {
            (
                chunk["text"].as_str().unwrap().to_owned(),
                chunk["stream"].clone(),
            )
        })
        .collect();
    let expected = [1, 2, 3].map(|step| (format!("step {step} ({step}/3)"), json!("progress")));
    assert_eq!(outputs, expected);
}

#[tokio::test]
async fn the_server_is_told_when_nobody_waits_any_more() {
    let toml = fake::server("hasty", "", "timeout_ms = 300") + &fake::server("patient", "", "");
    let (app, _upstream) = start(&toml).await;
    let told = async |server: &str, what: &str| {
        let name = format!("{server}__notes");
        eventually(&format!("{server}: {what}"), || async {
            let notes = result(app.client(), &name, json!({})).await;
            (notes.matches(what).count() == 1).then_some(())
        })
        .await;
    };
    // The time is over.
    let call = record(app.client(), "hasty__hang", json!({})).await;
    assert_eq!(call["status"], "timeout", "{call}");
    told("hasty", "cancelled").await;
    // The client leaves.
    let stream = app.stream_chat(ask("patient__hang {}")).await;
    told("patient", "hanging").await;
    drop(stream);
    told("patient", "cancelled").await;
}

#[tokio::test]
async fn what_the_server_asks_for_is_declined() {
    let (app, _upstream) = start(&fake::server("fake", "", "")).await;
    assert_eq!(result(app.client(), "fake__ask", json!({})).await, "asked");
    let answers = eventually("the answers", || async {
        let notes = result(app.client(), "fake__notes", json!({})).await;
        (notes.lines().count() == 5).then_some(notes)
    })
    .await;
    let mut answers: Vec<&str> = answers.lines().collect();
    answers.sort_unstable();
    for (number, told) in answers[..4].iter().enumerate() {
        let error = told.strip_prefix(&format!("{number} declined "));
        let error: Value = serde_json::from_str(error.unwrap_or_else(|| panic!("{told}"))).unwrap();
        assert_eq!(error["code"], -32601, "{told}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("no capability"), "{told}");
    }
    assert_eq!(answers[4], "4 answered {}");
}

#[tokio::test]
async fn nothing_of_the_environment_reaches_a_server_unless_it_is_named() {
    let toml = fake::server("fake", "", "");
    let (app, _upstream) = start_with(&toml, |builder| {
        builder
            .env("FROM_OUTSIDE", "given")
            .env("OPENAI_API_KEY", "sk-secret")
    })
    .await;
    let env = result(app.client(), "fake__env", json!({})).await;
    let names: Vec<&str> = env
        .lines()
        .filter_map(|line| line.split('=').next())
        .collect();
    let named: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| *name != "__CF_USER_TEXT_ENCODING")
        .collect();
    assert_eq!(named, ["FAKE_MODE", "GIVEN", "HOME", "PATH"], "{env}");
    assert!(env.contains("GIVEN=given"), "{env}");
}

#[tokio::test]
async fn the_trace_of_the_request_reaches_the_server() {
    let (app, _upstream) = start(&fake::server("fake", "", "")).await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let client = app.client().header("traceparent", trace);
    let meta = result(&client, "fake__meta", json!({})).await;
    assert!(meta.contains(trace), "{meta}");
}

#[tokio::test]
#[cfg(feature = "otlp")]
async fn a_server_is_told_of_the_span_of_the_call() {
    let collector = Collector::start().await;
    let (app, _upstream) = start(&(collector.toml() + &fake::server("fake", "", ""))).await;
    let meta = result(app.client(), "fake__meta", json!({})).await;
    let spans = collector.spans(5).await;
    let span = named(&spans, "execute_tool fake__meta");
    assert!(meta.contains(&span.traceparent()), "{meta}");
}

#[tokio::test]
async fn settings_choose_tools_and_their_names() {
    let lines = "tool_prefix = \"f-\"\nallowed_tools = [\"e*\"]";
    let toml = fake::server("fake", "", lines) + &fake::server("off", "", "enabled = false");
    let (app, upstream) = start(&toml).await;
    assert_eq!(
        result(app.client(), "f-echo", json!({"text": "x"})).await,
        "x"
    );
    let mut names = upstream.request(0).tool_names();
    names.sort();
    assert_eq!(names, ["f-echo", "f-endless", "f-env", "f-error"]);
    assert!(server(app.client(), "off").await.is_null());
    let body = with(ask_with("Go", ["f-echo"]), "stream", json!(false));
    let refused = app.post_chat(body).await;
    assert!(refused.assert_error(400, None).contains("'f-echo'"));
}

#[tokio::test]
async fn a_tool_that_a_call_has_brought_is_offered_in_the_same_turn() {
    let extra = "fake__extra".to_owned();
    for (filter, allowed) in [
        (json!({}), true),
        (json!({"allow": ["fake__*"]}), true),
        (json!({"deny": ["*extra"]}), false),
        (json!({"allow": ["fake__change"]}), false),
    ] {
        // It switches a tool on, calls it, and says what came of it.
        let upstream = ScriptedUpstream::answering(|request| match request.tool_results().len() {
            0 => calls([("fake__change", json!({}))]),
            1 => calls([("fake__extra", json!({}))]),
            _ => {
                let results = request.tool_results();
                let results: Vec<&str> = results.iter().map(|(_, result)| &**result).collect();
                text(&results.join(", "))
            }
        })
        .await;
        let builder = TestApp::builder().upstream(&upstream);
        let app = builder.toml(&fake::server("fake", "", "")).start().await;
        in_state(app.client(), "fake", "ready").await;
        let body = with(ask("Go"), "agent", json!({"tools": filter}));
        let answer = app.post_chat(body).await;
        let content = answer.content();
        let names = |call: usize| upstream.request(call).tool_names();
        assert!(!names(0).contains(&extra), "{:?}", names(0));
        assert_eq!(
            names(1).contains(&extra),
            allowed,
            "{filter}: {:?}",
            names(1)
        );
        assert_eq!(
            content == "changed, called extra",
            allowed,
            "{filter}: {content}"
        );
        // What was offered before stays as it is, for the caches of model servers.
        let (first, second) = (upstream.request(0), upstream.request(1));
        let first = first.raw("tools").unwrap().trim_end_matches(']').to_owned();
        assert!(second.raw("tools").unwrap().starts_with(&first));
        // The next turn has it as well.
        let found = server(app.client(), "fake").await;
        assert!(
            found["tools"].as_array().unwrap().contains(&json!(extra)),
            "{found}"
        );
    }
}

#[tokio::test]
async fn a_server_that_prints_noise_works() {
    let (app, _upstream) = start(&fake::server("fake", "noise", "")).await;
    in_state(app.client(), "fake", "ready").await;
    assert_eq!(
        result(app.client(), "fake__echo", json!({"text": "x"})).await,
        "x"
    );
    assert!(app.logs().contains("standard output"), "{}", app.logs());
}

/// Whether a call is made again after the server has crashed in it, which is done for tools that may be called twice.
#[tokio::test]
async fn hints_of_a_tool_become_its_policy_unless_the_settings_say_otherwise() {
    for (lines, tool, is_made_again) in [
        ("", "crash_once", false),
        ("", "crash_once_reads", true),
        ("", "crash_once_idempotent", true),
        ("", "crash_once_destroys", false),
        ("idempotent = [\"crash_once\"]", "crash_once", true),
        ("read_only = [\"crash_once\"]", "crash_once", true),
        ("idempotent = []", "crash_once_idempotent", false),
        ("read_only = []", "crash_once_reads", false),
    ] {
        let (mut app, _upstream) = start(&fake::server("fake", "", lines)).await;
        let marker = app.dir().join("crashed");
        let name = format!("fake__{tool}");
        let call = record(app.client(), &name, json!({"marker": marker})).await;
        let content = call["result_content"].as_str().unwrap();
        let expected = match is_made_again {
            true => "survived",
            false => "status 4",
        };
        assert!(content.contains(expected), "{lines} {tool}: {content}");
    }
}

#[tokio::test]
async fn schemas_are_trimmed_and_instructions_added_on_request() {
    let toml = fake::server("fake", "", "trim_schemas = true\ninstructions = true");
    let (app, upstream) = start(&toml).await;
    assert_eq!(
        result(app.client(), "fake__echo", json!({"text": "x"})).await,
        "x"
    );
    let tools = upstream.request(0).body["tools"]
        .as_array()
        .unwrap()
        .clone();
    let found = tools
        .iter()
        .find(|tool| tool["function"]["name"] == "fake__titled");
    let function = &found.unwrap()["function"];
    assert_eq!(
        function["parameters"],
        json!({"type": "object", "properties": {"title": {"type": "string"}}})
    );
    assert_eq!(
        function["description"],
        "The tool titled.\n\nAbout its server: Call me."
    );
}
