//! The command lines of the commands that ask a running server: `health` and `launch`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

/// The arguments of `health`.
#[derive(Debug, Clone, Default, Args)]
pub struct HealthArguments {
    /// Ask whether the server can serve (/readyz), not only whether it is alive (/healthz)
    #[arg(long)]
    pub(crate) ready: bool,
    /// Longest wait for the answer, in seconds [default: 6]
    #[arg(long, value_name = "S")]
    pub(crate) timeout: Option<String>,
    /// The server.
    #[command(flatten)]
    pub server: RunningServerFlags,
}

/// The flags that say where a server runs.
#[derive(Debug, Clone, Default, Args, Serialize)]
pub struct RunningServerFlags {
    /// URL of the running server [default: where the settings let it listen, on this machine]
    #[arg(long, value_name = "URL")]
    #[serde(skip)]
    pub url: Option<String>,
    /// TOML file with the settings of the server
    #[arg(long, value_name = "PATH")]
    #[serde(skip)]
    pub(crate) config: Option<PathBuf>,
    /// Address that the server listens on [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<String>,
}

/// The arguments of `launch`.
#[derive(Debug, Clone, Args)]
pub struct LaunchArguments {
    /// The coding agent
    pub(crate) agent: CodingAgent,
    /// Arguments of the agent; write -- before them if they begin with a flag of this command
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
    /// The server.
    #[command(flatten)]
    pub server: RunningServerFlags,
    /// The environment variable with the key.
    #[arg(
        long,
        value_name = "NAME",
        help = "Name of the environment variable that holds an API key of the server [default: LOOPWRIGHT_API_KEY]"
    )]
    pub(crate) api_key_env: Option<String>,
    /// Model of the agent [default: the only one that the server lists]
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Show what would be set, with the key hidden, and start nothing
    #[arg(long)]
    pub(crate) print: bool,
}

/// A coding agent that can be launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CodingAgent {
    /// Codex, over the Responses API
    Codex,
    /// Claude Code, over the Messages API
    Claude,
    /// aider, over chat completions
    Aider,
}
