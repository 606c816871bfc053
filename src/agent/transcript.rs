//! What goes into the history: messages in the form that an upstream takes, and the text that the client was given.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Value, json};

use super::event::AgentEvent;
use crate::openai::message::{AssistantParts, FieldChange, Message, Role};
use crate::openai::tool::ToolCall;
use crate::tools::set::{Lookup, ToolSet};
use crate::upstream::assemble::Turn;
use crate::upstream::settings::Quirks;

/// Fields in which servers send and take reasoning.
const REASONING_FIELDS: [&str; 4] = [
    "reasoning_content",
    "reasoning",
    "reasoning_text",
    "thinking",
];
/// What stands between the texts of two rounds.
const BETWEEN_ROUNDS: &str = "\n\n";

/// The assistant message of one round.
pub(super) fn assistant(turn: &Turn, calls: &[ToolCall], quirks: &Quirks) -> Message {
    let reasoning = turn.reasoning.as_ref().filter(|_| quirks.send_reasoning);
    Message::assistant(&AssistantParts {
        text: &turn.text,
        reasoning: reasoning.map(|(text, field)| (*field, text.as_str())),
        tool_calls: calls,
        extra: &turn.extra,
    })
}

/// An assistant message with a text that loopwright chose.
pub(super) fn said(text: &str) -> Message {
    Message::text(Role::Assistant, text)
}

/// The history without what the upstream does not take.
pub(super) fn for_upstream(history: Vec<Message>, quirks: &Quirks) -> Vec<Message> {
    if quirks.send_reasoning {
        return history;
    }
    let strip = |message: Message| {
        if *message.role() != Role::Assistant {
            return message;
        }
        message.with_fields(|key| match REASONING_FIELDS.contains(&key) {
            true => FieldChange::Drop,
            false => FieldChange::Keep,
        })
    };
    history.into_iter().map(strip).collect()
}

/// The function that a tool choice names.
pub(super) fn chosen_function(choice: &str) -> Option<String> {
    let value: Value = serde_json::from_str(choice).ok()?;
    value["function"]["name"].as_str().map(str::to_owned)
}

/// The tool choice of the first round; one that names a tool which is not offered is none.
pub(super) fn offered(choice: &str, tools: &ToolSet) -> Option<Arc<str>> {
    let value: Value = serde_json::from_str(choice).unwrap_or_default();
    let name = ["function", "custom"]
        .iter()
        .find_map(|kind| value[kind]["name"].as_str());
    let known = name.is_none_or(|name| !matches!(tools.lookup(name), Lookup::Unknown));
    known.then(|| choice.into())
}

/// The tool choice with OpenAI's hosted tools replaced by those that do their work here.
pub(super) fn with_own(
    choice: &str,
    tools: &ToolSet,
    own: impl Fn(&str) -> Option<&'static str>,
) -> String {
    let mut value: Value = serde_json::from_str(choice).unwrap_or_default();
    let ours = |value: &Value| {
        let by_type = value["type"].as_str().and_then(&own);
        let name = value["function"]["name"].as_str();
        let undeclared = name.filter(|name| matches!(tools.lookup(name), Lookup::Unknown));
        let name = by_type.or_else(|| undeclared.and_then(&own))?;
        Some(json!({"type": "function", "function": {"name": name}}))
    };
    if let Some(ours) = ours(&value) {
        return ours.to_string();
    }
    let allowed = value.pointer_mut("/allowed_tools/tools");
    let Some(allowed) = allowed.and_then(Value::as_array_mut) else {
        return choice.to_owned();
    };
    let mut replaced = false;
    for entry in allowed {
        if let Some(ours) = ours(entry) {
            *entry = ours;
            replaced = true;
        }
    }
    match replaced {
        true => value.to_string(),
        false => choice.to_owned(),
    }
}

/// The tool choice of the rounds after the first: what forced a call no longer does.
pub(super) fn freed(choice: &Arc<str>) -> Arc<str> {
    let mut value: Value = serde_json::from_str(choice).unwrap_or_default();
    let forced = ["function", "custom"]
        .iter()
        .any(|kind| value["type"] == *kind);
    if forced || value == "required" {
        return "\"auto\"".into();
    }
    if value["type"] == "allowed_tools" && value["allowed_tools"]["mode"] == "required" {
        value["allowed_tools"]["mode"] = "auto".into();
        return value.to_string().into();
    }
    choice.clone()
}

/// The text that the client was given so far, and where a blank line goes between two rounds.
#[derive(Debug, Default)]
pub(super) struct Spoken {
    /// Something was passed on in an earlier round.
    earlier: bool,
    /// Something was passed on in this round.
    now: bool,
    /// All rounds' text, joined, whatever was passed on.
    joined: String,
    last_round: String,
}

impl Spoken {
    /// A new round begins.
    pub(super) fn begin_round(&mut self) {
        self.earlier |= self.now;
        self.now = false;
        self.last_round.clear();
    }

    /// The event to send now for a text that arrives; a blank line may have to go first, the text then waits.
    pub(super) fn say(&mut self, text: String, ready: &mut VecDeque<AgentEvent>) -> AgentEvent {
        if self.blank_line_needed() {
            ready.push_front(AgentEvent::Text(text));
            AgentEvent::Text(BETWEEN_ROUNDS.to_owned())
        } else {
            AgentEvent::Text(text)
        }
    }

    /// The event to queue for a text that was held back; a blank line is queued first where one is needed.
    pub(super) fn say_queued(
        &mut self,
        text: String,
        ready: &mut VecDeque<AgentEvent>,
    ) -> AgentEvent {
        if self.blank_line_needed() {
            ready.push_back(AgentEvent::Text(BETWEEN_ROUNDS.to_owned()));
        }
        AgentEvent::Text(text)
    }

    /// A round's text is whole.
    pub(super) fn end_round(&mut self, text: &str) {
        if !text.is_empty() {
            if !self.joined.is_empty() {
                self.joined.push_str(BETWEEN_ROUNDS);
            }
            self.joined.push_str(text);
            self.last_round.push_str(text);
        }
    }

    /// Whether the round has no text.
    pub(super) fn round_is_silent(&self) -> bool {
        self.last_round.is_empty()
    }

    /// All rounds' text.
    pub(super) fn joined(&self) -> &str {
        &self.joined
    }

    /// The last round's text.
    pub(super) fn last_round(&self) -> &str {
        &self.last_round
    }

    fn blank_line_needed(&mut self) -> bool {
        let first = !self.now;
        self.now = true;
        first && self.earlier
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forced_choice_is_freed_and_others_stay() {
        for (asked, later) in [
            ("\"required\"", "\"auto\""),
            (r#"{"type":"function","function":{"name":"f"}}"#, "\"auto\""),
            ("\"none\"", "\"none\""),
            ("\"auto\"", "\"auto\""),
            (
                r#"{"type":"allowed_tools","allowed_tools":{}}"#,
                r#"{"type":"allowed_tools","allowed_tools":{}}"#,
            ),
            (
                r#"{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[]}}"#,
                r#"{"allowed_tools":{"mode":"auto","tools":[]},"type":"allowed_tools"}"#,
            ),
        ] {
            assert_eq!(&*freed(&asked.into()), later);
        }
    }

    #[test]
    fn a_choice_of_a_hosted_tool_means_the_one_that_does_its_work() {
        let none = ToolSet::default();
        let own = |kind: &str| (kind == "code_interpreter").then_some("execute_python");
        let ours = r#"{"function":{"name":"execute_python"},"type":"function"}"#;
        for (asked, sent) in [
            (r#"{"type":"code_interpreter"}"#, ours),
            (
                r#"{"type":"function","function":{"name":"code_interpreter"}}"#,
                ours,
            ),
            (
                r#"{"type":"function", "function":{"name":"f"}}"#,
                r#"{"type":"function", "function":{"name":"f"}}"#,
            ),
            ("\"required\"", "\"required\""),
            ("[\"nonsense", "[\"nonsense"),
        ] {
            assert_eq!(with_own(asked, &none, own), sent);
        }
        let allowed = |tool: &str| {
            format!(
                r#"{{"allowed_tools":{{"mode":"auto","tools":[{tool}]}},"type":"allowed_tools"}}"#
            )
        };
        let asked = allowed(r#"{"type":"code_interpreter"}"#);
        assert_eq!(with_own(&asked, &none, own), allowed(ours));
    }

    #[test]
    fn a_blank_line_stands_between_rounds_that_both_have_text() {
        let mut spoken = Spoken::default();
        let mut sent = String::new();
        for round in [&["a", "b"][..], &[], &["c"]] {
            spoken.begin_round();
            for text in round {
                let mut ready = VecDeque::new();
                let first = spoken.say((*text).to_owned(), &mut ready);
                for event in std::iter::once(first).chain(ready) {
                    if let AgentEvent::Text(text) = event {
                        sent.push_str(&text);
                    }
                }
            }
            spoken.end_round(&round.concat());
        }
        assert_eq!(sent, "ab\n\nc");
        assert_eq!((spoken.joined(), spoken.last_round()), ("ab\n\nc", "c"));
    }
}
