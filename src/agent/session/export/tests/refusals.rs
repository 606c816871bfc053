//! Imports that are refused.

use super::*;

#[test]
fn an_error_names_the_invalid_field() {
    for (json, param, word) in [
        ("", "body", "valid JSON"),
        ("{\"messages\":[", "body", "valid JSON"),
        ("[]", "body", "object"),
        ("\"x\"", "body", "object"),
        ("{}", "messages", "array"),
        (r#"{"messages":null}"#, "messages", "array"),
        (r#"{"messages":{"role":"user"}}"#, "messages", "array"),
        (
            r#"{"messages":[{"role":"user","content":"x"},3]}"#,
            "messages[1]",
            "object",
        ),
        (r#"{"messages":[{"content":"x"}]}"#, "messages[0]", "role"),
        (
            r#"{"messages":[{"role":"User","content":"x"}]}"#,
            "messages[0].role",
            "\"User\"",
        ),
        (
            r#"{"messages":[{"role":"user","content":7}]}"#,
            "messages[0]",
            "content",
        ),
        (
            r#"{"messages":[{"role":"user","content":{"Left":{}}}]}"#,
            "messages[0]",
            "content",
        ),
        (
            r#"{"messages":[{"role":"user","content":["x"]}]}"#,
            "messages[0]",
            "content parts",
        ),
        (
            r#"{"messages":[{"role":"assistant","tool_calls":{}}]}"#,
            "messages[0]",
            "tool_calls",
        ),
        (
            r#"{"messages":[{"role":"user","content":"\ud800"}]}"#,
            "messages[0]",
            "valid",
        ),
        (
            r#"{"messages":[],"created_at":-1}"#,
            "created_at",
            "seconds",
        ),
        (
            r#"{"messages":[],"updated_at":1e99}"#,
            "updated_at",
            "seconds",
        ),
        (
            r#"{"messages":[],"created_at":99999999999999999999}"#,
            "created_at",
            "seconds",
        ),
        (r#"{"messages":[],"agent":[]}"#, "agent", "object"),
        (
            r#"{"messages":[],"agent":{"message_meta":{}}}"#,
            "agent.message_meta",
            "array",
        ),
        (
            r#"{"messages":[],"agent":{"message_meta":[{"index":0}]}}"#,
            "agent.message_meta[0]",
            "past",
        ),
    ] {
        let (at, text) = invalid_param(json, MAX);
        assert_eq!(at, param, "{json}");
        assert!(text.contains(word), "{json}: {text}");
    }
}

#[test]
fn invalid_metadata_is_refused() {
    for entry in [
        "3",
        "{}",
        r#"{"index":-1}"#,
        r#"{"index":1}"#,
        r#"{"index":18446744073709551615}"#,
        r#"{"index":99999999999999999999999}"#,
        r#"{"index":0.5}"#,
        r#"{"index":0,"hidden":"yes"}"#,
        r#"{"index":0,"view":{"text":"x"}}"#,
        r#"{"index":0},{"index":0}"#,
    ] {
        let json = format!(
            r#"{{"messages":[{{"role":"user","content":"x"}}],"agent":{{"message_meta":[{entry}]}}}}"#
        );
        let (param, _) = invalid_param(&json, MAX);
        assert!(param.starts_with("agent.message_meta["), "{entry}: {param}");
    }
}

#[test]
fn the_limit_on_messages_is_named() {
    let list = [r#"{"role":"user","content":"x"}"#; 4].join(",");
    let json = format!(r#"{{"messages":[{list}]}}"#);
    assert_eq!(import(&json, 4).unwrap().messages.len(), 4);
    let (param, text) = invalid_param(&json, 3);
    assert_eq!(param, "messages");
    assert!(text.contains("at most 3"), "{text}");
    // Placeholders for missing results count as well.
    let json = r#"{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]}]}"#;
    assert_eq!(import(json, 2).unwrap().messages.len(), 2);
    assert_eq!(invalid_param(json, 1).0, "messages");
}

#[test]
fn deep_nesting_is_refused() {
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let json = format!(
        r#"{{"messages":[{{"role":"user","content":{}}}]}}"#,
        deep(100_000)
    );
    assert_eq!(invalid_param(&json, MAX).0, "messages[0]");
    assert_eq!(invalid_param(&deep(100_000), MAX).0, "body");
    let json = format!(r#"{{"messages":{}}}"#, deep(100_000));
    assert_eq!(invalid_param(&json, MAX).0, "messages[0]");
    let meta = format!(
        r#"{{"messages":[],"agent":{{"message_meta":[{{"index":0,"view":{}}}]}}}}"#,
        deep(100_000)
    );
    assert_eq!(invalid_param(&meta, MAX).0, "agent.message_meta[0]");
    let ignored = format!(r#"{{"messages":[],"x":{}}}"#, deep(100_000));
    assert!(import(&ignored, MAX).is_ok());
}
