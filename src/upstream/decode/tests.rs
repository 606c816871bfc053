use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::openai::event::ToolCallDelta;
use crate::openai::tool::CallKind;

fn events(decoder: &mut ChunkDecoder, chunk: &Value) -> Vec<ModelEvent> {
    let mut out = Vec::new();
    decoder.decode(&chunk.to_string(), &mut out).unwrap();
    out
}

fn plain() -> ChunkDecoder {
    ChunkDecoder::new(&Quirks::default())
}

fn delta(delta: &Value) -> Vec<ModelEvent> {
    events(
        &mut plain(),
        &json!({"id":"x","object":"chat.completion.chunk","created":1,
            "choices":[{"index":0,"delta":delta,"finish_reason":null}]}),
    )
}

fn text(text: &str) -> ModelEvent {
    ModelEvent::Text(text.into())
}

fn reasoning(text: &str, field: &'static str) -> ModelEvent {
    let text = text.into();
    ModelEvent::Reasoning { text, field }
}

fn call(change: impl FnOnce(&mut ToolCallDelta)) -> ModelEvent {
    let mut call = ToolCallDelta::default();
    change(&mut call);
    ModelEvent::ToolCall(call)
}

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
fn reasoning_is_read_in_every_spelling_and_once() {
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
fn tool_calls_are_read_in_every_form() {
    for (entry, expected) in [
        (
            json!({"index":1,"id":"c","type":"function","function":{"name":"f","arguments":""}}),
            call(|call| {
                call.index = Some(1);
                call.id = Some("c".into());
                call.name = Some("f".into());
            }),
        ),
        (
            json!({"index":"2","id":"","function":{"name":"","arguments":"{\""}}),
            call(|call| {
                call.index = Some(2);
                call.arguments = Some("{\"".into());
            }),
        ),
        (
            json!({"index":null,"id":null,"function":{"name":"f","arguments":{"a":1.50}}}),
            call(|call| {
                call.name = Some("f".into());
                call.arguments = Some(r#"{"a":1.5}"#.into());
                call.whole = true;
            }),
        ),
        (
            json!({"id":"c","name":"f","arguments":"{}"}),
            call(|call| {
                call.id = Some("c".into());
                call.name = Some("f".into());
                call.arguments = Some("{}".into());
            }),
        ),
        (
            json!({"index":0,"type":"custom","custom":{"name":"g","input":"free"}}),
            call(|call| {
                call.index = Some(0);
                call.name = Some("g".into());
                call.arguments = Some("free".into());
                call.kind = CallKind::Custom;
            }),
        ),
        (
            json!({"id":"c","function":{"name":"f","arguments":null}}),
            call(|call| {
                call.id = Some("c".into());
                call.name = Some("f".into());
            }),
        ),
    ] {
        assert_eq!(
            delta(&json!({"tool_calls":[entry]})),
            vec![expected.clone()],
            "{entry}"
        );
        assert_eq!(delta(&json!({"tool_calls":entry})), [expected], "{entry}");
    }
    assert_eq!(
        delta(&json!({"tool_calls":[{"index":0}],"content":null})),
        []
    );
    assert_eq!(delta(&json!({"tool_calls":[]})), []);
    assert_eq!(delta(&json!({"tool_calls":null})), []);
    assert_eq!(
        delta(&json!({"function_call":{"name":"f","arguments":"{"}})),
        [call(|call| {
            call.index = Some(0);
            call.name = Some("f".into());
            call.arguments = Some("{".into());
        })]
    );
}

#[test]
fn calls_of_one_delta_without_index_are_told_apart_by_position() {
    let two = delta(
        &json!({"tool_calls":[{"function":{"name":"f","arguments":"{}"}},{"function":{"name":"f","arguments":"{}"}}]}),
    );
    let indexes: Vec<_> = two
        .iter()
        .map(|event| match event {
            ModelEvent::ToolCall(call) => call.index,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(indexes, [Some(0), Some(1)]);
}

#[test]
fn unknown_fields_are_kept_and_nulls_dropped() {
    let chunk = json!({"id":"x","object":"o","created":1,"model":"m","system_fingerprint":"fp","nothing":null,
        "choices":[{"index":0,"logprobs":{"content":[]},"delta":{"content":"a","refusal":null,"audio":{"id":1}},
            "stop_reason":null}],"usage":null});
    let mut decoder = plain();
    let kept = |key: &str, value: &str| vec![(key.to_owned(), value.into())];
    assert_eq!(
        events(&mut decoder, &chunk),
        [
            ModelEvent::Model("m".into()),
            ModelEvent::ChunkExtra(kept("system_fingerprint", "\"fp\"")),
            ModelEvent::DeltaExtra(kept("audio", r#"{"id":1}"#)),
            text("a"),
            ModelEvent::ChoiceExtra(kept("logprobs", r#"{"content":[]}"#)),
        ]
    );
    assert!(!events(&mut decoder, &chunk).contains(&ModelEvent::Model("m".into())));
    assert_eq!(
        events(
            &mut decoder,
            &json!({"model":"n","choices":[{"delta":{},"finish_reason":"stop","stop_reason":7}]})
        ),
        [
            ModelEvent::Model("n".into()),
            ModelEvent::Finish(FinishReason::Stop),
            ModelEvent::ChoiceExtra(kept("stop_reason", "7")),
        ]
    );
}

#[test]
fn chunks_without_a_choice_are_fine() {
    let usage = json!({"prompt_tokens":1,"completion_tokens":2});
    for choices in [json!([]), json!(null)] {
        let mut decoder = plain();
        let got = events(&mut decoder, &json!({"choices":choices,"usage":usage}));
        assert_eq!(
            got,
            [ModelEvent::Usage(Usage::parse(&usage.to_string()).unwrap())]
        );
        assert!(!decoder.finished());
    }
    assert_eq!(events(&mut plain(), &json!({"usage":null})), []);
    assert_eq!(events(&mut plain(), &json!({"choices":[{"index":0}]})), []);
    assert_eq!(
        events(&mut plain(), &json!({"choices":[{"index":0,"delta":null}]})),
        []
    );
}

#[test]
fn only_the_first_choice_is_used() {
    let got = events(
        &mut plain(),
        &json!({"choices":[{"index":1,"delta":{"content":"no"},"finish_reason":"stop"},
            {"index":0,"delta":{"content":"yes"}},{"index":2,"delta":{"content":"no"}}]}),
    );
    assert_eq!(got, [text("yes")]);
    assert_eq!(
        events(
            &mut plain(),
            &json!({"choices":[{"index":1,"delta":{"content":"no"}}]})
        ),
        []
    );
}

#[test]
fn a_message_counts_only_where_no_deltas_come() {
    let message = json!({"role":"assistant","content":"whole","tool_calls":[
        {"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]});
    let got = events(
        &mut plain(),
        &json!({"choices":[{"message":message,"finish_reason":"tool_calls"}]}),
    );
    let whole_call = call(|call| {
        call.index = Some(0);
        call.id = Some("c".into());
        call.name = Some("f".into());
        call.arguments = Some("{}".into());
        call.whole = true;
    });
    assert_eq!(
        got,
        [
            text("whole"),
            whole_call,
            ModelEvent::Finish(FinishReason::ToolCalls)
        ]
    );
    let mut decoder = plain();
    let cumulative = |piece: &str, all: &str| json!({"choices":[{"index":0,"delta":{"content":piece},"message":{"content":all}}]});
    assert_eq!(events(&mut decoder, &cumulative("a", "a")), [text("a")]);
    assert_eq!(events(&mut decoder, &cumulative("b", "ab")), [text("b")]);
    assert_eq!(
        events(
            &mut decoder,
            &json!({"choices":[{"index":0,"delta":{},"message":{"content":"ab"},"finish_reason":"stop"}]})
        ),
        [ModelEvent::Finish(FinishReason::Stop)]
    );
}

#[test]
fn reported_errors_are_told_from_chunks() {
    for (data, expected) in [
        (r#"{"error":{"message":"m"}}"#, r#"{"message":"m"}"#),
        (r#"{"error":"text","choices":[]}"#, r#""text""#),
        (
            r#"{"object":"error","message":"m","code":500}"#,
            r#"{"object":"error","message":"m","code":500}"#,
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
fn what_is_no_chunk_is_refused_without_quoting_it() {
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
fn think_tags_are_split_where_the_server_needs_it() {
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

#[test]
fn a_whole_answer_gives_the_same_events() {
    let body = json!({"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,
        "message":{"role":"assistant","content":"a","reasoning":"r","refusal":null,
            "function_call":{"name":"f","arguments":"{}"}},"logprobs":null,"finish_reason":"function_call"}],
        "usage":{"total_tokens":3}});
    let mut out = Vec::new();
    plain().decode_whole(&body.to_string(), &mut out).unwrap();
    assert_eq!(
        out,
        [
            ModelEvent::Model("m".into()),
            reasoning("r", "reasoning"),
            text("a"),
            call(|call| {
                call.index = Some(0);
                call.name = Some("f".into());
                call.arguments = Some("{}".into());
                call.whole = true;
            }),
            ModelEvent::Finish(FinishReason::ToolCalls),
            ModelEvent::Usage(Usage::parse(r#"{"total_tokens":3}"#).unwrap()),
        ]
    );
    let mut out = Vec::new();
    let no_finish = r#"{"choices":[{"message":{"content":"a"}}]}"#;
    plain().decode_whole(no_finish, &mut out).unwrap();
    assert_eq!(out, [text("a"), ModelEvent::Finish(FinishReason::Stop)]);
    assert!(plain().decode_whole("{}", &mut Vec::new()).is_err());
}

#[test]
fn a_server_cannot_speak_in_our_name() {
    let chunk = json!({"session_id":"s","agent":{},"type":"t","agentic_tool_calls":[],"files":[],
        "round":1,"tool_name":"n","tool_call_id":"c","phase":"calling","data":{},"notice":{},"file":{},
        "status":"ok","duration_ms":1,"file_ids":[],"text":"x","stream":"stdout","obfuscation":"abc","object":1,
        "id":"i","created":2,"kept":3,
        "choices":[{"delta":{"content":"a","obfuscation":"de","refusal":"r"},"obfuscation":"f"}]});
    assert_eq!(
        events(&mut plain(), &chunk),
        [
            ModelEvent::ChunkExtra(vec![("kept".into(), "3".into())]),
            ModelEvent::DeltaExtra(vec![("refusal".into(), "\"r\"".into())]),
            text("a"),
        ]
    );
}

#[test]
fn chunk_fields_are_passed_on_when_they_change() {
    let mut decoder = plain();
    let chunk = |fingerprint: &str| json!({"system_fingerprint":fingerprint,"choices":[]});
    assert_eq!(events(&mut decoder, &chunk("a")).len(), 1);
    assert_eq!(events(&mut decoder, &chunk("a")), []);
    assert_eq!(events(&mut decoder, &chunk("b")).len(), 1);
    assert_eq!(events(&mut decoder, &json!({"choices":[]})), []);
}

#[test]
fn raw_values_are_one_line_whatever_they_came_in() {
    let chunk = "{\n\"x\":{\r\n\"y\": [1,\n2]},\"choices\":[{\"logprobs\":{\r},\"delta\":{\"annotations\":[\n],\"tool_calls\":[{\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":{\n}}}]}}]}\n";
    for whole in [false, true] {
        let mut out = Vec::new();
        let mut decoder = plain();
        if whole {
            decoder.decode_whole(chunk, &mut out).unwrap();
        } else {
            decoder.decode(chunk, &mut out).unwrap();
        }
        assert_eq!(out.len(), 4 + usize::from(whole), "{out:?}");
        for event in out {
            let values = match event {
                ModelEvent::ChunkExtra(fields)
                | ModelEvent::ChoiceExtra(fields)
                | ModelEvent::DeltaExtra(fields) => fields[0].1.to_string(),
                ModelEvent::ToolCall(call) => call.arguments.unwrap(),
                _ => continue,
            };
            assert!(!values.contains(['\n', '\r']), "{values:?}");
        }
    }
    for error in ["{\"error\":{\n\"a\":1}}", "{\"object\":\r\"error\"}"] {
        match plain().decode(error, &mut Vec::new()) {
            Err(DecodeError::Reported(json)) => assert!(!json.contains(['\n', '\r']), "{json:?}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_is_kept_of_one_answer_is_bounded() {
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

#[test]
fn chunks_that_differ_in_their_text_only_are_not_parsed_again() {
    let learns = |chunk: &str| {
        let mut decoder = plain();
        decoder.decode(chunk, &mut Vec::new()).unwrap();
        decoder.previous.text_of(chunk).is_some()
    };
    for chunk in [
        r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"x"},"logprobs":null,"finish_reason":null}]}"#,
        r#"{"system_fingerprint":"f","choices":[{"index":0,"delta":{"role":"assistant","reasoning":"\n","content":""}}],"usage":null,"obfuscation":"a1"}"#,
    ] {
        assert!(learns(chunk), "{chunk}");
    }
    for chunk in [
        r#"{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}"#,
        r#"{"choices":[{"delta":{"content":"x","refusal":"r"}}]}"#,
        r#"{"choices":[{"delta":{"content":"x","reasoning":"r"}}]}"#,
        r#"{"choices":[{"delta":{"content":["x"]}}]}"#,
        r#"{"choices":[{"delta":{"content":"x"},"logprobs":{}}]}"#,
        r#"{"choices":[{"delta":{"content":"x"}}],"usage":{"total_tokens":1}}"#,
        r#"{"choices":[{"message":{"content":"x"}}]}"#,
    ] {
        assert!(!learns(chunk), "{chunk}");
    }
}

/// A piece of a chunk's text as it stands in the JSON, right or wrong.
fn json_piece() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-zä😀 ,:{}\\[\\]]{0,6}",
        1 => prop::sample::select(vec![
            "\\n", "\\\"", "\\\\", "\\u00e4", "\\ud83d\\ude00", "\\ud83d", "\\", "\"", "\n", "<think>", "</think>",
            "\",\"x\":\"", "\"},\"finish_reason\":\"stop",
        ])
        .prop_map(str::to_owned),
    ]
}

proptest! {
    #[test]
    fn a_known_pattern_says_what_parsing_says(
        chunks in prop::collection::vec((0..8_usize, json_piece()), 1..16),
        think_tags: bool,
    ) {
        let quirks = Quirks { think_tags, ..Quirks::default() };
        let mut fast = ChunkDecoder::new(&quirks);
        let mut slow = ChunkDecoder::new(&quirks);
        for (shape, text) in chunks {
            let data = match shape {
                0..=2 => format!(r#"{{"model":"m","choices":[{{"index":0,"delta":{{"content":"{text}"}},"logprobs":null}}]}}"#),
                3 => format!(r#"{{"model":"m","choices":[{{"index":0,"delta":{{"content":"a"}},"logprobs":null}}],"obfuscation":"{text}"}}"#),
                4 => format!(r#"{{"model":"m","choices":[{{"index":0,"delta":{{"content":"{text}"}}}}],"obfuscation":"aB3"}}"#),
                5 => format!(r#"{{"choices":[{{"index":0,"delta":{{"reasoning":"{text}","content":null}}}}]}}"#),
                6 => format!(r#"{{"x":"{text}","choices":[{{"index":0,"delta":{{"content":"b"}}}}]}}"#),
                _ => format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"b"}},"finish_reason":"{text}"}}]}}"#),
            };
            let (mut got, mut expected) = (Vec::new(), Vec::new());
            slow.previous.forget();
            let result = slow.decode(&data, &mut expected);
            prop_assert_eq!(fast.decode(&data, &mut got), result, "{}", data);
            prop_assert_eq!(got, expected, "{}", data);
        }
    }
}
