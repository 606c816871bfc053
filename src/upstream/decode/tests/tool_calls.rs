//! Tool calls of a delta.

use super::*;
use protocol::openai::tool::CallKind;

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
fn calls_of_one_delta_without_index_are_distinguished_by_position() {
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
