mod append;
mod replay;

use serde_json::{Value, json};

use super::super::View;
use super::*;

fn message(value: &Value) -> Message {
    Message::parse(&value.to_string()).unwrap()
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

fn system(text: &str) -> Value {
    json!({"role": "system", "content": text})
}

fn calls(ids: &[&str]) -> Value {
    let list: Vec<Value> = ids
        .iter()
        .map(|id| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}}))
        .collect();
    json!({"role": "assistant", "content": null, "tool_calls": list})
}

fn result(id: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": "42"})
}

fn visible(value: &Value) -> StoredMessage {
    StoredMessage {
        message: message(value),
        hidden: false,
        view: None,
        full_text: None,
        sources: Vec::new(),
    }
}

fn hidden(value: &Value) -> StoredMessage {
    StoredMessage {
        hidden: true,
        ..visible(value)
    }
}

fn with_view(value: &Value, text: &str, final_text: &str, call_ids: &[&str]) -> StoredMessage {
    StoredMessage {
        view: Some(View {
            run: None,
            completion: None,
            removed: Vec::new(),
            text: text.into(),
            final_text: final_text.into(),
            behind_wait: None,
            call_ids: call_ids.iter().map(|&id| id.into()).collect(),
        }),
        ..visible(value)
    }
}

fn session(messages: Vec<StoredMessage>) -> StoredSession {
    StoredSession {
        instructions: vec![message(&system("s"))],
        messages,
        ..StoredSession::default()
    }
}

/// Two questions: one answered after a hidden round, one after a batch with client tools and a server-side tool.
fn conversation() -> StoredSession {
    session(vec![
        visible(&user("one")),
        hidden(&calls(&["s1"])),
        hidden(&result("s1")),
        with_view(&assistant("first"), "thinking\n\nfirst", "first", &[]),
        visible(&user("two")),
        hidden(&calls(&["s2", "c1", "c2"])),
        StoredMessage {
            hidden: true,
            ..with_view(&result("s2"), "wait", "wait", &["c1", "c2"])
        },
        visible(&result("c1")),
        visible(&result("c2")),
        with_view(&assistant("second"), "second", "second", &[]),
    ])
}

#[track_caller]
fn check(
    stored: &StoredSession,
    mode: SessionMode,
    incoming: &[Value],
    keep: usize,
    new: &[Value],
) {
    let merged = plan(stored, incoming.iter().map(message).collect(), mode);
    let expected = MergePlan {
        instructions: None,
        keep,
        new: new.iter().map(message).collect(),
    };
    assert_eq!(merged, expected);
}

#[track_caller]
fn check_replay(stored: &StoredSession, incoming: &[Value], keep: usize, new: &[Value]) {
    check(stored, SessionMode::Replay, incoming, keep, new);
}

#[test]
fn instructions_are_not_part_of_the_comparison() {
    let stored = conversation();
    for (leading, expected) in [
        (vec![], None),
        (vec![system("s")], None),
        (vec![system("t")], Some(vec![message(&system("t"))])),
        (
            vec![system("s"), json!({"role": "developer", "content": "d"})],
            Some(vec![
                message(&system("s")),
                message(&json!({"role": "developer", "content": "d"})),
            ]),
        ),
    ] {
        let mut incoming: Vec<Message> = leading.iter().map(message).collect();
        incoming.push(message(&user("three")));
        let merged = plan(&stored, incoming, SessionMode::Auto);
        assert_eq!(merged.instructions, expected);
        assert_eq!(merged.keep, 10);
        let history = history(&stored, &merged);
        let instructions = expected.unwrap_or_else(|| stored.instructions.clone());
        assert_eq!(history[..instructions.len()], instructions);
        assert_eq!(history.len(), instructions.len() + 11);
        assert_eq!(history.last(), Some(&message(&user("three"))));
    }
}

#[test]
fn all_messages_are_appended_to_a_new_session() {
    let incoming = [user("one"), assistant("first"), user("two")];
    for mode in [SessionMode::Auto, SessionMode::Replay, SessionMode::Append] {
        check(&session(vec![]), mode, &incoming, 0, &incoming);
    }
}
