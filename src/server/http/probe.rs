//! Requests with which clients check whether a server exists. They get an empty answer without a key.

use http::Method;

/// What is asked by probes.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// `OPTIONS` on these paths and below them is a probe.
    prefixes: Vec<&'static str>,
    /// `HEAD` on these paths is a probe.
    of_head: Vec<&'static str>,
}

impl Probes {
    /// Adds the probes of a group of routes.
    pub(super) fn add(
        &mut self,
        prefix: &'static str,
        of_head: impl Iterator<Item = &'static str>,
    ) {
        self.prefixes.push(prefix);
        self.of_head.extend(of_head);
    }

    /// Whether a request only asks whether there is a server.
    pub(super) fn contain(&self, method: &Method, path: &str) -> bool {
        match *method {
            Method::HEAD => self.of_head.iter().any(|template| matches(template, path)),
            Method::OPTIONS => self.prefixes.iter().any(|prefix| is_below(path, prefix)),
            _ => false,
        }
    }
}

/// Whether a path is another one, or below it.
pub(super) fn is_below(path: &str, prefix: &str) -> bool {
    let rest = path.strip_prefix(prefix);
    rest.is_some_and(|rest| rest.is_empty() || (prefix != "/" && rest.starts_with('/')))
}

fn matches(template: &str, path: &str) -> bool {
    let mut segments = path.split('/');
    let mut parts = template.split('/');
    loop {
        match (parts.next(), segments.next()) {
            (None, None) => return true,
            (Some("{id}"), Some(segment)) if !segment.is_empty() => {}
            (Some(part), Some(segment)) if part == segment => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::routes::RouteTable;
    use super::*;

    #[test]
    fn a_probe_asks_for_nothing_that_can_be_read() {
        let probes = RouteTable::new(&crate::http::groups()).probes;
        for (path, head, options) in [
            ("/", true, true),
            ("/v1/responses", true, true),
            ("/v1/responses/input_tokens", true, true),
            ("/v1/responses/compact", true, true),
            ("//", false, false),
            ("/v1/responses/resp_1/cancel", true, true),
            ("/v1/responses/resp_1", false, true),
            ("/v1/responses//cancel", false, true),
            ("/v1/responses2", false, false),
            ("/v1/conversations", true, true),
            ("/v1/conversations/c/items/i", false, true),
            ("/v1/containers/c/files/f/content", false, true),
            ("/v1/messages", true, true),
            ("/v1/messages/count_tokens", true, true),
            ("/v1/%6dessages", false, false),
            ("/v1/ai-sdk/chat", true, true),
            ("/v1/ai-sdk/chat/c/stream", true, true),
            ("/v1/chat/completions", true, true),
            ("/v1/chat/completions/chatcmpl-1/cancel", true, true),
            ("/v1/chat/completions/chatcmpl-1", false, true),
            ("/v1/models", false, false),
            ("/v1/files/f/content", false, false),
            ("/v1/embeddings", false, false),
            ("/metrics", false, false),
        ] {
            assert_eq!(probes.contain(&Method::HEAD, path), head, "HEAD {path}");
            assert_eq!(
                probes.contain(&Method::OPTIONS, path),
                options,
                "OPTIONS {path}"
            );
            for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
                assert!(!probes.contain(&method, path), "{method} {path}");
            }
        }
    }
}
