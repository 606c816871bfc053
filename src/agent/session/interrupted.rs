//! Results of calls that the end of the process interrupted.

use std::collections::HashSet;

use super::{StoredMessage, StoredSession};
use protocol::openai::message::{Message, Role};

/// The results for the server-side calls at the end of a session that have none, because the process ended while they
/// ran. `text_of` says what the model reads of a call of a tool. Calls that the client has to answer are not among them.
pub(crate) fn interrupted_results(
    session: &StoredSession,
    text_of: impl Fn(&str) -> String,
) -> Vec<StoredMessage> {
    let mut answered = HashSet::new();
    for stored in session.messages.iter().rev() {
        // A response that the client was given is complete.
        if stored.view.is_some() {
            return Vec::new();
        }
        match stored.message.role() {
            Role::Tool => answered.extend(stored.message.tool_call_id()),
            Role::Assistant if stored.hidden => {
                let calls = stored.message.tool_calls().iter();
                let missing = calls.filter(|call| !answered.contains(call.id.as_str()));
                let result = |call: &protocol::openai::tool::ToolCall| {
                    let text = text_of(&call.name);
                    StoredMessage::hidden(Message::tool_result(&call.id, &text))
                };
                return missing.map(result).collect();
            }
            _ => return Vec::new(),
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::View;

    fn session(json: &[(&str, bool)]) -> StoredSession {
        let message = |(json, hidden): &(&str, bool)| {
            let message = Message::parse(json).unwrap();
            match hidden {
                true => StoredMessage::hidden(message),
                false => StoredMessage::visible(message),
            }
        };
        StoredSession {
            messages: json.iter().map(message).collect(),
            ..StoredSession::default()
        }
    }

    const USER: (&str, bool) = (r#"{"role":"user","content":"hi"}"#, false);
    const CALLS: (&str, bool) = (
        r#"{"role":"assistant","content":null,"tool_calls":[
            {"id":"a","type":"function","function":{"name":"pay","arguments":"{}"}},
            {"id":"b","type":"function","function":{"name":"look","arguments":"{}"}}]}"#,
        true,
    );
    const RESULT: (&str, bool) = (
        r#"{"role":"tool","tool_call_id":"a","content":"paid"}"#,
        true,
    );

    #[test]
    fn calls_without_results_at_the_end_get_results() {
        let text_of = |name: &str| format!("{name} was interrupted");
        let both = interrupted_results(&session(&[USER, CALLS]), text_of);
        let texts: Vec<_> = both.iter().map(|one| one.message.content_text()).collect();
        assert_eq!(texts, ["pay was interrupted", "look was interrupted"]);
        assert!(both.iter().all(|one| one.hidden));
        let one = interrupted_results(&session(&[USER, CALLS, RESULT]), text_of);
        assert_eq!(one.len(), 1);
        assert_eq!(one[0].message.tool_call_id(), Some("b"));
    }

    #[test]
    fn a_history_that_ends_otherwise_gets_nothing() {
        let none = |session: &StoredSession| interrupted_results(session, str::to_owned).is_empty();
        assert!(none(&session(&[])));
        assert!(none(&session(&[USER])));
        assert!(none(&session(&[USER, CALLS, RESULT, USER])));
        // The client has the calls and will answer them.
        let mut waiting = session(&[USER, CALLS, RESULT]);
        waiting.messages[2].view = Some(View::default());
        assert!(none(&waiting));
    }
}
