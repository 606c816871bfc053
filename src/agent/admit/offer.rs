//! What the server has for a draft: models, tools and caps.

use std::sync::Arc;

use url::Url;

use super::super::event::Notice;
use super::super::settings::Settings;
use protocol::ids::Owner;
use protocol::openai::request::RequestError;
use protocol::openai::tool::ToolDefinition;
use tools::mcp::ConnectedServer;
use tools::mcp_offer::McpServerRequest;
use tools::requested::{Availability, Capability, RequestedTools};
use tools::set::{ToolFilter, ToolSet};
use tools::source::SourceList;
use upstream::router::{Route, Router};

/// The tools and caps that the server has for a request.
#[derive(Debug)]
pub(super) struct ServerOffer<'a> {
    sources: Arc<SourceList>,
    settings: &'a Settings,
}

/// The upstreams that serve a model.
///
/// # Errors
/// When no upstream serves it.
pub(super) fn route(router: &Router, model: &str) -> Result<Arc<Route>, RequestError> {
    router.candidates(model).ok_or_else(|| {
        let message = format!("no upstream serves the model '{model}'; see GET /v1/models");
        RequestError {
            missing: true,
            ..RequestError::field("model", message)
        }
    })
}

impl<'a> ServerOffer<'a> {
    /// The offer for a model, named as the client names it: no tools for a plain model.
    pub(super) fn new(sources: Arc<SourceList>, settings: &'a Settings, model: &str) -> Self {
        let sources = match settings.plain_models.matches(model) {
            true => Arc::default(),
            false => sources,
        };
        Self { sources, settings }
    }

    /// The name of the tool that provides a capability; `None` if the server has no such tool.
    pub(super) fn tool_for(&self, capability: Capability) -> Option<&'static str> {
        self.sources.tool_for(capability)
    }

    /// Which requests get the tool that provides a capability.
    pub(super) fn availability(&self, capability: Capability) -> Availability {
        self.sources.availability(capability)
    }

    /// Whether the server has a tool of this name.
    pub(super) fn has_tool(&self, name: &str) -> bool {
        self.sources.has(name)
    }

    /// Whether a request may declare MCP servers.
    pub(super) fn connects_to_servers(&self) -> bool {
        self.sources.requested_servers().is_some()
    }

    /// Whether the server has an MCP server of this name itself.
    pub(super) fn has_server(&self, name: &str) -> bool {
        self.sources.has_server(name)
    }

    /// Checks the URL of an MCP server that a request declares.
    ///
    /// # Errors
    /// When the server may not be connected to; the text is the problem, for the client.
    pub(super) fn server_url(&self, url: &str) -> Result<Url, String> {
        match self.sources.requested_servers() {
            Some(servers) => servers.check_url(url),
            None => Err("names an MCP server, to which this server does not connect".to_owned()),
        }
    }

    /// Connects to the MCP servers that a request declares; their tools are part of the offer from then on. Returns
    /// the servers, with those that cannot be used.
    pub(super) async fn connect(
        &mut self,
        owner: &Owner,
        servers: Vec<McpServerRequest>,
    ) -> Vec<ConnectedServer> {
        let Some(requested) = self.sources.requested_servers() else {
            return Vec::new();
        };
        let connected = requested.connect(owner, servers).await;
        self.sources = Arc::new(self.sources.with_servers(&connected));
        connected
    }

    /// Whether a request gets server-side tools without asking for any.
    pub(super) fn offers_by_default(&self) -> bool {
        self.sources.offers_by_default()
    }

    /// The tools of a request: the declared client tools, and the server-side tools that it asks for and that pass the
    /// filter.
    ///
    /// # Errors
    /// When a declared name is taken, declared twice or not usable.
    pub(super) fn tool_set(
        &self,
        declared: Vec<ToolDefinition>,
        requested: &RequestedTools,
        filter: &ToolFilter,
    ) -> Result<ToolSet, RequestError> {
        let set = self.sources.tool_set(declared, requested, filter);
        set.map_err(|error| RequestError::field("tools", error.to_string()))
    }

    /// The caps of the server.
    pub(super) fn settings(&self) -> &'a Settings {
        self.settings
    }
}

/// The notice for the client about a server that cannot be used.
pub(super) fn unavailable(server: &ConnectedServer) -> Option<Notice> {
    let problem = server.problem()?;
    let label = server.label();
    Some(Notice {
        kind: "mcp_server".into(),
        message: format!("the tools of the MCP server '{label}' are not offered: {problem}"),
    })
}
