//! The sources of server-side tools: one list, which can change while the server runs.
//!
//! A request uses a snapshot of the list, so its tools do not change while it runs. Only tools that are added to an MCP
//! server during that time are added.

mod servers;
mod workspace;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use serde_json::Value;

pub use self::workspace::WorkspaceGuard;
use super::SharedTool;
use super::dispatch::Dispatch;
use super::filter::ToolFilter;
pub use super::health::Health;
use super::mcp::RequestedServers;
use super::mcp_offer::McpOffer;
use super::python::{CodeExecution, EXECUTE_PYTHON};
use super::requested::{Availability, Capability, RequestedTools};
use super::set::{ToolSet, ToolSetBuilder, ToolSetError};
use super::tool_search::{TOOL_SEARCH, ToolSearch};
use super::web::{WEB_SEARCH, WebAccess};
use protocol::ids::{Owner, WorkspaceId};
use protocol::openai::tool::ToolDefinition;

/// One source of server-side tools.
#[derive(Debug, Clone)]
pub enum Source {
    /// Tools that every request is offered, such as the `[[tools]]` of the configuration.
    Fixed(FixedTools),
    /// The dispatch URL, which runs tools that requests declare.
    Dispatch(Dispatch),
    /// Code execution.
    Python(CodeExecution),
    /// Web search and page reading.
    Web(WebAccess),
    /// An MCP server, as it is now.
    Mcp(McpOffer),
    /// The search that replaces the tools of MCP servers if there are many.
    ToolSearch(ToolSearch),
    /// The MCP servers that requests declare.
    McpRequests(RequestedServers),
}

/// A list of tools that every request is offered.
#[derive(Debug, Clone)]
pub struct FixedTools {
    /// The tools, in the order in which they are offered.
    pub tools: Arc<[SharedTool]>,
    /// Whether the source can run calls.
    pub health: Health,
}

/// The sources of the server.
#[derive(Debug, Default)]
pub struct Sources {
    current: RwLock<Arc<SourceList>>,
}

/// A snapshot of the sources.
#[derive(Debug, Default)]
pub struct SourceList {
    sources: Vec<Source>,
    /// The names of all their tools.
    names: HashSet<String>,
    /// What the list is without some sources, by their places: one list for all keys that may use the same ones, so that there
    /// are no more of them than keys.
    without: Mutex<HashMap<Vec<usize>, Arc<Self>>>,
}

/// Two tools of one name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// Two configured tools.
    #[error("tool '{0}' is configured twice")]
    Duplicate(String),
    /// A configured tool and a built-in one.
    #[error(
        "tool '{0}' has the name of a built-in tool; give it another name, or switch the built-in one off"
    )]
    BuiltIn(String),
}

impl Source {
    /// All tools that requests can get from this source, including those that a request has to ask for.
    pub fn tools(&self) -> &[SharedTool] {
        match self {
            Self::Fixed(fixed) => &fixed.tools,
            Self::Dispatch(_) | Self::McpRequests(_) => &[],
            Self::Python(code) => code.tools(),
            Self::Web(web) => web.tools(),
            Self::Mcp(mcp) => &mcp.tools,
            Self::ToolSearch(search) => search.tools(),
        }
    }

    /// The tools that this source offers to a request.
    fn offer(&self, requested: &RequestedTools) -> Vec<SharedTool> {
        match self {
            _ if self.health() == Health::Down => Vec::new(),
            Self::Fixed(fixed) => fixed.tools.to_vec(),
            Self::Mcp(mcp) => mcp.tools.to_vec(),
            // The search is added after all tools that it can find.
            Self::Dispatch(_) | Self::ToolSearch(_) | Self::McpRequests(_) => Vec::new(),
            Self::Python(code) => match &requested.code {
                Some(ask) => code.tools_for(&ask.wanted),
                None if code.is_offered_by_default() && !requested.declines_code => {
                    code.tools().to_vec()
                }
                None => Vec::new(),
            },
            Self::Web(web) => match &requested.web {
                Some(ask) => web.tools_for(ask),
                None if web.is_offered_by_default() => web.tools().to_vec(),
                None => Vec::new(),
            },
        }
    }

    /// Whether requests can get tools of this source without asking for them.
    fn offers_by_default(&self) -> bool {
        match self {
            Self::Fixed(fixed) => !fixed.tools.is_empty(),
            Self::Mcp(mcp) => mcp.health == Health::Ready && !mcp.tools.is_empty(),
            Self::Dispatch(_) => true,
            Self::ToolSearch(_) | Self::McpRequests(_) => false,
            Self::Python(code) => code.is_offered_by_default(),
            Self::Web(web) => web.is_offered_by_default(),
        }
    }

    /// Whether a request has to ask for the tools of this source.
    pub fn is_on_request(&self) -> bool {
        matches!(self, Self::Python(_) | Self::Web(_)) && !self.offers_by_default()
    }

    /// The tool that provides a capability.
    fn tool_for(&self, capability: Capability) -> Option<&'static str> {
        match (self, capability) {
            (Self::Python(_), Capability::Code) => Some(EXECUTE_PYTHON),
            (Self::Web(_), Capability::Web) => Some(WEB_SEARCH),
            (
                Self::Fixed(_)
                | Self::Dispatch(_)
                | Self::Python(_)
                | Self::Web(_)
                | Self::Mcp(_)
                | Self::ToolSearch(_)
                | Self::McpRequests(_),
                _,
            ) => None,
        }
    }

    /// Which requests get the tool that provides a capability.
    fn availability(&self, capability: Capability) -> Availability {
        match self.tool_for(capability) {
            None => Availability::Off,
            Some(_) if self.offers_by_default() => Availability::Always,
            Some(_) => Availability::OnRequest,
        }
    }

    /// Whether the source can run calls at this moment.
    pub fn health(&self) -> Health {
        match self {
            Self::Fixed(fixed) => fixed.health,
            Self::Mcp(mcp) => mcp.health,
            Self::Dispatch(_)
            | Self::Python(_)
            | Self::Web(_)
            | Self::ToolSearch(_)
            | Self::McpRequests(_) => Health::Ready,
        }
    }

    /// What `/readyz` says of the source: a key and a value.
    pub fn status(&self) -> Option<(&'static str, Value)> {
        match self {
            Self::Python(code) => Some(("code_execution", code.status())),
            Self::Mcp(mcp) => Some(("mcp_servers", mcp.status())),
            Self::Fixed(_)
            | Self::Dispatch(_)
            | Self::Web(_)
            | Self::ToolSearch(_)
            | Self::McpRequests(_) => None,
        }
    }

    /// Deletes the source's data of a workspace.
    fn forget(&self, workspace: &WorkspaceId) {
        match self {
            Self::Python(code) => code.forget(workspace),
            Self::Fixed(_)
            | Self::Dispatch(_)
            | Self::Web(_)
            | Self::Mcp(_)
            | Self::ToolSearch(_)
            | Self::McpRequests(_) => {}
        }
    }
}

impl Sources {
    /// The sources in the order in which their tools are offered.
    ///
    /// # Errors
    /// When two tools have one name.
    pub fn new(sources: Vec<Source>) -> Result<Self, SourceError> {
        let list = Arc::new(SourceList::new(sources)?);
        Ok(Self {
            current: RwLock::new(list),
        })
    }

    /// The sources as they are now.
    pub fn snapshot(&self) -> Arc<SourceList> {
        self.current.read().clone()
    }

    /// The sources of an owner as they are now: without those that are for others only.
    pub fn snapshot_for(&self, owner: &Owner) -> Arc<SourceList> {
        let all = self.snapshot();
        let is_hidden = |source: &Source| matches!(source, Source::Mcp(mcp) if !mcp.is_for(owner));
        let hidden = all.sources.iter().enumerate();
        let hidden = hidden.filter_map(|(place, source)| is_hidden(source).then_some(place));
        let hidden: Vec<usize> = hidden.collect();
        if hidden.is_empty() {
            return all;
        }
        let visible = || {
            let visible = all.sources.iter().filter(|source| !is_hidden(source));
            let sources: Vec<Source> = visible.cloned().collect();
            let tools = sources.iter().flat_map(Source::tools);
            let names = tools.map(|tool| tool.definition().name.clone()).collect();
            Arc::new(SourceList::of(sources, names))
        };
        let mut known = all.without.lock();
        known.entry(hidden).or_insert_with(visible).clone()
    }

    /// Changes the list for the requests to come; requests under way keep theirs.
    ///
    /// # Errors
    /// When two tools have one name. The list then stays as it is.
    pub fn update(&self, change: impl FnOnce(&mut Vec<Source>)) -> Result<(), SourceError> {
        let mut current = self.current.write();
        let mut sources = current.sources.clone();
        change(&mut sources);
        *current = Arc::new(SourceList::new(sources)?);
        Ok(())
    }
}

impl SourceList {
    fn new(sources: Vec<Source>) -> Result<Self, SourceError> {
        let mut names = HashSet::new();
        for source in &sources {
            for tool in source.tools() {
                let name = &tool.definition().name;
                if !names.insert(name.clone()) {
                    return Err(match source {
                        Source::Fixed(_)
                        | Source::Dispatch(_)
                        | Source::Mcp(_)
                        | Source::McpRequests(_) => SourceError::Duplicate(name.clone()),
                        Source::Python(_) | Source::Web(_) | Source::ToolSearch(_) => {
                            SourceError::BuiltIn(name.clone())
                        }
                    });
                }
            }
        }
        Ok(Self::of(sources, names))
    }

    fn of(sources: Vec<Source>, names: HashSet<String>) -> Self {
        Self {
            sources,
            names,
            without: Mutex::default(),
        }
    }

    /// The sources, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter()
    }

    /// Whether a source has a tool of this name. Tools that run at the dispatch URL are declared by requests and do not count.
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// The tool with this name, including tools that a request has to ask for. A declared function that the dispatch
    /// URL would run has no schema here.
    pub fn tool_named(&self, name: &str) -> Option<SharedTool> {
        let mut tools = self.sources.iter().flat_map(Source::tools);
        let known = tools.find(|tool| tool.definition().name == name).cloned();
        let declared = |source: &Source| match source {
            Source::Dispatch(dispatch) => dispatch.tool_named(name),
            _ => None,
        };
        known.or_else(|| self.sources.iter().find_map(declared))
    }

    /// The tools that can be called outside of a turn. A tool search has nothing to search there.
    pub fn callable(&self) -> impl Iterator<Item = &SharedTool> {
        let searches = |source: &&Source| matches!(source, Source::ToolSearch(_));
        let sources = self.sources.iter().filter(move |source| !searches(source));
        sources.flat_map(Source::tools)
    }

    /// The set of this tool alone, as [`Self::tool_named`] finds it; `None` if it cannot be called outside of a turn.
    pub fn set_of_one(&self, name: &str, filter: &ToolFilter) -> Option<ToolSet> {
        let tool = self.tool_named(name).filter(|_| name != TOOL_SEARCH)?;
        let set = ToolSetBuilder::new(vec![tool], filter).build(Vec::new(), None, false);
        set.ok()
    }

    /// Whether requests can get server-side tools without asking for them.
    pub fn offers_by_default(&self) -> bool {
        self.sources.iter().any(Source::offers_by_default)
    }

    /// The tool that provides a capability; `None` if the server does not have it.
    pub fn tool_for(&self, capability: Capability) -> Option<&'static str> {
        self.sources
            .iter()
            .find_map(|source| source.tool_for(capability))
    }

    /// Which requests get the tool that provides a capability.
    pub fn availability(&self, capability: Capability) -> Availability {
        let all = self.sources.iter();
        let mut all = all.map(|source| source.availability(capability));
        all.find(|found| *found != Availability::Off)
            .unwrap_or(Availability::Off)
    }

    /// The tools of a request: the tools that it declares and the capabilities that it asks for.
    ///
    /// Names are checked only if the server runs at least one of the tools; otherwise the upstream checks them.
    ///
    /// # Errors
    /// When a client tool has the name of a server-side one, or a name is declared twice or is not usable.
    pub fn tool_set(
        &self,
        declared: Vec<ToolDefinition>,
        requested: &RequestedTools,
        filter: &ToolFilter,
    ) -> Result<ToolSet, ToolSetError> {
        let offered = self
            .sources
            .iter()
            .flat_map(|source| source.offer(requested));
        let dispatch = self.sources.iter().find_map(|source| match source {
            Source::Dispatch(dispatch) => Some(dispatch),
            _ => None,
        });
        let search = self.sources.iter().find_map(|source| match source {
            Source::ToolSearch(search) => Some(search),
            _ => None,
        });
        ToolSetBuilder::new(offered.collect(), filter)
            .searched(search)
            .build(declared, dispatch, requested.only_named_functions)
    }

    /// A new workspace of an owner, for a turn that is not stored.
    pub fn fresh_workspace(self: &Arc<Self>, owner: &Owner) -> WorkspaceGuard {
        WorkspaceGuard {
            workspace: WorkspaceId::fresh_of(owner),
            sources: self.clone(),
        }
    }

    /// Deletes the data of the sources for a deleted session.
    pub fn session_deleted(&self, workspace: &WorkspaceId) {
        self.sources
            .iter()
            .for_each(|source| source.forget(workspace));
    }
}

#[cfg(test)]
mod tests;
