//! Calls of turns that are not stored: a person can decide about them while their streams wait. They are known to this
//! process alone, and as long as their turns run.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::unix_seconds;
use crate::session::{Approval, ApprovalDecision, ApprovalQuestion, ApprovalState, Decided};
use protocol::ids::{ApprovalId, Owner, RunId, SessionId};

/// The questions of all turns that are not stored.
#[derive(Debug, Default)]
pub struct UnstoredApprovals(Mutex<BTreeMap<ApprovalId, UnstoredApproval>>);

#[derive(Debug)]
struct UnstoredApproval {
    approval: Approval,
    /// The share of memory that the decision holds.
    _held: Option<Box<dyn Any + Send + Sync>>,
}

/// The questions of one turn. They end with it.
#[derive(Debug)]
pub(super) struct UnstoredQuestions {
    all: Arc<UnstoredApprovals>,
    run: RunId,
}

impl UnstoredApprovals {
    /// The calls of an owner that can be decided now, the oldest first; of all owners without one.
    pub fn waiting(&self, owner: Option<&Owner>) -> Vec<Approval> {
        let all = self.0.lock();
        let all = all.values().map(|one| &one.approval);
        all.filter(|approval| is_of(approval, owner))
            .map(current)
            .filter(|approval| approval.state == ApprovalState::Waiting)
            .collect()
    }

    /// The bytes of the arguments of these calls.
    pub fn waiting_bytes(&self, owner: Option<&Owner>) -> u64 {
        let all = self.0.lock();
        let all = all.values().map(|one| &one.approval);
        let mine = all.filter(|approval| is_of(approval, owner));
        mine.map(|approval| approval.question.arguments.len() as u64)
            .sum()
    }

    /// The question with this id, if it belongs to the owner.
    pub fn find(&self, owner: Option<&Owner>, id: &ApprovalId) -> Option<Approval> {
        let all = self.0.lock();
        let approval = &all.get(id)?.approval;
        is_of(approval, owner).then(|| current(approval))
    }

    /// Decides once about a call, if it belongs to the owner. What the decision holds is held until the turn ends.
    pub fn decide(
        &self,
        owner: Option<&Owner>,
        id: &ApprovalId,
        decision: &ApprovalDecision,
        held: Box<dyn Any + Send + Sync>,
    ) -> Decided {
        let mut all = self.0.lock();
        let found = all.get_mut(id);
        let Some(found) = found.filter(|found| is_of(&found.approval, owner)) else {
            return Decided::NotFound;
        };
        let approval = &mut found.approval;
        if current(approval).state != ApprovalState::Waiting {
            return Decided::Already;
        }
        approval.state = decision.verdict.state();
        approval.message.clone_from(&decision.message);
        approval.edited = decision.verdict.edited().map(str::to_owned);
        approval.remember = decision.remember;
        approval.decided_at = Some(unix_seconds());
        found._held = Some(held);
        Decided::Now(Box::new(approval.clone()))
    }
}

fn is_of(approval: &Approval, owner: Option<&Owner>) -> bool {
    owner.is_none_or(|owner| approval.owner == *owner)
}

/// The question as it stands now.
fn current(approval: &Approval) -> Approval {
    let mut approval = approval.clone();
    let is_over = approval.question.expires_at <= unix_seconds();
    if is_over && approval.state == ApprovalState::Waiting {
        approval.state = ApprovalState::Expired;
    }
    approval
}

impl UnstoredQuestions {
    /// The questions of this run. It has none yet.
    pub(super) fn new(all: Arc<UnstoredApprovals>, run: RunId) -> Self {
        Self { all, run }
    }

    /// Asks about these calls. Known questions are not changed.
    pub(super) fn ask(&self, owner: &Owner, questions: Vec<ApprovalQuestion>) {
        let mut all = self.all.0.lock();
        for question in questions {
            let id = question.id.clone();
            let approval = || Approval {
                owner: owner.clone(),
                session: SessionId::fresh(),
                question,
                created_at: unix_seconds(),
                state: ApprovalState::Waiting,
                message: None,
                edited: None,
                remember: None,
                decided_at: None,
            };
            all.entry(id).or_insert_with(|| UnstoredApproval {
                approval: approval(),
                _held: None,
            });
        }
    }

    /// All of them, as they stand now.
    pub(super) fn all(&self) -> Vec<Approval> {
        let all = self.all.0.lock();
        let all = all.values().map(|one| &one.approval);
        let mine = all.filter(|approval| approval.question.run == self.run);
        mine.map(current).collect()
    }

    /// Marks the waiting calls as expired.
    pub(super) fn expire(&self) {
        let mut all = self.all.0.lock();
        let all = all.values_mut().map(|one| &mut one.approval);
        let mine = all.filter(|approval| approval.question.run == self.run);
        for approval in mine.filter(|approval| approval.state == ApprovalState::Waiting) {
            approval.state = ApprovalState::Expired;
        }
    }
}

impl Drop for UnstoredQuestions {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        all.retain(|_, one| one.approval.question.run != self.run);
    }
}
