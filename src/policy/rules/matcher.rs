//! The comparison of an argument with the patterns of a rule.

use regex::RegexSet;

use super::MatchKind;
use super::command::{CommandPatterns, SplitLines};
use super::patterns::{
    CompiledGlobs, Fit, LONGEST_PATTERN, LONGEST_REGEX, MOST_PATTERNS, PatternError, check_length,
    regexes,
};
use super::{host, path};

/// Longest value that is compared with globs and regular expressions, in bytes. A longer one cannot be read.
/// Tried by `rules::attacks::long_values_are_bounded`.
pub(super) const LONGEST_VALUE: usize = 65_536;

/// The compiled patterns of a rule.
#[derive(Debug)]
pub(super) enum Matcher {
    Glob(CompiledGlobs),
    Prefix(Vec<String>),
    Regex(RegexSet),
    Host(CompiledGlobs),
    Path(CompiledGlobs),
    Command(CommandPatterns),
}

impl Matcher {
    pub(super) fn compile(kind: MatchKind, patterns: &[String]) -> Result<Self, PatternError> {
        if patterns.len() > MOST_PATTERNS {
            return Err(PatternError {
                pattern: None,
                problem: format!(
                    "has {} patterns; at most {MOST_PATTERNS} are possible, divide them over several rules",
                    patterns.len()
                ),
            });
        }
        let longest = match kind {
            MatchKind::Regex => LONGEST_REGEX,
            _ => LONGEST_PATTERN,
        };
        each(patterns, |pattern| {
            if pattern.is_empty() {
                return Err(
                    "is empty; leave it out, or leave out `argument` to match every call".into(),
                );
            }
            check_length(pattern, longest)
        })?;
        Ok(match kind {
            MatchKind::Glob => {
                let texts = each(patterns, |pattern| Ok(pattern.to_owned()))?;
                Self::Glob(CompiledGlobs::compile(&texts, false)?)
            }
            MatchKind::Prefix => Self::Prefix(patterns.to_vec()),
            MatchKind::Regex => Self::Regex(regexes(patterns)?),
            MatchKind::Host => {
                let texts = each(patterns, host::pattern)?;
                Self::Host(CompiledGlobs::compile(&texts, false)?)
            }
            MatchKind::Path => {
                let mut texts = each(patterns, path::pattern)?;
                let bases: Vec<_> = (texts.iter())
                    .filter_map(|(index, text)| Some((*index, path::base(text)?)))
                    .collect();
                texts.extend(bases);
                Self::Path(CompiledGlobs::compile(&texts, true)?)
            }
            MatchKind::Command => {
                let words = each(patterns, super::command::pattern)?;
                Self::Command(CommandPatterns::new(words))
            }
        })
    }

    /// Compares a value with the patterns. With `all`, each command of a shell line has to match, and nothing of it may
    /// be uncertain; otherwise one command is enough.
    pub(super) fn fit<'a>(&self, value: &'a str, all: bool, lines: &mut SplitLines<'a>) -> Fit {
        let bounded = matches!(self, Self::Prefix(_) | Self::Command(_));
        if !bounded && value.len() > LONGEST_VALUE {
            return Fit::Unreadable;
        }
        match self {
            Self::Glob(globs) => globs.is_match(value).into(),
            Self::Prefix(prefixes) => prefixes
                .iter()
                .any(|prefix| value.starts_with(prefix.as_str()))
                .into(),
            Self::Regex(regexes) => regexes.is_match(value).into(),
            Self::Host(globs) => {
                host::of_url(value).map_or(Fit::Unreadable, |host| globs.is_match(&host).into())
            }
            Self::Path(globs) => globs.is_match(&path::normal(value)).into(),
            Self::Command(patterns) => patterns.fit(value, all, lines),
        }
    }
}

/// Makes something of each pattern. An error names the pattern.
fn each<T>(
    patterns: &[String],
    make: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<(usize, T)>, PatternError> {
    (patterns.iter().enumerate())
        .map(|(index, pattern)| match make(pattern) {
            Ok(made) => Ok((index, made)),
            Err(problem) => Err(PatternError {
                pattern: Some(index),
                problem,
            }),
        })
        .collect()
}
