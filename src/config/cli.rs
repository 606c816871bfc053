//! The command line.
//!
//! Owns the subcommands, flags and their help. Every flag has an environment variable (`LOOPWRIGHT_` and the flag's
//! name) and a key of the file; [`super::Config::load`] decides which one counts.

#![expect(
    clippy::doc_markdown,
    reason = "the comments on flags are what --help prints, where back-ticks have no meaning"
)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use url::Url;

use super::{parse, sandbox, search};
use crate::agent::settings::Permission;
use crate::session::settings::StoreUrl;
use crate::telemetry::Format;
use crate::web::settings::ProviderKind;

/// The command line as given.
#[derive(Debug, Parser)]
#[command(
    name = "loopwright",
    version,
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

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve (what happens without a command, too)
    Serve(ServeFlags),
    /// Show what loopwright does: starts a scripted model and a sample tool, sends a few requests and stays up
    Demo(DemoFlags),
    /// Check the settings and print the effective values, secrets left out
    CheckConfig(ServeFlags),
}

/// The flags of `serve` and `check-config`; `None` is a flag that was not given.
#[derive(Debug, Clone, Default, Args)]
pub struct ServeFlags {
    /// TOML file with settings; config/loopwright.toml of the source shows all of them
    /// [env: LOOPWRIGHT_CONFIG]
    #[arg(long, value_name = "PATH")]
    pub config: Option<PathBuf>,
    /// Address to listen on
    /// [env: LOOPWRIGHT_LISTEN] [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse::listen)]
    pub listen: Option<SocketAddr>,
    /// Base URL of the model server, ending in /v1; several go into the file
    /// [env: LOOPWRIGHT_UPSTREAM]
    #[arg(long, value_name = "URL", value_parser = parse::base_url)]
    pub upstream: Option<Url>,
    /// Name of the environment variable that holds the model server's API key
    /// [env: LOOPWRIGHT_UPSTREAM_API_KEY_ENV]
    #[arg(long, value_name = "NAME", value_parser = parse::variable_name)]
    pub upstream_api_key_env: Option<String>,
    /// URL that runs the tools a request declares
    /// [env: LOOPWRIGHT_TOOL_DISPATCH_URL]
    #[arg(long, value_name = "URL", value_parser = parse::tool_url)]
    pub tool_dispatch_url: Option<Url>,
    /// Names of the tools that go to that URL; the others stay with the client
    /// [env: LOOPWRIGHT_DISPATCH_TOOLS] [default: *]
    #[arg(long, value_name = "GLOB,…", value_parser = parse::globs)]
    pub dispatch_tools: Option<Globs>,
    /// Whether server-side tools may run: auto or deny
    /// [env: LOOPWRIGHT_AGENT_PERMISSION] [default: auto]
    #[arg(long, value_name = "auto|deny", value_parser = parse::permission)]
    pub agent_permission: Option<Permission>,
    /// Most rounds of server-side tools in one turn; 0 switches them off
    /// [env: LOOPWRIGHT_MAX_TOOL_ROUNDS] [default: 256]
    #[arg(long, value_name = "N", value_parser = parse::rounds)]
    pub max_tool_rounds: Option<u32>,
    /// Offer code execution to requests that ask for it
    /// [env: LOOPWRIGHT_ENABLE_CODE_EXECUTION]
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = parse::boolean
    )]
    pub enable_code_execution: Option<bool>,
    /// Longest time of one call of it, in seconds: 1 to 300
    /// [env: LOOPWRIGHT_CODE_EXEC_TIMEOUT] [default: 60]
    #[arg(long, value_name = "S", value_parser = sandbox::timeout_text)]
    pub code_exec_timeout: Option<Duration>,
    /// The Python interpreter that it runs: a path, or a name that is looked up in PATH
    /// [env: LOOPWRIGHT_CODE_EXEC_PYTHON] [default: python3]
    #[arg(long, value_name = "PATH", value_parser = sandbox::interpreter)]
    pub code_exec_python: Option<PathBuf>,
    /// Offer web search and page reading to every request
    /// [env: LOOPWRIGHT_ENABLE_SEARCH]
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = parse::boolean
    )]
    pub enable_search: Option<bool>,
    /// Who searches: searxng, brave, tavily, exa, serper or duckduckgo
    /// [env: LOOPWRIGHT_SEARCH_PROVIDER] [default: duckduckgo, or searxng with --search-url]
    #[arg(long, value_name = "NAME", value_parser = search::provider)]
    pub search_provider: Option<ProviderKind>,
    /// Where the provider is found: your SearXNG, or another address of the API
    /// [env: LOOPWRIGHT_SEARCH_URL]
    #[arg(long, value_name = "URL", value_parser = parse::tool_url)]
    pub search_url: Option<Url>,
    /// Where sessions are kept: sqlite:PATH or memory:
    /// [env: LOOPWRIGHT_SESSION_STORE] [default: sqlite:loopwright.db]
    #[arg(long, value_name = "URL", value_parser = parse::store)]
    pub session_store: Option<StoreUrl>,
    /// Directory for the contents of uploaded and produced files
    /// [env: LOOPWRIGHT_FILES_DIR] [default: beside the session store, loopwright-files]
    #[arg(long, value_name = "PATH", value_parser = parse::directory)]
    pub files_dir: Option<PathBuf>,
    /// Allow a public address without any API key
    /// [env: LOOPWRIGHT_INSECURE_NO_AUTH]
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = parse::boolean
    )]
    pub insecure_no_auth: Option<bool>,
    /// Logs.
    #[command(flatten)]
    pub log: LogFlags,
}

/// The flags of `demo`.
#[derive(Debug, Clone, Default, Args)]
pub struct DemoFlags {
    /// Address to listen on
    /// [env: LOOPWRIGHT_LISTEN] [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse::listen)]
    pub listen: Option<SocketAddr>,
    /// Logs.
    #[command(flatten)]
    pub log: LogFlags,
}

/// The flags for logs.
#[derive(Debug, Clone, Default, Args)]
pub struct LogFlags {
    /// Form of the log on stderr: text or json
    /// [env: LOOPWRIGHT_LOG_FORMAT] [default: text]
    #[arg(long, value_name = "text|json", value_parser = parse::log_format)]
    pub log_format: Option<Format>,
    /// Level of the log, or directives such as info,loopwright=debug
    /// [env: LOOPWRIGHT_LOG_LEVEL] [default: info, in the demo warn]
    #[arg(long, value_name = "LEVEL", value_parser = parse::log_level)]
    pub log_level: Option<String>,
}

/// A list of name patterns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Globs(pub Vec<String>);

impl Cli {
    /// What to do, `serve` where nothing else is said.
    pub fn into_command(self) -> Command {
        self.command.unwrap_or(Command::Serve(self.serve))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, String> {
        let words = std::iter::once("loopwright").chain(line.split_whitespace());
        Cli::try_parse_from(words).map_err(|error| {
            assert_eq!(error.exit_code(), 2, "{line}");
            error.to_string()
        })
    }

    #[test]
    fn serving_needs_no_command() {
        for line in ["--upstream http://h/v1", "serve --upstream http://h/v1"] {
            let Command::Serve(flags) = parse(line).unwrap().into_command() else {
                panic!("{line} does not serve");
            };
            assert_eq!(flags.upstream.unwrap().as_str(), "http://h/v1");
        }
    }

    #[test]
    fn a_switch_may_be_given_bare_or_with_a_value() {
        for (line, expected) in [
            ("serve", None),
            ("serve --insecure-no-auth", Some(true)),
            ("serve --insecure-no-auth=false", Some(false)),
        ] {
            let Command::Serve(flags) = parse(line).unwrap().into_command() else {
                panic!("{line} does not serve");
            };
            assert_eq!(flags.insecure_no_auth, expected, "{line}");
        }
    }

    #[test]
    fn wrong_arguments_are_refused_with_a_remedy() {
        for (line, part) in [
            ("serve --search-provider google", "searxng, brave"),
            ("serve --search-url ftp://s", "http://"),
            ("serve --mcp-config x.json", "--mcp-config"),
            (
                "serve --agent-permission ask",
                "approvals are not available in this version",
            ),
            ("serve --agent-permission no", "auto or deny"),
            ("serve --upstream ftp://h/v1", "http://"),
            ("serve --session-store postgres://h/db", "no PostgreSQL"),
            ("serve --listen 8080", "127.0.0.1:8080"),
            ("serve --log-level loud", "info"),
            ("serve --max-tool-rounds=-1", "0 or more"),
            ("serve --code-exec-timeout 0", "1 to 300 seconds"),
            ("serve --code-exec-timeout 301", "1 to 300 seconds"),
            ("serve --code-exec-python=", "such as python3"),
            ("demo --upstream http://h/v1", "--upstream"),
            ("frobnicate", "frobnicate"),
        ] {
            let refused = parse(line).unwrap_err();
            assert!(refused.contains(part), "{line}: {refused}");
        }
    }
}
