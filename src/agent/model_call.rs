//! One model call: makes it with retries and fail-over, passes its events on or buffers them, and assembles its answer.

mod attempts;
mod refusal;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;

use self::attempts::count;
use super::AgentError;
use super::event::{AgentEvent, ArgumentsPiece, ExtraFields, ExtraLevel, Notice};
use super::machine::Offer;
use super::prompt::Prompt;
use super::traced::ModelSpan;
use super::transcript::BETWEEN_ROUNDS;
use super::turn::TurnRequest;
use crate::metrics::{Metrics, ModelOutcome};
use protocol::openai::event::ModelEvent;
use protocol::openai::fold::FoldedFields;
use protocol::openai::raw::RawObject;
use tools::set::Lookup;
use upstream::assemble::{IncompleteReply, ModelReply, ReplyAssembler};
use upstream::fail_over::FailOver;
use upstream::memory::MessageOrigin;
use upstream::router::Router;
use upstream::{ModelCall, ModelStream, Upstream, UpstreamError};

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

/// The parts of a run that its model calls need.
#[derive(Debug)]
pub(super) struct ModelCallContext<'a> {
    pub(super) router: &'a Router,
    pub(super) metrics: &'a Metrics,
    pub(super) request: &'a TurnRequest,
    pub(super) prompt: &'a mut Prompt,
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
    /// The last event was text or reasoning, which the client is shown.
    is_shown: bool,
    assembler: ReplyAssembler,
    /// Events that are buffered until the call ends.
    buffered: Vec<AgentEvent>,
    /// Fields of the message with a single value. The client gets them only if it sees the message.
    of_message: FoldedFields,
    /// The same of the choice.
    of_choice: FoldedFields,
    /// The span of the call, until it has ended.
    span: Option<Box<ModelSpan>>,
}

/// The answer of a model call that has ended.
#[derive(Debug)]
pub(super) struct ModelAnswer {
    /// The answer.
    pub(super) reply: ModelReply,
    /// Events that were buffered until the call ended.
    pub(super) buffered: Vec<AgentEvent>,
    /// Events for the client if it sees the message, and not only its text.
    pub(super) of_message: Vec<AgentEvent>,
    /// The model was offered tools.
    pub(super) with_tools: bool,
    /// The request to the upstream forced a call.
    pub(super) was_forced: bool,
    pub(super) upstream: Arc<dyn Upstream>,
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
    Ended(Box<ModelAnswer>),
}

impl ActiveModelCall {
    /// The answer as far as it has come, and its buffered events.
    pub(super) fn cut(self, request: &TurnRequest) -> (ModelReply, Vec<AgentEvent>) {
        let reply = self.assembler.so_far(request.route.quirks.call_ids);
        (reply, self.buffered)
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
        context: &mut ModelCallContext<'_>,
        buffer_mode: BufferMode,
        waited: &mut Duration,
    ) -> Result<ModelCallStep, AgentError> {
        let waiting_since = Instant::now();
        let next = self.stream.events.next().await;
        *waited += waiting_since.elapsed();
        let next = next.map(|event| event.map(|event| separated(event, buffer_mode)));
        let error = match next {
            Some(Ok(event)) => match self.assembler.push(&event) {
                Ok(()) => return Ok(self.received(event, context, buffer_mode)),
                Err(error) => UpstreamError::Malformed {
                    upstream: self.upstream_name(),
                    reason: error.to_string(),
                    retryable: true,
                },
            },
            Some(Err(error)) => error,
            None => match self.end(context.request) {
                Ok(answer) => {
                    let upstream = answer.upstream.name();
                    count(
                        context.metrics,
                        upstream,
                        ModelOutcome::Completed,
                        self.began,
                    );
                    if let Some(span) = self.span.take() {
                        let id = &self.stream.answer_id;
                        span.answered(&answer.reply, &self.call, &self.fail_over, id);
                    }
                    return Ok(ModelCallStep::Ended(answer));
                }
                Err(reason) => UpstreamError::Incomplete {
                    upstream: self.upstream_name(),
                    reason,
                },
            },
        };
        let retried = self.retry(context, error, waited).await;
        if let Err(error) = &retried
            && let Some(span) = self.span.take()
        {
            span.failed(error, &self.fail_over);
        }
        retried
    }

    fn upstream_name(&self) -> Arc<str> {
        self.fail_over.upstream().name().into()
    }

    fn received(
        &mut self,
        event: ModelEvent,
        context: &ModelCallContext<'_>,
        buffer_mode: BufferMode,
    ) -> ModelCallStep {
        if let ModelEvent::ToolCall(call) = &event
            && let Some(form) = call.text_form
        {
            let upstream = self.fail_over.upstream().name();
            context.metrics.text_call(upstream, form.as_str());
        }
        if context.request.options.streams_arguments
            && matches!(event, ModelEvent::ToolCall(_))
            && let Some(piece) = self.client_arguments(context.request)
        {
            self.passed_on = true;
            return ModelCallStep::Event(AgentEvent::ClientArguments(Box::new(piece)));
        }
        self.take(event, buffer_mode)
    }

    fn end(&mut self, request: &TurnRequest) -> Result<Box<ModelAnswer>, IncompleteReply> {
        let withheld = self.offer.is_final();
        let assembler = std::mem::take(&mut self.assembler);
        let mut reply = assembler.finish(request.route.quirks.call_ids, withheld)?;
        let upstream = self.fail_over.upstream().clone();
        let origin = MessageOrigin::new(upstream.name(), upstream.kind(), &reply.calls);
        reply.origin = Some(origin);
        let levels = [
            (ExtraLevel::Message, &mut self.of_message),
            (ExtraLevel::Choice, &mut self.of_choice),
        ];
        let of_message = levels.into_iter().filter_map(|(level, fields)| {
            let fields: ExtraFields = std::mem::take(fields).into_entries().collect();
            (!fields.is_empty()).then(|| extra(level, fields))
        });
        Ok(Box::new(ModelAnswer {
            reply,
            of_message: of_message.collect(),
            buffered: std::mem::take(&mut self.buffered),
            with_tools: self.call.tools.is_some(),
            was_forced: self.offer == Offer::AsRequested && request.call.forces(&self.call),
            upstream,
        }))
    }

    /// What has arrived of the arguments of a call that the client is to run.
    fn client_arguments(&mut self, request: &TurnRequest) -> Option<ArgumentsPiece> {
        if self.offer.is_final() {
            return None;
        }
        let style = request.route.quirks.call_ids;
        let (index, call_id, name, piece) = self.assembler.next_arguments(style)?;
        matches!(request.tools.lookup(name), Lookup::Client).then(|| ArgumentsPiece {
            index,
            call_id,
            name: name.to_owned(),
            piece: piece.to_owned(),
        })
    }

    fn take(&mut self, event: ModelEvent, buffer_mode: BufferMode) -> ModelCallStep {
        let (event, buffered) = match event {
            ModelEvent::Text(text) => {
                self.is_shown = true;
                (AgentEvent::Text(text), buffer_mode != BufferMode::Off)
            }
            ModelEvent::Reasoning { text, .. } if text.is_empty() => return ModelCallStep::NoEvent,
            ModelEvent::Reasoning { text, field } => {
                self.is_shown = true;
                let buffered = buffer_mode == BufferMode::All;
                let field = field.into();
                (AgentEvent::Reasoning { text, field }, buffered)
            }
            ModelEvent::DeltaExtra(fields) => {
                // A single value says something of the whole message.
                let (pieces, values): (ExtraFields, ExtraFields) = fields
                    .into_iter()
                    .partition(|(key, json)| is_piece(key, json));
                for (key, json) in values {
                    self.of_message.push(&key, &json);
                }
                if pieces.is_empty() {
                    return ModelCallStep::NoEvent;
                }
                (
                    extra(ExtraLevel::Message, pieces),
                    buffer_mode != BufferMode::Off,
                )
            }
            ModelEvent::Parts(parts) => match image_parts(&parts) {
                Some(images) => (
                    extra(ExtraLevel::Message, vec![images]),
                    buffer_mode != BufferMode::Off,
                ),
                None => return ModelCallStep::NoEvent,
            },
            ModelEvent::ChoiceExtra(fields) if self.is_shown => (
                extra(ExtraLevel::Choice, fields),
                buffer_mode != BufferMode::Off,
            ),
            ModelEvent::ChoiceExtra(fields) => {
                for (key, json) in fields {
                    self.of_choice.push(&key, &json);
                }
                return ModelCallStep::NoEvent;
            }
            ModelEvent::ChunkExtra(fields) => {
                return ModelCallStep::Event(extra(ExtraLevel::Answer, fields));
            }
            ModelEvent::Model(model) => return ModelCallStep::Event(AgentEvent::Model(model)),
            ModelEvent::TextWasReasoning { field } => {
                for event in &mut self.buffered {
                    if let AgentEvent::Text(text) = event {
                        let text = std::mem::take(text);
                        let field = field.into();
                        *event = AgentEvent::Reasoning { text, field };
                    }
                }
                return ModelCallStep::NoEvent;
            }
            ModelEvent::ToolCall(_) | ModelEvent::Finish(_) => {
                self.is_shown = false;
                return ModelCallStep::NoEvent;
            }
            ModelEvent::Usage(_) => return ModelCallStep::NoEvent,
        };
        if buffered {
            self.buffered.push(event);
            ModelCallStep::NoEvent
        } else {
            // White space before a text is held back, so the client has seen nothing of it.
            self.passed_on |= !matches!(&event, AgentEvent::Text(text) if text.trim().is_empty());
            ModelCallStep::Event(event)
        }
    }
}

/// Text that was passed on before it turned out to be reasoning stays text; a blank line separates it from the answer.
fn separated(event: ModelEvent, buffer_mode: BufferMode) -> ModelEvent {
    match event {
        ModelEvent::TextWasReasoning { .. } if buffer_mode == BufferMode::Off => {
            ModelEvent::Text(BETWEEN_ROUNDS.to_owned())
        }
        event => event,
    }
}

fn extra(level: ExtraLevel, fields: ExtraFields) -> AgentEvent {
    AgentEvent::Extra { level, fields }
}

/// Whether a field of a delta is a piece of what the message holds: of a text, a list or an object.
fn is_piece(key: &str, json: &str) -> bool {
    json.starts_with(['[', '{']) || FoldedFields::is_text(key)
}

/// The images among the parts of a content, as the message field that clients read.
fn image_parts(parts: &[Box<str>]) -> Option<(String, Box<str>)> {
    let is_image =
        |part: &&str| RawObject::parse(part).is_ok_and(|part| part.get_some("image_url").is_some());
    let parts = parts.iter().map(|part| &**part);
    let images: Vec<&str> = parts.filter(is_image).collect();
    let images = format!("[{}]", images.join(","));
    (images != "[]").then(|| ("images".to_owned(), images.into()))
}
