//! Builds messages from items: the items of one round of the model become one assistant message.

use std::collections::{HashMap, HashSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::InputFields;
use super::content::ToolResultContent;
use crate::dialects::responses::encode::{BETWEEN_ROUNDS, REASONING_MARK};
use protocol::openai::raw::{push_entry, quoted};

/// The messages of items so far.
#[derive(Debug, Default)]
pub(super) struct Messages {
    done: InputFields,
    /// A response is one message, as a session compares it.
    in_session: bool,
    /// Leading instructions.
    leading: Vec<String>,
    round: Option<OpenRound>,
    /// Reasoning that belongs to the next round: its field and text.
    reasoning: Option<(String, String)>,
    /// Images of results. A user message after the results holds them.
    images: Vec<String>,
    calls: HashSet<String>,
    calls_of_input: HashSet<String>,
    /// Outputs that stand before their calls, by the ids of the calls.
    early: HashMap<String, ToolResultContent>,
}

/// A round whose assistant message is not complete.
#[derive(Debug)]
struct OpenRound {
    index: usize,
    text: Option<String>,
    refusal: Option<String>,
    reasoning: Option<(String, String)>,
    /// JSON texts.
    calls: Vec<String>,
    /// Results that are known with the calls, as JSON texts of messages.
    results: Vec<String>,
    /// Images of these results.
    images: Vec<String>,
}

impl Messages {
    /// No messages yet. In a session, a response is one message without the calls of hosted tools.
    pub(super) fn new(in_session: bool, calls_of_input: HashSet<String>) -> Self {
        Self {
            in_session,
            calls_of_input,
            ..Self::default()
        }
    }

    /// Adds a record of another server's call, as a text for the model.
    pub(super) fn record(&mut self, index: usize, text: &str) {
        self.done.records.push(index);
        self.user(index, &quoted(text));
    }

    pub(super) fn user(&mut self, index: usize, content: &str) {
        self.flush();
        self.push(index, format!(r#"{{"role":"user","content":{content}}}"#));
    }

    pub(super) fn instructions(&mut self, index: usize, text: &str) {
        let is_leading = self.done.messages.is_empty() && self.round.is_none();
        if is_leading {
            self.leading.push(text.to_owned());
            return;
        }
        self.flush();
        self.push(index, system_message(text));
    }

    pub(super) fn assistant(&mut self, index: usize, text: String, refusal: Option<String>) {
        if self.in_session
            && let Some(OpenRound {
                text: Some(before), ..
            }) = &mut self.round
        {
            if !before.is_empty() && !text.is_empty() && !before.ends_with(BETWEEN_ROUNDS) {
                before.push_str(BETWEEN_ROUNDS);
            }
            before.push_str(&text);
            return;
        }
        // Text that follows calls or another text is of the next round.
        if !self.in_session
            && self
                .round
                .as_ref()
                .is_some_and(|round| round.text.is_some() || !round.calls.is_empty())
        {
            self.flush();
        }
        let round = self.round(index);
        round.text = Some(text);
        round.refusal = refusal;
    }

    pub(super) fn call(&mut self, index: usize, id: &str, name: &str, arguments: &str) {
        self.calls.insert(id.to_owned());
        let call = format!(
            r#"{{"id":{},"type":"function","function":{{"name":{},"arguments":{}}}}}"#,
            quoted(id),
            quoted(name),
            quoted(arguments)
        );
        let early = self.early.remove(id);
        let round = self.round(index);
        round.calls.push(call);
        if let Some(ToolResultContent { text, images }) = early {
            round.results.push(tool_message(id, &text));
            round.images.extend(images);
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of a call with its result"
    )]
    pub(super) fn hosted(
        &mut self,
        index: usize,
        id: &str,
        name: &str,
        arguments: &str,
        result: &str,
    ) {
        if self.in_session {
            return;
        }
        self.call(index, id, name, arguments);
        let result = tool_message(id, result);
        self.round(index).results.push(result);
    }

    pub(super) fn output(&mut self, index: usize, id: &str, content: ToolResultContent) {
        if !self.calls.contains(id) {
            if self.calls_of_input.contains(id) {
                self.early.insert(id.to_owned(), content);
                return;
            }
            self.done.unknown_calls.push(id.to_owned());
        }
        let images = std::mem::take(&mut self.images);
        self.flush();
        self.images = images;
        self.push(index, tool_message(id, &content.text));
        self.images.extend(content.images);
    }

    /// Adds reasoning, which begins a round. Only reasoning that this server has issued is used.
    pub(super) fn reasoning(&mut self, handle: Option<&str>) {
        if self.in_session {
            return;
        }
        if self.round.is_some() {
            self.flush();
        }
        self.reasoning = handle.and_then(opened).or_else(|| self.reasoning.take());
    }

    pub(super) fn finish(mut self) -> InputFields {
        self.flush();
        if !self.leading.is_empty() {
            let message = system_message(&self.leading.join("\n\n"));
            self.done.messages.insert(0, message);
            self.done.positions.insert(0, 0);
        }
        self.done
    }

    fn push(&mut self, index: usize, message: String) {
        self.done.messages.push(message);
        self.done.positions.push(index);
    }

    fn round(&mut self, index: usize) -> &mut OpenRound {
        if self.round.is_none() {
            self.flush_images();
        }
        let reasoning = &mut self.reasoning;
        self.round.get_or_insert_with(|| OpenRound {
            index,
            text: None,
            refusal: None,
            reasoning: reasoning.take(),
            calls: Vec::new(),
            results: Vec::new(),
            images: Vec::new(),
        })
    }

    /// Completes the messages before the next item.
    fn flush(&mut self) {
        self.flush_images();
        let Some(round) = self.round.take() else {
            return;
        };
        let mut json = String::from(r#"{"role":"assistant""#);
        let text = round.text.as_deref();
        // The separator between this text and the text of the next round comes from the encoder, not from the model.
        let text = match round.calls.is_empty() {
            true => text,
            false => text.map(|text| text.strip_suffix(BETWEEN_ROUNDS).unwrap_or(text)),
        };
        match text {
            Some(text) => push_entry(&mut json, "content", &quoted(text)),
            None => push_entry(&mut json, "content", "null"),
        }
        if let Some(refusal) = &round.refusal {
            push_entry(&mut json, "refusal", &quoted(refusal));
        }
        if let Some((field, text)) = &round.reasoning {
            push_entry(&mut json, field, &quoted(text));
        }
        if !round.calls.is_empty() {
            push_entry(
                &mut json,
                "tool_calls",
                &format!("[{}]", round.calls.join(",")),
            );
        }
        json.push('}');
        self.push(round.index, json);
        for result in round.results {
            self.push(round.index, result);
        }
        self.images.extend(round.images);
    }

    fn flush_images(&mut self) {
        if self.images.is_empty() {
            return;
        }
        let images = std::mem::take(&mut self.images).join(",");
        let index = self.done.positions.last().copied().unwrap_or_default();
        self.push(index, format!(r#"{{"role":"user","content":[{images}]}}"#));
    }
}

fn system_message(text: &str) -> String {
    format!(r#"{{"role":"system","content":{}}}"#, quoted(text))
}

fn tool_message(id: &str, text: &str) -> String {
    format!(
        r#"{{"role":"tool","tool_call_id":{},"content":{}}}"#,
        quoted(id),
        quoted(text)
    )
}

/// The field and text of reasoning that this server has given to the client; `None` if it is another's.
fn opened(handle: &str) -> Option<(String, String)> {
    /// Fields in which model servers take reasoning.
    const FIELDS: [&str; 4] = [
        "reasoning_content",
        "reasoning",
        "reasoning_text",
        "thinking",
    ];
    let json = STANDARD.decode(handle.strip_prefix(REASONING_MARK)?).ok()?;
    let (field, text): (String, String) = serde_json::from_slice(&json).ok()?;
    FIELDS.contains(&field.as_str()).then_some((field, text))
}
