//! Tool calls that a model writes as text.

use serde_json::json;

use super::support::app::TestApp;
use super::support::ask::ask_with;
use super::support::script::text;
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::{self, Webhook};

#[tokio::test]
async fn calls_written_as_text_are_run_where_the_quirk_says_so() {
    let call = r#"{"name": "t", "arguments": {"a": 1}}"#;
    let replies = [
        format!("I look.\n<tool_call>\n{call}\n</tool_call>"),
        "<function=t>{\"a\": 1}</function>".to_owned(),
        format!("[TOOL_CALLS][{call}]"),
        format!("<|python_tag|>{}", call.replace("arguments", "parameters")),
        call.to_owned(),
    ];
    let rounds = replies.iter().map(|reply| text(reply));
    let script: Vec<_> = rounds.flat_map(|round| [round, text("Done.")]).collect();
    for streamed in [true, false] {
        let upstream = ScriptedUpstream::start(script.clone()).await;
        let hook = Webhook::start().await.on("t", webhook::text("r"));
        let toml = upstream.with_quirks("text_calls = true");
        let app = TestApp::builder().dispatch(&hook).toml(&toml).start().await;
        for (number, reply) in replies.iter().enumerate() {
            let before = if number == 0 { "I look.\n" } else { "" };
            let content = match streamed {
                true => {
                    let stream = app.stream_chat(ask_with("Go", ["t"])).await;
                    stream.collect().await.text
                }
                false => app.post_chat(ask_with("Go", ["t"])).await.content(),
            };
            let expected = match before {
                "" => "Done.".to_owned(),
                before => format!("{before}\n\nDone."),
            };
            assert_eq!(content, expected, "{reply}");
            assert_eq!(hook.call(number).arguments(), &json!({"a": 1}), "{reply}");
            // The history holds a call, not its text.
            let sent = upstream.last();
            let message = &sent.messages()[1];
            assert_eq!(
                message["tool_calls"][0]["function"]["name"], "t",
                "{message}"
            );
            assert!(
                !message["content"].to_string().contains("\\\"a\\\""),
                "{message}"
            );
        }
        let metrics = app.get("/metrics").await.text();
        for form in [
            "tool_call_tag",
            "function_tag",
            "tool_calls_token",
            "python_tag",
            "bare_json",
        ] {
            let line = format!("loopwright_text_calls_total{{upstream=\"u\",form=\"{form}\"}} 1");
            assert!(metrics.contains(&line), "{line}\n{metrics}");
        }
    }
    // Without the quirk it is text.
    let upstream = ScriptedUpstream::start([text(call)]).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let answer = app.post_chat(ask_with("Go", ["t"])).await.content();
    assert_eq!((answer.as_str(), hook.calls().len()), (call, 0));
}

#[tokio::test]
async fn text_that_only_begins_like_a_call_reaches_the_client() {
    let answer = "<tool_call>\n{\"name\": \"t\", \"argu";
    let upstream = ScriptedUpstream::start([text(answer), text(answer)]).await;
    let hook = Webhook::start().await;
    let toml = upstream.with_quirks("text_calls = true");
    let app = TestApp::builder().dispatch(&hook).toml(&toml).start().await;
    let stream = app.stream_chat(ask_with("Go", ["t"])).await.collect().await;
    let whole = app.post_chat(ask_with("Go", ["t"])).await.content();
    assert_eq!((stream.text.as_str(), whole.as_str()), (answer, answer));
    assert!(hook.calls().is_empty());
}
