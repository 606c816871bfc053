//! Messages in the form that an upstream takes.
//!
//! The same message has the same form in every call of a conversation, so that the server's prompt cache stays valid.

mod blank;
mod instructions;
mod reasoning;
mod roles;

use std::collections::HashMap;

use serde_json::value::RawValue;

use self::blank::{is_blank, says_something, without_blank_parts};
pub use self::instructions::with_instructions;
use super::settings::{EmptyContent, Quirks, RoleOrder};
use protocol::openai::message::{FieldChange, Message, NO_OUTPUT, Role};
use protocol::openai::raw::{RawObject, push_entry, quoted};

/// The messages before the first model call of a turn, repaired.
pub fn of_history(history: Vec<Message>, quirks: &Quirks) -> Vec<Message> {
    let messages = adapted(history, quirks);
    let messages = instructions::placed(messages, quirks.mid_system);
    match quirks.roles {
        RoleOrder::Any => messages,
        RoleOrder::Alternate => roles::of_history(messages, true),
        RoleOrder::AlternateWithoutSystem => roles::of_history(messages, false),
    }
}

/// The messages that a round adds: the model's message and the results of its calls.
pub fn of_round<'a>(round: impl IntoIterator<Item = &'a Message>, quirks: &Quirks) -> Vec<Message> {
    let messages = adapted(round.into_iter().cloned(), quirks);
    match quirks.roles {
        RoleOrder::Any => messages,
        RoleOrder::Alternate | RoleOrder::AlternateWithoutSystem => roles::alternating(messages),
    }
}

/// The messages without members that the upstream refuses, and with members that it requires.
fn adapted(messages: impl IntoIterator<Item = Message>, quirks: &Quirks) -> Vec<Message> {
    let mut tool_names: HashMap<String, String> = HashMap::new();
    let taken = messages
        .into_iter()
        .filter(|message| quirks.blank_text || says_something(message));
    let adapted = taken.map(|message| match message.role() {
        Role::Developer if !quirks.developer_role => {
            with_role(&without_blank_parts(message), &Role::System)
        }
        Role::Assistant => {
            if quirks.tool_result_name {
                let calls = message.tool_calls().iter();
                tool_names.extend(calls.map(|call| (call.id.clone(), call.name.clone())));
            }
            adapted_assistant(without_blank_parts(message), quirks)
        }
        Role::Tool => {
            let call = message.tool_call_id();
            let name = call.and_then(|id| tool_names.get(id)).cloned();
            adapted_result(without_blank_parts(message), name)
        }
        Role::Developer | Role::System | Role::User => without_blank_parts(message),
        Role::Other(_) => message,
    });
    adapted.collect()
}

fn adapted_assistant(message: Message, quirks: &Quirks) -> Message {
    let has_calls = !message.tool_calls().is_empty();
    let reasoning_stays = quirks.send_reasoning && reasoning::stays_as_it_came(quirks);
    if !has_calls && reasoning_stays {
        return message;
    }
    let Ok(object) = RawObject::parse(message.json_str()) else {
        return message;
    };
    let mut changes = Changes::default();
    let content = object.get("content").map(RawValue::get);
    let expected = match quirks.empty_content {
        EmptyContent::LeaveOut => None,
        EmptyContent::Null => Some("null"),
        EmptyContent::Empty => Some("\"\""),
    };
    let is_empty = match content {
        None | Some("null" | "\"\"") => true,
        // Some models write white space between reasoning and a call.
        Some(text) if text.starts_with('"') => !quirks.blank_text && is_blank(text),
        Some(list) => is_blank(list),
    };
    if has_calls && is_empty && content != expected {
        changes.replace("content", expected.map(str::to_owned));
    }
    if !quirks.send_reasoning {
        reasoning::leave_out(&object, &mut changes);
    } else if !reasoning_stays {
        reasoning::settle(&object, quirks, &mut changes);
    }
    match changes.apply(&object) {
        Some(json) => message.with_same_calls(json),
        None => message,
    }
}

/// The result of a call, with the name of its tool if one is given.
fn adapted_result(message: Message, tool_name: Option<String>) -> Message {
    let Ok(object) = RawObject::parse(message.json_str()) else {
        return message;
    };
    let mut changes = Changes::default();
    if object
        .get("content")
        .is_none_or(|content| is_blank(content.get()))
    {
        changes.replace("content", Some(quoted(NO_OUTPUT)));
    }
    let has_name = object
        .get_some("name")
        .is_some_and(|name| name.get() != "\"\"");
    if let Some(name) = tool_name.filter(|name| !has_name && !name.is_empty()) {
        changes.replace("name", Some(quoted(&name)));
    }
    match changes.apply(&object) {
        Some(json) => message.with_same_calls(json),
        None => message,
    }
}

/// Changes to the fields of a message.
#[derive(Debug, Default)]
struct Changes(Vec<(&'static str, Option<String>)>);

impl Changes {
    /// Leaves a field out, or gives it another value as JSON text.
    fn replace(&mut self, key: &'static str, value: Option<String>) {
        self.0.push((key, value));
    }

    /// The JSON text of the message, where the new values follow the role. `None` if nothing changes.
    fn apply(self, object: &RawObject<'_>) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let mut json = String::from("{");
        for (key, value) in object.iter() {
            if self.0.iter().any(|(changed, _)| *changed == key) {
                continue;
            }
            push_entry(&mut json, key, value.get());
            if key == "role" {
                for (key, value) in &self.0 {
                    value
                        .iter()
                        .for_each(|value| push_entry(&mut json, key, value));
                }
            }
        }
        json.push('}');
        Some(json)
    }
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
    use super::super::settings::{MissingReasoning, ReasoningField};
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

    #[test]
    fn results_have_a_text_and_where_the_server_insists_the_name_of_their_tool() {
        let message = |json: &str| Message::parse(json).unwrap();
        let of_calls = r#"{"role":"assistant","content":"","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]}"#;
        let round = [
            message(of_calls),
            message(r#"{"role":"tool","tool_call_id":"a","content":""}"#),
            message(r#"{"role":"tool","tool_call_id":"b"}"#),
            message(r#"{"role":"tool","tool_call_id":"b","name":"own","content":[]}"#),
            message(r#"{"role":"tool","tool_call_id":"c","content":"\u00a0\r\n"}"#),
            message(r#"{"role":"tool","tool_call_id":"a","name":"","content":"r"}"#),
        ];
        let named = Quirks {
            tool_result_name: true,
            ..Quirks::default()
        };
        let say = r#""content":"(no output)""#;
        let expected = [
            of_calls.to_owned(),
            format!(r#"{{"role":"tool",{say},"name":"f","tool_call_id":"a"}}"#),
            format!(r#"{{"role":"tool",{say},"name":"g","tool_call_id":"b"}}"#),
            format!(r#"{{"role":"tool",{say},"tool_call_id":"b","name":"own"}}"#),
            format!(r#"{{"role":"tool",{say},"tool_call_id":"c"}}"#),
            r#"{"role":"tool","name":"f","tool_call_id":"a","content":"r"}"#.to_owned(),
        ];
        let sent = of_round(&round, &named);
        let sent: Vec<&str> = sent.iter().map(Message::json_str).collect();
        assert_eq!(sent, expected);
        let plain = of_history(round.to_vec(), &Quirks::default());
        let blank = format!(r#"{{"role":"tool",{say},"tool_call_id":"a"}}"#);
        assert_eq!(plain[1].json_str(), blank);
        assert_eq!(plain[5], round[5]);
    }

    #[test]
    fn reasoning_goes_into_one_field_or_something_stands_for_it() {
        let (empty, space) = (MissingReasoning::Empty, MissingReasoning::Space);
        let (content, own) = (ReasoningField::ReasoningContent, ReasoningField::Reasoning);
        let any = ReasoningField::AsItCame;
        let none = MissingReasoning::LeaveOut;
        for (given, field, missing, expected) in [
            (
                r#","reasoning":"a""#,
                content,
                none,
                r#","reasoning_content":"a""#,
            ),
            (
                r#","reasoning_content":"a","thinking":"b""#,
                own,
                none,
                r#","reasoning":"a""#,
            ),
            (
                r#","reasoning_content":"a""#,
                content,
                empty,
                r#","reasoning_content":"a""#,
            ),
            (
                r#","reasoning_content":"""#,
                content,
                empty,
                r#","reasoning_content":"""#,
            ),
            (
                r#","reasoning_content":"""#,
                content,
                space,
                r#","reasoning_content":" ""#,
            ),
            (
                r#","reasoning_content":null"#,
                any,
                empty,
                r#","reasoning_content":"""#,
            ),
            ("", any, space, r#","reasoning_content":" ""#),
            ("", own, none, ""),
            (r#","thinking":["x"]"#, own, none, ""),
            (r#","reasoning":"""#, any, none, r#","reasoning":"""#),
        ] {
            let quirks = Quirks {
                reasoning_field: field,
                missing_reasoning: missing,
                ..Quirks::default()
            };
            let of_model =
                |reasoning: &str| format!(r#"{{"role":"assistant"{reasoning},"content":"x"}}"#);
            assert_eq!(of(&of_model(given), &quirks), of_model(expected), "{given}");
        }
    }
}
