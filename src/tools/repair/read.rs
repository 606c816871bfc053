//! Reads an object from a text that is not one.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::{Repair, RepairedObject};

/// Most layers (fences, strings, a missing end) that are removed from one text. A text with more is refused.
const MAX_LAYERS: usize = 4;

/// Most memory of parsed arguments, in bytes, as small objects take eighty times their text. Larger ones are refused.
/// Tried by `repair::text::deep_nesting_and_large_texts_are_survived`.
const MAX_WEIGHT: usize = 16 * 1024 * 1024;

/// Memory of a map's smallest node with its slot in the parent, in bytes.
pub(super) const OBJECT: usize = 640;

/// Estimated memory of a text after parsing, in bytes.
fn weight(text: &str) -> usize {
    /// Memory of a value's slot in an array or map, in bytes.
    const VALUE: usize = 64;
    /// Memory of an array, which allocates four slots at first, in bytes.
    const ARRAY: usize = 160;
    let mut weight = text.len();
    let mut in_string = false;
    let mut escaped = false;
    for byte in text.bytes() {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b'{') => weight += OBJECT,
            (false, b'[') => weight += ARRAY,
            (false, b',') => weight += VALUE,
            _ => {}
        }
    }
    weight
}

/// Whether a JSON text takes too much memory after parsing.
pub fn is_heavy(text: &str) -> bool {
    weight(text) > MAX_WEIGHT.max(text.len().saturating_mul(2))
}

/// Parses the content of a string and takes its memory from `budget`, in bytes. `None` if the budget is too small or the
/// content is not JSON.
pub(super) fn inner_value(text: &str, budget: &mut usize) -> Option<Value> {
    let rest = budget.checked_sub(weight(text))?;
    let value = serde_json::from_str(text).ok()?;
    *budget = rest;
    Some(value)
}

/// A parsed argument text.
#[derive(Debug)]
pub(super) enum ArgumentText {
    /// An object, perhaps after repairs.
    Object(RepairedObject),
    /// JSON of another kind, with its name.
    Other(&'static str),
    /// The beginning of JSON, whose end cannot be known.
    Cut,
    /// Not JSON.
    Invalid(serde_json::Error),
}

impl ArgumentText {
    /// A parser's result, without any repair.
    pub(super) fn without_repair(parsed: serde_json::Result<Value>) -> Self {
        match parsed {
            Ok(value) if value.is_object() => Self::Object(RepairedObject {
                value,
                repairs: Vec::new(),
            }),
            Ok(value) => Self::Other(kind(&value)),
            Err(error) if error.is_eof() => Self::Cut,
            Err(error) => Self::Invalid(error),
        }
    }
}

/// Removes the layers around an object, and closes an object that ends after a whole value.
pub(super) fn object(raw: &str) -> ArgumentText {
    let mut object = RepairedObject {
        value: Value::Null,
        repairs: Vec::new(),
    };
    let mut text = Cow::Borrowed(raw.trim_start());
    for _ in 0..MAX_LAYERS {
        text = match serde_json::from_str(&text) {
            Ok(Value::Object(entries)) => {
                object.value = Value::Object(entries);
                return ArgumentText::Object(object);
            }
            Ok(Value::String(inner)) => {
                object.note(Repair::DoubleEncodingRemoved);
                if inner.trim().is_empty() {
                    object.value = Value::Object(Map::new());
                    return ArgumentText::Object(object);
                }
                if is_heavy(&inner) {
                    break;
                }
                Cow::Owned(inner)
            }
            Ok(_) => break,
            Err(error) => {
                if let Some(inner) = unfenced(&text) {
                    object.note(Repair::CodeFenceRemoved);
                    Cow::Owned(inner.to_owned())
                } else if !error.is_eof() {
                    break;
                } else if let Some(closed) = closed(&text) {
                    object.note(Repair::TruncationFixed);
                    Cow::Owned(closed)
                } else if text.trim_start().starts_with(['{', '[', '"']) {
                    return ArgumentText::Cut;
                } else {
                    break;
                }
            }
        };
    }
    // The error for the model is about the model's own text.
    ArgumentText::without_repair(serde_json::from_str(raw))
}

/// The content of a Markdown code fence, whose end may be missing. White space at the end stays: it ends a number.
fn unfenced(text: &str) -> Option<&str> {
    let after = text.trim_start().strip_prefix("```")?;
    let inside = after.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
    let ended = inside.trim_end().strip_suffix("```");
    Some(ended.unwrap_or(inside).trim_start())
}

/// The text with closing brackets for the brackets that are open at its end. `None` if the end may be in the middle of
/// a value or before one: the missing part is unknown.
fn closed(text: &str) -> Option<String> {
    let mut open = Vec::new();
    let (mut in_string, mut escaped) = (false, false);
    for c in text.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            _ if in_string => {}
            '{' => open.push('}'),
            '[' => open.push(']'),
            '}' | ']' if open.pop() != Some(c) => return None,
            _ => {}
        }
    }
    let goes_on = in_string || text.ends_with(|c: char| c.is_ascii_digit());
    if goes_on || text.trim_end().ends_with(['{', '[']) {
        return None;
    }
    let mut closed = text.to_owned();
    closed.extend(open.iter().rev());
    // This fails after half a word, a key, a colon or a comma.
    serde_json::from_str::<IgnoredAny>(&closed).ok()?;
    Some(closed)
}

/// The English name of a kind of value.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
