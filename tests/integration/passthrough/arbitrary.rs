//! Requests of any shape that no tool can touch.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::Value;

use super::post;
use crate::support::app::TestApp;
use crate::support::script::text;
use crate::support::upstream::ScriptedUpstream;

/// How many arbitrary requests are sent.
const ARBITRARY: usize = 200;

fn white() -> impl Strategy<Value = &'static str> {
    select(vec!["", " ", "\n", "\r\n\t ", "    "])
}

fn joined(open: char, (start, pieces): (&str, Vec<(&str, String, &str)>), close: char) -> String {
    let pieces: Vec<String> = pieces
        .iter()
        .map(|(before, text, after)| format!("{before}{text}{after}"))
        .collect();
    match pieces.is_empty() {
        true => format!("{open}{start}{close}"),
        false => format!("{open}{}{close}", pieces.join(",")),
    }
}

fn member(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    (any::<String>(), white(), white(), value).prop_map(|(name, before, after, value)| {
        format!("{}{before}:{after}{value}", Value::from(name))
    })
}

/// The text of a JSON value, with white space in it and numbers in any spelling.
fn text_of_any() -> impl Strategy<Value = String> {
    let words = [
        "null",
        "true",
        "1.0e0",
        "-0",
        "1E400",
        "0.1000",
        "12345678901234567890123",
        "\"\\u00e4\\/\"",
        "\"\u{2028}\"",
        "[]",
    ];
    let leaf = prop_oneof![
        select(words.map(str::to_owned).to_vec()),
        any::<String>().prop_map(|text| Value::from(text).to_string()),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let entries = (white(), vec((white(), inner.clone(), white()), 0..4));
        let members = (white(), vec((white(), member(inner), white()), 0..4));
        prop_oneof![
            entries.prop_map(|entries| joined('[', entries, ']')),
            members.prop_map(|members| joined('{', members, '}')),
        ]
    })
}

/// A request that no tool can touch: its known members in any order, and others that nobody knows.
fn passing() -> impl Strategy<Value = String> {
    let known = [
        "\"messages\":[{\"role\":\"user\",\"content\":\"\\u00e4\"}]",
        "\"model\" :\"scripted-model\"",
        "\"temperature\":1.0e0",
        "\"tools\": [{\"type\":\"function\",\"function\":{\"name\":\"mine\"}}] ",
        "\"n\":1",
        "\"stop\":[ \"a\" ]",
    ];
    let known = known.map(str::to_owned).to_vec();
    let unknown = vec(member(text_of_any()), 0..6);
    let members = (Just(known), unknown).prop_map(|(known, more)| [known, more].concat());
    let white = vec((white(), white()), 12);
    (members.prop_shuffle(), white).prop_map(|(members, white)| {
        let pieces = members.into_iter().zip(white);
        let pieces = pieces.map(|(text, (before, after))| (before, text, after));
        format!(" {}\n", joined('{', ("", pieces.collect()), '}'))
    })
}

#[tokio::test]
async fn any_request_that_passes_through_arrives_as_it_was_sent() {
    let upstream = ScriptedUpstream::answering(|_| text("x")).await.lenient();
    let app = TestApp::with_upstream(&upstream).await;
    let mut runner = TestRunner::deterministic();
    for number in 0..ARBITRARY {
        let body = passing().new_tree(&mut runner).unwrap().current();
        let answer = post(
            &app,
            "/v1/chat/completions",
            "application/json",
            body.clone(),
        )
        .await;
        assert_eq!(answer.status, 200, "{body}: {}", answer.text());
        let seen = upstream.request(number).bytes;
        assert_eq!(seen, body.as_bytes(), "{body}");
    }
}
