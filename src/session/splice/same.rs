//! When two messages are the same one.

use std::collections::HashSet;

use super::super::View;
use super::super::repair::has_other_substance;
use crate::openai::message::{Message, Role};

/// Whether a message of the request is the stored one.
///
/// Tool results compare by the call that they answer and assistant messages with calls by these; all else by content.
pub(super) fn same(stored: &Message, incoming: &Message) -> bool {
    if stored.json() == incoming.json() {
        return true;
    }
    if stored.role() != incoming.role() {
        return false;
    }
    if stored.role() == &Role::Tool
        && let (Some(ours), Some(theirs)) = (stored.tool_call_id(), incoming.tool_call_id())
    {
        return ours == theirs;
    }
    if stored.tool_calls().is_empty() && incoming.tool_calls().is_empty() {
        return stored.content_key() == incoming.content_key();
    }
    same_calls(
        stored.tool_calls().iter().map(|call| call.id.as_str()),
        incoming,
    )
}

/// How many of the request's next messages show a response, or `None` when they do not.
///
/// One, as a rule. Some clients write the text and the calls of an answer as two messages, and some leave out an answer
/// that said nothing.
pub(super) fn shown_by(view: &View, incoming: &[Message]) -> Option<usize> {
    let first = incoming.first()?;
    if first.role() != &Role::Assistant {
        return is_empty(view).then_some(0);
    }
    let view_calls = || view.call_ids.iter().map(String::as_str);
    match (view.call_ids.is_empty(), first.tool_calls().is_empty()) {
        (true, true) => shows_text(view, first).then_some(1),
        (false, false) => same_calls(view_calls(), first).then_some(1),
        (true, false) => None,
        (false, true) => {
            let second = incoming.get(1)?;
            let split = second.role() == &Role::Assistant
                && same_calls(view_calls(), second)
                && (is_blank(first) || shows_text(view, first));
            split.then_some(2)
        }
    }
}

/// Whether an assistant message of the request says nothing at all: the bubble that a front end keeps of a broken turn.
pub(super) fn is_blank(message: &Message) -> bool {
    message.role() == &Role::Assistant
        && message.tool_calls().is_empty()
        && message.content_key().is_empty()
        && !has_other_substance(message)
}

fn is_empty(view: &View) -> bool {
    view.call_ids.is_empty() && view.text.trim().is_empty()
}

fn shows_text(view: &View, message: &Message) -> bool {
    let text = message.content_text();
    let text = text.trim();
    text == view.text.trim() || text == view.final_text.trim()
}

fn same_calls<'a>(ours: impl Iterator<Item = &'a str>, incoming: &Message) -> bool {
    let ours: HashSet<&str> = ours.collect();
    let theirs: HashSet<&str> = incoming
        .tool_calls()
        .iter()
        .map(|call| call.id.as_str())
        .collect();
    ours == theirs
}
