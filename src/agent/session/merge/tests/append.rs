//! Requests that hold only what is new, tool results included.

use super::*;

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
        &[assistant("mine"), user("three")],
        10,
        &[assistant("mine"), user("three")],
    );
    // The same text again after it was answered.
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
fn repeated_results_request_their_response_again() {
    let both = [result("c1"), result("c2")];
    check(&conversation(), SessionMode::Auto, &both, 9, &[]);
    let mut later = conversation();
    later.messages.push(visible(&user("three")));
    later
        .messages
        .push(with_view(&assistant("third"), "third", "third", &[]));
    check(&later, SessionMode::Auto, &both, 12, &[]);
}

#[test]
fn a_result_of_a_reused_call_id_is_appended() {
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
