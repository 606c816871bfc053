use serde_json::{Value, json};

use super::super::View;
use super::*;

fn message(value: &Value) -> Message {
    Message::parse(&value.to_string()).unwrap()
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn says(text: &str) -> Value {
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

fn seen(value: &Value, text: &str, final_text: &str, call_ids: &[&str]) -> StoredMessage {
    StoredMessage {
        view: Some(View {
            text: text.into(),
            final_text: final_text.into(),
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

/// A question answered after one hidden round, and one answered after a call of the client's and a server-side one.
fn conversation() -> StoredSession {
    session(vec![
        visible(&user("one")),
        hidden(&calls(&["s1"])),
        hidden(&result("s1")),
        seen(&says("first"), "thinking\n\nfirst", "first", &[]),
        visible(&user("two")),
        hidden(&calls(&["s2", "c1", "c2"])),
        StoredMessage {
            hidden: true,
            ..seen(&result("s2"), "wait", "wait", &["c1", "c2"])
        },
        visible(&result("c1")),
        visible(&result("c2")),
        seen(&says("second"), "second", "second", &[]),
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
    let joined = join(stored, incoming.iter().map(message).collect(), mode);
    let expected = Joined {
        instructions: None,
        keep,
        new: new.iter().map(message).collect(),
    };
    assert_eq!(joined, expected);
}

#[track_caller]
fn check_replay(stored: &StoredSession, incoming: &[Value], keep: usize, new: &[Value]) {
    check(stored, SessionMode::Replay, incoming, keep, new);
}

#[test]
fn a_replay_keeps_the_hidden_rounds() {
    let whole = [
        user("one"),
        says("thinking\n\nfirst"),
        user("two"),
        calls(&["c2", "c1"]),
        result("c1"),
        result("c2"),
        says("second"),
        user("three"),
    ];
    check_replay(&conversation(), &whole, 10, &[user("three")]);
    check(
        &conversation(),
        SessionMode::Auto,
        &whole,
        10,
        &[user("three")],
    );
}

#[test]
fn the_text_of_the_last_round_is_enough() {
    check_replay(
        &conversation(),
        &[user("one"), says(" first\n"), user("2")],
        4,
        &[user("2")],
    );
}

#[test]
fn content_parts_equal_the_plain_text() {
    let parts = json!({"role": "user", "content": [{"type": "text", "text": "one "}]});
    check_replay(
        &conversation(),
        &[parts, says("first"), user("x")],
        4,
        &[user("x")],
    );
}

#[test]
fn an_edit_leaves_the_rest_behind() {
    check_replay(&conversation(), &[user("ONE")], 0, &[user("ONE")]);
    check_replay(
        &conversation(),
        &[user("one"), says("edited"), user("x")],
        1,
        &[says("edited"), user("x")],
    );
    check_replay(
        &conversation(),
        &[user("one"), says("first"), user("two"), calls(&["other"])],
        5,
        &[calls(&["other"])],
    );
}

#[test]
fn a_regeneration_leaves_the_last_response_behind() {
    check_replay(&conversation(), &[user("one")], 1, &[]);
    let until_results = [
        user("one"),
        says("first"),
        user("two"),
        calls(&["c1", "c2"]),
        result("c2"),
        result("c1"),
    ];
    check_replay(&conversation(), &until_results, 9, &[]);
}

#[test]
fn calls_decide_where_there_are_any() {
    let mut with_text = calls(&["c1", "c2"]);
    with_text["content"] = "some other text".into();
    check_replay(
        &conversation(),
        &[
            user("one"),
            says("first"),
            user("two"),
            with_text,
            result("c1"),
        ],
        8,
        &[],
    );
    // The text alone does not show that the calls were made.
    check_replay(
        &conversation(),
        &[
            user("one"),
            says("first"),
            user("two"),
            says("wait"),
            user("x"),
        ],
        5,
        &[says("wait"), user("x")],
    );
}

#[test]
fn an_answer_split_into_text_and_calls_is_one() {
    for text in ["wait", ""] {
        check_replay(
            &conversation(),
            &[
                user("one"),
                says("first"),
                user("two"),
                says(text),
                calls(&["c1", "c2"]),
                result("c1"),
                result("c2"),
                user("x"),
            ],
            9,
            &[user("x")],
        );
    }
}

#[test]
fn an_empty_answer_may_be_shown_or_left_out() {
    let stored = session(vec![
        visible(&user("one")),
        hidden(&calls(&["s1"])),
        StoredMessage {
            hidden: true,
            ..seen(&result("s1"), "", "", &[])
        },
        visible(&user("two")),
        seen(&says("second"), "second", "second", &[]),
    ]);
    let null = json!({"role": "assistant", "content": null});
    for shown in [vec![], vec![null], vec![says("")]] {
        let mut incoming = vec![user("one")];
        incoming.extend(shown);
        incoming.extend([user("two"), says("second"), user("three")]);
        check_replay(&stored, &incoming, 5, &[user("three")]);
    }
    check_replay(&stored, &[user("one")], 1, &[]);
}

#[test]
fn rounds_of_a_broken_turn_stay() {
    let stored = session(vec![
        visible(&user("one")),
        hidden(&calls(&["s1"])),
        hidden(&result("s1")),
    ]);
    // The same request again, in either form, and with the bubble that a front end leaves of a broken answer.
    for mode in [SessionMode::Auto, SessionMode::Replay, SessionMode::Append] {
        check(&stored, mode, &[user("one")], 3, &[]);
    }
    check_replay(&stored, &[user("one"), says("")], 3, &[]);
    // The next question.
    check_replay(&stored, &[user("one"), user("two")], 3, &[user("two")]);
    check(
        &stored,
        SessionMode::Auto,
        &[user("two")],
        3,
        &[user("two")],
    );
    // What the client received of the answer before it broke.
    check_replay(
        &stored,
        &[user("one"), says("so f"), user("two")],
        3,
        &[says("so f"), user("two")],
    );
}

#[test]
fn rounds_of_a_broken_turn_stay_in_the_middle() {
    let stored = session(vec![
        visible(&user("one")),
        hidden(&calls(&["s1"])),
        hidden(&result("s1")),
        visible(&user("two")),
        seen(&says("second"), "second", "second", &[]),
    ]);
    check_replay(
        &stored,
        &[user("one"), user("two"), says("second"), user("three")],
        5,
        &[user("three")],
    );
    check_replay(&stored, &[user("one"), user("2")], 3, &[user("2")]);
    check_replay(&stored, &[user("one")], 1, &[]);
}

#[test]
fn an_append_keeps_everything() {
    check(
        &conversation(),
        SessionMode::Auto,
        &[user("three")],
        10,
        &[user("three")],
    );
    check(
        &conversation(),
        SessionMode::Append,
        &[says("mine"), user("three")],
        10,
        &[says("mine"), user("three")],
    );
    // The same words once more, after they were answered.
    check(
        &conversation(),
        SessionMode::Auto,
        &[user("two")],
        10,
        &[user("two")],
    );
}

#[test]
fn results_of_client_calls_are_appended_once() {
    let mut stored = conversation();
    stored.messages.truncate(7);
    let both = [result("c1"), result("c2")];
    check(&stored, SessionMode::Auto, &both, 7, &both);
    stored.messages.push(visible(&result("c1")));
    check(&stored, SessionMode::Auto, &both, 8, &both[1..]);
    stored.messages.push(visible(&result("c2")));
    check(&stored, SessionMode::Auto, &both, 9, &[]);
    check(
        &stored,
        SessionMode::Auto,
        &[result("c2"), user("x")],
        9,
        &[user("x")],
    );
    check(&stored, SessionMode::Auto, &[result("s2")], 9, &[]);
}

#[test]
fn repeated_results_ask_for_their_answer_again() {
    let both = [result("c1"), result("c2")];
    check(&conversation(), SessionMode::Auto, &both, 9, &[]);
    let mut later = conversation();
    later.messages.push(visible(&user("three")));
    later
        .messages
        .push(seen(&says("third"), "third", "third", &[]));
    check(&later, SessionMode::Auto, &both, 12, &[]);
}

#[test]
fn a_reused_call_id_is_answered_anew() {
    let stored = session(vec![
        visible(&calls(&["0"])),
        visible(&result("0")),
        visible(&calls(&["0"])),
    ]);
    check(
        &stored,
        SessionMode::Append,
        &[result("0")],
        3,
        &[result("0")],
    );
}

#[test]
fn an_imported_history_compares_as_it_stands() {
    let messages = [
        user("one"),
        calls(&["a"]),
        result("a"),
        calls(&["b"]),
        result("b"),
        says("first"),
        user("two"),
        says("second"),
    ];
    let stored = session(messages.iter().map(visible).collect());
    let mut whole = messages.to_vec();
    whole.push(user("three"));
    check_replay(&stored, &whole, 8, &[user("three")]);
    let without_rounds = [
        user("one"),
        says("first"),
        user("two"),
        says("second"),
        user("three"),
    ];
    check_replay(&stored, &without_rounds, 8, &[user("three")]);
    check_replay(
        &stored,
        &[user("one"), says("other"), user("x")],
        1,
        &[says("other"), user("x")],
    );
    // The rounds marked as hidden, without a view behind them.
    let mut marked = stored.clone();
    for stored in &mut marked.messages[1..5] {
        stored.hidden = true;
    }
    check_replay(&marked, &without_rounds, 8, &[user("three")]);
    check_replay(
        &marked,
        &[user("one"), says("other"), user("x")],
        1,
        &[says("other"), user("x")],
    );
}

#[test]
fn instructions_are_set_apart() {
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
        let joined = join(&stored, incoming, SessionMode::Auto);
        assert_eq!(joined.instructions, expected);
        assert_eq!(joined.keep, 10);
        let history = history(&stored, &joined);
        let instructions = expected.unwrap_or_else(|| stored.instructions.clone());
        assert_eq!(history[..instructions.len()], instructions);
        assert_eq!(history.len(), instructions.len() + 11);
        assert_eq!(history.last(), Some(&message(&user("three"))));
    }
}

#[test]
fn a_new_session_takes_everything() {
    let incoming = [user("one"), says("first"), user("two")];
    for mode in [SessionMode::Auto, SessionMode::Replay, SessionMode::Append] {
        check(&session(vec![]), mode, &incoming, 0, &incoming);
    }
}
