//! From the calls that a model wrote to calls that can be dealt with: names matched, arguments mended, owners found.

use serde_json::{Map, Value};

use super::machine::{CallFacts, Plan};
use super::repeat::CallSignature;
use super::settings::Permission;
use crate::openai::tool::{CallKind, ToolCall};
use crate::tools::repair::{Repaired, match_name, repair_arguments};
use crate::tools::schema::SchemaCache;
use crate::tools::set::{Lookup, ToolSet};
use crate::tools::{SharedTool, ToolKind, ToolStatus};

/// One call of the model with everything that is known about it.
#[derive(Debug)]
pub(super) struct ResolvedCall {
    /// The call as the history holds it.
    pub(super) call: ToolCall,
    /// What the machine needs to know.
    pub(super) facts: CallFacts,
    /// The tool and its arguments, if the call can run.
    pub(super) runnable: Option<(SharedTool, Map<String, Value>)>,
    /// What the model is told if it cannot.
    pub(super) problem: String,
    /// What was mended.
    pub(super) repairs: Vec<String>,
    /// What kind of tool it is.
    pub(super) kind: ToolKind,
}

/// Finds out about calls.
#[derive(Debug)]
pub(super) struct Resolver<'a> {
    pub(super) tools: &'a ToolSet,
    pub(super) schemas: &'a SchemaCache,
    pub(super) permission: Permission,
    /// The model's token limit ended the answer, so that the last call may be incomplete.
    pub(super) cut_off: bool,
}

impl ResolvedCall {
    /// What the model is told for a call that does not run, and how the call is reported.
    pub(super) fn answer(&self, plan: Plan) -> (ToolStatus, String) {
        match plan {
            Plan::Run | Plan::HandOver | Plan::Explain => (ToolStatus::Error, self.problem.clone()),
            Plan::Deny => {
                let text = format!(
                    "The tool '{}' is not permitted here. Answer without it.",
                    self.call.name
                );
                (ToolStatus::Denied, text)
            }
            Plan::Repeated => (ToolStatus::Suppressed, repeated_text(&self.call)),
            Plan::OverLimit => {
                let text = "This call was not run: the limit on tool calls is reached. Answer with what you have.";
                (ToolStatus::Suppressed, text.to_owned())
            }
        }
    }

    /// Whether the client may hear of the call: names that nobody declared stay between loopwright and the model.
    pub(super) fn shown(&self) -> bool {
        !matches!(self.facts, CallFacts::Unknown(_) | CallFacts::Client)
    }
}

impl Resolver<'_> {
    /// Finds out about each call. Calls that the token limit cut off are told to the model; where no other is left
    /// there are none, as the answer simply ends at its limit.
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
        if matches!(tools.lookup(&call.name), Lookup::Unknown)
            && let Some(name) = match_name(&call.name, tools.names())
        {
            call.name = name.to_owned();
            repairs.push("name_matched".to_owned());
        }
        match tools.lookup(&call.name) {
            Lookup::Client => plain(call, CallFacts::Client, String::new(), repairs),
            Lookup::Unknown => {
                let facts = CallFacts::Unknown(CallSignature::new(&call.name, &call.arguments));
                let problem = unknown_text(&call.name, tools);
                if serde_json::from_str::<Map<String, Value>>(&call.arguments).is_err() {
                    call.arguments = "{}".to_owned();
                }
                plain(call, facts, problem, repairs)
            }
            Lookup::Server(tool) => {
                let kind = tool.policy().kind;
                let resolved = self.resolve_server(call, tool, repairs);
                ResolvedCall { kind, ..resolved }
            }
        }
    }

    fn resolve_server(
        &self,
        mut call: ToolCall,
        tool: SharedTool,
        mut repairs: Vec<String>,
    ) -> ResolvedCall {
        let schema = tool.definition().parameters.as_deref();
        let schema = schema.and_then(|schema| self.schemas.get(schema));
        let Repaired {
            arguments,
            text,
            repairs: mended,
        } = repair_arguments(&call.arguments, schema.as_deref());
        repairs.extend(mended.iter().map(|repair| repair.as_str().to_owned()));
        call.arguments = text;
        let signature = CallSignature::new(&call.name, &call.arguments);
        if self.permission == Permission::Deny {
            return plain(call, CallFacts::Denied, String::new(), repairs);
        }
        match arguments {
            Ok(arguments) => ResolvedCall {
                call,
                facts: CallFacts::Server(signature),
                runnable: Some((tool, arguments)),
                problem: String::new(),
                repairs,
                kind: ToolKind::default(),
            },
            Err(error) => plain(call, CallFacts::Unusable(signature), error.message, repairs),
        }
    }
}

/// A call of which the end is missing: guessing at it could do harm.
fn cut_call(mut call: ToolCall) -> ResolvedCall {
    let facts = CallFacts::Unknown(CallSignature::new(&call.name, &call.arguments));
    call.arguments = "{}".to_owned();
    let problem = "This call was cut off by the token limit before its arguments were complete, and was not run. \
         Make it again, with shorter arguments or alone.";
    plain(call, facts, problem.to_owned(), Vec::new())
}

fn plain(call: ToolCall, facts: CallFacts, problem: String, repairs: Vec<String>) -> ResolvedCall {
    ResolvedCall {
        call,
        facts,
        runnable: None,
        problem,
        repairs,
        kind: ToolKind::default(),
    }
}

fn unknown_text(name: &str, tools: &ToolSet) -> String {
    /// Names listed at most, so that the text stays small.
    const LISTED: usize = 40;
    let known: Vec<&str> = tools.names().take(LISTED).collect();
    let shown: String = name.chars().take(64).collect();
    if known.is_empty() {
        format!("There is no tool named '{shown}', and no tool is available. Answer without tools.")
    } else {
        format!(
            "There is no tool named '{shown}'. The available tools are: {}.",
            known.join(", ")
        )
    }
}

fn repeated_text(call: &ToolCall) -> String {
    format!(
        "This call was not run: '{}' was already called several times with exactly these arguments, and calling it \
         again will not bring anything new. Consider what the call was meant to find out and which assumption \
         behind it may be wrong, given the results that you have. Then either take a different approach (another \
         tool, or other arguments), or say plainly in your answer what could not be found out.",
        call.name
    )
}
