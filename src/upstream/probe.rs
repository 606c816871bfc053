//! Probes the upstreams: whether each answers a request for its models, what it is, and what to do if it does not
//! answer.
//!
//! A request of a client never waits for a probe.

use std::sync::Arc;
use std::time::Duration;

use ::http::HeaderMap;
use ::http::header::{HeaderValue, USER_AGENT};
use futures_util::future::join_all;

use super::models::{ModelEntry, list};
use super::router::{Router, RouterEntry};
use super::settings::{KeySource, ServerKind};
pub use super::state::UpstreamState;
use super::{Upstream, UpstreamError};
use net::{Backoff, cause_of};
use protocol::ids::shown;

/// The `user-agent` of the looks after the start.
const AGENT: &str = concat!("loopwright/", env!("CARGO_PKG_VERSION"), " (look)");
/// Pause between looks at a server that is not ready, growing with each.
const DELAYS: Backoff = Backoff {
    base: Duration::from_millis(500),
    max: Duration::from_secs(30),
    jitter: 0.25,
};
/// Most models that are named; others are left out.
/// Tried by `look::names_in_the_log_are_bounded_and_plain`.
const MAX_NAMED: usize = 5;

/// The result of probing an upstream.
#[derive(Debug, Clone)]
pub struct UpstreamProbe {
    /// The upstream.
    pub upstream: Arc<dyn Upstream>,
    /// What was found.
    pub state: UpstreamState,
    /// The models, or the cause and the remedy, for the operator.
    pub text: String,
    /// Whether a later probe is likely to find the same.
    is_final: bool,
}

impl UpstreamProbe {
    /// Whether the upstream can be used, as far as a probe shows. A server without a list of models may still answer
    /// calls, and a server that asks for a key is usable if the clients have the key.
    pub fn is_good(&self) -> bool {
        match self.state {
            UpstreamState::Ok | UpstreamState::NoModelsEndpoint => true,
            UpstreamState::AsksForKey => *self.upstream.key_source() == KeySource::Clients,
            _ => false,
        }
    }

    fn log(&self) {
        let (name, url, text) = (self.upstream.name(), self.upstream.address(), &self.text);
        match self.is_good() && self.state != UpstreamState::NoModelsEndpoint {
            true => tracing::info!("model server {name} ({url}): {text}"),
            false => tracing::warn!("model server {name} ({url}): {text}"),
        }
    }
}

/// Probes all upstreams at the same time, with these headers. Logs what is new.
pub async fn probe_all(router: &Router, headers: &HeaderMap) -> Vec<UpstreamProbe> {
    join_all(router.entries().iter().map(|entry| probe(entry, headers))).await
}

/// Probes each upstream after the start. Repeats the probe while the upstream is unreachable, not ready or without
/// models.
pub async fn watch(router: Arc<Router>) {
    let agent = HeaderValue::from_static(AGENT);
    let headers = HeaderMap::from_iter([(USER_AGENT, agent)]);
    let until_ready = async |entry: &RouterEntry| {
        let mut probes = 0;
        while !probe(entry, &headers).await.is_final {
            tokio::time::sleep(DELAYS.delay(probes)).await;
            probes = probes.saturating_add(1);
        }
    };
    join_all(router.entries().iter().map(until_ready)).await;
}

async fn probe(entry: &RouterEntry, headers: &HeaderMap) -> UpstreamProbe {
    let upstream = entry.upstream.clone();
    let answer = list(entry, headers).await;
    let kind = upstream.kind();
    let (state, text, is_final) = match &answer {
        Ok(models) => {
            // Ollama lists no model until one was fetched. Only then the list shows what the server is.
            let is_final = kind.is_some() || !models.is_empty();
            (UpstreamState::Ok, found(kind, models), is_final)
        }
        Err(error) => {
            let state = UpstreamState::of(error, upstream.key_source());
            let is_final = !matches!(
                state,
                UpstreamState::Unreachable | UpstreamState::ServerError
            );
            (state, problem(state, error, upstream.as_ref()), is_final)
        }
    };
    let probe = UpstreamProbe {
        upstream,
        state,
        text,
        is_final,
    };
    if entry.is_news((state, kind)) {
        probe.log();
    }
    probe
}

/// The kind and the models.
fn found(kind: Option<ServerKind>, models: &[ModelEntry]) -> String {
    let kind = kind.map_or_else(
        || "of a kind that is not recognised".to_owned(),
        |kind| kind.to_string(),
    );
    let number = match models.len() {
        0 => return format!("{kind}, no models"),
        1 => "1 model".to_owned(),
        number => format!("{number} models"),
    };
    let mut names: Vec<String> = models
        .iter()
        .take(MAX_NAMED)
        .map(|it| shown(&it.id))
        .collect();
    if models.len() > MAX_NAMED {
        names.push("…".to_owned());
    }
    format!("{kind}, {number} ({})", names.join(", "))
}

/// What is wrong, and the remedy.
fn problem(state: UpstreamState, error: &UpstreamError, upstream: &dyn Upstream) -> String {
    let status = match error {
        UpstreamError::Status { status, .. } => {
            format!("it answers with status {}", status.as_u16())
        }
        _ => String::new(),
    };
    match state {
        UpstreamState::Ok => String::new(),
        UpstreamState::Unreachable => {
            let cause = cause(error);
            format!("it cannot be reached ({cause}); {}", remedy(&cause))
        }
        UpstreamState::ServerError => {
            format!("{status}; it may still be loading, else see its log; it is asked again")
        }
        UpstreamState::AsksForKey if *upstream.key_source() == KeySource::Clients => {
            format!("it asks for a key ({status}); the keys of clients are passed on to it")
        }
        UpstreamState::AsksForKey => {
            format!("it asks for a key ({status}); {}", upstream.key_source().remedy())
        }
        UpstreamState::RefusedKey => {
            format!("it refuses the key ({status}); {}", upstream.key_source().remedy())
        }
        UpstreamState::NoModelsEndpoint => format!(
            "it does not list its models ({status} to GET /models); if the path of --upstream (`base_url` in the file) lacks \
             /v1, add it; requests are sent all the same"
        ),
        UpstreamState::Refused => format!(
            "{status} to GET /models; check --upstream (`base_url` in the file); requests are sent all the same"
        ),
        UpstreamState::NoModelList => {
            "its answer to GET /models is no list of models; check --upstream (`base_url` in the file)".to_owned()
        }
    }
}

fn cause(error: &UpstreamError) -> String {
    match error {
        UpstreamError::Connect { source, .. } => cause_of(source.as_ref()),
        UpstreamError::Timeout { limit, .. } => format!("no answer within {} s", limit.as_secs()),
        UpstreamError::Broken { reason, .. } => reason.clone(),
        other => other.to_string(),
    }
}

/// What helps against a failure of the connection.
fn remedy(cause: &str) -> &'static str {
    if cause.contains("InvalidContentType") || cause.contains("wrong version") {
        "it does not seem to speak TLS: write http:// in --upstream (`base_url` in the file)"
    } else if cause.contains("certificate") || cause.contains("CaUsedAsEndEntity") {
        "its certificate is not trusted here: set `ca_file` to a file with the certificates of your authority"
    } else if cause.contains("lookup") {
        "correct the host name in --upstream (`base_url` in the file)"
    } else if cause.contains("HTTP") || cause.contains("message completed") {
        "it does not seem to speak HTTP: if it speaks TLS, write https:// in --upstream (`base_url` in the file)"
    } else {
        "start it, or correct --upstream (`base_url` in the file)"
    }
}
