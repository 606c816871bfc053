//! Tries everything that the settings name, for `check-config --connect`. Nothing is stored, and no request has an
//! effect.

use futures_util::future::BoxFuture;
use http::HeaderMap;

use crate::config::Config;
use agent::session::files::check_files;
use agent::traces::Traces;
use store::check;
use tools::configured::reach_all;
use tools::mcp::{McpServers, McpSetupError};
use tools::mcp_offer::McpOffer;
use upstream::probe::{UpstreamProbe, probe_all};
use upstream::router::{Router, RouterError};
use upstream::settings::PoolSettings;
use web::{SetupError, Web};

/// What was tried.
#[derive(Debug, Default)]
pub struct Tried {
    /// The outcomes as comments of TOML.
    pub text: String,
    /// What is down.
    pub down: Vec<String>,
}

/// Why nothing could be tried.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// An upstream cannot be used as configured.
    #[error(transparent)]
    Upstreams(#[from] RouterError),
    /// A search provider cannot be used as configured.
    #[error(transparent)]
    Web(#[from] SetupError),
    /// The HTTP client of MCP servers cannot be created.
    #[error(transparent)]
    Mcp(#[from] McpSetupError),
}

/// Tries the model servers, the endpoints of tools, the search providers, the collector of traces, the session store,
/// the files and the MCP servers.
///
/// # Errors
/// When a client cannot be made with the settings.
pub fn try_all(config: Config) -> BoxFuture<'static, Result<Tried, ConnectError>> {
    // Boxed here, as a future is compiled where it is polled: once in this library, not in the binary.
    Box::pin(try_each(config))
}

async fn try_each(config: Config) -> Result<Tried, ConnectError> {
    let mut tried = Tried {
        text: "\n# connections\n".to_owned(),
        down: Vec::new(),
    };
    let pool = PoolSettings {
        upstreams: config.upstreams,
        retry: config.retry,
    };
    let router = Router::from_settings(&pool)?;
    for probe in probe_all(&router, &HeaderMap::new()).await {
        tried.upstream(&probe);
    }
    for (what, reached) in reach_all(&config.tools).await {
        tried.add(&what, reached);
    }
    if let Some(web) = &config.web {
        for (name, outcome) in Web::try_providers(&web.web).await? {
            tried.add(&format!("search provider {name}"), outcome);
        }
    }
    if let Some(settings) = &config.traces {
        let taken = Traces::try_collector(settings).await;
        tried.add("collector of traces", taken);
    }
    let opened = check(&config.session.store).await;
    tried.add("session store", opened.map_err(|error| chain(&error)));
    match check_files(&config.session).await {
        Ok(place) => tried.add(&format!("files in {place}"), Ok(())),
        Err(error) => tried.add("files", Err(chain(&error))),
    }
    if !config.mcp.servers.is_empty() {
        tried.text.push_str("\n# MCP servers\n");
    }
    for offer in McpServers::try_all(config.mcp).await? {
        tried.mcp(&offer);
    }
    Ok(tried)
}

impl Tried {
    fn add(&mut self, what: &str, outcome: Result<(), String>) {
        let state = match outcome {
            Ok(()) => "ok".to_owned(),
            Err(problem) => {
                self.down.push(what.to_owned());
                problem
            }
        };
        self.text.push_str(&format!("# {what}: {state}\n"));
    }

    fn upstream(&mut self, probe: &UpstreamProbe) {
        let (name, url) = (probe.upstream.name(), probe.upstream.address());
        let state = match probe.is_good() {
            true => "ok, ",
            false => {
                self.down.push(format!("upstream {name}"));
                ""
            }
        };
        let line = format!("# upstream {name} ({url}): {state}{}\n", probe.text);
        self.text.push_str(&line);
    }

    fn mcp(&mut self, offer: &McpOffer) {
        let state = match &offer.reason {
            None => format!("ready, {} tools", offer.tools.len()),
            Some(reason) => {
                self.down.push(format!("MCP server {}", offer.server));
                format!("down: {reason}")
            }
        };
        self.text
            .push_str(&format!("# {}: {state}\n", offer.server));
        for tool in offer.tools.iter() {
            self.text
                .push_str(&format!("#   {}\n", tool.definition().name));
        }
    }
}

/// The texts of an error and of its causes.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}
