//! Permission rules: which tool calls run, which are asked about, which are refused.
//!
//! A [`RuleSet`] holds the compiled rules of one level: of the server, a key, a profile or a request. [`Permissions`]
//! holds the levels of a turn and decides about calls. This module reads the name and classes of a tool and the
//! arguments of a call. It does not depend on how rules are written down, how a person is asked, or how tools are
//! called.
//!
//! Within a level the strictest matching rule decides; if none matches, the default of the level decides. Over the
//! levels the strictest decision counts. A level can therefore only tighten the others.

mod command;
mod compile;
mod counts;
mod decide;
mod entry;
mod host;
mod matcher;
mod path;
mod patterns;
mod shell;
mod words;

#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::compile::{RuleError, RuleSet};
pub use self::counts::CallCounts;
#[cfg(test)]
pub(crate) use self::decide::LevelDecision;
pub use self::decide::{Level, LevelName, Permissions, RuleDecision, RuleRef, RuledCall};
pub use self::entry::RuleEntry;

/// What happens to a call. The stricter effect is the greater.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The call runs.
    Allow,
    /// A person is asked.
    Ask,
    /// The call is refused.
    Deny,
}

/// A class of tools.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// Tools that change nothing.
    ReadOnly,
    /// Tools that may destroy or overwrite something.
    Destructive,
    /// Tools that reach systems outside of the server.
    OpenWorld,
}

/// How the patterns of a rule are compared with an argument.
///
/// Patterns of `command` are the first words of a command. A shell line is split into its commands as Bash splits it.
/// What a command does with its own arguments is not known: `env X=1 rm`, `sudo rm`, `command rm`, `xargs rm`,
/// `bash -c 'rm'` and `eval 'rm'` are commands named `env`, `sudo`, `command`, `xargs`, `bash` and `eval`, and `/bin/rm`
/// is not `rm`. Assignments before a command are left out, also those that change what the command does, such as `PATH`.
/// For a list of what may run, use `allow`: it holds only if every command of the line begins with a pattern. A list of
/// `deny` patterns alone does not confine a shell.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum MatchKind {
    /// Globs over the whole string. `*` also matches `/`.
    Glob,
    /// Beginnings of the string.
    Prefix,
    /// Regular expressions that match anywhere in the string unless they are anchored.
    Regex,
    /// Globs over the host of a URL, in lower case.
    Host,
    /// Globs over a path that is made absolute, without `.` and `..`. `*` does not match `/`, `/x/**` also matches `/x`.
    /// Links are not followed, percent escapes are not decoded, `~` is a name like any other.
    Path,
    /// The first words of the commands of a shell line.
    Command,
}

/// The classes of a tool, as its description states them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolClasses {
    /// Whether the tool changes nothing.
    pub read_only: bool,
    /// Whether the tool may destroy or overwrite something. Without meaning for a read-only tool.
    pub destructive: bool,
    /// Whether the tool reaches systems outside of the server.
    pub open_world: bool,
}

impl ToolClasses {
    /// Whether the tool is of this class. A read-only tool is never destructive.
    pub fn has(self, risk: Risk) -> bool {
        match risk {
            Risk::ReadOnly => self.read_only,
            Risk::Destructive => self.destructive && !self.read_only,
            Risk::OpenWorld => self.open_world,
        }
    }
}
