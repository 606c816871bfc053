//! The body of a streamed response. Events are encoded as they arrive, comments keep an idle connection open, and every
//! stream gets the end that its dialect prescribes, also after an error or a panic.

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

use super::dialect::StreamEncoder;
use super::edge::panic_text;
use super::error::ApiError;
use super::turn::Events;
use crate::agent::RunError;
use crate::agent::event::AgentEvent;
use crate::metrics::{Metrics, StreamGuard};

/// A comment that keeps the connection open. It has no blank line, which some decoders would take for an event.
const KEEP_ALIVE: &[u8] = b": keep-alive\n";
/// Events that are ready together are sent in one frame of about this many bytes.
const FRAME_BYTES: usize = 16 * 1024;

/// The body of a streamed response.
pub(super) struct EventBody {
    encoder: StreamEncoder,
    /// Events that arrived before the head of the response was sent.
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

/// What [`EventBody`] needs besides events and encoder.
#[derive(Debug)]
pub(super) struct StreamContext {
    /// Time without data after which a comment is sent.
    pub(super) keep_alive: Duration,
    /// Cancelled when running requests must end.
    pub(super) stopping: CancellationToken,
    /// The metrics.
    pub(super) metrics: Metrics,
    /// When the request arrived.
    pub(super) began: Instant,
}

impl EventBody {
    pub(super) fn new(
        context: StreamContext,
        encoder: StreamEncoder,
        early: Vec<AgentEvent>,
        events: Events,
    ) -> Self {
        let StreamContext {
            keep_alive,
            stopping,
            metrics,
            began,
        } = context;
        Self {
            encoder,
            early: early.into(),
            events: Some(events),
            keep_alive,
            timer: Box::pin(tokio::time::sleep(keep_alive)),
            last_data: tokio::time::Instant::now(),
            // A child token for each stream, so that polling does not contend for the lock of the shared one.
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
        self.encoder.fail(&error, out);
    }

    fn panicked(&mut self, panic: &(dyn Any + Send), out: &mut BytesMut) {
        self.events = None;
        tracing::error!(panic = panic_text(panic), "a stream panicked");
        self.encoder.fail(&ApiError::internal(), out);
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
            this.encoder.fail(&ApiError::shutting_down(), &mut out);
        }
        if !out.is_empty() {
            this.last_data = tokio::time::Instant::now();
            return Poll::Ready(Some(Ok(Frame::data(out.freeze()))));
        }
        // The timer is reset when it fires instead of with every chunk.
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
    use crate::chat::encode::{AnswerHead, ChunkEncoder, ProgressDelivery};

    fn body(events: Events, keep_alive: Duration) -> EventBody {
        let head = AnswerHead {
            id: "chatcmpl-1".into(),
            created: 1,
            model: "m".into(),
        };
        let encoder = ChunkEncoder::new(head, ProgressDelivery::Named, false);
        let encoder = StreamEncoder::Chat(encoder);
        let context = StreamContext {
            keep_alive,
            stopping: CancellationToken::new(),
            metrics: Metrics::new([], [], []),
            began: Instant::now(),
        };
        EventBody::new(context, encoder, Vec::new(), events)
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
    async fn an_idle_stream_gets_keep_alive_comments() {
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
