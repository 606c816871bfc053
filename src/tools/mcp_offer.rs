//! MCP servers as other modules see them: the offer of a server, and the options of a request for it.

use std::fmt;
use std::sync::Arc;

use http::HeaderMap;
use serde_json::{Value, json};
use url::Url;

use super::SharedTool;
use super::globs::Globs;
use super::health::Health;
use protocol::ids::Owner;

/// What a server offers at the moment.
#[derive(Debug, Clone)]
pub struct McpOffer {
    /// The server's name.
    pub server: Arc<str>,
    /// Its tools, those that it had last if it does not run.
    pub tools: Arc<[SharedTool]>,
    /// Whether it runs.
    pub health: Health,
    /// Why it does not run.
    pub reason: Option<String>,
    /// How often it was started again, or was tried to.
    pub restarts: u64,
    /// The names of the keys that may use it; all if there are none.
    pub keys: Option<Globs>,
}

/// An MCP server that a request declares.
#[derive(Clone)]
pub struct McpServerRequest {
    /// Stands before the names of its tools.
    pub label: String,
    /// Its URL, which has been checked and may hold a secret.
    pub url: Url,
    /// Headers of every message to it; all are secrets.
    pub headers: HeaderMap,
    /// The tools that are offered, by the names that the server gives them; all by default.
    pub allowed_tools: Option<Vec<String>>,
    /// Only tools that say, or that do not say, of themselves that they change nothing are offered; by default both.
    pub allowed_read_only: Option<bool>,
    /// What the server is for, for the model.
    pub description: Option<String>,
}

impl McpOffer {
    /// Whether an owner may use the server.
    pub(crate) fn is_for(&self, owner: &Owner) -> bool {
        let matches = |globs: &Globs| owner.name().is_some_and(|name| globs.matches(name));
        self.keys.as_ref().is_none_or(matches)
    }

    /// What `/readyz` says of the server.
    pub fn status(&self) -> Value {
        let mut status = json!({"state": self.health.as_str(), "tools": self.tools.len()});
        if let Some(reason) = &self.reason {
            status["reason"] = reason.as_str().into();
        }
        json!({&*self.server: status})
    }
}

impl fmt::Debug for McpServerRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("McpServerRequest")
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_prints_no_secret() {
        let server = McpServerRequest {
            label: "l".to_owned(),
            url: "https://h/?t=hush".parse().unwrap(),
            headers: [(http::header::COOKIE, "hush".parse().unwrap())]
                .into_iter()
                .collect(),
            allowed_tools: None,
            allowed_read_only: None,
            description: None,
        };
        let printed = format!("{server:?}");
        assert!(!printed.contains("hush"), "{printed}");
    }
}
