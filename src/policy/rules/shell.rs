//! Shell lines, split into their commands as Bash splits them.
//!
//! The grammar is that of `tree-sitter-bash`. Its trees are not trusted: [`tree`] checks that every node is of a known
//! kind, that only blanks lie between the tokens, and that every token is what Bash would read at that place. A line
//! that fails a check cannot be read. The checks refuse some correct lines, such as lines with escapes in backquotes,
//! several here-documents on a line, or words after the target of a redirect.
//!
//! The parser and the walk over the tree use the heap, not the stack, whatever the line nests.

mod gaps;
mod here;
mod leaf;
mod tree;
mod word;

use std::ops::ControlFlow;

use tree_sitter::{ParseOptions, ParseState, Parser};

/// Longest line that is split, in bytes.
/// Tried by `rules::attacks::lines_over_the_bounds_cannot_be_read`.
pub(super) const LONGEST_LINE: usize = 8_192;
/// Most brackets, braces, parentheses, backquotes and pipes in a line that is split, whether they are quoted or
/// not. What the parser does about an error grows with the square of their number.
/// Tried by `rules::attacks::lines_over_the_bounds_cannot_be_read`.
pub(super) const MOST_BRACKETS: usize = 512;
/// Most reports of progress before the parser is stopped. It reports after every hundred steps.
/// Tried by `rules::attacks::the_steps_of_the_parser_are_bounded`.
pub(super) const MOST_REPORTS: usize = 4_096;

/// A word of a command after quote removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ShellWord {
    /// The text is known.
    Literal(String),
    /// The word holds an expansion. It may become any text, several words, or none.
    Unknown,
}

/// The commands of a shell line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ShellLine {
    /// The words of each command, in no certain order. None of them is empty.
    pub(super) commands: Vec<Vec<ShellWord>>,
    /// Whether the line may write into a file, or evaluate the value of a variable, which may hold commands.
    pub(super) unsafe_to_allow: bool,
}

/// Splits a line. `None`: it cannot be split with certainty.
pub(super) fn split(line: &str) -> Option<ShellLine> {
    let bracket = |character: &char| "()[]{}`|".contains(*character);
    let odd = |character: char| character.is_control() && character != '\n' && character != '\t';
    if line.len() > LONGEST_LINE
        || line.chars().filter(bracket).count() > MOST_BRACKETS
        || line.chars().any(odd)
    {
        return None;
    }
    let mut parser = Parser::new();
    parser
        .set_language(&tree_sitter_bash::LANGUAGE.into())
        .ok()?;
    let mut reports = 0_usize;
    let mut bounded = |_: &ParseState| {
        reports += 1;
        if reports > MOST_REPORTS {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let mut read = |offset: usize, _| line.as_bytes().get(offset..).unwrap_or_default();
    let options = ParseOptions::new().progress_callback(&mut bounded);
    let parsed = parser.parse_with_options(&mut read, None, Some(options))?;
    tree::commands(line, &parsed)
}
