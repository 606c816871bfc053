//! The streamed answer: events of a run as `chat.completion.chunk` objects.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::chat::Events;
use super::edge::panic_text;
use super::error::ApiError;
use super::progress::{Delivery, ProgressEvent};
use crate::agent::event::{AgentEvent, Outcome};
use crate::agent::{RunError, unix_seconds};
use crate::ids::fresh_completion_id;
use crate::metrics::{Metrics, StreamGuard};
use crate::openai::raw::{push_entry, quoted};

/// A comment that keeps a connection open; one newline, as some decoders mistake a blank line for an event.
const KEEP_ALIVE: &[u8] = b": keep-alive\n";
/// The end of every stream.
const DONE: &[u8] = b"data: [DONE]\n\n";
/// Events that are ready at once are sent together up to about this many bytes.
const FRAME_BYTES: usize = 16 * 1024;
/// Room for one chunk, in bytes.
const CHUNK_BYTES: usize = 512;

/// Turns events into chunks.
#[derive(Debug)]
pub(super) struct Encoder {
    id: String,
    created: i64,
    model: String,
    extra: Vec<(String, Box<str>)>,
    /// Everything of a chunk up to its choices; made when the first chunk is.
    head: Option<String>,
    delivery: Delivery,
    include_usage: bool,
}

/// A stream's body: encodes, keeps the connection alive, and ends with `[DONE]` whatever happens.
pub(super) struct EventBody {
    encoder: Encoder,
    early: VecDeque<AgentEvent>,
    events: Option<Events>,
    keep_alive: Duration,
    timer: Pin<Box<Sleep>>,
    last_data: tokio::time::Instant,
    stopping: Pin<Box<WaitForCancellationFutureOwned>>,
    metrics: Metrics,
    began: Instant,
    first_text_seen: bool,
    _open: StreamGuard,
}

/// What a stream's body needs besides its events.
#[derive(Debug)]
pub(super) struct StreamFrame {
    /// Silence after which a comment is sent.
    pub(super) keep_alive: Duration,
    /// Cancelled when what still runs must end.
    pub(super) stopping: CancellationToken,
    /// What is counted.
    pub(super) metrics: Metrics,
    /// When the request came.
    pub(super) began: Instant,
}

impl Encoder {
    pub(super) fn new(model: &str, delivery: Delivery, include_usage: bool) -> Self {
        Self {
            id: fresh_completion_id(),
            created: unix_seconds(),
            model: model.to_owned(),
            extra: Vec::new(),
            head: None,
            delivery,
            include_usage,
        }
    }

    /// Encodes one event.
    pub(super) fn encode(&mut self, event: AgentEvent, out: &mut BytesMut) {
        match event {
            AgentEvent::Started { .. } => {}
            AgentEvent::Model(model) => {
                if self.head.is_none() {
                    self.model = model;
                }
                self.begin(out);
            }
            AgentEvent::ChunkExtra(extra) => self.keep_extra(extra),
            AgentEvent::Text(text) => self.delta(out, "content", &quoted(&text)),
            AgentEvent::Reasoning { text, field } => self.delta(out, field, &quoted(&text)),
            AgentEvent::DeltaExtra(extra) => {
                let delta = object(&extra);
                self.chunk(
                    out,
                    &format!(r#"{{"index":0,"delta":{delta},"finish_reason":null}}"#),
                    "",
                );
            }
            AgentEvent::ChoiceExtra(extra) => {
                let mut choice = String::from(r#"{"index":0,"delta":{}"#);
                extra
                    .iter()
                    .for_each(|(key, value)| push_entry(&mut choice, key, value));
                choice.push_str(r#","finish_reason":null}"#);
                self.chunk(out, &choice, "");
            }
            AgentEvent::Calling(calling) => self.progress(out, || ProgressEvent::calling(&calling)),
            AgentEvent::Complete(record) => self.progress(out, || ProgressEvent::complete(&record)),
            AgentEvent::ToolOutput { of, text, stream } => {
                self.progress(out, || ProgressEvent::output(&of, &text, stream));
            }
            AgentEvent::File(file) => self.progress(out, || ProgressEvent::file(&file)),
            AgentEvent::Notice(notice) => self.progress(out, || ProgressEvent::notice(&notice)),
            AgentEvent::Annotations(annotations) => {
                let annotations =
                    serde_json::to_string(&annotations).unwrap_or_else(|_| "[]".to_owned());
                self.delta(out, "annotations", &annotations);
            }
            AgentEvent::Finished(outcome) => self.finish(out, &outcome),
        }
    }

    /// Ends the stream with an error.
    pub(super) fn fail(error: &ApiError, out: &mut BytesMut) {
        out.extend_from_slice(b"data: ");
        // An upstream's own error may be spread over lines, which can only end between its tokens.
        let envelope = error.envelope().replace(['\n', '\r'], " ");
        out.extend_from_slice(envelope.as_bytes());
        out.extend_from_slice(b"\n\n");
        out.extend_from_slice(DONE);
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
            &serde_json::to_string(&outcome.summary()).unwrap_or_else(|_| "null".to_owned()),
        );
        let reason = quoted(outcome.finish_reason.as_str());
        self.chunk(
            out,
            &format!(r#"{{"index":0,"delta":{{}},"finish_reason":{reason}}}"#),
            &members,
        );
        if let Some(usage) = outcome.usage.as_ref().filter(|_| self.include_usage) {
            self.chunk(out, "", &format!(",\"usage\":{}", usage.to_value()));
        }
        out.extend_from_slice(DONE);
    }

    fn delta(&mut self, out: &mut BytesMut, key: &str, value: &str) {
        self.begin(out);
        out.reserve(CHUNK_BYTES.max(value.len() + CHUNK_BYTES));
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
        let head = self.head.as_deref().unwrap_or_default();
        for part in ["data: ", head, choice, "]", members, "}\n\n"] {
            out.extend_from_slice(part.as_bytes());
        }
    }

    fn progress(&mut self, out: &mut BytesMut, event: impl FnOnce() -> ProgressEvent) {
        if self.delivery == Delivery::None {
            return;
        }
        self.begin(out);
        let event = event();
        if self.delivery == Delivery::Named {
            for part in ["event: ", event.name, "\n"] {
                out.extend_from_slice(part.as_bytes());
            }
        }
        // The event's members follow the chunk's own ones inside one object.
        let inside = event
            .members
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
            .unwrap_or_default();
        let members = format!(",{inside}");
        self.raw_chunk(
            out,
            r#"{"index":0,"delta":{},"finish_reason":null}"#,
            &members,
        );
    }

    /// Sends the first chunk, which carries the role, unless it is sent.
    fn begin(&mut self, out: &mut BytesMut) {
        if self.head.is_none() {
            self.make_head();
            let role =
                r#"{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}"#;
            self.raw_chunk(out, role, "");
        }
    }

    fn keep_extra(&mut self, extra: Vec<(String, Box<str>)>) {
        if extra != self.extra {
            self.extra = extra;
            if self.head.is_some() {
                self.make_head();
            }
        }
    }

    fn make_head(&mut self) {
        let mut head = String::from("{");
        push_entry(&mut head, "id", &quoted(&self.id));
        push_entry(&mut head, "object", "\"chat.completion.chunk\"");
        push_entry(&mut head, "created", &self.created.to_string());
        push_entry(&mut head, "model", &quoted(&self.model));
        self.extra
            .iter()
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

impl EventBody {
    pub(super) fn new(
        frame: StreamFrame,
        encoder: Encoder,
        early: Vec<AgentEvent>,
        events: Events,
    ) -> Self {
        let StreamFrame {
            keep_alive,
            stopping,
            metrics,
            began,
        } = frame;
        Self {
            encoder,
            early: early.into(),
            events: Some(events),
            keep_alive,
            timer: Box::pin(tokio::time::sleep(keep_alive)),
            last_data: tokio::time::Instant::now(),
            // A token of its own: the chunks of different streams meet at no lock.
            stopping: Box::pin(stopping.child_token().cancelled_owned()),
            began,
            first_text_seen: false,
            _open: metrics.stream_opened(),
            metrics,
        }
    }

    /// Encodes what is ready, without waiting.
    fn fill(&mut self, context: &mut Context<'_>, out: &mut BytesMut) {
        while let Some(event) = self.early.pop_front() {
            self.encoder.encode(event, out);
        }
        while out.len() < FRAME_BYTES {
            let Some(events) = &mut self.events else {
                return;
            };
            match catch_unwind(AssertUnwindSafe(|| events.as_mut().poll_next(context))) {
                Ok(Poll::Pending) => return,
                Ok(Poll::Ready(Some(Ok(event)))) => self.take(event, out),
                Ok(Poll::Ready(Some(Err(error)))) => self.fail(error, out),
                Ok(Poll::Ready(None)) => self.events = None,
                Err(panic) => self.panicked(panic.as_ref(), out),
            }
        }
    }

    fn take(&mut self, event: AgentEvent, out: &mut BytesMut) {
        if !self.first_text_seen
            && matches!(event, AgentEvent::Text(_) | AgentEvent::Reasoning { .. })
        {
            self.first_text_seen = true;
            self.metrics.first_token(self.began.elapsed());
        }
        self.encoder.encode(event, out);
    }

    fn fail(&mut self, error: RunError, out: &mut BytesMut) {
        self.events = None;
        let error = ApiError::from(error);
        tracing::warn!(cause = error.cause().unwrap_or_default(), "stream failed");
        Encoder::fail(&error, out);
    }

    fn panicked(&mut self, panic: &(dyn Any + Send), out: &mut BytesMut) {
        self.events = None;
        tracing::error!(panic = panic_text(panic), "a stream panicked");
        Encoder::fail(&ApiError::internal(), out);
    }
}

impl http_body::Body for EventBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        let mut out = BytesMut::new();
        this.fill(context, &mut out);
        if out.is_empty() && this.events.is_none() {
            return Poll::Ready(None);
        }
        if out.is_empty() && this.stopping.as_mut().poll(context).is_ready() {
            this.events = None;
            Encoder::fail(&ApiError::shutting_down(), &mut out);
        }
        if !out.is_empty() {
            this.last_data = tokio::time::Instant::now();
            return Poll::Ready(Some(Ok(Frame::data(out.freeze()))));
        }
        // The timer is moved only when it fires, not with every chunk.
        while this.timer.as_mut().poll(context).is_ready() {
            let due = this.last_data + this.keep_alive;
            if due <= tokio::time::Instant::now() {
                this.last_data = tokio::time::Instant::now();
                this.timer.as_mut().reset(this.last_data + this.keep_alive);
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(KEEP_ALIVE)))));
            }
            this.timer.as_mut().reset(due);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use http_body_util::BodyExt;

    use super::*;

    fn body(events: Events, keep_alive: Duration) -> EventBody {
        let encoder = Encoder::new("m", Delivery::Named, false);
        let frame = StreamFrame {
            keep_alive,
            stopping: CancellationToken::new(),
            metrics: Metrics::new([], [], []),
            began: Instant::now(),
        };
        EventBody::new(frame, encoder, Vec::new(), events)
    }

    #[tokio::test]
    async fn a_panic_ends_the_stream_with_an_error_and_done() {
        let events = async_stream::stream!({
            yield Ok(AgentEvent::Text("before".to_owned()));
            panic!("in a test");
        });
        let whole = body(events.boxed(), Duration::from_secs(10))
            .collect()
            .await;
        let text = String::from_utf8(whole.unwrap().to_bytes().to_vec()).unwrap();
        assert!(text.contains(r#""content":"before""#), "{text}");
        assert!(text.contains(r#""code":"internal_error""#), "{text}");
        assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
        assert!(!text.contains("in a test"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_is_kept_alive_by_a_comment_every_so_often() {
        let events = futures_util::stream::pending().boxed();
        let mut body = body(events, Duration::from_secs(10));
        let began = tokio::time::Instant::now();
        for count in 1..=3 {
            let frame = body.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), KEEP_ALIVE);
            assert_eq!(began.elapsed().as_secs(), 10 * count);
        }
    }
}
