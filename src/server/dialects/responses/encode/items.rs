//! The items of texts: messages and reasoning.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use serde_json::value::RawValue;

use super::events::EventWriter;
use agent::event::ProducedFile;
use protocol::ids::RunId;
use protocol::openai::citation::UrlCitation;
use protocol::openai::raw::{RawObject, quoted};

/// The beginning of reasoning that is given back to the model server it came from.
pub(in crate::dialects::responses) const REASONING_MARK: &str = "lwr1.";

/// The end of a text that calls follow: between the texts of two rounds, as a session has them.
pub(in crate::dialects::responses) const BETWEEN_ROUNDS: &str = "\n\n";

/// The place of an item in its response.
#[derive(Debug, Clone)]
pub(super) struct ItemPlace {
    pub(super) id: String,
    pub(super) index: usize,
}

impl ItemPlace {
    /// The place of the next item.
    pub(super) fn next(prefix: &str, run: &RunId, items: &mut Vec<Option<String>>) -> Self {
        let index = items.len();
        items.push(None);
        Self {
            id: run.item_id(prefix, index),
            index,
        }
    }

    /// `"item_id":…,"output_index":…`
    pub(super) fn members(&self) -> String {
        format!(
            "\"item_id\":\"{}\",\"output_index\":{}",
            self.id, self.index
        )
    }

    /// Reports that the item was added.
    pub(super) fn added(&self, item: &str, events: &mut EventWriter, out: &mut BytesMut) {
        let members = format!("\"output_index\":{},\"item\":{item}", self.index);
        events.write("response.output_item.added", &members, out);
    }

    /// Reports that the item is done, and keeps it.
    pub(super) fn done(
        &self,
        item: String,
        items: &mut [Option<String>],
        events: &mut EventWriter,
        out: &mut BytesMut,
    ) {
        let members = format!("\"output_index\":{},\"item\":{item}", self.index);
        events.write("response.output_item.done", &members, out);
        if let Some(slot) = items.get_mut(self.index) {
            *slot = Some(item);
        }
    }
}

/// A message whose text arrives.
#[derive(Debug)]
pub(super) struct OpenMessage {
    place: ItemPlace,
    /// JSON texts of the parts that are complete.
    done: Vec<String>,
    open: Option<OpenPart>,
    /// The annotations of the text.
    annotations: Vec<String>,
    /// JSON texts.
    logprobs: Vec<String>,
}

#[derive(Debug)]
struct OpenPart {
    is_refusal: bool,
    text: String,
    /// The members of its deltas before the text.
    before: String,
    /// The members of its other events.
    members: String,
}

impl OpenMessage {
    pub(super) fn start(
        run: &RunId,
        items: &mut Vec<Option<String>>,
        events: &mut EventWriter,
        out: &mut BytesMut,
    ) -> Self {
        let place = ItemPlace::next("msg", run, items);
        let item = message(&place.id, "in_progress", "", None);
        place.added(&item, events, out);
        Self {
            place,
            done: Vec::new(),
            open: None,
            annotations: Vec::new(),
            logprobs: Vec::new(),
        }
    }

    pub(super) fn text(&mut self, text: &str, events: &mut EventWriter, out: &mut BytesMut) {
        let part = self.part(false, events, out);
        part.text.push_str(text);
        let kind = "response.output_text.delta";
        events.write_text(kind, &part.before, text, ",\"logprobs\":[]", out);
    }

    pub(super) fn refusal(&mut self, text: &str, events: &mut EventWriter, out: &mut BytesMut) {
        let part = self.part(true, events, out);
        part.text.push_str(text);
        events.write_text("response.refusal.delta", &part.before, text, "", out);
    }

    /// Takes the value of `logprobs` of a choice.
    pub(super) fn logprobs(&mut self, value: &str) {
        let Ok(object) = RawObject::parse(value) else {
            return;
        };
        let Some(content) = object.get_some("content") else {
            return;
        };
        let entries: Vec<&RawValue> = serde_json::from_str(content.get()).unwrap_or_default();
        let entries = entries
            .iter()
            .map(|entry| entry.get().replace(['\n', '\r'], " "));
        self.logprobs.extend(entries);
    }

    /// Adds the sources that the text refers to.
    pub(super) fn cite(&mut self, citations: &[UrlCitation]) {
        let json = |citation: &UrlCitation| {
            format!(
                "{{\"type\":\"url_citation\",\"start_index\":{},\"end_index\":{},\"title\":{},\"url\":{}}}",
                citation.start_index,
                citation.end_index,
                quoted(&citation.title),
                quoted(&citation.url)
            )
        };
        self.annotations.extend(citations.iter().map(json));
    }

    /// Adds the files that the turn has made.
    pub(super) fn cite_files(&mut self, container: &str, files: &[ProducedFile]) {
        let json = |file: &ProducedFile| {
            format!(
                "{{\"type\":\"container_file_citation\",\"container_id\":{},\"file_id\":{},\"filename\":{},\
                 \"start_index\":0,\"end_index\":0}}",
                quoted(container),
                quoted(&file.id),
                quoted(&file.name)
            )
        };
        self.annotations.extend(files.iter().map(json));
    }

    /// Ends the text of a round that calls follow. SDKs join the texts of all messages with nothing between them.
    pub(super) fn separate(&mut self, events: &mut EventWriter, out: &mut BytesMut) {
        let has_text = |open: &OpenPart| !open.is_refusal && !open.text.is_empty();
        if self.open.as_ref().is_some_and(has_text) {
            self.text(BETWEEN_ROUNDS, events, out);
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the items, the writer and the buffer are the encoder's"
    )]
    pub(super) fn end(
        mut self,
        status: &str,
        phase: &str,
        items: &mut [Option<String>],
        events: &mut EventWriter,
        out: &mut BytesMut,
    ) {
        self.end_part(events, out);
        let item = message(&self.place.id, status, &self.done.join(","), Some(phase));
        self.place.done(item, items, events, out);
    }

    /// The open part of this type.
    fn part(
        &mut self,
        is_refusal: bool,
        events: &mut EventWriter,
        out: &mut BytesMut,
    ) -> &mut OpenPart {
        if self
            .open
            .as_ref()
            .is_some_and(|open| open.is_refusal != is_refusal)
        {
            self.end_part(events, out);
        }
        let (place, index) = (&self.place, self.done.len());
        self.open.get_or_insert_with(|| {
            let members = format!("{},\"content_index\":{index}", place.members());
            let part = part_json(is_refusal, "", "", "");
            let added = format!("{members},\"part\":{part}");
            events.write("response.content_part.added", &added, out);
            OpenPart {
                is_refusal,
                text: String::new(),
                before: format!("{members},\"delta\":"),
                members,
            }
        })
    }

    fn end_part(&mut self, events: &mut EventWriter, out: &mut BytesMut) {
        let Some(part) = self.open.take() else {
            return;
        };
        let (annotations, logprobs) = match part.is_refusal {
            true => (Vec::new(), Vec::new()),
            false => (
                std::mem::take(&mut self.annotations),
                std::mem::take(&mut self.logprobs),
            ),
        };
        for (index, annotation) in annotations.iter().enumerate() {
            let members = format!(
                "{},\"annotation_index\":{index},\"annotation\":{annotation}",
                part.members
            );
            events.write("response.output_text.annotation.added", &members, out);
        }
        let (text, logprobs) = (quoted(&part.text), logprobs.join(","));
        match part.is_refusal {
            true => {
                let members = format!("{},\"refusal\":{text}", part.members);
                events.write("response.refusal.done", &members, out);
            }
            false => {
                let members = format!("{},\"text\":{text},\"logprobs\":[{logprobs}]", part.members);
                events.write("response.output_text.done", &members, out);
            }
        }
        let json = part_json(
            part.is_refusal,
            &part.text,
            &annotations.join(","),
            &logprobs,
        );
        let members = format!("{},\"part\":{json}", part.members);
        events.write("response.content_part.done", &members, out);
        self.done.push(json);
    }
}

fn message(id: &str, status: &str, content: &str, phase: Option<&str>) -> String {
    let phase = phase.map_or_else(String::new, |phase| format!(",\"phase\":\"{phase}\""));
    format!(
        "{{\"type\":\"message\",\"id\":\"{id}\",\"status\":\"{status}\",\"role\":\"assistant\",\"content\":[{content}]{phase}}}"
    )
}

fn part_json(is_refusal: bool, text: &str, annotations: &str, logprobs: &str) -> String {
    let text = quoted(text);
    match is_refusal {
        true => format!("{{\"type\":\"refusal\",\"refusal\":{text}}}"),
        false => format!(
            "{{\"type\":\"output_text\",\"text\":{text},\"annotations\":[{annotations}],\"logprobs\":[{logprobs}]}}"
        ),
    }
}

/// Reasoning whose text arrives.
#[derive(Debug)]
pub(super) struct OpenReasoning {
    place: ItemPlace,
    field: String,
    /// The text is the summary.
    summary: bool,
    text: String,
    before: String,
    members: String,
}

impl OpenReasoning {
    #[expect(
        clippy::too_many_arguments,
        reason = "the items, the writer and the buffer are the encoder's"
    )]
    pub(super) fn start(
        run: &RunId,
        field: &str,
        summary: bool,
        items: &mut Vec<Option<String>>,
        events: &mut EventWriter,
        out: &mut BytesMut,
    ) -> Self {
        let place = ItemPlace::next("rs", run, items);
        let item = format!(
            "{{\"type\":\"reasoning\",\"id\":\"{}\",\"status\":\"in_progress\",\"summary\":[]}}",
            place.id
        );
        place.added(&item, events, out);
        let index = match summary {
            true => "summary_index",
            false => "content_index",
        };
        let members = format!("{},\"{index}\":0", place.members());
        let this = Self {
            before: format!("{members},\"delta\":"),
            place,
            field: field.to_owned(),
            summary,
            text: String::new(),
            members,
        };
        let added = format!("{},\"part\":{}", this.members, this.part());
        events.write(this.part_event("added"), &added, out);
        this
    }

    pub(super) fn text(&mut self, text: &str, events: &mut EventWriter, out: &mut BytesMut) {
        self.text.push_str(text);
        let kind = match self.summary {
            true => "response.reasoning_summary_text.delta",
            false => "response.reasoning_text.delta",
        };
        events.write_text(kind, &self.before, text, "", out);
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the items, the writer and the buffer are the encoder's"
    )]
    pub(super) fn end(
        self,
        status: &str,
        encrypted: bool,
        items: &mut [Option<String>],
        events: &mut EventWriter,
        out: &mut BytesMut,
    ) {
        let kind = match self.summary {
            true => "response.reasoning_summary_text.done",
            false => "response.reasoning_text.done",
        };
        let members = format!("{},\"text\":{}", self.members, quoted(&self.text));
        events.write(kind, &members, out);
        let part = self.part();
        let members = format!("{},\"part\":{part}", self.members);
        events.write(self.part_event("done"), &members, out);
        let texts = match self.summary {
            true => format!("\"summary\":[{part}]"),
            false => format!("\"summary\":[],\"content\":[{part}]"),
        };
        let handle = match encrypted {
            true => format!(
                ",\"encrypted_content\":\"{}\"",
                sealed(&self.field, &self.text)
            ),
            false => String::new(),
        };
        let item = format!(
            "{{\"type\":\"reasoning\",\"id\":\"{}\",\"status\":\"{status}\",{texts}{handle}}}",
            self.place.id
        );
        self.place.done(item, items, events, out);
    }

    fn part(&self) -> String {
        let kind = match self.summary {
            true => "summary_text",
            false => "reasoning_text",
        };
        format!("{{\"type\":\"{kind}\",\"text\":{}}}", quoted(&self.text))
    }

    fn part_event(&self, end: &str) -> &'static str {
        match (self.summary, end) {
            (true, "added") => "response.reasoning_summary_part.added",
            (true, _) => "response.reasoning_summary_part.done",
            (false, "added") => "response.content_part.added",
            (false, _) => "response.content_part.done",
        }
    }
}

/// Reasoning as a client gives it back without a stored response.
fn sealed(field: &str, text: &str) -> String {
    let json = format!("[{},{}]", quoted(field), quoted(text));
    format!("{REASONING_MARK}{}", STANDARD.encode(json))
}
