//! The reader that started a run.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;

use super::RunStatus;
use super::answer::RunAnswer;
use super::state::RunState;

/// The reader that started a run. Dropping it aborts the run if there is no other and it is not to finish.
#[derive(Debug)]
pub struct FirstReader {
    state: Arc<RunState>,
}

/// What is known once a run has begun to answer.
#[derive(Debug)]
pub enum Beginning {
    /// The first model call was answered with success; the upstream's headers.
    Head(HeaderMap),
    /// The run is over; its answer, unless it has none.
    Over(Option<Arc<RunAnswer>>),
}

impl FirstReader {
    pub(super) fn new(state: Arc<RunState>) -> Self {
        state.enter();
        Self { state }
    }

    /// What the run is doing.
    pub fn status(&self) -> RunStatus {
        self.state.last_status()
    }

    /// Waits for the first model call's success or the end of the run.
    pub async fn beginning(&self) -> Beginning {
        let probe = |progress: &super::state::Progress| match &progress.head {
            Some(head) => Some(Beginning::Head(head.clone())),
            None => progress
                .is_over()
                .then(|| Beginning::Over(progress.answer())),
        };
        self.state.wait_for(probe).await
    }

    /// The headers of the first model call's answer, if it was answered with success.
    pub fn head(&self) -> Option<HeaderMap> {
        self.state.progress().head.clone()
    }

    /// Waits for the end of the run and returns its answer.
    pub async fn answer(&self) -> Option<Arc<RunAnswer>> {
        let over =
            |progress: &super::state::Progress| progress.is_over().then(|| progress.answer());
        self.state.wait_for(over).await
    }

    /// The next lines; none once all were read.
    pub fn poll_lines(&self, context: &Context<'_>) -> Poll<Option<Bytes>> {
        self.state.progress().log.poll_unread(context)
    }
}

impl Drop for FirstReader {
    fn drop(&mut self) {
        self.state.progress().log.detach();
        self.state.leave();
    }
}
