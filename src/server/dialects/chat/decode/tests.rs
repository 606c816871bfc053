use super::*;

fn decoded(json: &str) -> DecodedChat {
    let head = RequestHead {
        max_messages: 2,
        ..RequestHead::default()
    };
    decode(&Bytes::copy_from_slice(json.as_bytes()), &head).unwrap()
}

/// The fields that are wrong, in the order in which they are looked at.
fn fault(json: &str, scope: FaultScope) -> Option<String> {
    decoded(json).decoded.faults.check(scope).err()?.param
}

#[test]
fn faults_name_the_invalid_field() {
    use FaultScope::{Extensions, Head, Request, Tools, Turn};
    for (json, scope, expected) in [
        ("{}", Head, "model"),
        (r#"{"model":3}"#, Head, "model"),
        (r#"{"model":"m","stream":"yes"}"#, Turn, "stream"),
        (
            r#"{"model":"m","stream_options":1}"#,
            Turn,
            "stream_options",
        ),
        (r#"{"model":"m","n":"two"}"#, Turn, "n"),
        (r#"{"model":"m","tools":{}}"#, Request, "tools"),
        (r#"{"model":"m","tools":[3]}"#, Tools, "tools[0]"),
        (
            r#"{"model":"m","agent":{"progress":"loud"}}"#,
            Extensions,
            "agent.progress",
        ),
        (
            r#"{"model":"m","agent":{"progress":3}}"#,
            Extensions,
            "agent.progress",
        ),
    ] {
        assert_eq!(fault(json, scope).as_deref(), Some(expected), "{json}");
    }
}

#[test]
fn messages_are_read_once_the_request_is_a_turn() {
    let param = |json: &str| {
        let messages = decoded(json).decoded.draft.input.messages;
        messages.read().unwrap_err().param.unwrap()
    };
    for (json, expected) in [
        (r#"{"model":"m"}"#, "messages"),
        (r#"{"model":"m","messages":null}"#, "messages"),
        (r#"{"model":"m","messages":{}}"#, "messages"),
        (
            r#"{"model":"m","messages":[{"role":"user"},{}]}"#,
            "messages[1]",
        ),
        (
            r#"{"model":"m","messages":[{"role":"user"},{"role":"user"},{"role":"user"}]}"#,
            "messages",
        ),
    ] {
        assert_eq!(param(json), expected, "{json}");
    }
}

#[test]
fn a_draft_comes_back_from_its_text() {
    let json = r#"{"model":"m","user":"u","temperature":0.5,"stream":true,"session_id":"s","enable_code_execution":true,
        "files":[{"name":"a.csv"}],"web_search_options":{"search_context_size":"low"},"tool_choice":"required",
        "agent":{"tools":{"deny":["x*"]},"permissions":[{"tool":"t","effect":"ask"}],"limits":{"max_seconds":1.5},"text":"final"},
        "tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}},{"type":"web_search"}]}"#;
    let draft = decoded(json).decoded.draft;
    let text = serde_json::to_string(&draft).unwrap();
    let read: TurnDraft = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
    assert_eq!(read.options, draft.options);
    assert_eq!(read.permissions, draft.permissions);
    let members =
        r#""user":"u","temperature":0.5,"web_search_options":{"search_context_size":"low"}"#;
    assert_eq!(&*read.call.members, members);
}
