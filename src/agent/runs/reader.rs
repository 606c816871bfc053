//! The reader that started a run.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;

use super::RunStatus;
use super::inline::InlineRun;
use super::state::{Progress, RunState};
use store::RunAnswer;

/// The reader that started a run. Dropping it aborts the run if there is no other and it is not to finish.
#[derive(Debug)]
pub struct FirstReader {
    state: Arc<RunState>,
    /// The run, while this reader polls it.
    run: Option<Arc<InlineRun>>,
}

/// What is known once a run has begun to answer.
#[derive(Debug)]
pub enum StreamHead {
    /// The first model call was answered with success; the upstream's headers.
    Headers(HeaderMap),
    /// The run is over; its answer, unless it has none.
    Over(Option<Arc<RunAnswer>>),
}

impl FirstReader {
    pub(super) fn new(state: Arc<RunState>) -> Self {
        state.enter();
        Self { state, run: None }
    }

    /// This reader polls the run from now on.
    pub(super) fn poll_run(&mut self, run: Arc<InlineRun>) {
        self.run = Some(run);
    }

    /// What the run is doing.
    pub fn status(&self) -> RunStatus {
        self.state.last_status()
    }

    /// Waits until the store has the record of the run; says whether it has.
    pub async fn record_stored(&self) -> bool {
        self.wait_for(Progress::record_stored).await
    }

    /// Waits for the first model call's success or the end of the run.
    pub async fn stream_head(&self) -> StreamHead {
        let probe = |progress: &Progress| match &progress.head {
            Some(head) => Some(StreamHead::Headers(head.clone())),
            None => progress
                .is_over()
                .then(|| StreamHead::Over(progress.answer())),
        };
        self.wait_for(probe).await
    }

    /// The headers of the first model call's answer, if it was answered with success.
    pub fn head(&self) -> Option<HeaderMap> {
        self.state.progress().head.clone()
    }

    /// Waits for the end of the run and returns its answer.
    pub async fn answer(&self) -> Option<Arc<RunAnswer>> {
        let over = |progress: &Progress| progress.is_over().then(|| progress.answer());
        self.wait_for(over).await
    }

    /// The next lines; none once all were read.
    pub fn poll_lines(&self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.run.is_some() {
            if let Some(lines) = self.state.progress().log.take_unread() {
                return Poll::Ready(Some(lines));
            }
            if self.is_polled(context) {
                let lines = self.state.progress().log.take_unread();
                return lines.map_or(Poll::Pending, |lines| Poll::Ready(Some(lines)));
            }
        }
        self.state.progress().log.poll_unread(context)
    }

    /// Polls the run if it is here, and says whether it still is.
    fn is_polled(&self, context: &mut Context<'_>) -> bool {
        self.run.as_ref().is_some_and(|run| run.poll(context))
    }

    /// Resolves with what `probe` finds.
    async fn wait_for<T>(&self, probe: impl Fn(&Progress) -> Option<T>) -> T {
        let polled = poll_fn(|context| {
            let here = self.is_polled(context);
            match probe(&self.state.progress()) {
                Some(found) => Poll::Ready(Some(found)),
                None if here => Poll::Pending,
                None => Poll::Ready(None),
            }
        });
        match polled.await {
            Some(found) => found,
            None => self.state.wait_for(probe).await,
        }
    }
}

impl Drop for FirstReader {
    fn drop(&mut self) {
        self.state.progress().log.detach();
        self.state.leave();
        if let Some(run) = &self.run {
            run.hand_over();
        }
    }
}
