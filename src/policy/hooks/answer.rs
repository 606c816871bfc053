//! What a hook answers.
//!
//! Owns the meaning of an answer's members, per event. The rules that all events share:
//!
//! - An empty body says nothing. So does `null` as the value of a member.
//! - A body that is not a JSON object, has a member twice, or has a known member with a value that it cannot have is a
//!   failure as a whole: what cannot be understood is not taken as consent. Unknown members are ignored.
//! - `hookSpecificOutput` that names another event is a failure, as it is in Claude Code ("Hook returned incorrect event
//!   name"). It may leave the name out.
//! - `continue: false` comes before every decision of the event. `suppressOutput`, `systemMessage` and
//!   `terminalSequence` are not read.
//!
//! What the decisions lead to is not known here, nor how large a body may be.

mod approver;
mod body;

use serde_json::{Map, Value};

use self::body::{HookMembers, read_body};
use super::event::{POST_TOOL_USE, PRE_MODEL_CALL, PRE_TOOL_USE, STOP};

pub use self::approver::ApproverAnswer;

/// Ends a turn that a hook ends without a text.
const STOPPED: &str = "A hook ended the turn.";
/// Replaces a result that a hook blocks without a reason.
const WITHHELD: &str = "A hook withheld this result.";
/// Asks the model to go on where a hook blocks the end without a reason.
const GO_ON: &str = "A hook does not accept this answer as the last one. Go on with the task.";

/// Why an answer cannot be read. Does not quote the answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HookAnswerError {
    /// It is not JSON, or JSON that cannot be read: too deep, or with a number out of range.
    #[error("the answer is not JSON that can be read (line {line}, column {column})")]
    NotJson {
        /// The line of the fault, from 1.
        line: usize,
        /// The column of the fault, from 1.
        column: usize,
    },
    /// It is JSON, but no object.
    #[error("the answer is not a JSON object")]
    NotObject,
    /// An object in it has a member twice.
    #[error("the answer has an object with a member twice")]
    RepeatedMember,
    /// A member has a value that it cannot have.
    #[error("`{member}` in the answer is not {expected}")]
    WrongValue {
        /// The path of the member.
        member: String,
        /// What it can be.
        expected: &'static str,
    },
    /// It is the answer to another event.
    #[error("`hookSpecificOutput.hookEventName` in the answer is not `{expected}`")]
    OtherEvent {
        /// The event that was sent.
        expected: &'static str,
    },
}

/// What a hook says about a tool call, from the mildest to the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ToolDecision {
    /// It has no objection.
    Allow,
    /// A person is to decide.
    Ask,
    /// The call does not run.
    Deny,
}

/// The answer to `PreToolUse`.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ToolHookAnswer {
    /// The decision; the stricter one where the current and the old form disagree.
    pub(crate) decision: Option<ToolDecision>,
    /// The reason for the decision: for the model of a denial, else for the person.
    pub(crate) reason: Option<String>,
    /// Replaces all the arguments. Absent from a denial.
    pub(crate) updated_input: Option<Map<String, Value>>,
    /// Joins the result.
    pub(crate) additional_context: Option<String>,
    /// The turn ends with this text. The decision is a denial then.
    pub(crate) ends_turn: Option<String>,
}

/// The answer to `PostToolUse`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ResultHookAnswer {
    /// Replaces the result, which becomes an error.
    pub(crate) replaced: Option<String>,
    /// Joins the result.
    pub(crate) additional_context: Option<String>,
    /// Replaces the result's text. Absent where `replaced` is present.
    pub(crate) updated_output: Option<String>,
    /// Counts as the `terminate` of a tool's result.
    pub(crate) terminate: bool,
    /// The turn ends with this text.
    pub(crate) ends_turn: Option<String>,
}

/// The answer to `PreModelCall`.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ModelHookAnswer {
    /// The messages of this call: at least one, each an object. Whether they are chat messages is not checked.
    pub(crate) messages: Option<Vec<Value>>,
    /// Joins the messages of this call.
    pub(crate) additional_context: Option<String>,
    /// The turn ends with this text.
    pub(crate) ends_turn: Option<String>,
}

/// The answer to `Stop`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FinishHookAnswer {
    /// The turn continues with this text for the model.
    pub(crate) blocks: Option<String>,
}

/// The value of `permissionDecision`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PermissionWord {
    Allow,
    Ask,
    Defer,
    Deny,
}

/// The value of `decision` at the top level.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DecisionWord {
    Approve,
    Block,
}

impl ToolHookAnswer {
    /// Reads the body of an answer.
    ///
    /// `permissionDecision` is the current form, `decision` with `approve` or `block` the old one. As in Claude Code,
    /// `defer` counts without its reason, arguments and context.
    ///
    /// # Errors
    /// When the answer cannot be understood.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, HookAnswerError> {
        let Some(mut body) = read_body(body)? else {
            return Ok(Self::default());
        };
        let ends_turn = ends_turn(&mut body)?;
        let old = body
            .word("decision", DECISIONS, "`approve` or `block`")?
            .map(|word| match word {
                DecisionWord::Approve => ToolDecision::Allow,
                DecisionWord::Block => ToolDecision::Deny,
            });
        let old_reason = body.text("reason")?;
        let mut output = body.output(&[PRE_TOOL_USE])?;
        let word = output.word("permissionDecision", PERMISSIONS, PERMISSION_WORDS)?;
        let current = word.map(|word| match word {
            PermissionWord::Allow => ToolDecision::Allow,
            PermissionWord::Ask | PermissionWord::Defer => ToolDecision::Ask,
            PermissionWord::Deny => ToolDecision::Deny,
        });
        let current_reason = output.text("permissionDecisionReason")?;
        let updated_input = output.object("updatedInput")?;
        let additional_context = output.text("additionalContext")?;

        let stop = ends_turn.is_some().then_some(ToolDecision::Deny);
        let Some(decision) = current.max(old).max(stop) else {
            return Ok(Self {
                updated_input,
                additional_context,
                ..Self::default()
            });
        };
        if decision == ToolDecision::Ask && word == Some(PermissionWord::Defer) {
            return Ok(Self {
                decision: Some(decision),
                ..Self::default()
            });
        }
        Ok(Self {
            decision: Some(decision),
            reason: reason_of(decision, [(current, current_reason), (old, old_reason)]),
            updated_input: updated_input.filter(|_| decision != ToolDecision::Deny),
            additional_context,
            ends_turn,
        })
    }
}

impl ResultHookAnswer {
    /// Reads the body of an answer. `continue: false` ends the turn.
    ///
    /// # Errors
    /// When the answer cannot be understood.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, HookAnswerError> {
        let Some(mut body) = read_body(body)? else {
            return Ok(Self::default());
        };
        let ends_turn = ends_turn(&mut body)?;
        let replaced = blocks(&mut body, WITHHELD)?;
        let terminate = body.flag("terminate")?.unwrap_or(false);
        let mut output = body.output(&[POST_TOOL_USE])?;
        let updated = output.take("updatedToolOutput");
        let updated = updated.or_else(|| output.take("updatedMCPToolOutput"));
        Ok(Self {
            additional_context: output.text("additionalContext")?,
            updated_output: updated.filter(|_| replaced.is_none()).map(output_text),
            replaced,
            terminate,
            ends_turn,
        })
    }
}

impl ModelHookAnswer {
    /// Reads the body of an answer. `continue: false` ends the turn.
    ///
    /// # Errors
    /// When the answer cannot be understood.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, HookAnswerError> {
        let Some(mut body) = read_body(body)? else {
            return Ok(Self::default());
        };
        let ends_turn = ends_turn(&mut body)?;
        let mut output = body.output(&[PRE_MODEL_CALL])?;
        Ok(Self {
            messages: output.objects("updatedMessages")?,
            additional_context: output.text("additionalContext")?,
            ends_turn,
        })
    }
}

impl FinishHookAnswer {
    /// Reads the body of an answer. `continue: false` lets the turn end, whatever `decision` says.
    ///
    /// # Errors
    /// When the answer cannot be understood.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, HookAnswerError> {
        let Some(mut body) = read_body(body)? else {
            return Ok(Self::default());
        };
        let stops = ends_turn(&mut body)?.is_some();
        let blocks = blocks(&mut body, GO_ON)?;
        body.output(&[STOP])?;
        Ok(Self {
            blocks: blocks.filter(|_| !stops),
        })
    }
}

const PERMISSION_WORDS: &str = "`allow`, `deny`, `ask` or `defer`";
const PERMISSIONS: &[(&str, PermissionWord)] = &[
    ("allow", PermissionWord::Allow),
    ("ask", PermissionWord::Ask),
    ("defer", PermissionWord::Defer),
    ("deny", PermissionWord::Deny),
];
const DECISIONS: &[(&str, DecisionWord)] = &[
    ("approve", DecisionWord::Approve),
    ("block", DecisionWord::Block),
];

/// The text with which `continue: false` ends the turn.
fn ends_turn(body: &mut HookMembers) -> Result<Option<String>, HookAnswerError> {
    let goes_on = body.flag("continue")?.unwrap_or(true);
    let text = body.text("stopReason")?;
    Ok((!goes_on).then(|| text.unwrap_or_else(|| STOPPED.to_owned())))
}

/// The reason of `decision: "block"`, or `default` where it has none.
fn blocks(body: &mut HookMembers, default: &str) -> Result<Option<String>, HookAnswerError> {
    let decision = body.word("decision", DECISIONS, "`block`")?;
    let reason = body.text("reason")?;
    Ok((decision == Some(DecisionWord::Block))
        .then(|| reason.unwrap_or_else(|| default.to_owned())))
}

/// The reason for `decision`: from the form that has this decision, else from a form without a decision.
fn reason_of(
    decision: ToolDecision,
    forms: [(Option<ToolDecision>, Option<String>); 2],
) -> Option<String> {
    let [current, old] = forms;
    let mut loose = None;
    for (said, reason) in [current, old] {
        if said == Some(decision) && reason.is_some() {
            return reason;
        }
        if said.is_none() {
            loose = loose.or(reason);
        }
    }
    loose
}

/// The text of a replaced result: a string as it is, the text of an object like the `tool_response` that was sent, any
/// other value as JSON.
fn output_text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        Value::Object(mut members) if is_tool_response(&members) => match members.remove("content")
        {
            Some(Value::String(text)) => text,
            _ => String::new(),
        },
        other => other.to_string(),
    }
}

fn is_tool_response(members: &Map<String, Value>) -> bool {
    members.get("content").is_some_and(Value::is_string)
        && members
            .keys()
            .all(|key| key == "content" || key == "status")
}

#[cfg(test)]
mod tests;
