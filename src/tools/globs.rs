//! Lists of name patterns.

use globset::{Glob, GlobSet};

use protocol::ids::shown;

/// Most patterns of one list. Requests bring them, and compiling each takes time; a longer list is refused.
/// Tried by `tools::set::a_glob_that_cannot_be_read_is_named`.
const MAX_PATTERNS: usize = 256;
/// Longest pattern, in characters, as names have at most 64; a longer one is refused.
/// Tried by `tools::set::a_glob_that_cannot_be_read_is_named`.
const MAX_PATTERN_CHARS: usize = 256;

/// Why a list of patterns cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GlobListError {
    /// A pattern is not a glob.
    #[error("'{pattern}' is not a glob: {reason}")]
    Pattern {
        /// The pattern, truncated if it is long.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A list has too many patterns; holds the limit.
    #[error("a list holds more than {0} globs")]
    TooMany(usize),
    /// The patterns of a list cannot be used together.
    #[error("the globs of a list cannot be used together: {0}")]
    Together(String),
}

/// A list of name patterns; a name matches if any pattern matches it.
#[derive(Debug, Clone, Default)]
pub struct Globs(GlobSet);

impl Globs {
    /// These names alone, whatever signs they hold.
    pub fn of_names(names: &[String]) -> Self {
        let mut set = globset::GlobSetBuilder::new();
        for name in names {
            // An escaped name is always a glob.
            if let Ok(glob) = Glob::new(&globset::escape(name)) {
                set.add(glob);
            }
        }
        Self(set.build().unwrap_or_default())
    }

    /// Compiles a list; an empty one matches nothing.
    ///
    /// # Errors
    /// When a pattern is not a glob, or there are too many patterns.
    pub fn new(patterns: &[String]) -> Result<Self, GlobListError> {
        if patterns.len() > MAX_PATTERNS {
            return Err(GlobListError::TooMany(MAX_PATTERNS));
        }
        let globs: Vec<Glob> = patterns
            .iter()
            .map(|pattern| glob(pattern))
            .collect::<Result<_, _>>()?;
        let set = GlobSet::new(globs)
            .map_err(|error| GlobListError::Together(error.kind().to_string()))?;
        Ok(Self(set))
    }

    /// Whether any pattern matches a name.
    pub fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

fn glob(pattern: &str) -> Result<Glob, GlobListError> {
    let wrong = |reason: String| GlobListError::Pattern {
        pattern: shown(pattern),
        reason,
    };
    if pattern.chars().count() > MAX_PATTERN_CHARS {
        return Err(wrong(format!(
            "it is longer than {MAX_PATTERN_CHARS} characters"
        )));
    }
    Glob::new(pattern).map_err(|error| wrong(error.kind().to_string()))
}
