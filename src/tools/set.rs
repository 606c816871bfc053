//! Which tools a request may use, and who runs each.

use std::sync::Arc;

use super::SharedTool;
use super::settings::Settings;
use crate::openai::tool::ToolDefinition;

/// The server-side tools of the configuration.
#[derive(Debug)]
pub struct ToolRegistry {}

/// Why the configured tools cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("x")]
    X,
}

/// Why a request's tools cannot be used; the text is for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolSetError {
    #[error("x")]
    X,
}

/// Which tools a request may use.
#[derive(Debug, Clone)]
pub struct ToolFilter {}

/// A glob that cannot be read; the text names it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("x")]
pub struct FilterError;

/// The tools of one request; cheap to clone.
#[derive(Debug, Clone)]
pub struct ToolSet {}

/// Who runs a call.
#[derive(Debug, Clone)]
pub enum Lookup {
    /// The server.
    Server(SharedTool),
    /// The client.
    Client,
    /// Nobody: not offered.
    Unknown,
}

impl ToolRegistry {
    /// Builds the configured tools.
    ///
    /// # Errors
    /// When a name, schema, pattern or endpoint cannot be used; the text names it.
    pub fn new(settings: &Settings) -> Result<Self, RegistryError> {
        todo!()
    }

    /// Whether no request can get a server-side tool: neither a configured tool nor a dispatch URL.
    pub fn is_empty(&self) -> bool {
        todo!()
    }

    /// The tools of a request that declares these.
    ///
    /// # Errors
    /// When a client tool has the name of a server-side one, or a name is declared twice or is not usable.
    pub fn for_request(
        &self,
        declared: Vec<ToolDefinition>,
        filter: &ToolFilter,
    ) -> Result<ToolSet, ToolSetError> {
        todo!()
    }

    /// The configured tools.
    pub fn list(&self) -> impl Iterator<Item = &SharedTool> {
        [].iter()
    }

    /// What a tool is called in metrics and logs: a configured tool by name, a dispatched one `dispatch`, any other `unknown`.
    pub fn is_configured(&self, name: &str) -> bool {
        todo!()
    }
}

impl ToolFilter {
    /// Reads the globs of a request. With `enabled` false no server-side tool is used.
    ///
    /// # Errors
    /// When a glob cannot be read.
    pub fn parse(
        allow: Option<&[String]>,
        deny: Option<&[String]>,
        client_tools: Option<&[String]>,
        enabled: bool,
    ) -> Result<Self, FilterError> {
        todo!()
    }
}

impl ToolSet {
    /// Whether the server runs any of them.
    pub fn has_server_tools(&self) -> bool {
        todo!()
    }

    /// `tools` as it is sent upstream, byte for byte the same over the rounds of a run; `None` when there is none.
    pub fn tools_json(&self) -> Option<Arc<str>> {
        todo!()
    }

    /// Who runs a call of this name.
    pub fn lookup(&self, name: &str) -> Lookup {
        todo!()
    }

    /// The names that the model is offered, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        [].into_iter()
    }

    /// The same with entries of `tools[]` that the upstream runs itself, as JSON text, after the others.
    #[must_use]
    pub fn with_hosted(self, entries: &[String]) -> Self {
        todo!()
    }
}
