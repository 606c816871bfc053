//! One call of a batch: through the gate, then to its tool, within its time limits.

use std::error::Error;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, sleep_until};

use super::super::gate::{Admission, Gate, GateRequest, GateWait, PassedResult, Verdict};
use super::super::refusal::{CallRefusal, CancelledCall};
use super::super::{
    CallContext, ProgressSender, SharedTool, ToolError, ToolInvocation, ToolOutput, ToolStatus,
};
use super::{BatchCall, StartPermission, ToolResult};

/// What the calls of a batch share.
pub(super) struct Shared {
    pub(super) context: Arc<CallContext>,
    pub(super) gate: Arc<Gate>,
    /// One permit per call that may run at the same time; calls get permits in order.
    pub(super) slots: Semaphore,
    pub(super) deadline: Option<Instant>,
}

/// A call is about to start.
pub(super) struct StartRequest {
    pub(super) start: StartPermission,
    pub(super) changed_arguments: Option<String>,
}

/// The last event of a call.
pub(super) enum CallEnd {
    Done(ToolResult),
    Refused(CallRefusal),
    Waiting {
        wait: Box<GateWait>,
        changed_arguments: Option<String>,
        hook_context: Option<String>,
    },
}

/// Takes a call through the gate and runs it.
pub(super) async fn finish(
    mut call: BatchCall,
    shared: Arc<Shared>,
    progress: ProgressSender,
    start_request: Option<oneshot::Sender<StartRequest>>,
) -> CallEnd {
    let Some(Admission {
        verdict,
        arguments,
        context,
    }) = shared.admit(&call).await
    else {
        return CallEnd::Refused(CallRefusal::out_of_time(CancelledCall::NotStarted));
    };
    // The hooks are not asked again about a call that has waited.
    let hook_context = context.or_else(|| call.hook_context.take());
    let (verdict, changed) = match verdict {
        Verdict::RunWith(arguments) => (Verdict::Run, Some(arguments)),
        verdict => (verdict, arguments),
    };
    let mut changed_arguments = None;
    if let Some(arguments) = changed {
        call.arguments = arguments;
        changed_arguments = serde_json::to_string(&call.arguments).ok();
    }
    match verdict {
        Verdict::Run | Verdict::RunWith(_) => {}
        Verdict::Refuse(refusal) => return CallEnd::Refused(refusal),
        Verdict::Wait(wait) => {
            return CallEnd::Waiting {
                wait,
                changed_arguments,
                hook_context,
            };
        }
    }
    // The semaphore is never closed.
    let slot = shared.slots.acquire().await;
    if shared.is_late() {
        return CallEnd::Refused(CallRefusal::out_of_time(CancelledCall::NotStarted));
    }
    if shared.context.hook_record.has_ended() {
        return CallEnd::Refused(CallRefusal::turn_ended());
    }
    if let Some(start_request) = start_request
        && !is_permitted(start_request, changed_arguments.clone()).await
    {
        return CallEnd::Refused(CallRefusal::unwritten());
    }
    let (mut result, invocation) = run_call(call, &shared, progress).await;
    // The tool has ended: a hook that checks its result delays no other call.
    drop(slot);
    let result_of = PassedResult {
        invocation: &invocation,
        context: hook_context,
        deadline: shared.deadline,
    };
    let passing = shared
        .gate
        .pass_result(result_of, &mut result.status, &mut result.output);
    passing.await;
    CallEnd::Done(ToolResult {
        changed_arguments,
        ..result
    })
}

impl Shared {
    /// The answer of the gate; `None` if the deadline passes before.
    async fn admit(&self, call: &BatchCall) -> Option<Admission> {
        let request = GateRequest {
            tool: &call.tool,
            name: &call.name,
            call_id: &call.call_id,
            arguments: &call.arguments,
            trace: call.trace.as_ref(),
            context: &self.context,
        };
        tokio::select! {
            biased;
            admission = self.gate.admit(request) => Some(admission),
            () = passed(self.deadline) => None,
        }
    }

    fn is_late(&self) -> bool {
        self.deadline
            .is_some_and(|deadline| deadline <= Instant::now())
    }
}

/// Announces the start of a call, and waits until it is allowed.
async fn is_permitted(
    start_request: oneshot::Sender<StartRequest>,
    changed_arguments: Option<String>,
) -> bool {
    let (permission, permitted) = oneshot::channel();
    let _closed = start_request.send(StartRequest {
        start: StartPermission(permission),
        changed_arguments,
    });
    permitted.await.is_ok()
}

/// Runs a call to its end within its time limits.
async fn run_call(
    call: BatchCall,
    shared: &Shared,
    progress: ProgressSender,
) -> (ToolResult, ToolInvocation) {
    let started = Instant::now();
    let timeout = call.tool.policy().timeout;
    let deadline = shared.deadline;
    let invocation = ToolInvocation {
        name: call.name,
        arguments: call.arguments,
        call_id: call.call_id,
        trace: call.trace,
        progress,
        context: shared.context.clone(),
    };
    let ended = tokio::select! {
        // A result that is ready at the deadline counts.
        biased;
        ended = guarded(&call.tool, &invocation, &call.started) => ended,
        () = passed(deadline) => Ended::Cancelled,
        () = passed(started.checked_add(timeout)) => Ended::Answered(Err(ToolError::TimedOut(timeout))),
    };
    let (status, output) = conclude(ended, &invocation, call.tool.policy().read_only);
    let result = ToolResult {
        status,
        output,
        duration: started.elapsed(),
        changed_arguments: None,
    };
    (result, invocation)
}

/// How a run ended.
enum Ended {
    Answered(Result<ToolOutput, ToolError>),
    Panicked,
    Cancelled,
}

/// Makes the call. A panic ends only this call.
async fn guarded(tool: &SharedTool, invocation: &ToolInvocation, started: &AtomicBool) -> Ended {
    started.store(true, Ordering::Relaxed);
    let call = async { tool.call(invocation).await };
    // After a panic no state of the call is used.
    match AssertUnwindSafe(call).catch_unwind().await {
        Ok(answer) => Ended::Answered(answer),
        Err(_) => Ended::Panicked,
    }
}

/// Resolves at the given time; never if there is none.
async fn passed(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// The status and output of an ended call. Logs failures, without arguments and results.
fn conclude(
    ended: Ended,
    invocation: &ToolInvocation,
    read_only: bool,
) -> (ToolStatus, ToolOutput) {
    let (tool, call_id) = (&*invocation.name, &*invocation.call_id);
    let CallRefusal { status, text } = match ended {
        Ended::Answered(Ok(output)) => return (output.status.into(), output),
        Ended::Answered(Err(error)) => {
            let cause = causes(&error);
            tracing::warn!(tool, call_id, cause, "tool call failed");
            let status = match error {
                ToolError::TimedOut(_) => ToolStatus::Timeout,
                ToolError::Rejected(_) | ToolError::Failed { .. } => ToolStatus::Error,
            };
            let text = error.to_string();
            CallRefusal { status, text }
        }
        Ended::Panicked => {
            tracing::error!(tool, call_id, "tool call panicked");
            CallRefusal::panicked()
        }
        Ended::Cancelled => CallRefusal::out_of_time(match read_only {
            true => CancelledCall::Reading,
            false => CancelledCall::Running,
        }),
    };
    let output = ToolOutput {
        content: text,
        ..ToolOutput::default()
    };
    (status, output)
}

/// The causes of a failure, for the log. Leaves out the text for the model, which may repeat the arguments.
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
