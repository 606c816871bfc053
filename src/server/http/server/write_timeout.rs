//! A stream whose writes fail when the peer takes too little of the data that waits for it. While data waits, no answer is
//! polled, so the run that it belongs to is handed to a task of its own.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::activity::Activity;
use agent::runs::InlineRunSlot;

/// Least number of bytes that the peer must take within the time limit while data waits for it. A slower peer is
/// disconnected.
/// Tried by `write_timeout::a_peer_that_takes_too_little_fails_the_write_after_the_limit`.
pub(super) const MIN_PROGRESS_BYTES: usize = 64 * 1024;

/// Fails a write when the peer has taken fewer than [`MIN_PROGRESS_BYTES`] within the time limit.
///
/// The time runs only while data waits: from a write that is pending to the next flush. A flush succeeds when the
/// operating system has taken all data.
#[derive(Debug)]
pub(super) struct WriteTimeout<S> {
    stream: S,
    limit: Duration,
    /// Bytes that the peer has taken since the time began to run; `None` while no data waits.
    taken: Option<usize>,
    /// Created by the first write that is pending, because most connections have none.
    timer: Option<Pin<Box<Sleep>>>,
    run: InlineRunSlot,
    activity: Arc<Activity>,
}

impl<S> WriteTimeout<S> {
    pub(super) fn new(
        stream: S,
        limit: Duration,
        run: InlineRunSlot,
        activity: Arc<Activity>,
    ) -> Self {
        Self {
            stream,
            limit,
            taken: None,
            timer: None,
            run,
            activity,
        }
    }

    /// Counts the bytes of a write, or waits with it for the time limit.
    fn checked(
        &mut self,
        written: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(count)) => {
                self.taken = self
                    .taken
                    .map(|taken| taken.saturating_add(count))
                    .filter(|taken| *taken < MIN_PROGRESS_BYTES);
                Poll::Ready(Ok(count))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => self.expired(context).map(Err),
        }
    }

    /// Completes with an error when the time limit has passed.
    fn expired(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        if self.run.hand_over() {
            // The reader has to ask the run to wake it.
            context.waker().wake_by_ref();
        }
        let limit = self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
        if self.taken.is_none() {
            self.taken = Some(0);
            self.activity.set_data_waits(true);
            // A limit that is too long for the clock keeps the timer's first time, which is decades away.
            let due = Instant::now().checked_add(limit);
            let due = due.unwrap_or_else(|| timer.deadline());
            timer.as_mut().reset(due);
        }
        ready!(timer.as_mut().poll(context));
        Poll::Ready(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client took too little data within write_timeout",
        ))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, data);
        self.checked(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.checked(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Ready(flushed) => {
                self.taken = None;
                self.activity.set_data_waits(false);
                Poll::Ready(flushed)
            }
            Poll::Pending => self.expired(context).map(Err),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_shutdown(context) {
            Poll::Ready(ended) => Poll::Ready(ended),
            Poll::Pending => self.expired(context).map(Err),
        }
    }
}

#[cfg(test)]
mod tests;
