//! The tools of a request, and whether the server or the client runs each of them.
//!
//! Owns the assembly of declared tools and tools of the sources, the checks of their names, and the JSON text of
//! `tools[]` that is sent upstream. Runs nothing.

mod brought;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::dispatch::Dispatch;
pub use super::filter::ToolFilter;
pub use super::globs::Globs;
use super::tool_name::{MAX_NAME_CHARS, is_declarable};
use super::tool_search::{SearchableTools, TOOL_SEARCH, ToolSearch};
use super::{SharedTool, ToolKind, ToolSource};
use protocol::openai::tool::ToolDefinition;

/// Why a request's tools cannot be used; the text is for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolSetError {
    /// A declared tool that the client would run has the name of a server-side one.
    #[error(
        "tool '{0}' has the name of a server-side tool; rename it, or leave the server's out with 'agent.tools.deny'"
    )]
    Conflict(String),
    /// A declared tool that the dispatch URL would run has the name of a configured one.
    #[error(
        "tool '{0}' has the name of a server-side tool; rename it, or leave the server's out with 'agent.tools.deny' \
         and name yours in 'agent.client_tools'"
    )]
    DispatchConflict(String),
    /// A name that is declared twice.
    #[error("tool '{0}' is declared twice")]
    Duplicate(String),
    /// A name that cannot be used.
    #[error(
        "tool '{0}' cannot have this name: a name is 1 to {MAX_NAME_CHARS} characters of a-z, A-Z, 0-9, _, . and -"
    )]
    Name(String),
}

/// The tools of one request; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct ToolSet {
    /// The names, in the order of `tools[]`.
    names: Arc<[String]>,
    by_name: Arc<HashMap<String, Lookup>>,
    json: Option<Arc<str>>,
    has_server_tools: bool,
    searchable: SearchableTools,
    /// The request's filter, in a set with tools of MCP servers.
    filter: Option<ToolFilter>,
    /// The only tools that may be called; `None` if all may.
    allowed: Option<Arc<HashSet<String>>>,
    /// Server-side tools that the rules deny whatever their arguments, and the texts that say so to
    /// the model. They are not offered.
    denied: Arc<HashMap<String, Arc<str>>>,
}

/// Which side runs a call.
#[derive(Debug, Clone)]
pub enum Lookup {
    /// The server.
    Server(SharedTool),
    /// The client.
    Client,
    /// Neither: the rules deny every call of the server's tool, as this text says to the model.
    Denied(Arc<str>),
    /// Neither: the model was offered no tool of this name, or may not call it.
    Unknown,
}

impl Lookup {
    fn server(&self) -> Option<&SharedTool> {
        match self {
            Self::Server(tool) => Some(tool),
            Self::Client | Self::Denied(_) | Self::Unknown => None,
        }
    }
}

impl ToolSet {
    /// Whether the set has server-side tools.
    pub fn has_server_tools(&self) -> bool {
        self.has_server_tools
    }

    /// Whether the set has code execution.
    pub fn runs_code(&self) -> bool {
        self.by_name.values().any(|lookup| match lookup {
            Lookup::Server(tool) => tool.policy().kind == ToolKind::CodeExecution,
            Lookup::Client | Lookup::Denied(_) | Lookup::Unknown => false,
        })
    }

    /// Whether calls of this name change nothing.
    pub fn is_read_only(&self, name: &str) -> bool {
        match self.by_name.get(name) {
            Some(Lookup::Server(tool)) => tool.policy().read_only,
            Some(Lookup::Client | Lookup::Denied(_) | Lookup::Unknown) => false,
            // Also one that is still to be found: an earlier turn may have called it.
            None => {
                let tool = self.searchable.get(name);
                tool.is_some_and(|tool| tool.policy().read_only)
            }
        }
    }

    /// The JSON text of `tools[]` that is sent upstream; `None` if there are no tools. It is the same in all model calls of
    /// a run, but for tools that a search appends at its end.
    pub fn tools_json(&self) -> Option<Arc<str>> {
        let found = self.searchable.found();
        let found = found.iter().map(|tool| &*tool.definition().json);
        appended(self.json.as_ref(), found)
    }

    /// Whether tools can be found by searching.
    pub fn is_searchable(&self) -> bool {
        !self.searchable.is_empty()
    }

    /// Offers tools that are to be found, as if a search had found them.
    pub fn find(&self, names: &[&str]) {
        self.searchable.find(names);
    }

    /// Offers the tools again that an earlier search found; holds its result.
    pub fn restore_found(&self, result: &str) {
        self.searchable.restore(result);
    }

    /// Whether the model is offered a tool of this name. The choice may still forbid to call it.
    pub fn offers(&self, name: &str) -> bool {
        self.by_name.contains_key(name) || self.found(name).is_some()
    }

    /// Whether the rules deny every call of this name.
    pub fn denies(&self, name: &str) -> bool {
        self.denied.contains_key(name)
    }

    /// Which side runs calls of this name.
    pub fn lookup(&self, name: &str) -> Lookup {
        if !self.allows(name) {
            return Lookup::Unknown;
        }
        let offered = self.by_name.get(name).cloned();
        offered
            .or_else(|| self.found(name).cloned().map(Lookup::Server))
            .or_else(|| self.denied.get(name).cloned().map(Lookup::Denied))
            .unwrap_or(Lookup::Unknown)
    }

    /// The names of the tools of an MCP server, or of the one that the server itself gives this name; also of those that are
    /// still to be found.
    pub fn of_server(&self, server: &str, tool: Option<&str>) -> Vec<&str> {
        let offered = self.names.iter().filter_map(|name| self.by_name.get(name));
        let offered = offered.filter_map(Lookup::server);
        let is_meant = |one: &&SharedTool| {
            one.on_server().is_some_and(|remote| {
                remote.server == server && tool.is_none_or(|tool| remote.name == tool)
            })
        };
        let all = offered.chain(self.searchable.all());
        all.filter(is_meant)
            .map(|tool| tool.definition().name.as_str())
            .collect()
    }

    fn found(&self, name: &str) -> Option<&SharedTool> {
        let mut found = self.searchable.found().into_iter();
        found.find(|tool| tool.definition().name == name)
    }

    /// The names that the model may call, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let found = self.searchable.found().into_iter();
        let found = found.map(|tool| tool.definition().name.as_str());
        let all = self.names.iter().map(String::as_str).chain(found);
        all.filter(|name| self.allows(name))
    }

    /// The same tools, but only these may be called, if any are given. All stay in [`Self::tools_json`], which does not
    /// depend on the choice.
    #[must_use]
    pub fn only(mut self, allowed: Option<HashSet<String>>) -> Self {
        self.allowed = allowed.map(Arc::new);
        self
    }

    /// Whether tools are offered but none may be called.
    pub fn forbids_calls(&self) -> bool {
        self.allowed.is_some() && self.json.is_some() && self.names().next().is_none()
    }

    fn allows(&self, name: &str) -> bool {
        let allowed = self.allowed.as_ref();
        allowed.is_none_or(|allowed| allowed.contains(name))
    }

    /// Appends entries of `tools[]` that the upstream runs itself, as JSON texts.
    #[must_use]
    pub fn with_hosted(mut self, entries: &[String]) -> Self {
        self.json = appended(self.json.as_ref(), entries.iter().map(String::as_str));
        self
    }
}

/// Assembles the tools of a request: first the declared ones, then those that the sources offer.
#[derive(Debug)]
pub(super) struct ToolSetBuilder<'a> {
    offered: Vec<SharedTool>,
    filter: &'a ToolFilter,
    names: Vec<String>,
    by_name: HashMap<String, Lookup>,
    list: String,
    has_server_tools: bool,
    searchable: SearchableTools,
    denied: HashMap<String, Arc<str>>,
}

impl<'a> ToolSetBuilder<'a> {
    /// Starts with the tools that the sources offer, without those that the filter removes.
    pub(super) fn new(mut offered: Vec<SharedTool>, filter: &'a ToolFilter) -> Self {
        offered.retain(|tool| filter.offers(&tool.definition().name));
        let mut denied = HashMap::new();
        offered.retain(|tool| match filter.denial(&**tool) {
            Some(text) => {
                denied.insert(tool.definition().name.clone(), text);
                false
            }
            None => true,
        });
        Self {
            offered,
            filter,
            names: Vec::new(),
            by_name: HashMap::new(),
            list: String::new(),
            // A server that denies its tools takes part as well.
            has_server_tools: !denied.is_empty(),
            searchable: SearchableTools::default(),
            denied,
        }
    }

    /// Replaces many tools of MCP servers by a search tool, unless the request does without the search.
    pub(super) fn searched(mut self, search: Option<&ToolSearch>) -> Self {
        let may_search = |search: &&ToolSearch| {
            let denied = |tool: &SharedTool| self.filter.denial(&**tool).is_some();
            self.filter.offers(TOOL_SEARCH) && !search.tools().iter().any(denied)
        };
        if let Some(search) = search.filter(may_search) {
            self.searchable = search.replace(&mut self.offered);
        }
        self
    }

    /// Adds the declared tools and completes the set.
    ///
    /// # Errors
    /// When a client tool has the name of a server-side one, or a name is declared twice or is not usable.
    pub(super) fn build(
        mut self,
        declared: Vec<ToolDefinition>,
        dispatch: Option<&Dispatch>,
        only_named: bool,
    ) -> Result<ToolSet, ToolSetError> {
        let to_be_found = self.searchable.all();
        let taken: HashSet<String> = self
            .offered
            .iter()
            .chain(to_be_found)
            .map(|tool| tool.definition().name.clone())
            .chain(self.denied.keys().cloned())
            .collect();
        let mut seen = HashSet::with_capacity(declared.len());
        let mut wrong_name = None;
        for definition in declared {
            let name = &definition.name;
            let dispatched =
                dispatch.filter(|dispatch| dispatch.runs(&definition, self.filter, only_named));
            if taken.contains(name) {
                let name = definition.name;
                return Err(match dispatched {
                    Some(_) => ToolSetError::DispatchConflict(name),
                    None => ToolSetError::Conflict(name),
                });
            }
            if !seen.insert(name.clone()) {
                wrong_name.get_or_insert_with(|| ToolSetError::Duplicate(name.clone()));
            } else if !is_declarable(name) {
                let shown = name.chars().take(MAX_NAME_CHARS + 1).collect();
                wrong_name.get_or_insert(ToolSetError::Name(shown));
            }
            match dispatched {
                None => self.offer(&definition, Lookup::Client),
                // The request's filter removes this tool: it is treated as undeclared.
                Some(_) if !self.filter.offers(name) => {}
                Some(dispatch) => self.offer_server(dispatch.tool(definition)),
            }
        }
        for tool in std::mem::take(&mut self.offered) {
            self.offer_server(tool);
        }
        match wrong_name {
            Some(error) if self.has_server_tools => Err(error),
            Some(_) | None => Ok(self.finish()),
        }
    }

    fn offer(&mut self, definition: &ToolDefinition, lookup: Lookup) {
        if self.list.is_empty() {
            self.list.push('[');
        }
        push_item(&mut self.list, &definition.json);
        self.names.push(definition.name.clone());
        self.by_name.insert(definition.name.clone(), lookup);
    }

    fn offer_server(&mut self, tool: SharedTool) {
        self.has_server_tools = true;
        if let Some(text) = self.filter.denial(&*tool) {
            self.denied.insert(tool.definition().name.clone(), text);
            return;
        }
        self.offer(tool.clone().definition(), Lookup::Server(tool));
    }

    fn finish(mut self) -> ToolSet {
        let json = (!self.list.is_empty()).then(|| {
            self.list.push(']');
            self.list.into()
        });
        let offered = self.by_name.values().filter_map(Lookup::server);
        let mut servers = offered.chain(self.searchable.all());
        let has_servers = servers.any(|tool| tool.policy().source == ToolSource::Mcp);
        ToolSet {
            names: self.names.into(),
            by_name: Arc::new(self.by_name),
            json,
            has_server_tools: self.has_server_tools,
            searchable: self.searchable,
            filter: has_servers.then(|| self.filter.clone()),
            allowed: None,
            denied: Arc::new(self.denied),
        }
    }
}

/// A JSON array with further entries; the same one if there are none.
fn appended<'a>(
    list: Option<&Arc<str>>,
    entries: impl Iterator<Item = &'a str>,
) -> Option<Arc<str>> {
    let mut entries = entries.peekable();
    if entries.peek().is_none() {
        return list.cloned();
    }
    let unfinished = list.and_then(|json| json.strip_suffix(']'));
    let mut list = unfinished.unwrap_or("[").to_owned();
    entries.for_each(|entry| push_item(&mut list, entry));
    list.push(']');
    Some(list.into())
}

/// Appends an entry to an unfinished JSON array, after a comma if it is not the first.
fn push_item(list: &mut String, item: &str) {
    if !list.ends_with('[') {
        list.push(',');
    }
    list.push_str(item);
}

#[cfg(test)]
mod tests;
