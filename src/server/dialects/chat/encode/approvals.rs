//! Calls that wait for a person's decision: the event on a stream, and the entries of `agent.approvals`.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::arguments::as_json;
use agent::event::{RuleRef, ToolKind, ToolSource, WaitingCall};
use protocol::ids::{ApprovalId, SessionId};

/// The name of the event.
pub(super) const APPROVAL_REQUIRED: &str = "agentic_tool_approval_required";

/// A call waits for a person's decision: `POST /v1/agent/approvals/{approval_id}`.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ApprovalRequiredEvent<'a> {
    #[serde(rename = "type")]
    #[schemars(extend("const" = APPROVAL_REQUIRED))]
    kind: &'static str,
    approval_id: &'a ApprovalId,
    /// `null` for a turn that is not stored.
    session_id: Option<&'a SessionId>,
    /// The round, from 0.
    round: u32,
    /// The id of the call.
    tool_call_id: &'a str,
    tool: ApprovalTool<'a>,
    /// The arguments with which the call would run.
    #[schemars(with = "Value")]
    arguments: Box<RawValue>,
    /// Why a person is asked.
    reason: Option<&'a str>,
    /// The rule that asks; `null` for the word of a level.
    rule: Option<&'a RuleRef>,
    /// Until when it can be decided, in seconds since 1970.
    expires_at: i64,
}

/// The tool of a call that waits.
#[derive(Debug, Serialize, JsonSchema)]
struct ApprovalTool<'a> {
    source: ToolSource,
    kind: ToolKind,
    /// The name of the tool.
    label: &'a str,
}

/// An entry of `agent.approvals`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PendingApproval<'a> {
    approval_id: &'a ApprovalId,
    /// The session.
    session_id: Option<&'a SessionId>,
    /// The round, from 0.
    round: u32,
    /// The id of the call.
    tool_call_id: &'a str,
    /// The name of the tool.
    tool: &'a str,
    /// The arguments with which the call would run.
    #[schemars(with = "Value")]
    arguments: Box<RawValue>,
    /// Why a person is asked.
    reason: Option<&'a str>,
    /// The rule that asks; `null` for the word of a level.
    rule: Option<&'a RuleRef>,
    /// Until when it can be decided, in seconds since 1970.
    expires_at: i64,
}

impl<'a> ApprovalRequiredEvent<'a> {
    pub(super) fn new(call: &'a WaitingCall, session_id: Option<&'a SessionId>) -> Self {
        let WaitingCall { of, wait } = call;
        Self {
            kind: APPROVAL_REQUIRED,
            approval_id: &wait.id,
            session_id,
            round: of.round,
            tool_call_id: &of.tool_call_id,
            tool: ApprovalTool {
                source: wait.source,
                kind: of.kind,
                label: &of.name,
            },
            arguments: as_json(&of.arguments),
            reason: wait.reason.as_deref(),
            rule: wait.rule.as_ref(),
            expires_at: wait.expires_at,
        }
    }
}

impl<'a> PendingApproval<'a> {
    /// The question about a call, in the session if it is stored.
    pub(crate) fn new(call: &'a WaitingCall, session_id: Option<&'a SessionId>) -> Self {
        let WaitingCall { of, wait } = call;
        Self {
            approval_id: &wait.id,
            session_id,
            round: of.round,
            tool_call_id: &of.tool_call_id,
            tool: &of.name,
            arguments: as_json(&of.arguments),
            reason: wait.reason.as_deref(),
            rule: wait.rule.as_ref(),
            expires_at: wait.expires_at,
        }
    }
}
