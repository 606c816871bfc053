//! Resolves the calls of an answer: finds the tools, and has the arguments repaired and validated.

use serde_json::{Map, Value};

use super::super::policy::repeat::CallSignature;
use super::super::policy::{CallDecision, CallFacts};
use super::{Call, CallEffect};
use protocol::ids::shown;
use protocol::openai::tool::{CallKind, ToolCall};
use tools::ToolPolicy;
use tools::gate::Gate;
use tools::refusal::CallRefusal;
use tools::repair::{Repair, Repaired, match_name};
use tools::set::{Lookup, ToolSet};

/// Threshold of bytes of the arguments of calls above which their validation may take long.
pub(in super::super) const LARGE_ARGUMENTS: usize = 32 * 1024;

/// Resolves calls.
#[derive(Debug)]
pub(in super::super) struct Resolver<'a> {
    pub(in super::super) tools: &'a ToolSet,
    pub(in super::super) gate: &'a Gate,
    /// The model's token limit ended the answer, so that a call may be incomplete.
    pub(in super::super) cut_off: bool,
}

impl Resolver<'_> {
    /// Resolves each call. A call that the token limit cut off is answered with this reason. If all calls are cut off, the
    /// result is empty, and the turn ends at the model's token limit.
    pub(in super::super) fn resolve(&self, calls: Vec<ToolCall>) -> Vec<Call> {
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

    /// Resolves a call again that was stored. If its tool is another one by now, or does not take the arguments as they are
    /// any more, the call cannot run.
    pub(in super::super) fn resolve_again(&self, call: &mut Call) {
        let now = self.resolve_one(call.call.clone());
        let is_same = matches!(now.facts, CallFacts::Server { .. })
            && now.call == call.call
            && (now.kind, &now.on_server) == (call.kind, &call.on_server);
        if is_same {
            call.arguments = now.arguments;
            call.effect = now.effect;
        } else if let CallFacts::Denied(_) = now.facts {
            call.decision = CallDecision::Deny;
            call.problem = now.problem;
        } else {
            call.decision = CallDecision::Explain;
            call.problem = CallRefusal::changed(&call.call.name).text;
        }
    }

    /// Resolves a call that is complete.
    pub(in super::super) fn resolve_one(&self, mut call: ToolCall) -> Call {
        let tools = self.tools;
        let mut repairs = Vec::new();
        if !tools.offers(&call.name)
            && !tools.denies(&call.name)
            && let Some(name) = match_name(&call.name, tools.names())
        {
            call.name = name.to_owned();
            repairs.push(Repair::NameMatched);
        }
        match tools.lookup(&call.name) {
            Lookup::Client => Call {
                decision: CallDecision::HandOver,
                ..Call::new(call, CallFacts::Client, String::new(), repairs)
            },
            Lookup::Unknown => {
                let facts = CallFacts::Unknown(CallSignature::new(&call.name, &call.arguments));
                let problem = unknown_text(&call.name, tools);
                if serde_json::from_str::<Map<String, Value>>(&call.arguments).is_err() {
                    call.arguments = "{}".to_owned();
                }
                Call::new(call, facts, problem, repairs)
            }
            Lookup::Denied(text) => {
                let facts = CallFacts::Denied(CallSignature::new(&call.name, &call.arguments));
                if serde_json::from_str::<Map<String, Value>>(&call.arguments).is_err() {
                    call.arguments = "{}".to_owned();
                }
                Call::new(call, facts, text.to_string(), repairs)
            }
            Lookup::Server(tool) => {
                let Repaired {
                    arguments,
                    text,
                    repairs: made,
                } = self.gate.prepare(&*tool, &call.arguments);
                repairs.extend(made);
                call.arguments = text;
                let signature = CallSignature::new(&call.name, &call.arguments);
                let policy = tool.policy();
                let (facts, problem, arguments) = match arguments {
                    Ok(arguments) => {
                        let facts = CallFacts::Server {
                            call: signature,
                            repeatable: policy.repeatable,
                        };
                        (facts, String::new(), Some(arguments))
                    }
                    Err(error) => (CallFacts::Unusable(signature), error.message, None),
                };
                Call {
                    arguments,
                    kind: policy.kind,
                    on_server: tool.on_server(),
                    effect: CallEffect::of(policy),
                    ..Call::new(call, facts, problem, repairs)
                }
            }
        }
    }
}

impl CallEffect {
    fn of(policy: &ToolPolicy) -> Self {
        match (policy.read_only, policy.idempotent) {
            (true, _) => Self::ReadOnly,
            (false, true) => Self::Idempotent,
            (false, false) => Self::MayChange,
        }
    }
}

/// A call whose arguments are cut off. They are not repaired, because a wrong guess could do harm.
fn cut_call(mut call: ToolCall) -> Call {
    let facts = CallFacts::Unknown(CallSignature::new(&call.name, &call.arguments));
    call.arguments = "{}".to_owned();
    Call::new(call, facts, CallRefusal::cut_off().text, Vec::new())
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
