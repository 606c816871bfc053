//! The written form of a rule, which settings, keys, profiles and requests share.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Effect, MatchKind, Risk};

/// A permission rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleEntry {
    /// A glob over the names of tools. Without it, all tools.
    #[serde(default = "every_tool", skip_serializing_if = "is_every_tool")]
    pub tool: String,
    /// Restricts the rule to tools of this class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<Risk>,
    /// A JSON pointer to the argument that is compared with the patterns. Needs `match` and `patterns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argument: Option<String>,
    /// How the argument is compared with the patterns.
    #[serde(rename = "match", default, skip_serializing_if = "Option::is_none")]
    pub match_kind: Option<MatchKind>,
    /// The rule holds if one of the patterns matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<String>,
    /// The rule holds from this matching call of a turn on. The first call is number 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_call: Option<NonZeroU32>,
    /// What happens to a call that the rule matches.
    pub effect: Effect,
    /// Shown to the model when a call is refused, and to the person who is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Arguments that the rule has to match. They are checked when the rule is compiled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub must_match: Vec<Map<String, Value>>,
    /// Arguments that the rule must not match. They are checked when the rule is compiled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub must_not_match: Vec<Map<String, Value>>,
}

fn every_tool() -> String {
    "*".into()
}

fn is_every_tool(tool: &str) -> bool {
    tool == "*"
}
