//! The tool sources of the configuration: the `[[tools]]` entries and the dispatch URL.

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::Value;

use super::SharedTool;
use super::dispatch::Dispatch;
use super::globs::{GlobListError, Globs};
use super::health::Health;
use super::settings::{HttpToolSettings, Settings};
use super::source::{FixedTools, Source, SourceError};
use super::tool_name::{MAX_NAME_CHARS, is_name};
use super::webhook::{Endpoint, EndpointError, HttpTool, WebhookClient};
use net::reach;

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
        error: GlobListError,
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
        let tools = tools.map(|patterns| globs("dispatch_tools", patterns));
        sources.push(Source::Dispatch(Dispatch::new(
            tools.transpose()?,
            globs("client_tool_names", &client_names)?,
            Endpoint::dispatch(&client, dispatch)
                .map_err(ConfiguredToolsError::DispatchEndpoint)?,
        )));
    }
    Ok(sources)
}

/// Connects to the endpoints of all configured tools, and sends nothing. Returns the name of each endpoint, and why it
/// cannot be reached.
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
