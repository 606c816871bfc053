//! Resumes suspended runs once their approvals are decided, and cancels suspended runs: from their drafts, without a request.

mod earlier;

use std::time::{Duration, Instant};

use http::HeaderValue;

use super::AppState;
use super::caller::caller;
use super::encoding::{AnswerContext, encode, failed};
use super::error::{ApiError, codes};
use super::turn::{RunOrigin, StartedRun, run_start};
use crate::dialects::answer::AnswerForm;
use agent::admit::{AdmissionError, Admitted};
use agent::draft::{Decoded, Faults, TurnDraft};
use agent::runs::{
    CancelMode, Closed, InlineRunSlot, RunRecordState, RunStart, SuspendedRun, Work,
};
use agent::session::StoreError;
use agent::traces::TRACEPARENT;
use agent::turn::{RunResumption, StoredResumption, SuspendedTurnError};
use protocol::ids::{Owner, RequestId, RunId};
use protocol::openai::request::RequestError;

/// Pause between two looks for runs that can resume: those of which another process has been told, or whose time is up.
/// Tried by `alone::another_replica_goes_on_with_the_run`.
const CHECK_PAUSE: Duration = Duration::from_secs(2);
/// Most runs of one look besides those that cannot resume here. The next one finds the others.
const RUNS_PER_CHECK: usize = 100;

/// Why a run does not resume now.
#[derive(Debug, thiserror::Error)]
enum ResumeError {
    /// This process cannot read the stored turn.
    #[error(transparent)]
    Turn(#[from] SuspendedTurnError),
    /// This server does not provide what the draft asks for.
    #[error("this server does not take the request any more: {0}")]
    Draft(#[from] RequestError),
    /// Another attempt may succeed.
    #[error("the run cannot resume now")]
    Passing(ApiError),
}

impl From<ApiError> for ResumeError {
    fn from(error: ApiError) -> Self {
        Self::Passing(error)
    }
}

impl From<StoreError> for ResumeError {
    fn from(error: StoreError) -> Self {
        Self::Passing(error.into())
    }
}

/// Resumes the runs for which all is decided, until the future is dropped.
pub(crate) async fn watch(state: AppState) {
    loop {
        let notified = state.agent.gate().decisions().notified();
        let most = RUNS_PER_CHECK + state.runs.blocked_count();
        match state.sessions.store.decided_runs(most).await {
            Ok(decided) => {
                state.runs.retain_blocked(&decided);
                for (owner, run) in decided {
                    try_resume(&state, &owner, &run).await;
                }
            }
            Err(error) => tracing::error!(%error, "runs that can resume cannot be looked for"),
        }
        let _notified_or_not = tokio::time::timeout(CHECK_PAUSE, notified).await;
    }
}

/// Resumes a run. One that cannot resume here keeps its decisions, and says why.
async fn try_resume(state: &AppState, owner: &Owner, run: &RunId) {
    if !state.runs.may_resume(run) {
        return;
    }
    match resume(state, owner, run).await {
        Ok(()) => state.runs.unblock(run),
        Err(ResumeError::Passing(error)) => {
            tracing::error!(status = %error.status(), "a suspended run cannot resume now");
        }
        Err(error) => {
            if state.runs.block(run, error.to_string()) {
                let run = run.as_str();
                tracing::error!(run, %error, "a suspended run cannot resume; its decisions are kept");
            }
        }
    }
}

/// Resumes a run that is suspended and does not run elsewhere.
async fn resume(state: &AppState, owner: &Owner, run: &RunId) -> Result<(), ResumeError> {
    let Some(suspended) = state.runs.suspended(owner, run).await? else {
        return Ok(());
    };
    // Its key was removed while the run was suspended.
    if !state.access.get().knows(owner) {
        tracing::warn!(
            owner = owner.name(),
            "the API key of a run that waited was removed; it does not go on"
        );
        let form = form_of(state, run, &suspended).error_form();
        let answer = failed(codes::KEY_REMOVED.error(), form, None);
        state.runs.take_suspended(owner, run).await?;
        let store = &state.sessions.store;
        return Ok(store.end_run(run, owner, answer).await?);
    }
    let (mut draft, resumption) = stored(state, run, &suspended)?;
    let form = read_form(&resumption)?;
    if !draft.add_servers(state.runs.servers_of(owner, &suspended.session)) {
        return Err(SuspendedTurnError::LacksServers.into());
    }
    draft.resume_in(suspended.session.clone());
    let mut caller = caller(state, owner.clone(), RequestId::fresh());
    link_first_span(state, &resumption, &mut caller);
    let decoded = Decoded {
        draft,
        faults: Faults::default(),
    };
    let admitted = match state.agent.admit(decoded, caller).await {
        Ok(Admitted::Turn(admitted)) => admitted,
        Ok(Admitted::PassThrough(_)) => return Err(SuspendedTurnError::OtherVersion.into()),
        Err(AdmissionError::Request(error)) => return Err(error.into()),
        Err(error) => return Err(ApiError::from(error).into()),
    };
    let mut turn = admitted.turn;
    turn.is_resumed = true;
    turn.resumption = Some(resumption);
    let start = StartedRun {
        began: Instant::now(),
        run: run.clone(),
        origin: RunOrigin::Resumed,
    };
    let start = run_start(state, &turn, &form, &start, None)?;
    if state.runs.take_suspended(owner, run).await?.is_none() {
        // Another process has resumed it.
        return Ok(());
    }
    let prepared = state.runs.prepare(owner, start);
    let prepared = prepared.map_err(|Closed| codes::SHUTTING_DOWN.error())?;
    let reader = prepared.launch(turn.into(), &InlineRunSlot::default());
    let _stored_or_failed = reader.record_stored().await;
    Ok(())
}

/// The draft of a suspended turn, and how its run resumes.
fn stored(
    state: &AppState,
    run: &RunId,
    suspended: &SuspendedRun,
) -> Result<(TurnDraft, RunResumption), ResumeError> {
    match StoredResumption::read(&suspended.turn)? {
        StoredResumption::Draft { draft, resumption } => Ok((*draft, resumption)),
        StoredResumption::Request { request } => {
            let most = state.settings.max_messages;
            let read = earlier::decoded(run, &request, most)?;
            Ok(read.ok_or(SuspendedTurnError::OtherVersion)?)
        }
    }
}

/// The form of the answer of a suspended run. What cannot be read has the default.
fn form_of(state: &AppState, run: &RunId, suspended: &SuspendedRun) -> AnswerForm {
    let stored = stored(state, run, suspended).ok();
    let form = stored.and_then(|(_, resumption)| read_form(&resumption).ok());
    form.unwrap_or_default()
}

fn read_form(resumption: &RunResumption) -> Result<AnswerForm, SuspendedTurnError> {
    serde_json::from_str(resumption.reply.get()).map_err(|error| {
        tracing::debug!(%error, "the form of the answer of a suspended run cannot be read");
        SuspendedTurnError::OtherVersion
    })
}

/// Links the spans of a run that resumes by itself to the span of the request that began it.
fn link_first_span(state: &AppState, resumption: &RunResumption, caller: &mut agent::turn::Caller) {
    let first = resumption.first_span.as_deref();
    let first = first.and_then(|span| HeaderValue::from_str(span).ok());
    if let Some(first) = first.filter(|_| state.traces.is_on()) {
        caller.trace.insert(TRACEPARENT, first);
        caller.is_resumed = true;
    }
}

/// Cancels a run that runs here, or waits for decisions; says whether it did. One that waits has ended then.
///
/// # Errors
/// When another turn of the session runs, which may resume the calls that wait, or the end cannot be stored.
pub(super) async fn cancel(
    state: &AppState,
    owner: &Owner,
    run: &RunId,
    mode: CancelMode,
) -> Result<bool, ApiError> {
    if state.runs.cancel(owner, run, mode) {
        return Ok(true);
    }
    // A run that refuses is about to end, and may be suspended then.
    state.runs.settled(owner, run).await;
    let Some(found) = state.runs.look_up(owner, run).await? else {
        return Ok(false);
    };
    if found.state != RunRecordState::Suspended {
        return Ok(state.runs.cancel(owner, run, mode));
    }
    if state.draining.is_cancelled() {
        return Err(codes::SHUTTING_DOWN.into());
    }
    let of_session = |session| state.runs.of_session(owner, &session);
    if found.session_id.and_then(of_session).is_some() {
        return Err(StoreError::Busy.into());
    }
    match end_suspended(state, owner, run).await {
        // The run has resumed by itself in the meantime.
        Err(_) if state.runs.cancel(owner, run, mode) => Ok(true),
        ended => ended,
    }
}

/// Ends a suspended run as cancelled; says whether it did.
async fn end_suspended(state: &AppState, owner: &Owner, run: &RunId) -> Result<bool, ApiError> {
    let Some(suspended) = state.runs.take_suspended(owner, run).await? else {
        return Ok(false);
    };
    let form = form_of(state, run, &suspended);
    let events = state.agent.end_suspended(owner, &suspended.session, run);
    let events = events.await;
    let events = events.map_err(|error| ApiError::of_turn(error, |_| String::new()))?;
    let Some(events) = events else {
        return Ok(false);
    };
    let context = AnswerContext {
        metrics: state.metrics.clone(),
        began: Instant::now(),
        has_key: true,
        is_resumed: true,
    };
    let start = RunStart {
        id: run.clone(),
        encode: encode(&form, run, context),
        finish: true,
        streamed: false,
        recorded: true,
        key: None,
        ephemeral: false,
        session_id: Some(suspended.session),
        unfinished: None,
        held: Box::new(()),
    };
    let prepared = state.runs.prepare(owner, start);
    let prepared = prepared.map_err(|Closed| codes::SHUTTING_DOWN.error())?;
    let reader = prepared.launch(Work::Replay(events), &InlineRunSlot::default());
    let _answered = reader.answer().await;
    // What is still to be stored is no longer polled by the reader.
    drop(reader);
    state.runs.settled(owner, run).await;
    Ok(true)
}
