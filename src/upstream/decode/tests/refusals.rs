//! Reported errors, malformed chunks and bounds.

use super::*;

#[test]
fn reported_errors_are_distinguished_from_chunks() {
    for (data, expected) in [
        (r#"{"error":{"message":"m"}}"#, r#"{"message":"m"}"#),
        (r#"{"error":"text","choices":[]}"#, r#""text""#),
        (
            r#"{"object":"error","message":"m","code":500}"#,
            r#"{"object":"error","message":"m","code":500}"#,
        ),
        (r#"[{"error":{"message":"m"}}]"#, r#"{"message":"m"}"#),
        (
            r#"{"message":"m","type":"t"}"#,
            r#"{"message":"m","type":"t"}"#,
        ),
        (r#"{"detail":"m"}"#, r#"{"detail":"m"}"#),
        (
            r#"{"choices":[{"error":{"message":"m"},"finish_reason":"error","delta":{"content":""}}]}"#,
            r#"{"message":"m"}"#,
        ),
        (
            r#"{"choices":[{"message":{"content":null,"error":{"message":"m"}}}]}"#,
            r#"{"message":"m"}"#,
        ),
    ] {
        let mut out = Vec::new();
        let reported = Err(DecodeError::Reported(expected.into()));
        assert_eq!(plain().decode(data, &mut out), reported, "{data}");
        assert_eq!(plain().decode_whole(data, &mut out), reported, "{data}");
        assert_eq!(out, []);
    }
    assert_eq!(
        events(
            &mut plain(),
            &json!({"error":null,"choices":[{"delta":{"content":"a"}}]})
        ),
        [text("a")]
    );
}

#[test]
fn an_error_about_a_malformed_chunk_has_no_content_of_it() {
    for data in [
        "secret",
        "[1]",
        r#"{"choices":"secret"}"#,
        r#"{"choices":["#,
    ] {
        match plain().decode(data, &mut Vec::new()) {
            Err(DecodeError::Malformed(reason)) => assert!(!reason.contains("secret"), "{reason}"),
            other => panic!("{data}: {other:?}"),
        }
    }
}

#[test]
fn unknown_fields_and_calls_of_one_response_are_bounded() {
    let refused = |decoder: &mut ChunkDecoder, chunk: &Value| {
        let decoded = decoder.decode(&chunk.to_string(), &mut Vec::new());
        matches!(decoded, Err(DecodeError::Malformed(_)))
    };
    let keys = |range: std::ops::Range<usize>| -> Value {
        let fields = range.map(|nth| (format!("k{nth}"), json!(1)));
        fields.collect::<serde_json::Map<_, _>>().into()
    };
    let in_delta = |range| json!({"choices":[{"delta":keys(range)}]});
    assert!(!refused(&mut plain(), &in_delta(0..MAX_UNKNOWN_KEYS)));
    assert!(refused(&mut plain(), &in_delta(0..MAX_UNKNOWN_KEYS + 1)));
    let mut decoder = plain();
    for _ in 0..3 {
        assert!(!refused(&mut decoder, &in_delta(0..200)));
        assert!(!refused(&mut decoder, &keys(100..MAX_UNKNOWN_KEYS)));
    }
    assert!(refused(&mut decoder, &keys(1000..1001)));

    let calls =
        |count: usize| json!({"choices":[{"delta":{"tool_calls":vec![json!({"id":"a"}); count]}}]});
    assert!(!refused(&mut plain(), &calls(128)));
    assert!(refused(&mut plain(), &calls(129)));
}
