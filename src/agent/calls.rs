//! Resolves the calls of an answer: finds the tools, and has the arguments repaired and validated.

use serde_json::{Map, Value};

use super::policy::repeat::CallSignature;
use super::policy::{CallDecision, CallFacts};
use crate::ids::shown;
use crate::openai::tool::{CallKind, ToolCall};
use crate::tools::gate::{CallRefusal, Gate};
use crate::tools::repair::{Repair, Repaired, match_name};
use crate::tools::set::{Lookup, ToolSet};
use crate::tools::{RemoteToolName, SharedTool, ToolKind, ToolStatus};

/// One call of the model with everything that is known about it.
#[derive(Debug)]
pub(super) struct ResolvedCall {
    /// The call in the form that the history stores.
    pub(super) call: ToolCall,
    /// The input of the policies.
    pub(super) facts: CallFacts,
    /// The tool and its arguments, if the call can run.
    pub(super) runnable: Option<(SharedTool, Map<String, Value>)>,
    /// The text for the model if the call cannot run; else empty.
    pub(super) problem: String,
    /// The repairs that were made.
    pub(super) repairs: Vec<Repair>,
    /// What kind of tool it is.
    pub(super) kind: ToolKind,
    /// The MCP server of the tool, and its name there.
    pub(super) on_server: Option<RemoteToolName>,
    /// Its tool changes nothing.
    pub(super) read_only: bool,
}

/// Resolves calls.
#[derive(Debug)]
pub(super) struct Resolver<'a> {
    pub(super) tools: &'a ToolSet,
    pub(super) gate: &'a Gate,
    /// The model's token limit ended the answer, so that a call may be incomplete.
    pub(super) cut_off: bool,
}

/// What a call may do besides answering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallEffect {
    /// Nothing: its tool only reads.
    ReadOnly,
    /// Something that a second call does not repeat.
    Idempotent,
    /// Something that a second call may repeat.
    MayChange,
}

impl ResolvedCall {
    /// What the call may do if it runs; none if it cannot run.
    pub(super) fn effect(&self) -> Option<CallEffect> {
        let (tool, _) = self.runnable.as_ref()?;
        let policy = tool.policy();
        Some(match (policy.read_only, policy.idempotent) {
            (true, _) => CallEffect::ReadOnly,
            (false, true) => CallEffect::Idempotent,
            (false, false) => CallEffect::MayChange,
        })
    }

    /// The answer to a call that does not run because of this decision.
    pub(super) fn refusal(&self, decision: CallDecision) -> CallRefusal {
        let suppressed = |text| CallRefusal {
            status: ToolStatus::Suppressed,
            text,
        };
        match decision {
            CallDecision::Run | CallDecision::HandOver | CallDecision::Explain => CallRefusal {
                status: ToolStatus::Error,
                text: self.problem.clone(),
            },
            CallDecision::Deny => CallRefusal::not_permitted(&self.call.name),
            CallDecision::Unwritten => CallRefusal {
                status: ToolStatus::Error,
                text: "This call was not run and nothing was done: the history of the conversation could not be written."
                    .to_owned(),
            },
            CallDecision::Suppress => suppressed(repeated_text(&self.call)),
            CallDecision::OverLimit => suppressed(
                "This call was not run: the limit on tool calls is reached. Answer with what you have."
                    .to_owned(),
            ),
        }
    }

    /// Whether the call is reported to the client. Calls of tools that do not exist are not.
    pub(super) fn shown(&self) -> bool {
        !matches!(self.facts, CallFacts::Unknown(_) | CallFacts::Client)
    }
}

impl Resolver<'_> {
    /// Resolves each call. A call that the token limit cut off is answered with this reason. If all calls are cut off, the
    /// result is empty, and the turn ends at the model's token limit.
    pub(super) fn resolve(&self, calls: Vec<ToolCall>) -> Vec<ResolvedCall> {
        let is_cut = |call: &ToolCall| {
            self.cut_off
                && call.kind == CallKind::Function
                && serde_json::from_str::<Map<String, Value>>(&call.arguments).is_err()
        };
        if self.cut_off && calls.iter().all(is_cut) {
            return Vec::new();
        }
        let resolve = |call| match is_cut(&call) {
            true => cut_call(call),
            false => self.resolve_one(call),
        };
        calls.into_iter().map(resolve).collect()
    }

    fn resolve_one(&self, mut call: ToolCall) -> ResolvedCall {
        let tools = self.tools;
        let mut repairs = Vec::new();
        if !tools.offers(&call.name)
            && let Some(name) = match_name(&call.name, tools.names())
        {
            call.name = name.to_owned();
            repairs.push(Repair::NameMatched);
        }
        match tools.lookup(&call.name) {
            Lookup::Client => not_runnable(call, CallFacts::Client, String::new(), repairs),
            Lookup::Unknown => {
                let facts = CallFacts::Unknown(CallSignature::new(&call.name, &call.arguments));
                let problem = unknown_text(&call.name, tools);
                if serde_json::from_str::<Map<String, Value>>(&call.arguments).is_err() {
                    call.arguments = "{}".to_owned();
                }
                not_runnable(call, facts, problem, repairs)
            }
            Lookup::Server(tool) => {
                let (kind, read_only) = (tool.policy().kind, tool.policy().read_only);
                let on_server = tool.on_server();
                let resolved = self.resolve_server(call, tool, repairs);
                ResolvedCall {
                    kind,
                    on_server,
                    read_only,
                    ..resolved
                }
            }
        }
    }

    fn resolve_server(
        &self,
        mut call: ToolCall,
        tool: SharedTool,
        mut repairs: Vec<Repair>,
    ) -> ResolvedCall {
        let Repaired {
            arguments,
            text,
            repairs: made,
        } = self.gate.prepare(&*tool, &call.arguments);
        repairs.extend(made);
        call.arguments = text;
        let signature = CallSignature::new(&call.name, &call.arguments);
        match arguments {
            Ok(arguments) => ResolvedCall {
                call,
                facts: CallFacts::Server {
                    call: signature,
                    repeatable: tool.policy().repeatable,
                },
                runnable: Some((tool, arguments)),
                problem: String::new(),
                repairs,
                kind: ToolKind::default(),
                on_server: None,
                read_only: false,
            },
            Err(error) => {
                not_runnable(call, CallFacts::Unusable(signature), error.message, repairs)
            }
        }
    }
}

/// A call whose arguments are cut off. They are not repaired, because a wrong guess could do harm.
fn cut_call(mut call: ToolCall) -> ResolvedCall {
    let facts = CallFacts::Unknown(CallSignature::new(&call.name, &call.arguments));
    call.arguments = "{}".to_owned();
    let problem = "This call was cut off by the token limit before its arguments were complete, and was not run. \
         Make it again, with shorter arguments or alone.";
    not_runnable(call, facts, problem.to_owned(), Vec::new())
}

/// A call that cannot run here.
fn not_runnable(
    call: ToolCall,
    facts: CallFacts,
    problem: String,
    repairs: Vec<Repair>,
) -> ResolvedCall {
    ResolvedCall {
        call,
        facts,
        runnable: None,
        problem,
        repairs,
        kind: ToolKind::default(),
        on_server: None,
        read_only: false,
    }
}

/// The text about a tool that does not exist, or that the request forbids.
fn unknown_text(name: &str, tools: &ToolSet) -> String {
    /// Most names listed, so that the text stays small; others are left out.
    const LISTED: usize = 40;
    let known: Vec<&str> = tools.names().take(LISTED).collect();
    let shown = shown(name);
    let problem = match tools.offers(name) {
        true => format!("The tool '{shown}' is not offered for this request"),
        false => format!("There is no tool named '{shown}'"),
    };
    if known.is_empty() {
        format!("{problem}, and no tool is available. Answer without tools.")
    } else {
        format!("{problem}. The available tools are: {}.", known.join(", "))
    }
}

fn repeated_text(call: &ToolCall) -> String {
    format!(
        "This call was not run: '{}' was called with exactly these arguments before, nothing has changed since, and \
         calling it again will not bring anything new. Consider what the call was meant to find out and which assumption \
         behind it may be wrong, given the results that you have. Then either take a different approach (another \
         tool, or other arguments), or say plainly in your answer what could not be found out.",
        call.name
    )
}
