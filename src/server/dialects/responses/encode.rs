//! Encodes the events of a turn as a response: its items, its events, and the response as one object.
//!
//! One encoder does both, because the last event of a stream holds the whole response.

mod approvals;
mod calls;
mod client_calls;
mod convert;
mod events;
mod input_items;
mod items;
mod replay;
mod schema;
mod summary;

use std::sync::Arc;

use bytes::BytesMut;

use self::approvals::HeldCalls;
use self::calls::ShownCalls;
use self::client_calls::ClientCalls;
pub(crate) use self::convert::{as_completion, as_response};
use self::events::EventWriter;
pub(crate) use self::input_items::{ItemText, answer_items, input_items, output_items};
pub(super) use self::items::{BETWEEN_ROUNDS, REASONING_MARK};
use self::items::{OpenMessage, OpenReasoning};
pub(crate) use self::replay::replay;
pub(crate) use self::schema::{OutputItem, ResponseEvent, ResponseObject};
use self::summary::{ResponseEnding, failed_members, members_of};
use super::decode::ResponseOptions;
use agent::event::{AgentEvent, ExtraFields, ExtraLevel, Notice, Outcome, ProducedFile, RoundEnd};
use protocol::ids::RunId;
use protocol::openai::raw::{RawObject, push_entry, quoted};

/// The end of every stream.
const DONE: &[u8] = b"data: [DONE]\n\n";

/// Encodes the events of one turn.
#[derive(Debug)]
pub(crate) struct ResponseEncoder {
    run: RunId,
    created_at: i64,
    options: Arc<ResponseOptions>,
    events: EventWriter,
    begun: bool,
    /// The items that are done, by their index.
    items: Vec<Option<String>>,
    reasoning: Option<OpenReasoning>,
    message: Option<OpenMessage>,
    calls: ShownCalls,
    client_calls: ClientCalls,
    held: HeldCalls,
    files: Vec<ProducedFile>,
}

/// An error as a response has it.
#[derive(Debug, Clone, Default, serde::Deserialize)]
#[serde(default)]
pub(crate) struct ResponseFailure {
    /// OpenAI's class of the error.
    #[serde(rename = "type")]
    kind: Option<serde_json::Value>,
    code: Option<serde_json::Value>,
    message: Option<serde_json::Value>,
    param: Option<serde_json::Value>,
}

impl ResponseFailure {
    /// Reads `{"error":{…}}`, which may come from a model server.
    pub(crate) fn of_envelope(envelope: &str) -> Self {
        let error = RawObject::parse(envelope).ok();
        let error = error.and_then(|error| error.get_some("error"));
        error
            .and_then(|error| serde_json::from_str(error.get()).ok())
            .unwrap_or_default()
    }

    /// `"type":…,"code":…,"message":…,"param":…`
    fn members(&self) -> String {
        let text = |value: &Option<serde_json::Value>| match value {
            Some(serde_json::Value::String(text)) => Some(quoted(text)),
            Some(serde_json::Value::Null) | None => None,
            Some(other) => Some(quoted(&other.to_string())),
        };
        let kind = text(&self.kind).unwrap_or_else(|| "\"server_error\"".to_owned());
        let code = text(&self.code).unwrap_or_else(|| kind.clone());
        let message = text(&self.message).unwrap_or_else(|| "\"the turn failed\"".to_owned());
        let param = text(&self.param).unwrap_or_else(|| "null".to_owned());
        format!("\"type\":{kind},\"code\":{code},\"message\":{message},\"param\":{param}")
    }
}

impl ResponseEncoder {
    /// An encoder at the start of a turn.
    pub(crate) fn new(run: RunId, created_at: i64, options: Arc<ResponseOptions>) -> Self {
        Self {
            calls: ShownCalls::new(&run, options.clone()),
            client_calls: ClientCalls::new(&run, options.clone()),
            run,
            created_at,
            options,
            events: EventWriter::default(),
            begun: false,
            items: Vec::new(),
            reasoning: None,
            message: None,
            held: HeldCalls::default(),
            files: Vec::new(),
        }
    }

    /// Encodes one event. Returns the response with the last one.
    pub(crate) fn encode(&mut self, event: AgentEvent, out: &mut BytesMut) -> Option<String> {
        self.begin(out);
        match event {
            AgentEvent::Text(text) => self.text(&text, out),
            AgentEvent::Reasoning { text, field } => self.reason(&text, &field, out),
            AgentEvent::Extra { level, fields } => self.extra(level, &fields, out),
            AgentEvent::RoundEnded(end) => self.end_round(&end, out),
            AgentEvent::Calling(calling) => self.calling(*calling, out),
            AgentEvent::Waiting { call, session_id } => {
                self.waits(&call, out);
                if self.options.is_named() {
                    self.asks(&call, session_id.as_ref(), out);
                }
            }
            AgentEvent::ClientArguments(piece) => {
                self.end_reasoning("completed", out);
                self.client_calls
                    .arguments(&piece, &mut self.items, &mut self.events, out);
            }
            AgentEvent::Complete(record) => self.complete(record, out),
            AgentEvent::ToolOutput { of, text, stream } => {
                self.runs(&of.tool_call_id, out);
                if self.options.is_named() {
                    self.calls
                        .output(&of, &text, &stream, &mut self.events, out);
                }
            }
            AgentEvent::Notice(notice) if self.options.is_named() => self.notice(&notice, out),
            AgentEvent::File(mut file) => {
                // The content is read under the file's id.
                (file.data, file.file) = (None, None);
                self.files.push(*file);
            }
            AgentEvent::Finished(outcome) => return Some(self.finish(*outcome, out)),
            AgentEvent::Started { .. }
            | AgentEvent::BetweenRounds(_)
            | AgentEvent::Model(_)
            | AgentEvent::Annotations(_)
            | AgentEvent::Notice(_) => {}
        }
        None
    }

    /// Ends the events with an error. Returns the failed response.
    pub(crate) fn fail(&mut self, failure: &ResponseFailure, out: &mut BytesMut) -> String {
        self.begin(out);
        let members = failure.members();
        let event = format!("{members},\"error\":{{{members}}}");
        self.events.write_error(&event, out);
        self.close_all(out);
        let response = self.response("failed", &failed_members(&members), None);
        self.events
            .write("response.failed", &format!("\"response\":{response}"), out);
        out.extend_from_slice(DONE);
        response
    }

    /// The response as it is now, while it is made.
    pub(crate) fn unfinished(
        run: &RunId,
        created_at: i64,
        status: &str,
        options: &ResponseOptions,
    ) -> String {
        let members =
            ",\"completed_at\":null,\"incomplete_details\":null,\"error\":null,\"usage\":null";
        whole(run, created_at, status, options, members, "")
    }

    fn begin(&mut self, out: &mut BytesMut) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        let first = match self.options.background {
            true => "queued",
            false => "in_progress",
        };
        let response = Self::unfinished(&self.run, self.created_at, first, &self.options);
        let mut member = format!("\"response\":{response}");
        self.events.write("response.created", &member, out);
        if self.options.background {
            self.events.write("response.queued", &member, out);
            let (run, options) = (&self.run, &self.options);
            let response = Self::unfinished(run, self.created_at, "in_progress", options);
            member = format!("\"response\":{response}");
        }
        self.events.write("response.in_progress", &member, out);
        self.calls
            .list_servers(&mut self.items, &mut self.events, out);
    }

    fn text(&mut self, text: &str, out: &mut BytesMut) {
        self.end_reasoning("completed", out);
        let (run, items, events) = (&self.run, &mut self.items, &mut self.events);
        let message = self
            .message
            .get_or_insert_with(|| OpenMessage::start(run, items, events, out));
        message.text(text, events, out);
    }

    fn reason(&mut self, text: &str, field: &str, out: &mut BytesMut) {
        let (run, items, events) = (&self.run, &mut self.items, &mut self.events);
        let summary = self.options.summary;
        let reasoning = self
            .reasoning
            .get_or_insert_with(|| OpenReasoning::start(run, field, summary, items, events, out));
        reasoning.text(text, events, out);
    }

    fn extra(&mut self, level: ExtraLevel, fields: &ExtraFields, out: &mut BytesMut) {
        for (key, value) in fields {
            match (level, key.as_str()) {
                (ExtraLevel::Message, "refusal") => {
                    let Ok(text) = serde_json::from_str::<String>(value) else {
                        continue;
                    };
                    if text.is_empty() {
                        continue;
                    }
                    self.end_reasoning("completed", out);
                    let (run, items, events) = (&self.run, &mut self.items, &mut self.events);
                    let message = self
                        .message
                        .get_or_insert_with(|| OpenMessage::start(run, items, events, out));
                    message.refusal(&text, events, out);
                }
                (ExtraLevel::Choice, "logprobs") if self.options.logprobs => {
                    if let Some(message) = &mut self.message {
                        message.logprobs(value);
                    }
                }
                _ => {}
            }
        }
    }

    fn end_round(&mut self, end: &RoundEnd, out: &mut BytesMut) {
        if let Some(message) = &mut self.message {
            message.cite(&end.citations);
        }
        // How the last message ends is known with the outcome.
        if end.has_calls {
            self.end_texts(true, "completed", out);
            let (items, events) = (&mut self.items, &mut self.events);
            self.client_calls.end_round(&end.calls, items, events, out);
        } else {
            self.end_reasoning("completed", out);
        }
    }

    fn end_texts(&mut self, calls_follow: bool, status: &str, out: &mut BytesMut) {
        self.end_reasoning(status, out);
        if let Some(mut message) = self.message.take() {
            let phase = match calls_follow {
                true => "commentary",
                false => "final_answer",
            };
            if calls_follow {
                message.separate(&mut self.events, out);
            }
            message.end(status, phase, &mut self.items, &mut self.events, out);
        }
    }

    fn end_reasoning(&mut self, status: &str, out: &mut BytesMut) {
        if let Some(reasoning) = self.reasoning.take() {
            let encrypted = self.options.encrypted_reasoning;
            reasoning.end(status, encrypted, &mut self.items, &mut self.events, out);
        }
    }

    fn close_all(&mut self, out: &mut BytesMut) {
        self.end_texts(false, "incomplete", out);
        self.close_calls(out);
    }

    /// Ends the calls that have no end.
    fn close_calls(&mut self, out: &mut BytesMut) {
        self.release_all(out);
        let (items, events) = (&mut self.items, &mut self.events);
        self.calls.interrupt(items, events, out);
        self.client_calls.interrupt(items, events, out);
    }

    fn notice(&mut self, notice: &Notice, out: &mut BytesMut) {
        let members = format!(
            "\"notice\":{{\"kind\":{},\"message\":{}}}",
            quoted(&notice.kind),
            quoted(&notice.message)
        );
        self.events.write("loopwright.notice", &members, out);
    }

    fn finish(&mut self, mut outcome: Outcome, out: &mut BytesMut) -> String {
        outcome.notices.extend(self.options.notices.iter().cloned());
        let ending = ResponseEnding::of(&outcome, self.options.on_limit);
        if let Some(message) = &mut self.message {
            message.cite_files(&self.calls.container(), &self.files);
        }
        let status = match ending.is_complete() {
            true => "completed",
            false => "incomplete",
        };
        self.end_texts(false, status, out);
        for call in &outcome.client_calls {
            self.client_calls
                .hand_over(call, &mut self.items, &mut self.events, out);
        }
        self.close_calls(out);
        self.ask(&outcome.approvals, out);
        let members = members_of(&ending, &outcome, &self.files);
        let response = self.response(ending.status, &members, Some(&outcome));
        let member = format!("\"response\":{response}");
        self.events.write(ending.event(), &member, out);
        out.extend_from_slice(DONE);
        response
    }

    fn response(&self, status: &str, members: &str, outcome: Option<&Outcome>) -> String {
        let items: Vec<&str> = self.items.iter().flatten().map(String::as_str).collect();
        let session = outcome.and_then(|outcome| outcome.session_id.as_ref());
        let mut members = members.to_owned();
        if let Some(session) = session {
            members.push_str(",\"session_id\":");
            members.push_str(&quoted(session.as_str()));
        }
        let (run, created, options) = (&self.run, self.created_at, &self.options);
        whole(run, created, status, options, &members, &items.join(","))
    }
}

/// A response that is being made, of a request of another dialect.
pub(crate) fn unfinished_of(run: &RunId, created_at: i64) -> Option<String> {
    let options = ResponseOptions::plain("").ok()?;
    Some(ResponseEncoder::unfinished(
        run,
        created_at,
        "in_progress",
        &options,
    ))
}

/// The JSON text of a response. `members` begin with a comma.
#[expect(clippy::too_many_arguments, reason = "the parts of a response")]
fn whole(
    run: &RunId,
    created_at: i64,
    status: &str,
    options: &ResponseOptions,
    members: &str,
    items: &str,
) -> String {
    let mut json = String::with_capacity(options.echo.len() + members.len() + items.len() + 256);
    json.push('{');
    push_entry(&mut json, "id", &quoted(&run.response_id()));
    push_entry(&mut json, "object", "\"response\"");
    push_entry(&mut json, "created_at", &created_at.to_string());
    push_entry(&mut json, "status", &quoted(status));
    json.push(',');
    json.push_str(&options.echo);
    json.push_str(members);
    json.push_str(",\"output\":[");
    json.push_str(items);
    json.push_str("]}");
    json
}
