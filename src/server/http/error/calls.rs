//! Errors of calls outside of a turn.

use http::StatusCode;

use super::ApiError;
use super::codes::{self, ErrorCode};
use agent::direct::CallRequestError;
use policy::rules::RuleRef;
use protocol::ids::shown;
use protocol::openai::request::RequestError;

/// Most names of tools that an error lists; others are left out.
/// Tried by `direct::an_unknown_tool_is_a_404_that_names_those_that_exist`.
const MOST_NAMES: usize = 40;

impl ApiError {
    /// For a call that cannot be made: 404 for a tool that the caller is not offered, or 400 for arguments that it does not
    /// take.
    pub(in crate::http) fn of_call(tool: &str, error: CallRequestError) -> Self {
        let known = match error {
            CallRequestError::Arguments(problem) => {
                return RequestError::field("arguments", problem).into();
            }
            CallRequestError::UnknownTool { known } => known,
        };
        let tool = shown(tool);
        let left_out = known.len().saturating_sub(MOST_NAMES);
        let listed: Vec<&str> = known.iter().map(String::as_str).take(MOST_NAMES).collect();
        let listed = match (listed.join(", "), left_out) {
            (_, 0) if known.is_empty() => "this caller is offered none".to_owned(),
            (names, 0) => format!("the tools are {names}"),
            (names, more) => {
                format!("the tools are {names}, and {more} more; see GET /v1/agent/tools")
            }
        };
        codes::NOT_FOUND.with(format!("there is no tool '{tool}'; {listed}"))
    }

    /// For the session of a call.
    pub(super) fn no_session() -> Self {
        let problem = "'session_id' names no session of this caller; leave it out, or make the session with a chat request or \
                       PUT /v1/sessions/{id}";
        codes::NOT_FOUND.with(problem).about("session_id")
    }

    /// For a call about which a person would have to decide.
    pub(super) fn approval_required(
        tool: &str,
        reason: Option<&str>,
        rule: Option<&RuleRef>,
    ) -> Self {
        let asks = match rule {
            Some(RuleRef { level, index }) => {
                let level = serde_json::to_value(level).unwrap_or_default();
                let level = level.as_str().unwrap_or_default().to_owned();
                format!("the rule with the index {index} of the level '{level}'")
            }
            None => "agent_permission or a hook".to_owned(),
        };
        let reason = reason.map(|reason| format!(" ({reason})"));
        codes::APPROVAL_REQUIRED.with(format!(
            "this call of '{}' needs an approval, as {asks} says{}, and a call outside of a turn cannot wait for one; nothing was \
             done. Have the model make it in a chat, or change the rule",
            shown(tool),
            reason.unwrap_or_default()
        ))
    }

    /// The refusal of a message of an MCP client by the transport.
    #[cfg_attr(
        not(feature = "mcp"),
        expect(dead_code, reason = "the stand-in has no transport")
    )]
    pub(in crate::http) fn mcp(status: StatusCode, problem: &str) -> Self {
        let code = ErrorCode {
            status,
            ..codes::INVALID
        };
        code.with(format!("the MCP message is refused: {}", problem.trim()))
    }
}
