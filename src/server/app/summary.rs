//! The log record about the settings with which a server starts.

use std::path::Path;

use url::Url;

use crate::config::Config;
use crate::http::settings::ApiKey;
use agent::session::settings::{StoreUrl, default_files_dir};
use policy::rules::{Level, ToolClasses};
use tools::python::CodeExecution;
use tools::source::{Health, Source, SourceList};

/// The settings with which a server starts, without secrets; a field without value is left out of the record.
#[derive(Debug)]
pub(super) struct StartSummary {
    upstreams: String,
    session_store: String,
    files: Option<String>,
    webhook: Option<String>,
    dispatch_tools: Option<String>,
    tools: Option<String>,
    mcp_servers: Option<String>,
    search: Option<String>,
    /// The rules whose tools MCP servers may add, with their places.
    rules: Vec<(String, Level)>,
}

impl StartSummary {
    pub(super) fn of(config: &Config) -> Self {
        let upstreams = config.upstreams.iter();
        let upstreams = upstreams.map(|one| format!("{} {}", one.name, shown(&one.base_url)));
        let store = &config.session.store;
        let files = config.session.files_dir.as_ref().map(ToString::to_string);
        let beside = |path| absolute(&default_files_dir(path));
        let dispatch = config.tools.dispatch.as_ref();
        let tools = config.tools.http_tools.iter();
        let servers = config.mcp.servers.iter();
        let search = config.web.iter().flat_map(|web| &web.web.providers);
        Self {
            upstreams: upstreams.collect::<Vec<_>>().join(", "),
            session_store: location(store),
            files: files.or_else(|| store.file().map(beside)),
            webhook: dispatch.map(|dispatch| shown(&dispatch.endpoint.url)),
            dispatch_tools: dispatch.and_then(|dispatch| Some(dispatch.tools.as_ref()?.join(", "))),
            tools: list(tools.map(|tool| &*tool.name)),
            mcp_servers: list(servers.map(|server| &*server.name)),
            search: list(search.map(|provider| provider.kind.as_str())),
            rules: rules(config),
        }
    }

    /// Names the rules that can match no tool, once the tools of all MCP servers are known.
    fn warn_of_rules(&self, sources: &SourceList) {
        if sources.iter().any(|source| source.health() == Health::Down) {
            return;
        }
        let tools = sources.iter().flat_map(Source::tools);
        let tools: Vec<(&str, ToolClasses)> = tools
            .map(|tool| (tool.definition().name.as_str(), tool.policy().classes()))
            .collect();
        for (place, level) in &self.rules {
            for index in level.rules.without_tool(tools.iter().copied()) {
                tracing::warn!("{place}[{index}]: the rule can match no tool that there is now");
            }
        }
    }

    /// Writes the record, and a warning for each rule without a tool.
    pub(super) fn log(&self, code: Option<&CodeExecution>, sources: &SourceList) {
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            commit = option_env!("LOOPWRIGHT_COMMIT"),
            upstreams = self.upstreams,
            session_store = self.session_store,
            files = self.files,
            webhook = self.webhook,
            dispatch_tools = self.dispatch_tools,
            tools = self.tools,
            mcp_servers = self.mcp_servers,
            search = self.search,
            code_isolation = code.map(|code| code.report().level.as_str()),
            "starting"
        );
        self.warn_of_rules(sources);
    }
}

/// The rules whose tool may come from an MCP server: the settings alone do not show whether it exists.
fn rules(config: &Config) -> Vec<(String, Level)> {
    let mcp = &config.mcp;
    let is_open = config.tools.dispatch.is_some() || mcp.requests.is_used();
    if is_open || mcp.servers.is_empty() {
        return Vec::new();
    }
    let server = ("permissions".to_owned(), config.agent.permissions.clone());
    let keys = config.http.api_keys.iter().enumerate();
    let of_key = |(index, key): (usize, &ApiKey)| {
        let place = format!("api_keys[{index}].permissions");
        (place, key.defaults.permissions.clone())
    };
    std::iter::once(server).chain(keys.map(of_key)).collect()
}

/// The location of a store, without secrets.
pub(super) fn location(store: &StoreUrl) -> String {
    match store {
        StoreUrl::Memory => "memory".to_owned(),
        StoreUrl::Sqlite(path) => absolute(path),
        StoreUrl::Postgres(url) => url.location().to_owned(),
    }
}

fn absolute(path: &Path) -> String {
    let absolute = std::path::absolute(path);
    absolute.as_deref().unwrap_or(path).display().to_string()
}

/// A URL without the parts that may be secret.
fn shown(url: &Url) -> String {
    let mut shown = url.clone();
    // A URL that can have neither has no secret there.
    let _kept = shown
        .set_username("")
        .and_then(|()| shown.set_password(None));
    shown.set_query(None);
    shown.into()
}

/// Names, if there are any.
fn list<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    let names: Vec<&str> = names.collect();
    (!names.is_empty()).then(|| names.join(", "))
}
