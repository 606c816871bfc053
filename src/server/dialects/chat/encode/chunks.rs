//! The streamed answer: the events of a turn as `chat.completion.chunk` objects.

use bytes::BytesMut;

use super::AnswerHead;
use super::progress::{ProgressDelivery, ProgressEvent};
use super::records::{AgentSummary, MessageImages};
use agent::event::{AgentEvent, ExtraFields, ExtraLevel, Outcome};
use agent::settings::ImageStyle;
use protocol::openai::raw::{push_entry, quoted};

/// The end of every stream.
pub(super) const DONE: &[u8] = b"data: [DONE]\n\n";
/// A choice that adds nothing to the answer.
const NO_DELTA: &str = r#"{"index":0,"delta":{},"finish_reason":null}"#;
/// Memory reserved for a chunk besides its value, in bytes.
const CHUNK_OVERHEAD: usize = 512;

/// Members that chat front ends act on at the top level of a chunk. An upstream's members of these names are left out;
/// `type` is also a member of progress events.
const NOT_PASSED_ON: [&str; 3] = ["event", "selected_model_id", "type"];

/// Encodes events as chunks of an event stream.
#[derive(Debug)]
pub(crate) struct ChunkEncoder {
    answer: AnswerHead,
    extra: ExtraFields,
    /// The JSON text of every chunk up to its choices; `None` before the first chunk.
    head: Option<String>,
    options: ChunkOptions,
}

/// What the chunks of a stream hold besides the answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkOptions {
    /// How progress is sent.
    pub(crate) delivery: ProgressDelivery,
    /// How images of tools are sent.
    pub(crate) images: ImageStyle,
    /// Whether the stream ends with a usage chunk.
    pub(crate) include_usage: bool,
}

/// Ends a stream with an error: `envelope` is the JSON of an OpenAI error.
pub(crate) fn fail(envelope: &str, out: &mut BytesMut) {
    out.extend_from_slice(b"data: ");
    // An upstream's error may contain line breaks. In valid JSON they occur between tokens only.
    out.extend_from_slice(envelope.replace(['\n', '\r'], " ").as_bytes());
    out.extend_from_slice(b"\n\n");
    out.extend_from_slice(DONE);
}

impl ChunkEncoder {
    /// An encoder at the start of a stream.
    pub(crate) fn new(answer: AnswerHead, options: ChunkOptions) -> Self {
        Self {
            answer,
            extra: Vec::new(),
            head: None,
            options,
        }
    }

    pub(crate) fn encode(&mut self, event: &AgentEvent, out: &mut BytesMut) {
        match event {
            AgentEvent::Started { .. }
            | AgentEvent::RoundEnded(_)
            | AgentEvent::ClientArguments(_) => {}
            AgentEvent::Model(model) => {
                if self.head.is_none() {
                    self.answer.model.clone_from(model);
                }
                self.begin(out);
            }
            AgentEvent::Text(text) | AgentEvent::BetweenRounds(text) => {
                self.delta(out, "content", &quoted(text));
            }
            AgentEvent::Reasoning { text, field } => self.delta(out, field, &quoted(text)),
            AgentEvent::Extra { level, fields } => self.extra(*level, fields, out),
            AgentEvent::Calling(calling) => self.progress(out, || ProgressEvent::calling(calling)),
            AgentEvent::Complete(record) => {
                self.progress(out, || ProgressEvent::complete(record));
                let images = MessageImages(std::slice::from_ref(&**record));
                if self.options.images == ImageStyle::Inline && !images.is_empty() {
                    let images = serde_json::to_string(&images).unwrap_or_else(|_| "[]".to_owned());
                    self.delta(out, "images", &images);
                }
            }
            AgentEvent::Waiting { call, session_id } => {
                self.progress(out, || ProgressEvent::approval(call, session_id.as_ref()));
            }
            AgentEvent::ToolOutput { of, text, stream } => {
                self.progress(out, || ProgressEvent::output(of, text, stream));
            }
            AgentEvent::File(file) => self.progress(out, || ProgressEvent::file(file)),
            AgentEvent::Notice(notice) => self.progress(out, || ProgressEvent::notice(notice)),
            AgentEvent::Annotations(annotations) => {
                let annotations =
                    serde_json::to_string(annotations).unwrap_or_else(|_| "[]".to_owned());
                self.delta(out, "annotations", &annotations);
            }
            AgentEvent::Finished(outcome) => self.finish(out, outcome),
        }
    }

    fn extra(&mut self, level: ExtraLevel, fields: &ExtraFields, out: &mut BytesMut) {
        match level {
            ExtraLevel::Answer => self.keep_extra(fields),
            ExtraLevel::Message => {
                let delta = object(fields);
                self.chunk(
                    out,
                    &format!(r#"{{"index":0,"delta":{delta},"finish_reason":null}}"#),
                    "",
                );
            }
            ExtraLevel::Choice => {
                let mut choice = String::from(r#"{"index":0,"delta":{}"#);
                fields
                    .iter()
                    .for_each(|(key, value)| push_entry(&mut choice, key, value));
                choice.push_str(r#","finish_reason":null}"#);
                self.chunk(out, &choice, "");
            }
        }
    }

    fn finish(&mut self, out: &mut BytesMut, outcome: &Outcome) {
        if !outcome.client_calls.is_empty() {
            let calls = outcome.client_calls.iter().enumerate();
            let calls: Vec<String> = calls
                .map(|(index, call)| call.to_json(Some(index)))
                .collect();
            self.delta(out, "tool_calls", &format!("[{}]", calls.join(",")));
        }
        let mut members = String::new();
        if let Some(id) = &outcome.session_id {
            members.push_str(",\"session_id\":");
            members.push_str(&quoted(id.as_str()));
        }
        members.push_str(",\"agent\":");
        members.push_str(
            &serde_json::to_string(&AgentSummary::from(outcome))
                .unwrap_or_else(|_| "null".to_owned()),
        );
        let reason = quoted(outcome.finish_reason.as_str());
        self.chunk(
            out,
            &format!(r#"{{"index":0,"delta":{{}},"finish_reason":{reason}}}"#),
            &members,
        );
        if let Some(usage) = outcome
            .usage
            .as_ref()
            .filter(|_| self.options.include_usage)
        {
            self.chunk(out, "", &format!(",\"usage\":{}", usage.to_value()));
        }
        out.extend_from_slice(DONE);
    }

    fn delta(&mut self, out: &mut BytesMut, key: &str, value: &str) {
        self.begin(out);
        out.reserve(value.len() + CHUNK_OVERHEAD);
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(self.head.as_deref().unwrap_or_default().as_bytes());
        out.extend_from_slice(br#"{"index":0,"delta":{""#);
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(br#"":"#);
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"},\"finish_reason\":null}]}\n\n");
    }

    fn chunk(&mut self, out: &mut BytesMut, choice: &str, members: &str) {
        self.begin(out);
        self.raw_chunk(out, choice, members);
    }

    fn raw_chunk(&self, out: &mut BytesMut, choice: &str, members: &str) {
        self.raw_chunk_with(out, choice, [members, ""]);
    }

    fn raw_chunk_with(&self, out: &mut BytesMut, choice: &str, members: [&str; 2]) {
        let head = self.head.as_deref().unwrap_or_default();
        let [first, second] = members;
        for part in ["data: ", head, choice, "]", first, second, "}\n\n"] {
            out.extend_from_slice(part.as_bytes());
        }
    }

    fn progress(&mut self, out: &mut BytesMut, event: impl FnOnce() -> ProgressEvent) {
        if self.options.delivery == ProgressDelivery::None {
            return;
        }
        self.begin(out);
        let event = event();
        if self.options.delivery == ProgressDelivery::Named {
            for part in ["event: ", event.name, "\n"] {
                out.extend_from_slice(part.as_bytes());
            }
        }
        // The members of the event are appended to the members of the chunk.
        let members = event.members.strip_prefix('{').unwrap_or_default();
        let members = members.strip_suffix('}').unwrap_or_default();
        out.reserve(members.len() + CHUNK_OVERHEAD);
        self.raw_chunk_with(out, NO_DELTA, [",", members]);
    }

    /// Writes the first chunk, which has the role, unless it is written already.
    fn begin(&mut self, out: &mut BytesMut) {
        if self.head.is_none() {
            self.make_head();
            let role =
                r#"{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}"#;
            self.raw_chunk(out, role, "");
        }
    }

    fn keep_extra(&mut self, extra: &ExtraFields) {
        if *extra != self.extra {
            self.extra.clone_from(extra);
            if self.head.is_some() {
                self.make_head();
            }
        }
    }

    fn make_head(&mut self) {
        let mut head = String::from("{");
        push_entry(&mut head, "id", &quoted(&self.answer.id));
        push_entry(&mut head, "object", "\"chat.completion.chunk\"");
        push_entry(&mut head, "created", &self.answer.created.to_string());
        push_entry(&mut head, "model", &quoted(&self.answer.model));
        let extra = self.extra.iter();
        extra
            .filter(|(key, _)| !NOT_PASSED_ON.contains(&key.as_str()))
            .for_each(|(key, value)| push_entry(&mut head, key, value));
        head.push_str(",\"choices\":[");
        self.head = Some(head);
    }
}

fn object(entries: &[(String, Box<str>)]) -> String {
    let mut json = String::from("{");
    entries
        .iter()
        .for_each(|(key, value)| push_entry(&mut json, key, value));
    json.push('}');
    json
}
