//! Decodes the chunks of all known variants of the chat protocol.
//!
//! The decoder tolerates the known deviations from OpenAI's chunks, and turns each chunk into [`ModelEvent`]s. It knows
//! nothing of sockets.

mod calls;
mod repeat;
mod text;
mod wire;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use serde_json::value::RawValue;

use self::repeat::{PreviousChunk, TextKind};
pub(super) use self::text::one_line;
use self::text::{is_falsy, lossy_string, replace_lone_surrogates};
use self::wire::{Chunk, Delta, Entries, MAX_UNKNOWN_KEYS};
use super::settings::Quirks;
use super::text_calls::TextCalls;
use super::think::ThinkSplitter;
use crate::openai::event::ModelEvent;
use crate::openai::raw::RawObject;
use crate::openai::usage::{FinishReason, Usage};

/// The field name of events for reasoning that is a part of the content.
const PART_REASONING_FIELD: &str = "reasoning_content";

/// Why a chunk cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The upstream reported an error: the value of `error`, or the object that is the error, as JSON text.
    #[error("the server reported an error")]
    Reported(Box<str>),
    /// The data is not a chunk. The text contains no content of it.
    #[error("{0}")]
    Malformed(String),
}

/// Turns the chunks of one response into events.
#[derive(Debug)]
pub struct ChunkDecoder {
    think: Option<ThinkSplitter>,
    /// Finds calls in the text.
    text_calls: Option<TextCalls>,
    model: Box<str>,
    /// The unknown chunk fields of the last event with such fields.
    chunk_extra: Vec<(String, Box<str>)>,
    /// Names of all unknown fields so far.
    unknown_keys: HashSet<Box<str>>,
    /// The previous chunk, if its only content is a text.
    previous: PreviousChunk,
    saw_delta: bool,
    finished: bool,
}

impl ChunkDecoder {
    /// Makes a decoder for one response.
    pub fn new(quirks: &Quirks) -> Self {
        Self {
            think: quirks.think_tags.then(ThinkSplitter::default),
            text_calls: None,
            model: Box::default(),
            chunk_extra: Vec::new(),
            unknown_keys: HashSet::new(),
            previous: PreviousChunk::default(),
            saw_delta: false,
            finished: false,
        }
    }

    /// Finds calls of these tools that are written as text.
    #[must_use]
    pub fn with_text_calls(mut self, offered: Arc<[String]>) -> Self {
        self.text_calls = Some(TextCalls::new(offered));
        self
    }

    /// Whether the finish reason has arrived.
    pub fn finished(&self) -> bool {
        self.finished
    }

    /// Decodes one chunk and appends its events.
    ///
    /// The order is: unknown fields of the chunk; of the delta its unknown fields, reasoning, text, calls; unknown fields
    /// of the choice; the finish reason; the usage.
    ///
    /// # Errors
    /// When the chunk reports an error or is not a chunk.
    pub fn decode(&mut self, data: &str, out: &mut Vec<ModelEvent>) -> Result<(), DecodeError> {
        let from = out.len();
        self.decode_chunk(data, out)?;
        self.find_text_calls(out, from);
        Ok(())
    }

    fn decode_chunk(&mut self, data: &str, out: &mut Vec<ModelEvent>) -> Result<(), DecodeError> {
        if let Some((kind, text)) = self.previous.text_of(data) {
            self.push_text(kind, text, out);
            return Ok(());
        }
        self.previous.forget();
        let data = one_line(data);
        with_chunk(&data, |chunk| {
            self.emit(chunk, false, out)?;
            if let Some((kind, text)) = chunk.only_text() {
                self.previous.learn(&data, kind, text);
            }
            Ok(())
        })
    }

    /// Decodes a response that was not streamed and appends its events, which always include a finish.
    ///
    /// # Errors
    /// When the response reports an error or is not a completion.
    pub fn decode_whole(
        &mut self,
        body: &str,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), DecodeError> {
        with_chunk(&one_line(body), |chunk| {
            if chunk.choice.is_none() && chunk.error.is_none_or(is_falsy) {
                return Err(DecodeError::Malformed("the response has no choices".into()));
            }
            let from = out.len();
            self.emit(chunk, true, out)?;
            self.find_text_calls(out, from);
            Ok(())
        })?;
        self.finish(out);
        Ok(())
    }

    /// Ends the response: appends pending text and, if the upstream sent no finish, a finish.
    pub fn finish(&mut self, out: &mut Vec<ModelEvent>) {
        let from = out.len();
        self.flush_think(out);
        if !self.finished {
            self.finished = true;
            out.push(ModelEvent::Finish(FinishReason::Stop));
        }
        self.find_text_calls(out, from);
    }

    /// Appends text that is pending because it may be a part of a reasoning tag or of a call. The answer broke off.
    pub fn flush(&mut self, out: &mut Vec<ModelEvent>) {
        let from = out.len();
        self.flush_think(out);
        self.find_text_calls(out, from);
        if let Some(calls) = &mut self.text_calls {
            calls.release(out);
        }
    }

    fn find_text_calls(&mut self, out: &mut Vec<ModelEvent>, from: usize) {
        if let Some(calls) = &mut self.text_calls {
            calls.apply(out, from);
        }
    }

    fn flush_think(&mut self, out: &mut Vec<ModelEvent>) {
        if let Some(think) = &mut self.think {
            think.flush(out);
        }
    }

    fn emit(
        &mut self,
        chunk: &Chunk<'_>,
        whole: bool,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), DecodeError> {
        if let Some(error) = chunk.error.filter(|error| !is_falsy(error)) {
            return Err(DecodeError::Reported(error.get().into()));
        }
        if let Some(model) = chunk.model
            && *model.get() != *self.model
        {
            self.model = model.get().into();
            if let Some(name) = lossy_string(model).filter(|name| !name.is_empty()) {
                out.push(ModelEvent::Model(name));
            }
        }
        self.count_keys(chunk)?;
        if !chunk.extra.is_empty() && !is_same(&chunk.extra, &self.chunk_extra) {
            self.chunk_extra = owned(&chunk.extra);
            out.push(ModelEvent::ChunkExtra(self.chunk_extra.clone()));
        }
        if let Some(choice) = &chunk.choice {
            let before = out.len();
            let delta = choice.delta.as_ref().filter(|delta| !delta.is_empty());
            if let Some(delta) = delta {
                self.saw_delta = true;
                self.delta(delta, whole, out)?;
            } else if let Some(message) = choice.message.as_ref().filter(|_| !self.saw_delta) {
                self.delta(message, true, out)?;
            }
            let fields =
                (!choice.extra.is_empty()).then(|| ModelEvent::ChoiceExtra(owned(&choice.extra)));
            let has_delta_events = out.len() > before;
            let finish = choice
                .finish_reason
                .and_then(lossy_string)
                .filter(|word| !word.is_empty() && !self.finished);
            // The fields follow the events that they belong to.
            let (early, late) = if has_delta_events {
                (fields, None)
            } else {
                (None, fields)
            };
            out.extend(early);
            if let Some(word) = finish {
                self.flush_think(out);
                self.finished = true;
                out.push(ModelEvent::Finish(FinishReason::parse(&word)));
            }
            out.extend(late);
        }
        if let Some(usage) = chunk.usage.and_then(|usage| Usage::parse(usage.get())) {
            out.push(ModelEvent::Usage(usage));
        }
        Ok(())
    }

    fn delta(
        &mut self,
        delta: &Delta<'_>,
        whole: bool,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), DecodeError> {
        if !delta.extra.is_empty() {
            out.push(ModelEvent::DeltaExtra(owned(&delta.extra)));
        }
        let content = delta.content.map(content).unwrap_or_default();
        let mut reasoning = delta.reasoning();
        if reasoning.is_none() && !content.reasoning.is_empty() {
            reasoning = Some((content.reasoning, PART_REASONING_FIELD));
        }
        if let Some((text, field)) = reasoning {
            out.push(ModelEvent::Reasoning { text, field });
        }
        if !content.text.is_empty() {
            self.push_text(TextKind::Text, content.text.into(), out);
        }
        if delta.tool_calls.is_some() || delta.function_call.is_some() {
            let calls = calls::of_delta(delta, whole)?;
            if !calls.is_empty() {
                self.flush_think(out);
            }
            out.extend(calls.into_iter().map(ModelEvent::ToolCall));
        }
        Ok(())
    }

    /// Appends a non-empty text.
    fn push_text(&mut self, kind: TextKind, text: Cow<'_, str>, out: &mut Vec<ModelEvent>) {
        match (kind, &mut self.think) {
            (TextKind::Text, Some(think)) => think.push(&text, out),
            (TextKind::Text, None) => out.push(ModelEvent::Text(text.into_owned())),
            (TextKind::Reasoning(field), _) => out.push(ModelEvent::Reasoning {
                text: text.into_owned(),
                field,
            }),
        }
    }

    /// Counts the different unknown fields of the response. They are bounded because they are stored until its end.
    fn count_keys(&mut self, chunk: &Chunk<'_>) -> Result<(), DecodeError> {
        let choice = chunk.choice.as_ref();
        let parts = choice.map(|choice| [choice.delta.as_ref(), choice.message.as_ref()]);
        let parts = parts.into_iter().flatten().flatten();
        let entries = [Some(&chunk.extra), choice.map(|choice| &choice.extra)]
            .into_iter()
            .flatten()
            .chain(parts.map(|delta| &delta.extra));
        for (key, _) in entries.flatten() {
            if self.unknown_keys.contains(key.as_ref()) {
                continue;
            }
            if self.unknown_keys.len() >= MAX_UNKNOWN_KEYS {
                let reason = format!("more than {MAX_UNKNOWN_KEYS} unknown fields");
                return Err(DecodeError::Malformed(reason));
            }
            self.unknown_keys.insert(key.as_ref().into());
        }
        Ok(())
    }
}

/// Parses a chunk. If that fails, tries again with lone surrogate escapes replaced.
fn with_chunk<T>(
    data: &str,
    read: impl FnOnce(&Chunk<'_>) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    let replaced;
    let chunk = match wire::parse(data) {
        Ok(chunk) => chunk,
        Err(error) => {
            replaced = replace_lone_surrogates(data);
            wire::parse(&replaced).map_err(|_| DecodeError::Malformed(describe(&error)))?
        }
    };
    if chunk.is_error_object() {
        return Err(DecodeError::Reported(data.into()));
    }
    read(&chunk)
}

/// Describes a JSON error without any content of the text.
fn describe(error: &serde_json::Error) -> String {
    let kind = match error.classify() {
        serde_json::error::Category::Eof => "JSON that ends early",
        serde_json::error::Category::Data => "JSON of an unknown shape",
        serde_json::error::Category::Syntax | serde_json::error::Category::Io => {
            "text that is not JSON"
        }
    };
    format!("{kind} (column {})", error.column())
}

fn owned(fields: &Entries<'_>) -> Vec<(String, Box<str>)> {
    fields
        .iter()
        .map(|(key, value)| (key.as_ref().to_owned(), value.get().into()))
        .collect()
}

fn is_same(fields: &Entries<'_>, known: &[(String, Box<str>)]) -> bool {
    fields.len() == known.len()
        && fields
            .iter()
            .zip(known)
            .all(|((key, value), (name, json))| key == name && value.get() == &**json)
}

/// The texts of a `content` value, which is a string or a list of parts.
#[derive(Debug, Default)]
struct Content {
    text: String,
    reasoning: String,
}

fn content(value: &RawValue) -> Content {
    if let Some(text) = lossy_string(value) {
        return Content {
            text,
            reasoning: String::new(),
        };
    }
    let mut content = Content::default();
    for part in serde_json::from_str::<Vec<&RawValue>>(value.get()).unwrap_or_default() {
        if let Some(text) = lossy_string(part) {
            content.text.push_str(&text);
            continue;
        }
        let Ok(part) = RawObject::parse(part.get()) else {
            continue;
        };
        if let Some(thinking) = part.get_some("thinking") {
            content.reasoning.push_str(&text::flat_text(thinking));
        } else if let Some(text) = part.get_some("text").and_then(lossy_string) {
            content.text.push_str(&text);
        }
    }
    content
}

#[cfg(test)]
mod tests;
