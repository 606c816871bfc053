//! MCP servers that requests declare: on hosts that the operator permits, over connections of one owner alone.
//!
//! A connection stays open for the next request of the same owner with the same URL and headers, and is closed when it
//! is idle. Credentials of a request are held in memory only, and are in no text.

use std::path::Path;
use std::sync::Arc;

use futures_util::future::join_all;
use rmcp::model::CallToolResult;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

use super::connector::Connector;
use super::failure::RequestFailure;
use super::http::HttpAccess;
use super::instances::{InstanceKey, InstanceLease, InstanceLimits, Instances, ServerKey};
use super::listed::{self, Listing, REQUESTED};
use super::process::ProcessUser;
use crate::ToolInvocation;
use crate::globs::Globs;
use crate::mcp_offer::McpServerRequest;
use crate::settings::mcp::{
    HttpKind, McpEndpoint, McpRequestSettings, McpScope, McpServerSettings, McpTransport,
};
use protocol::ids::{Owner, hex};
use web::fetch::{GuardedHosts, HostRefusal};
use web::stats::Tally;
use web::{Outcomes, SetupError};

/// Connects to the MCP servers that requests declare. Cheap to clone.
#[derive(Debug, Clone)]
pub struct RequestedServers(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    settings: McpRequestSettings,
    hosts: GuardedHosts,
    instances: Instances,
    /// By whether the tools of a server could be listed.
    listed: Tally,
    tasks: TaskTracker,
}

/// A server of one request.
#[derive(Debug)]
pub(super) struct RequestedServer {
    servers: RequestedServers,
    connector: Connector,
    key: InstanceKey,
    description: Option<String>,
}

/// A server of one request, with its tools.
#[derive(Debug)]
pub struct ConnectedServer {
    pub(super) server: Arc<RequestedServer>,
    pub(super) listing: Result<Arc<Listing>, RequestFailure>,
}

impl McpServerRequest {
    /// Identifies servers that may share a connection: the same URL and headers.
    fn key(&self) -> ServerKey {
        let mut digest = Sha256::new();
        let mut add = |bytes: &[u8]| {
            digest.update((bytes.len() as u64).to_be_bytes());
            digest.update(bytes);
        };
        add(self.url.as_str().as_bytes());
        let headers = self.headers.iter();
        let mut headers: Vec<(&str, &[u8])> = headers
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        headers.sort_unstable();
        for (name, value) in headers {
            add(name.as_bytes());
            add(value);
        }
        ServerKey::Requested(digest.finalize().into())
    }
}

impl RequestedServers {
    /// # Errors
    /// When a pattern of the hosts is invalid.
    pub(super) fn new(
        settings: McpRequestSettings,
        tasks: &TaskTracker,
        shutdown: CancellationToken,
    ) -> Result<Self, SetupError> {
        let limits = InstanceLimits {
            max: settings.max_connections,
            max_per_owner: settings.max_connections_per_owner,
            idle_ttl: settings.idle_ttl,
        };
        Ok(Self(Arc::new(Pool {
            hosts: GuardedHosts::new(&settings.hosts, &settings.private, &settings.ports)?,
            instances: Instances::new(limits, tasks.clone(), shutdown),
            listed: Tally::default(),
            settings,
            tasks: tasks.clone(),
        })))
    }

    /// Closes idle connections until the shutdown, and then all.
    pub(super) async fn run(&self) {
        self.0.instances.sweep().await;
    }

    /// The number of open connections.
    pub fn connections(&self) -> usize {
        self.0.instances.count()
    }

    /// How many servers requests have declared, by whether their tools could be listed.
    pub fn outcomes(&self) -> Outcomes {
        self.0.listed.outcomes()
    }

    /// Checks the URL that a request gives for a server.
    ///
    /// # Errors
    /// When the server may not be connected to; the text is the problem, for the client.
    pub fn check_url(&self, url: &str) -> Result<Url, String> {
        self.0.hosts.check(url).map_err(|refusal| match refusal {
            HostRefusal::Unusable(problem) => format!("cannot be used: {problem}"),
            HostRefusal::NotAllowed(host) => format!(
                "names the host '{host}', to which this server does not connect; the operator can add it to \
                 'mcp_requests.hosts'"
            ),
            HostRefusal::NotPublic(host) => format!(
                "names the host '{host}', which is not on the public internet; use a public name of the server"
            ),
            HostRefusal::Port(port) => format!(
                "names port {port}, to which this server does not connect; the operator can add it to \
                 'mcp_requests.ports'"
            ),
            HostRefusal::Unencrypted => {
                "is not encrypted; write it with https:// at its beginning".to_owned()
            }
        })
    }

    /// Connects to servers, to all at the same time, and lists their tools.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connections that are not complete.
    pub async fn connect(
        &self,
        owner: &Owner,
        requests: Vec<McpServerRequest>,
    ) -> Vec<ConnectedServer> {
        let connecting = requests.into_iter().map(|request| async {
            let server = self.server(owner, request);
            let limit = self.0.settings.start_timeout;
            let listing = timeout(limit, server.listing()).await;
            let listing = listing.unwrap_or_else(|_elapsed| {
                let text = format!("it did not answer within {} s", limit.as_secs_f64());
                Err(RequestFailure::Unreachable(text))
            });
            self.0.listed.count(&listing);
            ConnectedServer {
                server: Arc::new(server),
                listing,
            }
        });
        join_all(connecting).await
    }

    fn server(&self, owner: &Owner, request: McpServerRequest) -> RequestedServer {
        let pool = &self.0;
        let key = InstanceKey {
            owner: owner.clone(),
            server: request.key(),
        };
        let none = Some(Globs::default());
        let allowed = request.allowed_tools.as_deref();
        let settings = McpServerSettings {
            name: request.label.clone(),
            transport: McpTransport::Http(Box::new(McpEndpoint {
                url: request.url,
                headers: request.headers,
                kind: HttpKind::Any,
                oauth: None,
            })),
            tool_prefix: None,
            timeout: pool.settings.timeout,
            allowed_tools: allowed.map(Globs::of_names),
            allowed_read_only: request.allowed_read_only,
            sequential: false,
            // Annotations of a server that only the caller trusts switch no check off.
            read_only: none.clone(),
            idempotent: none,
            repeatable: Globs::default(),
            scope: McpScope::Owner,
            max_instances: 1,
            idle_ttl: pool.settings.idle_ttl,
            keys: None,
            max_answer_bytes: pool.settings.max_answer_bytes,
            trim_schemas: false,
            instructions: true,
        };
        RequestedServer {
            servers: self.clone(),
            connector: Connector {
                name: request.label.into(),
                settings,
                start_timeout: pool.settings.start_timeout,
                handshake_timeout: pool.settings.start_timeout,
                guard: Path::new("").into(),
                http: Some(HttpAccess::Guarded {
                    hosts: pool.hosts.clone(),
                    owner: owner.clone(),
                }),
                tasks: pool.tasks.clone(),
            },
            key,
            description: request.description,
        }
    }
}

impl ConnectedServer {
    /// Its label.
    pub fn label(&self) -> &str {
        &self.server.settings().name
    }

    /// Why its tools cannot be offered.
    pub fn problem(&self) -> Option<String> {
        self.listing.as_ref().err().map(ToString::to_string)
    }

    /// The tools that the request allows, as the server lists them; none if they cannot be offered.
    pub fn tools(&self) -> Vec<Value> {
        let settings = self.server.settings();
        let listed = self.listing.iter().flat_map(|listing| &listing.tools);
        let listed = listed.filter(|tool| listed::is_allowed(tool, settings));
        let entry = |tool: &rmcp::model::Tool| {
            let mut entry = json!({"name": tool.name, "input_schema": *tool.input_schema});
            if let Some(description) = &tool.description {
                entry["description"] = json!(description);
            }
            if let Some(annotations) = &tool.annotations {
                entry["annotations"] = json!(annotations);
            }
            entry
        };
        listed.map(entry).collect()
    }
}

impl RequestedServer {
    /// The address of the server as a digest: its URL may hold a secret.
    pub(super) fn place(&self) -> String {
        match &self.settings().transport {
            McpTransport::Http(endpoint) => hex(&Sha256::digest(endpoint.url.as_str())),
            McpTransport::Stdio(_) => String::new(),
        }
    }

    pub(super) fn settings(&self) -> &McpServerSettings {
        &self.connector.settings
    }

    /// What the request says of the server, for the model.
    pub(super) fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    async fn lease(&self) -> Result<InstanceLease<'_>, RequestFailure> {
        let user = ProcessUser::Owner(&self.key.owner);
        let pool = &self.servers.0;
        pool.instances.lease(&self.key, &self.connector, user).await
    }

    /// The tools that the server has. An open connection that has ended meanwhile is replaced.
    async fn listing(&self) -> Result<Arc<Listing>, RequestFailure> {
        match self.listing_once().await {
            Err(RequestFailure::Ended(_)) => self.listing_once().await,
            listing => listing,
        }
    }

    async fn listing_once(&self) -> Result<Arc<Listing>, RequestFailure> {
        let lease = self.lease().await?;
        let name = &self.connector.name;
        let listing = lease.connection().kept_list(name, REQUESTED).await;
        if let Err(failure) = &listing
            && failure.ends_connection()
        {
            lease.give_up().await;
        }
        listing
    }

    /// Calls a tool once.
    pub(super) async fn attempt(
        &self,
        tool: &str,
        invocation: &ToolInvocation,
    ) -> Result<CallToolResult, RequestFailure> {
        self.lease().await?.call(tool, invocation).await
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    fn request(url: &str, headers: &[(&str, &str)]) -> McpServerRequest {
        let mut given = HeaderMap::new();
        for (name, value) in headers {
            let name: http::HeaderName = name.parse().unwrap();
            given.insert(name, value.parse().unwrap());
        }
        McpServerRequest {
            label: "l".to_owned(),
            url: url.parse().unwrap(),
            headers: given,
            allowed_tools: None,
            allowed_read_only: None,
            description: None,
        }
    }

    #[test]
    fn servers_share_a_connection_if_url_and_headers_are_the_same() {
        let first = request("https://h/a", &[("x-a", "1"), ("x-b", "2")]).key();
        let same = request("https://h/a", &[("x-b", "2"), ("x-a", "1")]).key();
        assert!(first == same);
        for other in [
            request("https://h/b", &[("x-a", "1"), ("x-b", "2")]),
            request("https://h/a?x-a", &[("x-b", "2")]),
            request("https://h/a", &[("x-a", "1x-b"), ("x-b", "2")]),
            request("https://h/a", &[("x-a", "2"), ("x-b", "1")]),
            request("https://h/a", &[]),
        ] {
            assert!(first != other.key());
        }
    }
}
