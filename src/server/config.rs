//! The settings: read once from flags, environment and file, checked, and converted to the types of each part.
//!
//! Owns the order of precedence (flag, environment, file, default), the names of all keys and every refusal of an
//! impossible setting. Does not depend on how the parts use their settings, and does not read the environment: the
//! caller passes a function that does, so that tests can pass another one.
//!
//! A new setting is a field of the part's settings, a key in `file`, and, if it has a flag, a flag in [`cli`]. Values are
//! checked in this order: each alone, by the type of its key; then the keys that depend on one another.

mod agent;
mod approvals;
mod backup;
pub mod cli;
mod cluster;
mod copy;
mod file;
mod given;
mod health;
mod hints;
mod hooks;
mod http;
mod launch;
mod locate;
mod mcp;
mod names;
mod parse;
mod sandbox;
mod search;
mod secrets;
mod server;
mod source;
mod text;
mod tools;
mod traces;
mod unmatched;
mod upstreams;
mod validation;
mod value;
mod variables;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

pub use approvals::ApprovalsConfig;
pub(crate) use approvals::{ApprovalsTask, DecisionArguments};
pub use backup::BackupConfig;
use cli::{DemoFlags, ServeFlags};
pub use copy::CopyConfig;
pub use health::HealthConfig;
pub use launch::LaunchConfig;
pub(crate) use search::WebConfig;
use validation::Validation;

pub(crate) use server::ServerAddress;

/// The file that explains every key, with its default.
pub const TEMPLATE: &str = include_str!("../../config/loopwright.toml");

/// Looks up an environment variable; an empty one counts as unset.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// All settings, checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// The HTTP edge.
    pub http: crate::http::settings::Settings,
    /// The address for other replicas, if there is one.
    pub(crate) cluster: Option<net::cluster::settings::Settings>,
    /// The model servers, in the order in which they are tried; at least one.
    pub(crate) upstreams: Vec<upstream::settings::Settings>,
    /// Retries of model calls.
    pub(crate) retry: upstream::retry::RetryPolicy,
    /// Server-side tools.
    pub tools: ::tools::settings::Settings,
    /// MCP servers.
    pub mcp: ::tools::settings::mcp::McpSettings,
    /// Hooks.
    pub(crate) hooks: policy::hooks::settings::Settings,
    /// Code execution, if it is on.
    pub sandbox: Option<::sandbox::settings::Settings>,
    /// Web search, if it is on.
    pub(crate) web: Option<WebConfig>,
    /// Files that requests name by their URLs.
    pub(crate) file_urls: web::settings::FileUrlSettings,
    /// Sessions.
    pub session: ::agent::session::settings::Settings,
    /// Runs.
    pub runs: ::agent::runs::settings::Settings,
    /// The loop.
    pub(crate) agent: ::agent::settings::Settings,
    /// Hides secrets in results of tools, if that is on.
    pub(crate) redactor: Option<policy::redact::Redactor>,
    /// Logs.
    pub log: crate::telemetry::Settings,
    /// Traces, if there is a collector for them.
    pub(crate) traces: Option<::agent::traces::settings::Settings>,
    /// Settings that are possible but probably not intended, each as one sentence for the operator.
    pub notices: Vec<String>,
    /// The same settings as keys of the file.
    effective: Box<file::File>,
    /// The settings that were set, as TOML with the origin of each.
    given: String,
    /// The environment variables that settings read.
    variables: BTreeSet<String>,
}

/// The settings of `loopwright demo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemoConfig {
    /// The address to listen on.
    pub(crate) listen: SocketAddr,
    /// Logs.
    pub log: crate::telemetry::Settings,
    /// `PATH`, where a Python interpreter is looked up.
    pub(crate) search_path: Option<String>,
    /// `TMPDIR`, for working files of code while the demo runs.
    pub(crate) temporary: Option<String>,
}

/// Why the settings cannot be used. Its text is one line: where the fault is, what it is, and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("{origin}: cannot read {}: {cause}", path.display())]
    Unreadable {
        /// The flag or variable that names the file.
        origin: Origin,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// A value is impossible, or the file is not TOML.
    #[error("{origin}: {problem}")]
    Invalid {
        /// The origin of the value.
        origin: Origin,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A setting without default is missing.
    #[error("{0}")]
    Missing(&'static str),
}

/// The origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A flag, by its name without dashes.
    Flag(String),
    /// An environment variable.
    Variable(String),
    /// An argument without a flag, by its name in the help.
    Argument(&'static str),
    /// A key of the file.
    Key {
        /// The file, if there is one.
        file: Option<Arc<str>>,
        /// The line, if the file has the key.
        line: Option<usize>,
        /// The path of the key; empty for an error of the TOML syntax.
        key: String,
    },
}

impl Config {
    /// Reads the settings of `serve` and `check-config`.
    ///
    /// # Errors
    /// When a file or variable is missing or a setting is impossible; the text is for the operator.
    pub fn load(flags: &ServeFlags, env: Environment<'_>) -> Result<Self, ConfigError> {
        let variables = RefCell::new(source::variables_of(flags));
        let recorded = |name: &str| {
            variables.borrow_mut().insert(name.to_owned());
            env(name)
        };
        let env: Environment<'_> = &recorded;
        let (mut file, origins) = source::read(flags.config.as_deref(), flags, env)?;
        let mut checks = Validation::begin(&file, env, origins)?;
        let upstreams = upstreams::settings(&mut file, &mut checks)?;
        let session = agent::session(&mut file, &checks)?;
        let web = search::settings(&mut file, &upstreams, &mut checks)?;
        let http = http::settings(&mut file, &mut checks)?;
        let cluster = cluster::settings(&file, &mut checks)?;
        let retry = upstreams::retry(&file, &checks)?;
        let tools = tools::settings(&mut file, &mut checks)?;
        let mcp = mcp::settings(&mut file, &mut checks)?;
        let sandbox = sandbox::settings(&mut file, &session, &mut checks)?;
        let agent = agent::agent(&file, &checks)?;
        let hooks = hooks::settings(&file, &checks)?;
        let traces = traces::settings(&file, &mut checks)?;
        let names = unmatched::KnownToolNames {
            tools: &tools,
            mcp: &mcp,
            has_code: sandbox.is_some(),
            has_web: web.is_some(),
        };
        unmatched::note(&names, &agent.permissions, &http.api_keys, &mut checks);
        Ok(Self {
            http,
            cluster,
            upstreams,
            retry,
            tools,
            mcp,
            hooks,
            sandbox,
            web,
            file_urls: search::file_urls(&file),
            session,
            runs: agent::runs(&file),
            agent,
            redactor: bool::from(file.redact_secrets).then(|| checks.secrets.redactor()),
            log: agent::log(&file),
            traces,
            given: given::text(&file, &checks.origins),
            notices: checks.notices,
            effective: Box::new(file),
            variables: variables.take(),
        })
    }

    /// The effective values by the keys of the file, without secrets.
    pub(crate) fn effective_values(&self) -> serde_json::Value {
        serde_json::to_value(&*self.effective).unwrap_or_default()
    }

    /// Adds a notice for each environment variable (name and value) that looks like a setting and is none.
    pub fn note_unknown_variables(&mut self, environment: &[(String, String)]) {
        let unknown = variables::unknown(environment, &self.variables);
        self.notices.extend(unknown);
    }

    /// The text that `check-config` prints: the values that were set, with the place of each, and the notices.
    pub fn set_values(&self) -> String {
        let given = &self.given;
        let text = "# what is set, and where; `check-config --all` prints every value";
        format!(
            "configuration is valid\n\n{text}\n{given}\n{}",
            self.notes()
        )
    }

    fn notes(&self) -> String {
        let notes = self.notices.iter();
        notes.map(|note| format!("# note: {note}\n")).collect()
    }

    /// The text that `check-config --all` prints: every effective value as TOML, without secrets, and the notices.
    pub fn summary(&self) -> String {
        let values = toml::to_string(&*self.effective)
            .unwrap_or_else(|error| format!("# the values cannot be written: {error}\n"));
        let keys = self.effective_values();
        let keys = keys.as_object().into_iter().flatten();
        let unset = keys.filter(|(_, value)| value.is_null());
        let mut text = format!("configuration is valid\n\n{values}\n");
        for (key, _) in unset {
            text.push_str(&format!("# not set: {key}\n"));
        }
        text + &self.notes()
    }
}

impl DemoConfig {
    /// Reads the settings of `demo`; there is no file.
    ///
    /// # Errors
    /// When a flag or variable holds an impossible value.
    pub fn load(flags: &DemoFlags, env: Environment<'_>) -> Result<Self, ConfigError> {
        let no_file = |name: &str| env(name).filter(|_| name != source::variable("config"));
        let (file, origins) = source::read(None, flags, &no_file)?;
        let mut log = agent::log(&file);
        if !origins.is_given("log_level") {
            // The tour prints every step; the log would repeat the steps between its lines.
            log.level = "warn".to_owned();
        }
        Ok(Self {
            listen: file.listen.0,
            log,
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

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => write!(formatter, "--{name}"),
            Self::Variable(name) => formatter.write_str(name),
            Self::Argument(name) => formatter.write_str(name),
            Self::Key { file, line, key } => {
                let file = file.as_ref().map(ToString::to_string);
                let line = line.map(|line| format!("line {line}"));
                let place: Vec<String> = file.into_iter().chain(line).collect();
                let place = place.join(", ");
                let parts = [place.as_str(), key]
                    .into_iter()
                    .filter(|part| !part.is_empty());
                formatter.write_str(&parts.collect::<Vec<_>>().join(": "))
            }
        }
    }
}
