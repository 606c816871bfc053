//! `GET /v1/agent/approvals`: the calls that wait for a person's decision.

pub(super) mod decision;

use std::collections::HashMap;

use axum::extract::{Extension, State};
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::error::{ApiError, codes};
use super::openapi::operation::Operation;
use super::routes::ApiEndpoint;
use super::{AppState, reads};
use agent::runs::RunStatus;
use agent::session::{Approval, WaitingFilter};
use policy::rules::RuleRef;
use protocol::ids::{ApprovalId, Owner, SessionId};
use quota::ReservedMemory;

/// Most entries of a list. Those that wait behind them come once these are decided.
/// Tried by `approvals::lists_are_of_the_own_key_and_operators_see_all`.
const MOST_LISTED: usize = 1000;
/// Most bytes of the arguments of a list, besides those of its first entry. The other entries come once these are decided.
/// Tried by `approvals::large_arguments_crowd_nobody_out_of_the_list_of_an_operator`.
const MOST_LISTED_BYTES: u64 = 16 * 1024 * 1024;

/// The calls that wait for a decision.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ApprovalList {
    data: Vec<ListedApproval>,
    #[schemars(extend("const" = "list"))]
    object: &'static str,
}

/// A call that waits for a decision.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ListedApproval {
    approval_id: ApprovalId,
    /// The arguments with which the call would run.
    #[schemars(with = "Value")]
    arguments: Box<RawValue>,
    /// Until when it can be decided, in seconds since 1970.
    expires_at: i64,
    /// Why a person is asked.
    reason: Option<String>,
    /// The round, from 0.
    round: u32,
    /// The rule that asks; `null` for the word of a level.
    rule: Option<RuleRef>,
    /// The run that asked, by the id of its chat completion.
    run_id: String,
    /// `null` for a turn that is not stored.
    session_id: Option<SessionId>,
    /// The name of the tool.
    tool: String,
    /// The id of the call.
    tool_call_id: String,
}

impl From<Approval> for ListedApproval {
    fn from(approval: Approval) -> Self {
        let question = approval.question;
        let rule = question.rule;
        Self {
            approval_id: question.id,
            arguments: RawValue::from_string(question.arguments).unwrap_or_default(),
            expires_at: question.expires_at,
            reason: question.reason,
            round: question.round,
            rule: rule.and_then(|rule| serde_json::from_str(&rule).ok()),
            run_id: question.run.completion_id(),
            session_id: Some(approval.session),
            tool: question.tool,
            tool_call_id: question.tool_call_id,
        }
    }
}

impl ListedApproval {
    /// The entry of a turn that is not stored.
    fn unstored(approval: Approval) -> Self {
        Self {
            session_id: None,
            ..Self::from(approval)
        }
    }
}

/// The owner whose approvals a caller may see and decide; `None` for the approvals of all keys.
fn seen_by(state: &AppState, owner: &Owner) -> Option<Owner> {
    let is_operator = state.access.get().authenticator.is_named_operator(owner);
    (!is_operator).then(|| owner.clone())
}

/// The calls of the session of a run that wait for a decision, and their memory.
pub(super) async fn of_run(
    state: &AppState,
    owner: &Owner,
    run: &RunStatus,
) -> Result<(Vec<ListedApproval>, ReservedMemory), ApiError> {
    let Some(session) = &run.session_id else {
        return Ok((Vec::new(), state.reads.empty(owner)));
    };
    let store = &state.sessions.store;
    let bytes = store.waiting_bytes_in(owner, session).await?;
    let memory = reads::reserve(state, owner, bytes.saturating_mul(reads::TEXT_FACTOR)).await?;
    let waiting = store.waiting_in(owner, session).await?.into_iter();
    Ok((waiting.map(ListedApproval::from).collect(), memory))
}

/// Lists the calls that wait for a decision, the oldest first.
async fn list(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
) -> Result<Response, ApiError> {
    let seen_by = seen_by(&state, &owner);
    let filter = WaitingFilter {
        owner: seen_by.as_ref(),
        calls: MOST_LISTED,
        bytes: MOST_LISTED_BYTES,
    };
    let (store, unstored) = (&state.sessions.store, state.agent.unstored());
    let bytes = store.waiting_bytes(filter).await? + unstored.waiting_bytes(filter.owner);
    let memory = reads::reserve(&state, &owner, bytes.saturating_mul(reads::TEXT_FACTOR)).await?;
    let stored = store.waiting_approvals(filter).await?.into_iter();
    let unstored = unstored.waiting(filter.owner).into_iter();
    let all = stored
        .map(|approval| (approval, true))
        .chain(unstored.map(|approval| (approval, false)));
    let listed = shared_out(all.collect()).into_iter();
    let list = ApprovalList {
        data: listed
            .map(|(approval, is_stored)| match is_stored {
                true => ListedApproval::from(approval),
                false => ListedApproval::unstored(approval),
            })
            .collect(),
        object: "list",
    };
    Ok(reads::json(&list, memory))
}

/// The route of the list.
pub(super) fn list_endpoint() -> ApiEndpoint {
    ApiEndpoint::get("/v1/agent/approvals", list, describe_list)
}

fn describe_list(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("listApprovals", "The calls that wait for a person's decision")
        .described("Those of the caller's key; with the key of an operator, those of all keys. The oldest come first.")
        .answers::<ApprovalList>(200, "The calls.")
        .fails(&[codes::ANSWERS_OVERLOADED, codes::SESSION_STORE_UNAVAILABLE])
}

/// Fills the list in turns: the oldest call of each owner, then the second of each.
fn shared_out(mut all: Vec<(Approval, bool)>) -> Vec<(Approval, bool)> {
    all.sort_by(|(one, _), (other, _)| one.question.id.cmp(&other.question.id));
    let mut counts: HashMap<Owner, usize> = HashMap::new();
    let placed = all.into_iter().map(|listed| {
        let count = counts.entry(listed.0.owner.clone()).or_default();
        *count += 1;
        (*count, listed)
    });
    let mut placed: Vec<_> = placed.collect();
    placed.sort_by_key(|(place, _)| *place);
    let mut bytes = 0;
    let fits = |(approval, _): &(Approval, bool)| {
        let is_first = bytes == 0;
        bytes += approval.question.arguments.len() as u64;
        is_first || bytes <= MOST_LISTED_BYTES
    };
    let all = placed.into_iter().map(|(_, listed)| listed);
    let mut listed: Vec<_> = all.take(MOST_LISTED).take_while(fits).collect();
    listed.sort_by(|(one, _), (other, _)| one.question.id.cmp(&other.question.id));
    listed
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::session::ApprovalQuestion;
    use agent::session::ApprovalState;
    use protocol::ids::RunId;

    fn waits(owner: &str, bytes: usize) -> (Approval, bool) {
        let question = ApprovalQuestion {
            id: ApprovalId::fresh(),
            run: RunId::fresh(),
            round: 0,
            tool_call_id: String::new(),
            tool: String::new(),
            arguments: "1".repeat(bytes),
            digest: String::new(),
            scope: String::new(),
            reason: None,
            rule: None,
            expires_at: 0,
        };
        let approval = Approval {
            owner: Owner::key(owner),
            session: SessionId::fresh(),
            question,
            created_at: 0,
            state: ApprovalState::Waiting,
            message: None,
            edited: None,
            remember: None,
            decided_at: None,
        };
        (approval, true)
    }

    #[test]
    fn a_list_has_room_for_each_owner() {
        let large = usize::try_from(MOST_LISTED_BYTES / 3).unwrap();
        for (count, bytes, of_first) in [(2 * MOST_LISTED, 1, MOST_LISTED - 1), (9, large, 3)] {
            let many = (0..count).map(|_| waits("first", bytes));
            let all: Vec<_> = many.chain([waits("second", 1)]).collect();
            let ids: Vec<_> = all.iter().map(|(one, _)| one.question.id.clone()).collect();
            let listed = shared_out(all).into_iter();
            let listed: Vec<_> = listed.map(|(one, _)| one.question.id).collect();
            // The call of the second owner is the oldest.
            let expected = [&ids[count..], &ids[..of_first]].concat();
            assert_eq!(listed, expected, "{bytes}");
        }
        let huge = waits("first", 4 * large);
        assert_eq!(shared_out(vec![huge.clone(), huge]).len(), 1);
    }
}
