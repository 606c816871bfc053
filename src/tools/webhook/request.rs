//! Builds the HTTP request of a call: body or query, headers, signature.

use std::collections::HashSet;
use std::time::Duration;

use ::http::header::{ACCEPT, CONTENT_TYPE, HeaderName, USER_AGENT};
use ::http::{HeaderMap, HeaderValue, Method, Request, Uri};
use bytes::Bytes;
use rand::RngExt;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use url::{Url, form_urlencoded};

use super::Endpoint;
use super::retry::{AttemptError, WebhookError};
use crate::{ToolError, ToolInvocation};
use net::{RequestBody, with_configured};
use protocol::ids::{SessionId, WorkspaceId, fresh_delivery_id, shown};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// The value of the `accept` header.
const ACCEPTED: &str = "application/json, text/event-stream, text/plain;q=0.9, */*;q=0.1";
/// Longest URL of a call with its query, in bytes; most servers refuse longer URLs. The model is asked for shorter
/// arguments.
const MAX_URL_BYTES: usize = 32 * 1024;

/// A call whose requests can be built for any number of attempts.
pub(super) struct PreparedCall {
    uri: Uri,
    body: Option<Bytes>,
    headers: HeaderMap,
    delivery_id: String,
}

/// The body of a call.
#[derive(Debug, Serialize, JsonSchema)]
pub struct WebhookCall<'a> {
    /// The name of the tool.
    name: &'a str,
    /// The arguments, as the model gave them or repaired.
    arguments: &'a Map<String, Value>,
    /// The id of the call.
    tool_call_id: &'a str,
    /// The session, which is the caller's own word. Two API keys may use the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    /// Names the session among those of all API keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    session_key: Option<&'a str>,
    /// The name of the caller's API key: the only field to authorise by, because it is not the caller's own word.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'a str>,
    /// The id of the client's request.
    request_id: &'a str,
    /// The round, from 0.
    round: u32,
    /// The model that asked for the call; empty for a call that no model asked for.
    model: &'a str,
    /// The end user, which is the caller's own word.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    /// The most time that one attempt may take.
    timeout_ms: u64,
}

impl PreparedCall {
    /// Prepares a call: its URL, body and headers.
    ///
    /// # Errors
    /// `Rejected` when the URL with the arguments is too long, or an argument has the name of a query parameter of the
    /// configured URL; `Failed` when the body cannot be serialized.
    pub(super) fn new(endpoint: &Endpoint, invocation: &ToolInvocation) -> Result<Self, ToolError> {
        let mut url = endpoint.url.clone();
        let body = if endpoint.method == Method::GET {
            if let Some(key) = reserved_argument(&url, &invocation.arguments) {
                return Err(ToolError::Rejected(format!(
                    "The argument '{}' is already set for this tool; call it without that argument.",
                    shown(key)
                )));
            }
            add_query(&mut url, &invocation.arguments);
            if url.as_str().len() > MAX_URL_BYTES {
                return Err(ToolError::Rejected(
                    "The arguments are too long for this tool; call it with shorter ones."
                        .to_owned(),
                ));
            }
            None
        } else {
            Some(body(invocation, endpoint.policy.timeout)?)
        };
        let uri = Uri::try_from(url.as_str()).map_err(|_| WebhookError::Url)?;
        let delivery_id = fresh_delivery_id();
        let mut headers = endpoint.headers.clone();
        if let Ok(id) = HeaderValue::try_from(delivery_id.as_str()) {
            headers.insert(IDEMPOTENCY_KEY, id);
        }
        add_trace_context(&mut headers, invocation.trace());
        Ok(Self {
            uri,
            body,
            headers,
            delivery_id,
        })
    }

    /// Builds the request of one attempt, with a new signature.
    ///
    /// # Errors
    /// When the request cannot be signed.
    pub(super) fn request(
        &self,
        endpoint: &Endpoint,
    ) -> Result<Request<RequestBody>, AttemptError> {
        let mut headers = self.headers.clone();
        if let Some(signer) = &endpoint.signer {
            let body = self.body.as_deref().unwrap_or_default();
            let signed = signer.sign(&self.delivery_id, body, &mut headers);
            signed.ok_or(WebhookError::Unsigned)?;
        }
        let body = self.body.clone().map(RequestBody::from);
        let mut request = Request::new(body.unwrap_or_default());
        *request.method_mut() = endpoint.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = headers;
        Ok(request)
    }
}

/// The headers that are the same for every call.
pub(super) fn base_headers(method: &Method, configured: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static(ACCEPTED));
    headers.insert(USER_AGENT, HeaderValue::from_static(super::USER_AGENT));
    if method != Method::GET {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    with_configured(headers, configured)
}

fn body(invocation: &ToolInvocation, timeout: Duration) -> Result<Bytes, ToolError> {
    let context = &invocation.context;
    let session_id = context.session_id.as_ref();
    let session_key = session_id.map(|session| WorkspaceId::of(&context.owner, session));
    let body = WebhookCall {
        name: &invocation.name,
        arguments: &invocation.arguments,
        tool_call_id: &invocation.call_id,
        session_id: session_id.map(SessionId::as_str),
        session_key: session_key.as_ref().map(WorkspaceId::as_str),
        owner: context.owner.name(),
        request_id: context.request_id.as_str(),
        round: context.round,
        model: &context.model,
        user: context.user.as_deref(),
        timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
    };
    let json = serde_json::to_vec(&body).map_err(|error| ToolError::Failed {
        message: "the call could not be written as JSON".to_owned(),
        source: Some(Box::new(error)),
    })?;
    Ok(json.into())
}

/// The first argument whose name is a query parameter of the configured URL.
///
/// Servers differ in which of two values they use, so such an argument could override the configured value.
fn reserved_argument<'a>(url: &Url, arguments: &'a Map<String, Value>) -> Option<&'a str> {
    let fixed: HashSet<String> = url
        .query_pairs()
        .map(|(name, _)| normalized_name(&name))
        .collect();
    if fixed.is_empty() {
        return None;
    }
    arguments
        .iter()
        // A null argument is not sent.
        .filter(|(_, value)| !value.is_null())
        .map(|(key, _)| key.as_str())
        .find(|key| fixed.contains(&normalized_name(key)))
}

/// Maps all parameter names that some server treats as equal to the same text.
///
/// Some servers decode twice, some ignore case, and some read `a[]` and `a[0]` as `a` and `a.b` as `a_b`.
fn normalized_name(name: &str) -> String {
    let decoded = form_urlencoded::parse(name.as_bytes())
        .next()
        .map_or_else(String::new, |(name, _)| name.into_owned());
    let bare = decoded.split_once('[').map_or(&*decoded, |(name, _)| name);
    bare.trim().replace(['.', ' '], "_").to_lowercase()
}

/// Appends arguments to the query: scalars as text, lists as repeated keys, objects as JSON text. `null` is omitted.
fn add_query(url: &mut Url, arguments: &Map<String, Value>) {
    let mut pairs: Vec<(&str, String)> = Vec::new();
    for (key, value) in arguments {
        match value {
            Value::Array(items) => {
                pairs.extend(
                    items
                        .iter()
                        .filter_map(|item| Some((key.as_str(), query_value(item)?))),
                );
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_) => {
                pairs.extend(query_value(value).map(|text| (key.as_str(), text)));
            }
        }
    }
    // `query_pairs_mut` adds a question mark even if no pair is appended.
    if !pairs.is_empty() {
        url.query_pairs_mut().extend_pairs(pairs);
    }
}

fn query_value(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Some(value.to_string())
        }
    }
}

/// Adds the trace context of the call, or a new one that is not sampled.
fn add_trace_context(headers: &mut HeaderMap, trace: &HeaderMap) {
    let Some(parent) = trace.get(TRACEPARENT) else {
        let mut random = rand::rng();
        // The lowest bit is set because W3C Trace Context forbids ids that are all zeros.
        let (trace_id, parent_id) = (random.random::<u128>() | 1, random.random::<u64>() | 1);
        if let Ok(fresh) = HeaderValue::try_from(format!("00-{trace_id:032x}-{parent_id:016x}-00"))
        {
            headers.insert(TRACEPARENT, fresh);
        }
        return;
    };
    headers.insert(TRACEPARENT, parent.clone());
    headers.remove(TRACESTATE);
    for state in trace.get_all(TRACESTATE) {
        headers.append(TRACESTATE, state.clone());
    }
}
