//! Decides whether a message of the request and a stored message are the same.
//!
//! A message may be compared with many messages of the other list, so its comparison keys are computed once. A
//! comparison then takes time in proportion to the smaller message.

use std::cell::OnceCell;

use super::super::View;
use super::super::repair::has_other_content;
use protocol::openai::citation::with_plain_marks;
use protocol::openai::message::{Message, Role};

/// A message with its comparison keys, which are computed on first use.
#[derive(Debug)]
pub(super) struct ComparedMessage<'a> {
    message: &'a Message,
    calls: OnceCell<Vec<&'a str>>,
    content_key: OnceCell<String>,
    text: OnceCell<String>,
    /// The text with its marks in one form; `None` if it has no links of marks.
    plain_text: OnceCell<Option<String>>,
}

/// The client's view of a response with its comparison keys, which are computed on first use.
#[derive(Debug)]
pub(super) struct ComparedResponse<'a> {
    view: &'a View,
    calls: OnceCell<Vec<&'a str>>,
    /// The text of all rounds, the text of the last round, and that behind a wait, all trimmed.
    texts: OnceCell<[&'a str; 3]>,
    /// The same with marks in one form.
    plain_texts: OnceCell<[String; 3]>,
}

impl<'a> ComparedMessage<'a> {
    pub(super) fn new(message: &'a Message) -> Self {
        Self {
            message,
            calls: OnceCell::new(),
            content_key: OnceCell::new(),
            text: OnceCell::new(),
            plain_text: OnceCell::new(),
        }
    }

    pub(super) fn message(&self) -> &'a Message {
        self.message
    }

    /// Whether it is an empty assistant message. Some front ends keep one for an interrupted turn.
    pub(super) fn is_blank(&self) -> bool {
        self.message.role() == &Role::Assistant
            && self.message.tool_calls().is_empty()
            && self.content_key().is_empty()
            && !has_other_content(self.message)
    }

    fn calls(&self) -> &[&'a str] {
        let calls = self.message.tool_calls();
        self.calls
            .get_or_init(|| sorted_ids(calls.iter().map(|call| call.id.as_str())))
    }

    fn content_key(&self) -> &str {
        self.content_key.get_or_init(|| self.message.content_key())
    }

    fn text(&self) -> &str {
        self.text
            .get_or_init(|| self.message.content_text().trim().to_owned())
    }

    /// The text with its marks in one form, if marks in it are links.
    fn plain_text(&self) -> Option<&str> {
        let plain = self.plain_text.get_or_init(|| {
            let text = self.text();
            let has_links = text.contains("]](");
            has_links.then(|| with_plain_marks(text).into_owned())
        });
        plain.as_deref()
    }
}

impl<'a> ComparedResponse<'a> {
    pub(super) fn new(view: &'a View) -> Self {
        Self {
            view,
            calls: OnceCell::new(),
            texts: OnceCell::new(),
            plain_texts: OnceCell::new(),
        }
    }

    /// How many of the request's next messages represent the response; `None` if they do not.
    ///
    /// Usually one. Some clients split the text and the calls of a response into two messages, and some omit an empty
    /// response.
    pub(super) fn matched_by(&self, incoming: &[ComparedMessage<'_>]) -> Option<usize> {
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
        let [text, ..] = self.texts();
        self.view.call_ids.is_empty() && text.is_empty()
    }

    fn has_text_of(&self, message: &ComparedMessage<'_>) -> bool {
        if self.texts().contains(&message.text()) {
            return true;
        }
        let Some(text) = message.plain_text() else {
            return false;
        };
        let plain = self
            .plain_texts
            .get_or_init(|| self.texts().map(|text| with_plain_marks(text).into_owned()));
        plain.iter().any(|plain| plain == text)
    }

    fn calls(&self) -> &[&'a str] {
        self.calls
            .get_or_init(|| sorted_ids(self.view.call_ids.iter().map(String::as_str)))
    }

    fn texts(&self) -> &[&'a str; 3] {
        let View {
            text,
            final_text,
            behind_wait,
            ..
        } = self.view;
        let behind = behind_wait.as_ref().unwrap_or(text);
        self.texts
            .get_or_init(|| [text, final_text, behind].map(|text| text.trim()))
    }
}

/// Whether a message of the request is the stored message.
///
/// Tool results are compared by call id, assistant messages with calls by the ids of the calls, all others by content. In
/// the content of assistant messages a mark of a source equals a link of it.
pub(super) fn is_same(stored: &ComparedMessage<'_>, incoming: &ComparedMessage<'_>) -> bool {
    let (old, new) = (stored.message, incoming.message);
    if old.json() == new.json() {
        return true;
    }
    if old.role() != new.role() {
        return false;
    }
    if old.role() == &Role::Tool
        && let (Some(old), Some(new)) = (old.tool_call_id(), new.tool_call_id())
    {
        return old == new;
    }
    match (old.tool_calls().is_empty(), new.tool_calls().is_empty()) {
        (true, true) => {
            stored.content_key() == incoming.content_key() || has_marks_of(stored, incoming)
        }
        (false, false) => stored.calls() == incoming.calls(),
        _ => false,
    }
}

/// Whether an assistant message of the request is the stored one with links for its marks.
fn has_marks_of(stored: &ComparedMessage<'_>, incoming: &ComparedMessage<'_>) -> bool {
    stored.message.role() == &Role::Assistant
        && incoming
            .plain_text()
            .is_some_and(|text| with_plain_marks(stored.text()) == text)
}

/// The ids sorted and without duplicates. Two such lists of different length compare in constant time.
fn sorted_ids<'a>(ids: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut ids: Vec<&str> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
