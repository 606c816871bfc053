//! The driver of the loop: asks the machine for decisions, calls the model, runs the tools and stores the session.
//!
//! The caller pulls one event at a time from a [`Run`]. A [`TurnControl`] ends it: the model call and the running tools are
//! cancelled, what was done is stored, and the lease is released when it is written.

mod abort;
mod ending;
mod limit;
mod round;

use std::collections::{HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::WaitForCancellationFutureOwned;
use tracing::Span;

use super::batch::{Batch, BatchStep};
use super::control::TurnControl;
use super::conversation::{Conversation, is_long};
use super::event::{AgentEvent, Notice};
use super::images::NamedImages;
use super::inputs::InputFiles;
use super::machine::Machine;
use super::model_call::{ActiveModelCall, BufferMode, ModelCallStep};
use super::options::TextMode;
use super::policy::TurnFacts;
use super::stop::StopReason;
use super::transcript::AnswerText;
use super::truncation::Truncation;
use super::turn::{ToolSet, TurnRequest};
use super::turn_bytes::TurnBytes;
use super::turn_env::TurnEnv;
use super::{AgentError, AgentParts, RunError, block_in_place_if, unix_seconds};
use crate::openai::message::{Message, Role};
use crate::openai::usage::{FinishReason, Usage};
use crate::session::SessionError;
use crate::session::repair::repair;
use crate::tools::tool_search::TOOL_SEARCH;
use crate::upstream::{Transcript, messages};

/// One turn of a conversation while it runs.
#[derive(Debug)]
pub struct Run {
    parts: Arc<AgentParts>,
    request: TurnRequest,
    conversation: Option<Conversation>,
    turn_env: TurnEnv,
    /// Paths of the files that the tools made.
    produced: HashSet<String>,
    /// Bytes that the turn may still keep.
    turn_bytes: TurnBytes,
    machine: Machine,
    transcript: Transcript,
    /// What can be left out of it, if the request allows that.
    truncation: Option<Truncation>,
    phase: Phase,
    /// Events for the next calls of [`Self::next`].
    ready: VecDeque<AgentEvent>,
    answer_text: AnswerText,
    usage: Option<Usage>,
    usage_by_round: Vec<Option<Usage>>,
    /// Tokens that the model has written.
    output_tokens: u64,
    notices: Vec<Notice>,
    finish_reason: FinishReason,
    /// The buffered text of the last round. The client gets it if no other round follows.
    last_buffered: Vec<AgentEvent>,
    started: Instant,
    /// [`AgentEvent::Started`] is queued.
    started_queued: bool,
    control: TurnControl,
    /// Resolves when the turn is aborted. Taken while [`Self::next`] runs.
    aborted: Option<Aborted>,
    /// Time spent waiting for models and tools.
    waited: Duration,
    span: Span,
    /// Time spent in earlier calls of [`Self::next`], waits included.
    spent: Duration,
    /// When the current call of [`Self::next`] began.
    called: Instant,
    /// The turn is counted in the metrics.
    counted: bool,
    /// Another run may write to the session now.
    lease_lost: bool,
}

/// Resolves when the turn is aborted.
type Aborted = Pin<Box<WaitForCancellationFutureOwned>>;

#[derive(Debug)]
enum Phase {
    /// The next step is a model call.
    BeforeModelCall,
    ModelCall(Box<ActiveModelCall>),
    Batch(Box<Batch>),
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
        let (mut conversation, history) =
            Conversation::open(&parts, &mut request, control.run()).await?;
        let owner = &request.caller.owner;
        restore_found(&request.tools, &history);
        let files = InputFiles {
            parts: &parts,
            owner,
            session: conversation.as_ref().and_then(Conversation::session_id),
        };
        let runs_code = request.tools.runs_code();
        let history = match &request.instructions {
            Some(instructions) => with_instructions(instructions, history),
            None => history,
        };
        let (mut history, inputs) = files.resolve(history, &request.files, runs_code).await?;
        let images = NamedImages::of_history(&parts, &request, &mut history).await;
        let container = request.options.container.as_ref();
        let turn_env = TurnEnv::new(&parts, owner, conversation.as_mut(), container, inputs);
        let quirks = &request.route.quirks;
        let bytes = history.iter().map(|message| message.json().len()).sum();
        let history = block_in_place_if(is_long(history.len(), bytes), || {
            messages::of_history(repair(history), quirks)
        });
        let texts = history.iter().map(|message| images.render(message));
        let texts: Vec<_> = texts.collect();
        let truncates = request.options.truncates;
        let truncation = truncates.then(|| Truncation::new(&history, &texts));
        let mut transcript = Transcript::default();
        transcript.push(texts);
        let answer_text = AnswerText::new(request.options.citations, turn_env.sources());
        let turn_bytes = TurnBytes::new(parts.settings.max_turn_bytes);
        let machine = Machine::new(parts.policies.for_turn(TurnFacts {
            owner,
            options: &request.options,
            started_at: unix_seconds(),
        }));
        if let Some(conversation) = &mut conversation {
            conversation.save_request();
        }
        let session = conversation.as_ref().and_then(Conversation::session_id);
        let span = tracing::info_span!(
            "turn",
            request_id = %request.caller.request_id,
            session_id = session.map(tracing::field::display)
        );
        Ok(Self {
            parts,
            request,
            conversation,
            turn_env,
            produced: HashSet::new(),
            turn_bytes,
            machine,
            transcript,
            truncation,
            phase: Phase::BeforeModelCall,
            ready: VecDeque::new(),
            answer_text,
            usage: None,
            usage_by_round: Vec::new(),
            output_tokens: 0,
            notices: Vec::new(),
            finish_reason: FinishReason::Stop,
            last_buffered: Vec::new(),
            started,
            started_queued: false,
            aborted: Some(Box::pin(control.aborted())),
            control,
            waited: Duration::ZERO,
            span,
            spent: started.elapsed(),
            called: started,
            counted: false,
            lease_lost: false,
        })
    }

    /// The session's id, if the session is stored.
    pub fn session_id(&self) -> Option<&crate::ids::SessionId> {
        self.conversation.as_ref().and_then(Conversation::stored_id)
    }

    /// Adds the turn's ids to log lines. [`Self::next`] is called within it.
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// The round in progress, from 0.
    pub fn round(&self) -> u32 {
        self.machine.rounds()
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
                if let Some(conversation) = &mut self.conversation {
                    conversation.save_failed();
                }
                self.finish_write().await;
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
                return Err(SessionError::LeaseLost.into());
            }
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            match &mut self.phase {
                Phase::BeforeModelCall => self.start_model_call(aborted).await?,
                Phase::ModelCall(call) => {
                    let buffer_mode = buffer_mode(&self.request);
                    let step = tokio::select! {
                        biased;
                        () = &mut *aborted => None,
                        step = call.step(&self.parts, &self.request, buffer_mode, &mut self.waited) => Some(step?),
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
                        ModelCallStep::Retried(notice) => self.notify(notice),
                        ModelCallStep::NoEvent => {}
                        ModelCallStep::Ended => Box::pin(self.end_model_call()).await?,
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
                                self.produced.insert(file.path.clone());
                            }
                            return Ok(Some(event));
                        }
                        BatchStep::Ended => self.end_batch().await?,
                        BatchStep::Aborted => self.abort().await?,
                    }
                }
                Phase::Failed(reason) => return Err(AgentError::Limit(*reason)),
                Phase::Over => return Ok(None),
            }
        }
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

/// The history with instructions of this turn before its own. Model servers want one leading message of them.
fn with_instructions(instructions: &str, history: Vec<Message>) -> Vec<Message> {
    let leading = history
        .iter()
        .take_while(|message| message.is_instruction())
        .count();
    let mut text = instructions.to_owned();
    for message in history.iter().take(leading) {
        text.push_str("\n\n");
        text.push_str(&message.content_text());
    }
    let rest = history.into_iter().skip(leading);
    [Message::text(Role::System, &text)]
        .into_iter()
        .chain(rest)
        .collect()
}

fn buffer_mode(request: &TurnRequest) -> BufferMode {
    match (request.streamed, request.options.text) {
        (false, _) => BufferMode::All,
        (true, TextMode::Final) => BufferMode::Text,
        (true, TextMode::All) => BufferMode::Off,
    }
}
