//! The requests of model calls: body and headers.

use secrecy::SecretString;

use super::*;
use crate::settings::MaxTokensField;

#[tokio::test]
async fn a_call_is_encoded_with_the_quirks_of_the_upstream() {
    let messages = r#""messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}],"tool_choice":"auto"}"#;
    let rest = format!(r#","temperature":0.50,"tools":[1],{messages}"#);
    for (quirks, model, expected) in [
        (
            Quirks::default(),
            "n",
            format!(
                r#"{{"model":"m\"","stream":true,"stream_options":{{"include_usage":true}}{rest}"#
            ),
        ),
        (
            Quirks {
                stream_options: false,
                ..Quirks::default()
            },
            "m\"",
            format!(r#"{{"model":"mapped","stream":true{rest}"#),
        ),
        (
            Quirks {
                streams: false,
                ..Quirks::default()
            },
            "m\"",
            format!(r#"{{"model":"mapped","stream":false{rest}"#),
        ),
    ] {
        let mut server = Server::answering(SSE_HEAD, DONE).await;
        let mut settings = server.settings();
        settings.quirks = quirks.into();
        settings.model_map = vec![(model.into(), "mapped".into())];
        let (events, error) = collect(&HttpUpstream::new(settings).unwrap()).await;
        assert!(error.is_none(), "{error:?}");
        assert_eq!(events, [ModelEvent::Finish(AnswerEnd::Unstated)]);
        let (head, body) = server.request();
        assert_eq!(body, expected);
        assert!(head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"));
        assert!(head.contains(&format!("content-length: {}", body.len())));
    }
}

#[tokio::test]
async fn the_clients_stream_options_are_sent_and_usage_is_always_requested() {
    for (asked, expected) in [
        (
            r#"{"include_usage":false, "include_obfuscation": false}"#,
            r#"{"include_usage":true,"include_obfuscation":false}"#,
        ),
        ("{}", r#"{"include_usage":true}"#),
        ("1", r#"{"include_usage":true}"#),
    ] {
        let mut server = Server::answering(SSE_HEAD, DONE).await;
        let call = ModelCall {
            stream_options: Some(asked.into()),
            ..call()
        };
        server.upstream().stream(&call).await.unwrap();
        let body = server.request().1;
        let wanted = format!(r#","stream_options":{expected},"#);
        assert!(body.contains(&wanted), "{body}");
    }
}

#[tokio::test]
async fn the_output_is_limited_by_the_field_that_the_server_takes() {
    for (field, expected) in [
        (
            MaxTokensField::MaxCompletionTokens,
            "\"max_completion_tokens\":7,",
        ),
        (MaxTokensField::MaxTokens, "\"max_tokens\":7,"),
    ] {
        let mut server = Server::answering(SSE_HEAD, DONE).await;
        let mut settings = server.settings();
        settings.quirks.max_tokens_field = Some(field);
        let call = ModelCall {
            max_output_tokens: Some(7),
            ..call()
        };
        let upstream = HttpUpstream::new(settings).unwrap();
        upstream.stream(&call).await.unwrap();
        let body = server.request().1;
        assert!(body.contains(expected), "{body}");
    }
}

#[tokio::test]
async fn large_parts_are_sent() {
    let mut server = Server::answering(SSE_HEAD, DONE).await;
    let mut call = call();
    let large = format!("[\"{}\"]", "x".repeat(100_000));
    call.tools = Some(large.as_str().into());
    call.fields = "".into();
    let stream = server.upstream().stream(&call).await.unwrap();
    assert_eq!(stream.events.count().await, 1);
    let body: serde_json::Value = serde_json::from_str(&server.request().1).unwrap();
    assert_eq!(body["tools"].to_string(), large);
    assert_eq!(body["messages"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn configured_headers_and_the_key_override_the_callers() {
    let mut server = Server::answering(SSE_HEAD, DONE).await;
    let mut settings = server.settings();
    settings.api_key = Some(SecretString::from("own-key"));
    settings
        .headers
        .insert("x-team", HeaderValue::from_static("red"));
    let mut call = call();
    let headers = [
        ("authorization", "Bearer client"),
        ("x-team", "blue"),
        ("x-other", "1"),
        ("accept-encoding", "gzip"),
        ("host", "elsewhere"),
        ("user-agent", "agent/1"),
        ("accept", "*/*"),
    ];
    call.headers = Arc::new(
        headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
            .collect::<HeaderMap>(),
    );
    let upstream = HttpUpstream::new(settings).unwrap();
    upstream.stream(&call).await.unwrap();
    assert!(!format!("{upstream:?}").contains("own-key"));
    let (head, _) = server.request();
    for wanted in [
        "authorization: Bearer own-key\r\n",
        "x-team: red\r\n",
        "x-other: 1\r\n",
        "user-agent: agent/1\r\n",
        "accept: text/event-stream\r\n",
        "content-type: application/json\r\n",
        "accept-encoding: identity\r\n",
    ] {
        assert!(format!("{head}\r\n").contains(wanted), "{wanted} in {head}");
    }
    for unwanted in ["client", "blue", "gzip", "elsewhere", "*/*"] {
        assert!(!head.contains(unwanted), "{unwanted} in {head}");
    }
}
