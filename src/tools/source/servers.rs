//! The MCP servers among the sources.

use std::collections::HashSet;

use super::super::SharedTool;
use super::super::health::Health;
use super::super::mcp::{ConnectedServer, RequestedServers};
use super::super::mcp_offer::McpOffer;
use super::{Source, SourceList};

impl SourceList {
    /// What connects to the MCP servers that requests declare, if they may declare any.
    pub fn requested_servers(&self) -> Option<&RequestedServers> {
        self.sources.iter().find_map(|source| match source {
            Source::McpRequests(servers) => Some(servers),
            _ => None,
        })
    }

    /// Whether an MCP server of the settings has this name.
    pub fn has_server(&self, name: &str) -> bool {
        let is_named = |source: &Source| matches!(source, Source::Mcp(mcp) if *mcp.server == *name);
        self.sources.iter().any(is_named)
    }

    /// These sources, and the MCP servers that a request declares.
    #[must_use]
    pub fn with_servers(&self, connected: &[ConnectedServer]) -> Self {
        let (mut sources, mut names) = (self.sources.clone(), self.names.clone());
        for server in connected {
            let offer = McpOffer::of_request(server, &mut names);
            sources.push(Source::Mcp(offer));
        }
        Self::of(sources, names)
    }

    /// The tools of these MCP servers, if they can run calls.
    pub(crate) fn tools_of_servers(
        &self,
        servers: &HashSet<String>,
    ) -> impl Iterator<Item = &SharedTool> {
        let ready = self.sources.iter().filter_map(|source| match source {
            Source::Mcp(mcp) if mcp.health == Health::Ready => Some(mcp),
            _ => None,
        });
        let meant = ready.filter(|mcp| servers.contains(&*mcp.server));
        meant.flat_map(|mcp| mcp.tools.iter())
    }

    /// How many tools of MCP servers a request may have without searching; `None` if there is no search.
    pub(crate) fn most_without_search(&self) -> Option<usize> {
        self.sources.iter().find_map(|source| match source {
            Source::ToolSearch(search) => Some(search.above()),
            _ => None,
        })
    }
}
