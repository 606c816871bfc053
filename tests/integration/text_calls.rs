//! Tool calls that a model writes as text.

use serde_json::{Value, json};

use super::support::app::TestApp;
use super::support::ask::{ask, ask_with, tool_with, with};
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

/// Calls of `t` with the same arguments, as the families of models write them, and the form of each in the metrics.
const FAMILIES: [(&str, &str); 9] = [
    (
        "tool_call_tag",
        "<tool_call>t\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</arg_key>\n\
         <arg_value>3</arg_value>\n</tool_call>",
    ),
    (
        "tool_call_tag",
        "<tool_call>t<arg_key>city</arg_key>Oslo</arg_value><arg_key>days</arg_key><arg_value>3</arg_value></tool_call>",
    ),
    (
        "function_tag",
        "<function=t>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n\
         </tool_call>",
    ),
    (
        "invoke_tag",
        "<minimax:tool_call>\n<invoke name=\"t\">\n<parameter name=\"city\">Oslo</parameter>\n\
         <parameter name=\"days\">3</parameter>\n</invoke>\n</minimax:tool_call>",
    ),
    (
        "dsml_tag",
        "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"t\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Oslo\
         </｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n\
         </｜DSML｜invoke>\n</｜DSML｜tool_calls>",
    ),
    (
        "deepseek_tokens",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>t\n```json\n{\"city\":\"Oslo\",\"days\":3}\n```\
         <｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    (
        "deepseek_tokens",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>t<｜tool▁sep｜>{\"city\":\"Oslo\",\"days\":3}<｜tool▁call▁end｜>\
         <｜tool▁calls▁end｜>",
    ),
    (
        "kimi_tokens",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.t:0<|tool_call_argument_begin|>\
         {\"city\":\"Oslo\",\"days\":3}<|tool_call_end|><|tool_calls_section_end|>",
    ),
    (
        "harmony_channel",
        "<|start|>assistant<|channel|>commentary to=functions.t <|constrain|>json<|message|>\
         {\"city\":\"Oslo\",\"days\":3}<|call|>",
    ),
];

/// A request with the tool of [`FAMILIES`].
fn forecast() -> Value {
    let parameters = json!({
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
    });
    with(ask("Go"), "tools", json!([tool_with("t", parameters)]))
}

#[tokio::test]
async fn every_family_of_calls_is_run_and_never_shown() {
    let script = FAMILIES.map(|(_, call)| [text(&format!("\n\n{call}\n")), text("Done.")]);
    for streamed in [true, false] {
        let upstream = ScriptedUpstream::start(script.iter().flatten().cloned()).await;
        let hook = Webhook::start().await.on("t", webhook::text("r"));
        let toml = upstream.with_quirks("text_calls = true");
        let app = TestApp::builder().dispatch(&hook).toml(&toml).start().await;
        for (number, (form, call)) in FAMILIES.iter().enumerate() {
            let content = match streamed {
                true => app.stream_chat(forecast()).await.collect().await.text,
                false => app.post_chat(forecast()).await.content(),
            };
            assert_eq!(content, "Done.", "{form}: {call}");
            let arguments = json!({"city": "Oslo", "days": 3});
            assert_eq!(hook.call(number).arguments(), &arguments, "{form}");
            let sent = upstream.last();
            let function = &sent.messages()[1]["tool_calls"][0]["function"];
            assert_eq!(function["name"], "t", "{form}");
        }
        let metrics = app.get("/metrics").await.text();
        for (form, _) in FAMILIES {
            let times = FAMILIES.iter().filter(|(other, _)| *other == form).count();
            let line =
                format!("loopwright_text_calls_total{{upstream=\"u\",form=\"{form}\"}} {times}");
            assert!(metrics.contains(&line), "{line}\n{metrics}");
        }
    }
}

#[tokio::test]
async fn a_clients_own_call_gets_the_types_of_its_schema() {
    let call = "<tool_call>t<arg_key>city</arg_key><arg_value>0047</arg_value><arg_key>days</arg_key>\
                <arg_value>3</arg_value></tool_call>";
    let upstream = ScriptedUpstream::start([text(call), text(call)]).await;
    let hook = Webhook::start().await;
    let toml = upstream.with_quirks("text_calls = true");
    let app = TestApp::builder().dispatch(&hook).toml(&toml).start().await;
    let body = with(forecast(), "agent", json!({"client_tools": ["t"]}));
    let whole = app.post_chat(body.clone()).await.completion();
    let message = &whole["choices"][0]["message"];
    assert_eq!(message["content"], Value::Null);
    let function = &message["tool_calls"][0]["function"];
    assert_eq!(function["arguments"], r#"{"city":"0047","days":3}"#);
    let stream = app.stream_chat(body).await.collect().await;
    assert_eq!(stream.text, "");
    assert_eq!(
        stream.tool_calls[0].arguments,
        r#"{"city":"0047","days":3}"#
    );
    assert!(hook.calls().is_empty());
}

#[tokio::test]
async fn a_call_of_any_family_that_is_cut_is_not_run() {
    for (form, call) in FAMILIES {
        let cut: String = call.chars().take(call.chars().count() / 2).collect();
        let upstream = ScriptedUpstream::start([text(&cut), text(&cut).finish("length")]).await;
        let hook = Webhook::start().await.on("t", webhook::text("r"));
        let toml = upstream.with_quirks("text_calls = true");
        let app = TestApp::builder().dispatch(&hook).toml(&toml).start().await;
        app.post_chat(forecast()).await.completion();
        app.stream_chat(forecast()).await.collect().await;
        assert!(hook.calls().is_empty(), "{form}: {cut}");
    }
}
