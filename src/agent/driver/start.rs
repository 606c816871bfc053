//! The start of a turn: its conversation is opened, its history is resolved, and the first model call is prepared.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::Span;

use super::super::contents::NamedContents;
use super::super::control::TurnControl;
use super::super::conversation::{Conversation, OpenContext, OpenedTurn, is_long};
use super::super::inputs::{InputFiles, Inputs};
use super::super::machine::Machine;
use super::super::policy::{TurnPolicies, TurnRules};
use super::super::prompt::Prompt;
use super::super::said::Figures;
use super::super::suspended_turn::TurnState;
use super::super::transcript::AnswerText;
use super::super::turn::{ToolSet, TurnRequest};
use super::super::turn_bytes::TurnBytes;
use super::super::turn_env::TurnEnv;
use super::super::unstored::UnstoredQuestions;
use super::super::{Agent, AgentError, AgentParts};
use super::{FollowUp, Phase, Run, named_contents};
use crate::session::repair::repair;
use net::polling::block_in_place_if;
use policy::hooks::HookRecord;
use protocol::ids::FileId;
use protocol::openai::message::Message;
use protocol::openai::usage::FinishReason;
use tools::gate::TurnPermissions;
use tools::tool_search::TOOL_SEARCH;
use upstream::messages;

impl Run {
    /// Opens the conversation and prepares the first model call.
    pub(in super::super) async fn start(
        parts: Arc<AgentParts>,
        mut request: TurnRequest,
        control: TurnControl,
    ) -> Result<Self, AgentError> {
        let started = Instant::now();
        let owner = request.caller.owner.clone();
        let OpenedTurn {
            mut conversation,
            history,
            suspended,
            follow,
        } = opened(&parts, &mut request, &control).await?;
        restore_found(&request.tools, &history);
        let messages = (with_instructions(&request, history), follow);
        let resolved = resolve_files(
            parts.input_files(&owner),
            &request,
            conversation.as_mut(),
            messages,
        );
        let (mut history, follow, inputs) = resolved.await?;
        let contents = named_contents(&parts, &request, &mut history).await;
        let container = request.options.container.as_ref();
        let sources = &parts.tools.sources;
        let turn_env = TurnEnv::new(sources, &owner, conversation.as_mut(), container, inputs);
        let prompt = first_prompt(&request, history, contents);
        let answer_text = AnswerText::new(
            request.options.citations.unwrap_or_default(),
            turn_env.sources(),
        );
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
            said: None,
            reported_before: Figures::default(),
            span,
            trace: None,
            spent: started.elapsed(),
            called: started,
            counted: false,
            lease_lost: false,
            is_suspended: false,
        };
        match suspended {
            Some(suspended) => run.resume(suspended).await,
            None => run.said = run.may_be_kept().then(Box::default),
        }
        Ok(run)
    }
}

impl Run {
    /// Whether the turn may have to wait for a person, and is stored then.
    fn may_be_kept(&self) -> bool {
        let gate = &self.parts.tools.gate;
        !self.request.options.ephemeral
            && self.conversation.is_some()
            && gate.may_wait(&self.turn.permissions)
    }
}

/// Opens the conversation of a turn. A turn that resumes gets the fields of its stored draft.
async fn opened(
    parts: &Arc<AgentParts>,
    request: &mut TurnRequest,
    control: &TurnControl,
) -> Result<OpenedTurn, AgentError> {
    let owner = request.caller.owner.clone();
    let context = OpenContext {
        sessions: &parts.sessions,
        tasks: &parts.tasks,
        inputs: parts.input_files(&owner),
    };
    let mut opened = Conversation::open(context, request, control.run()).await?;
    let suspended = opened.suspended.as_mut();
    if let Some(draft) = suspended.and_then(|suspended| suspended.draft.take()) {
        let parts = parts.clone();
        let agent = Agent { parts };
        Box::pin(agent.resume_with(request, *draft)).await;
    }
    Ok(opened)
}

/// The prompt of a history, in which every call gets its result.
fn first_prompt(request: &TurnRequest, history: Vec<Message>, contents: NamedContents) -> Prompt {
    let bytes = history.iter().map(|message| message.json().len()).sum();
    let long = is_long(history.len(), bytes);
    let history = block_in_place_if(long, || repair(history));
    let route = request.route.clone();
    Prompt::new(route, history, contents, request.options.truncates)
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

/// The history behind the instructions of the turn.
fn with_instructions(request: &TurnRequest, history: Vec<Message>) -> Vec<Message> {
    match &request.instructions {
        Some(instructions) => messages::with_instructions(instructions, history),
        None => history,
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

/// The history for the model, the messages that follow a batch, and the input files of the turn. The session uses those that the
/// request names once the turn is written.
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
