//! Running a batch of calls.
//!
//! The [`Gate`] decides about a call first. Then the call waits for a free slot and runs; the tool's time limit starts when
//! the call runs. Owns how many calls run at the same time, their time limits, and the results of calls that fail or panic.
//! Starts no task: calls run while the stream is polled. A reader that stops polling pauses them, and dropping the stream
//! cancels them.

mod execution;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ::http::HeaderMap;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream, StreamExt, stream};
use serde_json::{Map, Value};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use self::execution::{CallEnd, Shared, StartRequest, finish};
use super::gate::{Gate, GateWait};
use super::refusal::CallRefusal;
use super::{CallContext, ProgressSender, SharedTool, ToolOutput, ToolProgress, ToolStatus};

/// Most pieces of live output that are buffered. Then the tool waits for the reader.
/// Tried by `batch::live_output::a_slow_reader_holds_the_tool_up`.
const PROGRESS_BUFFER: usize = 16;

/// One call of a batch.
#[derive(Debug)]
pub struct BatchCall {
    /// Its index in the batch.
    pub index: usize,
    /// The tool.
    pub tool: SharedTool,
    /// The tool's name.
    pub name: String,
    /// The arguments.
    pub arguments: Map<String, Value>,
    /// The id of the call, which its result repeats.
    pub call_id: String,
    /// What the hooks have added to its result before it waited.
    pub hook_context: Option<String>,
    /// `traceparent` and `tracestate` of the call, if it has a span of its own.
    pub trace: Option<HeaderMap>,
    /// Set when the call starts.
    pub started: Arc<AtomicBool>,
    /// Its start is announced, and waits until it is allowed.
    pub asks_to_start: bool,
}

/// The limits of a batch.
#[derive(Debug, Clone, Copy)]
pub struct BatchLimits {
    /// Most calls at the same time; 0 is taken for 1.
    pub max_parallel: usize,
    /// When the calls that have not ended are cancelled.
    pub deadline: Option<Instant>,
}

/// What happens in a batch.
#[derive(Debug)]
pub enum BatchEvent {
    /// A call waits for a decision. Its tool was not called.
    Waiting {
        /// The call.
        index: usize,
        /// What it waits for.
        wait: Box<GateWait>,
        /// Its arguments as JSON text, if the gate changed them.
        changed_arguments: Option<String>,
        /// What the hooks add to its result.
        hook_context: Option<String>,
    },
    /// A call that is announced is about to start.
    Starting {
        /// The call.
        index: usize,
        /// The arguments that it runs with as JSON text, if the gate changed them.
        changed_arguments: Option<String>,
        /// Allows the start.
        start: StartPermission,
    },
    /// A call does not run: the gate refused it, or its start.
    Refused {
        /// The call.
        index: usize,
        /// Why.
        refusal: CallRefusal,
    },
    /// Live output of a call.
    Progress {
        /// The call.
        index: usize,
        /// The output.
        progress: ToolProgress,
    },
    /// A call that was admitted has ended.
    Done {
        /// The call.
        index: usize,
        /// How.
        result: ToolResult,
    },
}

/// Allows a call to start, once that is written. If it is dropped, the call does not run.
#[derive(Debug)]
pub struct StartPermission(oneshot::Sender<()>);

impl StartPermission {
    /// The call starts.
    pub fn allow(self) {
        // A closed channel means that the batch is over.
        let _closed = self.0.send(());
    }
}

/// How a call ended.
#[derive(Debug)]
pub struct ToolResult {
    /// The status.
    pub status: ToolStatus,
    /// The output; after a failure, its content is the error text for the model.
    pub output: ToolOutput,
    /// How long it took.
    pub duration: Duration,
    /// The arguments that it ran with as JSON text, if the gate changed them.
    pub changed_arguments: Option<String>,
}

/// Runs a batch. Dropping the stream cancels the running calls.
///
/// Calls start in order and end in any order. A call at the gate takes no slot, and one that waits for a decision delays no
/// other call. The last event of each call is exactly one [`BatchEvent::Done`], [`BatchEvent::Refused`] or
/// [`BatchEvent::Waiting`], after its live output. If any tool of the batch is sequential, the calls run one after another.
pub fn run(
    calls: Vec<BatchCall>,
    context: Arc<CallContext>,
    gate: Arc<Gate>,
    limits: BatchLimits,
) -> impl Stream<Item = BatchEvent> + Send + 'static {
    let sequential = calls.iter().any(|call| call.tool.policy().sequential);
    let shared = Arc::new(Shared {
        context,
        gate,
        slots: Semaphore::new(limits.max_parallel.clamp(1, Semaphore::MAX_PERMITS)),
        deadline: limits.deadline,
    });
    stream::iter(calls)
        .map(move |call| events(Running::new(call, shared.clone())).boxed())
        .flatten_unordered(sequential.then_some(1))
}

/// A call that runs while it is polled.
struct Running {
    index: usize,
    progress: mpsc::Receiver<ToolProgress>,
    /// Receives the announcement of the start.
    starting: Option<oneshot::Receiver<StartRequest>>,
    /// `None` once the call has ended.
    work: Option<BoxFuture<'static, CallEnd>>,
    /// Reported after the remaining live output.
    end: Option<CallEnd>,
}

fn events(running: Running) -> impl Stream<Item = BatchEvent> + Send {
    stream::unfold(running, |mut running| async move {
        let event = running.next().await?;
        Some((event, running))
    })
}

impl Running {
    fn new(call: BatchCall, shared: Arc<Shared>) -> Self {
        let (sender, progress) = mpsc::channel(PROGRESS_BUFFER);
        let (start_request, starting) = call.asks_to_start.then(oneshot::channel).unzip();
        Self {
            index: call.index,
            progress,
            starting,
            work: Some(finish(call, shared, ProgressSender(sender), start_request).boxed()),
            end: None,
        }
    }

    /// The next event of the call; `None` after the last. Cancel safe.
    async fn next(&mut self) -> Option<BatchEvent> {
        let index = self.index;
        if let Some(work) = &mut self.work {
            tokio::select! {
                // The call is polled first, so that endless live output cannot delay its time limits.
                biased;
                end = work => {
                    self.work = None;
                    self.end = Some(end);
                    self.progress.close();
                }
                start = start_requested(&mut self.starting) => {
                    let StartRequest { start, changed_arguments } = start;
                    return Some(BatchEvent::Starting { index, changed_arguments, start });
                }
                Some(progress) = self.progress.recv() => {
                    return Some(BatchEvent::Progress { index, progress });
                }
            }
        }
        if let Ok(progress) = self.progress.try_recv() {
            return Some(BatchEvent::Progress { index, progress });
        }
        Some(match self.end.take()? {
            CallEnd::Done(result) => BatchEvent::Done { index, result },
            CallEnd::Refused(refusal) => BatchEvent::Refused { index, refusal },
            CallEnd::Waiting {
                wait,
                changed_arguments,
                hook_context,
            } => BatchEvent::Waiting {
                index,
                wait,
                changed_arguments,
                hook_context,
            },
        })
    }
}

/// Resolves once with the announcement of a start.
async fn start_requested(starting: &mut Option<oneshot::Receiver<StartRequest>>) -> StartRequest {
    let start = match starting {
        Some(starting) => starting.await.ok(),
        None => None,
    };
    *starting = None;
    match start {
        Some(start) => start,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
