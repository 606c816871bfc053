//! The signals that stop the process.
//!
//! The caller decides what is drained after a signal, and for how long.

use std::io;

use tokio::signal::unix::{SignalKind, signal as listen};

/// A listener for SIGTERM and SIGINT.
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
