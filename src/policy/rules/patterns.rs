//! Patterns that callers write, compiled within bounds.

use globset::{Glob, GlobBuilder, GlobMatcher};
use regex::{RegexSet, RegexSetBuilder, bytes};

/// Most patterns of a rule.
/// Tried by `rules::compile::the_bounds_of_patterns_hold`.
pub(super) const MOST_PATTERNS: usize = 256;
/// Longest pattern that is no regular expression, in characters.
/// Tried by `rules::compile::the_bounds_of_patterns_hold`.
pub(super) const LONGEST_PATTERN: usize = 256;
/// Longest regular expression, in characters.
/// Tried by `rules::compile::the_bounds_of_patterns_hold`.
pub(super) const LONGEST_REGEX: usize = 1_000;
/// Largest compiled form of the patterns of a rule, in bytes.
/// Tried by `rules::compile::the_bounds_of_patterns_hold`.
const LARGEST_PROGRAM: usize = 512 * 1024;
/// Largest cache of a matcher, in bytes. It is kept from match to match.
/// Tried by `rules::attacks::long_values_are_bounded`.
const LARGEST_CACHE: usize = 256 * 1024;
/// Deepest nesting in a regular expression.
/// Tried by `rules::compile::the_bounds_of_patterns_hold`.
const DEEPEST_REGEX: u32 = 32;
/// Longest quotation of a value in an error text, in characters.
/// Tried by `rules::compile::errors_name_the_field_and_the_remedy`.
const LONGEST_EXCERPT: usize = 80;

/// What is wrong with the patterns of a rule.
#[derive(Debug)]
pub(super) struct PatternError {
    /// The position of the pattern, if only one pattern has the problem.
    pub(super) pattern: Option<usize>,
    /// The problem and the remedy.
    pub(super) problem: String,
}

/// How a value compares with the patterns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// One of the patterns matches.
    Matches,
    /// No pattern matches.
    Differs,
    /// The value cannot be compared.
    Unreadable,
}

impl From<bool> for Fit {
    fn from(matches: bool) -> Self {
        if matches {
            Self::Matches
        } else {
            Self::Differs
        }
    }
}

/// Globs of a rule. They are compared as bytes.
#[derive(Debug)]
pub(super) struct CompiledGlobs(bytes::RegexSet);

impl CompiledGlobs {
    /// `texts` are the globs, each with the position of the pattern it was made of. With `components`, wildcards do not
    /// match `/`.
    pub(super) fn compile(
        texts: &[(usize, String)],
        components: bool,
    ) -> Result<Self, PatternError> {
        let mut regexes = Vec::with_capacity(texts.len());
        for (index, text) in texts {
            let glob = glob(text, components).map_err(|problem| PatternError {
                pattern: Some(*index),
                problem,
            })?;
            regexes.push(glob.regex().to_owned());
        }
        bytes::RegexSetBuilder::new(&regexes)
            .dot_matches_new_line(true)
            .size_limit(LARGEST_PROGRAM)
            .dfa_size_limit(LARGEST_CACHE)
            .build()
            .map(Self)
            .map_err(|error| PatternError {
                pattern: None,
                problem: too_large(&error),
            })
    }

    /// Whether one of the globs matches the whole text.
    pub(super) fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text.as_bytes())
    }
}

/// Regular expressions of a rule.
pub(super) fn regexes(patterns: &[String]) -> Result<RegexSet, PatternError> {
    let build = |patterns: &[String]| {
        RegexSetBuilder::new(patterns)
            .size_limit(LARGEST_PROGRAM)
            .dfa_size_limit(LARGEST_CACHE)
            .nest_limit(DEEPEST_REGEX)
            .build()
    };
    build(patterns).map_err(|together| {
        let single = (patterns.iter().enumerate())
            .find_map(|(index, pattern)| Some((index, build(std::slice::from_ref(pattern)).err()?)));
        match single {
            Some((index, regex::Error::Syntax(text))) => PatternError {
                pattern: Some(index),
                problem: format!(
                    "{} is no regular expression: {}; correct it, or use `match = \"prefix\"` for plain text",
                    excerpt(patterns.get(index).map_or("", String::as_str)),
                    shortened(text.lines().last().unwrap_or_default())
                ),
            },
            Some((index, error)) => PatternError {
                pattern: Some(index),
                problem: too_large(&error),
            },
            None => PatternError {
                pattern: None,
                problem: too_large(&together),
            },
        }
    })
}

/// The glob over the names of tools.
pub(super) fn tool_glob(text: &str) -> Result<GlobMatcher, String> {
    if text.is_empty() {
        return Err("is empty; leave it out for all tools".into());
    }
    check_length(text, LONGEST_PATTERN)?;
    Ok(glob(text, false)?.compile_matcher())
}

/// Refuses a pattern that is empty or too long.
pub(super) fn check_length(text: &str, longest: usize) -> Result<(), String> {
    let length = text.chars().count();
    if length > longest {
        let quoted = excerpt(text);
        return Err(format!(
            "{quoted} has {length} characters; at most {longest} are possible"
        ));
    }
    Ok(())
}

fn glob(text: &str, components: bool) -> Result<Glob, String> {
    GlobBuilder::new(text)
        .literal_separator(components)
        .backslash_escape(true)
        .build()
        .map_err(|error| {
            format!(
                "{} is no glob: {}; put a backslash before characters that are meant as they are",
                excerpt(text),
                error.kind()
            )
        })
}

fn too_large(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(_) => {
            "the compiled patterns are too large; use fewer, shorter or simpler ones".into()
        }
        error => format!(
            "the patterns cannot be compiled: {}; use simpler ones",
            shortened(&error.to_string())
        ),
    }
}

/// A value in quotes, within [`LONGEST_EXCERPT`].
pub(super) fn excerpt(text: &str) -> String {
    let mut kept: String = text.chars().take(LONGEST_EXCERPT).collect();
    if kept.len() < text.len() {
        kept.push('…');
    }
    format!("{kept:?}")
}

/// A text within [`LONGEST_EXCERPT`].
pub(super) fn shortened(text: &str) -> String {
    let mut kept: String = text.chars().take(LONGEST_EXCERPT).collect();
    if kept.len() < text.len() {
        kept.push('…');
    }
    kept
}
