//! The command line of `approvals`.

use clap::{Args, Subcommand, ValueEnum};

/// The arguments of `approvals`.
#[derive(Debug, Clone, Args)]
pub struct ApprovalsArguments {
    /// What is done.
    #[command(subcommand)]
    pub(crate) command: ApprovalsCommand,
    /// The server.
    #[command(flatten)]
    pub server: ServerFlags,
}

/// The flags that say which server is asked, and with which key.
#[derive(Debug, Clone, Default, Args)]
pub struct ServerFlags {
    /// The URL of the running server.
    #[arg(
        long,
        value_name = "URL",
        global = true,
        help = "URL of the running server [default: http://127.0.0.1:8080]"
    )]
    pub server: Option<String>,
    /// The environment variable with the key.
    #[arg(
        long,
        value_name = "NAME",
        global = true,
        help = "Name of the environment variable that holds an API key of the server [default: LOOPWRIGHT_API_KEY]"
    )]
    pub(crate) key_env: Option<String>,
}

/// The subcommands of `approvals`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// List the calls that wait for a decision, the newest last
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a call that waits, with all of its arguments
    Show {
        /// The id, as the list has it
        id: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Let a call run
    Approve {
        /// The id, as the list has it
        id: String,
        /// Run the call with these arguments instead, a JSON object
        #[arg(long, value_name = "JSON")]
        arguments: Option<String>,
        /// Let later calls of the session run, too: those that are the same for the rule, or all of the tool
        #[arg(long, value_name = "same|tool", hide_possible_values = true)]
        remember: Option<RememberChoice>,
        /// A note that is stored with the decision
        #[arg(long, value_name = "TEXT")]
        message: Option<String>,
    },
    /// Refuse a call
    Deny {
        /// The id, as the list has it
        id: String,
        /// What the model is told
        #[arg(long, value_name = "TEXT")]
        message: Option<String>,
    },
}

/// Which later calls of the session run without a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RememberChoice {
    /// Those that are the same for the rule that asks.
    Same,
    /// All of the tool.
    Tool,
}
