//! What the gate has decided: a line of the log for each decision, and its count. Contents are in neither.

use std::fmt;

use super::approvals::digest;
use super::{GateRequest, Verdict};
use policy::rules::{Effect, LevelName, RuleDecision};
use protocol::ids::shown;

/// Who has decided about a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum DecidedBy<'a> {
    /// The rules and words of the levels.
    Rules(&'a RuleDecision),
    Hook,
}

/// Counts decisions by their effect and by who has made them.
#[derive(Default)]
pub struct DecisionCounter(Option<Box<Count>>);

type Count = dyn Fn(&'static str, &'static str) + Send + Sync;

impl DecisionCounter {
    /// Calls this with the effect (`allow`, `ask` or `deny`) and the level, or `hook`.
    pub fn new(count: impl Fn(&'static str, &'static str) + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(count)))
    }

    /// Counts a decision, and writes who has made it to the log under the target `audit`. Calls about which nothing is said
    /// are no decisions.
    pub(super) fn record(&self, request: &GateRequest<'_>, by: DecidedBy<'_>, verdict: &Verdict) {
        let (effect, level, rule) = match by {
            DecidedBy::Hook => (Effect::Deny, "hook", None),
            DecidedBy::Rules(decision) => {
                if decision.effect == Effect::Allow && decision.rule.is_none() {
                    return;
                }
                let rule = decision.rule.as_ref().map(|rule| rule.index);
                (decision.effect, level_of(decision), rule)
            }
        };
        let effect = match effect {
            Effect::Allow => "allow",
            Effect::Ask => "ask",
            Effect::Deny => "deny",
        };
        if let Some(count) = &self.0 {
            count(effect, level);
        }
        let context = request.context;
        let outcome = match verdict {
            Verdict::Run | Verdict::RunWith(_) => "runs",
            Verdict::Refuse(_) => "refused",
            Verdict::Wait(_) => "waits",
        };
        tracing::info!(
            target: "audit",
            owner = context.owner.name(),
            request_id = context.request_id.as_str(),
            session_id = context.session_id.as_ref().map(protocol::ids::SessionId::as_str),
            tool = shown(request.name),
            tool_call_id = shown(request.call_id),
            arguments = digest(request.arguments),
            effect,
            level,
            rule,
            outcome,
            "a call was decided about"
        );
    }
}

/// The level that has decided; `hook` where no level says what was decided.
fn level_of(decision: &RuleDecision) -> &'static str {
    let mut levels = decision.levels.iter();
    let said = match &decision.rule {
        Some(rule) => Some(rule.level),
        None => levels
            .find(|level| level.effect == decision.effect)
            .map(|level| level.level),
    };
    match said {
        Some(LevelName::Server) => "server",
        Some(LevelName::Key) => "key",
        Some(LevelName::Profile) => "profile",
        Some(LevelName::Request) => "request",
        None => "hook",
    }
}

impl fmt::Debug for DecisionCounter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("DecisionCounter")
    }
}
