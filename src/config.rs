//! Settings: read once from flags, environment and file, checked, and handed to every part in the part's own types.
//!
//! Owns the order of precedence (flag, environment, file, default), the names of all keys and every refusal of an
//! impossible setting. Knows nothing of what the parts do with theirs, and never reads the environment by itself: the
//! look-up is handed in, so that tests hand in a map.

pub mod cli;
mod edge;
mod file;
mod input;
mod limits;
mod locate;
mod parse;
mod sandbox;
mod search;
mod secrets;
mod summary;
mod tools;
mod upstreams;
mod value;

#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use crate::{agent, http, sandbox as code, session, telemetry, tools as server_tools, upstream};

use cli::{DemoFlags, ServeFlags};
use input::{Input, Place};
pub use search::WebConfig;

/// Looks a variable up; an empty one counts as unset.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// All settings, checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// The HTTP edge.
    pub http: http::settings::Settings,
    /// The model servers, in the order in which they are tried; at least one.
    pub upstreams: Vec<upstream::settings::Settings>,
    /// Retries of model calls.
    pub retry: upstream::retry::RetryPolicy,
    /// Server-side tools.
    pub tools: server_tools::settings::Settings,
    /// Code execution; nothing while it is switched off.
    pub sandbox: Option<code::settings::Settings>,
    /// The web; nothing while it is switched off.
    pub web: Option<WebConfig>,
    /// Sessions.
    pub session: session::settings::Settings,
    /// The loop.
    pub agent: agent::settings::Settings,
    /// Logs.
    pub log: telemetry::Settings,
    /// Settings that are possible but probably not meant, each one sentence for the operator.
    pub notices: Vec<String>,
}

/// The settings of `loopwright demo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemoConfig {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Logs.
    pub log: telemetry::Settings,
    /// `PATH`, where a Python interpreter is looked up.
    pub search_path: Option<String>,
    /// `TMPDIR`, where working files of code lie while the demo runs.
    pub temporary: Option<String>,
}

/// Why the settings cannot be used: one line that says where, what and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("{origin}: cannot read {}: {cause}", path.display())]
    Unreadable {
        /// What names the file.
        origin: Origin,
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        cause: io::Error,
    },
    /// The file is no TOML, or a key is unknown, missing or of the wrong type.
    #[error("{file}, line {line}: {}{problem}", key_prefix(key))]
    Shape {
        /// The file.
        file: Arc<str>,
        /// The line, from 1.
        line: usize,
        /// The path of the key; empty where the text is no TOML.
        key: String,
        /// What is wrong.
        problem: String,
    },
    /// A value is impossible.
    #[error("{origin}: {problem}")]
    Invalid {
        /// Where the value stands.
        origin: Origin,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A setting without default is not there.
    #[error("{0}")]
    Missing(&'static str),
}

/// Where a value stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A flag, by its name without dashes.
    Flag(&'static str),
    /// An environment variable.
    Variable(String),
    /// A key of the file.
    Key {
        /// The file.
        file: Arc<str>,
        /// The path of the key.
        key: String,
    },
}

impl Config {
    /// Reads the settings of `serve` and `check-config`.
    ///
    /// # Errors
    /// When a file or variable is missing or a setting is impossible; the text is meant for the operator.
    pub fn load(flags: &ServeFlags, env: Lookup<'_>) -> Result<Self, ConfigError> {
        let path = |text: &str| Ok(PathBuf::from(text));
        let (file, place) = match input::choose("config", flags.config.as_ref(), env, path)? {
            Some(found) => file::read(&found.value, found.origin)?,
            None => (file::File::default(), Place::root("configuration".into())),
        };
        let input = Input {
            flags,
            env,
            file: &file,
            place,
        };
        let mut notices = Vec::new();
        let (upstreams, retry) = upstreams::settings(&input, &mut notices)?;
        let session = limits::session(&input)?;
        let web = search::settings(&input, &upstreams, &mut notices)?;
        Ok(Self {
            http: edge::settings(&input, &mut notices)?,
            upstreams,
            retry,
            tools: tools::settings(&input, &mut notices)?,
            sandbox: sandbox::settings(&input, &session, &mut notices)?,
            web,
            session,
            agent: limits::agent(&input)?,
            log: limits::log(&input)?,
            notices,
        })
    }

    /// What `check-config` prints: every effective value, secrets left out.
    pub fn summary(&self) -> String {
        summary::write(self)
    }
}

impl DemoConfig {
    /// Reads the settings of `demo`; there is no file.
    ///
    /// # Errors
    /// When a variable holds an impossible value.
    pub fn load(flags: &DemoFlags, env: Lookup<'_>) -> Result<Self, ConfigError> {
        let listen = input::choose("listen", flags.listen.as_ref(), env, parse::listen)?;
        Ok(Self {
            listen: listen.map_or(edge::DEFAULT_LISTEN, |found| found.value),
            log: limits::log_from(&flags.log, env)?,
            search_path: env("PATH"),
            temporary: env("TMPDIR"),
        })
    }
}

impl ConfigError {
    fn invalid(origin: Origin, problem: impl Into<String>) -> Self {
        Self::Invalid {
            origin,
            problem: problem.into(),
        }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Flag(name) => write!(formatter, "--{name}"),
            Self::Variable(name) => formatter.write_str(name),
            Self::Key { file, key } => write!(formatter, "{file}: {key}"),
        }
    }
}

fn key_prefix(key: &str) -> String {
    if key.is_empty() {
        String::new()
    } else {
        format!("{key}: ")
    }
}
