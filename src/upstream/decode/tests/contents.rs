//! Text and reasoning.

use super::*;

#[test]
fn text_is_read_in_every_form() {
    for (content, expected) in [
        (json!("hi"), vec![text("hi")]),
        (json!("a\n\"b\" ä"), vec![text("a\n\"b\" ä")]),
        (json!(""), vec![]),
        (json!(null), vec![]),
        (json!([]), vec![]),
        (
            json!([{"type":"text","text":"a"},{"type":"text","text":"b"},"c"]),
            vec![text("abc")],
        ),
        (
            json!([{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"b"}]),
            vec![reasoning("hm", "reasoning_content"), text("b")],
        ),
        (
            json!([{"type":"thinking","thinking":"hm"},{"type":"reference","reference_ids":[1]}]),
            vec![reasoning("hm", "reasoning_content")],
        ),
    ] {
        assert_eq!(
            delta(&json!({"role":"assistant","content":content})),
            expected,
            "{content}"
        );
    }
}

#[test]
fn reasoning_is_read_from_every_field_and_once() {
    for field in REASONING {
        assert_eq!(delta(&json!({field: "r"})), [reasoning("r", field)]);
    }
    assert_eq!(
        delta(
            &json!({"content":"t","reasoning":"same","reasoning_content":"same","thinking":"same"})
        ),
        [reasoning("same", "reasoning_content"), text("t")]
    );
    assert_eq!(
        delta(&json!({"reasoning_content":"","reasoning":"r"})),
        [reasoning("r", "reasoning")]
    );
    assert_eq!(
        delta(&json!({"reasoning_content":null,"content":"t"})),
        [text("t")]
    );
}

const REASONING: [&str; 4] = [
    "reasoning_content",
    "reasoning",
    "reasoning_text",
    "thinking",
];

#[test]
fn lone_surrogates_do_not_end_the_stream() {
    let mut out = Vec::new();
    let data = r#"{"\ud83d":1,"choices":[{"delta":{"content":"a\ud83d","tool_calls":[{"index":0,"function":{"name":"f","arguments":"\ude00"}}]}}]}"#;
    plain().decode(data, &mut out).unwrap();
    assert!(out.contains(&text("a\u{fffd}")), "{out:?}");
    assert!(
        matches!(out.last(), Some(ModelEvent::ToolCall(call)) if call.arguments.as_deref() == Some("\u{fffd}"))
    );
}

#[test]
fn think_tags_are_split_if_the_quirk_is_set() {
    let quirks = Quirks {
        think_tags: true,
        ..Quirks::default()
    };
    let chunk = |content: &str| json!({"choices":[{"delta":{"content":content}}]});
    let mut decoder = ChunkDecoder::new(&quirks);
    let mut all = Vec::new();
    for piece in ["<th", "ink>\nwh", "y</thi", "nk>\nso", " on"] {
        all.extend(events(&mut decoder, &chunk(piece)));
    }
    assert_eq!(
        all,
        [
            reasoning("wh", "reasoning_content"),
            reasoning("y", "reasoning_content"),
            text("so"),
            text(" on"),
        ]
    );
    let mut decoder = ChunkDecoder::new(&quirks);
    assert_eq!(events(&mut decoder, &chunk("<think>a</th")).len(), 1);
    assert_eq!(
        events(
            &mut decoder,
            &json!({"choices":[{"delta":{},"finish_reason":"stop"}]})
        ),
        [
            reasoning("</th", "reasoning_content"),
            ModelEvent::Finish(FinishReason::Stop)
        ]
    );
}
