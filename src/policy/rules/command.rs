//! Patterns over the commands of a shell line.

use super::patterns::{Fit, excerpt};
use super::shell::{self, ShellLine, ShellWord};

/// The patterns of a rule: the first words of commands.
#[derive(Debug)]
pub(super) struct CommandPatterns(Vec<Vec<String>>);

/// Lines that are split already. Several rules may test the same argument of a call.
#[derive(Debug, Default)]
pub(super) struct SplitLines<'a>(Vec<(&'a str, Option<ShellLine>)>);

impl<'a> SplitLines<'a> {
    fn split(&mut self, line: &'a str) -> Option<&ShellLine> {
        let known = self.0.iter().position(|(known, _)| *known == line);
        let index = known.unwrap_or(self.0.len());
        if known.is_none() {
            self.0.push((line, shell::split(line)));
        }
        self.0.get(index)?.1.as_ref()
    }
}

impl CommandPatterns {
    pub(super) fn new(patterns: Vec<(usize, Vec<String>)>) -> Self {
        Self(patterns.into_iter().map(|(_, words)| words).collect())
    }

    /// Compares a line. With `all`, each of its commands has to begin with a pattern for certain, and the line must not
    /// write into a file. Otherwise it is enough that one command may begin with a pattern.
    pub(super) fn fit<'a>(&self, line: &'a str, all: bool, lines: &mut SplitLines<'a>) -> Fit {
        let Some(line) = lines.split(line) else {
            return Fit::Unreadable;
        };
        if all {
            let matches = !line.unsafe_to_allow
                && !line.commands.is_empty()
                && (line.commands.iter())
                    .all(|words| self.0.iter().any(|pattern| begins(words, pattern)));
            return matches.into();
        }
        (line.commands.iter())
            .any(|words| self.0.iter().any(|pattern| may_begin(words, pattern)))
            .into()
    }
}

/// The words of a pattern.
pub(super) fn pattern(text: &str) -> Result<Vec<String>, String> {
    let problem = || {
        format!(
            "{} is not the beginning of one command; write plain words, and quote special characters",
            excerpt(text)
        )
    };
    let line = shell::split(text).ok_or_else(problem)?;
    let [words] = line.commands.as_slice() else {
        return Err(problem());
    };
    if line.unsafe_to_allow {
        return Err(problem());
    }
    words
        .iter()
        .map(|word| match word {
            ShellWord::Literal(text) => Ok(text.clone()),
            ShellWord::Unknown => Err(problem()),
        })
        .collect()
}

fn begins(words: &[ShellWord], pattern: &[String]) -> bool {
    pattern.len() <= words.len()
        && (words.iter().zip(pattern))
            .all(|(word, wanted)| matches!(word, ShellWord::Literal(text) if text == wanted))
}

/// An expansion may become each of the words that follow in the pattern, and more.
fn may_begin(words: &[ShellWord], pattern: &[String]) -> bool {
    let mut words = words.iter();
    for wanted in pattern {
        match words.next() {
            Some(ShellWord::Unknown) => return true,
            Some(ShellWord::Literal(text)) if text == wanted => {}
            Some(ShellWord::Literal(_)) | None => return false,
        }
    }
    true
}
