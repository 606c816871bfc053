//! The questions of a session, in the forms of the store and of the gate, and the sentence that reports them.

use super::event::WaitingCall;
use crate::session::{Approval, ApprovalQuestion, ApprovalState, Remember};
use protocol::ids::{ApprovalId, Owner, RunId, SessionId, shown};
use protocol::openai::message::{Message, Role};
use tools::ToolSource;
use tools::gate::{ApprovalAnswer, ApprovalRecord, Approvals, GateWait, Grant};

/// The beginning of the sentence that tells of calls that wait. The tools follow, then the ids.
const SENTENCE: &str = "This answer waits for a person's decision about: ";
/// What stands between the tools and the ids.
const IDS: &str = ". Approvals: ";

/// Converts the stored questions of a session for the gate.
pub(super) fn known(stored: Vec<Approval>) -> Approvals {
    Approvals::new(stored.into_iter().map(approval_record).collect())
}

fn approval_record(stored: Approval) -> ApprovalRecord {
    let grant = |remember| match remember {
        Remember::Same => Grant::Same,
        Remember::Tool => Grant::Tool,
    };
    let answer = match stored.state {
        ApprovalState::Waiting => ApprovalAnswer::Waiting,
        ApprovalState::Approved => {
            let edited = stored.edited.as_deref();
            match edited.map(serde_json::from_str).transpose() {
                Ok(edited) => ApprovalAnswer::Approved {
                    edited,
                    grant: stored.remember.map(grant),
                },
                Err(_) => ApprovalAnswer::Denied { message: None },
            }
        }
        ApprovalState::Denied => ApprovalAnswer::Denied {
            message: stored.message,
        },
        ApprovalState::Expired => ApprovalAnswer::Expired,
        ApprovalState::Left => ApprovalAnswer::Left,
    };
    let question = stored.question;
    ApprovalRecord {
        call_id: question.tool_call_id,
        tool: question.tool,
        wait: GateWait {
            id: question.id,
            reason: question.reason,
            rule: question
                .rule
                .and_then(|rule| serde_json::from_str(&rule).ok()),
            source: ToolSource::default(),
            digest: question.digest,
            scope: question.scope,
            expires_at: question.expires_at,
        },
        answer,
    }
}

/// The question of a call as it is stored.
pub(super) fn question(run: &RunId, call: &WaitingCall) -> ApprovalQuestion {
    let WaitingCall { of, wait } = call;
    let rule = wait.rule.as_ref();
    ApprovalQuestion {
        id: wait.id.clone(),
        run: run.clone(),
        round: of.round,
        tool_call_id: of.tool_call_id.clone(),
        tool: of.name.clone(),
        arguments: of.arguments.clone(),
        digest: wait.digest.clone(),
        scope: wait.scope.clone(),
        reason: wait.reason.clone(),
        rule: rule.and_then(|rule| serde_json::to_string(rule).ok()),
        expires_at: wait.expires_at,
    }
}

/// The sentence that reports the waiting calls; `None` if there are none.
pub(super) fn sentence(waiting: &[&WaitingCall]) -> Option<String> {
    let tools: Vec<&str> = waiting.iter().map(|call| call.of.name.as_str()).collect();
    let ids: Vec<&str> = waiting.iter().map(|call| call.wait.id.as_str()).collect();
    let (tools, ids) = (tools.join(", "), ids.join(", "));
    (!waiting.is_empty()).then(|| format!("{SENTENCE}{tools}{IDS}{ids}"))
}

/// Writes who has decided about which call to the log. The call of a turn that is not stored has no session.
pub(super) fn audit(by: &Owner, approval: &Approval, session: Option<&SessionId>) {
    let question = &approval.question;
    tracing::info!(
        target: "audit",
        by = by.name(),
        owner = approval.owner.name(),
        session_id = session.map(SessionId::as_str),
        tool = shown(&question.tool),
        tool_call_id = shown(&question.tool_call_id),
        approval_id = question.id.as_str(),
        arguments = question.digest,
        edited = approval.edited.is_some(),
        decision = word(approval),
        "a person has decided"
    );
}

/// The word of a decision.
pub(super) fn word(approval: &Approval) -> &'static str {
    match approval.state {
        ApprovalState::Approved => "approve",
        _ => "deny",
    }
}

/// Whether a message of the client is, or ends with, the sentence that reports waiting calls.
pub(super) fn is_waiting_sentence(message: &Message) -> bool {
    if *message.role() != Role::Assistant || !message.tool_calls().is_empty() {
        return false;
    }
    let text = message.content_text();
    let rest = text.trim_end().rsplit_once(SENTENCE);
    let ids = rest.and_then(|(_, rest)| rest.rsplit_once(IDS));
    ids.is_some_and(|(_, ids)| ids.split(", ").all(|id| ApprovalId::parse(id).is_some()))
}
