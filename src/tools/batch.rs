//! Running a batch of calls.
//!
//! Owns how many calls run at a time, their time limits, and what becomes of a call that fails or panics. Starts no task:
//! calls run while the stream is polled, so a reader that stops reading holds them up, and one that drops it ends them.

use std::error::Error;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream, StreamExt, stream};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::{
    CallContext, ProgressSender, SharedTool, ToolError, ToolInvocation, ToolOutput, ToolProgress,
    ToolStatus,
};

/// Pieces of live output that wait for the reader before the tool has to.
const PROGRESS_BUFFER: usize = 16;
/// What the model is told of a call that the deadline ended.
const CANCELLED_TEXT: &str = "The call was cancelled: the time limit of this turn was reached.";
/// What the model is told of a call that panicked.
const PANICKED_TEXT: &str = "the tool failed unexpectedly";

/// One call of a batch.
#[derive(Debug)]
pub struct BatchCall {
    /// Its place in the batch.
    pub index: usize,
    /// The tool.
    pub tool: SharedTool,
    /// The tool's name.
    pub name: String,
    /// The arguments.
    pub arguments: Map<String, Value>,
    /// The id that the result answers.
    pub call_id: String,
}

/// What bounds a batch.
#[derive(Debug, Clone, Copy)]
pub struct BatchLimits {
    /// Most calls at the same time; 0 is taken for 1.
    pub max_parallel: usize,
    /// The moment at which what still runs is cancelled.
    pub deadline: Option<Instant>,
}

/// What happens in a batch.
#[derive(Debug)]
pub enum BatchEvent {
    /// Live output of a call.
    Progress {
        /// The call.
        index: usize,
        /// The output.
        progress: ToolProgress,
    },
    /// A call has ended.
    Done {
        /// The call.
        index: usize,
        /// How.
        result: ToolResult,
    },
}

/// How a call ended.
#[derive(Debug)]
pub struct ToolResult {
    /// The status.
    pub status: ToolStatus,
    /// What it brought; for a failure the text for the model.
    pub output: ToolOutput,
    /// How long it took.
    pub duration: Duration,
}

/// Runs a batch; dropping the stream cancels what runs.
///
/// Calls start in their order and end in any; each brings its live output first and exactly one
/// [`BatchEvent::Done`] last. Where one of the tools is sequential, each call waits for the one before.
pub fn run(
    calls: Vec<BatchCall>,
    context: Arc<CallContext>,
    limits: BatchLimits,
) -> impl Stream<Item = BatchEvent> + Send + 'static {
    let sequential = calls.iter().any(|call| call.tool.policy().sequential);
    let at_a_time = if sequential {
        1
    } else {
        limits.max_parallel.max(1)
    };
    stream::iter(calls)
        .map(move |call| events(Running::new(call, context.clone(), limits.deadline)).boxed())
        .flatten_unordered(at_a_time)
}

/// A call that runs while it is polled.
struct Running {
    index: usize,
    progress: mpsc::Receiver<ToolProgress>,
    /// Empty once the call has ended.
    work: Option<BoxFuture<'static, ToolResult>>,
    /// Waits for the live output that came before it.
    result: Option<ToolResult>,
}

fn events(running: Running) -> impl Stream<Item = BatchEvent> + Send {
    stream::unfold(running, |mut running| async move {
        let event = running.next().await?;
        Some((event, running))
    })
}

impl Running {
    fn new(call: BatchCall, context: Arc<CallContext>, deadline: Option<Instant>) -> Self {
        let (sender, progress) = mpsc::channel(PROGRESS_BUFFER);
        Self {
            index: call.index,
            progress,
            work: Some(finish(call, context, ProgressSender(sender), deadline).boxed()),
            result: None,
        }
    }

    /// Dropping the future loses nothing; dropping the call ends it.
    async fn next(&mut self) -> Option<BatchEvent> {
        let index = self.index;
        if let Some(work) = &mut self.work {
            tokio::select! {
                // The call comes first so that its time limits hold however much it has to say.
                biased;
                result = work => {
                    self.work = None;
                    self.result = Some(result);
                    self.progress.close();
                }
                Some(progress) = self.progress.recv() => {
                    return Some(BatchEvent::Progress { index, progress });
                }
            }
        }
        if let Ok(progress) = self.progress.try_recv() {
            return Some(BatchEvent::Progress { index, progress });
        }
        let result = self.result.take()?;
        Some(BatchEvent::Done { index, result })
    }
}

/// Runs a call to its end, whichever that is.
async fn finish(
    call: BatchCall,
    context: Arc<CallContext>,
    progress: ProgressSender,
    deadline: Option<Instant>,
) -> ToolResult {
    let started = Instant::now();
    let timeout = call.tool.policy().timeout;
    let invocation = ToolInvocation {
        name: call.name,
        arguments: call.arguments,
        call_id: call.call_id,
        context,
        progress,
    };
    let tool = call.tool;
    let ended = tokio::select! {
        // A call whose turn comes after the deadline is not made at all; a result that is there counts as in time.
        biased;
        () = passed(deadline), if deadline.is_some_and(|deadline| deadline <= started) => Ended::Cancelled,
        ended = guarded(&tool, &invocation) => ended,
        () = passed(deadline) => Ended::Cancelled,
        () = passed(started.checked_add(timeout)) => Ended::Answered(Err(ToolError::TimedOut(timeout))),
    };
    let (status, output) = conclude(ended, &invocation);
    ToolResult {
        status,
        output,
        duration: started.elapsed(),
    }
}

/// How a call came to its end.
enum Ended {
    Answered(Result<ToolOutput, ToolError>),
    Panicked,
    Cancelled,
}

/// Makes the call; a panic while it is made or while it runs ends only this call.
async fn guarded(tool: &SharedTool, invocation: &ToolInvocation) -> Ended {
    let call = async { tool.call(invocation).await };
    // After a panic nothing of the call is looked at again, so no half-made state can be seen.
    match AssertUnwindSafe(call).catch_unwind().await {
        Ok(answer) => Ended::Answered(answer),
        Err(_) => Ended::Panicked,
    }
}

/// Waits for a moment; for ever where there is none.
async fn passed(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Status and text of an ended call. Logs what went wrong, without arguments or results.
fn conclude(ended: Ended, invocation: &ToolInvocation) -> (ToolStatus, ToolOutput) {
    let (tool, call_id) = (&*invocation.name, &*invocation.call_id);
    let (status, text) = match ended {
        Ended::Answered(Ok(output)) => return (output.status.into(), output),
        Ended::Answered(Err(error)) => {
            let cause = causes(&error);
            tracing::warn!(tool, call_id, cause, "tool call failed");
            let status = match error {
                ToolError::TimedOut(_) => ToolStatus::Timeout,
                ToolError::Rejected(_) | ToolError::Failed { .. } => ToolStatus::Error,
            };
            (status, error.to_string())
        }
        Ended::Panicked => {
            tracing::error!(tool, call_id, "tool call panicked");
            (ToolStatus::Error, PANICKED_TEXT.to_owned())
        }
        Ended::Cancelled => (ToolStatus::Cancelled, CANCELLED_TEXT.to_owned()),
    };
    let output = ToolOutput {
        content: text,
        ..ToolOutput::default()
    };
    (status, output)
}

/// What the operator is told of a failure: what lies behind it, as the text for the model may repeat what the model wrote.
fn causes(error: &ToolError) -> String {
    match error {
        ToolError::Rejected(_) => "the call cannot be made like this".to_owned(),
        ToolError::TimedOut(_) => error.to_string(),
        ToolError::Failed { .. } => {
            let chain = std::iter::successors(error.source(), |&error| error.source());
            let texts: Vec<String> = chain.map(ToString::to_string).collect();
            texts.join(": ")
        }
    }
}

#[cfg(test)]
mod tests;
