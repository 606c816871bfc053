//! The command line.
//!
//! Owns the subcommands, flags and their help. A flag has the name of its key in the file, and an environment variable
//! (`LOOPWRIGHT_` and the name). Flags are texts here; [`super::Config::load`] reads them by the types of the keys.

mod approvals;
mod running;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use serde::Serialize;

pub use self::approvals::ApprovalsArguments;
#[cfg(test)]
pub(crate) use self::approvals::ServerFlags;
pub(crate) use self::approvals::{ApprovalsCommand, RememberChoice};
pub(crate) use self::running::{CodingAgent, RunningServerFlags};
pub use self::running::{HealthArguments, LaunchArguments};
use super::{Environment, parse, source};
use crate::telemetry::Format;

/// The value name of flags that may be given without a value.
const SWITCH: &str = "BOOL";

/// The version, and the commit if the build was given one.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let commit = option_env!("LOOPWRIGHT_COMMIT").map(|commit| format!(" ({commit})"));
    format!(
        "{}{}",
        env!("CARGO_PKG_VERSION"),
        commit.unwrap_or_default()
    )
});

/// The command line as given.
#[derive(Debug, Parser)]
#[command(
    name = "loopwright",
    version = VERSION.as_str(),
    about = "OpenAI-compatible inference proxy that runs server-side tools and returns one clean answer",
    args_conflicts_with_subcommands = true,
    after_help = "Without a command, loopwright serves. Precedence: flag, environment variable, file, default."
)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeFlags,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve (the default)
    Serve(ServeFlags),
    /// Show what loopwright does: starts a scripted model and a sample tool, sends a few requests and stays up
    Demo(DemoFlags),
    /// Check the settings and print those that are set, without secrets
    CheckConfig(CheckFlags),
    /// Print the description of the API as an OpenAPI 3.1 document
    Openapi,
    /// Work on a session store
    #[command(subcommand)]
    Store(StoreCommand),
    /// List the calls that wait for a person on a running server, and decide about them
    Approvals(ApprovalsArguments),
    /// Start a coding agent (codex, claude or aider) against a running server, without changes to its configuration
    Launch(LaunchArguments),
    /// Ask a running server whether it is alive; the exit status is 0 or 1
    Health(HealthArguments),
    /// Print a page of the manual, or the list of its subjects
    Manual {
        /// The subject, such as api
        subject: Option<String>,
    },
}

impl Command {
    /// The format of an error that comes before the log is set up. What the file says is not known then.
    pub fn log_format(&self, env: Environment<'_>) -> Format {
        let log = match self {
            Self::Serve(flags) => &flags.log,
            Self::Demo(flags) => &flags.log,
            Self::CheckConfig(_)
            | Self::Openapi
            | Self::Store(_)
            | Self::Approvals(_)
            | Self::Launch(_)
            | Self::Health(_)
            | Self::Manual { .. } => return Format::Text,
        };
        let variable = || env(&source::variable("log-format"));
        let text = log.log_format.clone().or_else(variable);
        let format = text.and_then(|text| parse::log_format(&text).ok());
        format.unwrap_or_default()
    }
}

/// The subcommands of `store`.
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Copy a store into a new SQLite file, while a server uses it or not
    Backup(BackupArguments),
    /// Copy a SQLite store into an empty PostgreSQL database, or go on with such a copy
    Copy(CopyArguments),
}

/// The arguments of `store backup`.
#[derive(Debug, Clone, Default, Args)]
pub struct BackupArguments {
    /// The new file; it must not exist
    #[arg(value_name = "PATH")]
    pub to: String,
    /// Copy the contents of files too, into the directory beside PATH in which a store there looks for them
    #[arg(long)]
    pub files: bool,
    /// Where the store is.
    #[command(flatten)]
    pub store: StoreFlags,
}

/// The flags that say where a store and its files are, with the meaning that they have for `serve`.
#[derive(Debug, Clone, Default, Args, Serialize)]
pub struct StoreFlags {
    /// TOML file with the settings of the server
    #[arg(long, value_name = "PATH")]
    #[serde(skip)]
    pub(crate) config: Option<PathBuf>,
    /// The store: sqlite:PATH or a postgres: URL [default: sqlite:loopwright.db]
    #[arg(long, value_name = "URL")]
    pub(crate) session_store: Option<String>,
    /// Contents of files: a directory or object storage [default: loopwright-files beside the session store]
    #[arg(long, value_name = "PATH|s3://BUCKET/PREFIX")]
    pub(crate) files_dir: Option<String>,
}

/// The arguments of `store copy`.
#[derive(Debug, Clone, Default, Args)]
pub struct CopyArguments {
    /// The store to copy: sqlite:PATH or a postgres: URL; - is the variable of --session-store
    pub from: String,
    /// The copy: sqlite:PATH or a postgres: URL [default: the variable of --session-store, which keeps a password off the command
    /// line]
    pub to: Option<String>,
}

/// The flags of the settings; `None` is a flag that was not given.
#[derive(Debug, Clone, Default, Args, Serialize)]
pub struct ServeFlags {
    /// TOML file with settings; `loopwright check-config --template` prints one with all of them
    #[arg(long, value_name = "PATH")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Address to listen on [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// Serve the console, a web page, at / [default: true]
    #[arg(long, value_name = SWITCH)]
    pub console: Option<String>,
    /// Base URL of the model server, ending in /v1; several go into the file
    #[arg(long, value_name = "URL")]
    pub upstream: Option<String>,
    /// Name of the environment variable that holds the model server's API key
    #[arg(long, value_name = "NAME")]
    pub upstream_api_key_env: Option<String>,
    /// What the model server is, such as llama.cpp, vllm or ollama; `manual servers` lists the kinds [default: auto, which finds it out]
    #[arg(long, value_name = "KIND")]
    pub upstream_kind: Option<String>,
    /// URL of the webhook that runs the tools a request declares
    #[arg(long, value_name = "URL")]
    pub tool_dispatch_url: Option<String>,
    /// Names of the functions that go to that URL; the others stay with the client [default: of chat completions all but coding agents' own, none of Responses]
    #[arg(long, value_name = "GLOB,…")]
    pub dispatch_tools: Option<String>,
    /// JSON file with MCP servers: the `mcpServers` that every MCP client has
    #[arg(long, value_name = "PATH")]
    pub mcp_config: Option<String>,
    /// Whether server-side tools may run, where no rule decides: auto, ask (a person decides) or deny [default: auto]
    #[arg(long, value_name = "auto|ask|deny")]
    pub agent_permission: Option<String>,
    /// Most rounds of server-side tools in one turn; 0 switches them off [default: 256]
    #[arg(long, value_name = "N")]
    pub max_tool_rounds: Option<String>,
    /// Offer code execution to requests that ask for it
    #[arg(long, value_name = SWITCH)]
    pub enable_code_execution: Option<String>,
    /// Longest time of one call of code execution, in seconds: 1 to 300 [default: 60]
    #[arg(long, value_name = "S")]
    pub code_exec_timeout: Option<String>,
    /// The Python interpreter of code execution: a path, or a name that is looked up in PATH [default: python3]
    #[arg(long, value_name = "PATH")]
    pub code_exec_python: Option<String>,
    /// Offer web search and page reading to every request
    #[arg(long, value_name = SWITCH)]
    pub enable_search: Option<String>,
    /// Search provider: searxng, brave, tavily, exa, serper or duckduckgo [default: duckduckgo, or searxng with --search-url]
    #[arg(long, value_name = "NAME")]
    pub search_provider: Option<String>,
    /// Address of the search provider: your SearXNG, or another address of the API
    #[arg(long, value_name = "URL")]
    pub search_url: Option<String>,
    /// Session store: sqlite:PATH, a postgres: URL, or memory: [default: sqlite:loopwright.db]
    #[arg(long, value_name = "URL")]
    pub session_store: Option<String>,
    /// Contents of uploaded and produced files: a directory or object storage [default: loopwright-files beside the session store]
    #[arg(long, value_name = "PATH|s3://BUCKET/PREFIX")]
    pub files_dir: Option<String>,
    /// Name of this replica, for the header x-loopwright-replica [default: the host name where replicas share the store]
    #[arg(long, value_name = "NAME")]
    pub replica_name: Option<String>,
    /// Address that other replicas reach this one at, for runs that they are asked about
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub cluster_listen: Option<String>,
    /// URL by which other replicas reach that address [default: the address]
    #[arg(long, value_name = "URL")]
    pub cluster_url: Option<String>,
    /// Name of the environment variable that holds the key which all replicas have
    #[arg(long, value_name = "NAME")]
    pub cluster_key_env: Option<String>,
    /// Allow a public address without any API key
    #[arg(long, value_name = SWITCH)]
    pub insecure_no_auth: Option<String>,
    /// Base URL of an OpenTelemetry collector, which gets traces at /v1/traces [default: as OpenTelemetry's own variables say]
    #[arg(long, value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// Logs.
    #[command(flatten)]
    #[serde(flatten)]
    pub log: LogFlags,
}

/// The flags of `check-config`.
#[derive(Debug, Clone, Default, Args)]
pub struct CheckFlags {
    /// The settings.
    #[command(flatten)]
    pub serve: ServeFlags,
    /// Try all that the settings name: model servers, webhooks, MCP servers, search, store and files
    #[arg(long)]
    pub connect: bool,
    /// Print every effective value, also those by default
    #[arg(long)]
    pub all: bool,
    /// Print a file that explains every key, with its default, and check nothing
    #[arg(long)]
    pub template: bool,
}

/// The flags of `demo`.
#[derive(Debug, Clone, Default, Args, Serialize)]
pub struct DemoFlags {
    /// Address to listen on [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<String>,
    /// Logs.
    #[command(flatten)]
    #[serde(flatten)]
    pub log: LogFlags,
}

/// The flags for logs.
#[derive(Debug, Clone, Default, Args, Serialize)]
pub struct LogFlags {
    /// Format of the log on stderr: text or json [default: text]
    #[arg(long, value_name = "text|json")]
    pub(crate) log_format: Option<String>,
    /// Level of the log, or directives such as info,loopwright=debug [default: info, in the demo warn]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
}

impl Cli {
    /// Parses the arguments of the process; ends the process if they are wrong or ask for help.
    pub fn from_process() -> Self {
        let arguments: Vec<String> = std::env::args_os()
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect();
        let matches = command().try_get_matches();
        let matches = matches
            .unwrap_or_else(|error| without_urls(with_switch_hint(error, &arguments)).exit());
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    /// The subcommand, `serve` by default.
    pub fn into_command(self) -> Command {
        self.command.unwrap_or(Command::Serve(self.serve))
    }
}

/// An error with the form in which a switch takes a value, if a value stands behind a switch by itself.
fn with_switch_hint(mut error: clap::Error, arguments: &[String]) -> clap::Error {
    let kinds = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand];
    let mut words = kinds.iter().filter_map(|kind| error.get(*kind));
    let word = words.next().map(ToString::to_string);
    let word = word.filter(|word| matches!(word.as_str(), "true" | "false"));
    let before = word.as_ref().and_then(|word| {
        let at = arguments.iter().position(|argument| argument == word)?;
        arguments.get(at.checked_sub(1)?)
    });
    if let (Some(word), Some(switch)) = (&word, before)
        && switch.starts_with("--")
    {
        let hint = format!("write {switch}={word}");
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![hint.into()]),
        );
    }
    error
}

/// An error that repeats no URL, which may hold a password.
fn without_urls(mut error: clap::Error) -> clap::Error {
    use ContextKind::{InvalidArg, InvalidSubcommand, InvalidValue, Suggested, TrailingArg};
    for kind in [InvalidArg, InvalidSubcommand, InvalidValue, TrailingArg] {
        let value = error.get(kind).map(ToString::to_string);
        if value.is_some_and(|value| value.contains("://")) {
            error.insert(kind, ContextValue::String("a URL".to_owned()));
            // It repeats the value.
            error.remove(Suggested);
        }
    }
    error
}

/// The command line with the settings that all flags share.
pub(super) fn command() -> clap::Command {
    completed(Cli::command())
}

fn completed(command: clap::Command) -> clap::Command {
    command.mut_args(complete).mut_subcommands(completed)
}

/// Flags that say what to do, and are no settings.
const WITHOUT_VARIABLE: [&str; 15] = [
    "connect",
    "files",
    "all",
    "template",
    "json",
    "key-env",
    "arguments",
    "remember",
    "message",
    "url",
    "ready",
    "timeout",
    "api-key-env",
    "model",
    "print",
];

/// Adds the variable to the help of a flag, and lets a switch stand without a value.
fn complete(arg: Arg) -> Arg {
    let (Some(name), Some(help)) = (arg.get_long(), arg.get_help()) else {
        return arg;
    };
    if WITHOUT_VARIABLE.contains(&name) {
        return arg;
    }
    let help = format!("{help} [env: {}]", source::variable(name));
    let is_switch = arg
        .get_value_names()
        .is_some_and(|names| names.iter().any(|name| name == SWITCH));
    let arg = arg.help(help);
    if is_switch {
        arg.num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
    } else {
        arg
    }
}
