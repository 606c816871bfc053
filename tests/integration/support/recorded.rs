//! A request as a scripted model server got it.

use std::collections::HashMap;

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::server::{Outcome, ended};
use super::within;

/// A request as it came in.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    /// The method.
    pub(crate) method: Method,
    /// The path and the query.
    pub(crate) path: String,
    /// The headers.
    pub(crate) headers: HeaderMap,
    /// The bytes of the body.
    pub(crate) bytes: Bytes,
    /// The body, or null where it is not JSON.
    pub(crate) body: Value,
    /// Tells how the exchange ends.
    pub(crate) outcome: watch::Receiver<Outcome>,
}

impl Recorded {
    /// The messages.
    pub(crate) fn messages(&self) -> Vec<Value> {
        self.body["messages"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    }

    /// The roles of the messages.
    pub(crate) fn roles(&self) -> Vec<String> {
        self.messages()
            .iter()
            .map(|message| message["role"].as_str().unwrap_or("?").to_owned())
            .collect()
    }

    /// The results of tools: call id, content.
    pub(crate) fn tool_results(&self) -> Vec<(String, String)> {
        self.messages()
            .iter()
            .filter(|message| message["role"] == "tool")
            .map(|message| {
                let content = match &message["content"] {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                (id.to_owned(), content)
            })
            .collect()
    }

    /// The names of the tools that are offered.
    pub(crate) fn tool_names(&self) -> Vec<String> {
        let tools = self.body["tools"].as_array().cloned().unwrap_or_default();
        tools
            .iter()
            .filter_map(|tool| tool["function"]["name"].as_str())
            .map(ToOwned::to_owned)
            .collect()
    }

    /// The JSON text of one field, as it was sent.
    pub(crate) fn raw(&self, field: &str) -> Option<String> {
        let object: HashMap<&str, &RawValue> = serde_json::from_slice(&self.bytes).ok()?;
        object.get(field).map(|value| value.get().to_owned())
    }

    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// How the exchange stands.
    pub(crate) fn outcome(&self) -> Outcome {
        *self.outcome.borrow()
    }

    /// Waits until the peer has gone away before the answer was complete; fails when it stayed.
    pub(crate) async fn dropped(&self) {
        let end = within("the peer to go away", ended(self.outcome.clone())).await;
        assert_eq!(end, Outcome::Dropped, "the answer was taken to its end");
    }
}
