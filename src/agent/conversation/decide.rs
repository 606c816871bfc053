//! The decisions of a request about calls that wait.

use super::super::AgentError;
use super::super::approvals::audit;
use super::super::turn::{ClientDecision, TurnRequest};
use crate::session::{
    ApprovalDecision, ApprovalState, ApprovalVerdict, Decided, Sessions, StoreError,
};
use protocol::ids::{ApprovalId, Owner, SessionId};

/// Stores the decisions of a request about calls of its session. If one of them is not possible, because an approval is
/// unknown or was decided the other way, none is stored. A call that was decided in the same way is not changed.
///
/// # Cancel safety
/// If the future is dropped, some of the decisions may be made, and all are if the request comes again.
pub(super) async fn decide(
    sessions: &Sessions,
    owner: &Owner,
    session: Option<&SessionId>,
    given: &[ClientDecision],
) -> Result<(), AgentError> {
    if given.is_empty() {
        return Ok(());
    }
    let asked = match session {
        Some(session) => sessions.store.approvals(owner, session).await?,
        None => Vec::new(),
    };
    let mut open: Vec<(&ApprovalId, &ClientDecision)> = Vec::new();
    for decision in given {
        let id = decision.id.as_ref();
        let found = id.and_then(|id| {
            let found = asked.iter().find(|asked| asked.question.id == *id)?;
            Some((id, found.state))
        });
        match found {
            None => return Err(refused(decision, false)),
            Some((id, ApprovalState::Waiting)) => open.push((id, decision)),
            Some((_, ApprovalState::Approved)) if decision.approves => {}
            Some((_, ApprovalState::Denied)) if !decision.approves => {}
            Some(_) => return Err(refused(decision, true)),
        }
    }
    for (id, decision) in open {
        match make(sessions, owner, id, decision).await? {
            Decided::Now(approval) => audit(owner, &approval, Some(&approval.session)),
            Decided::Already => return Err(refused(decision, true)),
            Decided::NotFound => return Err(refused(decision, false)),
        }
    }
    Ok(())
}

async fn make(
    sessions: &Sessions,
    owner: &Owner,
    id: &ApprovalId,
    given: &ClientDecision,
) -> Result<Decided, StoreError> {
    let decision = ApprovalDecision {
        verdict: match given.approves {
            true => ApprovalVerdict::Approve { edited: None },
            false => ApprovalVerdict::Deny,
        },
        message: given.reason.clone(),
        remember: None,
    };
    let store = &sessions.store;
    store.decide_approval(Some(owner), id, &decision).await
}

/// The error of a request without messages if no turn of its session waits. If the request has a decision, the call was
/// decided before.
pub(super) fn nothing_waits(request: &TurnRequest) -> AgentError {
    let made = request.decisions.first();
    made.map_or(AgentError::NothingWaits, |made| refused(made, true))
}

/// The error of a request that follows a turn which went on. With a decision, that one was made before.
pub(super) fn no_position(given: &[ClientDecision], error: AgentError) -> AgentError {
    match (error, given.first()) {
        (AgentError::NoPosition, Some(made)) => refused(made, true),
        (error, _) => error,
    }
}

fn refused(decision: &ClientDecision, is_known: bool) -> AgentError {
    AgentError::Approval {
        param: decision.param.clone(),
        is_known,
    }
}
