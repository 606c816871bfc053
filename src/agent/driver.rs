//! The driver of the loop: asks the machine for decisions, calls the model, runs the tools and stores the session.
//!
//! The caller pulls one event at a time from a [`Run`]. A [`TurnControl`] ends it: the model call and the running tools
//! are cancelled, finished work is stored, and the lease is released after the write.

mod abort;
mod ask;
mod calls;
mod ending;
mod figures;
mod hooked;
mod limit;
mod round;
mod start;
mod suspend;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::WaitForCancellationFutureOwned;
use tracing::Span;

use self::ask::PausedBatch;
use super::batch::{Batch, BatchStep};
use super::contents::NamedContents;
use super::control::TurnControl;
use super::conversation::Conversation;
use super::draft::DraftTool;
use super::event::{AgentEvent, Notice, WaitingCall};
use super::model_call::{ActiveModelCall, BufferMode, ModelCallContext, ModelCallStep};
use super::open_batch::OpenBatch;
use super::options::TextMode;
use super::prompt::Prompt;
use super::said::{Figures, Said};
use super::stop::StopReason;
use super::suspended_turn::TurnState;
use super::transcript::AnswerText;
use super::turn::TurnRequest;
use super::turn_bytes::TurnBytes;
use super::turn_env::TurnEnv;
use super::unstored::UnstoredQuestions;
use super::{AgentError, AgentParts, RunError};
use crate::session::StoreError;
use crate::traces;
use policy::hooks::HookRecord;
use protocol::openai::message::Message;
use protocol::openai::usage::{FinishReason, Usage};

/// One turn of a conversation while it runs. Another process can resume it from its state, its batch and the session.
#[derive(Debug)]
pub struct Run {
    parts: Arc<AgentParts>,
    request: TurnRequest,
    conversation: Option<Conversation>,
    turn_env: TurnEnv,
    turn: TurnState,
    prompt: Prompt,
    phase: Phase,
    /// Events for the next calls of [`Self::next`].
    ready: VecDeque<AgentEvent>,
    answer_text: AnswerText,
    usage: Option<Usage>,
    usage_by_round: Vec<Option<Usage>>,
    notices: Vec<Notice>,
    hook_record: HookRecord,
    finish_reason: FinishReason,
    /// The buffered text of the last round. The client gets it if no other round follows.
    last_buffered: Vec<AgentEvent>,
    started: Instant,
    /// [`AgentEvent::Started`] is queued.
    started_queued: bool,
    control: TurnControl,
    /// Resolves when the turn is aborted. Taken while [`Self::next`] runs.
    aborted: Option<Aborted>,
    /// Time spent waiting for models, tools and people.
    waited: Duration,
    /// Time spent waiting for people, for which the time limit of the turn stands still.
    paused: Duration,
    /// The calls that wait for a person's decision.
    waiting: Vec<WaitingCall>,
    /// What is asked about its calls, if the turn is not stored.
    unstored: UnstoredQuestions,
    /// Messages of the request that follow the batch of a resumed turn.
    follow: FollowUp,
    /// The answer of the whole turn so far, if the turn may have to wait for a person.
    said: Option<Box<Said>>,
    /// The figures of an earlier answer, which this answer does not repeat.
    reported_before: Figures,
    span: Span,
    /// The span of the turn for the collector, until the turn has ended.
    trace: Option<traces::Span>,
    /// Time spent in earlier calls of [`Self::next`], waits included.
    spent: Duration,
    /// When the current call of [`Self::next`] began.
    called: Instant,
    /// The turn is counted in the metrics.
    counted: bool,
    /// Another run may write to the session now.
    lease_lost: bool,
    /// The turn has ended to wait for a decision.
    is_suspended: bool,
}

/// Messages that follow the batch of a resumed turn.
#[derive(Debug, Default)]
struct FollowUp {
    /// As the history has them.
    stored: Vec<Message>,
    /// As the model gets them.
    sent: Vec<Message>,
}

/// Resolves when the turn is aborted.
type Aborted = Pin<Box<WaitForCancellationFutureOwned>>;

#[derive(Debug)]
enum Phase {
    /// The next step is a model call.
    BeforeModelCall,
    ModelCall(Box<ActiveModelCall>),
    Batch(Box<Batch>),
    /// Nothing runs. The reader waits for a person's decision.
    Waiting(PausedBatch),
    /// The next step resumes a stored batch. The answer begins with these events.
    Resume(Box<OpenBatch>, Vec<AgentEvent>),
    /// The turn fails at this limit, once the events before have been taken.
    Failed(StopReason),
    Over,
}

impl Run {
    /// The same with a span for the collector.
    pub(super) fn traced(mut self, span: Option<traces::Span>) -> Self {
        self.trace = span;
        self
    }

    /// The session's id, if the session is stored.
    pub fn session_id(&self) -> Option<&protocol::ids::SessionId> {
        self.conversation.as_ref().and_then(Conversation::stored_id)
    }

    /// The MCP servers that the turn declares, if it has ended to wait for a decision.
    pub(super) fn suspended_servers(&self) -> Vec<DraftTool> {
        let draft = self.request.draft.as_ref().filter(|_| self.is_suspended);
        draft.map_or_else(Vec::new, |draft| draft.servers())
    }

    /// The session's id, also if the session is stored only once a server-side call starts.
    fn traced_session(&self) -> Option<&protocol::ids::SessionId> {
        self.conversation
            .as_ref()
            .and_then(Conversation::session_id)
    }

    /// Adds the turn's ids to log lines. [`Self::next`] is called within it.
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// The round in progress, from 0.
    pub fn round(&self) -> u32 {
        self.turn.machine.rounds()
    }

    /// Whether the next event comes from a model stream.
    pub(crate) fn is_reading_model(&self) -> bool {
        self.ready.is_empty() && matches!(self.phase, Phase::ModelCall(_))
    }

    /// The next event; `None` when the run is over.
    ///
    /// # Errors
    /// When no upstream returns a complete response, or at a limit with `on_limit: "error"`. The run is over then.
    ///
    /// # Cancel safety
    /// Not cancel safe: after the future is dropped, the run has to be dropped too.
    pub async fn next(&mut self) -> Result<Option<AgentEvent>, RunError> {
        self.called = Instant::now();
        let control = &self.control;
        let mut aborted = self
            .aborted
            .take()
            .unwrap_or_else(|| Box::pin(control.aborted()));
        let advanced = self.advance(&mut aborted).await;
        self.aborted = Some(aborted);
        if let Err(error) = &advanced {
            self.count_failure(error);
        }
        self.spent += self.called.elapsed();
        match advanced {
            Ok(event) => {
                if let (Some(said), Some(event)) = (&mut self.said, &event) {
                    said.add(event);
                }
                Ok(event)
            }
            Err(error) => {
                self.phase = Phase::Over;
                self.finish_write().await;
                if let Some(conversation) = &mut self.conversation {
                    conversation.discard().await;
                }
                Err(RunError {
                    error,
                    side_effects: self.control.side_effects(),
                    waited: self.waited,
                })
            }
        }
    }

    /// The time that the turn has taken without waits for models and tools.
    fn own_time(&self) -> Duration {
        (self.spent + self.called.elapsed()).saturating_sub(self.waited)
    }

    async fn advance(&mut self, aborted: &mut Aborted) -> Result<Option<AgentEvent>, AgentError> {
        loop {
            if self.lease_lost {
                return Err(StoreError::LeaseLost.into());
            }
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            match &mut self.phase {
                Phase::BeforeModelCall => self.start_model_call(aborted).await?,
                Phase::ModelCall(call) => {
                    let buffer_mode = buffer_mode(&self.request);
                    let mut context = ModelCallContext {
                        router: &self.parts.router,
                        metrics: &self.parts.metrics,
                        request: &self.request,
                        prompt: &mut self.prompt,
                    };
                    let step = tokio::select! {
                        biased;
                        () = &mut *aborted => None,
                        step = call.step(&mut context, buffer_mode, &mut self.waited) => Some(step?),
                    };
                    let Some(step) = step else {
                        self.abort().await?;
                        continue;
                    };
                    match step {
                        ModelCallStep::Event(AgentEvent::Text(text)) => {
                            self.answer_text.send(text, &mut self.ready);
                        }
                        ModelCallStep::Event(event) => return Ok(Some(event)),
                        ModelCallStep::Retried(notice) => {
                            self.answer_text.begin_round();
                            self.notify(notice);
                        }
                        ModelCallStep::NoEvent => {}
                        ModelCallStep::Ended(answer) => {
                            self.check_choice(&answer);
                            Box::pin(self.end_model_call(*answer)).await?;
                        }
                    }
                }
                Phase::Batch(batch) => {
                    let waiting_since = Instant::now();
                    let step = Box::pin(batch.step(aborted)).await;
                    self.waited += waiting_since.elapsed();
                    match step {
                        BatchStep::Event(AgentEvent::Notice(notice)) => self.notify(notice),
                        BatchStep::Event(event) => {
                            if let AgentEvent::File(file) = &event {
                                self.turn.produced.insert(file.path.clone());
                            }
                            return Ok(Some(event));
                        }
                        BatchStep::Starting { index, start } => {
                            Box::pin(self.start_call(index, start)).await;
                        }
                        BatchStep::Waiting(indexes) => Box::pin(self.ask(indexes)).await,
                        BatchStep::Ended => Box::pin(self.end_batch()).await?,
                        BatchStep::Aborted => self.abort().await?,
                    }
                }
                Phase::Waiting(_) => Box::pin(self.wait(aborted)).await?,
                Phase::Resume(..) => self.resume_batch(),
                Phase::Failed(reason) => return Err(AgentError::Limit(*reason)),
                Phase::Over => return Ok(None),
            }
        }
    }
}

/// The stored contents that messages name and the model is shown, within the bytes of a turn.
async fn named_contents(
    parts: &AgentParts,
    request: &TurnRequest,
    messages: &mut [Message],
) -> NamedContents {
    let room = TurnBytes::new(parts.settings.max_turn_bytes);
    let (files, owner) = (&parts.sessions.files, &request.caller.owner);
    NamedContents::of_history(files, owner, &request.route.quirks, messages, room).await
}

fn buffer_mode(request: &TurnRequest) -> BufferMode {
    match (request.options.streamed, request.options.text) {
        (false, _) => BufferMode::All,
        (true, TextMode::Final) => BufferMode::Text,
        (true, TextMode::All) => BufferMode::Off,
    }
}
