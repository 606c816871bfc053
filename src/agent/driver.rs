//! The only loop that awaits: asks the machine, calls the model, runs the tools, keeps the conversation.
//!
//! A [`Run`] is pulled, one event at a time, so a slow client slows its own upstream and nobody else. Dropping it
//! ends the model call and the running tools and frees the session once what was complete has been written.

mod ending;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tracing::{Instrument, Span};

use super::batch::{Batch, BatchContext, BatchStep, MAX_INLINE_BYTES};
use super::calls::{ResolvedCall, Resolver};
use super::conversation::{Conversation, is_long};
use super::event::{AgentEvent, Notice};
use super::inputs::Keeper;
use super::machine::{AfterBatch, AfterModelCall, BeforeModelCall, Machine, Offer};
use super::options::TextMode;
use super::policy::{CallDecision, TurnFacts};
use super::round::{Hold, Progress, Round};
use super::stop::StopReason;
use super::surroundings::Surroundings;
use super::transcript::{self, Spoken};
use super::turn::TurnRequest;
use super::{AgentError, Parts, RunError, give_way, unix_seconds};
use crate::openai::message::Message;
use crate::openai::tool::ToolCall;
use crate::openai::usage::{FinishReason, Usage};
use crate::session::repair::repair;
use crate::upstream::assemble::Turn;
use crate::upstream::settings::FinalCall;
use crate::upstream::{ModelCall, Transcript};
use ending::visible;

/// Calls of one answer whose checking may take long.
const MANY_CALLS: usize = 8;
/// Arguments of one answer, in bytes, whose checking may take long.
const LARGE_ARGUMENTS: usize = 32 * 1024;

/// One turn of a conversation while it runs.
#[derive(Debug)]
pub struct Run {
    parts: Arc<Parts>,
    request: TurnRequest,
    conversation: Option<Conversation>,
    surroundings: Surroundings,
    /// Paths of the files that tools made.
    produced: HashSet<String>,
    /// Bytes of files that the answer still has room for.
    inline_left: u64,
    machine: Machine,
    transcript: Transcript,
    phase: Phase,
    /// Events that are ready.
    ready: VecDeque<AgentEvent>,
    spoken: Spoken,
    usage: Option<Usage>,
    usage_by_round: Vec<Option<Usage>>,
    notices: Vec<Notice>,
    finish_reason: FinishReason,
    /// Text of the last round, which the client gets if no other round follows.
    last_held: Vec<AgentEvent>,
    started: Instant,
    head_sent: bool,
    /// A tool that must not run twice has run.
    side_effects: Arc<AtomicBool>,
    /// Time spent waiting for models and tools.
    waited: Duration,
    /// Says in the log whose turn it is.
    span: Span,
    /// Time spent in earlier calls of [`Self::next`], waits included.
    spent: Duration,
    /// When the current one began.
    called: Instant,
}

#[derive(Debug)]
enum Phase {
    Asking,
    Answering(Box<Round>),
    Running(Box<Batch>),
    Over,
}

impl Run {
    /// Finds the conversation and prepares the first model call.
    pub(super) async fn start(
        parts: Arc<Parts>,
        mut request: TurnRequest,
    ) -> Result<Self, AgentError> {
        let started = Instant::now();
        let (mut conversation, history) = Conversation::open(&parts, &mut request).await?;
        let owner = &request.caller.owner;
        let keeper = Keeper {
            parts: &parts,
            owner,
            session: conversation.as_ref().and_then(Conversation::session_id),
        };
        let runs_code = request.tools.runs_code();
        let (history, inputs) = keeper.resolve(history, &request.files, runs_code).await?;
        let surroundings = Surroundings::new(&parts, owner, conversation.as_mut(), inputs);
        let quirks = &request.route.quirks;
        let bytes = history.iter().map(|message| message.json().len()).sum();
        let history = give_way(is_long(history.len(), bytes), || {
            transcript::for_upstream(repair(history), quirks)
        });
        let mut transcript = Transcript::default();
        transcript.push(history.iter().map(Message::json));
        let machine = Machine::new(parts.policies.for_turn(TurnFacts {
            owner,
            options: &request.options,
            started_at: unix_seconds(),
        }));
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
            surroundings,
            produced: HashSet::new(),
            inline_left: MAX_INLINE_BYTES,
            machine,
            transcript,
            phase: Phase::Asking,
            ready: VecDeque::new(),
            spoken: Spoken::default(),
            usage: None,
            usage_by_round: Vec::new(),
            notices: Vec::new(),
            finish_reason: FinishReason::Stop,
            last_held: Vec::new(),
            started,
            head_sent: false,
            side_effects: Arc::default(),
            waited: Duration::ZERO,
            span,
            spent: started.elapsed(),
            called: started,
        })
    }

    /// The session's id, if the conversation is stored.
    pub fn session_id(&self) -> Option<&crate::ids::SessionId> {
        self.conversation
            .as_ref()
            .and_then(Conversation::session_id)
    }

    /// Set once a tool has run that must not run twice; tells it even of a run that is given up half-way.
    pub fn side_effects_flag(&self) -> Arc<AtomicBool> {
        self.side_effects.clone()
    }

    /// The next event; none once the run is over.
    ///
    /// # Errors
    /// When no upstream gives an answer, or at a limit with `on_limit: "error"`. The run is over then.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future means to drop the run, which ends everything below it.
    pub async fn next(&mut self) -> Result<Option<AgentEvent>, RunError> {
        self.called = Instant::now();
        let span = self.span.clone();
        let advanced = self.advance().instrument(span).await;
        self.spent += self.called.elapsed();
        match advanced {
            Ok(event) => Ok(event),
            Err(error) => {
                self.phase = Phase::Over;
                Err(RunError {
                    error,
                    side_effects: self.side_effects.load(Ordering::Relaxed),
                    waited: self.waited,
                })
            }
        }
    }

    /// Time of the turn that was spent neither in a model nor in a tool.
    fn own_time(&self) -> Duration {
        (self.spent + self.called.elapsed()).saturating_sub(self.waited)
    }

    async fn advance(&mut self) -> Result<Option<AgentEvent>, AgentError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            match &mut self.phase {
                Phase::Asking => self.ask().await?,
                Phase::Answering(round) => {
                    let hold = hold(&self.request);
                    let step = round
                        .step(&self.parts, &self.request, hold, &mut self.waited)
                        .await?;
                    match step {
                        Progress::Event(AgentEvent::Text(text)) => {
                            return Ok(Some(self.spoken.say(text, &mut self.ready)));
                        }
                        Progress::Event(event) => return Ok(Some(event)),
                        Progress::Retried(notice) => self.notify(notice),
                        Progress::Quiet => {}
                        Progress::Ended => self.answered().await?,
                    }
                }
                Phase::Running(batch) => {
                    let asked = Instant::now();
                    let step = batch.step().await;
                    self.waited += asked.elapsed();
                    match step {
                        BatchStep::Event(AgentEvent::Notice(notice)) => self.notify(notice),
                        BatchStep::Event(event) => {
                            if let AgentEvent::File(file) = &event {
                                self.produced.insert(file.path.clone());
                            }
                            return Ok(Some(event));
                        }
                        BatchStep::Ended => self.ran().await?,
                    }
                }
                Phase::Over => return Ok(None),
            }
        }
    }

    /// Asks the machine whether the model is called again, and calls it.
    async fn ask(&mut self) -> Result<(), AgentError> {
        let offer = match self.machine.before_model_call(self.started.elapsed()) {
            BeforeModelCall::Call(offer) => offer,
            BeforeModelCall::Finish(reason) => {
                let held = std::mem::take(&mut self.last_held);
                self.release(held);
                self.limit_notice(reason);
                return self
                    .finish(reason, vec![visible(transcript::said(""))])
                    .await;
            }
            BeforeModelCall::Fail(reason) => return Err(AgentError::Limit(reason)),
        };
        if let Offer::Withheld(reason) = offer {
            self.limit_notice(reason);
        }
        self.last_held.clear();
        let call = self.model_call(offer);
        let asked = Instant::now();
        let opened = Round::open(&self.parts, &self.request, call, offer).await;
        self.waited += asked.elapsed();
        let (round, notices) = opened?;
        if !self.head_sent {
            self.head_sent = true;
            self.ready.push_back(AgentEvent::Started {
                headers: round.headers(),
            });
        }
        notices.into_iter().for_each(|notice| self.notify(notice));
        self.spoken.begin_round();
        self.phase = Phase::Answering(Box::new(round));
        Ok(())
    }

    fn model_call(&self, offer: Offer) -> ModelCall {
        let tools = self.request.tools.tools_json();
        let template = &self.request.call;
        let removed = self.request.route.quirks.final_call == FinalCall::RemoveTools;
        let (tools, tool_choice) = match offer {
            _ if tools.is_none() => (None, None),
            Offer::AsAsked => (tools, template.first_choice.clone()),
            Offer::Free => (tools, template.later_choice.clone()),
            Offer::Withheld(_) if removed => (None, None),
            Offer::Withheld(_) => (tools, Some("\"none\"".into())),
        };
        let fields = match tools {
            Some(_) => &template.fields,
            None => &template.fields_without_tools,
        };
        ModelCall {
            model: self.request.model.clone(),
            fields: fields.clone(),
            stream_options: template.stream_options.clone(),
            tools,
            tool_choice,
            transcript: self.transcript.clone(),
            headers: self.request.caller.headers.clone(),
        }
    }

    /// Deals with a model's whole answer.
    async fn answered(&mut self) -> Result<(), AgentError> {
        let Phase::Answering(round) = std::mem::replace(&mut self.phase, Phase::Over) else {
            return Ok(());
        };
        let Round {
            assembler, held, ..
        } = *round;
        let mut turn = assembler.finish(self.request.route.quirks.call_ids);
        self.count(&turn);
        self.finish_reason = turn.finish.clone();
        let model_calls: Vec<ToolCall> = std::mem::take(&mut turn.calls)
            .into_iter()
            .map(|assembled| assembled.call)
            .collect();
        let bytes: usize = model_calls.iter().map(|call| call.arguments.len()).sum();
        // Checking and mending is bounded for each call; many or large ones add up.
        let long = model_calls.len() > MANY_CALLS || bytes > LARGE_ARGUMENTS;
        let resolver = Resolver {
            tools: &self.request.tools,
            gate: &self.parts.gate,
            cut_off: turn.finish == FinishReason::Length,
        };
        let resolved = give_way(long, || resolver.resolve(model_calls));
        let facts: Vec<_> = resolved.iter().map(|call| call.facts).collect();
        match self
            .machine
            .after_model_call(&turn.finish, turn.usage.as_ref(), &facts)
        {
            AfterModelCall::Finish(reason) => {
                self.release(held);
                let end = vec![visible(transcript::assistant(
                    &turn,
                    &[],
                    &self.request.route.quirks,
                ))];
                self.spoken.end_round(&turn.text);
                self.finish(reason, end).await
            }
            AfterModelCall::Abandon(reason) => {
                self.release(held);
                self.limit_notice(reason);
                let end = self.unrun(&turn, &resolved);
                self.finish(reason, end).await
            }
            AfterModelCall::Fail(reason) => {
                let end = self.unrun(&turn, &resolved);
                self.store(end, Vec::new()).await;
                Err(AgentError::Limit(reason))
            }
            AfterModelCall::Batch(decisions) => {
                self.begin_batch(turn, held, resolved, decisions).await
            }
        }
    }

    async fn begin_batch(
        &mut self,
        turn: Turn,
        held: Vec<AgentEvent>,
        resolved: Vec<ResolvedCall>,
        decisions: Vec<CallDecision>,
    ) -> Result<(), AgentError> {
        self.spoken.end_round(&turn.text);
        let held = match self.request.options.text {
            TextMode::All => {
                self.release(held);
                Vec::new()
            }
            TextMode::Final => self.release_reasoning(held),
        };
        // What a tool does is not undone by a crash: the rounds before it must be safe first.
        self.settle().await;
        let side_effects = resolved.iter().zip(&decisions).any(|(call, decision)| {
            *decision == CallDecision::Run
                && call
                    .runnable
                    .as_ref()
                    .is_some_and(|(tool, _)| !tool.policy().idempotent)
        });
        self.side_effects.fetch_or(side_effects, Ordering::Relaxed);
        let session_id = self.session_id().cloned();
        let context = BatchContext::new(
            &self.parts,
            &self.request,
            session_id,
            &self.surroundings,
            &self.machine,
        )
        .with_room(self.inline_left)
        .until(self.started, self.request.options.limits.max_duration);
        self.phase = Phase::Running(Box::new(Batch::start(
            context, turn, held, resolved, decisions,
        )));
        Ok(())
    }

    /// Deals with a finished batch.
    async fn ran(&mut self) -> Result<(), AgentError> {
        let Phase::Running(batch) = std::mem::replace(&mut self.phase, Phase::Over) else {
            return Ok(());
        };
        let next = self
            .machine
            .after_batch(batch.decisions(), &batch.terminates());
        let finished = batch.finish();
        self.inline_left = finished.inline_left;
        self.transcript
            .push(finished.messages.iter().map(|stored| stored.message.json()));
        match next {
            AfterBatch::Continue => {
                self.last_held = finished.held;
                self.push(finished.messages);
                if let Some(conversation) = &mut self.conversation {
                    conversation.save(Vec::new());
                }
                self.phase = Phase::Asking;
                Ok(())
            }
            AfterBatch::Finish(reason) => {
                self.release(finished.held);
                if reason == StopReason::TerminatedByTool && self.spoken.round_is_silent() {
                    self.speak(finished.contents.join("\n\n"));
                }
                self.finish_with_calls(reason, finished.messages, finished.client_calls)
                    .await
            }
        }
    }
}

fn hold(request: &TurnRequest) -> Hold {
    match (request.streamed, request.options.text) {
        (false, _) => Hold::Everything,
        (true, TextMode::Final) => Hold::Text,
        (true, TextMode::All) => Hold::Nothing,
    }
}
