//! The server as a dialect's decoder sees it: models, tools and caps.

use std::sync::Arc;

use url::Url;

use super::event::Notice;
use super::settings::Settings;
use protocol::ids::Owner;
use protocol::openai::request::RequestError;
use protocol::openai::tool::ToolDefinition;
use tools::mcp::ConnectedServer;
use tools::mcp_offer::McpServerRequest;
use tools::requested::{Availability, Capability, RequestedTools};
use tools::set::{ToolFilter, ToolSet};
use tools::source::SourceList;
use upstream::router::{Route, Router};

/// The models, tools and caps that the server has for a request.
#[derive(Debug)]
pub struct ServerOffer<'a> {
    router: &'a Router,
    sources: Arc<SourceList>,
    settings: &'a Settings,
    only_named_functions: bool,
}

impl<'a> ServerOffer<'a> {
    /// An offer of these parts.
    pub(super) fn new(
        router: &'a Router,
        sources: Arc<SourceList>,
        settings: &'a Settings,
    ) -> Self {
        Self {
            router,
            sources,
            settings,
            only_named_functions: false,
        }
    }

    /// The offer for a dialect whose clients declare tools of their own machine.
    #[must_use]
    pub fn for_clients_with_tools(self) -> Self {
        Self {
            only_named_functions: true,
            ..self
        }
    }

    /// Whether the dispatch URL gets only those of the declared functions that patterns of the settings name.
    pub fn only_named_functions(&self) -> bool {
        self.only_named_functions
    }

    /// The offer for a model, named as the client names it: no tools for a plain model.
    #[must_use]
    pub fn for_model(self, model: &str) -> Self {
        match self.settings.plain_models.matches(model) {
            true => Self {
                sources: Arc::default(),
                ..self
            },
            false => self,
        }
    }

    /// The upstreams that serve a model.
    ///
    /// # Errors
    /// When no upstream serves the model.
    pub fn route(&self, model: &str) -> Result<Arc<Route>, RequestError> {
        self.router.candidates(model).ok_or_else(|| {
            let message = format!("no upstream serves the model '{model}'; see GET /v1/models");
            RequestError {
                missing: true,
                ..RequestError::field("model", message)
            }
        })
    }

    /// The name of the tool that provides a capability; `None` if the server has no such tool.
    pub fn tool_for(&self, capability: Capability) -> Option<&'static str> {
        self.sources.tool_for(capability)
    }

    /// Which requests get the tool that provides a capability.
    pub fn availability(&self, capability: Capability) -> Availability {
        self.sources.availability(capability)
    }

    /// Whether the server has a tool of this name.
    pub fn has_tool(&self, name: &str) -> bool {
        self.sources.has(name)
    }

    /// Whether a request may declare MCP servers.
    pub fn connects_to_servers(&self) -> bool {
        self.sources.requested_servers().is_some()
    }

    /// Whether the server has an MCP server of this name itself.
    pub fn has_server(&self, name: &str) -> bool {
        self.sources.has_server(name)
    }

    /// Checks the URL of an MCP server that a request declares.
    ///
    /// # Errors
    /// When the server may not be connected to; the text is the problem, for the client.
    pub fn server_url(&self, url: &str) -> Result<Url, String> {
        match self.sources.requested_servers() {
            Some(servers) => servers.check_url(url),
            None => Err("names an MCP server, to which this server does not connect".to_owned()),
        }
    }

    /// Connects to the MCP servers that a request declares; their tools are part of the offer from then on. Returns
    /// the servers, with those that cannot be used.
    pub async fn connect(
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
    pub fn offers_by_default(&self) -> bool {
        self.sources.offers_by_default()
    }

    /// The tools of a request: the declared client tools, and the server-side tools that it asks for and that pass the
    /// filter.
    ///
    /// # Errors
    /// When a declared name is taken, declared twice or not usable.
    pub fn tool_set(
        &self,
        declared: Vec<ToolDefinition>,
        requested: &RequestedTools,
        filter: &ToolFilter,
    ) -> Result<ToolSet, RequestError> {
        let set = self.sources.tool_set(declared, requested, filter);
        set.map_err(|error| RequestError::field("tools", error.to_string()))
    }

    /// The caps of the server.
    pub fn settings(&self) -> &Settings {
        self.settings
    }
}

/// What the client is told of a server that cannot be used.
pub fn unavailable(server: &ConnectedServer) -> Option<Notice> {
    let problem = server.problem()?;
    let label = server.label();
    Some(Notice {
        kind: "mcp_server".into(),
        message: format!("the tools of the MCP server '{label}' are not offered: {problem}"),
    })
}
