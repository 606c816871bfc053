//! Response bodies with an idle time-out.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use tokio::time::{Instant, Sleep, sleep_until};

use super::super::UpstreamError;
use net::{ClientError, cause_of};

/// Why a body cannot be read further.
#[derive(Debug)]
pub(super) enum ReadError {
    /// No data for this long.
    Silent(Duration),
    /// The connection broke.
    Broken(String),
}

/// A response body with an idle time-out.
///
/// Time counts only while the body is being polled, so that a slow client does not cause a time-out. The timer is reset
/// only when it fires, because most chunks arrive long before that.
pub(super) struct BodyReader<S> {
    stream: S,
    limit: Duration,
    waiting_since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S: Stream<Item = Result<Bytes, ClientError>> + Unpin> BodyReader<S> {
    pub(super) fn new(stream: S, limit: Duration) -> Self {
        Self {
            stream,
            limit,
            waiting_since: None,
            timer: None,
        }
    }

    /// Sets another idle time-out, starting now.
    pub(super) fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
        self.waiting_since = None;
        self.timer = None;
    }

    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// Polls for the next chunk.
    pub(super) fn poll_chunk(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, ReadError>>> {
        if let Poll::Ready(piece) = Pin::new(&mut self.stream).poll_next(context) {
            self.waiting_since = None;
            return Poll::Ready(
                piece.map(|piece| piece.map_err(|error| ReadError::Broken(cause_of(&error)))),
            );
        }
        let now = Instant::now();
        let deadline = *self.waiting_since.get_or_insert(now) + self.limit;
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        while timer.as_mut().poll(context).is_ready() {
            if deadline <= now {
                return Poll::Ready(Some(Err(ReadError::Silent(self.limit))));
            }
            timer.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

impl ReadError {
    pub(super) fn into_upstream(self, upstream: Arc<str>) -> UpstreamError {
        match self {
            Self::Silent(limit) => UpstreamError::Timeout {
                upstream,
                phase: "next chunk",
                limit,
            },
            Self::Broken(reason) => UpstreamError::Broken { upstream, reason },
        }
    }
}

/// The body of a forwarded response.
pub(super) struct ForwardedBody<S> {
    name: Arc<str>,
    reader: BodyReader<S>,
    ended: bool,
}

impl<S> ForwardedBody<S> {
    pub(super) fn new(name: Arc<str>, reader: BodyReader<S>) -> Self {
        Self {
            name,
            reader,
            ended: false,
        }
    }
}

impl<S: Stream<Item = Result<Bytes, ClientError>> + Unpin> Stream for ForwardedBody<S> {
    type Item = Result<Bytes, UpstreamError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let piece = ready!(self.reader.poll_chunk(context));
        self.ended = !matches!(piece, Some(Ok(_)));
        Poll::Ready(
            piece.map(|piece| piece.map_err(|error| error.into_upstream(self.name.clone()))),
        )
    }
}
