//! `loopwright launch`: starts a coding agent against a running server, with a directory of its own for its configuration.
//!
//! The user's configuration of the agent is neither read nor written. The agent's own settings are data (`agents`); the
//! server gives the model and its window (`facts`); `process` starts the agent, passes signals on and removes the
//! directory.

mod agents;
mod facts;
mod process;

use std::path::Path;

use futures_util::future::LocalBoxFuture;

use self::agents::AgentSetup;
use crate::commands::client::plain::plain;
use crate::commands::client::{ExchangeError, ServerClient};
use crate::config::LaunchConfig;

/// Shown instead of the directory.
const SHOWN_DIRECTORY: &str = "$DIRECTORY";

/// What came of a launch.
#[derive(Debug)]
pub enum Launched {
    /// Nothing was started; the text shows what would be set.
    Shown(String),
    /// The agent has ended with this status.
    Ended(u8),
}

/// Why an agent was not started. The text is one line with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The server has not answered.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// The server has no model.
    #[error("{0} lists no model; start its model server, or name the model with --model")]
    NoModel(String),
    /// The server has more than one model.
    #[error("{server} has several models; choose one with --model: {models}")]
    SeveralModels {
        /// The server.
        server: String,
        /// The names.
        models: String,
    },
    /// Claude Code cannot talk to the model server.
    #[error(
        "the model server behind {server} has no Messages API (status {status} for /v1/messages), which Claude Code needs and \
         loopwright only forwards; use a model server that has one, such as llama.cpp, or launch codex or aider"
    )]
    NoMessages {
        /// The server.
        server: String,
        /// The status.
        status: u16,
    },
    /// The directory cannot be made.
    #[error(
        "cannot make a temporary directory; set TMPDIR to a directory that can be written: {0}"
    )]
    Directory(#[source] std::io::Error),
    /// There is no such program.
    #[error("`{program}` is not installed, or not in PATH; install it with `{install}`")]
    NotInstalled {
        /// The program.
        program: &'static str,
        /// The command that installs it.
        install: &'static str,
    },
    /// The program does not start.
    #[error("cannot start `{program}`; see whether it runs by itself: {cause}")]
    Start {
        /// The program.
        program: &'static str,
        /// The error of the operating system.
        cause: std::io::Error,
    },
    /// The signals of the process cannot be passed on.
    #[error("cannot listen for signals: {0}")]
    Signals(#[source] std::io::Error),
}

/// Asks the server, and starts the agent or shows what would be set.
///
/// # Errors
/// When the server does not answer or lacks something that the agent needs, or the agent cannot be started.
pub fn run(config: &LaunchConfig) -> LocalBoxFuture<'_, Result<Launched, LaunchError>> {
    // Boxed here, as a future is compiled where it is polled: once in this library, not in the binary.
    Box::pin(launch(config))
}

async fn launch(config: &LaunchConfig) -> Result<Launched, LaunchError> {
    let client = ServerClient::new(&config.server, facts::REQUEST_TIMEOUT)?;
    let facts = facts::ask(config, &client).await?;
    let setup = AgentSetup::of(config, &client, &facts);
    if config.shows {
        return Ok(Launched::Shown(shown(config, &setup)));
    }
    process::run(config, &setup).await.map(Launched::Ended)
}

/// What would be set, with the key hidden.
fn shown(config: &LaunchConfig, setup: &AgentSetup) -> String {
    let directory = Path::new(SHOWN_DIRECTORY);
    let mut text =
        format!("# {SHOWN_DIRECTORY} is a new temporary directory, which is removed at the end.\n");
    for variable in &setup.variables {
        text.push_str(&format!(
            "{}={}\n",
            variable.name,
            plain(&variable.value.shown(directory))
        ));
    }
    for name in setup.cleared(config) {
        text.push_str(&format!("unset {name}\n"));
    }
    for file in &setup.files {
        text.push_str(&format!("\n# {}\n", directory.join(file.path).display()));
        for line in file.content.lines() {
            text.push_str(&format!("{}\n", plain(line)));
        }
    }
    text.push_str(&format!("\n{}", setup.program));
    for argument in &config.arguments {
        text.push_str(&format!(" {}", argument.to_string_lossy()));
    }
    text.push('\n');
    text
}
