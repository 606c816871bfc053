//! The MCP servers of the settings.
//!
//! A task of its own keeps each server running; what it offers is published as a [`Source`] whenever it changes. The
//! start waits for a server for a bounded time, and a server that fails stops no other.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use reqwest::redirect::Policy;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

use super::connector::Connector;
use super::http::HttpAccess;
use super::listed::Listing;
use super::oauth::Tokens;
use super::requested::RequestedServers;
use super::server::{McpServer, Publish, ServerState};
use super::tool::{self, ToolServer};
use crate::health::Health;
use crate::mcp_offer::McpOffer;
use crate::settings::mcp::{McpSettings, McpTransport};
use crate::source::{Source, SourceError, Sources};
use net::{CaCertificates, ClientOptions};
use web::SetupError;

/// Longest time for a server to start and to list its tools: a program may be downloaded first. After it the server is
/// started again.
const HANDSHAKE_LIMIT: Duration = Duration::from_mins(2);
/// Most redirects of a request. After them the redirect is an error.
const MAX_REDIRECTS: usize = 3;

/// The MCP servers of the settings.
#[derive(Debug)]
pub struct McpServers {
    shutdown: CancellationToken,
    servers: TaskTracker,
}

/// The clients of MCP servers cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum McpSetupError {
    /// The HTTP client cannot be created.
    #[error("cannot set up the HTTP client of MCP servers")]
    Client(#[from] reqwest::Error),
    /// The hosts that requests may name.
    #[error("cannot set up the MCP servers of requests")]
    Requests(#[from] SetupError),
    /// Two tools have one name.
    #[error(transparent)]
    Names(#[from] SourceError),
}

/// The lists of all servers; whichever changes, all names are given out anew.
#[derive(Debug)]
struct ServerRegistry {
    sources: Arc<Sources>,
    lists: Mutex<Vec<(Arc<McpServer>, Listing)>>,
}

/// A server's place on the board.
struct Registration {
    registry: Arc<ServerRegistry>,
    index: usize,
}

impl McpServers {
    /// Starts the servers, and waits until each has listed its tools or has failed, at most for the start time-out.
    ///
    /// # Errors
    /// When an HTTP client cannot be set up.
    pub async fn start(
        settings: McpSettings,
        sources: Arc<Sources>,
        tasks: &TaskTracker,
    ) -> Result<Self, McpSetupError> {
        let shutdown = CancellationToken::new();
        let start_timeout = settings.start_timeout;
        let running = TaskTracker::new();
        if settings.requests.is_used() {
            let requested = RequestedServers::new(settings.requests, tasks, shutdown.clone())?;
            let source = Source::McpRequests(requested.clone());
            sources.update(|sources| sources.push(source))?;
            running.spawn(async move { requested.run().await });
        }
        let mut servers = Vec::with_capacity(settings.servers.len());
        for server in settings.servers {
            let connector = Connector {
                name: server.name.as_str().into(),
                http: http_client(&server.transport, &settings.certificates)?,
                settings: server,
                start_timeout,
                handshake_timeout: HANDSHAKE_LIMIT.max(start_timeout),
                guard: settings.guard.as_path().into(),
                tasks: tasks.clone(),
            };
            servers.push(Arc::new(McpServer::new(connector, shutdown.clone())));
        }
        let lists = servers
            .iter()
            .map(|server| (server.clone(), Listing::default()));
        let registry = Arc::new(ServerRegistry {
            sources,
            lists: Mutex::new(lists.collect()),
        });
        registry.publish();
        for (index, server) in servers.iter().enumerate() {
            let (server, entry) = (
                server.clone(),
                Registration {
                    registry: registry.clone(),
                    index,
                },
            );
            running.spawn(async move { server.run(&entry).await });
        }
        running.close();
        let started = join_all(servers.iter().map(|server| server.started()));
        let _late_servers_come_later = timeout(start_timeout, started).await;
        Ok(Self {
            shutdown,
            servers: running,
        })
    }

    /// Starts the servers, and closes them once each has listed its tools or has failed. Returns the tools that they
    /// offered.
    ///
    /// # Errors
    /// When an HTTP client cannot be set up.
    pub fn try_all(
        settings: McpSettings,
    ) -> BoxFuture<'static, Result<Vec<McpOffer>, McpSetupError>> {
        // Boxed here, as a future is compiled where it is polled: once in this library, not in the binary.
        Box::pin(Self::try_each(settings))
    }

    async fn try_each(settings: McpSettings) -> Result<Vec<McpOffer>, McpSetupError> {
        let (sources, tasks) = (Arc::new(Sources::default()), TaskTracker::new());
        let servers = Self::start(settings, sources.clone(), &tasks).await?;
        let started = sources.snapshot();
        let offers = started.iter().filter_map(|source| match source {
            Source::Mcp(offer) => Some(offer.clone()),
            _ => None,
        });
        let offers = offers.collect();
        servers.close().await;
        Ok(offers)
    }

    /// Closes all connections and ends all processes.
    pub async fn close(&self) {
        self.shutdown.cancel();
        self.servers.wait().await;
    }
}

/// Follows redirects that keep method and body, to the same origin: many servers send `/mcp` to `/mcp/`.
fn same_origin() -> Policy {
    Policy::custom(|attempt| {
        let keeps_body = matches!(attempt.status().as_u16(), 307 | 308);
        let first = attempt.previous().first().map(Url::origin);
        let is_same = first.is_some_and(|origin| origin == attempt.url().origin());
        match keeps_body && is_same && attempt.previous().len() <= MAX_REDIRECTS {
            true => attempt.follow(),
            false => attempt.stop(),
        }
    })
}

fn http_client(
    transport: &McpTransport,
    certificates: &CaCertificates,
) -> Result<Option<HttpAccess>, McpSetupError> {
    match transport {
        McpTransport::Stdio(_) => Ok(None),
        McpTransport::Http(endpoint) => {
            let token_url = endpoint.oauth.as_ref().and_then(|it| it.token_url.as_ref());
            let mut urls = std::iter::once(&endpoint.url).chain(token_url);
            let tls = urls.any(|url| url.scheme() == "https");
            let client = |redirects| {
                let options = ClientOptions {
                    tls,
                    certificates: certificates.clone(),
                    redirects,
                    ..ClientOptions::default()
                };
                options.build()
            };
            let tokens = endpoint.oauth.clone().map(|oauth| {
                let tokens = Tokens::new(oauth, &endpoint.url, client(Policy::none())?);
                Ok::<_, McpSetupError>(Arc::new(tokens?))
            });
            Ok(Some(HttpAccess::Configured {
                client: client(same_origin())?,
                tokens: tokens.transpose()?,
            }))
        }
    }
}

impl ServerRegistry {
    /// Publishes the offers of all servers as the sources of later requests.
    fn publish(&self) {
        let lists = self.lists.lock();
        let published = self.sources.update(|sources| {
            sources.retain(|source| !matches!(source, Source::Mcp(_)));
            let mut taken: HashSet<String> = sources
                .iter()
                .flat_map(Source::tools)
                .map(|tool| tool.definition().name.clone())
                .collect();
            for (server, listed) in lists.iter() {
                let (health, reason) = match server.state() {
                    ServerState::Starting => (Health::Down, Some("it is being started".to_owned())),
                    ServerState::Ready(_) => (Health::Ready, None),
                    ServerState::Down(reason) => (Health::Down, Some(reason)),
                };
                sources.push(Source::Mcp(McpOffer {
                    server: server.settings().name.as_str().into(),
                    tools: tool::tools(&ToolServer::Configured(server.clone()), listed, &mut taken)
                        .into(),
                    health,
                    reason,
                    restarts: server.restarts(),
                    keys: server.settings().keys.clone(),
                }));
            }
        });
        if let Err(error) = published {
            tracing::error!(%error, "the tools of MCP servers cannot be offered");
        }
    }
}

impl Publish for Registration {
    fn publish(&self, listing: Option<Listing>) {
        if let Some(listing) = listing
            && let Some((_, listed)) = self.registry.lists.lock().get_mut(self.index)
        {
            *listed = listing;
        }
        self.registry.publish();
    }
}
