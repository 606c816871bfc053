//! The task of a run.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::BytesMut;
use futures_util::FutureExt;
use tracing::Instrument;

use super::log::{LARGEST_PAGE, Page};
use super::report::{Encode, RunReport};
use super::state::RunState;
use super::{Runs, Work};
use crate::control::AbortReason;
use crate::direct::CheckedCall;
use crate::driver::Run;
use crate::event::{AgentEvent, Outcome};
use crate::metrics::GaugeGuard;
use crate::turn::TurnRequest;
use crate::{AgentError, RunError};
use store::RunAnswer;

/// Carries out the work of a run to its end, independent of its readers. Futures that exist for a short time are boxed,
/// so that a run that waits for its model is small.
pub(super) async fn run(
    runs: Runs,
    state: Arc<RunState>,
    work: Work,
    mut encode: Encode,
    _held: (GaugeGuard, Box<dyn Send>),
) {
    let mut page = Page::default();
    let _end = EndGuard(&runs, &state);
    if state.recorded
        && let Err(error) = runs.record_start(&state).await
    {
        let error = RunError::from(AgentError::Session(error));
        let answer = encode(RunReport::Failed(error), page.buffer());
        runs.release_key(&state).await;
        state.end(&mut page, answer);
        return;
    }
    state.note_record_stored();
    let driven = async {
        let turn = match work {
            Work::Turn(turn) => turn,
            Work::Replay(events) => {
                let reports = events.into_iter().map(RunReport::Event);
                return reports.fold(None, |answer, report| {
                    encode(report, page.buffer()).or(answer)
                });
            }
            Work::Call(call) => {
                return Box::pin(call_tool(&runs, &state, *call, &mut encode)).await;
            }
        };
        match open(&runs, &state, turn).await {
            Ok(run) => {
                // Entered once for all events of a poll.
                let span = run.span().clone();
                follow(&runs, &state, run, &mut encode, &mut page)
                    .instrument(span)
                    .await
            }
            Err(report) => encode(*report, page.buffer()),
        }
    };
    let answer = match AssertUnwindSafe(driven).catch_unwind().await {
        Ok(answer) => answer,
        Err(panic) => {
            tracing::error!(panic = panic_text(panic.as_ref()), "a run panicked");
            let side_effects = state.control.side_effects();
            encode(RunReport::Panicked { side_effects }, page.buffer())
        }
    };
    // A reader may immediately repeat a request that failed without a trace.
    if answer
        .as_ref()
        .is_some_and(|answer| state.leaves_no_trace(answer))
    {
        runs.release_key(&state).await;
    }
    state.end(&mut page, answer);
    runs.record_end(&state).await;
}

/// Ends a run for its readers, also after a panic of its encoder.
struct EndGuard<'a>(&'a Runs, &'a RunState);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        let Self(runs, state) = self;
        if state.is_running() {
            state.end(&mut Page::default(), None);
        }
        runs.ended(state);
        state.note_end_stored();
    }
}

/// Opens the conversation of a turn, or says why it cannot begin.
async fn open(
    runs: &Runs,
    state: &RunState,
    mut turn: Box<TurnRequest>,
) -> Result<Box<Run>, Box<RunReport>> {
    if let Some(session) = &turn.options.session_id {
        turn.kept_servers = runs.servers_of(&state.owner, session);
    }
    let started = tokio::select! {
        biased;
        started = Box::pin(runs.0.agent.run(*turn, state.control.clone())) => started,
        () = state.control.aborted() => return Err(Box::new(never_started(state))),
    };
    match started {
        Ok(run) => Ok(Box::new(run)),
        Err(error) => Err(Box::new(RunReport::Failed(error.into()))),
    }
}

/// Makes a call outside of a turn, and encodes its events. It has no lines.
async fn call_tool(
    runs: &Runs,
    state: &RunState,
    call: CheckedCall,
    encode: &mut Encode,
) -> Option<RunAnswer> {
    let mut no_lines = BytesMut::new();
    let started = tokio::select! {
        biased;
        started = runs.0.agent.call_tool(call, state.control.clone()) => started,
        () = state.control.aborted() => return encode(never_started(state), &mut no_lines),
    };
    let mut call = match started {
        Ok(call) => call,
        Err(error) => return encode(RunReport::Failed(error.into()), &mut no_lines),
    };
    let span = call.span().clone();
    let called = async {
        let mut answer = None;
        loop {
            let report = match call.next().await {
                Ok(Some(event)) => RunReport::Event(event),
                Ok(None) => return answer,
                Err(error) => return encode(RunReport::Failed(error), &mut no_lines),
            };
            answer = encode(report, &mut no_lines).or(answer);
        }
    };
    called.instrument(span).await
}

/// Encodes the events of a turn up to its end.
async fn follow(
    runs: &Runs,
    state: &RunState,
    mut run: Box<Run>,
    encode: &mut Encode,
    page: &mut Page,
) -> Option<RunAnswer> {
    let mut aborted = Box::pin(state.control.aborted());
    let mut answer = None;
    let mut reached = None;
    loop {
        let place = (run.round(), run.session_id().is_some());
        if reached != Some(place) {
            reached = Some(place);
            state.reached(run.session_id(), run.round());
        }
        if run.is_reading_model() {
            // A slow reader holds back its own model stream, but not the end of the run.
            tokio::select! {
                biased;
                () = poll_fn(|context| state.progress().log.poll_room(context)) => {}
                () = &mut aborted => {}
            }
        }
        let mut next = pin!(run.next());
        let event = poll_fn(|context| match next.as_mut().poll(context) {
            Poll::Pending => {
                hand_over(runs, state, page);
                Poll::Pending
            }
            ready @ Poll::Ready(_) => ready,
        });
        let report = match event.await {
            Ok(Some(AgentEvent::Started { headers })) => {
                state.started(headers.clone());
                RunReport::Event(AgentEvent::Started { headers })
            }
            Ok(Some(event)) => RunReport::Event(event),
            Ok(None) => break,
            Err(error) => RunReport::Failed(error),
        };
        let failed = matches!(report, RunReport::Failed(_));
        answer = encode(report, page.buffer()).or(answer);
        if failed {
            break;
        }
        if page.len() >= LARGEST_PAGE {
            hand_over(runs, state, page);
        }
    }
    if let Some(session) = run.session_id() {
        runs.keep_servers(&state.owner, session, run.suspended_servers());
    }
    answer
}

fn hand_over(runs: &Runs, state: &RunState, page: &mut Page) {
    if page.len() == 0 {
        return;
    }
    let mut room = state.append(page);
    while let Err(limit) = room {
        // The lines of ended runs go first.
        if !runs.drop_oldest(&state.owner, limit) {
            state.shorten_log();
            return;
        }
        room = state.charge_log();
    }
}

/// The report of a run that was aborted while it waited for its session.
fn never_started(state: &RunState) -> RunReport {
    match state.control.abort_reason() {
        Some(AbortReason::Shutdown) => RunReport::Failed(RunError::from(AgentError::Stopping)),
        _ => RunReport::Event(AgentEvent::Finished(Box::new(Outcome::cancelled()))),
    }
}

/// The text of a panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("unknown panic")
}
