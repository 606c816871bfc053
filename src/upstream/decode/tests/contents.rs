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
            vec![
                ModelEvent::Parts(vec![
                    r#"{"thinking":[{"text":"hm","type":"text"}],"type":"thinking"}"#.into(),
                    r#"{"text":"b","type":"text"}"#.into(),
                ]),
                reasoning("hm", "reasoning_content"),
                text("b"),
            ],
        ),
        (
            json!([{"type":"thinking","thinking":"hm"},{"type":"reference","reference_ids":[1]}]),
            vec![
                ModelEvent::Parts(vec![
                    r#"{"thinking":"hm","type":"thinking"}"#.into(),
                    r#"{"reference_ids":[1],"type":"reference"}"#.into(),
                ]),
                reasoning("hm", "reasoning_content"),
            ],
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
fn a_field_with_no_reasoning_in_it_counts_once() {
    for field in REASONING {
        let mut decoder = plain();
        let chunk = |delta: Value| json!({"choices":[{"delta":delta}]});
        let empty = chunk(json!({field: ""}));
        assert_eq!(events(&mut decoder, &empty), [reasoning("", field)]);
        assert_eq!(events(&mut decoder, &empty), []);
        let more = chunk(json!({field: "r"}));
        assert_eq!(events(&mut decoder, &more), [reasoning("r", field)]);
        assert_eq!(events(&mut decoder, &empty), []);
    }
}

#[test]
fn a_character_in_two_pieces_is_one() {
    let mut decoder = plain();
    let mut read = |delta: &str| {
        let mut out = Vec::new();
        let data = format!(r#"{{"choices":[{{"delta":{{{delta}}}}}]}}"#);
        decoder.decode(&data, &mut out).unwrap();
        out
    };
    assert_eq!(read(r#""content":"a""#), [text("a")]);
    assert_eq!(read(r#""content":"b\ud83d""#), [text("b")]);
    assert_eq!(read(r#""content":"\ude00c""#), [text("\u{1f600}c")]);
    assert_eq!(
        read(r#""reasoning":"r\ud83d""#),
        [reasoning("r", "reasoning")]
    );
    assert_eq!(read(r#""content":"d""#), [text("d")]);
    assert_eq!(
        read(r#""reasoning":"\ude00""#),
        [reasoning("\u{1f600}", "reasoning")]
    );
    let refusal = |json: &str| ModelEvent::DeltaExtra(vec![("refusal".into(), json.into())]);
    assert_eq!(read(r#""refusal":"n\ud83d""#), [refusal("\"n\"")]);
    assert_eq!(read(r#""refusal":"\ude00""#), [refusal("\"\u{1f600}\"")]);
    let arguments =
        |json: &str| format!(r#""tool_calls":[{{"index":0,"function":{{"arguments":"{json}"}}}}]"#);
    let piece = |arguments: Option<&str>| {
        let arguments = arguments.map(str::to_owned);
        call(|call| (call.index, call.arguments) = (Some(0), arguments))
    };
    assert_eq!(read(&arguments(r"x\ud83d")), [piece(Some("x"))]);
    assert_eq!(read(&arguments(r"\ude00")), [piece(Some("\u{1f600}"))]);
    assert_eq!(read(r#""content":"z\ud83d""#), [text("z")]);
    let mut out = Vec::new();
    decoder.finish(&mut out);
    assert_eq!(
        out,
        [text("\u{fffd}"), ModelEvent::Finish(AnswerEnd::Unstated)]
    );
}

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
        think_tags: ThinkTags::Both,
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
            ModelEvent::Finish(AnswerEnd::Reason(FinishReason::Stop))
        ]
    );
}

#[test]
fn a_closing_tag_alone_is_never_shown() {
    let quirks = |think_tags| Quirks {
        think_tags,
        ..Quirks::default()
    };
    let answer = "They want it.\n</think>\n\nCold.";
    let whole = json!({"choices":[{"message":{"content":answer},"finish_reason":"stop"}]});
    for think_tags in [ThinkTags::Both, ThinkTags::Open] {
        let mut out = Vec::new();
        let mut decoder = ChunkDecoder::new(&quirks(think_tags));
        decoder.decode_whole(&whole.to_string(), &mut out).unwrap();
        assert_eq!(
            out[..2],
            [
                reasoning("They want it.", "reasoning_content"),
                text("Cold.")
            ]
        );
    }
    let chunk = |content: &str| json!({"choices":[{"delta":{"content":content}}]});
    let mut decoder = ChunkDecoder::new(&quirks(ThinkTags::Both));
    assert_eq!(
        events(&mut decoder, &chunk("They want it.\n</th")),
        [text("They want it.")]
    );
    assert_eq!(
        events(&mut decoder, &chunk("ink>\n\nCold.")),
        [
            ModelEvent::TextWasReasoning {
                field: "reasoning_content"
            },
            text("Cold.")
        ]
    );
}
