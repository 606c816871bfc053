//! The body of a streamed answer: the lines of a run as they come, and comments that keep a silent connection open.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;
use tokio::time::{Instant, Sleep, timeout};

use super::AppState;
use agent::metrics::{GaugeGuard, Metrics};
use agent::runs::{FirstReader, Follow, Followed};

/// A comment that keeps a connection open; one newline, as some decoders mistake a blank line for an event.
const KEEP_ALIVE: &[u8] = b": keep-alive\n";
/// The last line that a reader of events has.
pub(super) const LAST_EVENT_ID: &str = "last-event-id";

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

/// A stream of a run's lines for a reader that did not start it.
pub(super) fn followed(state: &AppState, follow: Follow) -> Response {
    let keep_alive = state.settings.keep_alive;
    let lines = stream::unfold(Some(follow), move |follow| async move {
        let mut follow = follow?;
        match timeout(keep_alive, follow.next()).await {
            Err(_elapsed) => Some((Ok(Bytes::from_static(KEEP_ALIVE)), Some(follow))),
            Ok(Followed::Lines(lines)) => Some((Ok(lines), Some(follow))),
            // Ends with an error, so that the stream does not look complete.
            Ok(Followed::Lost) => Some((Err(io::Error::other("the reader fell behind")), None)),
            Ok(Followed::End) => None,
        }
    });
    let mut response = Response::new(Body::from_stream(lines));
    event_stream(response.headers_mut());
    response
}

/// Marks an answer as a stream of events that proxies should not buffer.
pub(super) fn event_stream(headers: &mut HeaderMap) {
    let stream = HeaderValue::from_static("text/event-stream; charset=utf-8");
    headers.insert(CONTENT_TYPE, stream);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Tells nginx in front of us not to buffer the stream.
    headers.insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
}
