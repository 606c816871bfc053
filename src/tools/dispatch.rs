//! The dispatch URL, which runs tools that requests declare.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::SharedTool;
use super::filter::ToolFilter;
use super::globs::Globs;
use super::tool_name::is_declarable;
use super::webhook::{Endpoint, HttpTool};
use protocol::openai::tool::{CallKind, ToolDefinition};

/// Most names of declared functions of which the log says where they go. Requests choose the names; of others the log
/// says nothing.
const MOST_NAMES: usize = 256;

/// The dispatch URL, and the patterns of the declared tools that it runs.
#[derive(Debug, Clone)]
pub struct Dispatch {
    /// `None`: the functions that chat completions declare, except `client_tool_names`, and no functions of dialects
    /// whose clients declare tools of their own machine.
    tools: Option<Globs>,
    /// In lower case.
    client_tool_names: Globs,
    endpoint: Arc<Endpoint>,
    logged: Arc<Mutex<HashSet<(String, Destination)>>>,
}

/// Where the calls of a declared function go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Destination {
    Webhook,
    /// To the client, because no pattern names the function.
    Unnamed,
    /// To the client, because there are no patterns, and clients of the dialect declare tools of their own machine.
    ClientMachine,
    /// To the client, because there are no patterns, and coding agents give this name to a tool of their own machine.
    CodingAgent,
}

impl Dispatch {
    /// The endpoint for the declared tools of these patterns; `client_tool_names` are in lower case.
    pub(super) fn new(tools: Option<Globs>, client_tool_names: Globs, endpoint: Endpoint) -> Self {
        Self {
            tools,
            client_tool_names,
            endpoint: Arc::new(endpoint),
            logged: Arc::default(),
        }
    }

    /// Whether the dispatch URL runs a declared tool; `only_named` is for dialects whose clients declare tools of their own
    /// machine. Does not check whether the request may use it.
    pub(super) fn runs(
        &self,
        tool: &ToolDefinition,
        filter: &ToolFilter,
        only_named: bool,
    ) -> bool {
        if tool.kind != CallKind::Function || filter.is_for_client(&tool.name) {
            return false;
        }
        let destination = match self.tools {
            None if only_named => Destination::ClientMachine,
            _ => self.destination(&tool.name),
        };
        self.log_once(&tool.name, destination);
        destination == Destination::Webhook
    }

    /// The destination of a function that a chat completion declares.
    fn destination(&self, name: &str) -> Destination {
        match &self.tools {
            Some(patterns) if !patterns.matches(name) => Destination::Unnamed,
            None if self.client_tool_names.matches(&name.to_lowercase()) => {
                Destination::CodingAgent
            }
            None | Some(_) => Destination::Webhook,
        }
    }

    /// Says in the log once where a name goes.
    fn log_once(&self, name: &str, destination: Destination) {
        if !is_declarable(name) {
            return;
        }
        let mut logged = self.logged.lock();
        if logged.len() >= MOST_NAMES || !logged.insert((name.to_owned(), destination)) {
            return;
        }
        drop(logged);
        let place = match destination {
            Destination::Webhook => "is declared by a request; its calls go to the dispatch URL",
            Destination::Unnamed => {
                "is declared and matches no pattern of dispatch_tools; it stays with the client"
            }
            Destination::ClientMachine => {
                "is declared by a request of the Responses API and stays with the client, because dispatch_tools is not set; \
                 --dispatch-tools names the functions that go to the dispatch URL"
            }
            Destination::CodingAgent => {
                "is declared and stays with the client, because client_tool_names has the names of coding agents' own tools; \
                 --dispatch-tools names the functions that go to the dispatch URL"
            }
        };
        tracing::info!("`{name}` {place}");
    }

    /// The tool that a declared function of this name would be, if the dispatch URL would run it.
    pub(super) fn tool_named(&self, name: &str) -> Option<SharedTool> {
        let is_run = self.destination(name) == Destination::Webhook && is_declarable(name);
        is_run.then(|| self.tool(ToolDefinition::function(name, "", "{}")))
    }

    /// The declared tool, run by the dispatch URL.
    pub(super) fn tool(&self, definition: ToolDefinition) -> SharedTool {
        Arc::new(HttpTool::dispatched(&self.endpoint, definition))
    }
}
