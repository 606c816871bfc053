//! Encodes the events of a turn as one `chat.completion`.

use std::time::Duration;

use bytes::Bytes;

use super::AnswerHead;
use super::records::{AgentSummary, FileEntry, MessageImages, ToolCallEntry};
use crate::agent::event::{
    AgentEvent, ExtraFields, ExtraLevel, Outcome, ProducedFile, ToolCallRecord,
};
use crate::agent::settings::ImageStyle;
use crate::openai::fold::FoldedFields;
use crate::openai::raw::{push_entry, quoted};

/// Memory reserved for an entry of a list besides its texts.
const ENTRY_OVERHEAD: usize = 512;
/// Memory reserved for the rest of an answer.
const ANSWER_OVERHEAD: usize = 2048;

/// Collects the events of a turn.
#[derive(Debug)]
pub struct CompletionCollector {
    head: AnswerHead,
    model_known: bool,
    text: String,
    reasoning: String,
    reasoning_field: &'static str,
    message_extra: FoldedFields,
    choice_extra: FoldedFields,
    answer_extra: ExtraFields,
    records: Vec<ToolCallRecord>,
    files: Vec<ProducedFile>,
    outcome: Option<Box<Outcome>>,
    images: ImageStyle,
}

impl CompletionCollector {
    /// A collector without events.
    pub fn new(head: AnswerHead, images: ImageStyle) -> Self {
        Self {
            head,
            model_known: false,
            text: String::new(),
            reasoning: String::new(),
            reasoning_field: "reasoning_content",
            message_extra: FoldedFields::default(),
            choice_extra: FoldedFields::default(),
            answer_extra: Vec::new(),
            records: Vec::new(),
            files: Vec::new(),
            outcome: None,
            images,
        }
    }

    /// Adds one event.
    pub fn take(&mut self, event: AgentEvent) {
        match event {
            AgentEvent::Model(model) if !self.model_known => {
                (self.head.model, self.model_known) = (model, true);
            }
            AgentEvent::Text(text) => self.text.push_str(&text),
            AgentEvent::Reasoning { text, field } => {
                self.reasoning.push_str(&text);
                self.reasoning_field = field;
            }
            AgentEvent::Extra { level, fields } => match level {
                ExtraLevel::Message => fold(&mut self.message_extra, &fields),
                ExtraLevel::Choice => fold(&mut self.choice_extra, &fields),
                ExtraLevel::Answer => self.answer_extra = fields,
            },
            AgentEvent::Complete(record) => self.records.push(*record),
            AgentEvent::File(file) => self.files.push(*file),
            AgentEvent::Annotations(annotations) => {
                let annotations = serde_json::to_value(annotations).unwrap_or_default();
                self.message_extra
                    .push("annotations", &annotations.to_string());
            }
            AgentEvent::Finished(outcome) => self.outcome = Some(outcome),
            AgentEvent::Started { .. }
            | AgentEvent::Model(_)
            | AgentEvent::Calling(_)
            | AgentEvent::Waiting { .. }
            | AgentEvent::ToolOutput { .. }
            | AgentEvent::Notice(_) => {}
        }
    }

    /// The JSON body of the answer, and the time spent waiting for models and tools; `None` without a `Finished` event.
    /// The records and files are freed while they are written.
    pub fn finish(mut self) -> Option<(Bytes, Duration)> {
        let outcome = self.outcome.take()?;
        // Records arrive in the order in which calls finish, and are reported in the order of the calls.
        self.records
            .sort_by_key(|record| (record.round, record.index));
        let mut json = String::with_capacity(self.expected_bytes());
        json.push('{');
        push_entry(&mut json, "id", &quoted(&self.head.id));
        push_entry(&mut json, "object", "\"chat.completion\"");
        push_entry(&mut json, "created", &self.head.created.to_string());
        push_entry(&mut json, "model", &quoted(&self.head.model));
        self.choices(&outcome, &mut json);
        if let Some(usage) = &outcome.usage {
            push_entry(&mut json, "usage", &usage.to_value().to_string());
        }
        self.answer_extra
            .iter()
            .for_each(|(key, value)| push_entry(&mut json, key, value));
        if let Some(id) = &outcome.session_id {
            push_entry(&mut json, "session_id", &quoted(id.as_str()));
        }
        let mut json = json.into_bytes();
        let records = self.records.into_iter();
        write_list(&mut json, "agentic_tool_calls", records, |json, record| {
            serde_json::to_writer(json, &ToolCallEntry::from(&record))
        })?;
        let files = self.files.into_iter();
        write_list(&mut json, "files", files, |json, file| {
            serde_json::to_writer(json, &FileEntry::from(&file))
        })?;
        json.extend_from_slice(b",\"agent\":");
        serde_json::to_writer(&mut json, &AgentSummary::from(&*outcome)).ok()?;
        json.push(b'}');
        Some((json.into(), outcome.waited))
    }

    /// About how many bytes the body has.
    fn expected_bytes(&self) -> usize {
        let base64 = |bytes: &Bytes| bytes.len().div_ceil(3) * 4;
        let record = |record: &ToolCallRecord| {
            let images: usize = record
                .images
                .iter()
                .map(|image| base64(&image.content))
                .sum();
            images + record.content.len() + record.arguments.len() + ENTRY_OVERHEAD
        };
        let file = |file: &ProducedFile| file.data.as_ref().map_or(0, base64) + ENTRY_OVERHEAD;
        let times = 1 + usize::from(self.images == ImageStyle::Inline);
        let records: usize = self.records.iter().map(record).sum::<usize>() * times;
        let files: usize = self.files.iter().map(file).sum();
        records + files + self.text.len() + self.reasoning.len() + ANSWER_OVERHEAD
    }

    /// Writes `choices`.
    fn choices(&mut self, outcome: &Outcome, json: &mut String) {
        json.push_str(",\"choices\":[{\"index\":0,\"message\":");
        self.message(outcome, json);
        if !self.choice_extra.contains("logprobs") {
            push_entry(json, "logprobs", "null");
        }
        std::mem::take(&mut self.choice_extra)
            .into_entries()
            .for_each(|(key, value)| push_entry(json, &key, &value));
        push_entry(
            json,
            "finish_reason",
            &quoted(outcome.finish_reason.as_str()),
        );
        json.push_str("}]");
    }

    fn message(&mut self, outcome: &Outcome, json: &mut String) {
        json.push_str("{\"role\":\"assistant\"");
        let no_content = self.text.is_empty() && !outcome.client_calls.is_empty();
        let content = if no_content {
            "null".to_owned()
        } else {
            quoted(&self.text)
        };
        push_entry(json, "content", &content);
        if !self.message_extra.contains("refusal") {
            push_entry(json, "refusal", "null");
        }
        if !self.reasoning.is_empty() {
            push_entry(json, self.reasoning_field, &quoted(&self.reasoning));
        }
        std::mem::take(&mut self.message_extra)
            .into_entries()
            .for_each(|(key, value)| push_entry(json, &key, &value));
        let images = MessageImages(&self.records);
        if self.images == ImageStyle::Inline && !images.is_empty() {
            json.push_str(",\"images\":");
            // Written in place: images are large.
            let mut bytes = std::mem::take(json).into_bytes();
            let written = serde_json::to_writer(&mut bytes, &images);
            *json = String::from_utf8(bytes).unwrap_or_default();
            if written.is_err() {
                json.push_str("null");
            }
        }
        if !outcome.client_calls.is_empty() {
            let calls: Vec<String> = outcome
                .client_calls
                .iter()
                .map(|call| call.to_json(None))
                .collect();
            push_entry(json, "tool_calls", &format!("[{}]", calls.join(",")));
        }
        json.push('}');
    }
}

/// Writes a member with a list, unless the list is empty. Each entry is freed once it is written.
fn write_list<T>(
    json: &mut Vec<u8>,
    key: &str,
    entries: impl ExactSizeIterator<Item = T>,
    mut write: impl FnMut(&mut Vec<u8>, T) -> serde_json::Result<()>,
) -> Option<()> {
    if entries.len() == 0 {
        return Some(());
    }
    json.extend_from_slice(format!(",{}:", quoted(key)).as_bytes());
    let mut before = b'[';
    for entry in entries {
        json.push(before);
        before = b',';
        write(json, entry).ok()?;
    }
    json.push(b']');
    Some(())
}

fn fold(folded: &mut FoldedFields, pieces: &[(String, Box<str>)]) {
    for (key, json) in pieces {
        folded.push(key, json);
    }
}
