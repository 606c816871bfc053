//! One model call: opened with retries and fail-over, its events passed on or held back, its answer assembled.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use http::StatusCode;

use super::event::{AgentEvent, Notice};
use super::machine::Offer;
use super::request::RunRequest;
use super::{AgentError, Parts};
use crate::metrics::ModelOutcome;
use crate::openai::event::ModelEvent;
use crate::upstream::assemble::TurnAssembler;
use crate::upstream::retry::Attempts;
use crate::upstream::settings::FinalCall;
use crate::upstream::{ModelCall, ModelStream, Upstream, UpstreamError};

/// What happens to text that arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// It is passed on the moment it arrives.
    Nothing,
    /// Text waits for the end of the round, to be passed on or dropped; reasoning is passed on.
    Text,
    /// Everything waits for the end of the round, so that a broken answer can still be asked for again.
    Everything,
}

/// A model call that is being answered.
#[derive(Debug)]
pub(super) struct Round {
    stream: ModelStream,
    attempts: Attempts,
    upstream: Arc<dyn Upstream>,
    call: ModelCall,
    offer: Offer,
    began: Instant,
    /// Something of this round has reached the client, so that it cannot be asked for again.
    visible: bool,
    /// What the answer is put together from.
    pub(super) assembler: TurnAssembler,
    /// What waits for the end of the round.
    pub(super) held: Vec<AgentEvent>,
}

/// What one step of a round brought.
#[derive(Debug)]
pub(super) enum Progress {
    /// Something for the client.
    Event(AgentEvent),
    /// The call is made again; the notice says so.
    Retried(Notice),
    /// Nothing that concerns the client.
    Quiet,
    /// The answer is whole.
    Ended,
}

impl Round {
    /// Makes the call; resolves once an upstream has answered it with success.
    ///
    /// Dropping the future ends the call.
    pub(super) async fn open(
        parts: &Parts,
        request: &RunRequest,
        call: ModelCall,
        offer: Offer,
    ) -> Result<(Self, Vec<Notice>), AgentError> {
        let attempts = Attempts::new(parts.retry, request.route.upstreams.len());
        Self::open_with(parts, request, call, offer, attempts, 0).await
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the state of a call that is made again is all of these"
    )]
    async fn open_with(
        parts: &Parts,
        request: &RunRequest,
        mut call: ModelCall,
        offer: Offer,
        mut attempts: Attempts,
        mut current: usize,
    ) -> Result<(Self, Vec<Notice>), AgentError> {
        let mut notices = Vec::new();
        loop {
            let Some(upstream) = request.route.upstreams.get(current) else {
                return Err(AgentError::NoUpstream);
            };
            let began = Instant::now();
            let error = match upstream.stream(&call).await {
                Ok(stream) => {
                    let assembler = TurnAssembler::new(upstream.quirks().split_names);
                    let upstream = upstream.clone();
                    let held = Vec::new();
                    let round = Self {
                        stream,
                        attempts,
                        upstream,
                        call,
                        offer,
                        began,
                        visible: false,
                        assembler,
                        held,
                    };
                    return Ok((round, notices));
                }
                Err(error) => error,
            };
            parts
                .metrics
                .model_call_finished(upstream.name(), outcome(&error), began.elapsed());
            if refuses_withheld_tools(&error, offer, &call, request) {
                (call.tools, call.tool_choice) = (None, None);
                call.fields = request.fields_without_tools.clone();
                continue;
            }
            let Some(attempt) = attempts.next(&error) else {
                return Err(error.into());
            };
            notices.push(retry_notice(parts, upstream.name(), &error));
            wait(attempt.delay).await;
            current = attempt.upstream;
        }
    }

    /// Headers of the upstream's answer.
    pub(super) fn headers(&self) -> http::HeaderMap {
        self.stream.headers.clone()
    }

    /// Takes the next event of the answer. `waited` grows by the time spent waiting for the upstream.
    ///
    /// Dropping the future loses an event: the round must be dropped with it.
    pub(super) async fn step(
        &mut self,
        parts: &Parts,
        request: &RunRequest,
        hold: Hold,
        waited: &mut Duration,
    ) -> Result<Progress, AgentError> {
        let asked = Instant::now();
        let next = self.stream.events.next().await;
        *waited += asked.elapsed();
        match next {
            Some(Ok(event)) => match self.assembler.push(&event) {
                Ok(()) => Ok(self.take(event, hold)),
                Err(error) => {
                    let error = UpstreamError::Malformed {
                        upstream: self.upstream.name().into(),
                        reason: error.to_string(),
                        again: true,
                    };
                    self.again(parts, request, error, waited).await
                }
            },
            Some(Err(error)) => self.again(parts, request, error, waited).await,
            None => {
                parts.metrics.model_call_finished(
                    self.upstream.name(),
                    ModelOutcome::Completed,
                    self.began.elapsed(),
                );
                Ok(Progress::Ended)
            }
        }
    }

    fn take(&mut self, event: ModelEvent, hold: Hold) -> Progress {
        let (event, held) = match event {
            ModelEvent::Text(text) => (AgentEvent::Text(text), hold != Hold::Nothing),
            ModelEvent::Reasoning { text, field } => (
                AgentEvent::Reasoning { text, field },
                hold == Hold::Everything,
            ),
            ModelEvent::DeltaExtra(extra) => (AgentEvent::DeltaExtra(extra), hold != Hold::Nothing),
            ModelEvent::ChoiceExtra(extra) => {
                (AgentEvent::ChoiceExtra(extra), hold != Hold::Nothing)
            }
            ModelEvent::ChunkExtra(extra) => return Progress::Event(AgentEvent::ChunkExtra(extra)),
            ModelEvent::Model(model) => return Progress::Event(AgentEvent::Model(model)),
            ModelEvent::ToolCall(_) | ModelEvent::Finish(_) | ModelEvent::Usage(_) => {
                return Progress::Quiet;
            }
        };
        if held {
            self.held.push(event);
            Progress::Quiet
        } else {
            self.visible = true;
            Progress::Event(event)
        }
    }

    /// Makes the call again after the answer broke, if nothing of it has reached the client.
    async fn again(
        &mut self,
        parts: &Parts,
        request: &RunRequest,
        error: UpstreamError,
        waited: &mut Duration,
    ) -> Result<Progress, AgentError> {
        parts.metrics.model_call_finished(
            self.upstream.name(),
            outcome(&error),
            self.began.elapsed(),
        );
        if self.visible {
            return Err(error.into());
        }
        let Some(attempt) = self.attempts.next(&error) else {
            return Err(error.into());
        };
        let notice = retry_notice(parts, self.upstream.name(), &error);
        let asked = Instant::now();
        wait(attempt.delay).await;
        let (call, attempts) = (self.call.clone(), self.attempts.clone());
        let opened =
            Self::open_with(parts, request, call, self.offer, attempts, attempt.upstream).await;
        *waited += asked.elapsed();
        (*self, _) = opened?;
        Ok(Progress::Retried(notice))
    }
}

/// How the metrics call a failure.
fn outcome(error: &UpstreamError) -> ModelOutcome {
    match error {
        UpstreamError::Connect { .. } => ModelOutcome::Unreachable,
        UpstreamError::Timeout { .. } => ModelOutcome::TimedOut,
        UpstreamError::Status { status, .. } => ModelOutcome::of_status(*status),
        UpstreamError::InStream { .. } => ModelOutcome::Failed,
        UpstreamError::Broken { .. } | UpstreamError::Malformed { .. } => ModelOutcome::Broken,
        UpstreamError::RequestBody => ModelOutcome::Cancelled,
    }
}

async fn wait(delay: Duration) {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}

fn retry_notice(parts: &Parts, upstream: &str, error: &UpstreamError) -> Notice {
    parts.metrics.upstream_retried(upstream);
    tracing::warn!(upstream, error = %error, "model call failed, trying again");
    Notice {
        kind: "retry",
        message: "the model server failed and was asked again".to_owned(),
    }
}

/// Whether the upstream may have refused the last call because tools were offered with `tool_choice: "none"`.
fn refuses_withheld_tools(
    error: &UpstreamError,
    offer: Offer,
    call: &ModelCall,
    request: &RunRequest,
) -> bool {
    let UpstreamError::Status { status, .. } = error else {
        return false;
    };
    matches!(offer, Offer::Withheld(_))
        && call.tools.is_some()
        && request.route.quirks.final_call == FinalCall::ToolChoiceNone
        && matches!(
            *status,
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY
        )
}
