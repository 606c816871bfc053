//! Requests that are sent again under an idempotency key: one run answers them all.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};

use super::answer::{set_completion_id, whole};
use super::cluster::{self, LinesFrom};
use super::error::{ApiError, codes};
use super::running::accepted;
use super::stream::{event_stream, followed};
use super::{AppState, reads};
use crate::dialects::answer::AnswerForm;
use agent::runs::{IdempotencyKey, KeyClaim, RunAnswer, RunRecordState};
use protocol::ids::{Owner, RunId};
use protocol::openai::request::RequestError;

/// The header with the key.
pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Marks an answer that an earlier request has led to.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Longest key, in characters. A longer one is a 400.
/// Tried by `idempotency::a_key_is_short_visible_ascii`.
const MAX_KEY_CHARS: usize = 255;
/// Most attempts to claim a key whose run has just gone. After them the request is an error.
const MAX_CLAIMS: usize = 4;
/// Pause between two looks whether a run of another process has ended.
const ELSEWHERE_POLL: Duration = Duration::from_millis(250);

/// What a request under a key leads to.
#[derive(Debug)]
pub(super) enum IdempotencyOutcome {
    /// A run that has to be started. It uses the session of an earlier run that was interrupted.
    Start(Option<protocol::ids::SessionId>),
    /// The answer of the run that the key leads to.
    Answer(Response),
    /// The run that the key leads to waited in this session. It has to be started again.
    Suspended {
        run: RunId,
        session: protocol::ids::SessionId,
    },
}

/// The key of a request, if it has one.
///
/// # Errors
/// When the key is not 1 to 255 visible ASCII characters.
pub(super) fn key(
    headers: &HeaderMap,
    path: &str,
    body: &[u8],
) -> Result<Option<IdempotencyKey>, ApiError> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default();
    let valid = !text.is_empty()
        && text.len() <= MAX_KEY_CHARS
        && text.bytes().all(|byte| byte.is_ascii_graphic());
    if !valid {
        let problem = format!("must be 1 to {MAX_KEY_CHARS} visible ASCII characters");
        return Err(RequestError::invalid(IDEMPOTENCY_KEY.as_str(), &problem).into());
    }
    let mut digest = Sha256::new();
    // The length separates the path from the body.
    digest.update((path.len() as u64).to_le_bytes());
    digest.update(path);
    digest.update(body);
    Ok(Some(IdempotencyKey {
        text: text.to_owned(),
        fingerprint: digest.finalize().into(),
        in_memory: false,
    }))
}

/// A request under a key, and how it is answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyedRequest<'a> {
    pub(super) owner: &'a Owner,
    pub(super) key: &'a IdempotencyKey,
    pub(super) form: &'a AnswerForm,
    pub(super) background: bool,
    /// A run that the end of its process broke off is started again.
    pub(super) restarts: bool,
}

/// Claims the key of a request for a new run, or answers with the run that holds it.
pub(super) async fn attach(
    state: &AppState,
    request: KeyedRequest<'_>,
    run: &RunId,
) -> Result<IdempotencyOutcome, ApiError> {
    let KeyedRequest { owner, key, .. } = request;
    for _ in 0..MAX_CLAIMS {
        let held = match state.runs.claim(owner, key, run).await? {
            KeyClaim::New => return Ok(IdempotencyOutcome::Start(None)),
            KeyClaim::Reused => return Err(codes::IDEMPOTENCY_KEY_REUSED.into()),
            KeyClaim::Held { run } => run,
        };
        let session = match state.runs.look_up(owner, &held).await? {
            None => None,
            Some(record) => match record.state {
                RunRecordState::Running => match running(state, request, &held).await {
                    Some(response) => {
                        return Ok(IdempotencyOutcome::Answer(of_run(response, &held, request)));
                    }
                    // It has just ended.
                    None => continue,
                },
                RunRecordState::RunningElsewhere => {
                    if request.background && !request.form.is_streamed() {
                        let response = accepted(request.form, &record.into());
                        return Ok(IdempotencyOutcome::Answer(of_run(response, &held, request)));
                    }
                    if request.form.is_streamed()
                        && let Some(response) =
                            cluster::follow(state, owner, &held, LinesFrom::Start).await
                    {
                        return Ok(IdempotencyOutcome::Answer(of_run(response, &held, request)));
                    }
                    end_elsewhere(state, owner, &held).await?;
                    continue;
                }
                RunRecordState::Ended { bytes } => {
                    let Some(read) = reads::answer(state, owner, &held, bytes).await? else {
                        continue;
                    };
                    let response = replay(state, request, &held, &read.answer).await;
                    let response = reads::counted(response, read.memory);
                    return Ok(IdempotencyOutcome::Answer(of_run(response, &held, request)));
                }
                RunRecordState::Interrupted if !request.restarts => {
                    return Err(codes::CALL_INTERRUPTED.into());
                }
                RunRecordState::Interrupted => Some(record.session_id),
                RunRecordState::Suspended => {
                    if let Some(suspended) = state.runs.take_suspended(owner, &held).await? {
                        let session = suspended.session;
                        return Ok(IdempotencyOutcome::Suspended { run: held, session });
                    }
                    // Another process resumes it.
                    tokio::time::sleep(ELSEWHERE_POLL).await;
                    continue;
                }
            },
        };
        if state.runs.reclaim(owner, key, &held, run).await? {
            return Ok(IdempotencyOutcome::Start(session.flatten()));
        }
        if session.is_none() {
            // Another process may have claimed the key and not recorded its run yet.
            tokio::time::sleep(ELSEWHERE_POLL).await;
        }
    }
    // The run has ended, and its answer is not stored any more.
    Err(codes::ANSWER_EXPIRED.into())
}

/// Waits until a run that another process runs has ended, or that process has.
async fn end_elsewhere(state: &AppState, owner: &Owner, run: &RunId) -> Result<(), ApiError> {
    // A reader, so that the run continues if the client that started it leaves.
    if let Some(lines) = cluster::follow(state, owner, run, LinesFrom::Now).await {
        cluster::read_to_end(lines).await;
    }
    loop {
        let found = state.runs.look_up(owner, run).await?;
        if found.is_none_or(|record| record.state != RunRecordState::RunningElsewhere) {
            return Ok(());
        }
        tokio::time::sleep(ELSEWHERE_POLL).await;
    }
}

/// The answer of a run that has not ended, from its first event on.
async fn running(state: &AppState, request: KeyedRequest<'_>, run: &RunId) -> Option<Response> {
    let KeyedRequest {
        owner,
        form,
        background,
        ..
    } = request;
    let streamed = form.is_streamed();
    if background && !streamed {
        let status = state.runs.status(owner, run)?;
        let stored = state.runs.record_stored(owner, run).await;
        return stored.then(|| accepted(form, &status));
    }
    if streamed && let Ok(follow) = state.runs.follow(owner, run, 0) {
        return Some(followed(state, follow));
    }
    let answer = state.runs.wait_for(owner, run).await.ok()??;
    Some(match streamed && answer.status.is_success() {
        // Its first lines were dropped.
        true => as_stream(form, &answer).await,
        false => whole(Some(&answer), None).await,
    })
}

/// A whole answer as a stream.
async fn as_stream(form: &AnswerForm, answer: &RunAnswer) -> Response {
    let body = answer.body.clone().without_lost().await.whole().await;
    let body = match body {
        Ok(body) => body,
        Err(error) => {
            tracing::error!(%error, "an image of an answer cannot be read");
            return codes::INTERNAL.into_response();
        }
    };
    let mut response = Response::new(form.replay(&body).into());
    event_stream(response.headers_mut());
    response
}

/// Names the run in the head of a stream or a background answer.
fn of_run(mut response: Response, run: &RunId, request: KeyedRequest<'_>) -> Response {
    let form = request.form;
    if form.is_streamed() || request.background {
        set_completion_id(response.headers_mut(), &form.id_of(run));
    }
    response
}

/// The answer of a run that has ended.
async fn replay(
    state: &AppState,
    request: KeyedRequest<'_>,
    run: &RunId,
    answer: &RunAnswer,
) -> Response {
    let form = request.form;
    let mut response = match form.is_streamed() && answer.status.is_success() {
        false => whole(Some(answer), None).await,
        true => match state.runs.follow(request.owner, run, 0) {
            Ok(follow) => followed(state, follow),
            Err(_) => as_stream(form, answer).await,
        },
    };
    let replayed = HeaderValue::from_static("true");
    response.headers_mut().insert(REPLAYED, replayed);
    response
}
