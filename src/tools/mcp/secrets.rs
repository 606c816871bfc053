//! The credentials of a connection, which its server must not repeat.

use std::sync::Arc;

use http::HeaderMap;
use rmcp::RoleClient;
use rmcp::service::RxJsonRpcMessage;
use url::Url;

use super::oauth::Tokens;

/// Shorter texts are no secrets, and occur by chance.
const MIN_BYTES: usize = 6;
/// Stands in place of a secret.
const HIDDEN: &str = "[hidden]";

/// What is hidden in the messages of a server.
#[derive(Default)]
pub(super) struct Secrets {
    /// As they stand in JSON.
    texts: Vec<String>,
    tokens: Option<Arc<Tokens>>,
}

impl Secrets {
    /// The values of headers, without their schemes, and of a URL's query, and access tokens.
    pub(super) fn new(headers: &HeaderMap, url: &Url, tokens: Option<Arc<Tokens>>) -> Self {
        let headers = headers.values().filter_map(|value| value.to_str().ok());
        let headers = headers.map(|value| value.rsplit(' ').next().unwrap_or(value).to_owned());
        let query = url.query_pairs().map(|(_, value)| value.into_owned());
        let long = |text: &String| text.len() >= MIN_BYTES;
        let texts = headers.chain(query).filter(long);
        Self {
            texts: texts.map(|text| in_json(&text)).collect(),
            tokens,
        }
    }

    /// The message without secrets; `None` if it is no message without them.
    pub(super) fn hide(
        &self,
        message: RxJsonRpcMessage<RoleClient>,
    ) -> Option<RxJsonRpcMessage<RoleClient>> {
        let token = self.tokens.as_ref().and_then(|tokens| tokens.last());
        let token = token.filter(|token| token.len() >= MIN_BYTES);
        let token = token.map(|token| in_json(&token));
        if self.texts.is_empty() && token.is_none() {
            return Some(message);
        }
        let Ok(mut json) = serde_json::to_string(&message) else {
            return Some(message);
        };
        let mut found = false;
        for secret in self.texts.iter().chain(&token) {
            if memchr::memmem::find(json.as_bytes(), secret.as_bytes()).is_some() {
                json = json.replace(secret, HIDDEN);
                found = true;
            }
        }
        match found {
            true => serde_json::from_str(&json).ok(),
            false => Some(message),
        }
    }
}

/// The text as it stands inside a JSON string.
fn in_json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    let inner = quoted
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    inner.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn hide(secrets: &Secrets, text: &str) -> String {
        let message = json!({"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": text}]}});
        let message = secrets.hide(serde_json::from_value(message).unwrap());
        let message: Value = serde_json::to_value(message.unwrap()).unwrap();
        let text = message["result"]["content"][0]["text"].as_str();
        text.unwrap().to_owned()
    }

    #[test]
    fn credentials_are_hidden_wherever_they_stand() {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", "Bearer abc-123".parse().unwrap());
        headers.insert("x-key", "sp\"ecial\\".parse().unwrap());
        headers.insert("x-team", "blue".parse().unwrap());
        let url: Url = "https://h/mcp?key=from%20query&v=1".parse().unwrap();
        let secrets = Secrets::new(&headers, &url, None);
        for (text, expected) in [
            ("you sent Bearer abc-123!", "you sent Bearer [hidden]!"),
            ("abc-123abc-123", "[hidden][hidden]"),
            ("a sp\"ecial\\ one", "a [hidden] one"),
            ("from query", "[hidden]"),
            ("blue 1", "blue 1"),
        ] {
            assert_eq!(hide(&secrets, text), expected);
        }
    }
}
