//! Joins a request to a stored conversation, and closes what an interrupted turn left open in it.

use super::super::approvals::is_waiting_sentence;
use super::super::call::Call;
use super::super::suspended_turn::{ShownPart, SuspendedTurn};
use super::super::transcript::text_answer;
use super::super::turn::TurnRequest;
use super::is_long;
use crate::session::merge::MergePlan;
use crate::session::{
    Change, SessionMode, StoredMessage, StoredSession, interrupted_results, merge,
};
use net::polling::{LONG_BYTES, block_in_place_if};
use protocol::openai::citation::CitedSource;
use protocol::openai::message::{Message, Role};
use tools::refusal::CallRefusal;

/// A request that is joined to the history of its session.
#[derive(Debug)]
pub(super) struct JoinedRequest {
    /// The suspended turn that the request resumes.
    pub(super) suspended: Option<SuspendedTurn>,
    /// Messages of the request that follow the batch of that turn.
    pub(super) follow: Vec<Message>,
    pub(super) change: Change,
    /// The messages of the next model call.
    pub(super) history: Vec<Message>,
}

/// Resumes the suspended turn of a session, or joins the messages of the request to the history without it. The calls that the
/// turn leaves open have results then.
pub(super) fn resume_or_join(
    stored: &mut StoredSession,
    request: &TurnRequest,
    mut suspended: Option<SuspendedTurn>,
    (incoming, mode): (Vec<Message>, SessionMode),
    shows_answer: bool,
) -> JoinedRequest {
    let plan = suspended
        .as_mut()
        .and_then(|suspended| plan_of_resumed(stored, mode, suspended, &incoming, shows_answer));
    let Some(mut plan) = plan else {
        let results = open_results(stored, request, suspended);
        stored.messages.extend(results);
        let (change, history) = join(stored, mode, incoming);
        return JoinedRequest {
            suspended: None,
            follow: Vec::new(),
            change,
            history,
        };
    };
    let follow = std::mem::take(&mut plan.new);
    let (change, history) = planned(stored, plan);
    JoinedRequest {
        suspended,
        follow,
        change,
        history,
    }
}

/// How a request resumes the suspended turn of its session: its new messages follow the batch of that turn. `None` if
/// the conversation continues without that turn. A request without new messages resumes it. A request with new messages
/// resumes it once a person has decided about a call: the decided calls run first, and undecided calls are abandoned.
/// `shows_answer` says whether the request contains the answer that the turn has given so far.
fn plan_of_resumed(
    stored: &mut StoredSession,
    mode: SessionMode,
    suspended: &mut SuspendedTurn,
    incoming: &[Message],
    shows_answer: bool,
) -> Option<MergePlan> {
    let plan = match incoming {
        [] => MergePlan {
            instructions: None,
            keep: stored.messages.len(),
            new: Vec::new(),
        },
        incoming => plan_with(stored, mode, suspended, incoming),
    };
    if plan.keep != stored.messages.len() {
        return None;
    }
    if !plan.new.is_empty() {
        if !suspended.has_decision() || suspended.batch.calls.iter().any(Call::is_of_client) {
            return None;
        }
        suspended.leave_waiting();
    }
    suspended.shown = match (plan.new.is_empty(), shows_answer) {
        (false, _) => ShownPart::NewMessage,
        (true, true) => ShownPart::Earlier,
        (true, false) => ShownPart::Nothing,
    };
    if suspended.shown == ShownPart::Nothing {
        suspended.find_results(&stored.messages);
    }
    Some(plan)
}

/// How the messages of a request relate to a session with a suspended turn. A client may have the turn's answer so far
/// as a message without the sentence.
fn plan_with(
    stored: &mut StoredSession,
    mode: SessionMode,
    suspended: &SuspendedTurn,
    incoming: &[Message],
) -> MergePlan {
    let long = is_long_join(stored, incoming);
    let plan_of = |stored: &StoredSession| {
        block_in_place_if(long, || merge::plan(stored, incoming.to_vec(), mode))
    };
    let plan = plan_of(stored);
    let is_new_answer = plan.new.first().map(Message::role) == Some(&Role::Assistant);
    let Some(last) = stored.messages.last_mut().filter(|_| is_new_answer) else {
        return plan;
    };
    last.view = Some(suspended.said.view());
    let shown = plan_of(stored);
    if let Some(last) = stored.messages.last_mut() {
        last.view = None;
    }
    match shown.keep == stored.messages.len() {
        true => shown,
        false => plan,
    }
}

/// Removes from a client's messages the sentence that reports waiting calls; also returns how the messages relate to
/// the history. If the turn was resumed and the client has not seen its answer, the answer replaces the sentence.
pub(super) fn without_sentence(
    stored: &StoredSession,
    incoming: Vec<Message>,
    mode: SessionMode,
) -> (Vec<Message>, SessionMode) {
    if !incoming.iter().any(is_waiting_sentence) {
        return (incoming, mode);
    }
    let mut users = 0;
    let mut messages = Vec::with_capacity(incoming.len());
    let mut incoming = incoming.into_iter().peekable();
    while let Some(message) = incoming.next() {
        users += usize::from(*message.role() == Role::User);
        if !is_waiting_sentence(&message) {
            messages.push(message);
            continue;
        }
        let is_answered = incoming
            .peek()
            .is_some_and(|next| *next.role() == Role::Assistant);
        if !is_answered {
            messages.extend(answer_after(stored, users).map(text_answer));
        }
    }
    // Only a client that repeats the conversation has the sentence.
    let mode = match mode {
        SessionMode::Auto if !messages.is_empty() => SessionMode::Replay,
        mode => mode,
    };
    (messages, mode)
}

/// The text of the stored answer that follows this number of user messages.
fn answer_after(stored: &StoredSession, users: usize) -> Option<&str> {
    let mut before = 0;
    let mut answers = stored.messages.iter().filter_map(|stored| {
        before += usize::from(*stored.message.role() == Role::User && !stored.hidden);
        Some((before, stored.view.as_ref()?))
    });
    let (_, view) = answers.find(|(before, _)| *before == users)?;
    Some(&view.text)
}

/// Takes the turn that the session keeps.
pub(in super::super) fn take_suspended(stored: &mut StoredSession) -> Option<SuspendedTurn> {
    let turn = stored.turn.take()?;
    let long = turn.len() > LONG_BYTES;
    block_in_place_if(long, || SuspendedTurn::read(&turn, &stored.messages))
}

/// The results of the unanswered calls at the end of a session. A suspended turn has some of these results.
pub(super) fn open_results(
    stored: &StoredSession,
    request: &TurnRequest,
    suspended: Option<SuspendedTurn>,
) -> Vec<StoredMessage> {
    let Some(SuspendedTurn { mut batch, .. }) = suspended else {
        return interrupted_results(stored, |name| {
            CallRefusal::interrupted(request.tools.is_read_only(name)).text
        });
    };
    batch.give_up();
    // The assistant message with the calls is stored already.
    let messages = batch.into_results().messages.into_iter();
    messages.skip(1).collect()
}

pub(super) fn join(
    stored: &StoredSession,
    mode: SessionMode,
    incoming: Vec<Message>,
) -> (Change, Vec<Message>) {
    block_in_place_if(is_long_join(stored, &incoming), || {
        planned(stored, merge::plan(stored, incoming, mode))
    })
}

/// The change that follows from a plan, and the history for the model.
fn planned(stored: &StoredSession, joined: MergePlan) -> (Change, Vec<Message>) {
    let history = merge::history(stored, &joined);
    let change = Change {
        instructions: joined.instructions,
        keep: joined.keep,
        append: joined.new.into_iter().map(StoredMessage::visible).collect(),
        ..Change::default()
    };
    (change, history)
}

fn is_long_join(stored: &StoredSession, incoming: &[Message]) -> bool {
    let messages = stored.messages.len() + incoming.len();
    let stored = stored.messages.iter().map(|stored| &stored.message);
    let bytes = stored.chain(incoming).map(|message| message.json().len());
    is_long(messages, bytes.sum())
}

/// The sources of the stored tool results that the change keeps.
pub(super) fn sources(stored: &StoredSession, change: &Change) -> Vec<CitedSource> {
    let kept = stored.messages.iter().take(change.keep);
    kept.flat_map(|stored| stored.sources.iter().cloned())
        .collect()
}
