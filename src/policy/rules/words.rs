//! The words of `agent_permission`, and levels that only have one.

use std::sync::Arc;

use super::{Effect, Level, LevelName, Permissions, RuleEntry, ToolClasses};

impl Effect {
    /// The words of `agent_permission` and their effects.
    pub const WORDS: [(&'static str, Self); 3] = [
        ("auto", Self::Allow),
        ("ask", Self::Ask),
        ("deny", Self::Deny),
    ];

    /// The word of `agent_permission`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Allow => "auto",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

impl RuleEntry {
    /// A rule about all calls of the tools that a glob names.
    pub fn of_tool(tool: &str, effect: Effect) -> Self {
        Self {
            tool: tool.to_owned(),
            risk: None,
            argument: None,
            match_kind: None,
            patterns: Vec::new(),
            from_call: None,
            effect,
            reason: None,
            must_match: Vec::new(),
            must_not_match: Vec::new(),
        }
    }

    /// The names of the members of a rule.
    pub const FIELDS: [&'static str; 10] = [
        "tool",
        "risk",
        "argument",
        "match",
        "patterns",
        "from_call",
        "effect",
        "reason",
        "must_match",
        "must_not_match",
    ];
}

impl Level {
    /// A level without rules and without a word.
    pub fn silent(name: LevelName) -> Self {
        Self {
            name,
            rules: Arc::default(),
            word: None,
        }
    }
}

impl Permissions {
    /// The effect for a tool before its arguments are known: `Deny` if every call is denied, `Ask` if a person may be
    /// asked about some calls.
    pub fn of_tool(&self, tool: &str, classes: ToolClasses) -> Effect {
        if self.denies_whatever(tool, classes).is_some() {
            return Effect::Deny;
        }
        match self
            .levels()
            .iter()
            .any(|level| level.may_ask(tool, classes))
        {
            true => Effect::Ask,
            false => Effect::Allow,
        }
    }
}

impl Level {
    /// Whether some call of the tool is asked about.
    fn may_ask(&self, tool: &str, classes: ToolClasses) -> bool {
        let rules = self.rules.rules();
        let mut of_tool = rules.iter().filter(|rule| rule.concerns(tool, classes));
        let by_rule = of_tool.any(|rule| rule.effect == Effect::Ask);
        by_rule || self.word == Some(Effect::Ask)
    }
}
