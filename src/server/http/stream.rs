//! The body of a streamed answer: the lines of a run as they come, and comments that keep a silent connection open.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use tokio::time::{Instant, Sleep};

use agent::metrics::{GaugeGuard, Metrics};
use agent::runs::FirstReader;

/// A comment that keeps a connection open; one newline, as some decoders mistake a blank line for an event.
pub(super) const KEEP_ALIVE: &[u8] = b": keep-alive\n";

/// The body of a streamed answer. It ends with the run; dropping it leaves the run.
#[derive(Debug)]
pub(super) struct EventBody {
    reader: FirstReader,
    keep_alive: Duration,
    timer: Pin<Box<Sleep>>,
    last_data: Instant,
    _open: GaugeGuard,
}

impl EventBody {
    /// The lines of a run. After `keep_alive` without a line, a comment is sent.
    pub(super) fn new(reader: FirstReader, keep_alive: Duration, metrics: &Metrics) -> Self {
        Self {
            reader,
            keep_alive,
            timer: Box::pin(tokio::time::sleep(keep_alive)),
            last_data: Instant::now(),
            _open: metrics.stream_opened(),
        }
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
        match this.reader.poll_lines(context) {
            Poll::Ready(Some(lines)) => {
                this.last_data = Instant::now();
                return Poll::Ready(Some(Ok(Frame::data(lines))));
            }
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending => {}
        }
        // The timer is moved only when it fires, not with every chunk.
        while this.timer.as_mut().poll(context).is_ready() {
            let due = this.last_data + this.keep_alive;
            if due <= Instant::now() {
                this.last_data = Instant::now();
                this.timer.as_mut().reset(this.last_data + this.keep_alive);
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(KEEP_ALIVE)))));
            }
            this.timer.as_mut().reset(due);
        }
        Poll::Pending
    }
}
