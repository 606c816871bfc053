//! What an approver answers.

use serde_json::{Map, Value};

use super::body::{HookMembers, read_body};
use super::{HookAnswerError, STOPPED, ends_turn};
use crate::hooks::event::{PERMISSION_REQUEST, PRE_TOOL_USE};

/// The answer to `PermissionRequest`.
#[derive(Debug, Clone, PartialEq)]
pub enum ApproverAnswer {
    /// The call may run.
    Allow {
        /// Replaces all the arguments. The rules are to be asked about them again.
        updated_input: Option<Map<String, Value>>,
    },
    /// The call does not run.
    Deny {
        /// The reason, for the model.
        reason: Option<String>,
        /// The turn ends with this text.
        ends_turn: Option<String>,
    },
    /// A person decides.
    Person,
}

/// The word of one of the forms, from the mildest to the strictest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Said {
    Allow,
    Person,
    Deny,
}

/// What the `decision` object says.
#[derive(Default)]
struct ObjectForm {
    said: Option<Said>,
    updated_input: Option<Map<String, Value>>,
    message: Option<String>,
    interrupts: bool,
}

impl ApproverAnswer {
    /// Reads the body of an answer.
    ///
    /// `hookSpecificOutput.decision.behavior` is Claude Code's form, `hookSpecificOutput.permissionDecision` the one of
    /// `PreToolUse`, whose name the answer may have too. The stricter one decides. Every other word than `allow` and
    /// `deny` leaves it to a person. So does a `decision` at the top level other than `approve`; `approve` allows nothing.
    /// `updatedPermissions` is not read.
    ///
    /// # Errors
    /// When the answer cannot be understood.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, HookAnswerError> {
        let Some(mut body) = read_body(body)? else {
            return Ok(Self::Person);
        };
        let ends_turn = ends_turn(&mut body)?;
        let top = body.string("decision")?;
        let approves = top.as_deref() == Some("approve");
        let top_reason = body.text("reason")?.filter(|_| !approves);
        let mut output = body.output(&[PERMISSION_REQUEST, PRE_TOOL_USE])?;
        let current = output.string("permissionDecision")?.map(|word| said(&word));
        let current_reason = output.text("permissionDecisionReason")?;
        let updated_input = output.object("updatedInput")?;
        let object = ObjectForm::read(&mut output)?;

        let stop = ends_turn.is_some().then_some(Said::Deny);
        let top = top.filter(|_| !approves).map(|_| Said::Person);
        Ok(match object.said.max(current).max(top).max(stop) {
            Some(Said::Allow) => Self::Allow {
                updated_input: object.updated_input.or(updated_input),
            },
            Some(Said::Deny) => Self::Deny {
                reason: [
                    (object.said, object.message),
                    (current, current_reason),
                    (None, top_reason),
                ]
                .into_iter()
                .filter(|(said, _)| said.is_none_or(|said| said == Said::Deny))
                .find_map(|(_, reason)| reason),
                ends_turn: ends_turn.or_else(|| object.interrupts.then(|| STOPPED.to_owned())),
            },
            Some(Said::Person) | None => Self::Person,
        })
    }
}

impl ObjectForm {
    fn read(output: &mut HookMembers) -> Result<Self, HookAnswerError> {
        let Some(mut decision) = output.inner("decision", "hookSpecificOutput.decision.")? else {
            return Ok(Self::default());
        };
        let behavior = decision.string("behavior")?;
        let said = behavior.map_or(Said::Person, |word| said(&word));
        let interrupt = decision.flag("interrupt")?.unwrap_or(false);
        Ok(Self {
            said: Some(said),
            updated_input: decision.object("updatedInput")?,
            message: decision.text("message")?,
            interrupts: interrupt && said == Said::Deny,
        })
    }
}

fn said(word: &str) -> Said {
    match word {
        "allow" => Said::Allow,
        "deny" => Said::Deny,
        _ => Said::Person,
    }
}
