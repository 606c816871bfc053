//! The composition root: wires every part, binds the listener, serves, and shuts down in order.

pub mod connect;
mod expiry;
mod listeners;
mod notify;
mod parts;
mod reload;
mod summary;

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::TaskTracker;

use self::expiry::{Lifetimes, expire, expire_waiting};
use self::notify::notify_of_approvals;
pub(crate) use self::reload::Reloader;
use crate::config::Config;
use crate::http::settings::local_url;
use crate::http::{AppState, resume, server};
use agent::session::Sessions;
use agent::session::files::FileError;
use agent::traces::TracesError;
use net::cluster::ClusterError;
use policy::hooks::HookSetupError;
use policy::hooks::webhook::ApprovalWebhook;
use sandbox::compute::ComputeError;
use sandbox::{Sandbox, SandboxError};
use store::StoreError;
use tools::configured::ConfiguredToolsError;
use tools::mcp::{McpServers, McpSetupError};
use tools::source::Source;
use upstream::probe::watch;
use upstream::router::RouterError;
use web::{SetupError, Web};

// After the grace the process ends within five seconds: the limits below, plus the limit of the runtime in `main`.
/// How long the end of connections, runs and interpreters may take after the grace. Then they are dropped.
/// Tried by `lifecycle::a_client_that_reads_nothing_cannot_hold_the_process`.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);
/// How long background tasks, session writes among them, may take after [`CLOSE_LIMIT`], and then
/// the session store. Then they are dropped; the log of the store is read at the next start.
const TASK_LIMIT: Duration = Duration::from_millis(500);

/// A server that is bound and ready to run.
#[derive(Debug)]
pub struct App {
    listener: TcpListener,
    metrics_listener: Option<TcpListener>,
    replica_listener: Option<TcpListener>,
    address: SocketAddr,
    state: AppState,
    tasks: TaskTracker,
    sandbox: Option<Sandbox>,
    web: Option<Web>,
    mcp: McpServers,
    sessions: Sessions,
    approval_webhook: Option<ApprovalWebhook>,
    lifetimes: Lifetimes,
    shutdown_grace: Duration,
    /// The settings without secrets.
    settings: serde_json::Value,
}

/// Why a server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The address is taken or not ours.
    #[error("cannot listen on {address}; set another address with {setting}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The setting that names it.
        setting: &'static str,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The session store cannot be opened.
    #[error("cannot open the session store {location}; set another one with --session-store")]
    Store {
        /// The path of the database file, or where the database is.
        location: String,
        /// The cause.
        #[source]
        source: StoreError,
    },
    /// The files of sessions cannot be opened.
    #[error("cannot open the files of sessions")]
    Files(#[from] FileError),
    /// The isolation that code execution needs cannot be had.
    #[error("cannot start code execution")]
    Sandbox(#[from] SandboxError),
    /// Search or the page reader cannot be set up.
    #[error(transparent)]
    Web(#[from] SetupError),
    /// A tool's definition cannot be used.
    #[error(transparent)]
    Tools(#[from] ConfiguredToolsError),
    /// The HTTP client of MCP servers cannot be created.
    #[error(transparent)]
    Mcp(#[from] McpSetupError),
    /// A hook cannot be used.
    #[error(transparent)]
    Hooks(#[from] HookSetupError),
    /// The address for other replicas cannot be written to the store.
    #[error("cannot announce this replica in the session store")]
    Announce(#[source] StoreError),
    /// Other replicas cannot be asked.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// An upstream cannot be used.
    #[error(transparent)]
    Router(#[from] RouterError),
    /// Traces cannot be sent as configured.
    #[error(transparent)]
    Traces(#[from] TracesError),
    /// Serving failed.
    #[error("serving failed")]
    Serve(#[source] std::io::Error),
}

impl App {
    /// Builds every part and binds the listener.
    ///
    /// # Errors
    /// When a part cannot be built or the address cannot be bound.
    pub fn build(config: Config) -> LocalBoxFuture<'static, Result<Self, AppError>> {
        // Boxed here, as a future is compiled where it is polled: once in this library, not in each binary.
        Box::pin(Self::build_parts(config))
    }

    /// What takes over changed settings while the server runs.
    pub fn reloader(&self) -> Reloader {
        Reloader::new(self.state.clone(), self.settings.clone())
    }

    /// The address that is listened on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL by which this machine reaches it.
    pub fn url(&self) -> String {
        local_url(self.address)
    }

    /// The URL of the console for a browser on this machine, if it is served.
    pub fn console(&self) -> Option<String> {
        let is_served = self.state.serves_console();
        is_served.then(|| format!("{}/", self.url()))
    }

    /// Finds out whether this host can read pages; it can where nothing of the kind is offered.
    ///
    /// # Errors
    /// When there can be no confined process to parse them.
    pub fn check_page_parser(&self) -> LocalBoxFuture<'_, Result<(), ComputeError>> {
        Box::pin(async {
            match &self.web {
                Some(web) => web.check_parser().await,
                None => Ok(()),
            }
        })
    }

    /// Why MCP servers do not run, for each that does not.
    #[must_use]
    pub(crate) fn down_mcp_servers(&self) -> Vec<String> {
        let sources = self.state.sources.snapshot();
        let reasons = sources.iter().filter_map(|source| match source {
            Source::Mcp(offer) => offer.reason.clone(),
            _ => None,
        });
        reasons.collect()
    }

    /// Serves until `shutdown` resolves, then drains and flushes.
    ///
    /// # Errors
    /// When serving fails.
    pub fn run<'a>(
        self,
        shutdown: impl Future<Output = ()> + 'a,
    ) -> LocalBoxFuture<'a, Result<(), AppError>> {
        self.run_boxed(Box::pin(shutdown))
    }

    /// Boxed for the same reason as [`App::build`].
    fn run_boxed(
        self,
        shutdown: LocalBoxFuture<'_, ()>,
    ) -> LocalBoxFuture<'_, Result<(), AppError>> {
        Box::pin(self.serve(shutdown))
    }

    /// Starts what runs beside the requests.
    fn start_watching(&mut self) {
        self.spawn_until_draining(watch(self.state.router.clone()));
        self.spawn_until_draining(resume::watch(self.state.clone()));
        if let Some(webhook) = self.approval_webhook.take() {
            self.spawn_until_draining(notify_of_approvals(self.sessions.clone(), webhook));
        }
    }

    /// Runs something until the server drains.
    fn spawn_until_draining(&self, task: impl Future<Output = ()> + Send + 'static) {
        let task = self.state.draining().run_until_cancelled_owned(task);
        self.tasks.spawn(task);
    }

    async fn serve(mut self, shutdown: LocalBoxFuture<'_, ()>) -> Result<(), AppError> {
        let runs = self.state.runs.clone();
        let lifetimes = self.lifetimes;
        self.start_watching();
        let (metrics, traces) = (self.state.metrics.clone(), self.state.traces.clone());
        let stopped = async {
            tokio::select! {
                () = shutdown => {}
                () = expire(self.sessions.clone(), lifetimes) => {}
                () = expire_waiting(self.sessions.clone(), runs, metrics) => {}
            }
        };
        if let Some(listener) = self.metrics_listener {
            let serving = server::serve_metrics(listener, self.state.clone());
            self.tasks.spawn(serving);
        }
        if let Some(listener) = self.replica_listener {
            let serving = server::serve_replicas(listener, self.state.clone());
            self.tasks.spawn(serving);
        }
        let connections = server::serve(self.listener, self.state, stopped).await;
        let grace_end = after(Instant::now(), self.shutdown_grace);
        let _ended_or_late = timeout_at(grace_end, connections.ended()).await;
        let deadline = after(grace_end, CLOSE_LIMIT);
        // Idle interpreters need not wait for the requests that are still ending. The others follow as their calls end.
        let saving = async {
            if let Some(sandbox) = &self.sandbox {
                sandbox
                    .close(deadline.saturating_duration_since(Instant::now()))
                    .await;
            }
        };
        let ending = async { timeout_at(deadline, self.mcp.close()).await };
        let (_, (), _ended_or_late) = tokio::join!(connections.abort(), saving, ending);
        if let Some(web) = &self.web {
            web.close();
        }
        self.tasks.close();
        let deadline = after(deadline, TASK_LIMIT);
        if timeout_at(deadline, self.tasks.wait()).await.is_err() {
            tracing::error!(
                tasks = self.tasks.len(),
                "background tasks did not end in time"
            );
        }
        // Last, because the others write to it.
        let deadline = after(Instant::now(), TASK_LIMIT).max(deadline);
        let closing = async {
            if timeout_at(deadline, self.sessions.close()).await.is_err() {
                tracing::warn!(
                    "the session store was not closed in time; its log is read at the next start"
                );
            }
        };
        let left = deadline.saturating_duration_since(Instant::now());
        tokio::join!(closing, traces.close(left.min(CLOSE_LIMIT)));
        Ok(())
    }
}

/// This time later; the same time if that cannot be represented.
fn after(time: Instant, wait: Duration) -> Instant {
    time.checked_add(wait).unwrap_or(time)
}
