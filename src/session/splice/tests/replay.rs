//! Requests that hold the conversation as the client sees it.

use super::*;

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
