//! Replaces MCP servers in a program that is built without the feature `mcp`. No server is ever made.

use std::collections::HashSet;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;

use serde_json::Value;
use tokio_util::task::TaskTracker;
use url::Url;

use super::mcp_offer::{McpOffer, McpServerRequest};
use super::settings::mcp::McpSettings;
use super::source::Sources;
use protocol::ids::Owner;
use web::Outcomes;

pub use self::NoMcp as McpServers;
pub use self::NoMcpError as McpSetupError;
pub use self::NoMcpServer as ConnectedServer;
pub(crate) use self::NoMcpServer as RequestedServers;

/// No MCP servers.
#[derive(Debug)]
pub struct NoMcp;

/// The settings have MCP servers.
#[derive(Debug, thiserror::Error)]
#[error("MCP servers are configured, and this program was built without the feature `mcp`")]
pub struct NoMcpError;

/// Replaces an MCP server of a request, and the pool that connects to such servers.
#[derive(Debug, Clone)]
pub struct NoMcpServer(Infallible);

impl NoMcp {
    /// Refuses every server.
    ///
    /// # Errors
    /// When there is a server, or requests may declare one.
    pub fn start(
        settings: McpSettings,
        _sources: Arc<Sources>,
        _tasks: &TaskTracker,
    ) -> Ready<Result<Self, NoMcpError>> {
        let McpSettings {
            servers, requests, ..
        } = settings;
        ready(match servers.is_empty() && !requests.is_used() {
            true => Ok(Self),
            false => Err(NoMcpError),
        })
    }

    /// Refuses every server.
    ///
    /// # Errors
    /// When there is a server.
    pub fn try_all(settings: McpSettings) -> Ready<Result<Vec<McpOffer>, NoMcpError>> {
        ready(match settings.servers.into_iter().next() {
            None => Ok(Vec::new()),
            Some(_) => Err(NoMcpError),
        })
    }

    /// Does nothing.
    pub fn close(&self) -> Ready<()> {
        ready(())
    }
}

impl NoMcpServer {
    /// The number of open connections.
    pub fn connections(&self) -> usize {
        match self.0 {}
    }

    /// How many servers requests have declared.
    pub fn outcomes(&self) -> Outcomes {
        match self.0 {}
    }

    /// Checks the URL of a server.
    ///
    /// # Errors
    /// Never: there is no server.
    pub fn check_url(&self, _url: &str) -> Result<Url, String> {
        match self.0 {}
    }

    /// Connects to servers.
    pub fn connect(&self, _owner: &Owner, _requests: Vec<McpServerRequest>) -> Ready<Vec<Self>> {
        match self.0 {}
    }

    /// Its label.
    pub fn label(&self) -> &str {
        match self.0 {}
    }

    /// The tools that the request allows.
    pub fn tools(&self) -> Vec<Value> {
        match self.0 {}
    }

    /// Why its tools cannot be offered.
    pub fn problem(&self) -> Option<String> {
        match self.0 {}
    }
}

impl McpOffer {
    /// What a server of a request offers.
    pub(super) fn of_request(connected: &NoMcpServer, _taken: &mut HashSet<String>) -> Self {
        match connected.0 {}
    }
}
