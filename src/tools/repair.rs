//! Mending the arguments that a model wrote.
//!
//! Arguments that are usable as they are stay byte for byte what the model wrote. What is not is mended only where the
//! result says surely what was meant and fits the schema; otherwise the model is told what is wrong. Owns the order of
//! the steps; knows nothing of tools or of calls.

mod fix;
mod name;
mod read;
mod report;

use serde_json::{Map, Value};

use super::schema::{Checker, CompiledSchema};
use read::Reading;

pub use name::match_name;

/// Longest text that is mended, in bytes; longer ones are parsed and checked only.
const MAX_MENDED_BYTES: usize = 1024 * 1024;
/// Most memory of arguments that are mended, in bytes: there are up to three copies of them at a time.
const MAX_MENDED_WEIGHT: usize = 4 * 1024 * 1024;
/// Keys of an object that some models put around the arguments.
const WRAPPERS: [&str; 3] = ["arguments", "parameters", "input"];

/// What was mended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Repair {
    /// A text that ended early was closed.
    TruncationFixed,
    /// A `null` for an optional field was left out.
    NullStripped,
    /// A string that holds an array became that array.
    JsonStringToArray,
    /// An empty object where an array is wanted became an empty array.
    ObjectToArray,
    /// A string where an array is wanted became the array's only item.
    BareStringToArray,
    /// A path that was written as a Markdown link became the path.
    MdLinkUnwrapped,
    /// A string that holds a number became that number.
    StringToNumber,
    /// A string that holds `true` or `false` became that boolean.
    StringToBoolean,
    /// An object that was written as a JSON string was taken out of it.
    DoubleEncodingRemoved,
    /// A Markdown code fence around the arguments was left out.
    CodeFenceRemoved,
    /// An object such as `{"arguments": {…}}` around the arguments was left out.
    WrapperRemoved,
    /// An empty string for an optional object or array was left out.
    EmptyStringRemoved,
}

/// Arguments after repair.
#[derive(Debug, Clone, PartialEq)]
pub struct Repaired {
    /// The arguments, or why they cannot be used.
    pub arguments: Result<Map<String, Value>, ArgumentError>,
    /// The JSON text for the history, always that of an object: the model's own where nothing was mended.
    pub text: String,
    /// What was mended in `text`, each once and in order.
    pub repairs: Vec<Repair>,
}

/// Why arguments cannot be used; the text is for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ArgumentError {
    /// What is wrong and what to do about it.
    pub message: String,
}

/// An object and what had to be mended to get it.
#[derive(Debug, Clone, PartialEq)]
struct Mended {
    value: Value,
    repairs: Vec<Repair>,
}

impl Repair {
    /// The word for the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TruncationFixed => "truncation_fixed",
            Self::NullStripped => "null_stripped",
            Self::JsonStringToArray => "json_string_to_array",
            Self::ObjectToArray => "object_to_array",
            Self::BareStringToArray => "bare_string_to_array",
            Self::MdLinkUnwrapped => "md_link_unwrapped",
            Self::StringToNumber => "string_to_number",
            Self::StringToBoolean => "string_to_boolean",
            Self::DoubleEncodingRemoved => "double_encoding_removed",
            Self::CodeFenceRemoved => "code_fence_removed",
            Self::WrapperRemoved => "wrapper_removed",
            Self::EmptyStringRemoved => "empty_string_removed",
        }
    }
}

impl Mended {
    fn note(&mut self, repair: Repair) {
        if !self.repairs.contains(&repair) {
            self.repairs.push(repair);
        }
    }
}

impl Repaired {
    fn refused(message: String, text: String, repairs: Vec<Repair>) -> Self {
        Self {
            arguments: Err(ArgumentError { message }),
            text,
            repairs,
        }
    }
}

/// Mends arguments where that is safe, and checks them.
///
/// An empty text means no arguments, `{}`. Without a schema nothing is checked but that the arguments are an object.
/// Arguments that stay unusable keep their text where it is an object, so that the model sees what it wrote.
pub fn repair_arguments(raw: &str, schema: Option<&CompiledSchema>) -> Repaired {
    let text = if raw.trim().is_empty() { "{}" } else { raw };
    if read::is_heavy(text) {
        return Repaired::refused(report::too_many_values(), "{}".into(), Vec::new());
    }
    let schema = schema.map(CompiledSchema::checker);
    let fits = |value: &Value| schema.as_ref().is_none_or(|schema| schema.is_valid(value));
    let (mended, fitting) = match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => {
            let value = Value::Object(arguments);
            if fits(&value) {
                return accepted(value, text.to_owned(), Vec::new());
            }
            let repairs = Vec::new();
            (Mended { value, repairs }, false)
        }
        other => {
            let reading = if text.len() > MAX_MENDED_BYTES {
                Reading::without_repair(other)
            } else {
                read::object(text)
            };
            let mended = match reading {
                Reading::Object(mended) => mended,
                Reading::Other(kind) => {
                    let message = report::not_an_object(kind, text);
                    return Repaired::refused(message, "{}".into(), Vec::new());
                }
                Reading::Invalid(error) => {
                    let message = report::not_json(&error, text);
                    return Repaired::refused(message, "{}".into(), Vec::new());
                }
            };
            let fitting = fits(&mended.value);
            (mended, fitting)
        }
    };
    let Some(schema) = schema.filter(|_| !fitting) else {
        let text = mended.value.to_string();
        return accepted(mended.value, text, mended.repairs);
    };
    if schema.gave_up() {
        tracing::warn!(
            bytes = text.len(),
            "checking a call's arguments against their schema would cost too much, the call is refused"
        );
    }
    let is_small = text.len() <= MAX_MENDED_BYTES && memory(&mended.value) <= MAX_MENDED_WEIGHT;
    let attempt = if is_small && !schema.gave_up() {
        mend(&mended, &schema)
    } else {
        Err(None)
    };
    match attempt {
        Ok(mended) => {
            let text = mended.value.to_string();
            accepted(mended.value, text, mended.repairs)
        }
        Err(rest) => refused(mended, rest.as_ref(), &schema, text),
    }
}

/// About how many bytes a value takes.
fn memory(value: &Value) -> usize {
    /// A map's smallest node.
    const MAP: usize = 640;
    let inside = match value {
        Value::Array(items) => items.iter().map(memory).sum(),
        Value::Object(entries) => entries.iter().fold(MAP, |sum, (key, value)| {
            sum + size_of::<String>() + key.len() + memory(value)
        }),
        Value::String(text) => text.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    size_of::<Value>() + inside
}

fn accepted(value: Value, text: String, repairs: Vec<Repair>) -> Repaired {
    match value {
        Value::Object(arguments) => Repaired {
            arguments: Ok(arguments),
            text,
            repairs,
        },
        // Only objects get this far; should one not be, the answer is still a sound one.
        other => Repaired::refused(
            report::not_an_object(read::kind(&other), &text),
            "{}".into(),
            Vec::new(),
        ),
    }
}

/// The refusal of an object that does not fit; `rest` is what mending made of it, if it was tried.
fn refused(mended: Mended, rest: Option<&Value>, schema: &Checker<'_>, text: &str) -> Repaired {
    if mended.repairs.contains(&Repair::TruncationFixed) {
        // What was cut off is not known, so nothing that was guessed may stand in the history.
        let message = report::cut_off(text);
        return Repaired::refused(message, "{}".into(), Vec::new());
    }
    let message = report::mismatch(&mended.value, rest.unwrap_or(&mended.value), schema);
    let text = if mended.repairs.is_empty() {
        text.to_owned()
    } else {
        mended.value.to_string()
    };
    Repaired::refused(message, text, mended.repairs)
}

/// Makes an object fit the schema; gives back how far that went where it cannot be done.
fn mend(object: &Mended, schema: &Checker<'_>) -> Result<Mended, Option<Value>> {
    if let Some(inner) = unwrapped(object, schema) {
        if schema.is_valid(&inner.value) {
            return Ok(inner);
        }
        if let Ok(mended) = fix::fit(inner, schema) {
            return Ok(mended);
        }
    }
    fix::fit(object.clone(), schema).map_err(Some)
}

/// The object inside `{"arguments": {…}}` and the like, where the schema knows no such property.
fn unwrapped(object: &Mended, schema: &Checker<'_>) -> Option<Mended> {
    let entries = object.value.as_object().filter(|map| map.len() == 1)?;
    let (key, inner) = entries.iter().next()?;
    if !WRAPPERS.contains(&key.as_str()) || schema.root().names(key) {
        return None;
    }
    let mut mended = Mended {
        value: inner.clone(),
        repairs: object.repairs.clone(),
    };
    mended.note(Repair::WrapperRemoved);
    if let Value::String(text) = inner {
        let mut room = MAX_MENDED_WEIGHT;
        mended.value = read::inner_value(text, &mut room)?;
        mended.note(Repair::DoubleEncodingRemoved);
    }
    mended.value.is_object().then_some(mended)
}

#[cfg(test)]
mod tests;
