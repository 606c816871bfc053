//! What is read from the store for an answer: its memory is reserved before, and is given back with the last byte that the
//! client has taken.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::Json;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use serde::Serialize;

use super::AppState;
use super::body::MEMORY_WAIT;
use super::error::{ApiError, codes};
use agent::runs::{RunAnswer, RunRecordState};
use agent::session::StoredSession;
use net::polling::{block_in_place_if, taking_apart};
use protocol::ids::{Owner, RunId, SessionId};
use quota::ReservedMemory;

/// Memory for a byte of a session and of the text that is made of it.
pub(super) const TEXT_FACTOR: u64 = 3;
/// Memory for a byte of a session, of the texts of its items and of the text that is made of them.
pub(super) const ITEMS_FACTOR: u64 = 5;
/// Memory for a byte of an answer, of its copy in another dialect and of the text that is made of it.
const ANSWER_FACTOR: u64 = 4;

/// A session with the memory that is reserved for it.
#[derive(Debug)]
pub(super) struct ReadSession {
    pub(super) stored: StoredSession,
    memory: ReservedMemory,
}

/// An answer with the memory that is reserved for it and for what is made of it.
#[derive(Debug)]
pub(super) struct ReadAnswer {
    pub(super) answer: Arc<RunAnswer>,
    pub(super) memory: ReservedMemory,
}

/// A body whose data are counted until they are sent.
struct CountedBody {
    body: Body,
    memory: Arc<ReservedMemory>,
}

/// Data that are sent, with their memory.
struct CountedData {
    data: Bytes,
    _memory: Arc<ReservedMemory>,
}

/// Reads a session; reserves `factor` bytes of memory for each of its bytes.
///
/// # Errors
/// When the memory is in use for too long, or the store fails.
pub(super) async fn session(
    state: &AppState,
    owner: &Owner,
    id: &SessionId,
    factor: u64,
) -> Result<Option<ReadSession>, ApiError> {
    let Some(head) = state.sessions.store.head(owner, id).await? else {
        return Ok(None);
    };
    let memory = reserve(state, owner, head.bytes.saturating_mul(factor)).await?;
    session_within(state, owner, id, memory).await
}

/// The same with memory that is reserved already.
///
/// # Errors
/// When the store fails.
pub(super) async fn session_within(
    state: &AppState,
    owner: &Owner,
    id: &SessionId,
    memory: ReservedMemory,
) -> Result<Option<ReadSession>, ApiError> {
    let stored = state.sessions.store.load(owner, id).await?;
    Ok(stored.map(|stored| ReadSession { stored, memory }))
}

/// Reads the answer of an ended run; `bytes` is its length.
///
/// # Errors
/// When the memory is in use for too long, or the store fails.
pub(super) async fn answer(
    state: &AppState,
    owner: &Owner,
    run: &RunId,
    bytes: u64,
) -> Result<Option<ReadAnswer>, ApiError> {
    let memory = reserve(state, owner, bytes.saturating_mul(ANSWER_FACTOR)).await?;
    let answer = state.runs.answer(owner, run).await?;
    Ok(answer.map(|answer| ReadAnswer { answer, memory }))
}

/// Reads the answer of a run, if the run has ended and its owner is shown its answer.
///
/// # Errors
/// When the memory is in use for too long, or the store fails.
pub(super) async fn shown_answer(
    state: &AppState,
    owner: &Owner,
    run: &RunId,
) -> Result<Option<ReadAnswer>, ApiError> {
    let mut memory = state.reads.empty(owner);
    let answer = shown_answer_within(state, owner, run, &mut memory).await?;
    Ok(answer.map(|answer| ReadAnswer { answer, memory }))
}

/// The same in memory that is held already and grows for it, so that a single large reader is never refused.
///
/// # Errors
/// When the memory is in use for too long, or the store fails.
pub(super) async fn shown_answer_within(
    state: &AppState,
    owner: &Owner,
    run: &RunId,
    memory: &mut ReservedMemory,
) -> Result<Option<Arc<RunAnswer>>, ApiError> {
    let found = state.runs.look_up_shown(owner, run).await?;
    let Some(RunRecordState::Ended { bytes }) = found.map(|record| record.state) else {
        return Ok(None);
    };
    let more = bytes.saturating_mul(ANSWER_FACTOR);
    let needed = memory.bytes().saturating_add(more);
    if !memory.grow_to(needed, MEMORY_WAIT).await {
        return Err(codes::ANSWERS_OVERLOADED.into());
    }
    Ok(state.runs.answer(owner, run).await?)
}

/// An answer that is still in memory, with what can be reserved for encoding it.
pub(super) async fn answer_in_memory(
    state: &AppState,
    owner: &Owner,
    answer: Arc<RunAnswer>,
) -> ReadAnswer {
    let bytes = answer.body.length().saturating_mul(ANSWER_FACTOR);
    let memory = reserve(state, owner, bytes).await;
    let memory = memory.unwrap_or_else(|_in_use| state.reads.empty(owner));
    ReadAnswer { answer, memory }
}

/// Reserves memory for an answer.
///
/// # Errors
/// When the memory is in use for too long.
pub(super) async fn reserve(
    state: &AppState,
    owner: &Owner,
    bytes: u64,
) -> Result<ReservedMemory, ApiError> {
    let mut memory = state.reads.empty(owner);
    match memory.grow_to(bytes, MEMORY_WAIT).await {
        true => Ok(memory),
        false => Err(codes::ANSWERS_OVERLOADED.into()),
    }
}

/// Answers a request with a long text. Whenever it works on the text, the other tasks of this runtime worker move to other
/// workers.
pub(super) async fn away_from_others<F: Future>(answer: F) -> F::Output {
    let mut answer = Box::pin(answer);
    poll_fn(|context| block_in_place_if(true, || answer.as_mut().poll(context))).await
}

/// A value as the body of a response, which was made in this memory.
pub(super) fn json(value: &impl Serialize, memory: ReservedMemory) -> Response {
    let bytes = usize::try_from(memory.bytes()).unwrap_or(usize::MAX);
    let response = taking_apart(bytes, || Json(value).into_response());
    counted(response, memory)
}

/// A response that was made in this memory. The bytes of its body stay reserved until the last one is sent.
pub(super) fn counted(response: Response, mut memory: ReservedMemory) -> Response {
    if let Some(length) = response.body().size_hint().upper() {
        memory.shrink_to(length);
    }
    let memory = Arc::new(memory);
    response.map(|body| Body::new(CountedBody { body, memory }))
}

impl ReadSession {
    /// The session, and its memory, which is to be held as long.
    pub(super) fn into_parts(self) -> (StoredSession, ReservedMemory) {
        (self.stored, self.memory)
    }
}

impl AsRef<[u8]> for CountedData {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
        let hold = |data| {
            let _memory = Arc::clone(&this.memory);
            // The connection drops the body before it has sent the last data.
            Bytes::from_owner(CountedData { data, _memory })
        };
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(hold))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
