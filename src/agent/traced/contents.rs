//! Messages, arguments and results as attributes of spans, if the operator enables them: without secrets, and
//! shortened.

use std::borrow::Cow;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::hooked_prompt::HookedPrompt;
use net::polling::{LONG_BYTES, block_in_place_if};
use policy::redact::Redactor;
use protocol::openai::message::Message;
use upstream::Transcript;
use upstream::assemble::ModelReply;

/// Most bytes of the texts of one attribute: of messages, arguments or a result. The rest is left out, of messages the oldest.
/// Tried by `traces::contents::long_contents_are_cut`.
const MAX_CONTENT_BYTES: usize = 16 * 1024;
/// Stands where a text was cut.
const CUT: char = '…';

/// The bytes that are left for the texts of an attribute.
struct Room<'a> {
    bytes: usize,
    redactor: Option<&'a Redactor>,
}

/// A text without secrets, and cut if it is too long.
pub(super) fn shortened(text: &str, redactor: Option<&Redactor>) -> String {
    let bytes = MAX_CONTENT_BYTES;
    Room { bytes, redactor }.take(text)
}

/// The newest messages of a model call.
pub(super) fn input_messages(transcript: &Transcript, redactor: Option<&Redactor>) -> String {
    let is_long = transcript.text().length() > LONG_BYTES as u64;
    let messages = block_in_place_if(is_long, || {
        let prompt = HookedPrompt::of(transcript);
        let messages = prompt.map(|prompt| prompt.messages).unwrap_or_default();
        newest(&messages, redactor)
    });
    Value::Array(messages).to_string()
}

fn newest(messages: &[Box<RawValue>], redactor: Option<&Redactor>) -> Vec<Value> {
    let bytes = MAX_CONTENT_BYTES;
    let mut room = Room { bytes, redactor };
    let mut shown = Vec::new();
    for message in messages.iter().rev() {
        if room.bytes == 0 {
            break;
        }
        shown.extend(
            Message::parse(message.get())
                .ok()
                .map(|it| room.message(&it)),
        );
    }
    shown.reverse();
    shown
}

/// The answer of a model, as a list with one message.
pub(super) fn output_messages(reply: &ModelReply, redactor: Option<&Redactor>) -> String {
    let bytes = MAX_CONTENT_BYTES;
    let mut room = Room { bytes, redactor };
    let mut parts = Vec::new();
    if let Some((reasoning, _)) = &reply.reasoning {
        parts.push(json!({"type": "reasoning", "content": room.take(reasoning)}));
    }
    parts.extend(room.text(&reply.text));
    for call in &reply.calls {
        let call = &call.call;
        parts.push(room.call(&call.id, &call.name, &call.arguments));
    }
    let finish = reply.finish.as_str();
    json!([{"role": "assistant", "parts": parts, "finish_reason": finish}]).to_string()
}

impl Room<'_> {
    fn message(&mut self, message: &Message) -> Value {
        let (role, text) = (self.take(message.role().as_str()), message.content_text());
        let parts = match message.tool_call_id() {
            Some(id) => {
                let (id, text) = (self.take(id), self.take(&text));
                vec![json!({"type": "tool_call_response", "id": id, "response": text})]
            }
            None => {
                let mut parts: Vec<Value> = self.text(&text).into_iter().collect();
                for call in message.tool_calls() {
                    if self.bytes == 0 {
                        break;
                    }
                    parts.push(self.call(&call.id, &call.name, &call.arguments));
                }
                parts
            }
        };
        json!({"role": role, "parts": parts})
    }

    fn text(&mut self, text: &str) -> Option<Value> {
        (!text.is_empty()).then(|| json!({"type": "text", "content": self.take(text)}))
    }

    /// The arguments stay a text, because shortened JSON is not valid.
    fn call(&mut self, id: &str, name: &str, arguments: &str) -> Value {
        let (id, name, arguments) = (self.take(id), self.take(name), self.take(arguments));
        json!({"type": "tool_call", "id": id, "name": name, "arguments": arguments})
    }

    fn take(&mut self, text: &str) -> String {
        let text = match self.redactor {
            Some(redactor) => redactor.redact(text),
            None => Cow::Borrowed(text),
        };
        let end = text.floor_char_boundary(self.bytes);
        // So that there is no end of empty texts.
        self.bytes = self.bytes.saturating_sub(end.max(1));
        match text.get(..end) {
            Some(start) if end < text.len() => format!("{start}{CUT}"),
            Some(_) | None => text.into_owned(),
        }
    }
}
