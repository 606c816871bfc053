//! Chunks that differ from the previous one only in their text.

use proptest::prelude::*;

use super::*;

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
    fn the_fast_path_gives_the_same_events_as_parsing(
        chunks in prop::collection::vec((0..8_usize, json_piece()), 1..16),
        think_tags in prop::sample::select(vec![ThinkTags::Off, ThinkTags::Both, ThinkTags::Open]),
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
