//! When to stop.
//!
//! Owns the signals that ask for an orderly end. What is then drained, and for how long, is decided by the caller.

use std::io;

use tokio::signal::unix::{SignalKind, signal as listen};

/// The signals, being listened for.
#[derive(Debug)]
pub struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    /// Starts listening; from here on SIGTERM and SIGINT no longer end the process by themselves.
    ///
    /// # Errors
    /// When the operating system refuses a handler, or outside a Tokio runtime with signals enabled.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// Waits for SIGTERM or SIGINT and returns its name; can be called again for a second one.
    ///
    /// # Cancel safety
    /// Dropping the future loses no signal.
    pub async fn wait(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Resolves on the first SIGTERM or SIGINT, with its name; never, where the operating system refuses handlers.
pub async fn signal() -> &'static str {
    match Signals::listen() {
        Ok(mut signals) => signals.wait().await,
        Err(error) => {
            tracing::error!(%error, "cannot listen for signals; only SIGKILL will end this process cleanly");
            std::future::pending().await
        }
    }
}
