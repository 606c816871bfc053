//! `loopwright openapi`. That answers are as it says is checked with every answer that the tests get.

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::Command;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Value, json};

use super::support::described::{self, Asked};

/// What the document must describe.
const ENDPOINTS: [(&str, &[&str]); 32] = [
    ("/v1/chat/completions", &["post"]),
    ("/v1/chat/completions/{id}", &["get", "delete"]),
    ("/v1/chat/completions/{id}/messages", &["get"]),
    ("/v1/chat/completions/{id}/events", &["get"]),
    ("/v1/chat/completions/{id}/cancel", &["post"]),
    ("/v1/containers/{id}", &["get"]),
    ("/v1/containers/{id}/files", &["get"]),
    ("/v1/containers/{id}/files/{file_id}", &["get"]),
    ("/v1/containers/{id}/files/{file_id}/content", &["get"]),
    ("/v1/conversations", &["post"]),
    ("/v1/conversations/{id}", &["get", "delete"]),
    ("/v1/conversations/{id}/items", &["get", "post"]),
    ("/v1/conversations/{id}/items/{item_id}", &["get"]),
    ("/v1/responses", &["post"]),
    ("/v1/responses/input_tokens", &["post"]),
    ("/v1/responses/{id}", &["get", "delete"]),
    ("/v1/responses/{id}/cancel", &["post"]),
    ("/v1/responses/{id}/input_items", &["get"]),
    ("/v1/models", &["get"]),
    ("/v1/models/{id}", &["get", "delete"]),
    ("/v1/sessions", &["get"]),
    ("/v1/sessions/{id}", &["get", "put", "delete"]),
    ("/v1/sessions/{id}/fork", &["post"]),
    ("/v1/sessions/{id}/cancel", &["post"]),
    ("/v1/agent/tools", &["get"]),
    ("/v1/files", &["get", "post"]),
    ("/v1/files/{id}", &["get", "delete"]),
    ("/v1/files/{id}/content", &["get"]),
    ("/healthz", &["get"]),
    ("/readyz", &["get"]),
    ("/metrics", &["get"]),
    ("/v1/{path}", &["get", "post", "put", "patch", "delete"]),
];

#[test]
fn the_document_is_printed_without_settings_and_has_every_endpoint() {
    let mut binary = Command::new(env!("CARGO_BIN_EXE_loopwright"));
    let printed = binary.arg("openapi").env_clear().output().unwrap();
    assert_eq!(printed.status.code(), Some(0));
    assert!(printed.stderr.is_empty(), "{printed:?}");
    let document: Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    for (path, methods) in ENDPOINTS {
        for method in methods {
            let operation = &document["paths"][path][method];
            assert!(operation["operationId"].is_string(), "{method} {path}");
        }
    }
}

#[test]
fn a_call_of_a_webhook_that_is_not_as_described_fails_its_test() {
    let mut call = json!({
        "name": "t", "arguments": {}, "tool_call_id": "c", "request_id": "r", "round": 0, "model": "m", "timeout_ms": 1,
    });
    assert_eq!(described::problems_of_call(&call), [""; 0]);
    call["owner"] = "alice".into();
    assert_eq!(described::problems_of_call(&call), [""; 0]);
    call["new"] = 1.into();
    assert_eq!(described::problems_of_call(&call).len(), 1);
}

/// Holds an answer of JSON against the document.
fn check(path: &str, status: u16, headers: &[(&'static str, &'static str)], body: Value) {
    let always = [("content-type", "application/json"), ("x-request-id", "r")];
    let headers: HeaderMap = always
        .iter()
        .chain(headers)
        .map(|&(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        })
        .collect();
    let asked = Asked::of_binary(Method::GET, path);
    asked.answered(status, &headers, body.to_string().as_bytes());
}

#[test]
fn an_answer_that_is_not_as_described_fails_its_test() {
    let error =
        |code: &str| json!({"error": {"message": "m", "type": "t", "param": null, "code": code}});
    let sessions = json!({"object": "list", "data": [], "has_more": false});
    check("/v1/sessions", 200, &[], sessions.clone());
    check("/v1/sessions/s", 404, &[], error("not_found"));
    let retry = ("retry-after", "1");
    let store = error("session_store_unavailable");
    check("/v1/sessions/s", 503, &[retry], store.clone());
    let run = "/v1/chat/completions/chatcmpl-1";
    check(run, 410, &[], error("run_interrupted"));
    check(run, 429, &[], json!({"of": "a model server"}));
    check("/v1/sessions", 429, &[retry], error("rate_limit_exceeded"));
    check("/readyz", 200, &[], json!({"status": "ok"}));
    let wrong = [
        ("/v1/sessions", 418, None, error("not_found")),
        (
            "/v1/sessions",
            200,
            None,
            json!({"object": "list", "data": []}),
        ),
        ("/v1/sessions", 200, Some(("x-new", "1")), sessions),
        (
            "/v1/sessions",
            200,
            None,
            json!({"object": "list", "data": [], "has_more": false, "new": 1}),
        ),
        (
            "/v1/sessions/s",
            404,
            None,
            json!({"error": {"message": "m", "type": "t", "param": null, "code": "not_found", "new": 1}}),
        ),
        ("/v1/sessions", 429, None, error("rate_limit_exceeded")),
        ("/readyz", 401, None, error("invalid_api_key")),
        (
            "/readyz",
            200,
            None,
            json!({"status": "ok", "upstream": "gone"}),
        ),
        ("/v1/sessions/s", 404, None, error("another_code")),
        ("/v1/sessions/s", 503, None, store),
        (run, 410, None, error("session_busy")),
        (
            "/v1/nowhere/at/all",
            404,
            None,
            json!({"error": {"code": "not_found"}}),
        ),
    ];
    for (path, status, header, body) in wrong {
        let said = catch_unwind(|| check(path, status, header.as_slice(), body.clone()));
        assert!(said.is_err(), "{path} {status} {body}");
    }
}

#[test]
fn a_line_of_a_stream_that_is_not_as_described_fails_its_test() {
    let chunk = |choices: Value, more: Value| {
        let mut chunk = json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices,
        });
        let more = more.as_object().unwrap().clone();
        chunk.as_object_mut().unwrap().extend(more);
        chunk.to_string()
    };
    let delta = |delta: Value| json!([{"index": 0, "delta": delta, "finish_reason": null}]);
    let notice = |notice: Value| json!({"type": "agentic_notice", "notice": notice});
    let said = json!({"kind": "retry", "message": "m"});
    described::check_line(&chunk(delta(json!({"content": "x"})), json!({})));
    described::check_line(&chunk(delta(json!({})), notice(said)));
    let wrong = [
        chunk(delta(json!({"content": "x"})), json!({"new": 1})),
        chunk(delta(json!({"new": 1})), json!({})),
        chunk(delta(json!({"images": ["an URL"]})), json!({})),
        chunk(delta(json!({})), json!({"type": "agentic_new"})),
        chunk(
            delta(json!({})),
            notice(json!({"kind": "retry", "message": "m", "new": 1})),
        ),
    ];
    for line in wrong {
        let checked = catch_unwind(|| described::check_line(&line));
        assert!(checked.is_err(), "{line}");
    }
}

#[test]
fn the_document_has_every_code_of_the_error_module() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/server/http/error/codes.rs");
    let text = fs::read_to_string(file).unwrap();
    // A status is followed by a code, or by the sentence of an error without one.
    let quoted = text.split("StatusCode::").filter_map(|rest| {
        let (_, rest) = rest.split_once(',')?;
        let (first, _) = rest.trim_start().strip_prefix('"')?.split_once('"')?;
        (!first.contains(' ')).then(|| first.to_owned())
    });
    let mut codes: BTreeSet<String> = quoted.collect();
    assert!(codes.len() > 20, "{codes:?}");
    // Named in texts: they come with paths or statuses that the document cannot list. The last is of the address for replicas.
    for code in ["method_not_allowed", "invalid_cluster_key"] {
        assert!(codes.remove(code), "{code}");
    }
    let missing: Vec<_> = codes.difference(described::codes()).collect();
    assert!(missing.is_empty(), "not in the document: {missing:?}");
}
