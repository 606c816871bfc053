//! One model call: makes it with retries and fail-over, passes its events on or buffers them, and assembles its answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use http::StatusCode;

use super::event::{AgentEvent, ArgumentsPiece, ExtraFields, ExtraLevel, Notice};
use super::machine::Offer;
use super::turn::TurnRequest;
use super::{AgentError, AgentParts};
use crate::metrics::ModelOutcome;
use crate::openai::event::ModelEvent;
use crate::tools::set::Lookup;
use crate::upstream::assemble::ReplyAssembler;
use crate::upstream::fail_over::FailOver;
use crate::upstream::settings::FinalCall;
use crate::upstream::{ModelCall, ModelStream, Upstream, UpstreamError};

/// Which events of a model call are buffered until it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BufferMode {
    /// None: each event is passed on at once.
    Off,
    /// Text, which the driver sends or drops when the call has ended. Reasoning is passed on at once.
    Text,
    /// All, so that the call can be retried after its answer broke off.
    All,
}

/// A model call whose answer is arriving.
#[derive(Debug)]
pub(super) struct ActiveModelCall {
    stream: ModelStream,
    fail_over: FailOver,
    call: ModelCall,
    offer: Offer,
    began: Instant,
    /// A part of the answer was passed on, so that the call cannot be retried.
    passed_on: bool,
    /// Assembles the answer.
    pub(super) assembler: ReplyAssembler,
    /// Events that are buffered until the call ends.
    pub(super) buffered: Vec<AgentEvent>,
}

/// The outcome of one step of a model call.
#[derive(Debug)]
pub(super) enum ModelCallStep {
    /// An event for the client.
    Event(AgentEvent),
    /// The call was retried; the notice for the client.
    Retried(Notice),
    /// No event for the client.
    NoEvent,
    /// The answer is complete.
    Ended,
}

impl ActiveModelCall {
    /// Makes the call. Resolves when an upstream has answered it with a success status. Also returns a notice for each retry.
    ///
    /// # Errors
    /// The last error when no retry is left.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call.
    pub(super) async fn open(
        parts: &AgentParts,
        request: &TurnRequest,
        call: ModelCall,
        offer: Offer,
    ) -> Result<(Self, Vec<Notice>), AgentError> {
        let fail_over = parts.router.fail_over(request.route.clone());
        let active = Self::open_with(parts, request, call, offer, fail_over).await?;
        let notices = (0..active.fail_over.retries()).map(|_| retry_notice());
        let notices = notices.collect();
        Ok((active, notices))
    }

    async fn open_with(
        parts: &AgentParts,
        request: &TurnRequest,
        mut call: ModelCall,
        offer: Offer,
        mut fail_over: FailOver,
    ) -> Result<Self, AgentError> {
        let (stream, began) = loop {
            let upstream = fail_over.upstream().clone();
            let learned = parts.router.learned();
            if matches!(offer, Offer::Withheld(_)) && learned.removes_tools(&*upstream, &call.model)
            {
                remove_tools(&mut call, request);
            }
            let began = Instant::now();
            let error = match upstream.stream(&call).await {
                Ok(stream) => break (stream, began),
                Err(error) => error,
            };
            count(parts, upstream.name(), outcome(&error), began);
            if refuses_withheld_tools(&error, offer, &call, request) {
                remove_tools(&mut call, request);
            } else {
                fail_over.recover(error).await?;
                parts.metrics.upstream_retried(upstream.name());
            }
        };
        let assembler = ReplyAssembler::new(fail_over.upstream().quirks().split_names);
        Ok(Self {
            stream,
            fail_over,
            call,
            offer,
            began,
            passed_on: false,
            assembler,
            buffered: Vec::new(),
        })
    }

    /// Whether the model was offered tools.
    pub(super) fn with_tools(&self) -> bool {
        self.call.tools.is_some()
    }

    /// The upstream that answers.
    pub(super) fn upstream(&self) -> &Arc<dyn Upstream> {
        self.fail_over.upstream()
    }

    /// Headers of the upstream's answer.
    pub(super) fn headers(&self) -> http::HeaderMap {
        self.stream.headers.clone()
    }

    /// Waits for the next event of the answer. Adds the time spent waiting for the upstream to `waited`.
    ///
    /// # Errors
    /// When the answer broke off and the call cannot be retried.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future loses an event.
    pub(super) async fn step(
        &mut self,
        parts: &AgentParts,
        request: &TurnRequest,
        buffer_mode: BufferMode,
        waited: &mut Duration,
    ) -> Result<ModelCallStep, AgentError> {
        let waiting_since = Instant::now();
        let next = self.stream.events.next().await;
        *waited += waiting_since.elapsed();
        match next {
            Some(Ok(event)) => match self.assembler.push(&event) {
                Ok(()) => {
                    if let ModelEvent::ToolCall(call) = &event
                        && let Some(form) = call.text_form
                    {
                        let upstream = self.fail_over.upstream().name();
                        parts.metrics.text_call(upstream, form.as_str());
                    }
                    if request.streams_arguments
                        && matches!(event, ModelEvent::ToolCall(_))
                        && let Some(piece) = self.client_arguments(request)
                    {
                        self.passed_on = true;
                        let event = AgentEvent::ClientArguments(Box::new(piece));
                        return Ok(ModelCallStep::Event(event));
                    }
                    Ok(self.take(event, buffer_mode))
                }
                Err(error) => {
                    let error = UpstreamError::Malformed {
                        upstream: self.fail_over.upstream().name().into(),
                        reason: error.to_string(),
                        retryable: true,
                    };
                    self.retry(parts, request, error, waited).await
                }
            },
            Some(Err(error)) => self.retry(parts, request, error, waited).await,
            None => {
                parts.metrics.model_call_finished(
                    self.fail_over.upstream().name(),
                    ModelOutcome::Completed,
                    self.began.elapsed(),
                );
                Ok(ModelCallStep::Ended)
            }
        }
    }

    /// What has arrived of the arguments of a call that the client is to run.
    fn client_arguments(&mut self, request: &TurnRequest) -> Option<ArgumentsPiece> {
        let style = request.route.quirks.call_ids;
        let (call_id, name, piece) = self.assembler.next_arguments(style)?;
        matches!(request.tools.lookup(name), Lookup::Client).then(|| ArgumentsPiece {
            call_id,
            name: name.to_owned(),
            piece: piece.to_owned(),
        })
    }

    fn take(&mut self, event: ModelEvent, buffer_mode: BufferMode) -> ModelCallStep {
        let (event, buffered) = match event {
            ModelEvent::Text(text) => (AgentEvent::Text(text), buffer_mode != BufferMode::Off),
            ModelEvent::Reasoning { text, field } => (
                AgentEvent::Reasoning { text, field },
                buffer_mode == BufferMode::All,
            ),
            ModelEvent::DeltaExtra(fields) => (
                extra(ExtraLevel::Message, fields),
                buffer_mode != BufferMode::Off,
            ),
            ModelEvent::ChoiceExtra(fields) => (
                extra(ExtraLevel::Choice, fields),
                buffer_mode != BufferMode::Off,
            ),
            ModelEvent::ChunkExtra(fields) => {
                return ModelCallStep::Event(extra(ExtraLevel::Answer, fields));
            }
            ModelEvent::Model(model) => return ModelCallStep::Event(AgentEvent::Model(model)),
            ModelEvent::ToolCall(_) | ModelEvent::Finish(_) | ModelEvent::Usage(_) => {
                return ModelCallStep::NoEvent;
            }
        };
        if buffered {
            self.buffered.push(event);
            ModelCallStep::NoEvent
        } else {
            self.passed_on = true;
            ModelCallStep::Event(event)
        }
    }

    /// Retries the call after its answer broke off, if no part of the answer was passed on.
    async fn retry(
        &mut self,
        parts: &AgentParts,
        request: &TurnRequest,
        error: UpstreamError,
        waited: &mut Duration,
    ) -> Result<ModelCallStep, AgentError> {
        count(
            parts,
            self.fail_over.upstream().name(),
            outcome(&error),
            self.began,
        );
        if self.passed_on {
            return Err(error.into());
        }
        let waiting_since = Instant::now();
        let failed = self.fail_over.upstream().clone();
        self.fail_over.recover(error).await?;
        parts.metrics.upstream_retried(failed.name());
        let (call, fail_over) = (self.call.clone(), self.fail_over.clone());
        let opened = Self::open_with(parts, request, call, self.offer, fail_over).await;
        *waited += waiting_since.elapsed();
        *self = opened?;
        Ok(ModelCallStep::Retried(retry_notice()))
    }
}

fn extra(level: ExtraLevel, fields: ExtraFields) -> AgentEvent {
    AgentEvent::Extra { level, fields }
}

/// Adds a finished model call to the metrics.
fn count(parts: &AgentParts, upstream: &str, outcome: ModelOutcome, began: Instant) {
    parts
        .metrics
        .model_call_finished(upstream, outcome, began.elapsed());
}

/// The outcome of a failed call for the metrics.
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

fn retry_notice() -> Notice {
    Notice {
        kind: "retry",
        message: "the model server failed and was asked again".to_owned(),
    }
}

/// Takes the tools out of a call.
fn remove_tools(call: &mut ModelCall, request: &TurnRequest) {
    (call.tools, call.tool_choice) = (None, None);
    call.fields = request.call.fields_without_tools.clone();
}

/// Whether the upstream may have refused the call because it has tools together with `tool_choice: "none"`.
fn refuses_withheld_tools(
    error: &UpstreamError,
    offer: Offer,
    call: &ModelCall,
    request: &TurnRequest,
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
