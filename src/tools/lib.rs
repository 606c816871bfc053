//! Server-side tools: the trait that a tool implements, and its calls.
//!
//! This module has no code for the loop, for stored sessions or for HTTP answers. A failed call is reported to the
//! model and is never an error of the request.

pub mod batch;
pub mod cap;
pub mod cited_sources;
pub mod configured;
mod dispatch;
mod error_body;
mod filter;
pub mod gate;
mod globs;
mod health;
mod image_data;
mod incoming;
mod invocation;
#[cfg_attr(not(feature = "mcp"), path = "no_mcp.rs")]
pub mod mcp;
pub mod mcp_offer;
mod output;
pub mod python;
pub mod refusal;
pub mod repair;
pub mod requested;
pub(crate) mod schema;
pub mod set;
pub mod settings;
pub mod source;
mod tool_name;
pub mod tool_search;
pub mod web;
pub mod webhook;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use image_data::ImageData;
pub use incoming::IncomingResults;
pub(crate) use invocation::ProgressSender;
pub use invocation::{CallContext, ToolInvocation, ToolProgress};
pub(crate) use output::OutputStatus;
pub use output::{
    CodeDetail, ToolDetail, ToolError, ToolFile, ToolImage, ToolNotice, ToolOutput, ToolStatus,
    WebDetail,
};
use policy::rules::ToolClasses;
use protocol::openai::tool::ToolDefinition;
pub use sandbox::WorkFile;

/// One server-side tool.
///
/// An open set: webhooks, code execution, the web and MCP servers implement it. Called by
/// [`batch::run`] only, which bounds its time, catches its panics and drops the future to cancel it; everything that
/// the call started must end with that drop.
pub trait Tool: Send + Sync + std::fmt::Debug {
    /// What the model is offered.
    fn definition(&self) -> &ToolDefinition;

    /// How calls are to be run.
    fn policy(&self) -> &ToolPolicy;

    /// The MCP server that has the tool, and its name there; `None` for a tool of no such server.
    fn on_server(&self) -> Option<RemoteToolName> {
        None
    }

    /// Runs one call.
    fn call<'a>(
        &'a self,
        invocation: &'a ToolInvocation,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>>;
}

/// How calls of a tool are to be run.
#[derive(Debug, Clone)]
pub struct ToolPolicy {
    /// Longest time of one call, retries included.
    pub timeout: Duration,
    /// A batch that holds this tool runs one call after another.
    pub sequential: bool,
    /// A call may safely be made twice.
    pub idempotent: bool,
    /// A call changes nothing.
    pub read_only: bool,
    /// A call may destroy or overwrite something.
    pub destructive: bool,
    /// A call reaches what is not under the operator's control.
    pub open_world: bool,
    /// Identical calls with identical results are expected; they are never held back.
    pub repeatable: bool,
    /// Where the tool comes from.
    pub source: ToolSource,
    /// The form in which progress of its calls is reported.
    pub kind: ToolKind,
}

impl ToolPolicy {
    /// The policy of a tool without further settings. Its classes are the classes that MCP gives a tool without
    /// annotations.
    pub fn new(source: ToolSource, timeout: Duration) -> Self {
        Self {
            timeout,
            sequential: false,
            idempotent: false,
            read_only: false,
            destructive: true,
            open_world: true,
            repeatable: false,
            source,
            kind: ToolKind::default(),
        }
    }

    /// The classes that rules with a risk test.
    pub fn classes(&self) -> ToolClasses {
        ToolClasses {
            read_only: self.read_only,
            destructive: self.destructive,
            open_world: self.open_world,
        }
    }
}

/// What kind of tool it is: `data.tool_type` of progress events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    /// Any tool: arguments in, text out.
    #[default]
    Custom,
    /// Runs code.
    CodeExecution,
    /// Searches the web or reads a page of it.
    WebSearch,
}

/// Where a tool comes from, as `GET /v1/agent/tools` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolSource {
    /// The dispatch URL.
    #[default]
    Dispatch,
    /// A `[[tools]]` entry of the configuration.
    Http,
    /// An MCP server.
    Mcp,
    /// loopwright itself.
    BuiltIn,
}

/// A tool as its MCP server names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteToolName {
    /// The label of the server.
    pub server: String,
    /// The address of the server as a digest; empty for a server of the settings.
    #[serde(default)]
    pub place: String,
    /// The tool's name there.
    pub name: String,
}

/// A shared tool.
pub type SharedTool = Arc<dyn Tool>;
