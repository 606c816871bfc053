//! Encodes the events of a turn as one `chat.completion`.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;

use super::AnswerHead;
use super::records::{AgentSummary, call_text, file_text, message_images};
use agent::event::{AgentEvent, ExtraFields, ExtraLevel, Outcome};
use agent::settings::ImageStyle;
use blobs::segments::{SegmentedText, SegmentedWriter};
use protocol::openai::fold::FoldedFields;
use protocol::openai::raw::{push_entry, quoted};

/// Memory reserved for an answer besides its texts, in bytes.
const ANSWER_OVERHEAD: usize = 2048;

/// Collects the events of a turn.
#[derive(Debug)]
pub(crate) struct CompletionCollector {
    head: AnswerHead,
    model_known: bool,
    text: String,
    reasoning: String,
    reasoning_field: Cow<'static, str>,
    message_extra: FoldedFields,
    choice_extra: FoldedFields,
    answer_extra: ExtraFields,
    /// The texts of the calls, by round and place in it.
    calls: Vec<((u32, usize), SegmentedText)>,
    files: Vec<SegmentedText>,
    /// The images of the calls, by round and index, if the client wants them in the message.
    images: Option<Vec<((u32, usize), SegmentedText)>>,
    outcome: Option<Box<Outcome>>,
}

impl CompletionCollector {
    /// A collector without events.
    pub(crate) fn new(head: AnswerHead, images: ImageStyle) -> Self {
        Self {
            head,
            model_known: false,
            text: String::new(),
            reasoning: String::new(),
            reasoning_field: "reasoning_content".into(),
            message_extra: FoldedFields::default(),
            choice_extra: FoldedFields::default(),
            answer_extra: Vec::new(),
            calls: Vec::new(),
            files: Vec::new(),
            images: (images == ImageStyle::Inline).then(Vec::new),
            outcome: None,
        }
    }

    /// Adds one event.
    pub(crate) fn take(&mut self, event: AgentEvent) {
        match event {
            AgentEvent::Model(model) if !self.model_known => {
                (self.head.model, self.model_known) = (model, true);
            }
            AgentEvent::Text(text) | AgentEvent::BetweenRounds(text) => self.text.push_str(&text),
            AgentEvent::Reasoning { text, field } => {
                self.reasoning.push_str(&text);
                self.reasoning_field = field;
            }
            AgentEvent::Extra { level, fields } => match level {
                ExtraLevel::Message => fold(&mut self.message_extra, &fields),
                ExtraLevel::Choice => fold(&mut self.choice_extra, &fields),
                ExtraLevel::Answer => self.answer_extra = fields,
            },
            AgentEvent::Complete(record) => {
                let place = (record.round, record.index);
                if let Some(images) = &mut self.images {
                    images.extend(message_images(&record).map(|image| (place, image)));
                }
                self.calls.push((place, call_text(*record)));
            }
            AgentEvent::File(file) => self.files.push(file_text(*file)),
            AgentEvent::Annotations(annotations) => {
                let annotations = serde_json::to_value(annotations).unwrap_or_default();
                self.message_extra
                    .push("annotations", &annotations.to_string());
            }
            AgentEvent::RoundEnded(_) => self.message_extra.end_message(),
            AgentEvent::Finished(outcome) => self.outcome = Some(outcome),
            AgentEvent::Started { .. }
            | AgentEvent::Model(_)
            | AgentEvent::ClientArguments(_)
            | AgentEvent::Calling(_)
            | AgentEvent::Waiting { .. }
            | AgentEvent::ToolOutput { .. }
            | AgentEvent::Notice(_) => {}
        }
    }

    /// The JSON body of the answer, and the time spent waiting for models and tools; `None` without a `Finished` event.
    pub(crate) fn finish(mut self) -> Option<(SegmentedText, Duration)> {
        let outcome = self.outcome.take()?;
        // Records arrive in the order in which calls finish, and are reported in the order of the calls.
        self.calls.sort_by_key(|(place, _)| *place);
        let mut images = self.images.take().unwrap_or_default();
        images.sort_by_key(|(place, _)| *place);
        let texts = self.text.len() + self.reasoning.len();
        let mut json = String::with_capacity(texts + ANSWER_OVERHEAD);
        json.push('{');
        push_entry(&mut json, "id", &quoted(&self.head.id));
        push_entry(&mut json, "object", "\"chat.completion\"");
        push_entry(&mut json, "created", &self.head.created.to_string());
        push_entry(&mut json, "model", &quoted(&self.head.model));
        let images_at = self.choices(&outcome, &mut json);
        if let Some(usage) = &outcome.usage {
            push_entry(&mut json, "usage", &usage.to_value().to_string());
        }
        self.answer_extra
            .iter()
            .for_each(|(key, value)| push_entry(&mut json, key, value));
        if let Some(id) = &outcome.session_id {
            push_entry(&mut json, "session_id", &quoted(id.as_str()));
        }
        let mut body = SegmentedWriter::default();
        let mut rest = Bytes::from(json);
        body.push_segmented(rest.split_to(images_at.min(rest.len())).into());
        write_list(
            &mut body,
            "images",
            images.into_iter().map(|(_, text)| text),
        );
        body.push_segmented(rest.into());
        let calls = self.calls.into_iter().map(|(_, text)| text);
        write_list(&mut body, "agentic_tool_calls", calls);
        write_list(&mut body, "files", self.files.into_iter());
        let agent = serde_json::to_string(&AgentSummary::from(&*outcome)).ok()?;
        body.text(",\"agent\":");
        body.text(&agent);
        body.text("}");
        Some((body.finish(), outcome.waited))
    }

    /// Writes `choices`. Returns where the images of the message belong.
    fn choices(&mut self, outcome: &Outcome, json: &mut String) -> usize {
        json.push_str(",\"choices\":[{\"index\":0,\"message\":");
        let images_at = self.message(outcome, json);
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
        images_at
    }

    /// Writes the message without its images. Returns where these belong.
    fn message(&mut self, outcome: &Outcome, json: &mut String) -> usize {
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
            push_entry(json, &self.reasoning_field, &quoted(&self.reasoning));
        }
        std::mem::take(&mut self.message_extra)
            .into_entries()
            .for_each(|(key, value)| push_entry(json, &key, &value));
        let images_at = json.len();
        if !outcome.client_calls.is_empty() {
            let calls: Vec<String> = outcome
                .client_calls
                .iter()
                .map(|call| call.to_json(None))
                .collect();
            push_entry(json, "tool_calls", &format!("[{}]", calls.join(",")));
        }
        json.push('}');
        images_at
    }
}

/// Writes a member with a list, unless the list is empty.
/// Writes a member that is a list, unless it is empty.
pub(super) fn write_list(
    body: &mut SegmentedWriter,
    key: &str,
    entries: impl Iterator<Item = SegmentedText>,
) {
    let mut before = format!(",{}:[", quoted(key));
    let mut is_empty = true;
    for entry in entries {
        body.text(&before);
        ",".clone_into(&mut before);
        body.push_segmented(entry);
        is_empty = false;
    }
    if !is_empty {
        body.text("]");
    }
}

fn fold(folded: &mut FoldedFields, pieces: &[(String, Box<str>)]) {
    for (key, json) in pieces {
        folded.push(key, json);
    }
}
