//! MCP servers: their tools are server-side tools.
//!
//! Owns the connections to servers and the processes of those that have a command: the servers of the settings, and those that
//! requests declare.

mod bounded_transport;
mod client_side;
mod configured;
mod connection;
mod connector;
mod failure;
mod guard;
mod http;
mod instances;
mod line;
mod listed;
mod mend;
mod message;
mod names;
mod news;
mod oauth;
mod post;
mod process;
mod read_rate;
mod requested;
mod result;
mod secrets;
mod server;
mod sse;
mod stdio;
mod tool;
mod trim;

use std::collections::HashSet;

use ::http::HeaderName;

pub use self::configured::{McpServers, McpSetupError};
pub use self::guard::{MCP_EXEC, MCP_GUARD, exec_main, guard_main};
pub use self::requested::ConnectedServer;
pub(crate) use self::requested::RequestedServers;
use self::tool::ToolServer;
use super::health::Health;
use super::mcp_offer::McpOffer;

/// The header by which a server that is a loopwright itself knows another one as its client.
pub const CLIENT_HEADER: HeaderName = HeaderName::from_static("x-loopwright-client");

impl McpOffer {
    /// What a server of a request offers, under names that are not taken.
    pub(super) fn of_request(connected: &ConnectedServer, taken: &mut HashSet<String>) -> Self {
        let reason = connected.problem();
        let server = ToolServer::Requested(connected.server.clone());
        let tools = match &connected.listing {
            Ok(listing) => tool::tools(&server, listing, taken),
            Err(_) => Vec::new(),
        };
        Self {
            server: connected.label().into(),
            tools: tools.into(),
            health: match &reason {
                None => Health::Ready,
                Some(_) => Health::Down,
            },
            reason,
            restarts: 0,
            keys: None,
        }
    }
}
