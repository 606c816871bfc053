//! Repairs the arguments that a model wrote.
//!
//! Valid arguments stay byte for byte what the model wrote. Other arguments are repaired only if the result is
//! unambiguous and fits the schema; otherwise the model gets an error text. Owns the order of the steps; does not
//! depend on tools or calls.

mod fix;
mod kind;
mod name;
mod read;
mod report;

use serde_json::{Map, Value};

use super::schema::{ArgumentChecker, CompiledSchema};
use read::ArgumentText;

pub use kind::{Repair, note};
pub use name::match_name;
pub use read::is_heavy;

/// Longest text that is repaired, in bytes; longer ones are only parsed and checked.
/// Tried by `repair::text::a_very_large_text_is_checked_but_not_mended`.
const MAX_REPAIRED_BYTES: usize = 1024 * 1024;
/// Most memory of arguments that are repaired, in bytes, of which up to three copies exist at the same time. Larger
/// ones are only checked.
const MAX_REPAIRED_WEIGHT: usize = 4 * 1024 * 1024;
/// Keys under which some models wrap the arguments.
const WRAPPERS: [&str; 3] = ["arguments", "parameters", "input"];

/// Arguments after repair.
#[derive(Debug, Clone, PartialEq)]
pub struct Repaired {
    /// The arguments, or the reason why they cannot be used.
    pub arguments: Result<Map<String, Value>, ArgumentError>,
    /// The JSON text for the history, always of an object: the model's own if nothing was repaired.
    pub text: String,
    /// The repairs of `text`, each kind once, in order.
    pub repairs: Vec<Repair>,
}

/// The reason why arguments cannot be used, as a text for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ArgumentError {
    /// The fault and how to correct it.
    pub message: String,
}

/// An object with the repairs that produced it.
#[derive(Debug, Clone, PartialEq)]
struct RepairedObject {
    value: Value,
    repairs: Vec<Repair>,
}

impl RepairedObject {
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

/// Repairs arguments where that is safe, and checks them.
///
/// An empty text means no arguments, `{}`. Without a schema, the only check is that the arguments are an object.
/// Unusable arguments keep their text if it is an object, so that the model sees what it wrote.
pub(crate) fn repair_arguments(raw: &str, schema: Option<&CompiledSchema>) -> Repaired {
    let (text, made) = match raw.trim() {
        "" => ("{}", vec![Repair::EmptyToObject]),
        _ => (raw, Vec::new()),
    };
    if is_heavy(text) {
        return Repaired::refused(report::too_many_values(), "{}".into(), Vec::new());
    }
    let schema = schema.map(CompiledSchema::checker);
    let fits = |value: &Value| schema.as_ref().is_none_or(|schema| schema.is_valid(value));
    let (object, fitting) = match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => {
            let value = Value::Object(arguments);
            if fits(&value) {
                return accepted(value, text.to_owned(), made);
            }
            let repairs = made;
            (RepairedObject { value, repairs }, false)
        }
        other => {
            let parsed = if text.len() > MAX_REPAIRED_BYTES {
                ArgumentText::without_repair(other)
            } else {
                read::object(text)
            };
            let object = match parsed {
                ArgumentText::Object(object) => object,
                ArgumentText::Other(kind) => {
                    let message = report::not_an_object(kind, text);
                    return Repaired::refused(message, "{}".into(), Vec::new());
                }
                ArgumentText::Cut => {
                    let message = report::cut_off(text);
                    return Repaired::refused(message, "{}".into(), Vec::new());
                }
                ArgumentText::Invalid(error) => {
                    let message = report::not_json(&error, text);
                    return Repaired::refused(message, "{}".into(), Vec::new());
                }
            };
            let fitting = fits(&object.value);
            (object, fitting)
        }
    };
    let Some(schema) = schema.filter(|_| !fitting) else {
        let text = object.value.to_string();
        return accepted(object.value, text, object.repairs);
    };
    if schema.gave_up() {
        tracing::warn!(
            bytes = text.len(),
            "checking a call's arguments against their schema would cost too much, the call is refused"
        );
    }
    let is_small = text.len() <= MAX_REPAIRED_BYTES && memory(&object.value) <= MAX_REPAIRED_WEIGHT;
    let attempt = if is_small && !schema.gave_up() {
        repair_object(&object, &schema)
    } else {
        Err(None)
    };
    match attempt {
        Ok(object) => {
            let text = object.value.to_string();
            accepted(object.value, text, object.repairs)
        }
        Err(rest) => refused(object, rest.as_ref(), &schema, text),
    }
}

/// Estimated memory of a value, in bytes.
fn memory(value: &Value) -> usize {
    let inside = match value {
        Value::Array(items) => items.iter().map(memory).sum(),
        Value::Object(entries) => entries.iter().fold(read::OBJECT, |sum, (key, value)| {
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
        // Callers pass objects only; anything else gets the error for it.
        other => Repaired::refused(
            report::not_an_object(read::kind(&other), &text),
            "{}".into(),
            Vec::new(),
        ),
    }
}

/// The refusal of an object that does not fit; `rest` is the object after an incomplete repair, if one was tried.
fn refused(
    object: RepairedObject,
    rest: Option<&Value>,
    schema: &ArgumentChecker<'_>,
    text: &str,
) -> Repaired {
    if object.repairs.contains(&Repair::TruncationFixed) {
        // The missing part is unknown, and the history must not contain a guess.
        let message = report::cut_off(text);
        return Repaired::refused(message, "{}".into(), Vec::new());
    }
    let message = report::mismatch(&object.value, rest, schema);
    let text = if object.repairs.is_empty() {
        text.to_owned()
    } else {
        object.value.to_string()
    };
    Repaired::refused(message, text, object.repairs)
}

/// Makes an object fit the schema; on failure returns the object as far as it was repaired.
fn repair_object(
    object: &RepairedObject,
    schema: &ArgumentChecker<'_>,
) -> Result<RepairedObject, Option<Value>> {
    if let Some(inner) = unwrapped(object, schema) {
        if schema.is_valid(&inner.value) {
            return Ok(inner);
        }
        if let Ok(object) = fix::fit(inner, schema) {
            return Ok(object);
        }
    }
    fix::fit(object.clone(), schema).map_err(Some)
}

/// The object inside a wrapper such as `{"arguments": {…}}`, if the schema names no such property.
fn unwrapped(object: &RepairedObject, schema: &ArgumentChecker<'_>) -> Option<RepairedObject> {
    let entries = object.value.as_object().filter(|map| map.len() == 1)?;
    let (key, inner) = entries.iter().next()?;
    if !WRAPPERS.contains(&key.as_str()) || schema.root().names(key) {
        return None;
    }
    let mut object = RepairedObject {
        value: inner.clone(),
        repairs: object.repairs.clone(),
    };
    object.note(Repair::WrapperRemoved);
    if let Value::String(text) = inner {
        let mut room = MAX_REPAIRED_WEIGHT;
        object.value = read::inner_value(text, &mut room)?;
        object.note(Repair::DoubleEncodingRemoved);
    }
    object.value.is_object().then_some(object)
}

#[cfg(test)]
mod tests;
