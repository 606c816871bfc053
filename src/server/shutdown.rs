//! The signals to the process: to stop, or to read settings again.
//!
//! The caller decides what is drained after a signal, and for how long.

use std::io;

use tokio::signal::unix::{SignalKind, signal as listen};

/// A listener for SIGTERM, SIGINT and perhaps SIGHUP.
#[derive(Debug)]
pub struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: Option<tokio::signal::unix::Signal>,
}

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalRequest {
    /// To stop. Holds the name of the signal.
    Stop(&'static str),
    /// To read the settings again (SIGHUP).
    Reload,
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
            hangup: None,
        })
    }

    /// Also listens for SIGHUP, which from here on does not end the process.
    ///
    /// # Errors
    /// As for [`Signals::listen`].
    pub fn with_reload(mut self) -> io::Result<Self> {
        self.hangup = Some(listen(SignalKind::hangup())?);
        Ok(self)
    }

    /// Waits for the next signal.
    ///
    /// # Cancel safety
    /// Dropping the future loses no signal.
    pub async fn next(&mut self) -> SignalRequest {
        let Self {
            terminate,
            interrupt,
            hangup,
        } = self;
        let reload = async {
            match hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => SignalRequest::Stop("SIGTERM"),
            _ = interrupt.recv() => SignalRequest::Stop("SIGINT"),
            _ = reload => SignalRequest::Reload,
        }
    }

    /// Waits for SIGTERM or SIGINT and returns its name; can be called again for a second one.
    ///
    /// # Cancel safety
    /// Dropping the future loses no signal.
    pub async fn wait(&mut self) -> &'static str {
        loop {
            if let SignalRequest::Stop(signal) = self.next().await {
                return signal;
            }
        }
    }
}
