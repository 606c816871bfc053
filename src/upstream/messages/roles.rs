//! A strict order of roles: one system message or none, then `user` and `assistant` in turn.
//!
//! A call and its results count as a part of the assistant's turn. The templates of some models, and some servers, refuse
//! everything else.

use super::with_role;
use protocol::openai::content;
use protocol::openai::message::{Message, Role};

/// Separates the texts of two messages that become one.
const SEPARATOR: &str = "\n\n";
/// Stands between the result of a call and a user message.
const NO_ANSWER: &str = "Understood.";
/// Stands before an assistant message that begins the conversation.
const NO_QUESTION: &str = "Please begin.";

/// A whole history in that order. Leading instructions become one system message, or with `has_system` false a part of
/// the first user message; later ones become user messages.
pub(super) fn of_history(messages: Vec<Message>, has_system: bool) -> Vec<Message> {
    let leading = messages.iter().take_while(|it| it.is_instruction()).count();
    let mut rest = messages;
    let mut messages = rest.split_off(leading);
    let system = rest.into_iter().reduce(|first, next| joined(&first, &next));
    let mut ordered = Vec::with_capacity(messages.len() + 2);
    match system {
        Some(system) if has_system => ordered.push(with_role(&system, &Role::System)),
        Some(system) => messages.insert(0, with_role(&system, &Role::User)),
        None => {}
    }
    if messages
        .first()
        .is_some_and(|first| *first.role() == Role::Assistant)
    {
        ordered.push(Message::text(Role::User, NO_QUESTION));
    }
    ordered.extend(alternating(messages));
    ordered
}

/// Messages in that order, without regard to what comes before them.
pub(super) fn alternating(messages: Vec<Message>) -> Vec<Message> {
    let mut ordered: Vec<Message> = Vec::with_capacity(messages.len());
    for message in messages {
        let message = match message.is_instruction() {
            true => with_role(&message, &Role::User),
            false => message,
        };
        let last = ordered.last();
        match (last.map(Message::role), message.role()) {
            (Some(Role::User), Role::User) => {}
            (Some(Role::Assistant), Role::Assistant)
                if last.is_some_and(|last| last.tool_calls().is_empty()) => {}
            (Some(Role::Tool), Role::User) => {
                ordered.push(Message::text(Role::Assistant, NO_ANSWER));
                ordered.push(message);
                continue;
            }
            _ => {
                ordered.push(message);
                continue;
            }
        }
        if let Some(last) = ordered.last_mut() {
            *last = joined(last, &message);
        }
    }
    ordered
}

/// Two messages of one role as one.
pub(super) fn joined(first: &Message, second: &Message) -> Message {
    content::joined(first, second, SEPARATOR)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn messages(list: &Value) -> Vec<Message> {
        let list = list.as_array().unwrap().iter();
        list.map(|it| Message::parse(&it.to_string()).unwrap())
            .collect()
    }

    fn values(messages: &[Message]) -> Value {
        let values = messages.iter();
        values
            .map(|it| serde_json::from_str::<Value>(it.json_str()).unwrap())
            .collect()
    }

    fn say(role: &str, content: impl Into<Value>) -> Value {
        json!({"role": role, "content": content.into()})
    }

    #[track_caller]
    fn check(has_system: bool, given: &Value, expected: &Value) {
        let ordered = of_history(messages(given), has_system);
        assert_eq!(values(&ordered), *expected);
        // What is in order stays as it is.
        assert_eq!(of_history(ordered.clone(), has_system), ordered);
    }

    #[test]
    fn neighbours_of_one_role_are_joined() {
        let image = json!({"type": "image_url", "image_url": {"url": "data:,"}});
        let text = |text: &str| json!({"type": "text", "text": text});
        check(
            true,
            &json!([
                say("user", "a"),
                say("user", "b"),
                say("assistant", "c"),
                json!({"role": "assistant", "content": "d", "reasoning": "r"}),
                say("user", "e"),
                say("user", json!([image])),
                say("user", ""),
                say("user", json!([])),
            ]),
            &json!([
                say("user", "a\n\nb"),
                json!({"role": "assistant", "content": "c\n\nd", "reasoning": "r"}),
                say("user", json!([text("e"), image, text("")])),
            ]),
        );
    }

    #[test]
    fn instructions_come_first_or_become_a_part_of_the_users_words() {
        let given = json!([
            say("system", "a"),
            say("developer", "b"),
            say("user", "c"),
            say("system", "d"),
            say("assistant", "e"),
            say("system", "f"),
        ]);
        check(
            true,
            &given,
            &json!([
                say("system", "a\n\nb"),
                say("user", "c\n\nd"),
                say("assistant", "e"),
                say("user", "f"),
            ]),
        );
        check(
            false,
            &given,
            &json!([
                say("user", "a\n\nb\n\nc\n\nd"),
                say("assistant", "e"),
                say("user", "f")
            ]),
        );
        check(
            false,
            &json!([say("system", "a")]),
            &json!([say("user", "a")]),
        );
    }

    #[test]
    fn calls_and_results_are_the_assistants_turn() {
        let call =
            json!([{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]);
        let asks =
            |content: &str| json!({"role": "assistant", "content": content, "tool_calls": call});
        let result = json!({"role": "tool", "tool_call_id": "c", "content": "r"});
        check(
            true,
            &json!([
                say("user", "a"),
                say("assistant", "b"),
                asks("c"),
                result,
                say("user", "d")
            ]),
            &json!([
                say("user", "a"),
                asks("b\n\nc"),
                result,
                say("assistant", NO_ANSWER),
                say("user", "d")
            ]),
        );
        check(
            true,
            &json!([say("system", "s"), asks("x"), result, say("assistant", "b")]),
            &json!([
                say("system", "s"),
                say("user", NO_QUESTION),
                asks("x"),
                result,
                say("assistant", "b")
            ]),
        );
        // Within a turn.
        let round = messages(&json!([asks("x"), result, say("user", "images")]));
        assert_eq!(
            values(&alternating(round)),
            json!([
                asks("x"),
                result,
                say("assistant", NO_ANSWER),
                say("user", "images")
            ])
        );
    }
}
