//! Requests that hold the conversation as the client sees it.

use super::*;

#[test]
fn a_replay_keeps_the_hidden_rounds() {
    let whole = [
        user("one"),
        assistant("thinking\n\nfirst"),
        user("two"),
        calls(&["c2", "c1"]),
        result("c1"),
        result("c2"),
        assistant("second"),
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
fn a_response_matches_by_the_text_of_its_last_round() {
    check_replay(
        &conversation(),
        &[user("one"), assistant(" first\n"), user("2")],
        4,
        &[user("2")],
    );
}

#[test]
fn a_mark_of_a_source_equals_its_link() {
    let marks = "So [1, 2].\n\nAnd 【3】.";
    let links =
        "So [[1]](https://a.test/%28)[[2]](https://b.test/).\n\nAnd [[3]](https://c.test/).";
    let response = with_view(&assistant("And 【3】."), marks, "And 【3】.", &[]);
    for last in [response, visible(&assistant(marks))] {
        let stored = session(vec![visible(&user("one")), last]);
        for seen in [marks, links] {
            let whole = [user("one"), assistant(seen), user("two")];
            check_replay(&stored, &whole, 2, &[user("two")]);
        }
        let edited = links.replace("So", "No");
        let whole = [user("one"), assistant(&edited), user("two")];
        check_replay(&stored, &whole, 1, &whole[1..]);
    }
}

#[test]
fn content_parts_equal_the_plain_text() {
    let parts = json!({"role": "user", "content": [{"type": "text", "text": "one "}]});
    check_replay(
        &conversation(),
        &[parts, assistant("first"), user("x")],
        4,
        &[user("x")],
    );
}

#[test]
fn an_edit_drops_the_stored_messages_after_it() {
    check_replay(&conversation(), &[user("ONE")], 0, &[user("ONE")]);
    check_replay(
        &conversation(),
        &[user("one"), assistant("edited"), user("x")],
        1,
        &[assistant("edited"), user("x")],
    );
    check_replay(
        &conversation(),
        &[
            user("one"),
            assistant("first"),
            user("two"),
            calls(&["other"]),
        ],
        5,
        &[calls(&["other"])],
    );
}

#[test]
fn a_regeneration_drops_the_last_response() {
    check_replay(&conversation(), &[user("one")], 1, &[]);
    let until_results = [
        user("one"),
        assistant("first"),
        user("two"),
        calls(&["c1", "c2"]),
        result("c2"),
        result("c1"),
    ];
    check_replay(&conversation(), &until_results, 9, &[]);
}

#[test]
fn messages_with_calls_are_compared_by_call_ids() {
    let mut with_text = calls(&["c1", "c2"]);
    with_text["content"] = "some other text".into();
    check_replay(
        &conversation(),
        &[
            user("one"),
            assistant("first"),
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
            assistant("first"),
            user("two"),
            assistant("wait"),
            user("x"),
        ],
        5,
        &[assistant("wait"), user("x")],
    );
}

#[test]
fn a_response_split_into_text_and_calls_matches() {
    for text in ["wait", ""] {
        check_replay(
            &conversation(),
            &[
                user("one"),
                assistant("first"),
                user("two"),
                assistant(text),
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
fn an_empty_response_may_be_sent_or_omitted() {
    let stored = session(vec![
        visible(&user("one")),
        hidden(&calls(&["s1"])),
        StoredMessage {
            hidden: true,
            ..with_view(&result("s1"), "", "", &[])
        },
        visible(&user("two")),
        with_view(&assistant("second"), "second", "second", &[]),
    ]);
    let null = json!({"role": "assistant", "content": null});
    for shown in [vec![], vec![null], vec![assistant("")]] {
        let mut incoming = vec![user("one")];
        incoming.extend(shown);
        incoming.extend([user("two"), assistant("second"), user("three")]);
        check_replay(&stored, &incoming, 5, &[user("three")]);
    }
    check_replay(&stored, &[user("one")], 1, &[]);
}

#[test]
fn rounds_of_an_interrupted_turn_are_kept() {
    let stored = session(vec![
        visible(&user("one")),
        hidden(&calls(&["s1"])),
        hidden(&result("s1")),
    ]);
    // The same request again in each mode, and with the empty message that some front ends keep.
    for mode in [SessionMode::Auto, SessionMode::Replay, SessionMode::Append] {
        check(&stored, mode, &[user("one")], 3, &[]);
    }
    check_replay(&stored, &[user("one"), assistant("")], 3, &[]);
    // The next question.
    check_replay(&stored, &[user("one"), user("two")], 3, &[user("two")]);
    check(
        &stored,
        SessionMode::Auto,
        &[user("two")],
        3,
        &[user("two")],
    );
    // The part of the response that the client received before the interruption.
    check_replay(
        &stored,
        &[user("one"), assistant("so f"), user("two")],
        3,
        &[assistant("so f"), user("two")],
    );
}

#[test]
fn rounds_of_an_interrupted_turn_are_kept_before_other_messages() {
    let stored = session(vec![
        visible(&user("one")),
        hidden(&calls(&["s1"])),
        hidden(&result("s1")),
        visible(&user("two")),
        with_view(&assistant("second"), "second", "second", &[]),
    ]);
    check_replay(
        &stored,
        &[user("one"), user("two"), assistant("second"), user("three")],
        5,
        &[user("three")],
    );
    check_replay(&stored, &[user("one"), user("2")], 3, &[user("2")]);
    check_replay(&stored, &[user("one")], 1, &[]);
}

#[test]
fn an_imported_history_is_compared_message_by_message() {
    let messages = [
        user("one"),
        calls(&["a"]),
        result("a"),
        calls(&["b"]),
        result("b"),
        assistant("first"),
        user("two"),
        assistant("second"),
    ];
    let stored = session(messages.iter().map(visible).collect());
    let mut whole = messages.to_vec();
    whole.push(user("three"));
    check_replay(&stored, &whole, 8, &[user("three")]);
    let without_rounds = [
        user("one"),
        assistant("first"),
        user("two"),
        assistant("second"),
        user("three"),
    ];
    check_replay(&stored, &without_rounds, 8, &[user("three")]);
    check_replay(
        &stored,
        &[user("one"), assistant("other"), user("x")],
        1,
        &[assistant("other"), user("x")],
    );
    // The rounds are marked as hidden, and no view follows them.
    let mut marked = stored.clone();
    for stored in &mut marked.messages[1..5] {
        stored.hidden = true;
    }
    check_replay(&marked, &without_rounds, 8, &[user("three")]);
    check_replay(
        &marked,
        &[user("one"), assistant("other"), user("x")],
        1,
        &[assistant("other"), user("x")],
    );
}
