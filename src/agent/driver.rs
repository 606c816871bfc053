//! The driver of the loop: asks the machine for decisions, calls the model, runs the tools and stores the session.
//!
//! The caller pulls one event at a time from a [`Run`]. A [`TurnControl`] ends it: the model call and the running tools are
//! cancelled, what was done is stored, and the lease is released when it is written.

mod abort;
mod ask;
mod calls;
mod ending;
mod hooked;
mod limit;
mod park;
mod round;

use std::collections::{HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::WaitForCancellationFutureOwned;
use tracing::Span;

use self::ask::PausedBatch;
use super::batch::{Batch, BatchStep};
use super::contents::NamedContents;
use super::control::TurnControl;
use super::conversation::{Conversation, OpenContext, OpenedTurn, is_long};
use super::event::{AgentEvent, Notice, WaitingCall};
use super::inputs::{InputFiles, Inputs};
use super::machine::Machine;
use super::model_call::{ActiveModelCall, BufferMode, ModelCallContext, ModelCallStep};
use super::open_batch::OpenBatch;
use super::options::TextMode;
use super::parked::TurnState;
use super::policy::{TurnPolicies, TurnRules};
use super::prompt::Prompt;
use super::stop::StopReason;
use super::transcript::AnswerText;
use super::turn::{ToolSet, TurnRequest};
use super::turn_bytes::TurnBytes;
use super::turn_env::TurnEnv;
use super::unstored::UnstoredQuestions;
use super::{AgentError, AgentParts, RunError};
use crate::hooks::HookRecord;
use crate::ids::FileId;
use crate::openai::message::Message;
use crate::openai::usage::{FinishReason, Usage};
use crate::polling::block_in_place_if;
use crate::session::StoreError;
use crate::session::repair::repair;
use crate::tools::gate::TurnPermissions;
use crate::tools::tool_search::TOOL_SEARCH;
use crate::traces;
use crate::upstream::messages;

/// One turn of a conversation while it runs. What another process would need to go on with it is in its state, its batch and
/// the session.
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
    /// Messages of the request that follow the batch of a turn that goes on.
    follow: FollowUp,
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
}

/// Messages that follow the batch of a turn that goes on.
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
    /// The next step is to go on with a batch that was kept with the session.
    Parked(Box<OpenBatch>),
    /// The turn fails at this limit, once the events before have been taken.
    Failed(StopReason),
    Over,
}

impl Run {
    /// Opens the conversation and prepares the first model call.
    pub(super) async fn start(
        parts: Arc<AgentParts>,
        mut request: TurnRequest,
        control: TurnControl,
    ) -> Result<Self, AgentError> {
        let started = Instant::now();
        let owner = request.caller.owner.clone();
        let context = OpenContext {
            sessions: &parts.sessions,
            tasks: &parts.tasks,
            inputs: parts.input_files(&owner),
        };
        let OpenedTurn {
            mut conversation,
            history,
            parked,
            follow,
        } = Conversation::open(context, &mut request, control.run()).await?;
        restore_found(&request.tools, &history);
        let history = match &request.instructions {
            Some(instructions) => messages::with_instructions(instructions, history),
            None => history,
        };
        let messages = (history, follow);
        let resolved = resolve_files(context.inputs, &request, conversation.as_mut(), messages);
        let (mut history, follow, inputs) = resolved.await?;
        let room = TurnBytes::new(parts.settings.max_turn_bytes);
        let files = &parts.sessions.files;
        let contents = NamedContents::of_history(files, &request, &mut history, room).await;
        let container = request.options.container.as_ref();
        let sources = &parts.tools.sources;
        let turn_env = TurnEnv::new(sources, &owner, conversation.as_mut(), container, inputs);
        let bytes = history.iter().map(|message| message.json().len()).sum();
        let long = is_long(history.len(), bytes);
        let history = block_in_place_if(long, || repair(history));
        let route = request.route.clone();
        let prompt = Prompt::new(route, history, contents, request.options.truncates);
        let answer_text = AnswerText::new(request.options.citations, turn_env.sources());
        if let Some(conversation) = &mut conversation {
            conversation.record_run();
        }
        let span = turn_span(&request, conversation.as_ref());
        let turn = new_turn(&parts, &request);
        let unstored = UnstoredQuestions::new(parts.unstored.clone(), control.run().clone());
        let mut run = Self {
            parts,
            request,
            conversation,
            turn_env,
            turn,
            prompt,
            phase: Phase::BeforeModelCall,
            ready: VecDeque::new(),
            answer_text,
            usage: None,
            usage_by_round: Vec::new(),
            notices: Vec::new(),
            hook_record: HookRecord::default(),
            finish_reason: FinishReason::Stop,
            last_buffered: Vec::new(),
            started,
            started_queued: false,
            aborted: Some(Box::pin(control.aborted())),
            control,
            waited: Duration::ZERO,
            paused: Duration::ZERO,
            waiting: Vec::new(),
            unstored,
            follow,
            span,
            trace: None,
            spent: started.elapsed(),
            called: started,
            counted: false,
            lease_lost: false,
        };
        if let Some(parked) = parked {
            run.take_on(parked);
        }
        Ok(run)
    }

    /// The same with a span for the collector.
    pub(super) fn traced(mut self, span: Option<traces::Span>) -> Self {
        self.trace = span;
        self
    }

    /// The session's id, if the session is stored.
    pub fn session_id(&self) -> Option<&crate::ids::SessionId> {
        self.conversation.as_ref().and_then(Conversation::stored_id)
    }

    /// The session's id, also if the session is stored only once a server-side call starts.
    fn traced_session(&self) -> Option<&crate::ids::SessionId> {
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
    pub fn is_reading_model(&self) -> bool {
        self.ready.is_empty() && matches!(self.phase, Phase::ModelCall(_))
    }

    /// The next event; `None` when the run is over.
    ///
    /// # Errors
    /// When no upstream gives a complete response, or at a limit with `on_limit: "error"`. The run is over then.
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
            Ok(event) => Ok(event),
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
                Phase::Parked(_) => self.go_on(),
                Phase::Failed(reason) => return Err(AgentError::Limit(*reason)),
                Phase::Over => return Ok(None),
            }
        }
    }
}

/// Adds the ids of a turn to log lines.
fn turn_span(request: &TurnRequest, conversation: Option<&Conversation>) -> Span {
    let session = conversation.and_then(Conversation::session_id);
    tracing::info_span!(
        "turn",
        request_id = %request.caller.request_id,
        session_id = session.map(tracing::field::display)
    )
}

/// The state of a turn that begins.
fn new_turn(parts: &AgentParts, request: &TurnRequest) -> TurnState {
    let rules = TurnRules::of(&request.options, request.tools.forbids_calls());
    TurnState {
        machine: Machine::new(TurnPolicies::new(rules)),
        permissions: TurnPermissions::new(request.permissions.clone()),
        approvals: Arc::default(),
        turn_bytes: TurnBytes::new(parts.settings.max_turn_bytes),
        output_tokens: 0,
        sent_back: 0,
        produced: HashSet::new(),
        limits: request.options.limits,
        age: Duration::ZERO,
    }
}

/// Offers the tools again that searches of the history found.
fn restore_found(tools: &ToolSet, history: &[Message]) {
    if !tools.is_searchable() {
        return;
    }
    let calls = history.iter().flat_map(Message::tool_calls);
    let searches = calls.filter(|call| call.name == TOOL_SEARCH);
    let searches: HashSet<&str> = searches.map(|call| call.id.as_str()).collect();
    for message in history {
        let call = message.tool_call_id();
        if call.is_some_and(|call| searches.contains(call)) {
            tools.restore_found(&message.content_text());
        }
    }
}

/// The history for the model, the messages that follow a batch, and the input files of the turn. The session uses those that the request names once the turn
/// is written.
async fn resolve_files(
    inputs: InputFiles<'_>,
    request: &TurnRequest,
    mut conversation: Option<&mut Conversation>,
    (history, follow): (Vec<Message>, Vec<Message>),
) -> Result<(Vec<Message>, FollowUp, Inputs), AgentError> {
    let before = history.len();
    let history = [history, follow.clone()].concat();
    let session = conversation.as_deref().and_then(Conversation::session_id);
    let files = InputFiles { session, ..inputs };
    let runs_code = request.tools.runs_code();
    let resolved = files.resolve(history, &request.files, runs_code).await;
    if let Some(conversation) = &mut conversation {
        let named = request.files.iter();
        conversation.use_files(named.filter_map(|named| FileId::parse(&named.id)));
        if resolved.is_err() {
            conversation.discard().await;
        }
    }
    let (mut history, inputs) = resolved?;
    let follow = FollowUp {
        sent: history.split_off(before),
        stored: follow,
    };
    Ok((history, follow, inputs))
}

fn buffer_mode(request: &TurnRequest) -> BufferMode {
    match (request.streamed, request.options.text) {
        (false, _) => BufferMode::All,
        (true, TextMode::Final) => BufferMode::Text,
        (true, TextMode::All) => BufferMode::Off,
    }
}

#[cfg(test)]
mod tests;
