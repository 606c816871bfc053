//! A tool of an MCP server.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use rmcp::model::{CallToolResult, Tool as RemoteTool};

use super::failure::RequestFailure;
use super::listed::Listing;
use super::requested::RequestedServer;
use super::server::McpServer;
use super::{listed, names, result};
use crate::settings::mcp::{McpScope, McpServerSettings};
use crate::{
    RemoteToolName, SharedTool, Tool, ToolError, ToolInvocation, ToolOutput, ToolPolicy, ToolSource,
};
use protocol::openai::tool::ToolDefinition;

/// The server of a tool.
#[derive(Debug, Clone)]
pub(super) enum ToolServer {
    /// A server of the settings.
    Configured(Arc<McpServer>),
    Requested(Arc<RequestedServer>),
}

/// A tool of an MCP server.
#[derive(Debug)]
struct McpTool {
    server: ToolServer,
    /// The name that the server gives it.
    remote_name: String,
    definition: ToolDefinition,
    policy: ToolPolicy,
}

/// The tools of a server that are offered, under names that are not taken.
pub(super) fn tools(
    server: &ToolServer,
    listing: &Listing,
    taken: &mut HashSet<String>,
) -> Vec<SharedTool> {
    let settings = server.settings();
    let prefix = settings.tool_prefix.clone();
    let prefix = prefix.unwrap_or_else(|| names::default_prefix(&settings.name));
    let instructions = match server {
        ToolServer::Configured(_) => listing.instructions.as_deref(),
        ToolServer::Requested(requested) => requested.description(),
    };
    let instructions = instructions.filter(|_| settings.instructions);
    let offered = listing
        .tools
        .iter()
        .filter(|tool| listed::is_allowed(tool, settings));
    offered
        .map(|remote| {
            let name = names::unique(&prefix, &remote.name, taken);
            let tool = McpTool {
                server: server.clone(),
                remote_name: remote.name.to_string(),
                definition: ToolDefinition::function(
                    &name,
                    &described(remote, instructions),
                    &listed::parameters(remote, settings),
                ),
                policy: policy(settings, remote),
            };
            Arc::new(tool) as SharedTool
        })
        .collect()
}

/// The description of a tool, with its server's instructions.
fn described(tool: &RemoteTool, instructions: Option<&str>) -> String {
    let description = listed::description(tool);
    match instructions {
        Some(text) if !text.is_empty() => format!("{description}\n\nAbout its server: {text}"),
        Some(_) | None => description.to_owned(),
    }
}

/// How calls are run: by the settings, else by the annotations of the server.
fn policy(settings: &McpServerSettings, tool: &RemoteTool) -> ToolPolicy {
    let hints = tool.annotations.as_ref();
    let read_only = match &settings.read_only {
        Some(globs) => globs.matches(&tool.name),
        None => listed::is_read_only(tool),
    };
    let idempotent = match &settings.idempotent {
        Some(globs) => globs.matches(&tool.name),
        None => hints.and_then(|hints| hints.idempotent_hint) == Some(true),
    };
    ToolPolicy {
        sequential: settings.sequential,
        idempotent: idempotent || read_only,
        read_only,
        destructive: hints.and_then(|hints| hints.destructive_hint) != Some(false),
        open_world: hints.and_then(|hints| hints.open_world_hint) != Some(false),
        repeatable: settings.repeatable.matches(&tool.name),
        ..ToolPolicy::new(ToolSource::Mcp, settings.timeout)
    }
}

impl ToolServer {
    fn settings(&self) -> &McpServerSettings {
        match self {
            Self::Configured(server) => server.settings(),
            Self::Requested(server) => server.settings(),
        }
    }

    /// Calls a tool.
    ///
    /// A call that the server surely has not seen is made once more, and so is one of a tool that may be called twice.
    async fn call(
        &self,
        tool: &str,
        invocation: &ToolInvocation,
        policy: &ToolPolicy,
    ) -> Result<CallToolResult, ToolError> {
        let failure = match self.attempt(tool, invocation).await {
            Ok(result) => return Ok(result),
            Err(failure) => failure,
        };
        let again = match &failure {
            RequestFailure::Unreachable(_) => true,
            RequestFailure::Ended(_) => policy.idempotent,
            RequestFailure::Status { .. } => {
                failure.may_have_lost_session() && self.settings().scope == McpScope::Owner
            }
            RequestFailure::Answered(_)
            | RequestFailure::Unusable(_)
            | RequestFailure::Version { .. } => false,
        };
        let failure = match again {
            true => match self.attempt(tool, invocation).await {
                Ok(result) => return Ok(result),
                Err(failure) => failure,
            },
            false => failure,
        };
        Err(ToolError::Failed {
            message: failure.to_string(),
            source: None,
        })
    }

    async fn attempt(
        &self,
        tool: &str,
        invocation: &ToolInvocation,
    ) -> Result<CallToolResult, RequestFailure> {
        match self {
            Self::Configured(server) => server.attempt(tool, invocation).await,
            Self::Requested(server) => server.attempt(tool, invocation).await,
        }
    }
}

impl Tool for McpTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn policy(&self) -> &ToolPolicy {
        &self.policy
    }

    fn on_server(&self) -> Option<RemoteToolName> {
        Some(RemoteToolName {
            server: self.server.settings().name.clone(),
            name: self.remote_name.clone(),
            place: match &self.server {
                ToolServer::Configured(_) => String::new(),
                ToolServer::Requested(server) => server.place(),
            },
        })
    }

    fn call<'a>(
        &'a self,
        invocation: &'a ToolInvocation,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async {
            let called = self
                .server
                .call(&self.remote_name, invocation, &self.policy);
            called.await.map(result::output)
        })
    }
}
