//! Deletes single items of a session.
//!
//! A message whose items are all deleted becomes an empty answer. So the messages after it keep their places, which are
//! in the ids of items. The model does not see empty answers.

use std::ops::Range;

use super::{ItemOrigin, PlacedItem};
use agent::session::{Change, StoredMessage, StoredSession};
use protocol::openai::message::{FieldChange, Message, Role};

/// Separates the texts of the rounds of a response.
const ROUND_SEPARATOR: &str = "\n\n";
/// Types of items that are calls of server-side tools.
const HOSTED: [&str; 3] = ["web_search_call", "code_interpreter_call", "mcp_call"];
/// Fields of a message with the model's reasoning.
const REASONING_FIELDS: [&str; 6] = [
    "reasoning",
    "reasoning_content",
    "reasoning_text",
    "reasoning_details",
    "thinking",
    "thinking_blocks",
];

/// The change that deletes the item with the index `removed` among `items`, the items of one message or answer of the
/// session. `None` if it is not known which message the item shows.
pub(crate) fn without_item(
    session: &StoredSession,
    items: &[PlacedItem],
    removed: usize,
) -> Option<Change> {
    let placed = items.get(removed)?;
    let mut messages = session.messages.clone();
    let first = match &placed.origin {
        ItemOrigin::Instruction(index) => {
            let mut instructions = session.instructions.clone();
            (*index < instructions.len()).then(|| instructions.remove(*index))?;
            return Some(Change {
                instructions: Some(instructions),
                keep: messages.len(),
                ..Change::default()
            });
        }
        ItemOrigin::Message(index) => {
            empty(messages.get_mut(*index)?);
            *index
        }
        ItemOrigin::Call { message, call_id } => {
            remove_call(&mut messages, *message, call_id)?;
            *message
        }
        ItemOrigin::Output(range) => {
            let first = match Shown::find(&messages, range, items, removed)? {
                Shown::Nothing => range.end - 1,
                Shown::Text(index) => {
                    empty(messages.get_mut(index)?);
                    index
                }
                Shown::Reasoning(index) => {
                    let stored = messages.get_mut(index)?;
                    stored.message = without_reasoning(&stored.message);
                    index
                }
                Shown::Call { message, call_id } => {
                    remove_call(&mut messages, message, &call_id)?;
                    message
                }
            };
            update_view(messages.get_mut(range.clone())?, &placed.item.id)?;
            first
        }
    };
    Some(Change {
        keep: first,
        append: messages.split_off(first),
        ..Change::default()
    })
}

/// What of the messages of a turn an item of its response shows.
enum Shown {
    Nothing,
    Text(usize),
    Reasoning(usize),
    Call { message: usize, call_id: String },
}

impl Shown {
    fn find(
        messages: &[StoredMessage],
        range: &Range<usize>,
        items: &[PlacedItem],
        removed: usize,
    ) -> Option<Self> {
        let answers = || {
            let in_range = messages.iter().enumerate().skip(range.start);
            in_range
                .take(range.len())
                .filter(|(_, stored)| is_answer(stored))
        };
        let item = &items.get(removed)?.item;
        // The items and the messages of one kind are in the same order. If some are not shown, nothing is known.
        let ordinal = |is_kind: &dyn Fn(&str) -> bool, count: usize| {
            let is_like = |placed: &&PlacedItem| {
                placed.origin == ItemOrigin::Output(range.clone()) && is_kind(&placed.item.kind)
            };
            let before = items.iter().take(removed).filter(is_like).count();
            (items.iter().filter(is_like).count() == count).then_some(before)
        };
        match &*item.kind {
            "message" => {
                let texts: Vec<usize> = answers()
                    .filter(|(_, stored)| has_text(&stored.message))
                    .map(|(index, _)| index)
                    .collect();
                let place = ordinal(&|kind| kind == "message", texts.len())?;
                texts.get(place).copied().map(Self::Text)
            }
            "reasoning" => {
                let texts: Vec<usize> = answers()
                    .filter(|(_, stored)| without_reasoning(&stored.message) != stored.message)
                    .map(|(index, _)| index)
                    .collect();
                let place = ordinal(&|kind| kind == "reasoning", texts.len());
                let index = place.and_then(|place| texts.get(place));
                Some(index.map_or(Self::Nothing, |index| Self::Reasoning(*index)))
            }
            "function_call" | "custom_tool_call" => {
                let call_id = item.call_id.as_deref()?;
                let holds = |stored: &StoredMessage| {
                    let mut calls = stored.message.tool_calls().iter();
                    calls.any(|call| call.id == call_id)
                };
                let (message, _) = answers().find(|(_, stored)| holds(stored))?;
                let call_id = call_id.to_owned();
                Some(Self::Call { message, call_id })
            }
            hosted if HOSTED.contains(&hosted) => {
                let is_answered = |id: &str| {
                    let mut results = messages.iter().skip(range.start).take(range.len());
                    results.any(|stored| stored.hidden && stored.message.tool_call_id() == Some(id))
                };
                let calls: Vec<(usize, &str)> = answers()
                    .flat_map(|(index, stored)| {
                        let calls = stored.message.tool_calls().iter();
                        calls.map(move |call| (index, call.id.as_str()))
                    })
                    .filter(|(_, id)| is_answered(id))
                    .collect();
                let place = ordinal(&|kind| HOSTED.contains(&kind), calls.len())?;
                let (message, call_id) = *calls.get(place)?;
                let call_id = call_id.to_owned();
                Some(Self::Call { message, call_id })
            }
            _ => Some(Self::Nothing),
        }
    }
}

/// Whether the model answered this message in the turn.
fn is_answer(stored: &StoredMessage) -> bool {
    (stored.hidden || stored.view.is_some()) && *stored.message.role() == Role::Assistant
}

fn has_text(message: &Message) -> bool {
    !message.content_text().is_empty() || message.json_str().contains("\"refusal\":\"")
}

/// Takes the content of a message away.
fn empty(stored: &mut StoredMessage) {
    let content = |key: &str| match key {
        "content" => FieldChange::Set("null".to_owned()),
        "refusal" => FieldChange::Drop,
        _ => FieldChange::Keep,
    };
    match stored.message.tool_calls().is_empty() {
        true => remove(stored),
        false => stored.message = stored.message.with_fields(content),
    }
}

/// Takes a message away. Its place stays, and its sources, whose numbers others follow.
fn remove(stored: &mut StoredMessage) {
    stored.message = Message::text(Role::Assistant, "");
    stored.hidden = true;
    stored.full_text = None;
}

/// Takes a call away, and its result if the client did not receive it as an item of its own.
fn remove_call(messages: &mut [StoredMessage], index: usize, call_id: &str) -> Option<()> {
    let stored = messages.get_mut(index)?;
    let calls = stored.message.tool_calls().iter();
    let left: Vec<_> = calls.filter(|call| call.id != call_id).cloned().collect();
    match left.is_empty() && !has_text(&stored.message) {
        true => remove(stored),
        false => stored.message = stored.message.with_tool_calls(&left),
    }
    let is_result = |stored: &&mut StoredMessage| {
        stored.hidden && stored.message.tool_call_id() == Some(call_id)
    };
    if let Some(result) = messages.iter_mut().skip(index).find(is_result) {
        remove(result);
    }
    Some(())
}

fn without_reasoning(message: &Message) -> Message {
    message.with_fields(|key| match REASONING_FIELDS.contains(&key) {
        true => FieldChange::Drop,
        false => FieldChange::Keep,
    })
}

/// Updates the shown response after a part of its messages was removed.
fn update_view(messages: &mut [StoredMessage], id: &str) -> Option<()> {
    let answers = messages.iter().filter(|stored| is_answer(stored));
    let texts: Vec<String> = answers
        .map(|stored| stored.message.content_text())
        .filter(|text| !text.is_empty())
        .collect();
    let last = messages.last_mut()?;
    let view = last.view.as_mut()?;
    let calls = last.message.tool_calls();
    view.text = texts.join(ROUND_SEPARATOR);
    view.final_text = last.message.content_text();
    view.call_ids
        .retain(|id| calls.iter().any(|call| call.id == *id));
    view.removed.push(id.to_owned());
    Some(())
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;
    use serde_json::{Value, json};

    use super::*;
    use crate::dialects::responses::encode::ItemText;
    use agent::session::View;

    /// A turn with a round of two server-side calls and an answer, with its reasoning.
    fn turn() -> StoredSession {
        let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "t", "arguments": "{}"}});
        let round =
            json!({"role": "assistant", "content": "Hm.", "tool_calls": [call("1"), call("2")]});
        let answer = json!({"role": "assistant", "content": "Done.", "reasoning_content": "So."});
        let message = |json: &Value| Message::parse(&json.to_string()).unwrap();
        let view = View {
            text: "Hm.\n\nDone.".to_owned(),
            final_text: "Done.".to_owned(),
            ..View::default()
        };
        StoredSession {
            messages: vec![
                StoredMessage::visible(Message::text(Role::User, "Go")),
                StoredMessage::hidden(message(&round)),
                StoredMessage::hidden(Message::tool_result("1", "a")),
                StoredMessage::hidden(Message::tool_result("2", "b")),
                StoredMessage {
                    view: Some(view),
                    ..StoredMessage::visible(message(&answer))
                },
            ],
            ..StoredSession::default()
        }
    }

    fn output(types: &[&str]) -> Vec<PlacedItem> {
        let placed = |(index, kind): (usize, &&str)| PlacedItem {
            item: ItemText::new(
                to_raw_value(&json!({"type": kind, "id": format!("i{index}")})).unwrap(),
            )
            .unwrap(),
            origin: ItemOrigin::Output(0..5),
        };
        types.iter().enumerate().map(placed).collect()
    }

    #[test]
    fn what_an_item_shows_is_taken_out_of_the_messages_and_the_view() {
        let items = output(&[
            "message",
            "mcp_call",
            "web_search_call",
            "reasoning",
            "message",
        ]);
        let without = |index: usize| {
            let change = without_item(&turn(), &items, index).unwrap();
            let mut messages = turn().messages;
            messages.truncate(change.keep);
            messages.extend(change.append);
            assert_eq!(messages.len(), 5, "the places stay");
            let view = messages[4].view.clone().unwrap();
            assert_eq!(view.removed, [format!("i{index}")]);
            let json = messages.iter().map(|stored| stored.message.json_str());
            (json.collect::<Vec<_>>().concat(), view)
        };
        let (messages, view) = without(0);
        assert!(!messages.contains("Hm.") && messages.contains(r#""id":"1""#));
        assert_eq!((&*view.text, &*view.final_text), ("Done.", "Done."));
        let (messages, view) = without(2);
        assert!(messages.contains(r#""id":"1""#) && messages.contains(r#""content":"a""#));
        assert!(!messages.contains(r#""2""#) && !messages.contains(r#""content":"b""#));
        assert_eq!(view.text, "Hm.\n\nDone.");
        let (messages, _) = without(3);
        assert!(!messages.contains("So.") && messages.contains("Done."));
        let (messages, view) = without(4);
        assert!(!messages.contains("So.") && !messages.contains("Done."));
        assert_eq!((&*view.text, &*view.final_text), ("Hm.", ""));
    }

    #[test]
    fn a_call_among_others_that_are_not_shown_is_not_known() {
        let items = output(&["mcp_call", "message"]);
        assert_eq!(without_item(&turn(), &items, 0), None);
        assert_eq!(
            without_item(&turn(), &items, 1),
            None,
            "one of two texts is not shown"
        );
        let only_listed = output(&["mcp_list_tools"]);
        let change = without_item(&turn(), &only_listed, 0).unwrap();
        let view = change.append[0].view.as_ref().unwrap();
        assert_eq!((change.keep, &*view.removed), (4, &["i0".to_owned()][..]));
    }
}
