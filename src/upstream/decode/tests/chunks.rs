//! The fields of a chunk, choices and whole responses.

use super::*;

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
            ModelEvent::Finish(AnswerEnd::Reason(FinishReason::Stop)),
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
fn all_choices_are_parts_of_one_answer() {
    let got = events(
        &mut plain(),
        &json!({"choices":[{"index":1,"delta":{"content":"a"}}, {"index":0,"delta":{"content":"b"}},
            {"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}),
    );
    let piece = call(|call| {
        call.index = Some(0);
        call.id = Some("c".into());
        call.name = Some("f".into());
        call.arguments = Some("{}".into());
    });
    let end = ModelEvent::Finish(AnswerEnd::Reason(FinishReason::ToolCalls));
    assert_eq!(got, [text("a"), text("b"), piece, end]);
}

#[test]
fn a_finish_comes_again_when_it_changes() {
    let mut decoder = plain();
    let finish = |word: &str| json!({"choices":[{"delta":{},"finish_reason":word}]});
    let stop = ModelEvent::Finish(AnswerEnd::Reason(FinishReason::Stop));
    assert_eq!(events(&mut decoder, &finish("stop")), [stop]);
    assert_eq!(events(&mut decoder, &finish("STOP")), []);
    assert_eq!(events(&mut decoder, &finish("null")), []);
    assert!(decoder.is_complete());
    let failed = ModelEvent::Finish(AnswerEnd::Failed("abort".into()));
    assert_eq!(events(&mut decoder, &finish("abort")), [failed]);
    assert!(decoder.finished() && !decoder.is_complete());
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
            ModelEvent::Finish(AnswerEnd::Reason(FinishReason::ToolCalls))
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
        [ModelEvent::Finish(AnswerEnd::Reason(FinishReason::Stop))]
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
            ModelEvent::Finish(AnswerEnd::Reason(FinishReason::ToolCalls)),
            ModelEvent::Usage(Usage::parse(r#"{"total_tokens":3}"#).unwrap()),
        ]
    );
    let mut out = Vec::new();
    let no_finish = r#"{"choices":[{"message":{"content":"a"}}]}"#;
    plain().decode_whole(no_finish, &mut out).unwrap();
    assert_eq!(out, [text("a"), ModelEvent::Finish(AnswerEnd::Unstated)]);
    let mut out = Vec::new();
    let behind_it = format!("{no_finish}\n\ndata: [DONE]\n\n");
    plain().decode_whole(&behind_it, &mut out).unwrap();
    assert_eq!(out.len(), 2);
    assert!(plain().decode_whole("{}", &mut Vec::new()).is_err());
}

#[test]
fn an_upstream_cannot_forge_fields_of_loopwright() {
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
fn raw_values_are_one_line() {
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
