//! When two messages are the same one.
//!
//! A message may be compared with many of the other list, so its comparison key is computed once. A comparison then
//! takes time in proportion to the smaller of both messages.

use std::cell::OnceCell;

use super::super::View;
use super::super::repair::has_other_substance;
use crate::openai::message::{Message, Role};

/// A message and what it is compared by.
#[derive(Debug)]
pub(super) struct Compared<'a> {
    message: &'a Message,
    calls: OnceCell<Vec<&'a str>>,
    content_key: OnceCell<String>,
    text: OnceCell<String>,
}

/// What a client saw of a response and what a message that shows it is compared with.
#[derive(Debug)]
pub(super) struct Shown<'a> {
    view: &'a View,
    calls: OnceCell<Vec<&'a str>>,
    /// The whole text and that of the last round, without white space at the ends.
    texts: OnceCell<[&'a str; 2]>,
}

impl<'a> Compared<'a> {
    pub(super) fn new(message: &'a Message) -> Self {
        Self {
            message,
            calls: OnceCell::new(),
            content_key: OnceCell::new(),
            text: OnceCell::new(),
        }
    }

    pub(super) fn message(&self) -> &'a Message {
        self.message
    }

    /// Whether it is an empty assistant message, as some front ends keep of a turn that broke off.
    pub(super) fn is_blank(&self) -> bool {
        self.message.role() == &Role::Assistant
            && self.message.tool_calls().is_empty()
            && self.content_key().is_empty()
            && !has_other_substance(self.message)
    }

    fn calls(&self) -> &[&'a str] {
        let calls = self.message.tool_calls();
        self.calls
            .get_or_init(|| set_of(calls.iter().map(|call| call.id.as_str())))
    }

    fn content_key(&self) -> &str {
        self.content_key.get_or_init(|| self.message.content_key())
    }

    fn text(&self) -> &str {
        self.text
            .get_or_init(|| self.message.content_text().trim().to_owned())
    }
}

impl<'a> Shown<'a> {
    pub(super) fn new(view: &'a View) -> Self {
        Self {
            view,
            calls: OnceCell::new(),
            texts: OnceCell::new(),
        }
    }

    /// How many of the request's next messages show the response, or `None` when they do not.
    ///
    /// One, as a rule. Some clients write the text and the calls of an answer as two messages, and some leave out an
    /// answer that said nothing.
    pub(super) fn by(&self, incoming: &[Compared<'_>]) -> Option<usize> {
        let first = incoming.first()?;
        if first.message.role() != &Role::Assistant {
            return self.is_empty().then_some(0);
        }
        match (
            self.view.call_ids.is_empty(),
            first.message.tool_calls().is_empty(),
        ) {
            (true, true) => self.has_text_of(first).then_some(1),
            (false, false) => (self.calls() == first.calls()).then_some(1),
            (true, false) => None,
            (false, true) => {
                let second = incoming.get(1)?;
                let split = second.message.role() == &Role::Assistant
                    && self.calls() == second.calls()
                    && (first.is_blank() || self.has_text_of(first));
                split.then_some(2)
            }
        }
    }

    fn is_empty(&self) -> bool {
        let [text, _] = self.texts();
        self.view.call_ids.is_empty() && text.is_empty()
    }

    fn has_text_of(&self, message: &Compared<'_>) -> bool {
        self.texts().contains(&message.text())
    }

    fn calls(&self) -> &[&'a str] {
        self.calls
            .get_or_init(|| set_of(self.view.call_ids.iter().map(String::as_str)))
    }

    fn texts(&self) -> &[&'a str; 2] {
        self.texts
            .get_or_init(|| [self.view.text.trim(), self.view.final_text.trim()])
    }
}

/// Whether a message of the request is the stored one.
///
/// Tool results compare by the call that they answer and assistant messages with calls by these; all else by content.
pub(super) fn same(stored: &Compared<'_>, incoming: &Compared<'_>) -> bool {
    let (ours, theirs) = (stored.message, incoming.message);
    if ours.json() == theirs.json() {
        return true;
    }
    if ours.role() != theirs.role() {
        return false;
    }
    if ours.role() == &Role::Tool
        && let (Some(ours), Some(theirs)) = (ours.tool_call_id(), theirs.tool_call_id())
    {
        return ours == theirs;
    }
    match (ours.tool_calls().is_empty(), theirs.tool_calls().is_empty()) {
        (true, true) => stored.content_key() == incoming.content_key(),
        (false, false) => stored.calls() == incoming.calls(),
        _ => false,
    }
}

/// The ids in order, each once. Unlike sets that are hashed, two of these differ at once when their lengths do.
fn set_of<'a>(ids: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut ids: Vec<&str> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
