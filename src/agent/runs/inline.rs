//! A run that the connection of its first reader polls while it reads.
//!
//! This saves a task and its wake-ups per run. A connection that cannot write stops polling the body, and a closed
//! connection polls nothing. Both first hand the run to a task of its own, so the run does not depend on its readers.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use net::polling::WakeFilter;

type RunFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The run that a connection reads and polls, if any; cheap to clone. Each connection has one of its own, because it answers
/// its requests one after the other.
#[derive(Debug, Clone, Default)]
pub struct InlineRunSlot(Arc<Mutex<Option<Arc<InlineRun>>>>);

/// The future of a run until it has ended or a task has it.
pub(super) struct InlineRun {
    future: Mutex<Option<RunFuture>>,
    wake_filter: WakeFilter,
    runtime: Handle,
}

impl InlineRunSlot {
    /// Hands the run to a task of its own. Says whether there was one; the reader has to be polled again then.
    pub fn hand_over(&self) -> bool {
        let polled = self.0.lock().take();
        polled.is_some_and(|polled| polled.hand_over())
    }

    /// The connection polls this run from now on.
    pub(super) fn set(&self, polled: &Arc<InlineRun>) {
        *self.0.lock() = Some(polled.clone());
    }
}

impl InlineRun {
    /// Has to be called within a runtime.
    pub(super) fn new(
        run: impl Future<Output = ()> + Send + 'static,
        tasks: &TaskTracker,
    ) -> Arc<Self> {
        Arc::new(Self {
            future: Mutex::new(Some(Box::pin(tasks.track_future(run)))),
            wake_filter: WakeFilter::default(),
            runtime: Handle::current(),
        })
    }

    /// Polls the run, unless nothing has woken it. False if it is not here: it has ended, or a task has it.
    pub(super) fn poll(&self, context: &mut Context<'_>) -> bool {
        // It stays outside if it panics.
        let Some(mut run) = self.future.lock().take() else {
            return false;
        };
        let polled = |context: &mut Context<'_>| run.as_mut().poll(context);
        match self.wake_filter.poll(context, polled) {
            Poll::Ready(()) => false,
            Poll::Pending => {
                *self.future.lock() = Some(run);
                true
            }
        }
    }

    /// Gives the run to a task, which is counted like the run.
    pub(super) fn hand_over(&self) -> bool {
        let run = self.future.lock().take();
        run.is_some_and(|run| {
            // The tracker of the run outlives the task.
            drop(self.runtime.spawn(run));
            true
        })
    }
}

impl fmt::Debug for InlineRun {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("InlineRun").finish_non_exhaustive()
    }
}
