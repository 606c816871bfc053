//! Messages in the form that an upstream takes.
//!
//! The same message has the same form in every call of a conversation, so that the server's prompt cache stays valid.

mod instructions;
mod roles;

use serde_json::value::RawValue;

use super::settings::{EmptyContent, Quirks, RoleOrder};
use crate::openai::message::{FieldChange, Message, Role};
use crate::openai::raw::{RawObject, push_entry};

/// Fields in which model servers send and take reasoning.
const REASONING_FIELDS: [&str; 4] = [
    "reasoning_content",
    "reasoning",
    "reasoning_text",
    "thinking",
];

/// The messages before the first model call of a turn, repaired.
pub fn of_history(history: Vec<Message>, quirks: &Quirks) -> Vec<Message> {
    let messages = history.into_iter();
    let messages = messages.map(|message| adapted(message, quirks)).collect();
    let messages = instructions::placed(messages, quirks.mid_system);
    match quirks.roles {
        RoleOrder::Any => messages,
        RoleOrder::Alternate => roles::of_history(messages, true),
        RoleOrder::AlternateWithoutSystem => roles::of_history(messages, false),
    }
}

/// The messages that a round adds: those of the model and the results of its calls.
pub fn of_round<'a>(round: impl IntoIterator<Item = &'a Message>, quirks: &Quirks) -> Vec<Message> {
    let messages = round.into_iter().cloned();
    let messages = messages.map(|message| adapted(message, quirks)).collect();
    match quirks.roles {
        RoleOrder::Any => messages,
        RoleOrder::Alternate | RoleOrder::AlternateWithoutSystem => roles::alternating(messages),
    }
}

/// A message without what the upstream does not take.
fn adapted(message: Message, quirks: &Quirks) -> Message {
    match message.role() {
        Role::Developer if !quirks.developer_role => with_role(&message, &Role::System),
        Role::Assistant if !message.tool_calls().is_empty() || !quirks.send_reasoning => {
            adapted_assistant(message, quirks)
        }
        Role::Assistant
        | Role::Developer
        | Role::System
        | Role::User
        | Role::Tool
        | Role::Other(_) => message,
    }
}

fn adapted_assistant(message: Message, quirks: &Quirks) -> Message {
    let Ok(object) = RawObject::parse(message.json_str()) else {
        return message;
    };
    let drops = |key: &str| !quirks.send_reasoning && REASONING_FIELDS.contains(&key);
    let content = object.get("content").map(RawValue::get);
    let expected = match quirks.empty_content {
        EmptyContent::LeaveOut => None,
        EmptyContent::Null => Some("null"),
        EmptyContent::Empty => Some("\"\""),
    };
    let is_empty = matches!(content, None | Some("null" | "\"\"" | "[]"));
    let replaces = is_empty && !message.tool_calls().is_empty() && content != expected;
    if !replaces && !object.iter().any(|(key, _)| drops(key)) {
        return message;
    }
    let mut replacement = expected.filter(|_| replaces);
    let mut json = String::from("{");
    for (key, value) in object.iter() {
        if drops(key) || (replaces && key == "content") {
            continue;
        }
        push_entry(&mut json, key, value.get());
        if key == "role"
            && let Some(content) = replacement.take()
        {
            push_entry(&mut json, "content", content);
        }
    }
    json.push('}');
    message.with_same_calls(json)
}

/// The message with another role.
fn with_role(message: &Message, role: &Role) -> Message {
    message.with_fields(|key| match key {
        "role" => FieldChange::Set(format!("\"{}\"", role.as_str())),
        _ => FieldChange::Keep,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(json: &str, quirks: &Quirks) -> String {
        let message = Message::parse(json).unwrap();
        let history = of_history(vec![message.clone()], quirks);
        assert_eq!(history, of_round([&message], quirks));
        history[0].json_str().to_owned()
    }

    #[test]
    fn a_message_with_calls_and_no_text_has_the_content_that_the_server_takes() {
        let calls = r#""tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]"#;
        for (empty_content, expected) in [
            (EmptyContent::LeaveOut, String::new()),
            (EmptyContent::Null, r#""content":null,"#.to_owned()),
            (EmptyContent::Empty, r#""content":"","#.to_owned()),
        ] {
            let quirks = Quirks {
                empty_content,
                ..Quirks::default()
            };
            let expected = format!(r#"{{"role":"assistant",{expected}{calls}}}"#);
            for content in [
                "",
                r#""content":null,"#,
                r#""content":"","#,
                r#""content":[],"#,
            ] {
                let given = format!(r#"{{"role":"assistant",{content}{calls}}}"#);
                assert_eq!(of(&given, &quirks), expected, "{given}");
            }
            for unchanged in [
                format!(r#"{{"role":"assistant","content":" ",{calls}}}"#),
                format!(
                    r#"{{"role":"assistant","content":[{{"type":"text","text":"x"}}],{calls}}}"#
                ),
                r#"{"role":"assistant","content":null,"refusal":"x"}"#.to_owned(),
                r#"{"role":"user","content":""}"#.to_owned(),
            ] {
                assert_eq!(of(&unchanged, &quirks), unchanged);
            }
        }
    }

    #[test]
    fn what_a_server_does_not_take_is_left_out_or_renamed() {
        let quirks = Quirks {
            send_reasoning: false,
            developer_role: false,
            ..Quirks::default()
        };
        for (given, expected) in [
            (
                r#"{"role":"developer","content":"x","name":"n"}"#,
                r#"{"role":"system","content":"x","name":"n"}"#,
            ),
            (
                r#"{"role":"assistant","content":"x","reasoning":"a","thinking":"b","y":1.0}"#,
                r#"{"role":"assistant","content":"x","y":1.0}"#,
            ),
            (
                r#"{"role":"user","content":"x","reasoning":"a"}"#,
                r#"{"role":"user","content":"x","reasoning":"a"}"#,
            ),
        ] {
            assert_eq!(of(given, &quirks), expected);
            assert_eq!(of(given, &Quirks::default()), given);
        }
    }
}
