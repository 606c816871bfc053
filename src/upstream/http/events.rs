//! A model's response as a stream of events, up to its end or its failure.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::Stream;

use super::super::UpstreamError;
use super::super::decode::{ChunkDecoder, DecodeError, one_line, reported_error};
use super::reader::{BodyReader, ReadError};
use net::ClientError;
use protocol::openai::event::ModelEvent;
use protocol::openai::raw::quoted;
use protocol::sse::{SseDecoder, SseEvent};

/// Longest idle time after the finish chunk, while usage or `[DONE]` may still arrive. Then the answer counts as
/// complete.
const AFTER_FINISH_WAIT: Duration = Duration::from_secs(10);
/// Longest wait for the end of the body after `[DONE]`; reading up to the end keeps the connection reusable. Then the
/// connection is closed.
const AFTER_DONE_WAIT: Duration = Duration::from_millis(50);
/// Why a response without an end is broken.
const ENDED_EARLY: &str = "the stream ended before the model had finished";

/// The byte order mark that may stand at the beginning of a body.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// What the body is. Its first bytes say it: labels are often missing or wrong.
enum Form {
    /// Only white space has been received.
    Unknown(BytesMut),
    /// An event stream of chunks.
    Sse(SseDecoder),
    /// One JSON text, collected until it is complete.
    Whole(BytesMut),
}

/// The events of one response.
///
/// This stream is written by hand and not as a generator, because it is polled for each chunk of every response.
pub(super) struct ResponseEvents<S> {
    name: Arc<str>,
    reader: BodyReader<S>,
    form: Form,
    decoder: ChunkDecoder,
    /// Decoded events in reverse order.
    ready: Vec<ModelEvent>,
    bytes_left: u64,
    /// Lines came that are not of an event stream.
    has_foreign_lines: bool,
    state: State,
}

enum State {
    Reading,
    /// After `[DONE]`, until the end of the body.
    Draining,
    Failed(UpstreamError),
    Ended,
}

impl<S: Stream<Item = Result<Bytes, ClientError>> + Unpin> ResponseEvents<S> {
    pub(super) fn new(
        name: Arc<str>,
        reader: BodyReader<S>,
        decoder: ChunkDecoder,
        most_bytes: u64,
    ) -> Self {
        Self {
            name,
            reader,
            form: Form::Unknown(BytesMut::new()),
            has_foreign_lines: false,
            decoder,
            ready: Vec::new(),
            bytes_left: most_bytes,
            state: State::Reading,
        }
    }

    /// Decodes the next buffered event. Returns whether there was one.
    fn decode_next(&mut self) -> bool {
        let Form::Sse(sse) = &mut self.form else {
            return false;
        };
        let next = sse.next_event();
        if let Some(line) = sse.take_foreign_line() {
            self.take_foreign(&line);
            if matches!(self.state, State::Failed(_)) {
                return true;
            }
        }
        match next {
            Some(Ok(event)) => self.take(&event),
            Some(Err(error)) => self.fail(UpstreamError::Malformed {
                upstream: self.name.clone(),
                reason: error.to_string(),
                retryable: true,
            }),
            None => return false,
        }
        true
    }

    fn take(&mut self, event: &SseEvent) {
        let data = event.data.trim_ascii();
        if data.is_empty() {
            return;
        }
        if data == b"[DONE]" {
            if self.has_foreign_lines && !self.decoder.finished() {
                return self.break_off("the stream has lines that are not of an event stream");
            }
            self.decoder.finish(&mut self.ready);
            self.reader.set_limit(AFTER_DONE_WAIT);
            self.state = State::Draining;
            return;
        }
        let was_finished = self.decoder.finished();
        // The check of a valid text is many times as fast as the replacement of invalid bytes.
        let text =
            str::from_utf8(data).map_or_else(|_| String::from_utf8_lossy(data), Cow::Borrowed);
        let named_error = event.event.as_deref() == Some("error");
        let result = self.decoder.decode(&text, &mut self.ready);
        let result = if named_error && !matches!(result, Err(DecodeError::Reported(_))) {
            self.ready.clear();
            Err(DecodeError::Reported(error_json(&text).into()))
        } else {
            result
        };
        if let Err(error) = result {
            self.fail(self.decode_error(error));
        } else if self.decoder.finished() && !was_finished {
            let limit = self.reader.limit().min(AFTER_FINISH_WAIT);
            self.reader.set_limit(limit);
        }
    }

    /// A line that is not of an event stream. Some servers report errors so, with a field of their own or without one.
    fn take_foreign(&mut self, line: &[u8]) {
        self.has_foreign_lines = true;
        let line = String::from_utf8_lossy(line.trim_ascii());
        let error = match line.strip_prefix("error:") {
            Some(error) => Some(error_json(error.trim()).into()),
            None => reported_error(&line),
        };
        if let Some(error) = error {
            self.fail(UpstreamError::InStream {
                upstream: self.name.clone(),
                error,
            });
        }
    }

    /// Chooses the form by the first bytes: a JSON text, or else an event stream.
    fn choose_form(&mut self) {
        let Form::Unknown(start) = &mut self.form else {
            return;
        };
        let text = start.strip_prefix(BOM).unwrap_or(start).trim_ascii_start();
        let Some(first) = text.first() else {
            return;
        };
        if matches!(first, b'{' | b'[') {
            let text = BytesMut::from(text);
            self.form = Form::Whole(text);
            return;
        }
        // A part of a byte order mark.
        if BOM.starts_with(start) {
            return;
        }
        let largest = usize::try_from(self.bytes_left).unwrap_or(usize::MAX);
        let mut sse = SseDecoder::new(largest.saturating_add(start.len()));
        sse.push(start.split().freeze());
        self.form = Form::Sse(sse);
    }

    /// Adds a chunk of the body to the buffer.
    fn feed(&mut self, piece: Bytes) {
        let size = piece.len() as u64;
        let Some(left) = self.bytes_left.checked_sub(size) else {
            self.fail(UpstreamError::Malformed {
                upstream: self.name.clone(),
                reason: "the response is larger than max_stream_bytes".into(),
                retryable: true,
            });
            return;
        };
        self.bytes_left = left;
        match &mut self.form {
            Form::Sse(sse) => sse.push(piece),
            Form::Whole(body) => body.extend_from_slice(&piece),
            Form::Unknown(start) => {
                start.extend_from_slice(&piece);
                self.choose_form();
            }
        }
    }

    /// Handles the end of the body or the error that ends it.
    fn close(&mut self, end: Result<(), ReadError>) {
        match (&mut self.form, end) {
            (_, Err(error)) => {
                self.decoder.flush(&mut self.ready);
                self.fail(error.into_upstream(self.name.clone()));
            }
            (Form::Whole(body), Ok(())) => {
                let body = std::mem::take(body);
                let text = String::from_utf8_lossy(&body);
                match self.decoder.decode_whole(&text, &mut self.ready) {
                    Ok(()) => self.state = State::Ended,
                    Err(error) => self.fail(self.decode_error(error)),
                }
            }
            (Form::Unknown(_), Ok(())) => self.break_off(ENDED_EARLY),
            (Form::Sse(sse), Ok(())) => {
                let last = sse.finish();
                if let Some(line) = sse.take_foreign_line() {
                    self.take_foreign(&line);
                }
                if let Some(Ok(event)) = last {
                    self.take(&event);
                    if matches!(self.state, State::Failed(UpstreamError::Malformed { .. })) {
                        self.state = State::Reading;
                    }
                }
                match self.state {
                    State::Reading if self.decoder.finished() => self.state = State::Ended,
                    State::Reading => self.break_off(ENDED_EARLY),
                    State::Draining => self.state = State::Ended,
                    State::Failed(_) | State::Ended => {}
                }
            }
        }
    }

    /// Ends the response as one that broke off.
    fn break_off(&mut self, reason: &str) {
        self.decoder.flush(&mut self.ready);
        self.fail(UpstreamError::Broken {
            upstream: self.name.clone(),
            reason: reason.to_owned(),
        });
    }

    /// Ends the response with an error. If a known finish reason has arrived, the answer is complete and the error is dropped.
    fn fail(&mut self, error: UpstreamError) {
        self.state = if self.decoder.is_complete() {
            State::Ended
        } else {
            State::Failed(error)
        };
    }

    fn decode_error(&self, error: DecodeError) -> UpstreamError {
        let upstream = self.name.clone();
        match error {
            DecodeError::Reported(error) => UpstreamError::InStream { upstream, error },
            DecodeError::Malformed(reason) => UpstreamError::Malformed {
                upstream,
                reason,
                retryable: true,
            },
        }
    }
}

impl<S: Stream<Item = Result<Bytes, ClientError>> + Unpin> Stream for ResponseEvents<S> {
    type Item = Result<ModelEvent, UpstreamError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(event) = this.ready.pop() {
                return Poll::Ready(Some(Ok(event)));
            }
            match std::mem::replace(&mut this.state, State::Ended) {
                State::Failed(error) => return Poll::Ready(Some(Err(error))),
                State::Ended => return Poll::Ready(None),
                State::Draining => {
                    this.state = State::Draining;
                    let _rest = ready!(this.reader.poll_chunk(context));
                    this.state = State::Ended;
                }
                State::Reading => {
                    this.state = State::Reading;
                    if !this.decode_next() {
                        match ready!(this.reader.poll_chunk(context)) {
                            Some(Ok(piece)) => this.feed(piece),
                            Some(Err(error)) => this.close(Err(error)),
                            None => this.close(Ok(())),
                        }
                    }
                    this.ready.reverse();
                }
            }
        }
    }
}

/// The data of an event named `error`, as JSON text.
fn error_json(data: &str) -> String {
    match serde_json::from_str::<serde::de::IgnoredAny>(data) {
        Ok(_) => one_line(data).into_owned(),
        Err(_) => quoted(data),
    }
}
