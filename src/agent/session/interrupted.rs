//! Results of calls that the end of the process interrupted.

use std::collections::HashSet;

use super::{StoredMessage, StoredSession};
use protocol::openai::message::{Message, Role};

/// The result of an interrupted call that may have had an effect.
const INTERRUPTED: &str = "The call was interrupted: the server stopped while it was running or before it started. It may have \
                           taken effect or not; find out before you repeat it.";
/// The result of an interrupted call that changes nothing.
const INTERRUPTED_READ: &str =
    "The call was interrupted: the server stopped before it had a result.";

/// What the model reads of an interrupted call.
pub(crate) fn interrupted_text(is_read_only: bool) -> &'static str {
    match is_read_only {
        true => INTERRUPTED_READ,
        false => INTERRUPTED,
    }
}

/// The results for the server-side calls at the end of a session that have none, because the process ended while they
/// ran. Calls that the client has to answer are not among them.
pub(crate) fn interrupted_results(
    session: &StoredSession,
    is_read_only: impl Fn(&str) -> bool,
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
                    let text = interrupted_text(is_read_only(&call.name));
                    StoredMessage::hidden(Message::tool_result(&call.id, text))
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
        let look = |name: &str| name == "look";
        let both = interrupted_results(&session(&[USER, CALLS]), look);
        let texts: Vec<_> = both.iter().map(|one| one.message.content_text()).collect();
        assert_eq!(texts, [INTERRUPTED, INTERRUPTED_READ]);
        assert!(both.iter().all(|one| one.hidden));
        let one = interrupted_results(&session(&[USER, CALLS, RESULT]), look);
        assert_eq!(one.len(), 1);
        assert_eq!(one[0].message.tool_call_id(), Some("b"));
    }

    #[test]
    fn a_history_that_ends_otherwise_gets_nothing() {
        let none = |session: &StoredSession| interrupted_results(session, |_| false).is_empty();
        assert!(none(&session(&[])));
        assert!(none(&session(&[USER])));
        assert!(none(&session(&[USER, CALLS, RESULT, USER])));
        // The client has the calls and will answer them.
        let mut waiting = session(&[USER, CALLS, RESULT]);
        waiting.messages[2].view = Some(View::default());
        assert!(none(&waiting));
    }
}
