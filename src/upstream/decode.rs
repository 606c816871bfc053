//! Decodes the chunks of all known variants of the chat protocol.
//!
//! The decoder tolerates the known deviations from OpenAI's chunks, and turns each chunk into [`ModelEvent`]s. It does
//! not depend on sockets.

mod calls;
mod content;
mod parse;
mod repeat;
mod text;
mod wire;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use serde_json::value::RawValue;

use self::content::{ContentTexts, text_part};
pub(crate) use self::parse::DecodeError;
pub(super) use self::parse::reported_error;
use self::parse::{is_same, owned, with_chunk, without_done};
use self::repeat::{PreviousChunk, TextKind};
pub(super) use self::text::one_line;
use self::text::{Halves, TextOf, lossy_string};
use self::wire::{Choice, Chunk, Delta, Entries, MAX_UNKNOWN_KEYS};
use super::AnswerId;
use super::settings::Quirks;
use super::text_calls::TextCalls;
use super::think::ThinkSplitter;
use protocol::ids::shown;
use protocol::openai::ending::AnswerEnd;
use protocol::openai::event::{ModelEvent, ToolCallDelta};
use protocol::openai::raw::quoted;
use protocol::openai::usage::Usage;

/// The field name of events for reasoning that is a part of the content.
const PART_REASONING_FIELD: &str = "reasoning_content";

/// Turns the chunks of one response into events.
#[derive(Debug)]
pub(crate) struct ChunkDecoder {
    think: Option<ThinkSplitter>,
    /// Finds calls in the text.
    text_calls: Option<TextCalls>,
    model: Box<str>,
    answer_id: AnswerId,
    /// The unknown chunk fields of the last event with such fields.
    chunk_extra: Vec<(String, Box<str>)>,
    /// Names of all unknown fields so far.
    unknown_keys: HashSet<Box<str>>,
    /// The previous chunk, if its only content is a text.
    previous: PreviousChunk,
    /// First halves of characters.
    halves: Halves,
    saw_delta: bool,
    saw_reasoning: bool,
    /// The content has parts that are more than plain texts.
    has_parts: bool,
    /// How the upstream has ended the answer, if it has.
    end: Option<AnswerEnd>,
}

impl ChunkDecoder {
    /// Makes a decoder for one response.
    pub(crate) fn new(quirks: &Quirks) -> Self {
        Self {
            think: ThinkSplitter::new(quirks.think_tags),
            text_calls: None,
            model: Box::default(),
            answer_id: AnswerId::default(),
            chunk_extra: Vec::new(),
            unknown_keys: HashSet::new(),
            previous: PreviousChunk::default(),
            halves: Halves::default(),
            saw_delta: false,
            saw_reasoning: false,
            has_parts: false,
            end: None,
        }
    }

    /// Finds calls of tools that are written as text. `tools` is the array of the request.
    #[must_use]
    pub(crate) fn with_text_calls(mut self, tools: Arc<str>) -> Self {
        self.text_calls = Some(TextCalls::new(tools));
        self
    }

    /// The id of the answer, which is known once a chunk with it is decoded.
    pub(crate) fn answer_id(&self) -> AnswerId {
        self.answer_id.clone()
    }

    /// Whether a finish reason has arrived.
    pub(crate) fn finished(&self) -> bool {
        self.end.is_some()
    }

    /// Whether the last finish reason is a known one: later chunks do not change it.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.end, Some(AnswerEnd::Reason(_)))
    }

    /// Decodes one chunk and appends its events.
    ///
    /// The order is: unknown fields of the chunk; of the delta its unknown fields, reasoning, text, calls; unknown fields
    /// of the choice; the finish reason; the usage.
    ///
    /// # Errors
    /// When the chunk reports an error or is not a chunk.
    pub(crate) fn decode(
        &mut self,
        data: &str,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), DecodeError> {
        let from = out.len();
        self.decode_chunk(data, out)?;
        self.find_text_calls(out, from);
        Ok(())
    }

    fn decode_chunk(&mut self, data: &str, out: &mut Vec<ModelEvent>) -> Result<(), DecodeError> {
        if self.halves.is_empty()
            && !self.has_parts
            && let Some((kind, text)) = self.previous.text_of(data)
        {
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
    pub(crate) fn decode_whole(
        &mut self,
        body: &str,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), DecodeError> {
        with_chunk(&one_line(without_done(body)), |chunk| {
            if chunk.choice.is_none() {
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
    pub(crate) fn finish(&mut self, out: &mut Vec<ModelEvent>) {
        let from = out.len();
        self.flush_halves(out);
        self.flush_think(out);
        if self.end.is_none() {
            self.end = Some(AnswerEnd::Unstated);
            out.push(ModelEvent::Finish(AnswerEnd::Unstated));
        }
        self.find_text_calls(out, from);
    }

    /// Appends text that is pending because it may be a part of a reasoning tag or of a call. The answer broke off.
    pub(crate) fn flush(&mut self, out: &mut Vec<ModelEvent>) {
        let from = out.len();
        self.flush_halves(out);
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

    /// Appends a replacement for each first half of a character whose second half has not come.
    fn flush_halves(&mut self, out: &mut Vec<ModelEvent>) {
        for of in self.halves.take() {
            let text = char::REPLACEMENT_CHARACTER.to_string();
            match of {
                TextOf::Content => self.push_text(TextKind::Text, text.into(), out),
                TextOf::Reasoning(field) => out.push(ModelEvent::Reasoning { text, field }),
                TextOf::Arguments(index) => out.push(ModelEvent::ToolCall(ToolCallDelta {
                    index,
                    arguments: Some(text),
                    ..ToolCallDelta::default()
                })),
                TextOf::Field(key) => {
                    let field = (key.into(), quoted(&text).into());
                    out.push(ModelEvent::DeltaExtra(vec![field]));
                }
            }
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
        if let Some(model) = chunk.model
            && *model.get() != *self.model
        {
            self.model = model.get().into();
            if let Some(name) = lossy_string(model).filter(|name| !name.is_empty()) {
                out.push(ModelEvent::Model(name));
            }
        }
        if let Some(id) = chunk.id {
            self.answer_id.note(|| Some(shown(&lossy_string(id)?)));
        }
        self.count_keys(chunk)?;
        if !chunk.extra.is_empty() && !is_same(&chunk.extra, &self.chunk_extra) {
            self.chunk_extra = owned(&chunk.extra);
            out.push(ModelEvent::ChunkExtra(self.chunk_extra.clone()));
        }
        for choice in chunk.choices() {
            self.choice(choice, whole, out)?;
        }
        if let Some(usage) = chunk.usage.and_then(|usage| Usage::parse(usage.get())) {
            out.push(ModelEvent::Usage(usage));
        }
        Ok(())
    }

    fn choice(
        &mut self,
        choice: &Choice<'_>,
        whole: bool,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), DecodeError> {
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
        let word = choice.finish_reason.and_then(lossy_string);
        let end = word.and_then(|word| AnswerEnd::of_word(&word));
        // The fields follow the events that they belong to.
        let (early, late) = if has_delta_events {
            (fields, None)
        } else {
            (None, fields)
        };
        out.extend(early);
        if let Some(end) = end.filter(|end| self.end.as_ref() != Some(end)) {
            self.flush_halves(out);
            self.flush_think(out);
            self.end = Some(end.clone());
            out.push(ModelEvent::Finish(end));
        }
        out.extend(late);
        Ok(())
    }

    fn delta(
        &mut self,
        delta: &Delta<'_>,
        whole: bool,
        out: &mut Vec<ModelEvent>,
    ) -> Result<(), DecodeError> {
        if !delta.extra.is_empty() {
            let fields = self.fields(&delta.extra);
            out.push(ModelEvent::DeltaExtra(fields));
        }
        let content = self.content(delta.content);
        if !content.parts.is_empty() {
            out.push(ModelEvent::Parts(content.parts));
        }
        let own = delta.reasoning().map(|(value, field)| {
            let text = self.halves.read(TextOf::Reasoning(field), value);
            (text.unwrap_or_else(|| text::flat_text(value)), field)
        });
        // A field with nothing in it counts once.
        let is_new_field = own.is_some() && !self.saw_reasoning;
        let (text, field) = own
            .filter(|(text, _)| !text.is_empty() || content.reasoning.is_empty())
            .unwrap_or((content.reasoning, PART_REASONING_FIELD));
        if is_new_field || !text.is_empty() {
            if let Some(think) = self.think.as_mut().filter(|_| !text.is_empty()) {
                think.starts_with_text();
            }
            self.saw_reasoning = true;
            out.push(ModelEvent::Reasoning { text, field });
        }
        if !content.text.is_empty() {
            self.push_text(TextKind::Text, content.text.into(), out);
        }
        if delta.tool_calls.is_some() || delta.function_call.is_some() {
            let calls = calls::of_delta(delta, whole, &mut self.halves)?;
            if !calls.is_empty() {
                self.flush_think(out);
            }
            out.extend(calls.into_iter().map(ModelEvent::ToolCall));
        }
        Ok(())
    }

    fn content(&mut self, value: Option<&RawValue>) -> ContentTexts {
        let Some(value) = value else {
            return ContentTexts::default();
        };
        let mut content = match self.halves.read(TextOf::Content, value) {
            Some(text) => ContentTexts {
                text,
                ..ContentTexts::default()
            },
            None => ContentTexts::of_parts(value),
        };
        self.has_parts |= !content.parts.is_empty();
        // After the first content with parts, every text is a part too.
        if self.has_parts && content.parts.is_empty() && !content.text.is_empty() {
            content.parts.push(text_part(&content.text));
        }
        content
    }

    /// Fields of a delta that loopwright does not act on.
    fn fields(&mut self, fields: &Entries<'_>) -> Vec<(String, Box<str>)> {
        let mut kept = owned(fields);
        for ((key, json), (_, value)) in kept.iter_mut().zip(fields) {
            if let Some(text) = self.halves.read_cut(key, value) {
                *json = quoted(&text).into();
            }
        }
        kept
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
        let of_choices = chunk.choices().flat_map(Choice::unknown_fields);
        let entries = [&chunk.extra].into_iter().chain(of_choices);
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

#[cfg(test)]
mod tests;
