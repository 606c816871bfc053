//! `GET /v1/agent/approvals` and `POST /v1/agent/approvals/{id}`: the calls that wait for a person's decision, and the decision.

use std::collections::HashMap;

use axum::Json;
use axum::extract::{Extension, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::error::ApiError;
use super::extract::Path;
use super::{AppState, body, reads};
use agent::runs::{RunRecordState, RunStatus};
use agent::session::{
    Approval, ApprovalDecision, ApprovalState, ApprovalVerdict, Decided, Remember, WaitingFilter,
};
use policy::rules::RuleRef;
use protocol::ids::{ApprovalId, Owner, SessionId};
use protocol::openai::request::{RequestError, body_member, body_object, one_of, refuse_unknown};
use quota::ReservedMemory;
use tools::repair::Repaired;

/// Most entries of a list. Those that wait behind them come once these are decided.
/// Tried by `approvals::lists_are_of_the_own_key_and_operators_see_all`.
const MOST_LISTED: usize = 1000;
/// Most bytes of the arguments of a list, besides those of its first entry. The other entries come once these are decided.
/// Tried by `approvals::large_arguments_crowd_nobody_out_of_the_list_of_an_operator`.
const MOST_LISTED_BYTES: u64 = 16 * 1024 * 1024;

/// The body of `POST /v1/agent/approvals/{id}`.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct DecisionRequest {
    /// Whether the call runs.
    #[schemars(extend("enum" = ["approve", "deny"]))]
    decision: String,
    /// What the model is told with a denial.
    message: Option<String>,
    /// Other arguments for the call, in the place of those that were shown.
    arguments: Option<Map<String, Value>>,
    /// `true`: later calls of the session that the same rule asks about, with the same value of its argument, run. `"tool"`: all
    /// later calls of the tool.
    #[schemars(extend("enum" = [true, false, "tool", null]))]
    remember_for_session: Option<Value>,
}

/// The answer to a decision.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct DecisionAnswer {
    /// `resolved`: a stream goes on. `queued`: the next request of the session goes on.
    #[schemars(extend("enum" = ["resolved", "queued"]))]
    status: &'static str,
}

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

/// Whose approvals a caller may see and decide; `None` for those of all keys.
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
pub(super) async fn list(
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

/// As many calls as there is room for, the oldest first. Each owner's oldest come before the next ones of any.
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

/// Decides about a call.
pub(super) async fn decide(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let unknown = || ApiError::not_found("no approval has this id");
    let id = ApprovalId::parse(&id).ok_or_else(unknown)?;
    let seen_by = seen_by(&state, &owner);
    let store = &state.sessions.store;
    let unstored = state.agent.unstored();
    let in_memory = unstored.find(seen_by.as_ref(), &id);
    let is_stored = in_memory.is_none();
    let found = match in_memory {
        Some(found) => found,
        None => (store.find_approval(seen_by.as_ref(), &id).await?).ok_or_else(unknown)?,
    };
    let (head, request_body) = request.into_parts();
    body::require_json(&head.headers)?;
    let bytes = body::read(&state, &owner, request_body, &head.headers).await?;
    let asked = AskedDecision::read(&bytes)?;
    if found.state != ApprovalState::Waiting {
        // Whoever made the decision may have gone before the turn was told.
        state.agent.look_again();
        return Err(ApiError::approval_decided());
    }
    let decision = asked.checked(&state, &found)?;
    let decider = seen_by.as_ref();
    let decided = match is_stored {
        true => store.decide_approval(decider, &id, &decision).await?,
        // The memory of the decision is held as long as its turn runs.
        false => unstored.decide(decider, &id, &decision, Box::new(bytes.into_kept())),
    };
    match decided {
        Decided::NotFound => Err(unknown()),
        Decided::Already => {
            state.agent.look_again();
            Err(ApiError::approval_decided())
        }
        Decided::Now(approval) => {
            let session = is_stored.then_some(&approval.session);
            state.agent.decided(&owner, &approval, session);
            let status = match !is_stored || is_running(&state, &approval).await? {
                true => "resolved",
                false => "queued",
            };
            Ok(Json(DecisionAnswer { status }).into_response())
        }
    }
}

/// Whether the run that asked still runs, here or in another process.
async fn is_running(state: &AppState, approval: &Approval) -> Result<bool, ApiError> {
    let run = &approval.question.run;
    let of_session = state.runs.of_session(&approval.owner, &approval.session);
    if of_session.is_some() {
        return Ok(true);
    }
    let store = &state.sessions.store;
    if !store.is_shared() {
        return Ok(false);
    }
    let record = store.run(&approval.owner, run).await?;
    Ok(record.is_some_and(|record| matches!(record.state, RunRecordState::RunningElsewhere)))
}

/// A decision as the body has it.
struct AskedDecision {
    approves: bool,
    message: Option<String>,
    arguments: Option<Map<String, Value>>,
    remember: Option<Remember>,
}

impl AskedDecision {
    fn read(bytes: &Bytes) -> Result<Self, RequestError> {
        let body = body_object(bytes)?;
        let members = ["decision", "message", "arguments", "remember_for_session"];
        refuse_unknown(&body, &members)?;
        let words = [("approve", true), ("deny", false)];
        let word: Option<String> = body_member(&body, "decision", "\"approve\" or \"deny\"")?;
        let problem = "is missing; send \"approve\" or \"deny\"";
        let word = word.ok_or_else(|| RequestError::invalid("decision", problem))?;
        let approves = one_of("decision", &word, &words)?;
        let remembered: Option<Value> = body_member(&body, "remember_for_session", "a value")?;
        let remember = match remembered {
            None | Some(Value::Bool(false)) => None,
            Some(Value::Bool(true)) => Some(Remember::Same),
            Some(word) if word == json!("tool") => Some(Remember::Tool),
            Some(_) => {
                let problem = "must be true, false or \"tool\"";
                return Err(RequestError::invalid("remember_for_session", problem));
            }
        };
        let arguments = body_member(&body, "arguments", "an object")?;
        let of_denial = [
            ("arguments", arguments.is_some()),
            ("remember_for_session", remember.is_some()),
        ];
        if let Some((param, _)) = of_denial.into_iter().find(|(_, given)| *given && !approves) {
            return Err(RequestError::invalid(
                param,
                "is for \"approve\" only; leave it out",
            ));
        }
        Ok(Self {
            approves,
            message: body_member(&body, "message", "a string")?,
            arguments,
            remember,
        })
    }

    /// The decision, whose arguments are such as the tool takes.
    fn checked(self, state: &AppState, approval: &Approval) -> Result<ApprovalDecision, ApiError> {
        let edited = self.arguments.map(|arguments| {
            let text = Value::Object(arguments).to_string();
            let sources = state.sources.snapshot_for(&approval.owner);
            let Some(tool) = sources.tool_named(&approval.question.tool) else {
                // Of an MCP server that the request declares: checked before the call runs.
                return Ok(text);
            };
            let Repaired { arguments, .. } = state.agent.gate().prepare(&*tool, &text);
            match arguments {
                Ok(arguments) => Ok(Value::Object(arguments).to_string()),
                Err(error) => Err(RequestError::field("arguments", error.message)),
            }
        });
        let edited = edited.transpose()?;
        Ok(ApprovalDecision {
            verdict: match self.approves {
                true => ApprovalVerdict::Approve { edited },
                false => ApprovalVerdict::Deny,
            },
            message: self.message,
            remember: self.remember,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::session::ApprovalQuestion;
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
