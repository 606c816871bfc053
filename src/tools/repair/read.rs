//! Reads an object from a text that is not one.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{Repair, RepairedObject};

/// Most layers (fences, strings, a missing end) that are removed from one text.
const MAX_LAYERS: usize = 4;

/// Most memory of parsed arguments, in bytes; small objects take eighty times their text.
const MAX_WEIGHT: usize = 16 * 1024 * 1024;

/// Estimated memory of a text after parsing, in bytes.
fn weight(text: &str) -> usize {
    /// A map's smallest node with its slot in the parent.
    const OBJECT: usize = 640;
    /// A value's slot in an array or map; an array allocates four at first.
    const VALUE: usize = 64;
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

/// Whether a text takes too much memory after parsing.
pub(super) fn is_heavy(text: &str) -> bool {
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
            Err(error) => Self::Invalid(error),
        }
    }
}

/// Removes the layers around an object, and closes an object that was cut off.
pub(super) fn object(raw: &str) -> ArgumentText {
    let mut object = RepairedObject {
        value: Value::Null,
        repairs: Vec::new(),
    };
    let mut text = Cow::Borrowed(raw.trim());
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
                } else if error.is_eof()
                    && let Some(closed) = closed(&text)
                {
                    object.note(Repair::TruncationFixed);
                    Cow::Owned(closed)
                } else {
                    break;
                }
            }
        };
    }
    // The error for the model is about the model's own text.
    ArgumentText::without_repair(serde_json::from_str(raw))
}

/// The content of a Markdown code fence, whose end may be missing.
fn unfenced(text: &str) -> Option<&str> {
    let after = text.trim().strip_prefix("```")?;
    let inside = after.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
    let inside = inside.trim();
    Some(inside.strip_suffix("```").unwrap_or(inside).trim())
}

/// The text with everything closed that is open at its end; `None` if nothing is.
fn closed(text: &str) -> Option<String> {
    let text = text.trim_end();
    let mut open = Vec::new();
    let mut string = InString::No;
    for (at, c) in text.char_indices() {
        string = match (string, c) {
            (InString::No, '"') => InString::Plain,
            (InString::No, _) => {
                match c {
                    '{' => open.push('}'),
                    '[' => open.push(']'),
                    '}' | ']' if open.pop() != Some(c) => return None,
                    _ => {}
                }
                InString::No
            }
            (InString::Plain, '"') => InString::No,
            (InString::Plain, '\\') => InString::Escape(at),
            (InString::Escape(start), 'u') => InString::Unicode(start, 4),
            (InString::Unicode(start, missing), _) if missing > 1 => {
                InString::Unicode(start, missing - 1)
            }
            (InString::Plain | InString::Escape(_) | InString::Unicode(..), _) => InString::Plain,
        };
    }
    if open.is_empty() && matches!(string, InString::No) {
        return None;
    }
    let mut closed = match string {
        // An incomplete escape is removed.
        InString::Escape(start) | InString::Unicode(start, _) => text.split_at(start).0.to_owned(),
        InString::No | InString::Plain => text.to_owned(),
    };
    if matches!(string, InString::No) {
        if closed.ends_with(',') {
            closed.pop();
        } else if closed.ends_with(':') {
            closed.push_str("null");
        }
    } else {
        closed.push('"');
    }
    closed.extend(open.iter().rev());
    Some(closed)
}

/// The position relative to strings; escapes hold the offset at which they begin.
#[derive(Debug, Clone, Copy)]
enum InString {
    No,
    Plain,
    Escape(usize),
    /// With the number of missing digits.
    Unicode(usize, u8),
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
