//! One MCP server: its state, the connection that lists its tools, and the connections that run calls.
//!
//! The main connection is opened at the start and again, after growing delays, whenever it ends. It lists the tools.
//! With the scope `shared` it also runs the calls; with `owner` they run on connections of their owners.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rmcp::model::CallToolResult;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::connector::Connector;
use super::failure::RequestFailure;
use super::instances::{InstanceKey, InstanceLimits, Instances, ServerKey};
use super::listed::{CONFIGURED, Listing};
use super::process::ProcessUser;
use crate::ToolInvocation;
use crate::settings::mcp::{McpScope, McpServerSettings, McpTransport};
use net::Backoff;

/// Pause before a server is started again, growing with each failure.
const RESTARTS: Backoff = Backoff {
    base: Duration::from_millis(250),
    max: Duration::from_secs(60),
    jitter: 0.25,
};
/// Shortest time of a connection that is followed by the shortest delay, if it has answered no call.
const STABLE: Duration = Duration::from_secs(30);
/// How long a call waits for a server that is being started. After it the call fails.
const START_WAIT: Duration = Duration::from_secs(5);
/// How often a server behind a URL is asked whether it is there. The end of a process is seen at once.
const PING_INTERVAL: Duration = Duration::from_secs(15);
/// How long a server may take to answer a ping. After it the connection is closed.
const PING_LIMIT: Duration = Duration::from_secs(10);
/// Shortest time between two lists, however often a server says that its list has changed.
const LIST_INTERVAL: Duration = Duration::from_secs(1);

/// The reason for which a server that does not answer is down.
const SILENT: &str = "it does not answer";

/// One MCP server.
#[derive(Debug)]
pub(super) struct McpServer {
    connector: Connector,
    state: watch::Sender<ServerState>,
    instances: Instances,
    /// How often the main connection was opened again, or was tried to.
    restarts: AtomicU64,
    /// Cancelled once the outcome of the first attempt to start is published.
    tried: CancellationToken,
    shutdown: CancellationToken,
}

/// What a server does at the moment.
#[derive(Debug, Clone)]
pub(super) enum ServerState {
    /// It is being started for the first time.
    Starting,
    /// It runs.
    Ready(Arc<Connection>),
    /// It does not run; holds the reason.
    Down(String),
}

/// Takes the tools of a server, whenever they or its state change.
pub(super) trait Publish: Send + Sync {
    /// Publishes the state, and the list if it is known anew.
    fn publish(&self, listing: Option<Listing>);
}

impl McpServer {
    pub(super) fn new(connector: Connector, shutdown: CancellationToken) -> Self {
        let limits = InstanceLimits {
            max: connector.settings.max_instances,
            max_per_owner: 1,
            idle_ttl: connector.settings.idle_ttl,
        };
        Self {
            instances: Instances::new(limits, connector.tasks.clone(), shutdown.clone()),
            connector,
            state: watch::Sender::new(ServerState::Starting),
            restarts: AtomicU64::new(0),
            tried: CancellationToken::new(),
            shutdown,
        }
    }

    pub(super) fn settings(&self) -> &McpServerSettings {
        &self.connector.settings
    }

    pub(super) fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    pub(super) fn state(&self) -> ServerState {
        self.state.borrow().clone()
    }

    /// Resolves when the first attempt to start the server has ended and its outcome is published.
    pub(super) async fn started(&self) {
        self.tried.cancelled().await;
    }

    /// Keeps the server running until the shutdown, and closes all its connections then.
    pub(super) async fn run(&self, publish: &(impl Publish + ?Sized)) {
        tokio::join!(self.keep_running(publish), self.instances.sweep());
    }

    async fn keep_running(&self, publish: &(impl Publish + ?Sized)) {
        let mut failures = 0_u32;
        while !self.shutdown.is_cancelled() {
            let began = Instant::now();
            let mut stable = false;
            let reason = match self.start(publish).await {
                Ok((connection, listing)) => {
                    let connection = Arc::new(connection);
                    tracing::info!(server = %self.connector.name, tools = listing.tools.len(), "MCP server is ready");
                    self.set(ServerState::Ready(connection.clone()));
                    publish.publish(Some(listing));
                    self.tried.cancel();
                    let lost = self.stay(&connection, publish).await;
                    connection.close().await;
                    stable = began.elapsed() >= STABLE || connection.has_answered();
                    lost.unwrap_or_else(|| connection.ending())
                }
                Err(failure) => failure.to_string(),
            };
            if self.shutdown.is_cancelled() {
                return;
            }
            failures = match stable {
                true => 0,
                false => failures.saturating_add(1),
            };
            let delay = RESTARTS.delay(failures);
            let seconds = delay.as_secs_f64();
            tracing::warn!(server = %self.connector.name, reason, "MCP server is down; it is started again in {seconds:.1} s");
            self.restarts.fetch_add(1, Ordering::Relaxed);
            self.set(ServerState::Down(reason));
            publish.publish(None);
            self.tried.cancel();
            let _shutdown = self.shutdown.run_until_cancelled(sleep(delay)).await;
        }
    }

    /// Opens the main connection and lists the tools. A server that needs long counts as down meanwhile.
    async fn start(
        &self,
        publish: &(impl Publish + ?Sized),
    ) -> Result<(Connection, Listing), RequestFailure> {
        let limit = self.connector.handshake_timeout;
        let start = async {
            let user = match self.settings().scope {
                McpScope::Owner => ProcessUser::Nobody,
                McpScope::Shared => ProcessUser::All,
            };
            let connection = self.connector.connect(user).await?;
            match connection.list(&self.connector.name, CONFIGURED).await {
                Ok(listing) => Ok((connection, listing)),
                Err(failure) => {
                    connection.close().await;
                    Err(failure)
                }
            }
        };
        let silent = |limit: Duration| format!("it did not start within {} s", limit.as_secs_f64());
        let failed = || Err(RequestFailure::Unreachable(silent(limit)));
        let started = async {
            let mut start = Box::pin(timeout(limit, start));
            let soon = self.connector.start_timeout;
            if let Ok(started) = timeout(soon, start.as_mut()).await {
                return started;
            }
            let reason = format!("{}; it is still being started", silent(soon));
            tracing::info!(server = %self.connector.name, reason, "the tools of the MCP server are offered later");
            self.set(ServerState::Down(reason));
            publish.publish(None);
            self.tried.cancel();
            start.await
        };
        let started = self.shutdown.run_until_cancelled(started);
        started
            .await
            .unwrap_or(Ok(failed()))
            .unwrap_or_else(|_| failed())
    }

    /// Serves a connection until it has ended, or cannot be used any more. Returns the reason if the connection itself
    /// does not have it.
    async fn stay(
        &self,
        connection: &Connection,
        publish: &(impl Publish + ?Sized),
    ) -> Option<String> {
        let mut pings = interval(PING_INTERVAL);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let may_vanish = matches!(self.settings().transport, McpTransport::Http(_));
        let mut lost = self.state.subscribe();
        let is_lost = |state: &ServerState| matches!(state, ServerState::Down(_));
        loop {
            tokio::select! {
                () = self.shutdown.cancelled() => return None,
                () = connection.ended() => return None,
                () = async { drop(lost.wait_for(is_lost).await) } => {
                    return match self.state() {
                        ServerState::Down(reason) => Some(reason),
                        ServerState::Starting | ServerState::Ready(_) => None,
                    };
                }
                () = connection.news().notified() => {
                    let count = connection.news().count();
                    let listed = timeout(self.connector.handshake_timeout, connection.list(&self.connector.name, CONFIGURED));
                    match listed.await {
                        Ok(Ok(listing)) => publish.publish(Some(listing)),
                        Ok(Err(failure)) => {
                            tracing::warn!(server = %self.connector.name, %failure, "the changed list of tools cannot be read");
                        }
                        Err(_elapsed) => return Some(SILENT.to_owned()),
                    }
                    connection.news().set_read(count);
                    let _shutdown = self.shutdown.run_until_cancelled(sleep(LIST_INTERVAL)).await;
                }
                _ = pings.tick(), if may_vanish => {
                    if !matches!(timeout(PING_LIMIT, connection.ping()).await, Ok(Ok(()))) {
                        return Some(SILENT.to_owned());
                    }
                }
            }
        }
    }

    fn set(&self, state: ServerState) {
        self.state.send_replace(state);
    }

    /// Calls a tool once.
    ///
    /// # Errors
    /// When there is no result.
    pub(super) async fn attempt(
        &self,
        tool: &str,
        invocation: &ToolInvocation,
    ) -> Result<CallToolResult, RequestFailure> {
        match self.settings().scope {
            McpScope::Shared => {
                let connection = self.ready().await?;
                let before = connection.news().count();
                let result = connection.call(tool, invocation).await;
                let after = connection.news().count();
                if after > before && result.is_ok() {
                    // The model may need the tools that the call has added.
                    connection.news().offered(after).await;
                }
                if let Err(failure) = &result
                    && failure.ends_connection()
                {
                    self.lost(&connection, failure);
                }
                result
            }
            McpScope::Owner => {
                let key = InstanceKey {
                    owner: invocation.context.owner.clone(),
                    server: ServerKey::Configured,
                };
                let user = ProcessUser::Owner(&key.owner);
                let lease = self.instances.lease(&key, &self.connector, user).await?;
                lease.call(tool, invocation).await
            }
        }
    }

    /// The main connection; waits a little for a server that is being started.
    async fn ready(&self) -> Result<Arc<Connection>, RequestFailure> {
        let mut state = self.state.subscribe();
        let is_ready = |state: &ServerState| match state {
            ServerState::Ready(connection) => !connection.is_ended(),
            ServerState::Starting | ServerState::Down(_) => false,
        };
        let found = match timeout(START_WAIT, state.wait_for(is_ready)).await {
            Ok(Ok(state)) => state.clone(),
            Ok(Err(_)) | Err(_) => self.state(),
        };
        match found {
            ServerState::Ready(connection) => Ok(connection),
            ServerState::Starting | ServerState::Down(_) => Err(RequestFailure::Unreachable(
                "it is not running at the moment".to_owned(),
            )),
        }
    }

    /// Notes that a connection cannot be used any more, so that a new one is opened.
    fn lost(&self, connection: &Arc<Connection>, failure: &RequestFailure) {
        self.state.send_if_modified(|state| match state {
            ServerState::Ready(current) if Arc::ptr_eq(current, connection) => {
                *state = ServerState::Down(failure.to_string());
                true
            }
            ServerState::Ready(_) | ServerState::Starting | ServerState::Down(_) => false,
        });
    }
}
