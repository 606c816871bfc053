//! One batch of calls: its events for the client and its messages for the history.

mod answers;
mod context;
mod files;
mod kept;
mod redacted;
mod report;

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::atomic::Ordering;

use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::{Map, Value};

use super::call::{Call, CallState, Started};
use super::event::{AgentEvent, WaitingCall};
use super::open_batch::{OpenBatch, RoundResults};
use super::policy::{CallDecision, CallOutcome};
use super::traced::CallSpan;
use super::turn_bytes::TurnBytes;
pub(super) use context::{BatchContext, BatchRun, BatchStage};
use redacted::BatchRedaction;
use report::calling;
pub(super) use report::millis;
use tools::batch::{BatchCall, BatchEvent, StartPermission, run};
use tools::refusal::CallRefusal;
use tools::set::{Lookup, ToolSet};

/// A batch of calls while it runs. Dropping it cancels the running tools.
pub(super) struct Batch {
    context: BatchContext,
    open: OpenBatch,
    /// Buffered events of the model call before the batch.
    buffered: Vec<AgentEvent>,
    running: BoxStream<'static, BatchEvent>,
    ready: VecDeque<AgentEvent>,
    /// Calls that wait for a person's decision. Their questions are not stored yet, and the client has no event of
    /// them.
    asking: Vec<usize>,
    redaction: BatchRedaction,
    /// The spans of calls that have not ended, by their index.
    spans: BTreeMap<usize, CallSpan>,
}

/// The outcome of one step of a batch.
#[derive(Debug)]
pub(super) enum BatchStep {
    /// An event for the client.
    Event(AgentEvent),
    /// A call whose start is announced is about to start.
    Starting {
        index: usize,
        start: StartPermission,
    },
    /// Calls wait for a person's decision. Their questions are not stored yet, and the client has no event of them.
    Waiting(Vec<usize>),
    /// No call runs any more. Each server-side call has its answer or waits for a decision.
    Ended,
    /// The turn is aborted.
    Aborted,
}

/// The outcome of a finished batch.
#[derive(Debug)]
pub(super) struct BatchOutcome {
    /// What the round leaves.
    pub(super) results: RoundResults,
    /// The buffered events of the model call before the batch.
    pub(super) buffered: Vec<AgentEvent>,
    /// Bytes that the turn may still keep.
    pub(super) turn_bytes: TurnBytes,
}

impl Batch {
    /// Starts the unfinished calls of a batch: reports every server-side call that has no answer, and starts those that
    /// run. A call that another process had started is answered as cancelled.
    pub(super) fn start(
        context: BatchContext,
        buffered: Vec<AgentEvent>,
        open: OpenBatch,
        tools: &ToolSet,
    ) -> Self {
        let unanswered = open.calls.iter().filter(|call| call.answer().is_none());
        let ready = unanswered
            .filter(|call| call.shown() && !context.calls_shown)
            .map(|call| AgentEvent::Calling(Box::new(calling(&context, call))))
            .collect();
        let redaction = BatchRedaction::new(context.services.redactor.clone());
        let mut batch = Self {
            context,
            open,
            buffered,
            running: stream::empty().boxed(),
            ready,
            asking: Vec::new(),
            redaction,
            spans: BTreeMap::new(),
        };
        let mut runnable = Vec::new();
        for index in 0..batch.open.calls.len() {
            match batch.begin(index, tools) {
                Some(Ok(call)) => runnable.push(call),
                Some(Err(refusal)) => batch.refuse(index, &refusal),
                None => {}
            }
        }
        let context = &batch.context;
        let gate = context.services.gate.clone();
        let running = run(runnable, context.call.clone(), gate, context.limits());
        batch.running = running.fuse().boxed();
        batch
    }

    /// Begins a call: returns the call to run, or the refusal of a call that does not run. `None` if it has its answer
    /// already.
    fn begin(&mut self, index: usize, tools: &ToolSet) -> Option<Result<BatchCall, CallRefusal>> {
        let call = self.open.calls.get_mut(index)?;
        if call.is_done() {
            return None;
        }
        let context = &self.context;
        let span = CallSpan::begin(&context.services.traces, &context.call, call);
        let trace = span.as_ref().map(CallSpan::headers);
        self.spans.extend(span.map(|span| (index, span)));
        // Its process ended before it had a result.
        if call.state.has_started() {
            return Some(Err(call.interrupted()));
        }
        if call.decision != CallDecision::Run {
            return Some(Err(call.refusal()));
        }
        let (Lookup::Server(tool), Some(arguments)) =
            (tools.lookup(&call.call.name), call.take_arguments())
        else {
            return Some(Err(CallRefusal::changed(&call.call.name)));
        };
        let started = Started::default();
        let asks_to_start = self.context.asks_to_start && call.may_change();
        call.state = CallState::Running(started.clone());
        Some(Ok(BatchCall {
            index,
            tool,
            name: call.call.name.clone(),
            arguments,
            call_id: call.call.id.clone(),
            hook_context: call.hook_context.clone(),
            trace,
            started: started.0,
            asks_to_start,
        }))
    }

    /// The next event of the batch. Once `aborted` resolves, only results that have arrived already are stored.
    pub(super) async fn step(
        &mut self,
        aborted: &mut (impl Future<Output = ()> + Unpin),
    ) -> BatchStep {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return BatchStep::Event(event);
            }
            let event = match self.asking.is_empty() {
                true => tokio::select! {
                    biased;
                    () = &mut *aborted => return BatchStep::Aborted,
                    event = self.running.next() => event,
                },
                // Questions that are ready together are stored together. Between two sequential calls the stream is
                // pending once.
                false => match (0..2).find_map(|_| self.running.next().now_or_never().flatten()) {
                    Some(event) => Some(event),
                    None => return BatchStep::Waiting(mem::take(&mut self.asking)),
                },
            };
            match event {
                Some(BatchEvent::Progress { index, progress }) => {
                    if let Some(event) = self.live_output(index, progress) {
                        return BatchStep::Event(event);
                    }
                }
                Some(BatchEvent::Starting {
                    index,
                    changed_arguments,
                    start,
                }) => {
                    if let Some(arguments) = changed_arguments {
                        self.open.change_arguments(index, arguments);
                    }
                    return BatchStep::Starting { index, start };
                }
                Some(BatchEvent::Waiting {
                    index,
                    wait,
                    changed_arguments,
                    hook_context,
                }) => {
                    if let Some(arguments) = changed_arguments {
                        self.open.change_arguments(index, arguments);
                    }
                    if let Some(call) = self.open.calls.get_mut(index) {
                        call.hook_context = hook_context;
                        call.state = CallState::Waiting(wait);
                        if let Some(span) = self.spans.remove(&index) {
                            span.waits();
                        }
                        self.asking.push(index);
                    }
                }
                Some(BatchEvent::Refused { index, refusal }) => self.refuse(index, &refusal),
                Some(BatchEvent::Done { index, mut result }) => {
                    if let Some(arguments) = result.changed_arguments.take() {
                        self.open.change_arguments(index, arguments);
                    }
                    self.hide_secrets(&mut result.output);
                    let kept = self.keep_result(index, &mut result.output, aborted);
                    let kept = kept.await;
                    self.answered(index, result, kept, true);
                }
                None => return BatchStep::Ended,
            }
        }
    }

    /// A call that waits for a person's decision.
    pub(super) fn waiting(&self, index: usize) -> Option<WaitingCall> {
        let call = self.open.calls.get(index)?;
        let CallState::Waiting(wait) = &call.state else {
            return None;
        };
        let mut of = calling(&self.context, call);
        // The client sees the arguments as the tool gets them: the last of several members with one name counts.
        let arguments = serde_json::from_str::<Map<String, Value>>(&of.arguments);
        if let Ok(arguments) = arguments.and_then(|arguments| serde_json::to_string(&arguments)) {
            of.arguments = arguments;
        }
        Some(WaitingCall {
            of,
            wait: (**wait).clone(),
        })
    }

    /// All calls that wait for a person's decision.
    pub(super) fn all_waiting(&self) -> Vec<WaitingCall> {
        let indexes = 0..self.open.calls.len();
        indexes.filter_map(|index| self.waiting(index)).collect()
    }

    /// The calls of a batch in which no call runs any more.
    pub(super) fn into_open(self) -> OpenBatch {
        self.open
    }

    /// Notes that the batch is stored with the session.
    pub(super) fn set_suspended(&mut self) {
        self.context.was_suspended = true;
    }

    /// Whether the batch is stored with the session.
    pub(super) fn was_suspended(&self) -> bool {
        self.context.was_suspended
    }

    /// Whether the reader has the events of the calls and questions of this batch.
    pub(super) fn was_shown(&self) -> bool {
        self.context.was_shown
    }

    /// Whether the batch is resumed after its process has ended: it is stored, or a call waits for a decision.
    pub(super) fn outlives_process(&self) -> bool {
        self.context.was_suspended || self.open.waits()
    }

    /// Takes the events that are ready.
    pub(super) fn take_events(&mut self) -> VecDeque<AgentEvent> {
        mem::take(&mut self.ready)
    }

    /// The calls as they are now.
    pub(super) fn open(&self) -> &OpenBatch {
        &self.open
    }

    /// The tool of a call is about to be called, or is not after all.
    pub(super) fn set_started(&self, index: usize, has_started: bool) {
        if let Some(call) = self.open.calls.get(index)
            && let CallState::Running(Started(started)) = &call.state
        {
            started.store(has_started, Ordering::Relaxed);
        }
    }

    /// Bytes that the turn may still keep.
    pub(super) fn turn_bytes(&self) -> TurnBytes {
        self.context.turn_bytes
    }

    /// Takes the buffered events of the model call before the batch.
    pub(super) fn take_buffered(&mut self) -> Vec<AgentEvent> {
        mem::take(&mut self.buffered)
    }

    /// What became of the calls, in their order.
    pub(super) fn outcomes(&self) -> Vec<CallOutcome> {
        self.open.calls.iter().map(Call::outcome).collect()
    }

    /// The outcome of the batch, once every call is done.
    pub(super) fn finish(self) -> BatchOutcome {
        BatchOutcome {
            results: self.open.into_results(),
            buffered: self.buffered,
            turn_bytes: self.context.turn_bytes,
        }
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Batch")
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}
