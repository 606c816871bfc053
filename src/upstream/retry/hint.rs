//! How long a failed model server asks to wait.

use std::time::Duration;

use ::http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use net::{leading_duration, retry_after, wait};

/// Words of a message before the wait, in lower case.
const BEFORE_WAIT: [&str; 4] = ["again in ", "again after ", "retry in ", "retry after "];

/// The wait that the headers of a response ask for.
pub(super) fn in_headers(headers: &HeaderMap) -> Option<Duration> {
    let millis = headers
        .get("retry-after-ms")
        .and_then(|millis| millis.to_str().ok());
    let millis = millis.and_then(|millis| wait(&format!("{}ms", millis.trim())));
    millis.or_else(|| retry_after(headers))
}

/// The wait until the limits that are used up are reset: the longest one.
pub(super) fn of_limits(headers: &HeaderMap) -> Option<Duration> {
    let resets = headers.iter().filter(|(name, _)| {
        let name = name.as_str();
        name.contains("ratelimit") && name.contains("reset") && is_used_up(headers, name)
    });
    resets
        .filter_map(|(_, value): (&HeaderName, &HeaderValue)| wait(value.to_str().ok()?))
        .max()
}

/// Whether the limit that this reset header belongs to is used up. If a server does not report the rest, the limit
/// counts as used up.
fn is_used_up(headers: &HeaderMap, reset: &str) -> bool {
    let remaining = headers.get(reset.replace("reset", "remaining"));
    let remaining =
        remaining.and_then(|remaining| remaining.to_str().ok()?.trim().parse::<f64>().ok());
    remaining.is_none_or(|remaining| remaining <= 0.0)
}

/// The wait that a body or an error in a stream asks for, in a field or in words.
pub(super) fn in_text(text: &str) -> Option<Duration> {
    let value = serde_json::from_str(text).ok();
    value
        .and_then(|value| in_json(&value))
        .or_else(|| in_words(text))
}

/// Servers have the field at different depths, and proxies keep the answer of the server behind them.
fn in_json(value: &Value) -> Option<Duration> {
    match value {
        Value::Object(members) => {
            let mut waits = members
                .iter()
                .filter_map(|(key, value)| in_member(key, value));
            waits.next().or_else(|| members.values().find_map(in_json))
        }
        Value::Array(entries) => entries.iter().find_map(in_json),
        _ => None,
    }
}

fn in_member(key: &str, value: &Value) -> Option<Duration> {
    let value = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    match key.to_lowercase().replace(['-', '_'], "").as_str() {
        // `retryDelay` is Google's; the header is OpenRouter's, in an object of headers.
        "retryafter" | "retryafterseconds" | "retrydelay" | "xratelimitreset" => wait(&value),
        "retryafterms" => wait(&format!("{value}ms")),
        _ => None,
    }
}

fn in_words(text: &str) -> Option<Duration> {
    let text = text.to_lowercase();
    let after = BEFORE_WAIT
        .iter()
        .filter_map(|words| text.split_once(words));
    let mut waits = after.filter_map(|(_, after)| leading_duration(after.trim_start()));
    waits.next().map(|(wait, _)| wait)
}
