//! The compiled form of rules, and the problems of rules that cannot be compiled.

use std::num::NonZeroU32;

use globset::GlobMatcher;
use serde_json::{Map, Value};
use thiserror::Error;

use super::command::SplitLines;
use super::matcher::Matcher;
use super::patterns::{self, Fit, excerpt};
use super::{Effect, MatchKind, Risk, RuleEntry, ToolClasses};

/// The compiled rules of one level, and the entries they were compiled from.
#[derive(Debug, Default)]
pub struct RuleSet {
    entries: Vec<RuleEntry>,
    rules: Vec<CompiledRule>,
}

/// What is wrong with a rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("rule {}: {field}: {problem}", index + 1)]
pub struct RuleError {
    /// The position of the rule, from 0 on. The text counts from 1.
    pub index: usize,
    /// The field, such as `tool` or `patterns[2]`.
    pub field: String,
    /// The problem with its value, and the remedy.
    pub problem: String,
}

/// A rule that is ready to be compared with calls.
#[derive(Debug)]
pub(super) struct CompiledRule {
    tool: GlobMatcher,
    risk: Option<Risk>,
    argument: Option<(String, Matcher)>,
    pub(super) from_call: Option<NonZeroU32>,
    pub(super) effect: Effect,
}

/// A field, and its problem.
type Problem = (String, String);

impl RuleSet {
    /// Compiles the rules and checks their examples.
    ///
    /// # Errors
    ///
    /// The first rule that cannot be compiled or fails at one of its examples.
    pub fn compile(entries: Vec<RuleEntry>) -> Result<Self, RuleError> {
        let mut rules = Vec::with_capacity(entries.len());
        for (index, entry) in entries.iter().enumerate() {
            let rule = CompiledRule::compile(entry).map_err(|(field, problem)| RuleError {
                index,
                field,
                problem,
            })?;
            rules.push(rule);
        }
        Ok(Self { entries, rules })
    }

    /// The rules as they were written.
    pub fn entries(&self) -> &[RuleEntry] {
        &self.entries
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The indexes of the rules that concern none of these tools.
    pub fn without_tool<'a>(
        &self,
        tools: impl Iterator<Item = (&'a str, ToolClasses)> + Clone,
    ) -> Vec<usize> {
        let tools: Vec<_> = tools.collect();
        let concerned = |rule: &CompiledRule| {
            (tools.iter()).any(|&(tool, classes)| rule.concerns(tool, classes))
        };
        (self.rules.iter().enumerate())
            .filter(|(_, rule)| !concerned(rule))
            .map(|(index, _)| index)
            .collect()
    }

    pub(super) fn rules(&self) -> &[CompiledRule] {
        &self.rules
    }
}

impl CompiledRule {
    fn compile(entry: &RuleEntry) -> Result<Self, Problem> {
        let tool = patterns::tool_glob(&entry.tool).map_err(|problem| ("tool".into(), problem))?;
        let rule = Self {
            tool,
            risk: entry.risk,
            argument: compile_argument(entry)?,
            from_call: entry.from_call,
            effect: entry.effect,
        };
        rule.check_examples(entry)?;
        Ok(rule)
    }

    fn check_examples(&self, entry: &RuleEntry) -> Result<(), Problem> {
        let wrong = |examples: &[Map<String, Value>], wanted: bool| {
            examples
                .iter()
                .position(|example| self.holds(example, &mut SplitLines::default()) != wanted)
        };
        if let Some(index) = wrong(&entry.must_match, true) {
            let example = quoted(entry.must_match.get(index));
            let problem = format!(
                "the rule does not match the example {example}; change the patterns or the example"
            );
            return Err((format!("must_match[{index}]"), problem));
        }
        if let Some(index) = wrong(&entry.must_not_match, false) {
            let example = quoted(entry.must_not_match.get(index));
            let problem = format!(
                "the rule matches the example {example}; change the patterns or the example"
            );
            return Err((format!("must_not_match[{index}]"), problem));
        }
        Ok(())
    }

    /// Whether the rule may be about a tool of this name.
    pub(super) fn names(&self, tool: &str) -> bool {
        self.tool.is_match(tool)
    }

    /// Whether the rule is about this tool.
    pub(super) fn concerns(&self, tool: &str, classes: ToolClasses) -> bool {
        self.risk.is_none_or(|risk| classes.has(risk)) && self.names(tool)
    }

    /// Whether the rule matches these arguments. Arguments that cannot be compared match the stricter rules.
    pub(super) fn holds<'a>(
        &self,
        arguments: &'a Map<String, Value>,
        lines: &mut SplitLines<'a>,
    ) -> bool {
        let Some((_, matcher)) = &self.argument else {
            return true;
        };
        let text = self.value(arguments).and_then(Value::as_str);
        let fit = text.map_or(Fit::Unreadable, |text| {
            matcher.fit(text, self.effect == Effect::Allow, lines)
        });
        match fit {
            Fit::Matches => true,
            Fit::Differs => false,
            Fit::Unreadable => self.effect != Effect::Allow,
        }
    }

    /// The argument that the rule compares.
    pub(super) fn value<'a>(&self, arguments: &'a Map<String, Value>) -> Option<&'a Value> {
        let (pointer, _) = self.argument.as_ref()?;
        point(arguments, pointer)
    }

    /// Whether the rule denies each call of a tool it concerns.
    pub(super) fn denies_whatever(&self) -> bool {
        self.effect == Effect::Deny
            && self.argument.is_none()
            && self.from_call.is_none_or(|from| from.get() == 1)
    }
}

fn compile_argument(entry: &RuleEntry) -> Result<Option<(String, Matcher)>, Problem> {
    let problem = |field: &str, problem: &str| Err((field.to_owned(), problem.to_owned()));
    let (pointer, kind) = match (&entry.argument, entry.match_kind) {
        (None, None) if entry.patterns.is_empty() => return Ok(None),
        (None, None) => {
            return problem("patterns", "needs `argument` and `match`; add both");
        }
        (None, Some(_)) => {
            return problem(
                "match",
                "needs `argument`; add a JSON pointer such as \"/path\"",
            );
        }
        (Some(_), None) => {
            return problem("argument", "needs `match` and `patterns`; add both");
        }
        (Some(pointer), Some(kind)) => (pointer, kind),
    };
    if let Err(problem) = check_pointer(pointer) {
        return Err(("argument".into(), problem));
    }
    if entry.patterns.is_empty() {
        return problem("patterns", "is empty; name at least one pattern");
    }
    let matcher = compile_patterns(kind, &entry.patterns)?;
    Ok(Some((pointer.clone(), matcher)))
}

fn compile_patterns(kind: MatchKind, patterns: &[String]) -> Result<Matcher, Problem> {
    Matcher::compile(kind, patterns).map_err(|problem| {
        let field = (problem.pattern).map_or_else(
            || "patterns".to_owned(),
            |index| format!("patterns[{index}]"),
        );
        (field, problem.problem)
    })
}

fn check_pointer(pointer: &str) -> Result<(), String> {
    let quoted = excerpt(pointer);
    if !pointer.starts_with('/') {
        return Err(format!(
            "{quoted} is no JSON pointer into the arguments; begin it with `/`"
        ));
    }
    let mut pieces = pointer.split('~');
    let _before = pieces.next();
    if pieces.any(|piece| !piece.starts_with(['0', '1'])) {
        return Err(format!(
            "{quoted} holds a `~` that is no escape; write `~0` for `~` and `~1` for `/`"
        ));
    }
    Ok(())
}

fn point<'a>(arguments: &'a Map<String, Value>, pointer: &str) -> Option<&'a Value> {
    let pointer = pointer.strip_prefix('/')?;
    let unescaped = |token: &str| token.replace("~1", "/").replace("~0", "~");
    match pointer.split_once('/') {
        Some((first, rest)) => arguments
            .get(&unescaped(first))?
            .pointer(&format!("/{rest}")),
        None => arguments.get(&unescaped(pointer)),
    }
}

fn quoted(example: Option<&Map<String, Value>>) -> String {
    let text = serde_json::to_string(&example).unwrap_or_default();
    patterns::shortened(&text)
}
