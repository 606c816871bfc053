//! Requests by which clients find out whether a server is there. They are answered with nothing, whoever asks.

use http::Method;

/// What is probed, and all paths below it.
const PROBED: [&str; 6] = [
    "/v1/ai-sdk/chat",
    "/v1/chat/completions",
    "/v1/containers",
    "/v1/conversations",
    "/v1/messages",
    "/v1/responses",
];
/// Paths without a GET, and thus without another answer to HEAD. Those of later versions are among them.
const WITHOUT_GET: [&str; 11] = [
    "/",
    "/v1/ai-sdk/chat",
    "/v1/ai-sdk/chat/{id}/stream",
    "/v1/chat/completions",
    "/v1/chat/completions/{id}/cancel",
    "/v1/conversations",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/responses",
    "/v1/responses/input_tokens",
    "/v1/responses/{id}/cancel",
];

/// Whether a request only asks whether there is a server.
pub(super) fn is_probe(method: &Method, path: &str) -> bool {
    match *method {
        Method::HEAD => WITHOUT_GET.iter().any(|template| matches(template, path)),
        Method::OPTIONS => path == "/" || PROBED.iter().any(|prefix| is_below(path, prefix)),
        _ => false,
    }
}

fn is_below(path: &str, prefix: &str) -> bool {
    let rest = path.strip_prefix(prefix);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
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
    use super::*;

    #[test]
    fn a_probe_asks_for_nothing_that_can_be_read() {
        for (path, head, options) in [
            ("/", true, true),
            ("/v1/responses", true, true),
            ("/v1/responses/input_tokens", true, true),
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
            assert_eq!(is_probe(&Method::HEAD, path), head, "HEAD {path}");
            assert_eq!(is_probe(&Method::OPTIONS, path), options, "OPTIONS {path}");
            for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
                assert!(!is_probe(&method, path), "{method} {path}");
            }
        }
    }
}
