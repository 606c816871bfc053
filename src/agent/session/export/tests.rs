//! Tests of exports and imports.

mod refusals;

use proptest::prelude::*;
use serde_json::json;

use super::super::SessionMode;
use super::super::merge::{history, plan};
use super::*;

const MAX: usize = 100;

fn id() -> SessionId {
    SessionId::parse("s-1").unwrap()
}

fn stored(json: &str) -> StoredMessage {
    StoredMessage {
        message: Message::parse(json).unwrap(),
        hidden: false,
        view: None,
        full_text: None,
        sources: Vec::new(),
    }
}

fn sample() -> StoredSession {
    StoredSession {
        metadata: None,
        instructions: vec![Message::parse(r#"{"role":"system", "content":"be kind"}"#).unwrap()],
        messages: vec![
            stored("{ \"role\":\"user\",\n\"content\":\"gr\\u00fc\\u00df\", \"x\": 1.50 }"),
            StoredMessage {
                hidden: true,
                ..stored(
                    r#"{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}"#,
                )
            },
            StoredMessage {
                hidden: true,
                full_text: Some("long\nlong".into()),
                ..stored(r#"{"role":"tool","tool_call_id":"a","content":"long…"}"#)
            },
            StoredMessage {
                view: Some(View {
                    run: None,
                    completion: None,
                    removed: Vec::new(),
                    text: "t\n\nf".into(),
                    final_text: "f".into(),
                    behind_wait: None,
                    call_ids: vec!["c".into()],
                }),
                ..stored(
                    r#"{"role":"assistant","content":"f","big":123456789012345678901234567890}"#,
                )
            },
            stored(r#"{"role":"system","content":"a later one"}"#),
        ],
        created_at: 1_700_000_000,
        updated_at: 1_700_000_001,
        last_run: None,
        turn: None,
    }
}

#[track_caller]
fn invalid_param(json: &str, max_messages: usize) -> (String, String) {
    match import(json, max_messages) {
        Err(error) => (error.param.unwrap(), error.message),
        Ok(session) => panic!("{json}: {session:?}"),
    }
}

#[test]
fn an_export_holds_the_messages_as_they_are() {
    let expected = concat!(
        r#"{"id":"s-1","object":"session","created_at":1700000000,"updated_at":1700000001,"running":null,"last_run":null,"messages":["#,
        r#"{"role":"system", "content":"be kind"},"#,
        "{ \"role\":\"user\",\n\"content\":\"gr\\u00fc\\u00df\", \"x\": 1.50 },",
        r#"{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},"#,
        r#"{"role":"tool","tool_call_id":"a","content":"long…"},"#,
        r#"{"role":"assistant","content":"f","big":123456789012345678901234567890},"#,
        r#"{"role":"system","content":"a later one"}],"files":[],"#,
        r#""stats":{"message_count":6,"user_messages":1,"assistant_messages":2,"tool_calls":1},"#,
        r#""agent":{"message_meta":[{"index":2,"hidden":true},{"index":3,"hidden":true,"full_text":"long\nlong"},"#,
        r#"{"index":4,"view":{"text":"t\n\nf","final_text":"f","call_ids":["c"]}}]}}"#,
    );
    assert_eq!(export(&id(), &sample(), &[], None), expected);
}

#[test]
fn an_export_comes_back_as_it_was() {
    for session in [
        sample(),
        StoredSession {
            created_at: 0,
            ..StoredSession::default()
        },
    ] {
        let json = export(&id(), &session, &[], None);
        let back = import(&json, MAX).unwrap();
        assert_eq!(back, session);
        assert_eq!(export(&id(), &back, &[], None), json);
    }
}

#[test]
fn the_run_of_an_answer_that_no_request_continues_is_not_exported() {
    let mut session = sample();
    let view = session
        .messages
        .iter_mut()
        .find_map(|stored| stored.view.as_mut());
    view.unwrap().completion = Some("0123456789abcdef".to_owned());
    let json = export(&id(), &session, &[], None);
    assert_eq!(json, export(&id(), &sample(), &[], None));
}

#[test]
fn a_hidden_instruction_at_the_front_is_no_instruction() {
    let mut session = sample();
    session.instructions.clear();
    session.messages.insert(
        0,
        StoredMessage {
            hidden: true,
            ..stored(r#"{"role":"system","content":"x"}"#)
        },
    );
    assert_eq!(
        import(&export(&id(), &session, &[], None), MAX).unwrap(),
        session
    );
}

#[test]
fn unanswered_calls_stay_unanswered() {
    let json = r#"{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}]}"#;
    assert_eq!(import(json, MAX).unwrap().messages.len(), 2);
}

#[test]
fn plain_messages_are_enough() {
    let session = import(
        r#"{"messages":[{"role":"developer","content":"d"},{"role":"user","content":"u"}],"title":"?","agent":null}"#,
        MAX,
    )
    .unwrap();
    assert_eq!(session.instructions.len(), 1);
    assert_eq!(
        session.messages,
        [stored(r#"{"role":"user","content":"u"}"#)]
    );
    assert!(session.created_at > 1_700_000_000);
}

#[test]
fn an_export_of_mistral_rs_is_read() {
    let foreign = json!({
        "messages": [
            {"role": "system", "content": {"Left": "be kind"}},
            {"role": {"Left": "user"}, "content": {"Right": [
                {"type": "image"}, {"type": "text", "text": {"Left": "what is it?"}}, {"type": "image"},
            ]}},
            {"role": "assistant", "content": {"Left": ""}, "reasoning_content": "hm", "tool_calls": {"Right": [
                {"function": {"name": "mistralrs_search", "arguments": {"query": {"Left": "cats"}}}},
            ]}},
            {"role": "tool", "name": "mistralrs_search", "content": {"Left": "a cat"}},
            {"role": "assistant", "content": "", "tool_calls": [
                {"type": "function", "function": {"name": "f", "arguments": {}}},
            ]},
            {"role": "tool", "name": "f", "content": "42"},
        ],
        "images": ["aGk="],
        "videos": [],
        "files": [],
    });
    let session = import(&foreign.to_string(), MAX).unwrap();
    let messages: Vec<Value> = session
        .messages
        .iter()
        .map(|stored| serde_json::from_str(stored.message.json_str()).unwrap())
        .collect();
    let call_id = |index: usize| messages[index]["tool_calls"][0]["id"].clone();
    assert!(call_id(1).as_str().unwrap().starts_with("call_"));
    assert_ne!(call_id(1), call_id(3));
    assert_eq!(
        messages,
        [
            json!({"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
                {"type": "text", "text": "what is it?"},
                {"type": "text", "text": "[image]"},
            ]}),
            json!({"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [
                {"id": call_id(1), "type": "function",
                    "function": {"name": "mistralrs_search", "arguments": "{\"query\":{\"Left\":\"cats\"}}"}},
            ]}),
            json!({"role": "tool", "tool_call_id": call_id(1), "name": "mistralrs_search", "content": "a cat"}),
            json!({"role": "assistant", "content": "", "tool_calls": [
                {"id": call_id(3), "type": "function", "function": {"name": "f", "arguments": "{}"}},
            ]}),
            json!({"role": "tool", "tool_call_id": call_id(3), "name": "f", "content": "42"}),
        ]
    );
    let hidden: Vec<bool> = session
        .messages
        .iter()
        .map(|stored| stored.hidden)
        .collect();
    assert_eq!(hidden, [false, true, true, true, true]);
    assert_eq!(session.instructions[0].content_text(), "be kind");
    let again = export(&id(), &session, &[], None);
    assert_eq!(import(&again, MAX).unwrap().messages, session.messages);

    // Its clients send the final answer, which it does not store, with the next question.
    let next = [
        session.messages[0].message.json_str(),
        r#"{"role":"assistant","content":"a cat"}"#,
        r#"{"role":"user","content":"sure?"}"#,
    ];
    let next: Vec<Message> = next
        .iter()
        .map(|text| Message::parse(text).unwrap())
        .collect();
    let merged = plan(&session, next, SessionMode::Auto);
    assert_eq!(merged.keep, 5);
    assert_eq!(history(&session, &merged).len(), 8);
}

fn stored_message() -> impl Strategy<Value = StoredMessage> {
    let json = prop::sample::select(vec![
        r#"{"role":"user","content":"u"}"#,
        r#"{"role":"system","content":"s"}"#,
        r#"{"role":"assistant","content":"a"}"#,
        r#"{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}"#,
        r#"{"role":"tool","tool_call_id":"a","content":"r"}"#,
        r#"{"role":"tool","content":"without an id"}"#,
    ]);
    let view = (
        ".{0,4}",
        ".{0,4}",
        prop::collection::vec("[a-z]{0,3}", 0..2),
    )
        .prop_map(|(text, final_text, call_ids)| View {
            run: None,
            completion: None,
            removed: Vec::new(),
            text,
            final_text,
            behind_wait: None,
            call_ids,
        });
    let full_text = prop::option::of(".{0,8}");
    (json, any::<bool>(), prop::option::of(view), full_text).prop_map(
        |(json, hidden, view, full_text)| StoredMessage {
            hidden,
            view,
            full_text,
            ..stored(json)
        },
    )
}

proptest! {
    #[test]
    fn every_export_comes_back(
        instructions in 0..3_usize,
        messages in prop::collection::vec(stored_message(), 1..8),
        created_at in 0..i64::MAX,
    ) {
        // A history without anything known of it is completed where ids are missing, so one message has a view.
        let mut messages = messages;
        messages[0].view = Some(View::default());
        let session = StoredSession {
            metadata: None,
            instructions: vec![Message::text(Role::Developer, "d"); instructions],
            messages,
            created_at,
            updated_at: created_at,
            last_run: None,
            turn: None,
        };
        let json = export(&id(), &session, &[], None);
        let back = import(&json, MAX).unwrap();
        prop_assert_eq!(export(&id(), &back, &[], None), json);
        prop_assert_eq!(back, session);
    }

    #[test]
    fn a_damaged_export_never_panics(place in any::<prop::sample::Index>(), with in prop::sample::select(vec!["", "{", "[", "]", "-", "9999999999999999999999", "null", "\"", "\\ud800"])) {
        let json = export(&id(), &sample(), &[], None);
        let mut places = json.char_indices().map(|(index, _)| index);
        let place = places.nth(place.index(json.chars().count())).unwrap();
        let (before, after) = json.split_at(place);
        let after: String = after.chars().skip(1).collect();
        let damaged = format!("{before}{with}{after}");
        if let Err(error) = import(&damaged, MAX) {
            prop_assert!(error.param.is_some(), "{error:?}");
        }
    }
}
