//! Parsing in processes of its own.
//!
//! What is parsed was written by strangers, and the parsers were written by others: so it is done by processes that can
//! do nothing but compute ([`compute`]), each with one page at a time. A page that takes too long or too much costs its
//! process, which is replaced, and nothing else.

mod protocol;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use self::protocol::Request;
use super::settings::ExtractorSettings;
use super::{Document, ExtractError, RawPage};
use crate::sandbox::compute::{self, ComputeError, Computer, ProbeResult};

/// The hidden name under which the binary is such a process: its first argument.
pub const PAGE_PARSER: &str = "page-parser";

/// Pages are waited for at most this many times as long as one may take.
const WAITS: u32 = 4;
/// A process that has parsed this many pages is replaced: what parsers leak stays small, and so does its processor time.
const PAGES: u32 = 500;
/// An idle process is ended after this time, or up to half as much more.
const IDLE: Duration = Duration::from_secs(60);
/// Longest answer: a document of the greatest length, escaped.
const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// Reads pages in confined processes; cheap to clone. Dropping the last one ends them.
#[derive(Debug, Clone)]
pub struct Extractor(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: ExtractorSettings,
    free: Semaphore,
    idle: Arc<Mutex<Idle>>,
    tasks: TaskTracker,
    closed: CancellationToken,
    _close: DropGuard,
}

/// Processes without work; the one used last comes last.
#[derive(Debug, Default)]
struct Idle {
    processes: Vec<Parser>,
    watched: bool,
}

/// One process.
#[derive(Debug)]
struct Parser {
    computer: Computer,
    pages: u32,
    used: Instant,
}

impl Extractor {
    /// Takes the settings; processes are started when there are pages. The tracker owns a task that ends idle ones.
    pub fn new(settings: ExtractorSettings, tasks: &TaskTracker) -> Self {
        let closed = CancellationToken::new();
        Self(Arc::new(Inner {
            free: Semaphore::new(settings.processes.max(1)),
            settings,
            idle: Arc::default(),
            tasks: tasks.clone(),
            _close: closed.clone().drop_guard(),
            closed,
        }))
    }

    /// Reads a page.
    ///
    /// # Errors
    /// When it is of a kind that cannot be read, is broken, takes too long or too much memory, or too many other pages
    /// are being read; all for the model to know.
    ///
    /// # Cancel safety
    /// Dropping the future kills the process that reads the page.
    pub async fn extract(&self, page: RawPage) -> Result<Document, ExtractError> {
        let request = Request::Page(page);
        protocol::document(&self.ask(&request).await?)
    }

    /// What a process finds when it tries to do more than compute.
    ///
    /// # Errors
    /// When no process can be had.
    ///
    /// # Cancel safety
    /// As for [`Extractor::extract`].
    pub async fn attempts(&self) -> Result<Vec<ProbeResult>, ExtractError> {
        protocol::attempts(&self.ask(&Request::Attempts).await?)
    }

    /// Starts a process, unless one waits already.
    ///
    /// # Errors
    /// When it cannot be started or confined; for the operator.
    ///
    /// # Cancel safety
    /// As for [`Extractor::extract`].
    pub async fn check(&self) -> Result<(), ComputeError> {
        let late = |_| ComputeError::Ended("it was not ready in time".to_owned());
        let started = timeout(self.0.settings.timeout, self.0.parser()).await;
        self.0.keep(started.map_err(late)??);
        Ok(())
    }

    /// The numbers of the processes that wait for work.
    pub fn idle(&self) -> Vec<u32> {
        let idle = self.0.idle.lock();
        let ids = idle.processes.iter();
        ids.filter_map(|parser| parser.computer.id()).collect()
    }

    /// Ends idle processes now, and others when they have done with their page.
    pub fn close(&self) {
        self.0.closed.cancel();
        self.0.idle.lock().processes.clear();
    }

    /// Has one process, as soon as one is free, answer a request.
    async fn ask(&self, request: &Request) -> Result<Vec<u8>, ExtractError> {
        let inner = &self.0;
        let longest = inner.settings.timeout;
        let Ok(Ok(_permit)) = timeout(longest * WAITS, inner.free.acquire()).await else {
            return Err(ExtractError::Busy);
        };
        let asked = async {
            let mut parser = inner.parser().await?;
            // From here on a dropped future drops the process, and so kills it.
            let answer = protocol::ask(&mut parser.computer, request).await?;
            Ok::<_, ComputeError>((parser, answer))
        };
        match timeout(longest, asked).await {
            Ok(Ok((parser, answer))) => {
                inner.keep(parser);
                Ok(answer)
            }
            Ok(Err(error)) => Err(failure(&error)),
            Err(_) => Err(ExtractError::TooSlow(longest.as_secs_f64())),
        }
    }
}

impl Inner {
    /// An idle process or a new one.
    async fn parser(&self) -> Result<Parser, ComputeError> {
        while let Some(mut parser) = self.take() {
            // One that ended while it had nothing to do is just replaced.
            if parser.computer.is_alive() {
                return Ok(parser);
            }
        }
        let settings = compute::Settings {
            program: self.settings.program.clone(),
            argument: PAGE_PARSER,
            memory: self.settings.memory,
            // More than all its pages may take: only one that is forgotten would come to this.
            cpu_seconds: (self.settings.timeout * PAGES).as_secs().max(60),
            max_answer: MAX_ANSWER,
        };
        Ok(Parser {
            computer: Computer::start(&settings).await?,
            pages: 0,
            used: Instant::now(),
        })
    }

    fn take(&self) -> Option<Parser> {
        self.idle.lock().processes.pop()
    }

    /// Lets a process wait for the next page.
    fn keep(&self, mut parser: Parser) {
        parser.pages += 1;
        parser.used = Instant::now();
        if parser.pages >= PAGES || self.closed.is_cancelled() {
            return;
        }
        let mut idle = self.idle.lock();
        idle.processes.push(parser);
        if !idle.watched {
            idle.watched = true;
            let watch = end_idle(Arc::clone(&self.idle), self.closed.clone());
            self.tasks.spawn(watch);
        }
    }
}

/// Ends processes that have waited long, until none waits.
async fn end_idle(idle: Arc<Mutex<Idle>>, closed: CancellationToken) {
    loop {
        let over = timeout(IDLE / 2, closed.cancelled()).await.is_ok();
        let mut idle = idle.lock();
        if over {
            idle.processes.clear();
        }
        idle.processes.retain(|parser| parser.used.elapsed() < IDLE);
        if idle.processes.is_empty() {
            idle.watched = false;
            return;
        }
    }
}

/// What the model is told; the operator finds the cause in the log.
fn failure(error: &ComputeError) -> ExtractError {
    match error {
        ComputeError::Start(_) | ComputeError::Confine(_) => {
            tracing::error!(error = %chain(error), "pages cannot be parsed");
            ExtractError::Unavailable
        }
        ComputeError::Ended(_) | ComputeError::TooLong(_) => {
            tracing::warn!(%error, "a page cost the process that parsed it");
            ExtractError::TooMuch
        }
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

/// Runs as confined process until the server is gone.
pub fn page_parser_main() -> ExitCode {
    compute::serve(std::env::args().skip(2), protocol::answer)
}
