//! Opens connections to an MCP server: the transport and the handshake.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::http::HeaderValue;
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion};
use rmcp::service::{ClientLifecycleMode, serve_client_with_lifecycle_and_ct};
use rmcp::transport::{StreamableHttpClientTransport, Transport};
use rmcp::{RoleClient, transport::streamable_http_client::StreamableHttpClientTransportConfig};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::CLIENT_HEADER;
use super::bounded_transport::BoundedTransport;
use super::client_side::ClientSide;
use super::connection::Connection;
use super::failure::RequestFailure;
use super::http::HttpAccess;
use super::news::ListNews;
use super::process::{GuardedProcess, ProcessUser};
use super::read_rate::ReadRate;
use super::secrets::Secrets;
use super::sse::SseTransport;
use super::stdio::{Ending, StdioTransport};
use crate::settings::mcp::{HttpKind, McpEndpoint, McpServerSettings, McpTransport};

/// What connections to a server are made with.
#[derive(Debug)]
pub(super) struct Connector {
    pub(super) name: Arc<str>,
    pub(super) settings: McpServerSettings,
    /// How long the server may take before it counts as down. Its start continues after that.
    pub(super) start_timeout: Duration,
    /// How long it may take to start and to list its tools.
    pub(super) handshake_timeout: Duration,
    pub(super) guard: Box<Path>,
    /// For a server with a URL.
    pub(super) http: Option<HttpAccess>,
    pub(super) tasks: TaskTracker,
}

/// How the handshake is made, and with which version of the protocol.
#[derive(Debug, Clone)]
struct Lifecycle {
    mode: ClientLifecycleMode,
    version: ProtocolVersion,
}

/// What a connection is opened with.
struct Handshake {
    ending: Ending,
    lifecycle: Lifecycle,
    secrets: Secrets,
    rate: ReadRate,
}

impl Connector {
    /// Connects and completes the handshake.
    ///
    /// # Errors
    /// When the server cannot be reached, ends, or does not support the protocol. The time is not bounded here.
    pub(super) async fn connect(
        &self,
        user: ProcessUser<'_>,
    ) -> Result<Connection, RequestFailure> {
        let initialize = |version| Lifecycle {
            mode: ClientLifecycleMode::Initialize,
            version,
        };
        let newest = ProtocolVersion::LATEST_WITH_INITIALIZE;
        match self.open(user, initialize(newest)).await {
            Err(RequestFailure::Version { known, .. }) => self.open(user, initialize(known)).await,
            // The server may support only versions without this handshake.
            Err(refused @ RequestFailure::Answered(_)) => {
                let discover = Lifecycle {
                    mode: ClientLifecycleMode::Discover {
                        preferred_versions: vec![ProtocolVersion::LATEST],
                    },
                    version: ProtocolVersion::LATEST_WITH_INITIALIZE,
                };
                let opened = self.open(user, discover).await;
                opened.map_err(|_failure| refused)
            }
            opened => opened,
        }
    }

    async fn open(
        &self,
        user: ProcessUser<'_>,
        lifecycle: Lifecycle,
    ) -> Result<Connection, RequestFailure> {
        let (max_bytes, ending) = (self.settings.max_answer_bytes, Ending::default());
        let rate = ReadRate::new(&self.name, max_bytes);
        match &self.settings.transport {
            McpTransport::Stdio(command) => {
                let started = GuardedProcess::start(&rate, command, user, &self.guard, &self.tasks);
                let (process, pipes) = started.map_err(|error| {
                    RequestFailure::Unreachable(format!("its process cannot be started: {error}"))
                })?;
                let transport =
                    StdioTransport::new(process, pipes, max_bytes, ending.clone(), rate.clone());
                let handshake = Handshake {
                    ending,
                    lifecycle,
                    secrets: Secrets::default(),
                    rate,
                };
                Box::pin(self.handshake(transport, handshake)).await
            }
            McpTransport::Http(endpoint) => {
                let access = self.http.as_ref().ok_or_else(|| {
                    RequestFailure::Unreachable("there is no HTTP client".to_owned())
                })?;
                let client = access.client(endpoint, rate.clone()).await?;
                let handshake = || Handshake {
                    ending: ending.clone(),
                    lifecycle: lifecycle.clone(),
                    secrets: client.secrets(endpoint),
                    rate: rate.clone(),
                };
                let refused = match endpoint.kind {
                    HttpKind::Sse => None,
                    HttpKind::Any => {
                        let config = http_config(endpoint, max_bytes);
                        let transport =
                            StreamableHttpClientTransport::with_client(client.clone(), config);
                        match Box::pin(self.handshake(transport, handshake())).await {
                            Err(failure) if failure.may_be_older() => Some(failure),
                            done => return done,
                        }
                    }
                };
                let opened = SseTransport::open(&client, endpoint, max_bytes, ending.clone());
                let transport = Box::pin(opened)
                    .await
                    .map_err(|failure| refused.unwrap_or(failure))?;
                Box::pin(self.handshake(transport, handshake())).await
            }
        }
    }

    async fn handshake<T>(
        &self,
        transport: T,
        handshake: Handshake,
    ) -> Result<Connection, RequestFailure>
    where
        T: Transport<RoleClient> + 'static,
    {
        let Handshake {
            ending,
            lifecycle,
            secrets,
            rate,
        } = handshake;
        let ended = CancellationToken::new();
        let news = Arc::new(ListNews::default());
        let bounded = BoundedTransport::new(
            transport,
            secrets,
            rate,
            news.clone(),
            ended.clone().drop_guard(),
        );
        let info = Implementation::new("loopwright", env!("CARGO_PKG_VERSION"));
        let config = ClientConfig::new(ClientCapabilities::default(), info)
            .with_protocol_version(lifecycle.version);
        let served = serve_client_with_lifecycle_and_ct(
            ClientSide(config),
            bounded,
            lifecycle.mode,
            CancellationToken::new(),
        );
        let running = served
            .await
            .map_err(|error| match RequestFailure::of_handshake(error) {
                RequestFailure::Ended(_) if !ending.lock().is_empty() => {
                    RequestFailure::Ended(ending.lock().clone())
                }
                other => other,
            })?;
        let peer = running.peer().peer_info();
        let is_known = peer
            .is_some_and(|peer| ProtocolVersion::KNOWN_VERSIONS.contains(&peer.protocol_version));
        let tasks = self.tasks.clone();
        let connection = Connection::new(running, ended, ending, news, tasks);
        match is_known {
            true => {
                connection.listen().await;
                Ok(connection)
            }
            false => {
                connection.close().await;
                let text = "it answers with a version of the protocol that is not known here";
                Err(RequestFailure::Unusable(text.to_owned()))
            }
        }
    }
}

fn http_config(endpoint: &McpEndpoint, max_bytes: usize) -> StreamableHttpClientTransportConfig {
    /// Longest delay before a broken stream is opened again.
    /// Tried by `protocol::streams_that_end_at_once_are_opened_again_with_pauses_only`.
    const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(30);
    let mut backoff = rmcp::transport::common::client_side_sse::ExponentialBackoff::default();
    backoff.max_delay = Some(MAX_RECONNECT_DELAY);
    let headers = endpoint.headers.iter();
    let mut headers: HashMap<_, _> = headers
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    headers.insert(CLIENT_HEADER, HeaderValue::from_static("mcp"));
    let mut config = StreamableHttpClientTransportConfig::with_uri(endpoint.url.as_str())
        .custom_headers(headers)
        .max_sse_event_size(max_bytes)
        .max_json_response_size(max_bytes);
    config.retry_config = Arc::new(backoff);
    config
}
