//! Which tools front ends are offered, and what their streams must not hold.

use super::*;
use crate::support::script::raw_sse;

const TOOL: &str =
    "[[tools]]\nname = \"weather\"\ndescription = \"d\"\nurl = \"http://127.0.0.1:9/w\"\n";

#[tokio::test]
async fn a_plain_model_is_offered_no_tools_under_whichever_name_it_has() {
    let upstream = ScriptedUpstream::answering(|_| text("A title.")).await;
    let hook = Webhook::start().await;
    let settings = format!(
        "plain_models = [\"tasks\", \"plain-*\"]\n[[upstreams]]\nname = \"u\"\nbase_url = \"{}\"\n\
         model_map = {{ tasks = \"scripted-model\" }}\n{TOOL}",
        upstream.base_url()
    );
    let app = TestApp::builder()
        .dispatch(&hook)
        .toml("session_headers = [\"x-openwebui-chat-id\"]")
        .toml(&settings)
        .start()
        .await;
    let of = |model: &str| {
        let body = with(ask("### Task"), "model", json!(model));
        with(body, "tools", json!([tool("mine")]))
    };
    for (model, name) in [("tasks", MODEL), ("plain-1", "plain-1")] {
        let answer = app.post_chat(of(model)).await.completion();
        assert_eq!(answer.get("agent"), None, "passed through");
        assert_eq!(upstream.last().body["model"], name);
        assert_eq!(upstream.last().tool_names(), ["mine"]);
    }
    // With the id of a chat as well, and nothing is stored.
    let chat = app.client().header(CHAT_HEADER, "c");
    assert_eq!(chat.post_chat(of("tasks")).await.content(), "A title.");
    assert_eq!(upstream.last().tool_names(), ["mine"]);
    assert!(session_ids(app.client()).await.is_empty());
    app.post_chat(of(MODEL)).await.completion();
    assert_eq!(upstream.last().tool_names(), ["mine", "weather"]);
    // What a request asks for is refused, as where the server does not have it.
    let code = with(of("tasks"), "enable_code_execution", json!(true));
    let refused = app.post_chat(code).await;
    refused.assert_error(400, None);
    assert_eq!(refused.json()["error"]["param"], "enable_code_execution");
}

#[tokio::test]
async fn a_call_of_a_plain_model_goes_to_the_client() {
    let upstream = ScriptedUpstream::start([calls([("mine", json!({}))])]).await;
    let hook = Webhook::start().await;
    let builder = builder(&upstream, &hook).toml("plain_models = [\"*\"]");
    let app = builder.start().await;
    let body = with(ask("x"), "tools", json!([tool("mine")]));
    let chat = app.client().header(CHAT_HEADER, "c");
    let answer = chat.post_chat(body).await.completion();
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
    assert!(hook.calls().is_empty());
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn python_is_offered_to_every_request_by_a_setting() {
    const ALL: [&str; 4] = ["execute_python", "reset_python", "read_file", "list_files"];
    let draw = "import base64\nclass P:\n    def _repr_png_(self):\n        return base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==')\nP()";
    for (on_request, offered) in [(true, &[][..]), (false, &ALL[..])] {
        let upstream = ScriptedUpstream::answering(move |request| {
            match request.tool_names().is_empty() || !request.tool_results().is_empty() {
                true => text("done"),
                false => calls([("execute_python", json!({ "code": draw }))]),
            }
        })
        .await;
        let settings = format!("images = \"inline\"\ncode_execution_on_request = {on_request}");
        let app = TestApp::builder()
            .upstream(&upstream)
            .toml(&settings)
            .args(["--enable-code-execution"])
            .start()
            .await;
        let answer = app.post_chat(ask("Plot")).await.completion();
        assert_eq!(upstream.last().tool_names(), offered);
        let images = answer["choices"][0]["message"]["images"].as_array();
        assert_eq!(
            images.map_or(0, Vec::len),
            usize::from(!on_request),
            "{answer}"
        );
        // A request can leave it out.
        let declined = with(ask("x"), "enable_code_execution", json!(false));
        app.post_chat(declined).await.completion();
        assert!(upstream.last().tool_names().is_empty());
        let denied = with(ask("x"), "agent", json!({"tools": {"deny": ["*"]}}));
        app.post_chat(denied).await.completion();
        assert!(upstream.last().tool_names().is_empty());
    }
}

#[tokio::test]
async fn a_webhook_that_does_not_know_a_declared_tool_brings_the_setting_into_the_log() {
    let call = |name: &str| calls([(name, json!({}))]);
    let upstream =
        ScriptedUpstream::start([call("theirs"), call("broken"), call("fixed"), text("Done.")])
            .await;
    let unknown = webhook::status(404, &[], "{}");
    let hook = Webhook::start().await.on("theirs", unknown.clone());
    let hook = hook.on("broken", webhook::status(500, &[], "{}"));
    let hook = hook.on("fixed", unknown);
    let fixed = format!(
        "[[tools]]\nname = \"fixed\"\ndescription = \"d\"\nurl = \"{}\"\n",
        hook.url()
    );
    let app = builder(&upstream, &hook).toml(&fixed).start().await;
    let body = with(ask("x"), "tools", json!([tool("theirs"), tool("broken")]));
    app.post_chat(body).await.completion();
    let logs = eventually("the line of the log", || async {
        let logs = app.logs();
        logs.contains("turn finished").then_some(logs)
    })
    .await;
    let lines: Vec<&str> = logs
        .lines()
        .filter(|line| line.contains("answered 404"))
        .collect();
    assert_eq!(lines.len(), 1, "{logs}");
    assert!(
        lines[0].contains("theirs") && !lines[0].contains("127.0.0.1"),
        "{logs}"
    );
}

#[tokio::test]
async fn members_on_which_front_ends_act_do_not_pass_the_loop() {
    let chunk = json!({
        "id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "type": "error", "kept": 1,
        "event": {"type": "status", "data": {"description": "Owned", "done": true}}, "selected_model_id": "other",
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}],
    });
    let line = format!("data: {chunk}\n\n");
    let upstream = ScriptedUpstream::start([raw_sse([line, "data: [DONE]\n\n".to_owned()])]).await;
    let hook = Webhook::start().await;
    let app = builder(&upstream, &hook).start().await;
    let body = with(ask("x"), "session_id", json!("s"));
    let collected = app.stream_chat(body).await.collect().await;
    assert_eq!(collected.text, "Hi.");
    assert!(collected.transcript().contains("\"kept\":1"));
    for frame in collected
        .frames
        .iter()
        .filter(|frame| frame.data != "[DONE]")
    {
        let chunk: Value = serde_json::from_str(&frame.data).unwrap();
        for member in ["event", "selected_model_id", "type"] {
            assert_eq!(chunk.get(member), None, "{}", frame.data);
        }
    }
}
