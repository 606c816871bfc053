//! The arguments of a call as JSON.

use std::borrow::Cow;

use serde_json::value::RawValue;

/// Arguments as a JSON value: the text itself if it is JSON, else the text as a JSON string.
pub(super) fn as_json(text: &str) -> Box<RawValue> {
    // In JSON, line breaks occur between tokens only. On an event stream they would end the data line.
    let line = match memchr::memchr2(b'\n', b'\r', text.as_bytes()) {
        None => Cow::Borrowed(text),
        Some(_) => Cow::Owned(text.replace(['\n', '\r'], " ")),
    };
    let value = serde_json::from_str::<Box<RawValue>>(&line);
    value
        .or_else(|_| serde_json::value::to_raw_value(text))
        .unwrap_or_default()
}
