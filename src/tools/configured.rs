//! The tool sources of the configuration: the `[[tools]]` entries and the dispatch URL.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::Mutex;
use serde_json::Value;

use super::SharedTool;
use super::set::{FilterError, Globs, MAX_NAME_CHARS, ToolFilter, is_declarable, is_name};
use super::settings::{HttpToolSettings, Settings};
use super::source::{FixedTools, Health, Source, SourceError};
use super::webhook::{Endpoint, EndpointError, HttpTool, WebhookClient};
use net::reach;
use protocol::openai::tool::{CallKind, ToolDefinition};

/// Most names of declared functions of which the log says where they go. Requests choose the names; of others the log
/// says nothing.
const MOST_NAMES: usize = 256;

/// The dispatch URL, and the patterns of the declared tools that it runs.
#[derive(Debug, Clone)]
pub struct Dispatch {
    /// `None`: those that chat completions declare, without `client_tool_names`, and none of dialects whose clients declare
    /// tools of their own machine.
    tools: Option<Globs>,
    /// In lower case.
    client_tool_names: Globs,
    endpoint: Arc<Endpoint>,
    told: Arc<Mutex<HashSet<(String, Destination)>>>,
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

/// Why the configured tools cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfiguredToolsError {
    /// A name that model servers refuse.
    #[error(
        "tool '{0}' cannot have this name: a name is 1 to {MAX_NAME_CHARS} characters of a-z, A-Z, 0-9, _ and -"
    )]
    Name(String),
    /// Two tools have the same name.
    #[error(transparent)]
    Names(#[from] SourceError),
    /// Parameters that are not the JSON Schema of an object.
    #[error("the parameters of tool '{name}' are not the JSON Schema of an object: {reason}")]
    Parameters {
        /// The tool.
        name: String,
        /// What is wrong with them.
        reason: String,
    },
    /// A pattern of the dispatch URL that cannot be read.
    #[error("{key} has a pattern that cannot be used: {error}")]
    DispatchPattern {
        /// The setting with the pattern.
        key: &'static str,
        /// What is wrong with it.
        error: FilterError,
    },
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
    /// The HTTP client cannot be created.
    #[error("could not set up the HTTP client of the tools")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The sources in the configuration.
///
/// # Errors
/// When a name, schema, pattern or endpoint cannot be used; the text names it.
pub fn sources(settings: &Settings) -> Result<Vec<Source>, ConfiguredToolsError> {
    let client = WebhookClient::new(settings)
        .map_err(|error| ConfiguredToolsError::Client(Box::new(error)))?;
    let mut sources = Vec::new();
    if !settings.http_tools.is_empty() {
        let tools = settings.http_tools.iter();
        let tools: Result<Vec<_>, _> = tools.map(|entry| http_tool(&client, entry)).collect();
        sources.push(Source::Fixed(FixedTools {
            tools: tools?.into(),
            health: Health::Ready,
        }));
    }
    if let Some(dispatch) = &settings.dispatch {
        let globs = |key, patterns: &[String]| {
            Globs::new(patterns)
                .map_err(|error| ConfiguredToolsError::DispatchPattern { key, error })
        };
        let tools = dispatch.tools.as_deref();
        let client_names = dispatch.client_tool_names.iter();
        let client_names: Vec<_> = client_names.map(|name| name.to_lowercase()).collect();
        sources.push(Source::Dispatch(Dispatch {
            tools: tools
                .map(|patterns| globs("dispatch_tools", patterns))
                .transpose()?,
            client_tool_names: globs("client_tool_names", &client_names)?,
            told: Arc::default(),
            endpoint: Endpoint::dispatch(&client, dispatch)
                .map_err(ConfiguredToolsError::DispatchEndpoint)?
                .into(),
        }));
    }
    Ok(sources)
}

/// Connects to the endpoints of all configured tools, and sends nothing. For each what it is, and why it cannot be reached.
pub async fn reach_all(settings: &Settings) -> Vec<(String, Result<(), String>)> {
    let dispatch = settings.dispatch.iter();
    let dispatch = dispatch.map(|it| ("webhook".to_owned(), &it.endpoint.url));
    let tools = settings.http_tools.iter();
    let tools = tools.map(|it| (format!("tool {}", it.name), &it.endpoint.url));
    let reaching = dispatch.chain(tools).map(async |(what, url)| {
        let mut shown = url.clone();
        shown.set_query(None);
        (
            format!("{what} {shown}"),
            reach(url, &settings.certificates).await,
        )
    });
    join_all(reaching).await
}

impl Dispatch {
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
        self.tell(&tool.name, destination);
        destination == Destination::Webhook
    }

    /// Where the calls of a function go that a chat completion declares.
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
    fn tell(&self, name: &str, destination: Destination) {
        if !is_declarable(name) {
            return;
        }
        let mut told = self.told.lock();
        if told.len() >= MOST_NAMES || !told.insert((name.to_owned(), destination)) {
            return;
        }
        drop(told);
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

fn http_tool(
    client: &WebhookClient,
    entry: &HttpToolSettings,
) -> Result<SharedTool, ConfiguredToolsError> {
    check_entry(entry)?;
    let tool = HttpTool::from_settings(client, entry).map_err(|source| {
        ConfiguredToolsError::Endpoint {
            name: entry.name.clone(),
            source,
        }
    })?;
    Ok(Arc::new(tool))
}

fn check_entry(entry: &HttpToolSettings) -> Result<(), ConfiguredToolsError> {
    if !is_name(&entry.name, |byte| matches!(byte, b'_' | b'-')) {
        return Err(ConfiguredToolsError::Name(entry.name.clone()));
    }
    let wrong = |reason: String| ConfiguredToolsError::Parameters {
        name: entry.name.clone(),
        reason,
    };
    let schema: Value = serde_json::from_str(&entry.parameters_json)
        .map_err(|error| wrong(format!("not JSON ({error})")))?;
    if schema.get("type").and_then(Value::as_str) == Some("object") {
        Ok(())
    } else {
        Err(wrong("its 'type' is not \"object\"".to_owned()))
    }
}
