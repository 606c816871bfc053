//! The credentials of a connection, which its server must not repeat.

use std::collections::BTreeSet;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use http::HeaderMap;
use http::header::{AUTHORIZATION, PROXY_AUTHORIZATION};
use parking_lot::Mutex;
use rmcp::RoleClient;
use rmcp::service::RxJsonRpcMessage;
use url::Url;

use super::oauth::Tokens;

/// Shortest text that is a secret, in bytes; shorter ones occur by chance.
/// Tried by `secrets::parts_of_headers_and_of_a_url_are_hidden`.
const MIN_BYTES: usize = 6;
/// Shortest segment of a path that is a secret, in bytes; shorter ones are names.
/// Tried by `secrets::parts_of_headers_and_of_a_url_are_hidden`.
const MIN_SEGMENT_BYTES: usize = 16;
/// Stands in place of a secret.
const HIDDEN: &str = "[hidden]";

/// What is hidden in the messages of a server.
#[derive(Default)]
pub(super) struct Secrets {
    /// The secrets, escaped as in JSON.
    texts: BTreeSet<String>,
    tokens: Option<Arc<Tokens>>,
    /// Finds the texts and the token with which it was made.
    search: Mutex<Option<(Option<String>, AhoCorasick)>>,
}

impl Secrets {
    /// The values of headers and of a URL, and access tokens.
    pub(super) fn new(headers: &HeaderMap, url: &Url, tokens: Option<Arc<Tokens>>) -> Self {
        let mut texts = BTreeSet::new();
        for (name, value) in headers {
            let value = value.to_str().unwrap_or_default();
            let has_scheme = matches!(name, &AUTHORIZATION | &PROXY_AUTHORIZATION);
            let without_scheme = value.split_once(' ').map(|(_, rest)| rest);
            add_value(
                &mut texts,
                without_scheme.filter(|_| has_scheme).unwrap_or(value),
            );
        }
        add(&mut texts, url.password().unwrap_or_default());
        for (_, value) in url.query_pairs() {
            add(&mut texts, &value);
        }
        let raw = url.query().unwrap_or_default().split('&');
        raw.filter_map(|pair| pair.split_once('='))
            .for_each(|(_, value)| add(&mut texts, value));
        let segments = url.path().split('/');
        segments
            .filter(|segment| segment.len() >= MIN_SEGMENT_BYTES)
            .for_each(|segment| add(&mut texts, segment));
        Self {
            texts,
            tokens,
            search: Mutex::default(),
        }
    }

    /// The message without secrets; `None` if it is no message without them.
    pub(super) fn hide(
        &self,
        message: RxJsonRpcMessage<RoleClient>,
    ) -> Option<RxJsonRpcMessage<RoleClient>> {
        let Some(search) = self.search() else {
            return Some(message);
        };
        let Ok(json) = serde_json::to_string(&message) else {
            return Some(message);
        };
        if !search.is_match(&json) {
            return Some(message);
        }
        serde_json::from_str(&without(&search, &json)).ok()
    }

    /// The text without secrets.
    pub(super) fn hide_text(&self, text: &str) -> String {
        match self.search() {
            Some(search) => without(&search, text),
            None => text.to_owned(),
        }
    }

    /// Finds all that is hidden; `None` if there is nothing.
    fn search(&self) -> Option<AhoCorasick> {
        let token = self.tokens.as_ref().and_then(|tokens| tokens.last());
        let token = token.filter(|token| token.len() >= MIN_BYTES);
        let token = token.map(|token| in_json(&token));
        if self.texts.is_empty() && token.is_none() {
            return None;
        }
        let mut kept = self.search.lock();
        if let Some((of, search)) = kept.as_ref()
            && *of == token
        {
            return Some(search.clone());
        }
        let built = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(self.texts.iter().chain(&token));
        let search = built.ok()?;
        *kept = Some((token, search.clone()));
        Some(search)
    }
}

/// The text with all secrets replaced, in one pass: replacements are not searched again.
fn without(search: &AhoCorasick, text: &str) -> String {
    let mut hidden = String::with_capacity(text.len());
    search.replace_all_with(text, &mut hidden, |_, _, hidden| {
        hidden.push_str(HIDDEN);
        true
    });
    hidden
}

/// Adds the value of a header, and the parts of it that look like secrets, such as the values of cookies.
fn add_value(texts: &mut BTreeSet<String>, value: &str) {
    add(texts, value);
    for part in value.split([' ', ';', ',']) {
        if let Some((_, value)) = part.split_once('=') {
            add(texts, value);
        }
        if !part.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            add(texts, part);
        }
    }
}

fn add(texts: &mut BTreeSet<String>, text: &str) {
    if text.len() >= MIN_BYTES {
        texts.insert(in_json(text));
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

    #[test]
    fn parts_of_headers_and_of_a_url_are_hidden() {
        let mut headers = HeaderMap::new();
        headers.insert("cookie", "session=s3cr3t-s; theme=dark".parse().unwrap());
        headers.insert(
            "x-keys",
            "key-one-1,key-two-2 third=value3".parse().unwrap(),
        );
        headers.insert("x-note", "please handle with care".parse().unwrap());
        let url = "https://u:pass%20word@h/hooks/0123456789abcdef/mcp?q=a%2Fb%2Fcdef";
        let secrets = Secrets::new(&headers, &url.parse().unwrap(), None);
        for (text, expected) in [
            ("session=s3cr3t-s; theme=dark", "[hidden]"),
            ("you are s3cr3t-s", "you are [hidden]"),
            (
                "key-one-1 and key-two-2 and value3",
                "[hidden] and [hidden] and [hidden]",
            ),
            ("please handle it", "please handle it"),
            ("/hooks/0123456789abcdef/mcp", "/hooks/[hidden]/mcp"),
            ("a/b/cdef a%2Fb%2Fcdef", "[hidden] [hidden]"),
            ("pass%20word", "[hidden]"),
        ] {
            assert_eq!(hide(&secrets, text), expected);
        }
    }

    #[test]
    fn many_equal_secrets_are_one_and_what_is_put_in_is_not_searched() {
        let query = ["a=hidden"; 445].join("&");
        let url: Url = format!("https://h/mcp?{query}").parse().unwrap();
        let secrets = Secrets::new(&HeaderMap::new(), &url, None);
        assert_eq!(secrets.texts.len(), 1);
        assert_eq!(
            hide(&secrets, &"hidden ".repeat(1000)),
            "[hidden] ".repeat(1000)
        );
        let url: Url = "https://h/mcp?a=secret&b=secret-1&c=ecret-"
            .parse()
            .unwrap();
        let secrets = Secrets::new(&HeaderMap::new(), &url, None);
        assert_eq!(hide(&secrets, "secret-1 secret"), "[hidden] [hidden]");
    }
}
