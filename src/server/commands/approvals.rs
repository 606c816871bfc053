//! `loopwright approvals`: lists the calls that wait for a person on a running server, and decides about them.
//!
//! Owns the texts that a person reads in a terminal. A model has chosen the arguments, and perhaps the names, to
//! deceive that person: everything that is printed goes through [`plain`]. The server applies the rules of approvals;
//! this command asks it over HTTP.

mod client;
mod print;

use std::time::SystemTime;

use futures_util::future::LocalBoxFuture;

use self::client::ApprovalsClient;
pub(crate) use self::client::ApprovalsError;
use self::print::ListedCall;
use crate::commands::client::plain;
use crate::config::{ApprovalsConfig, ApprovalsTask};

/// Number of columns of a line where there is no terminal.
const DEFAULT_WIDTH: usize = 120;

/// Runs the command; returns the text to print.
///
/// # Errors
/// When the server cannot be reached, or says no. The text is one line with the remedy.
pub fn run(config: &ApprovalsConfig) -> LocalBoxFuture<'_, Result<String, ApprovalsError>> {
    // Boxed here, as a future is compiled where it is polled: once in this library, not in the binary.
    Box::pin(answer(config))
}

async fn answer(config: &ApprovalsConfig) -> Result<String, ApprovalsError> {
    let client = ApprovalsClient::new(&config.server)?;
    match &config.task {
        ApprovalsTask::List { json: true } => Ok(plain::pretty(client.list().await?.get())),
        ApprovalsTask::List { json: false } => {
            let calls = client.waiting().await?;
            let calls = calls.iter().map(|call| client.read(call.get()));
            let calls = calls.collect::<Result<Vec<ListedCall>, _>>()?;
            Ok(print::table(&calls, now(), line_width()))
        }
        ApprovalsTask::Show { id, json } => {
            for call in client.waiting().await? {
                let read: ListedCall = client.read(call.get())?;
                if read.approval_id == id.as_str() {
                    return Ok(match json {
                        true => plain::pretty(call.get()),
                        false => print::all_of(&read, now()),
                    });
                }
            }
            Err(ApprovalsError::NotWaiting(id.clone()))
        }
        ApprovalsTask::Decide { id, decision } => {
            let status = client.decide(id, decision).await?;
            let done = match decision.approves {
                true => "approved",
                false => "denied",
            };
            let next = match status.as_str() {
                "resolved" => "the answer that waits goes on",
                "queued" => "the next request of the session goes on",
                _ => "the server has stored it",
            };
            Ok(format!("{done} {id}: {next}\n"))
        }
    }
}

/// The number of columns of the terminal.
fn line_width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    match columns {
        0 => DEFAULT_WIDTH,
        columns => columns,
    }
}

/// Seconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since.unwrap_or_default().as_secs();
    i64::try_from(seconds).unwrap_or(i64::MAX)
}
