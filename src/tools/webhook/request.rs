//! A call as it is sent: body or query, headers, signature.

use std::collections::HashSet;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use ::http::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HeaderName,
    TRANSFER_ENCODING, USER_AGENT,
};
use ::http::{HeaderMap, HeaderValue, Method};
use bytes::Bytes;
use rand::RngExt;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde_json::{Map, Value};
use standardwebhooks::{
    HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP, Webhook,
};
use url::{Url, form_urlencoded};

use super::retry::{Failure, Problem};
use super::{Endpoint, EndpointError};
use crate::ids::{SessionId, fresh_delivery_id};
use crate::tools::cap::first_chars;
use crate::tools::{ToolError, ToolInvocation};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// What an answer may be.
const ACCEPTED: &str = "application/json, text/event-stream, text/plain;q=0.9, */*;q=0.1";
/// Longest URL of a call with its query, in bytes; longer ones are refused on the way by most servers.
const MAX_URL_BYTES: usize = 32 * 1024;
/// Longest part of an argument's name that the model is shown, in characters.
const MAX_SHOWN_CHARS: usize = 64;

/// One call, ready to be sent as often as it takes.
pub(super) struct Outgoing {
    url: Url,
    body: Option<Bytes>,
    headers: HeaderMap,
    delivery_id: String,
}

/// Signs calls as Standard Webhooks has it.
pub(super) struct Signer(Webhook);

/// The body of a call.
#[derive(Serialize)]
struct Body<'a> {
    name: &'a str,
    arguments: &'a Map<String, Value>,
    tool_call_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    request_id: &'a str,
    round: u32,
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
}

impl Outgoing {
    /// Writes a call.
    ///
    /// # Errors
    /// When the arguments do not fit into a URL, or name what the operator's URL has set.
    pub(super) fn new(endpoint: &Endpoint, invocation: &ToolInvocation) -> Result<Self, ToolError> {
        let mut url = endpoint.url.clone();
        let body = if endpoint.method == Method::GET {
            if let Some(key) = fixed_key(&url, &invocation.arguments) {
                return Err(ToolError::Rejected(format!(
                    "The argument '{}' is already set for this tool; call it without that argument.",
                    first_chars(key, MAX_SHOWN_CHARS)
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
            Some(body(invocation)?)
        };
        let delivery_id = fresh_delivery_id();
        let mut headers = endpoint.headers.clone();
        if let Ok(id) = HeaderValue::try_from(delivery_id.as_str()) {
            headers.insert(IDEMPOTENCY_KEY, id);
        }
        add_trace(&mut headers, &invocation.context.trace);
        Ok(Self {
            url,
            body,
            headers,
            delivery_id,
        })
    }

    /// The request of one attempt, signed anew.
    ///
    /// # Errors
    /// When it cannot be signed.
    pub(super) fn request(&self, endpoint: &Endpoint) -> Result<reqwest::Request, Failure> {
        let mut headers = self.headers.clone();
        if let Some(signer) = &endpoint.signer {
            let body = self.body.as_deref().unwrap_or_default();
            signer
                .sign(&mut headers, &self.delivery_id, body)
                .ok_or(Problem::Unsigned)?;
        }
        let mut request = reqwest::Request::new(endpoint.method.clone(), self.url.clone());
        *request.headers_mut() = headers;
        *request.body_mut() = self.body.clone().map(reqwest::Body::from);
        Ok(request)
    }
}

impl Signer {
    /// Reads a secret.
    ///
    /// # Errors
    /// When it is not of the standard's form, or empty.
    pub(super) fn new(secret: &SecretString) -> Result<Self, EndpointError> {
        let text = secret.expose_secret();
        // An empty key would sign, and protect nothing.
        if matches!(text, "" | "whsec_") {
            return Err(EndpointError::Secret);
        }
        let webhook = Webhook::new(text).map_err(|_| EndpointError::Secret)?;
        Ok(Self(webhook))
    }

    /// Adds the three headers; `None` when that is not possible.
    fn sign(&self, headers: &mut HeaderMap, id: &str, body: &[u8]) -> Option<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
        let signature = self.0.sign(id, i64::try_from(now).ok()?, body).ok()?;
        headers.insert(HEADER_WEBHOOK_ID, HeaderValue::try_from(id).ok()?);
        headers.insert(HEADER_WEBHOOK_TIMESTAMP, now.into());
        headers.insert(
            HEADER_WEBHOOK_SIGNATURE,
            HeaderValue::try_from(signature).ok()?,
        );
        Some(())
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Signer")
    }
}

/// The headers that are the same for every call, the operator's own over ours.
pub(super) fn fixed_headers(method: &Method, own: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static(ACCEPTED));
    headers.insert(USER_AGENT, HeaderValue::from_static(super::USER_AGENT));
    if method != Method::GET {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    for name in own.keys() {
        headers.remove(name);
    }
    for (name, value) in own {
        headers.append(name.clone(), value.clone());
    }
    // These belong to the connection, or ask for an answer that is not understood.
    for name in [
        CONTENT_LENGTH,
        TRANSFER_ENCODING,
        CONNECTION,
        EXPECT,
        ACCEPT_ENCODING,
    ] {
        headers.remove(name);
    }
    headers
}

fn body(invocation: &ToolInvocation) -> Result<Bytes, ToolError> {
    let body = Body {
        name: &invocation.name,
        arguments: &invocation.arguments,
        tool_call_id: &invocation.call_id,
        session_id: invocation
            .context
            .session_id
            .as_ref()
            .map(SessionId::as_str),
        request_id: invocation.context.request_id.as_str(),
        round: invocation.context.round,
        model: &invocation.context.model,
        user: invocation.context.user.as_deref(),
    };
    let json = serde_json::to_vec(&body).map_err(|error| ToolError::Failed {
        message: "the call could not be written as JSON".to_owned(),
        source: Some(Box::new(error)),
    })?;
    Ok(json.into())
}

/// An argument that the configured URL's query has a value for already.
///
/// Which of two values counts differs between servers, so a model could replace what the operator has set.
fn fixed_key<'a>(url: &Url, arguments: &'a Map<String, Value>) -> Option<&'a str> {
    let fixed: HashSet<String> = url
        .query_pairs()
        .map(|(name, _)| read_name(&name))
        .collect();
    if fixed.is_empty() {
        return None;
    }
    arguments
        .iter()
        // A null is not sent.
        .filter(|(_, value)| !value.is_null())
        .map(|(key, _)| key.as_str())
        .find(|key| fixed.contains(&read_name(key)))
}

/// The one form of all names that some server may read as the same.
///
/// Some decode twice, some ignore case, and some read `a[]` and `a[0]` as `a` and `a.b` as `a_b`.
fn read_name(name: &str) -> String {
    let decoded = form_urlencoded::parse(name.as_bytes())
        .next()
        .map_or_else(String::new, |(name, _)| name.into_owned());
    let bare = decoded.split_once('[').map_or(&*decoded, |(name, _)| name);
    bare.trim().replace(['.', ' '], "_").to_lowercase()
}

/// Writes arguments as a query: scalars as text, lists as repeated keys, objects as JSON text; `null` is left out.
fn add_query(url: &mut Url, arguments: &Map<String, Value>) {
    let mut pairs: Vec<(&str, String)> = Vec::new();
    for (key, value) in arguments {
        match value {
            Value::Array(items) => {
                pairs.extend(
                    items
                        .iter()
                        .filter_map(|item| Some((key.as_str(), query_text(item)?))),
                );
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_) => {
                pairs.extend(query_text(value).map(|text| (key.as_str(), text)));
            }
        }
    }
    // Asking for the query of a URL that has none would leave a bare question mark.
    if !pairs.is_empty() {
        url.query_pairs_mut().extend_pairs(pairs);
    }
}

fn query_text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Some(value.to_string())
        }
    }
}

/// Passes the caller's trace on, or begins one that is not sampled.
fn add_trace(headers: &mut HeaderMap, trace: &HeaderMap) {
    let Some(parent) = trace.get(TRACEPARENT) else {
        let mut random = rand::rng();
        // The lowest bit makes sure that no id is all zeros, which the standard forbids.
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
