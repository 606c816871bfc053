//! Recognises what a model server is, from its list of models and the headers of that answer.

use ::http::HeaderMap;
use ::http::header::SERVER;
use serde_json::Value;

use super::settings::ServerKind;

/// Number that the proxy LiteLLM gives as the time at which each of its models was made.
const LITELLM_CREATED: u64 = 1_677_610_602;
/// The model of OpenAI that was really made at that time.
const MADE_THEN: &str = "gpt-3.5-turbo";

/// The kind of the server that gave this answer to a request for its models. Without a clear sign there is no kind. A
/// list with one entry that does not fit has no kind either: it may come from a proxy in front of several servers.
pub(super) fn kind_of(headers: &HeaderMap, body: &[u8]) -> Option<ServerKind> {
    of_headers(headers).or_else(|| of_list(body))
}

fn of_headers(headers: &HeaderMap) -> Option<ServerKind> {
    let mut names = headers.keys();
    if names.any(|name| name.as_str().starts_with("x-litellm-")) {
        return Some(ServerKind::LiteLlm);
    }
    let server = headers.get(SERVER)?.to_str().ok()?;
    let is_llama_cpp = server.to_ascii_lowercase().starts_with("llama.cpp");
    is_llama_cpp.then_some(ServerKind::LlamaCpp)
}

fn of_list(body: &[u8]) -> Option<ServerKind> {
    let list: Value = serde_json::from_slice(body).ok()?;
    let entries = list["data"].as_array()?;
    let kind = entries.iter().find_map(of_entry)?;
    let fits = |entry| of_entry(entry) == Some(kind) || may_be_of(kind, entry);
    entries.iter().all(fits).then_some(kind)
}

/// The kind of the server that lists a model like this.
fn of_entry(entry: &Value) -> Option<ServerKind> {
    match entry["owned_by"].as_str() {
        Some("llamacpp") => return Some(ServerKind::LlamaCpp),
        Some("vllm") => return Some(ServerKind::Vllm),
        Some("sglang") => return Some(ServerKind::SgLang),
        // The name space of the models that Ollama itself offers.
        Some("library") => return Some(ServerKind::Ollama),
        // The server of llama-cpp-python.
        Some("me") if entry["permissions"].is_array() => return Some(ServerKind::LlamaCpp),
        Some("openai") if entry["created"] == LITELLM_CREATED && entry["id"] != MADE_THEN => {
            return Some(ServerKind::LiteLlm);
        }
        Some(_) | None => {}
    }
    if is_of_transformers(entry) {
        return Some(ServerKind::Transformers);
    }
    if entry["meta"]["n_ctx_train"].is_u64() {
        return Some(ServerKind::LlamaCpp);
    }
    let is_of_vllm = entry["max_model_len"].is_u64() && entry["permission"].is_array();
    is_of_vllm.then_some(ServerKind::Vllm)
}

/// Whether a server of this kind may also list a model like this.
fn may_be_of(kind: ServerKind, entry: &Value) -> bool {
    let (id, owner) = (text(&entry["id"]), text(&entry["owned_by"]));
    match kind {
        // A model of another name space, such as `someone/model:latest` of `someone`.
        ServerKind::Ollama => id
            .split_once(':')
            .is_some_and(|(name, _)| name.split('/').any(|part| part == owner)),
        ServerKind::LiteLlm => owner == "openai" && entry["created"] == LITELLM_CREATED,
        ServerKind::Transformers => owner.is_empty() && entry["owned_by"].is_string(),
        _ => false,
    }
}

/// It gives the parts of a model's name as a list, or its organisation beside a time with a fraction.
fn is_of_transformers(entry: &Value) -> bool {
    let id = text(&entry["id"]);
    let (name, _revision) = id.split_once('@').unwrap_or((id, ""));
    match &entry["owned_by"] {
        Value::Array(parts) => parts.iter().map(text).eq(name.split('/')),
        Value::String(owner) => {
            let is_organisation = name
                .split_once('/')
                .is_some_and(|(first, _)| first == owner);
            is_organisation && entry["created"].is_f64()
        }
        _ => false,
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use ::http::{HeaderName, HeaderValue};

    use super::*;

    fn listed(entries: &str) -> Option<ServerKind> {
        let body = format!(r#"{{"object":"list","data":[{entries}]}}"#);
        kind_of(&HeaderMap::new(), body.as_bytes())
    }

    #[test]
    fn the_list_of_models_tells_the_kind() {
        for (entries, kind) in [
            (
                r#"{"id":"m.gguf","object":"model","created":1,"owned_by":"llamacpp","meta":{"n_ctx_train":8192}}"#,
                Some(ServerKind::LlamaCpp),
            ),
            (
                r#"{"id":"m","object":"model","owned_by":"team","meta":{"n_vocab":1,"n_ctx_train":8192}}"#,
                Some(ServerKind::LlamaCpp),
            ),
            (
                r#"{"id":"/models/m.gguf","object":"model","owned_by":"me","permissions":[]}"#,
                Some(ServerKind::LlamaCpp),
            ),
            (
                r#"{"id":"Qwen/Qwen3-8B","owned_by":"vllm","root":"Qwen/Qwen3-8B","parent":null,"max_model_len":40960,"permission":[{"id":"modelperm-1"}]},
                   {"id":"adapter","owned_by":"vllm","root":"/a","parent":"Qwen/Qwen3-8B"}"#,
                Some(ServerKind::Vllm),
            ),
            (
                r#"{"id":"m","owned_by":"corp","max_model_len":40960,"permission":[]}"#,
                Some(ServerKind::Vllm),
            ),
            (
                r#"{"id":"m","owned_by":"sglang","root":"m","max_model_len":40960}"#,
                Some(ServerKind::SgLang),
            ),
            (
                r#"{"id":"qwen3:8b","object":"model","created":1,"owned_by":"library"}"#,
                Some(ServerKind::Ollama),
            ),
            (
                r#"{"id":"ann/tuned:latest","created":1,"owned_by":"ann"},{"id":"hf.co/org/m:Q4","owned_by":"org"},{"id":"qwen3:8b","owned_by":"library"}"#,
                Some(ServerKind::Ollama),
            ),
            (
                r#"{"owned_by":["Qwen","Qwen3-8B"],"id":"Qwen/Qwen3-8B@v2","object":"model","created":1762000000.25},{"owned_by":"","id":"gpt2","created":1.0}"#,
                Some(ServerKind::Transformers),
            ),
            (
                r#"{"id":"Qwen/Qwen3-8B","object":"model","created":1762000000.25,"owned_by":"Qwen"}"#,
                Some(ServerKind::Transformers),
            ),
            (
                r#"{"id":"claude","object":"model","created":1677610602,"owned_by":"openai"},{"id":"gpt-3.5-turbo","created":1677610602,"owned_by":"openai"}"#,
                Some(ServerKind::LiteLlm),
            ),
            // These tell nothing.
            ("", None),
            (r#"{"id":"m"}"#, None),
            (r#"{"id":"m","owned_by":"organization_owner"}"#, None),
            (r#"{"id":"m","owned_by":"me"}"#, None),
            (r#"{"id":"org/m","created":0,"owned_by":"org/m"}"#, None),
            (
                r#"{"id":"org/m","created":1762000000,"owned_by":"org"}"#,
                None,
            ),
            (r#"{"id":"ann/tuned:latest","owned_by":"ann"}"#, None),
            (
                r#"{"id":"gpt-3.5-turbo","created":1677610602,"owned_by":"openai"}"#,
                None,
            ),
            (
                r#"{"id":"gpt-5","created":1754073306,"owned_by":"system"}"#,
                None,
            ),
            (
                r#"{"id":"m","owned_by":"vllm-router","max_model_len":4096}"#,
                None,
            ),
            (
                r#"{"id":{"vllm":1},"owned_by":7,"meta":[],"permission":"x"}"#,
                None,
            ),
            (r#"null,1,"vllm",[]"#, None),
        ] {
            assert_eq!(listed(entries), kind, "{entries}");
        }
    }

    #[test]
    fn a_list_of_several_kinds_tells_none() {
        let vllm = r#"{"id":"a","owned_by":"vllm"}"#;
        for other in [
            r#"{"id":"b","owned_by":"llamacpp"}"#,
            r#"{"id":"qwen3:8b","owned_by":"library"}"#,
            r#"{"id":"gpt-5","owned_by":"system"}"#,
            r#"{"id":"b"}"#,
        ] {
            assert_eq!(listed(&format!("{vllm},{other}")), None, "{other}");
            assert_eq!(listed(&format!("{other},{vllm}")), None, "{other}");
        }
    }

    #[test]
    fn headers_tell_the_kind_where_the_list_does_not() {
        for (name, value, kind) in [
            ("server", "llama.cpp", Some(ServerKind::LlamaCpp)),
            ("server", "uvicorn", None),
            ("server", "nginx/1.27", None),
            ("x-litellm-version", "1.80.0", Some(ServerKind::LiteLlm)),
        ] {
            let name = HeaderName::from_static(name);
            let headers = HeaderMap::from_iter([(name, HeaderValue::from_static(value))]);
            for body in [
                "",
                "<html>",
                "[]",
                "null",
                r#"{"data":null}"#,
                r#"{"data":{}}"#,
            ] {
                assert_eq!(kind_of(&headers, body.as_bytes()), kind, "{value}: {body}");
            }
        }
    }
}
