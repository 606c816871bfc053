//! Which tools a request may use, and who runs each.
//!
//! Owns the configured tools, the rule that says which declared tool goes to the dispatch URL, and the text of `tools[]`
//! as a model is sent it. Runs nothing.

mod filter;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use self::filter::Globs;
pub use self::filter::{FilterError, ToolFilter};
use super::settings::{HttpToolSettings, Settings};
use super::webhook::{Endpoint, EndpointError, HttpTool, WebhookClient};
use super::{SharedTool, ToolKind};
use crate::openai::tool::{CallKind, ToolDefinition};

/// Longest name of a tool, in characters: what model servers take.
const MAX_NAME_CHARS: usize = 64;

/// The server-side tools of the configuration.
#[derive(Debug)]
pub struct ToolRegistry {
    configured: Vec<SharedTool>,
    /// Tools that a request has to ask for.
    on_request: Vec<SharedTool>,
    names: HashSet<String>,
    dispatch: Option<Dispatch>,
}

/// The dispatch URL and what goes to it.
#[derive(Debug)]
struct Dispatch {
    tools: Globs,
    endpoint: Arc<Endpoint>,
}

/// Why the configured tools cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// A name that model servers refuse.
    #[error(
        "tool '{0}' cannot have this name: a name is 1 to {MAX_NAME_CHARS} characters of a-z, A-Z, 0-9, _ and -"
    )]
    Name(String),
    /// Two entries with one name.
    #[error("tool '{0}' is configured twice")]
    Duplicate(String),
    /// An entry with the name of a built-in tool.
    #[error(
        "tool '{0}' has the name of a built-in tool; give it another name, or switch the built-in one off"
    )]
    BuiltIn(String),
    /// Parameters that describe no JSON object.
    #[error("the parameters of tool '{name}' are no JSON Schema of an object: {reason}")]
    Parameters {
        /// The tool.
        name: String,
        /// What is wrong with them.
        reason: String,
    },
    /// A pattern of the dispatch URL that cannot be read.
    #[error("the dispatch URL has a pattern that cannot be used: {0}")]
    DispatchPattern(FilterError),
    /// The endpoint of a configured tool.
    #[error("tool '{name}' cannot be called")]
    Endpoint {
        /// The tool.
        name: String,
        /// What is wrong with its endpoint.
        #[source]
        source: EndpointError,
    },
    /// The endpoint of the dispatch URL.
    #[error("the dispatch URL cannot be called")]
    DispatchEndpoint(#[source] EndpointError),
    /// The HTTP client cannot be made, most likely for want of root certificates.
    #[error("could not set up the HTTP client of the tools")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
}

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
    /// In the order in which the model is offered them.
    names: Arc<[String]>,
    owners: Arc<HashMap<String, Lookup>>,
    json: Option<Arc<str>>,
    has_server_tools: bool,
}

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
        let client =
            WebhookClient::new(settings).map_err(|error| RegistryError::Client(Box::new(error)))?;
        let mut configured: Vec<SharedTool> = Vec::with_capacity(settings.http_tools.len());
        let mut names = HashSet::new();
        for entry in &settings.http_tools {
            check_entry(entry)?;
            if !names.insert(entry.name.clone()) {
                return Err(RegistryError::Duplicate(entry.name.clone()));
            }
            let tool = HttpTool::from_settings(&client, entry).map_err(|source| {
                RegistryError::Endpoint {
                    name: entry.name.clone(),
                    source,
                }
            })?;
            configured.push(Arc::new(tool));
        }
        let dispatch = match &settings.dispatch {
            None => None,
            Some(dispatch) => Some(Dispatch {
                tools: Globs::new(&dispatch.tools).map_err(RegistryError::DispatchPattern)?,
                endpoint: Endpoint::dispatch(&client, dispatch)
                    .map_err(RegistryError::DispatchEndpoint)?
                    .into(),
            }),
        };
        Ok(Self {
            configured,
            on_request: Vec::new(),
            names,
            dispatch,
        })
    }

    /// The same with built-in tools that are offered to the requests that ask for them.
    ///
    /// # Errors
    /// When a configured tool has the name of one of them.
    pub fn with_on_request<'a>(
        mut self,
        tools: impl IntoIterator<Item = &'a SharedTool>,
    ) -> Result<Self, RegistryError> {
        for tool in tools {
            let name = &tool.definition().name;
            if !self.names.insert(name.clone()) {
                return Err(RegistryError::BuiltIn(name.clone()));
            }
            self.on_request.push(tool.clone());
        }
        Ok(self)
    }

    /// Whether the server has a tool of this name.
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether a request gets a server-side tool only if it asks for one: neither a configured tool nor a dispatch URL.
    pub fn is_empty(&self) -> bool {
        self.configured.is_empty() && self.dispatch.is_none()
    }

    /// The tools of a request that declares these and asked for those built in.
    ///
    /// Names are checked only where the server runs a tool: what it does not take part in is left for the upstream to
    /// judge.
    ///
    /// # Errors
    /// When a client tool has the name of a server-side one, or a name is declared twice or is not usable.
    pub fn for_request(
        &self,
        declared: Vec<ToolDefinition>,
        asked: &[SharedTool],
        filter: &ToolFilter,
    ) -> Result<ToolSet, ToolSetError> {
        let active = || {
            self.configured
                .iter()
                .chain(asked)
                .filter(|tool| filter.offers(&tool.definition().name))
        };
        let active_names: HashSet<&str> = active().map(|tool| &*tool.definition().name).collect();
        let mut building = Building::default();
        let mut seen = HashSet::with_capacity(declared.len());
        let mut wrong_name = None;
        for definition in declared {
            let name = &definition.name;
            let dispatched = self.dispatched(&definition, filter);
            if active_names.contains(name.as_str()) {
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
                None => building.offer(&definition, Lookup::Client),
                // Left out by the request: as if nobody had declared it.
                Some(_) if !filter.offers(name) => {}
                Some(endpoint) => {
                    let tool = HttpTool::dispatched(endpoint, definition);
                    building.offer_server(Arc::new(tool));
                }
            }
        }
        for tool in active() {
            building.offer_server(tool.clone());
        }
        match wrong_name {
            Some(error) if building.has_server_tools => Err(error),
            Some(_) | None => Ok(building.finish()),
        }
    }

    /// The configured tools, and those that a request can ask for.
    pub fn list(&self) -> impl Iterator<Item = &SharedTool> {
        self.configured.iter().chain(&self.on_request)
    }

    /// What a tool is called in metrics and logs: a configured tool by name, a dispatched one `dispatch`, any other `unknown`.
    pub fn is_configured(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// The endpoint that owns a declared tool, whether or not the request may use it; `None` for the client's tools.
    fn dispatched(&self, tool: &ToolDefinition, filter: &ToolFilter) -> Option<&Arc<Endpoint>> {
        let dispatch = self.dispatch.as_ref()?;
        let owned = tool.kind == CallKind::Function
            && dispatch.tools.matches(&tool.name)
            && !filter.is_for_client(&tool.name);
        owned.then_some(&dispatch.endpoint)
    }
}

impl ToolSet {
    /// Whether the server runs any of them.
    pub fn has_server_tools(&self) -> bool {
        self.has_server_tools
    }

    /// Whether code can be run.
    pub fn runs_code(&self) -> bool {
        self.owners.values().any(|owner| match owner {
            Lookup::Server(tool) => tool.policy().kind == ToolKind::CodeExecution,
            Lookup::Client | Lookup::Unknown => false,
        })
    }

    /// `tools` as it is sent upstream, byte for byte the same over the rounds of a run; `None` when there is none.
    pub fn tools_json(&self) -> Option<Arc<str>> {
        self.json.clone()
    }

    /// Who runs a call of this name.
    pub fn lookup(&self, name: &str) -> Lookup {
        self.owners.get(name).cloned().unwrap_or(Lookup::Unknown)
    }

    /// The names that the model is offered, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// The same with entries of `tools[]` that the upstream runs itself, as JSON text, after the others.
    #[must_use]
    pub fn with_hosted(mut self, entries: &[String]) -> Self {
        if !entries.is_empty() {
            let mut list = self
                .json
                .as_deref()
                .and_then(|json| json.strip_suffix(']'))
                .unwrap_or("[")
                .to_owned();
            for entry in entries {
                push_item(&mut list, entry);
            }
            list.push(']');
            self.json = Some(list.into());
        }
        self
    }
}

/// A set of tools that is being put together.
#[derive(Debug, Default)]
struct Building {
    names: Vec<String>,
    owners: HashMap<String, Lookup>,
    list: String,
    has_server_tools: bool,
}

impl Building {
    fn offer(&mut self, definition: &ToolDefinition, owner: Lookup) {
        if self.list.is_empty() {
            self.list.push('[');
        }
        push_item(&mut self.list, &definition.json);
        self.names.push(definition.name.clone());
        self.owners.insert(definition.name.clone(), owner);
    }

    fn offer_server(&mut self, tool: SharedTool) {
        self.has_server_tools = true;
        self.offer(tool.clone().definition(), Lookup::Server(tool));
    }

    fn finish(mut self) -> ToolSet {
        let json = (!self.list.is_empty()).then(|| {
            self.list.push(']');
            self.list.into()
        });
        ToolSet {
            names: self.names.into(),
            owners: Arc::new(self.owners),
            json,
            has_server_tools: self.has_server_tools,
        }
    }
}

/// Appends an entry to a JSON array that is being written, with the comma that it may need.
fn push_item(list: &mut String, item: &str) {
    if !list.ends_with('[') {
        list.push(',');
    }
    list.push_str(item);
}

fn check_entry(entry: &HttpToolSettings) -> Result<(), RegistryError> {
    if !is_name(&entry.name, |byte| matches!(byte, b'_' | b'-')) {
        return Err(RegistryError::Name(entry.name.clone()));
    }
    let wrong = |reason: String| RegistryError::Parameters {
        name: entry.name.clone(),
        reason,
    };
    let schema: Value = serde_json::from_str(&entry.parameters_json)
        .map_err(|error| wrong(format!("no JSON ({error})")))?;
    if schema.get("type").and_then(Value::as_str) == Some("object") {
        Ok(())
    } else {
        Err(wrong("its 'type' is not \"object\"".to_owned()))
    }
}

/// Whether a name may be declared by a request; servers differ about the dot, so it is theirs to refuse.
fn is_declarable(name: &str) -> bool {
    is_name(name, |byte| matches!(byte, b'_' | b'-' | b'.'))
}

fn is_name(name: &str, is_mark: impl Fn(u8) -> bool) -> bool {
    (1..=MAX_NAME_CHARS).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || is_mark(byte))
}

#[cfg(test)]
mod tests;
