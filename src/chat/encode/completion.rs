//! Encodes the events of a turn as one `chat.completion`.

use std::time::Duration;

use super::AnswerHead;
use super::records::{AgentSummary, FileEntry, ToolCallEntry};
use crate::agent::event::{
    AgentEvent, ExtraFields, ExtraLevel, Outcome, ProducedFile, ToolCallRecord,
};
use crate::openai::fold::FoldedFields;
use crate::openai::raw::{push_entry, quoted};

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
}

impl CompletionCollector {
    /// A collector without events.
    pub fn new(head: AnswerHead) -> Self {
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
    pub fn finish(mut self) -> Option<(String, Duration)> {
        let outcome = self.outcome.take()?;
        // Records arrive in the order in which calls finish, and are reported in the order of the calls.
        self.records
            .sort_by_key(|record| (record.round, record.index));
        let mut json = String::from("{");
        push_entry(&mut json, "id", &quoted(&self.head.id));
        push_entry(&mut json, "object", "\"chat.completion\"");
        push_entry(&mut json, "created", &self.head.created.to_string());
        push_entry(&mut json, "model", &quoted(&self.head.model));
        let choice = self.choice(&outcome);
        push_entry(&mut json, "choices", &format!("[{choice}]"));
        if let Some(usage) = &outcome.usage {
            push_entry(&mut json, "usage", &usage.to_value().to_string());
        }
        self.answer_extra
            .iter()
            .for_each(|(key, value)| push_entry(&mut json, key, value));
        if let Some(id) = &outcome.session_id {
            push_entry(&mut json, "session_id", &quoted(id.as_str()));
        }
        if !self.records.is_empty() {
            let calls: Vec<ToolCallEntry<'_>> = self.records.iter().map(Into::into).collect();
            let calls = serde_json::to_string(&calls).ok()?;
            push_entry(&mut json, "agentic_tool_calls", &calls);
        }
        if !self.files.is_empty() {
            let files: Vec<FileEntry<'_>> = self.files.iter().map(Into::into).collect();
            push_entry(&mut json, "files", &serde_json::to_string(&files).ok()?);
        }
        let summary = AgentSummary::from(&*outcome);
        push_entry(&mut json, "agent", &serde_json::to_string(&summary).ok()?);
        json.push('}');
        Some((json, outcome.waited))
    }

    fn choice(&mut self, outcome: &Outcome) -> String {
        let mut choice = String::from("{\"index\":0");
        push_entry(&mut choice, "message", &self.message(outcome));
        if !self.choice_extra.contains("logprobs") {
            push_entry(&mut choice, "logprobs", "null");
        }
        std::mem::take(&mut self.choice_extra)
            .into_entries()
            .for_each(|(key, value)| push_entry(&mut choice, &key, &value));
        push_entry(
            &mut choice,
            "finish_reason",
            &quoted(outcome.finish_reason.as_str()),
        );
        choice.push('}');
        choice
    }

    fn message(&mut self, outcome: &Outcome) -> String {
        let mut message = String::from("{\"role\":\"assistant\"");
        let no_content = self.text.is_empty() && !outcome.client_calls.is_empty();
        let content = if no_content {
            "null".to_owned()
        } else {
            quoted(&self.text)
        };
        push_entry(&mut message, "content", &content);
        if !self.message_extra.contains("refusal") {
            push_entry(&mut message, "refusal", "null");
        }
        if !self.reasoning.is_empty() {
            push_entry(&mut message, self.reasoning_field, &quoted(&self.reasoning));
        }
        std::mem::take(&mut self.message_extra)
            .into_entries()
            .for_each(|(key, value)| push_entry(&mut message, &key, &value));
        if !outcome.client_calls.is_empty() {
            let calls: Vec<String> = outcome
                .client_calls
                .iter()
                .map(|call| call.to_json(None))
                .collect();
            push_entry(
                &mut message,
                "tool_calls",
                &format!("[{}]", calls.join(",")),
            );
        }
        message.push('}');
        message
    }
}

fn fold(folded: &mut FoldedFields, pieces: &[(String, Box<str>)]) {
    for (key, json) in pieces {
        folded.push(key, json);
    }
}
