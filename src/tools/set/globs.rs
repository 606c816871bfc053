//! Lists of name patterns.

use globset::{Glob, GlobSet};

use super::FilterError;

/// Most patterns of one list: a request brings them, and each costs time to compile.
const MAX_PATTERNS: usize = 256;
/// Longest pattern in characters; names end at 64.
const MAX_PATTERN_CHARS: usize = 256;
/// Characters of a pattern that an error text repeats.
const SHOWN_CHARS: usize = 64;

/// Name patterns, of which any may match.
#[derive(Debug, Clone)]
pub(super) struct Globs(GlobSet);

impl Globs {
    /// Compiles a list; an empty one matches nothing.
    pub(super) fn new(patterns: &[String]) -> Result<Self, FilterError> {
        if patterns.len() > MAX_PATTERNS {
            return Err(FilterError::TooMany(MAX_PATTERNS));
        }
        let globs: Vec<Glob> = patterns
            .iter()
            .map(|pattern| glob(pattern))
            .collect::<Result<_, _>>()?;
        let set =
            GlobSet::new(globs).map_err(|error| FilterError::Together(error.kind().to_string()))?;
        Ok(Self(set))
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

fn glob(pattern: &str) -> Result<Glob, FilterError> {
    let wrong = |reason: String| FilterError::Pattern {
        pattern: pattern.chars().take(SHOWN_CHARS).collect(),
        reason,
    };
    if pattern.chars().count() > MAX_PATTERN_CHARS {
        return Err(wrong(format!(
            "it is longer than {MAX_PATTERN_CHARS} characters"
        )));
    }
    Glob::new(pattern).map_err(|error| wrong(error.kind().to_string()))
}
