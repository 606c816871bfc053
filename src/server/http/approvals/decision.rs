//! `POST /v1/agent/approvals/{id}`: a person's decision about a call that waits.

use axum::Json;
use axum::extract::{Extension, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::super::error::{ApiError, codes};
use super::super::extract::Path;
use super::super::openapi::cases;
use super::super::openapi::operation::Operation;
use super::super::routes::ApiEndpoint;
use super::super::{AppState, body};
use super::seen_by;
use agent::runs::RunRecordState;
use agent::session::{
    Approval, ApprovalDecision, ApprovalState, ApprovalVerdict, Decided, Remember,
};
use protocol::ids::{ApprovalId, Owner};
use protocol::openai::request::{RequestError, body_member, body_object, one_of, refuse_unknown};
use tools::repair::Repaired;

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

/// Decides about a call.
async fn decide(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let unknown = || codes::NOT_FOUND.with("no approval has this id");
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
    let submitted = SubmittedDecision::read(&bytes)?;
    if found.state != ApprovalState::Waiting {
        // The process that stored the decision may have ended before it notified the turn.
        state.agent.recheck_approvals();
        return Err(codes::APPROVAL_DECIDED.into());
    }
    let decision = submitted.checked(&state, &found)?;
    let decider = seen_by.as_ref();
    let decided = match is_stored {
        true => store.decide_approval(decider, &id, &decision).await?,
        // The memory of the decision is held as long as its turn runs.
        false => unstored.decide(decider, &id, &decision, Box::new(bytes.into_kept())),
    };
    match decided {
        Decided::NotFound => Err(unknown()),
        Decided::Already => {
            state.agent.recheck_approvals();
            Err(codes::APPROVAL_DECIDED.into())
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

/// The route of decisions.
pub(in crate::http) fn endpoint() -> ApiEndpoint {
    ApiEndpoint::post("/v1/agent/approvals/{id}", decide, describe_decide)
}

fn describe_decide(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("decideApproval", "Decides about a call that waits")
        .path("id", "The id of the approval.")
        .reads::<DecisionRequest>(true)
        .answers::<DecisionAnswer>(200, "The decision is stored.")
        .fails(&[
            codes::NOT_FOUND,
            codes::APPROVAL_DECIDED,
            codes::SESSION_STORE_UNAVAILABLE,
        ])
        .fails(cases::STORAGE)
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
struct SubmittedDecision {
    approves: bool,
    message: Option<String>,
    arguments: Option<Map<String, Value>>,
    remember: Option<Remember>,
}

impl SubmittedDecision {
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
                // The tool belongs to an MCP server that the request declares: the arguments are checked before the
                // call runs.
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
