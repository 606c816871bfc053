//! The decision about a call over all levels.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::command::SplitLines;
use super::compile::CompiledRule;
use super::{CallCounts, Effect, RuleEntry, RuleSet, ToolClasses};

/// Whose rules a level holds. The highest comes first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LevelName {
    /// The settings of the server.
    Server,
    /// The API key of the caller.
    Key,
    /// The profile that the request names.
    Profile,
    /// The request itself.
    Request,
}

/// The rules of one level, and what it says where none of them matches.
#[derive(Debug, Clone)]
pub struct Level {
    /// Whose rules these are.
    pub name: LevelName,
    /// The rules.
    pub rules: Arc<RuleSet>,
    /// What the level says about calls that no rule matches. `None`: nothing.
    pub word: Option<Effect>,
}

/// The levels that decide about the calls of a turn. Without a level, every call is allowed.
///
/// Two levels may have the same name: a turn that resumes under another request keeps the level of the first.
#[derive(Debug, Clone, Default)]
pub struct Permissions {
    levels: Vec<Level>,
}

/// A call that is decided.
#[derive(Debug, Clone, Copy)]
pub struct RuledCall<'a> {
    /// The id of the call, unique in the turn.
    pub call_id: &'a str,
    /// The name of the tool.
    pub tool: &'a str,
    /// The classes of the tool.
    pub classes: ToolClasses,
    /// The arguments.
    pub arguments: &'a Map<String, Value>,
}

/// A rule of a level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RuleRef {
    /// The level.
    pub level: LevelName,
    /// The position of the rule in its level, from 0 on.
    pub index: usize,
}

/// What one level says about a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LevelDecision {
    /// The level.
    pub level: LevelName,
    /// What it says.
    pub effect: Effect,
    /// The position of the rule that says so. `null`: the word of the level.
    pub rule: Option<usize>,
}

/// The decision about a call, and where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RuleDecision {
    /// What happens to the call.
    pub effect: Effect,
    /// The rule that decides. `null`: the word of a level, or nothing at all.
    pub rule: Option<RuleRef>,
    /// The reason that the rule gives.
    pub reason: Option<String>,
    /// What the levels say. Levels that say nothing are left out.
    pub levels: Vec<LevelDecision>,
    /// The position of the level that decides in [`Permissions::levels`]; two levels may have the same name.
    #[serde(skip)]
    #[schemars(skip)]
    pub position: Option<usize>,
}

impl RuleDecision {
    /// The argument that the deciding rule has compared, as the caller sent it. `None`: the rule looks at no argument,
    /// the argument is missing, or no rule has decided.
    pub fn asked_value<'a>(
        &self,
        permissions: &Permissions,
        arguments: &'a Map<String, Value>,
    ) -> Option<&'a Value> {
        let rule = self.rule.as_ref()?;
        let level = permissions.levels.get(self.position?)?;
        level.rules.rules().get(rule.index)?.value(arguments)
    }
}

/// What a level says: an effect, and the index of the rule that says so.
type Said = (Effect, Option<usize>);

impl Permissions {
    /// The levels in any order; each level keeps its position in this list.
    pub fn new(levels: Vec<Level>) -> Self {
        Self { levels }
    }

    /// Adds a level.
    pub fn push(&mut self, level: Level) {
        self.levels.push(level);
    }

    /// The levels in the order in which they were added.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// Decides about a call, and counts it. The same call may be decided several times: it counts once.
    pub fn decide(&self, call: &RuledCall<'_>, counts: &mut CallCounts) -> RuleDecision {
        let mut lines = SplitLines::default();
        let said = self
            .levels
            .iter()
            .enumerate()
            .map(|(position, level)| level.say(position, call, counts, &mut lines));
        self.strictest(said)
    }

    /// Whether some call may be asked about.
    pub fn may_ask(&self) -> bool {
        self.levels.iter().any(|level| {
            level.word == Some(Effect::Ask)
                || level
                    .rules
                    .rules()
                    .iter()
                    .any(|rule| rule.effect == Effect::Ask)
        })
    }

    /// Whether some call of a tool of this name may be asked about.
    pub fn may_ask_about(&self, tool: &str) -> bool {
        self.levels.iter().any(|level| {
            let mut rules = level.rules.rules().iter();
            level.word == Some(Effect::Ask)
                || rules.any(|rule| rule.effect == Effect::Ask && rule.names(tool))
        })
    }

    /// The decision about every call of the tool, if the levels deny it whatever its arguments, from the first call on.
    ///
    /// Patterns are not examined: a tool that is denied only because one pattern or another matches every argument is
    /// not recognised.
    pub fn denies_whatever(&self, tool: &str, classes: ToolClasses) -> Option<RuleDecision> {
        let said = self
            .levels
            .iter()
            .map(|level| level.denial_whatever(tool, classes));
        let decision = self.strictest(said);
        (decision.effect == Effect::Deny).then_some(decision)
    }

    /// What asks about a call: the entries of all rules that do, and the values of their arguments if they compare one. A level
    /// whose word asks has no entry.
    pub fn asking<'a>(
        &self,
        call: &RuledCall<'a>,
        counts: &mut CallCounts,
    ) -> Vec<(Option<&RuleEntry>, Option<&'a Value>)> {
        let mut lines = SplitLines::default();
        let mut asking = Vec::new();
        for (position, level) in self.levels.iter().enumerate() {
            let said = level.say(position, call, counts, &mut lines);
            if level.word == Some(Effect::Ask) && said == Some((Effect::Ask, None)) {
                asking.push((None, None));
            }
            let rules = level.rules.rules().iter().zip(level.rules.entries());
            for (index, (rule, entry)) in rules.enumerate() {
                let asks = rule.effect == Effect::Ask
                    && rule.concerns(call.tool, call.classes)
                    && rule.holds(call.arguments, &mut lines)
                    && (rule.from_call)
                        .is_none_or(|from| counts.count(position, index, from, call.call_id));
                if asks {
                    asking.push((Some(entry), rule.value(call.arguments)));
                }
            }
        }
        asking
    }

    fn strictest(&self, said: impl Iterator<Item = Option<Said>>) -> RuleDecision {
        let mut decision = RuleDecision {
            effect: Effect::Allow,
            rule: None,
            reason: None,
            levels: Vec::new(),
            position: None,
        };
        let mut highest: Option<(Effect, LevelName)> = None;
        for (position, (level, said)) in self.levels.iter().zip(said).enumerate() {
            let Some((effect, rule)) = said else {
                continue;
            };
            decision.levels.push(LevelDecision {
                level: level.name,
                effect,
                rule,
            });
            let stricter = highest.is_none_or(|(strictest, name)| {
                effect > strictest || (effect == strictest && level.name < name)
            });
            if stricter {
                highest = Some((effect, level.name));
                decision.effect = effect;
                decision.position = Some(position);
                decision.rule = rule.map(|index| RuleRef {
                    level: level.name,
                    index,
                });
                decision.reason = rule
                    .and_then(|index| level.rules.entries().get(index))
                    .and_then(|entry| entry.reason.clone());
            }
        }
        decision
    }
}

impl Level {
    fn say<'a>(
        &self,
        position: usize,
        call: &RuledCall<'a>,
        counts: &mut CallCounts,
        lines: &mut SplitLines<'a>,
    ) -> Option<Said> {
        let mut strictest: Option<(Effect, usize)> = None;
        for (index, rule) in self.rules.rules().iter().enumerate() {
            let open = strictest.is_none_or(|(effect, _)| rule.effect > effect);
            // Rules with a count are counted also where a stricter rule has matched.
            if !open && rule.from_call.is_none() {
                continue;
            }
            let matches = rule.concerns(call.tool, call.classes)
                && rule.holds(call.arguments, lines)
                && (rule.from_call)
                    .is_none_or(|from| counts.count(position, index, from, call.call_id));
            if matches && open {
                strictest = Some((rule.effect, index));
            }
        }
        match strictest {
            Some((effect, index)) => Some((effect, Some(index))),
            None => Some((self.word?, None)),
        }
    }

    fn denial_whatever(&self, tool: &str, classes: ToolClasses) -> Option<Said> {
        let rules = self.rules.rules();
        let denying = rules
            .iter()
            .position(|rule| rule.denies_whatever() && rule.concerns(tool, classes));
        if denying.is_some() {
            return Some((Effect::Deny, denying));
        }
        let milder =
            |rule: &CompiledRule| rule.effect != Effect::Deny && rule.concerns(tool, classes);
        (self.word == Some(Effect::Deny) && !rules.iter().any(milder))
            .then_some((Effect::Deny, None))
    }
}
