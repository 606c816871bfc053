//! Parses pages in confined processes.
//!
//! Pages are hostile and parsers have bugs, so pages are parsed by processes that can only compute ([`compute`]), one page
//! at a time. A page that exceeds its time or memory ends its process, which is replaced.

mod protocol;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use self::protocol::ParserRequest;
use super::outcome::error_chain;
use super::settings::ExtractorSettings;
use super::{Document, ExtractError, MAX_ANSWER, RawPage, acting};
use quota::FairSemaphore;
use sandbox::compute::{self, ComputeError, Computer, ProbeResult};

/// The first argument with which the binary runs as parser.
pub const PAGE_PARSER: &str = "page-parser";

/// Longest wait for a free process, in units of the time-out of one page. After it the page is an error.
/// Tried by `hostile::who_waits_too_long_is_told_so`.
const WAITS: u32 = 4;
/// Most pages of a process, which is then replaced. This bounds leaks of the parsers and the processor time.
const PAGES: u32 = 500;
/// How long an idle process is kept; the check adds up to half of it.
const IDLE: Duration = Duration::from_secs(60);

/// Parses pages in confined processes; cheap to clone. Dropping the last clone ends the processes.
#[derive(Debug, Clone)]
pub struct Extractor(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: ExtractorSettings,
    /// The right to use a process; owners take turns.
    free: FairSemaphore,
    idle: Arc<Mutex<Idle>>,
    tasks: TaskTracker,
    closed: CancellationToken,
    _close: DropGuard,
}

/// Idle processes; the one used last comes last.
#[derive(Debug, Default)]
struct Idle {
    processes: Vec<Parser>,
    watched: bool,
}

/// One parsing process.
#[derive(Debug)]
struct Parser {
    computer: Computer,
    pages: u32,
    used: Instant,
}

impl Extractor {
    /// Takes the settings. Processes are started on demand; the tracker owns a task that ends idle ones.
    pub fn new(settings: ExtractorSettings, tasks: &TaskTracker) -> Self {
        let closed = CancellationToken::new();
        Self(Arc::new(Inner {
            free: FairSemaphore::new(settings.processes),
            settings,
            idle: Arc::default(),
            tasks: tasks.clone(),
            _close: closed.clone().drop_guard(),
            closed,
        }))
    }

    /// Parses a page.
    ///
    /// # Errors
    /// When the format cannot be read, the page is broken, exceeds its time or memory, or no process is free. The texts are
    /// for the model.
    ///
    /// # Cancel safety
    /// Dropping the future kills the process that parses the page.
    pub async fn extract(&self, page: RawPage) -> Result<Document, ExtractError> {
        let request = ParserRequest::Page(page);
        protocol::document(&self.ask(&request).await?)
    }

    /// Lets a process try what its confinement forbids.
    ///
    /// # Errors
    /// When no process can be started.
    ///
    /// # Cancel safety
    /// As for [`Extractor::extract`].
    pub async fn attempts(&self) -> Result<Vec<ProbeResult>, ExtractError> {
        protocol::attempts(&self.ask(&ParserRequest::Attempts).await?)
    }

    /// Checks that a process can be started, unless one is idle.
    ///
    /// # Errors
    /// When it cannot be started or confined. The text is for the operator.
    ///
    /// # Cancel safety
    /// As for [`Extractor::extract`].
    pub async fn check(&self) -> Result<(), ComputeError> {
        let late = |_| ComputeError::Ended("it was not ready in time".to_owned());
        let started = timeout(self.0.settings.timeout, self.0.parser()).await;
        self.0.keep(started.map_err(late)??);
        Ok(())
    }

    /// The process ids of idle processes.
    pub fn idle(&self) -> Vec<u32> {
        let idle = self.0.idle.lock();
        let ids = idle.processes.iter();
        ids.filter_map(|parser| parser.computer.id()).collect()
    }

    /// Ends idle processes now, and others after their page.
    pub fn close(&self) {
        self.0.closed.cancel();
        self.0.idle.lock().processes.clear();
    }

    /// Waits for a free process and sends it a request.
    async fn ask(&self, request: &ParserRequest) -> Result<Vec<u8>, ExtractError> {
        let inner = &self.0;
        let longest = inner.settings.timeout;
        let owner = acting::owner();
        let Ok(_permit) = timeout(longest * WAITS, inner.free.acquire(&owner)).await else {
            return Err(ExtractError::Busy);
        };
        let asked = async {
            let mut parser = inner.parser().await?;
            // From here on, dropping the future kills the process.
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
            // A process that ended while it was idle is replaced.
            if parser.computer.is_alive() {
                return Ok(parser);
            }
        }
        let settings = compute::Settings {
            program: self.settings.program.clone(),
            argument: PAGE_PARSER,
            memory: self.settings.memory,
            // More than all pages of a process may take; only a process that is never ended reaches it.
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

    /// Makes a process idle, or ends it.
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

/// Ends idle processes after their time, until there is none.
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

/// The error for the model. The cause is logged for the operator.
fn failure(error: &ComputeError) -> ExtractError {
    match error {
        ComputeError::Start(_) | ComputeError::Confine(_) => {
            tracing::error!(error = %error_chain(error), "pages cannot be parsed");
            ExtractError::Unavailable
        }
        ComputeError::Ended(_) | ComputeError::TooLong(_) => {
            tracing::warn!(%error, "a page ended the process that parsed it");
            ExtractError::TooMuch
        }
    }
}

/// Runs as a confined process until the server ends.
pub fn page_parser_main() -> ExitCode {
    compute::serve(std::env::args().skip(2), protocol::answer)
}
