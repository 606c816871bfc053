use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

/// One turn of a valid history: how many calls each round makes, and whether an answer follows.
#[derive(Debug, Clone)]
struct Turn {
    rounds: Vec<usize>,
    answer: bool,
    /// Whether every round numbers its calls from zero, as some upstreams do.
    numbered: bool,
}

/// A change that makes the history invalid.
#[derive(Debug, Clone)]
enum Damage {
    Delete(usize),
    Duplicate(usize, usize),
    Swap(usize, usize),
    DropId(usize),
    RepeatFirstCall(usize),
}

fn turn() -> impl Strategy<Value = Turn> {
    (
        prop::collection::vec(1..4_usize, 0..3),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(rounds, answer, numbered)| Turn {
            rounds,
            answer,
            numbered,
        })
}

fn damage() -> impl Strategy<Value = Damage> {
    let place = || 0..64_usize;
    prop_oneof![
        place().prop_map(Damage::Delete),
        (place(), place()).prop_map(|(from, to)| Damage::Duplicate(from, to)),
        (place(), place()).prop_map(|(one, other)| Damage::Swap(one, other)),
        place().prop_map(Damage::DropId),
        place().prop_map(Damage::RepeatFirstCall),
    ]
}

fn valid_history(turns: &[Turn]) -> Vec<Message> {
    let mut history = vec![Message::text(Role::System, "s")];
    let mut number = 0;
    for turn in turns {
        history.push(Message::text(Role::User, "u"));
        for calls in &turn.rounds {
            let ids: Vec<String> = (0..*calls)
                .map(|position| {
                    number += 1;
                    format!("c{}", if turn.numbered { position } else { number })
                })
                .collect();
            let list: Vec<String> = ids
                .iter()
                .map(|id| {
                    format!(r#"{{"id":"{id}","type":"function","function":{{"name":"f","arguments":"{{}}"}}}}"#)
                })
                .collect();
            history.push(
                Message::parse(&format!(
                    r#"{{"role":"assistant","content":null,"tool_calls":[{}]}}"#,
                    list.join(",")
                ))
                .unwrap(),
            );
            history.extend(
                ids.iter()
                    .map(|id| Message::tool_result(id, &format!("result of {id}"))),
            );
        }
        if turn.answer {
            history.push(Message::text(Role::Assistant, "a"));
        }
    }
    history
}

fn damaged(mut history: Vec<Message>, damages: &[Damage]) -> Vec<Message> {
    for damage in damages {
        let Some(last) = history.len().checked_sub(1) else {
            break;
        };
        let at = |place: usize| place % (last + 1);
        match *damage {
            Damage::Delete(place) => {
                history.remove(at(place));
            }
            Damage::Duplicate(from, to) => history.insert(at(to), history[at(from)].clone()),
            Damage::Swap(one, other) => history.swap(at(one), at(other)),
            Damage::DropId(place) => {
                let place = at(place);
                history[place] = history[place].with_fields(|key| match key {
                    "tool_call_id" => FieldChange::Drop,
                    _ => FieldChange::Keep,
                });
            }
            Damage::RepeatFirstCall(place) => {
                let place = at(place);
                if let Some(first) = history[place].tool_calls().first().cloned() {
                    history[place] = history[place].with_tool_calls(&[first.clone(), first]);
                }
            }
        }
    }
    history
}

/// Checks that a history is valid, independently of the code under test.
fn assert_valid(history: &[Message]) {
    let mut index = 0;
    while let Some(message) = history.get(index) {
        index += 1;
        assert_ne!(message.role(), &Role::Tool, "a result without a call");
        let value: serde_json::Value = serde_json::from_str(message.json_str()).unwrap();
        let calls = message.tool_calls();
        if message.role() == &Role::Assistant && calls.is_empty() {
            assert!(!value["content"].is_null() && value["content"] != "");
        }
        let ids: HashSet<&str> = calls.iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ids.len(), calls.len(), "an id twice");
        assert!(!ids.contains(""));
        for call in calls {
            assert_eq!(history[index].role(), &Role::Tool);
            assert_eq!(history[index].tool_call_id(), Some(call.id.as_str()));
            assert!(
                serde_json::from_str::<serde_json::Map<_, _>>(&call.arguments).is_ok(),
                "{}",
                call.arguments
            );
            index += 1;
        }
    }
}

proptest! {
    #[test]
    fn a_valid_history_is_left_alone(turns in prop::collection::vec(turn(), 0..5)) {
        let history = valid_history(&turns);
        assert_valid(&history);
        prop_assert!(is_valid(&history));
        prop_assert_eq!(repair(history.clone()), history);
    }

    #[test]
    fn a_damaged_history_is_made_valid(
        turns in prop::collection::vec(turn(), 0..5),
        damages in prop::collection::vec(damage(), 0..6),
    ) {
        let history = damaged(valid_history(&turns), &damages);
        let assistants = |history: &[Message]| {
            history.iter().filter(|one| one.role() == &Role::Assistant).count()
        };
        let users: Vec<_> = history.iter().filter(|one| one.role() == &Role::User).collect();
        let out = repair(history.clone());
        assert_valid(&out);
        prop_assert_eq!(assistants(&out), assistants(&history));
        let mut kept = out.iter();
        prop_assert!(users.iter().all(|user| kept.any(|one| &one == user)), "a user message is lost");
        prop_assert_eq!(repair(out.clone()), out);
    }

    #[test]
    fn a_moved_result_is_moved_back(
        rounds in prop::collection::vec(1..4_usize, 1..3),
        shift in 0..8_usize,
        pick in 0..8_usize,
    ) {
        let turns = [Turn { rounds, answer: true, numbered: false }, Turn { rounds: vec![1], answer: true, numbered: false }];
        let valid = valid_history(&turns);
        let mut history = valid.clone();
        let results: Vec<usize> = (0..history.len()).filter(|index| history[*index].role() == &Role::Tool).collect();
        let from = results[pick % results.len()];
        let message = history.remove(from);
        history.insert((from + shift).min(history.len()), message);
        prop_assert_eq!(repair(history), valid);
    }
}
