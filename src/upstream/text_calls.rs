//! Finds tool calls that a model wrote as text, because its server did not parse them.
//!
//! The forms come from the chat templates of the families of models ([`families`]); a bare JSON object with the name of
//! an offered tool counts too. Text that begins like a call is held until it is clear whether it is one; all other text
//! passes immediately. Bare JSON counts only at the start of a line, and only if nothing but calls follows it up to the
//! end of the answer.

mod begin;
mod elements;
mod families;
mod forms;
mod offered;

use std::sync::Arc;

use self::begin::{Begin, begin_of_bare, find_begin};
use self::families::{FAMILIES, Family};
use self::forms::{JsonEnd, TextVerdict};
use self::offered::Offered;
use protocol::openai::ending::AnswerEnd;
use protocol::openai::event::{ModelEvent, TextForm, ToolCallDelta};
use protocol::openai::usage::FinishReason;

/// Most bytes of text that are held; longer text is no call.
const MAX_HELD: usize = 1024 * 1024;
/// Most bytes of text that may become the begin of a call; longer text is no call.
/// Tried by `text_calls::held_text_is_bounded`.
const MAX_BEGIN: usize = 1024;

/// Special tokens of Llama and `ChatML` that may end the text of a call.
const END_TOKENS: [&str; 3] = ["<|eom_id|>", "<|eot_id|>", "<|im_end|>"];

/// A call that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FoundCall {
    name: String,
    arguments: String,
}

/// Finds the calls in the text of one answer.
#[derive(Debug)]
pub(crate) struct TextCalls {
    /// The tools that the model may call.
    offered: Offered,
    /// Text that may be a call or the start of one.
    held: String,
    state: State,
    /// The next text is at the start of a line.
    line_start: bool,
    /// The model called a tool in the server's own form.
    has_native_calls: bool,
    found: u32,
    /// Nothing was passed on since the last call.
    after_call: bool,
}

#[derive(Debug)]
enum State {
    /// Nothing has begun.
    Text,
    /// `held` begins with a mark of a family.
    Marked(&'static Family, JsonEnd),
    /// `held` begins with a bare JSON value that is not complete.
    Bare(JsonEnd),
    /// `held` holds complete bare calls up to this place, and perhaps another that is not complete.
    BareDone(usize, Vec<FoundCall>, JsonEnd),
}

impl TextCalls {
    /// Finds calls of the tools of a request, whose `tools` are given. Calls with a mark may have any name.
    pub(crate) fn new(tools: Arc<str>) -> Self {
        Self {
            offered: Offered::new(tools),
            held: String::new(),
            state: State::Text,
            line_start: true,
            has_native_calls: false,
            found: 0,
            after_call: false,
        }
    }

    /// Replaces the events from `from` on by those in which calls are no text.
    pub(crate) fn apply(&mut self, events: &mut Vec<ModelEvent>, from: usize) {
        let new = events.split_off(from.min(events.len()));
        for event in new {
            match event {
                ModelEvent::Text(text) => self.push(&text, events),
                ModelEvent::ToolCall(call) => {
                    self.has_native_calls = true;
                    self.release(events);
                    events.push(ModelEvent::ToolCall(call));
                }
                ModelEvent::TextWasReasoning { .. } => {
                    self.release(events);
                    events.push(event);
                }
                ModelEvent::Finish(reason) => {
                    self.end(events);
                    let reason = match reason {
                        AnswerEnd::Reason(FinishReason::Stop) if self.found > 0 => {
                            AnswerEnd::Reason(FinishReason::ToolCalls)
                        }
                        other => other,
                    };
                    events.push(ModelEvent::Finish(reason));
                }
                other => events.push(other),
            }
        }
    }

    /// Appends the held text, because the answer broke off.
    pub(crate) fn release(&mut self, out: &mut Vec<ModelEvent>) {
        self.state = State::Text;
        let held = std::mem::take(&mut self.held);
        self.emit(&held, out);
    }

    /// The answer is complete: complete bare calls are calls.
    fn end(&mut self, out: &mut Vec<ModelEvent>) {
        if let State::BareDone(_, calls, _) = &mut self.state {
            let calls = std::mem::take(calls);
            self.held.clear();
            self.state = State::Text;
            self.call(calls, TextForm::BareJson, out);
            return;
        }
        self.release(out);
    }

    fn push(&mut self, text: &str, out: &mut Vec<ModelEvent>) {
        if self.has_native_calls {
            return out.push(ModelEvent::Text(text.to_owned()));
        }
        self.held.push_str(text);
        if self.after_call && matches!(self.state, State::Text) && !self.skip_separators() {
            return;
        }
        // Each turn takes something from the held text, or waits for more.
        loop {
            let goes_on = match &mut self.state {
                State::Text => self.look_for_begin(out),
                State::Marked(family, end) => {
                    let family = *family;
                    match family.read(&self.held, end, &self.offered) {
                        TextVerdict::Open => self.bound(out),
                        TextVerdict::Calls(calls, length) => {
                            self.held.drain(..length);
                            self.state = State::Text;
                            self.call(calls, family.form, out);
                            self.skip_separators()
                        }
                        TextVerdict::Text => self.is_text(out),
                    }
                }
                State::Bare(end) => match forms::bare(&self.held, 0, end, self.offered.names()) {
                    TextVerdict::Open => self.bound(out),
                    TextVerdict::Calls(calls, length) => {
                        self.state = State::BareDone(length, calls, JsonEnd::default());
                        true
                    }
                    TextVerdict::Text => self.is_text(out),
                },
                State::BareDone(..) => self.after_bare(out),
            };
            if !goes_on || self.held.is_empty() {
                return;
            }
        }
    }

    /// Drops separators between and after calls. Returns whether the text turned out to be something else.
    fn skip_separators(&mut self) -> bool {
        let (rest, is_open) = without_separators(&self.held);
        let dropped = self.held.len() - rest.len();
        self.held.drain(..dropped);
        !is_open
    }

    /// Searches the held text for the beginning of a call, and passes on the text before it. Returns whether one was
    /// found.
    fn look_for_begin(&mut self, out: &mut Vec<ModelEvent>) -> bool {
        match find_begin(&self.held, self.line_start, self.offered.names()) {
            Begin::Marked(place, family) => {
                self.pass_on(place, out);
                self.state = State::Marked(family, JsonEnd::default());
                true
            }
            Begin::Bare(place) => {
                self.pass_on(place, out);
                self.state = State::Bare(JsonEnd::default());
                true
            }
            // What follows may be the start of a begin.
            Begin::Perhaps(place) => {
                self.pass_on(place, out);
                self.held.len() > MAX_BEGIN && self.is_text(out)
            }
            Begin::None => {
                self.pass_on(self.held.len(), out);
                false
            }
        }
    }

    /// More calls or nothing may follow a bare call.
    fn after_bare(&mut self, out: &mut Vec<ModelEvent>) -> bool {
        let State::BareDone(length, calls, end) = &mut self.state else {
            return false;
        };
        let rest = self.held.get(*length..).unwrap_or_default();
        let (next, is_open) = without_separators(rest);
        if is_open {
            return self.bound(out);
        }
        let start = self.held.len() - next.len();
        match begin_of_bare(next, self.offered.names()) {
            Some(true) => match forms::bare(&self.held, start, end, self.offered.names()) {
                TextVerdict::Open => self.bound(out),
                TextVerdict::Calls(more, until) => {
                    calls.extend(more);
                    (*length, *end) = (until, JsonEnd::default());
                    true
                }
                TextVerdict::Text => self.is_text(out),
            },
            None => self.bound(out),
            Some(false) => self.is_text(out),
        }
    }

    /// Waits for more text, unless there is too much already.
    fn bound(&mut self, out: &mut Vec<ModelEvent>) -> bool {
        if self.held.len() <= MAX_HELD {
            return false;
        }
        self.is_text(out)
    }

    /// What is held does not begin a call after all: its first character passes, the rest is looked at again.
    fn is_text(&mut self, out: &mut Vec<ModelEvent>) -> bool {
        self.state = State::Text;
        let first = self.held.chars().next().map_or(0, char::len_utf8);
        self.line_start = false;
        self.pass_on(first, out);
        true
    }

    fn pass_on(&mut self, length: usize, out: &mut Vec<ModelEvent>) {
        let rest = self.held.split_off(length.min(self.held.len()));
        let text = std::mem::replace(&mut self.held, rest);
        self.emit(&text, out);
    }

    fn emit(&mut self, text: &str, out: &mut Vec<ModelEvent>) {
        if text.is_empty() {
            return;
        }
        if let Some(last_line) = text.rsplit('\n').next() {
            let blank = last_line.trim().is_empty();
            self.line_start = blank && (text.contains('\n') || self.line_start);
        }
        self.after_call = false;
        out.push(ModelEvent::Text(text.to_owned()));
    }

    fn call(&mut self, calls: Vec<FoundCall>, form: TextForm, out: &mut Vec<ModelEvent>) {
        for call in calls {
            out.push(ModelEvent::ToolCall(ToolCallDelta {
                index: Some(self.found),
                name: Some(call.name),
                arguments: Some(call.arguments),
                whole: true,
                text_form: Some(form),
                ..ToolCallDelta::default()
            }));
            self.found += 1;
        }
        self.after_call = true;
        self.line_start = true;
    }
}

/// The text without separators between and after calls, and whether the rest may still continue one.
fn without_separators(text: &str) -> (&str, bool) {
    let of_families = FAMILIES.iter().flat_map(|family| family.ends);
    let ends = || END_TOKENS.iter().chain(of_families.clone());
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n', ';', ',']);
        match ends().find_map(|end| rest.strip_prefix(end)) {
            Some(after) => rest = after,
            None => break,
        }
    }
    let is_open = ends().any(|end| end.starts_with(rest));
    (rest, is_open)
}

#[cfg(test)]
mod tests;
