//! Model servers that speak the Responses API themselves.

use http::Method;
use serde_json::{Value, json};

use super::super::support::app::TestApp;
use super::super::support::client::Answer;
use super::super::support::script::{calls, text};
use super::super::support::upstream::ScriptedUpstream;
use super::super::support::webhook::{self, Webhook};
use super::{PATH, create, function, kinds, text_of, with};

/// A body that nothing but pass-through keeps as it is. Its members and items are not those of chat completions.
const ODD: &str = "{ \"model\":\"scripted-model\",\r\n \"input\" : [{\"type\":\"computer_call\"}],\"prompt\":{}, \"tools\":[{\"type\":\"file_search\"}], \"x\":1.0e0 }";

fn native(upstream: &ScriptedUpstream) -> String {
    upstream.with_quirks("native = [\"responses\"]")
}

fn plain() -> Value {
    json!({"model": "scripted-model", "input": "Hi"})
}

#[tokio::test]
async fn a_request_that_concerns_nothing_here_goes_to_the_server_as_it_came() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::builder().toml(&native(&upstream)).start().await;
    for (number, body) in [
        ODD.to_owned(),
        with(plain(), "store", json!(false)).to_string(),
        with(plain(), "previous_response_id", json!("resp_68af")).to_string(),
        with(plain(), "tools", json!([function("mine")])).to_string(),
        with(plain(), "max_tool_calls", json!(3)).to_string(),
    ]
    .into_iter()
    .enumerate()
    {
        let request = app
            .client()
            .request(Method::POST, "/v1/responses?a=b%20c")
            .header("content-type", "application/json")
            .body(body.clone());
        let answer = Answer::of(request).await;
        assert_eq!(answer.text(), body);
        assert_eq!(answer.header("x-echo-path"), Some("/v1/responses?a=b%20c"));
        assert_eq!(upstream.others()[number].bytes, body.as_bytes());
    }
}

#[tokio::test]
async fn what_concerns_the_loop_is_a_turn() {
    let upstream = ScriptedUpstream::answering(|_| text("Hello.")).await;
    let app = TestApp::builder().toml(&native(&upstream)).start().await;
    let stored = create(&app, with(plain(), "store", json!(true))).await;
    let id = &stored["output"][0]["id"];
    let item = json!([{"type": "item_reference", "id": id}, {"role": "user", "content": "And?"}]);
    let sealed = json!([
        {"type": "reasoning", "summary": [], "encrypted_content": "lwr1.WyJyZWFzb25pbmciLCJIbS4iXQ=="},
        {"role": "user", "content": "And?"},
    ]);
    for (field, value) in [
        ("previous_response_id", stored["id"].clone()),
        ("input", item),
        ("input", sealed),
        ("session_id", json!("s")),
        ("agent", json!({})),
        ("max_tool_rounds", json!(0)),
        ("conversation", stored["session_id"].clone()),
        ("background", json!(true)),
    ] {
        let response = create(&app, with(plain(), field, value)).await;
        assert!(
            response["agent"].is_object() || response["status"] == "queued",
            "{field}"
        );
    }
    assert!(upstream.others().is_empty());
}

#[tokio::test]
async fn a_tool_of_this_server_makes_a_request_a_turn() {
    let upstream = ScriptedUpstream::start([calls([("t", json!({}))]), text("Done.")]).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::builder()
        .dispatch(&hook)
        .toml(&format!("dispatch_tools = [\"t\"]\n{}", native(&upstream)))
        .start()
        .await;
    let own = with(plain(), "tools", json!([function("t")]));
    let response = create(&app, own).await;
    assert_eq!(kinds(&response), ["mcp_call", "message"]);
    assert_eq!(text_of(&response["output"][1]), "Done.");
    let clients = with(plain(), "tools", json!([function("mine")]));
    let answer = app.post(PATH, &clients).await;
    assert_eq!(answer.json(), clients);
}

/// Sends a body whose echo is no JSON.
async fn send(app: &TestApp, path: &str, encoding: &str, body: Vec<u8>) {
    let request = app
        .client()
        .request(Method::POST, path)
        .header("content-type", "application/json")
        .header("content-encoding", encoding)
        .body(body);
    assert_eq!(request.send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_compressed_body_goes_as_it_came_and_is_decoded_only_to_be_changed() {
    let upstream = ScriptedUpstream::start([]).await;
    let url = upstream.base_url();
    let toml = format!(
        "[[upstreams]]\nname = \"u\"\nbase_url = \"{url}\"\nmodel_map = {{ \"fast\" = \"qwen\" }}\n\
         [upstreams.quirks]\nnative = [\"responses\"]"
    );
    let app = TestApp::builder().toml(&toml).start().await;
    let body = plain().to_string();
    let zipped = super::bodies::gzip(body.as_bytes()).await;
    for path in [PATH, "/v1/embeddings"] {
        send(&app, path, "gzip", zipped.clone()).await;
        let seen = upstream.others().pop().unwrap();
        assert_eq!(seen.bytes, zipped, "{path}");
        assert_eq!(seen.header("content-encoding"), Some("gzip"));
    }
    // An encoding that is not known here is for the server to read.
    send(&app, "/v1/embeddings", "br", b"br".to_vec()).await;
    let seen = upstream.others().pop().unwrap();
    assert_eq!(
        (&seen.bytes[..], seen.header("content-encoding")),
        (&b"br"[..], Some("br"))
    );
    let renamed = with(plain(), "model", json!("fast")).to_string();
    let renamed = super::bodies::gzip(renamed.as_bytes()).await;
    for path in [PATH, "/v1/embeddings"] {
        send(&app, path, "gzip", renamed.clone()).await;
        let seen = upstream.others().pop().unwrap();
        assert_eq!(seen.body["model"], "qwen", "{path}");
        assert_eq!(seen.header("content-encoding"), None);
    }
}
