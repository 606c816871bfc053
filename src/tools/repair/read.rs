//! Getting an object out of a text that is not one.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{Mended, Repair};

/// Most layers (fences, strings, a missing end) that are taken off one text.
const MAX_LAYERS: usize = 4;

/// Most memory that parsed arguments may take, in bytes; small objects take eighty times their text.
const MAX_WEIGHT: usize = 16 * 1024 * 1024;

/// About how many bytes a text takes once it is parsed.
fn weight(text: &str) -> usize {
    /// A map's smallest node with its place in what holds it.
    const OBJECT: usize = 640;
    /// A value's place in a list or map; an array has room for four from the first on.
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

/// Whether a text would take too much memory once it is parsed.
pub(super) fn is_heavy(text: &str) -> bool {
    weight(text) > MAX_WEIGHT.max(text.len().saturating_mul(2))
}

/// Parses what stood inside a string and takes its memory from the room; `None` where there is not enough.
pub(super) fn inner_value(text: &str, room: &mut usize) -> Option<Value> {
    let rest = room.checked_sub(weight(text))?;
    let value = serde_json::from_str(text).ok()?;
    *room = rest;
    Some(value)
}

/// What a text turned out to be.
#[derive(Debug)]
pub(super) enum Reading {
    /// An object.
    Object(Mended),
    /// Valid JSON of another kind, which is named.
    Other(&'static str),
    /// Not JSON.
    Invalid(serde_json::Error),
}

impl Reading {
    /// What a parser's answer means when nothing is to be mended.
    pub(super) fn without_repair(parsed: serde_json::Result<Value>) -> Self {
        match parsed {
            Ok(value) if value.is_object() => Self::Object(Mended {
                value,
                repairs: Vec::new(),
            }),
            Ok(value) => Self::Other(kind(&value)),
            Err(error) => Self::Invalid(error),
        }
    }
}

/// Takes off what stands around an object and closes one that was cut off.
pub(super) fn object(raw: &str) -> Reading {
    let mut mended = Mended {
        value: Value::Null,
        repairs: Vec::new(),
    };
    let mut text = Cow::Borrowed(raw.trim());
    for _ in 0..MAX_LAYERS {
        text = match serde_json::from_str(&text) {
            Ok(Value::Object(object)) => {
                mended.value = Value::Object(object);
                return Reading::Object(mended);
            }
            Ok(Value::String(inner)) => {
                mended.note(Repair::DoubleEncodingRemoved);
                if inner.trim().is_empty() {
                    mended.value = Value::Object(Map::new());
                    return Reading::Object(mended);
                }
                if is_heavy(&inner) {
                    break;
                }
                Cow::Owned(inner)
            }
            Ok(_) => break,
            Err(error) => {
                if let Some(inner) = unfenced(&text) {
                    mended.note(Repair::CodeFenceRemoved);
                    Cow::Owned(inner.to_owned())
                } else if error.is_eof()
                    && let Some(closed) = closed(&text)
                {
                    mended.note(Repair::TruncationFixed);
                    Cow::Owned(closed)
                } else {
                    break;
                }
            }
        };
    }
    // What the model is told is about the text that it wrote.
    Reading::without_repair(serde_json::from_str(raw))
}

/// What stands inside a Markdown code fence; its end may be missing.
fn unfenced(text: &str) -> Option<&str> {
    let after = text.trim().strip_prefix("```")?;
    let inside = after.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
    let inside = inside.trim();
    Some(inside.strip_suffix("```").unwrap_or(inside).trim())
}

/// The text with what was open at its end closed; `None` where it was not cut off inside an object, array or string.
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
        // Half an escape says nothing.
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

/// Where in a string the reader is; escapes remember where they began.
#[derive(Debug, Clone, Copy)]
enum InString {
    No,
    Plain,
    Escape(usize),
    /// With the number of digits that are missing.
    Unicode(usize, u8),
}

/// What a value is called in plain English.
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
