//! Long lists: the running time of a merge must be linear. Quadratic code takes minutes on each of these inputs.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::super::View;
use super::*;
use protocol::openai::message::AssistantParts;
use protocol::openai::tool::{CallKind, CallMembers, ToolCall};

const MANY: usize = 20_000;
/// Far more than linear code takes, and far less than quadratic code takes.
const LIMIT: Duration = Duration::from_secs(30);

fn user(text: &str) -> Message {
    Message::text(Role::User, text)
}

fn blank() -> Message {
    Message::text(Role::Assistant, "")
}

fn calls(ids: impl IntoIterator<Item = String>) -> Message {
    let tool_calls: Vec<ToolCall> = ids
        .into_iter()
        .map(|id| ToolCall {
            id,
            name: "f".into(),
            arguments: "{}".into(),
            kind: CallKind::Function,
            members: CallMembers::default(),
        })
        .collect();
    Message::assistant(&AssistantParts {
        tool_calls: &tool_calls,
        ..AssistantParts::default()
    })
}

fn call(number: usize) -> Message {
    calls([format!("c{number}")])
}

fn result(number: usize) -> Message {
    Message::tool_result(&format!("c{number}"), "r")
}

fn response(text: &str, final_text: &str, call_ids: Vec<String>) -> StoredMessage {
    let view = View {
        run: None,
        completion: None,
        removed: Vec::new(),
        text: text.into(),
        final_text: final_text.into(),
        behind_wait: None,
        call_ids,
    };
    StoredMessage {
        view: Some(view),
        ..StoredMessage::hidden(blank())
    }
}

/// Visible tool rounds, each with one call and its result.
fn imported_rounds(count: usize) -> impl Iterator<Item = StoredMessage> {
    (0..count).flat_map(|number| [call(number), result(number)].map(StoredMessage::visible))
}

fn blanks(count: usize) -> impl Iterator<Item = Message> {
    std::iter::repeat_n(blank(), count)
}

/// Plans the merge of a replay; fails after the time limit.
#[track_caller]
fn planned(messages: Vec<StoredMessage>, incoming: Vec<Message>) -> (usize, Vec<Message>) {
    let stored = StoredSession {
        messages,
        ..StoredSession::default()
    };
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let planned = plan(&stored, incoming, SessionMode::Replay);
        // The receiver is dropped after the time limit.
        let _ = sender.send((planned.keep, planned.new));
    });
    receiver
        .recv_timeout(LIMIT)
        .expect("the running time is not linear")
}

#[test]
fn blank_messages_before_imported_rounds() {
    let many_calls = calls((0..20).map(|number| format!("many{number}")));
    let stored = [StoredMessage::visible(user("one"))]
        .into_iter()
        .chain(std::iter::repeat_n(
            StoredMessage::visible(many_calls),
            MANY,
        ));
    let mut incoming = vec![user("one")];
    incoming.extend(blanks(MANY));
    let (keep, new) = planned(stored.clone().collect(), incoming.clone());
    assert_eq!((keep, new), (1, vec![]));
    // The response after the rounds is still found.
    let stored = stored.chain([StoredMessage::visible(Message::text(
        Role::Assistant,
        "first",
    ))]);
    incoming.extend([Message::text(Role::Assistant, "first"), user("two")]);
    assert_eq!(
        planned(stored.collect(), incoming),
        (MANY + 2, vec![user("two")])
    );
}

#[test]
fn blank_messages_between_imported_rounds() {
    let long = "x".repeat(1 << 20);
    let ids: Vec<String> = (0..MANY)
        .map(|number| format!("client's {number}"))
        .collect();
    let ends = [
        StoredMessage::visible(user("two")),
        StoredMessage::visible(user(&long)),
        response(&long, &long, vec![]),
        response("", "", ids),
    ];
    for end in ends {
        let mut stored: Vec<_> = imported_rounds(MANY).collect();
        stored.push(end);
        let incoming =
            (0..MANY).flat_map(|number| [blank(), call(number), blank(), result(number)]);
        let (keep, new) = planned(stored, incoming.chain([user("other")]).collect());
        assert_eq!((keep, new), (MANY * 2, vec![user("other")]));
    }
}

#[test]
fn blank_messages_before_hidden_rounds() {
    let many = MANY * 20;
    let mut stored = vec![StoredMessage::visible(user("one"))];
    stored.extend(std::iter::repeat_n(StoredMessage::hidden(result(0)), many));
    let mut incoming = vec![user("one")];
    incoming.extend(blanks(many));
    let (keep, new) = planned(stored, incoming);
    assert_eq!((keep, new), (many + 1, vec![]));
}

#[test]
fn blank_messages_before_one_that_is_large() {
    let ids = || (0..MANY).map(|number| format!("c{number}"));
    let long = "x".repeat(1 << 20);
    let spaces = " ".repeat(1 << 20) + "x";
    let many_results: Vec<_> = (0..MANY)
        .map(|number| StoredMessage::visible(result(number)))
        .collect();
    for (stored, shown) in [
        (vec![StoredMessage::visible(user(&long))], user(&long)),
        (vec![StoredMessage::visible(user(&spaces))], user("x")),
        (vec![StoredMessage::visible(calls(ids()))], calls(ids())),
        (
            vec![response("wait", "wait", ids().collect())],
            calls(ids()),
        ),
        (
            vec![response(&spaces, &spaces, vec![])],
            Message::text(Role::Assistant, "x"),
        ),
        (many_results, result(0)),
    ] {
        let incoming = blanks(MANY).chain([shown, user("last")]).collect();
        assert_eq!(planned(stored, incoming), (1, vec![user("last")]));
    }
}

#[test]
fn an_unknown_call_before_many_rounds() {
    // The message with calls could match at any of the rounds.
    let ids = || (0..MANY).map(|number| format!("unknown {number}"));
    let mut stored: Vec<_> = imported_rounds(MANY).collect();
    stored.push(response("", "", vec![]));
    let incoming = vec![calls(ids()), user("last")];
    assert_eq!(planned(stored, incoming.clone()), (0, incoming));
}

#[test]
fn empty_answers_that_one_message_leaves_out() {
    let stored = (0..MANY).flat_map(|number| {
        [
            StoredMessage::visible(call(number)),
            response("", "", vec![]),
        ]
    });
    let results: Vec<_> = (0..MANY).map(result).collect();
    let (keep, new) = planned(stored.collect(), results.clone());
    assert_eq!((keep, new), (MANY * 2, results));
}
