//! Telling the model why its arguments cannot be used.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, ValidationError};
use serde_json::Value;

use crate::tools::cap::first_chars;
use crate::tools::schema::Checker;

/// Most errors that are listed.
const MAX_LISTED: usize = 5;
/// Most errors that are counted.
const MAX_COUNTED: usize = 100;
/// Longest part of the model's own text or of a value that is shown, in characters.
const MAX_VALUE_CHARS: usize = 200;
/// Longest part of a schema that is shown, in characters.
const MAX_SCHEMA_CHARS: usize = 300;
/// Longest pointer to a place that is shown, in characters.
const MAX_POINTER_CHARS: usize = 120;

/// For a text that is not JSON.
pub(super) fn not_json(error: &serde_json::Error, text: &str) -> String {
    format!(
        "The arguments are not valid JSON: {error}. The tool was not run.\n\
         The arguments began: {}\n\
         Call the tool again with one complete JSON object as arguments.",
        cut(text.trim(), MAX_VALUE_CHARS)
    )
}

/// For a text that is JSON, but not an object.
pub(super) fn not_an_object(kind: &str, text: &str) -> String {
    format!(
        "The arguments must be a JSON object, not {kind}. The tool was not run.\n\
         The arguments were: {}\n\
         Call the tool again with one JSON object as arguments.",
        cut(text.trim(), MAX_VALUE_CHARS)
    )
}

/// For a text that ended early and could not be completed.
pub(super) fn cut_off(text: &str) -> String {
    let error = match serde_json::from_str::<Value>(text) {
        Ok(_) => "an object in it ends too early".to_owned(),
        Err(error) => error.to_string(),
    };
    format!(
        "The arguments are not valid JSON, they were cut off: {error}. The tool was not run.\n\
         The arguments began: {}\n\
         Call the tool again with complete arguments; if they are long, split the work into smaller calls.",
        cut(text.trim(), MAX_VALUE_CHARS)
    )
}

/// For a text that is not parsed.
pub(super) fn too_many_values() -> String {
    "The arguments hold too many values. The tool was not run.\n\
     Call the tool again with fewer; split the work into smaller calls."
        .to_owned()
}

/// For an object that does not fit; `rest` is what mending made of it, so that what was mended is not complained of.
pub(super) fn mismatch(value: &Value, rest: &Value, schema: &Checker<'_>) -> String {
    if schema.is_too_deep(value) || schema.is_too_deep(rest) {
        return "The arguments are nested too deep. The tool was not run.\n\
                Call the tool again with flatter arguments."
            .to_owned();
    }
    let remaining: BTreeSet<String> = schema
        .errors(rest)
        .iter()
        .take(MAX_COUNTED)
        .map(|error| error.instance_path().as_str().to_owned())
        .collect();
    let errors = schema.errors(value);
    let errors = errors.get(..MAX_COUNTED).unwrap_or(&errors);
    if errors.is_empty() {
        return uncounted(schema);
    }
    let mut real: Vec<_> = errors
        .iter()
        .filter(|error| has_at_or_below(&remaining, error.instance_path().as_str()))
        .collect();
    if real.is_empty() {
        real = errors.iter().collect();
    }
    let mut message =
        "The arguments do not fit the tool's schema. The tool was not run.".to_owned();
    for error in real.iter().take(MAX_LISTED) {
        describe(error, schema, &mut message);
    }
    let more = real.len().saturating_sub(MAX_LISTED);
    if more > 0 {
        // Writing to a string cannot fail.
        let _ok = write!(message, "\n- and {more} more");
    }
    message.push_str("\nCall the tool again with corrected arguments.");
    message
}

/// For an object of which no error can be named.
fn uncounted(schema: &Checker<'_>) -> String {
    if schema.gave_up() {
        return "The arguments are too large or too deep to be checked against the tool's schema. The tool was not run.\n\
                Call the tool again with smaller or flatter arguments; if they are long, split the work into smaller calls."
            .to_owned();
    }
    let expected = schema
        .at("")
        .map(|schema| compact(schema, MAX_SCHEMA_CHARS));
    format!(
        "The arguments do not fit the tool's schema, and are too large for what is wrong to be listed. The tool was not \
         run.\n  expected: {}\nCall the tool again with corrected arguments; if they are long, split the work into \
         smaller calls.",
        expected.unwrap_or_default()
    )
}

/// Whether one of the paths is that of the place or of a part of it.
fn has_at_or_below(paths: &BTreeSet<String>, place: &str) -> bool {
    let below = format!("{place}/");
    paths.contains(place)
        || paths
            .range(below.clone()..)
            .next()
            .is_some_and(|path| path.starts_with(&below))
}

fn describe(error: &ValidationError<'_>, schema: &Checker<'_>, message: &mut String) {
    let pointer = error.instance_path().as_str();
    let place = if pointer.is_empty() {
        "the arguments as a whole".to_owned()
    } else {
        cut(pointer, MAX_POINTER_CHARS)
    };
    let problem = cut(&error.masked_with("the value").to_string(), MAX_VALUE_CHARS);
    let value = compact(error.instance(), MAX_VALUE_CHARS);
    let _ok = write!(message, "\n- at {place}: {problem}");
    if let Some(node) = expected(error, schema) {
        let _ok = write!(message, "\n  expected: {}", compact(node, MAX_SCHEMA_CHARS));
    }
    let _ok = write!(message, "\n  value: {value}\n  hint: {}", hint(error));
}

/// The part of the schema that the value should have fitted.
fn expected<'a>(error: &ValidationError<'_>, schema: &Checker<'a>) -> Option<&'a Value> {
    let (node, _keyword) = error.schema_path().as_str().rsplit_once('/')?;
    let node = schema.at(node)?;
    if let ValidationErrorKind::Required { property } = error.kind()
        && let Some(missing) = property
            .as_str()
            .and_then(|name| node.get("properties")?.get(name))
    {
        return Some(missing);
    }
    Some(node)
}

fn hint(error: &ValidationError<'_>) -> String {
    let value = error.instance().as_ref();
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            return format!(
                "add the missing field {}",
                compact(property, MAX_POINTER_CHARS)
            );
        }
        ValidationErrorKind::AdditionalProperties { .. }
        | ValidationErrorKind::UnevaluatedProperties { .. } => {
            "leave out the fields that the schema does not name"
        }
        _ if value.is_null() => "give a value instead of null, or leave an optional field out",
        ValidationErrorKind::Enum { .. } | ValidationErrorKind::Constant { .. } => {
            "use one of the listed values exactly as written"
        }
        ValidationErrorKind::Type { kind } => type_hint(kind, value),
        _ => "change the value so that it fits what is expected",
    }
    .to_owned()
}

fn type_hint(wanted: &TypeKind, value: &Value) -> &'static str {
    let wants = |wanted_type| match wanted {
        TypeKind::Single(one) => *one == wanted_type,
        TypeKind::Multiple(several) => several.contains(wanted_type),
    };
    match value {
        Value::String(_) if wants(JsonType::Array) => {
            "give a JSON array such as [\"a\", \"b\"], not a string"
        }
        Value::Object(_) if wants(JsonType::Array) => "give a JSON array, not an object",
        _ if wants(JsonType::Array) => "give a JSON array",
        _ if wants(JsonType::Object) => "give a JSON object, not a string or other plain value",
        Value::String(_) if wants(JsonType::Number) || wants(JsonType::Integer) => {
            "give a plain JSON number without quotes"
        }
        Value::String(_) if wants(JsonType::Boolean) => "give true or false without quotes",
        _ if wants(JsonType::String) => "give a JSON string in quotes",
        _ => "give a value of the expected type",
    }
}

/// The text, or its beginning and `…`, in at most `max` characters.
fn cut(text: &str, max: usize) -> String {
    if text.len() <= max || text.chars().count() <= max {
        return text.to_owned();
    }
    format!("{}…", first_chars(text, max.saturating_sub(1)))
}

/// A value as compact JSON, cut; a large one is not written out first.
fn compact(value: &Value, max: usize) -> String {
    /// Most bytes of a character.
    const WIDEST: usize = 4;
    let mut buffer = Bounded {
        bytes: Vec::new(),
        room: (max + 1) * WIDEST,
    };
    // The only error there can be is that the room is used up.
    let _full = serde_json::to_writer(&mut buffer, value);
    // A character may be torn at the end of the room, which is past what is shown.
    cut(&String::from_utf8_lossy(&buffer.bytes), max)
}

/// Takes bytes up to a bound.
#[derive(Debug)]
struct Bounded {
    bytes: Vec<u8>,
    room: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.room.saturating_sub(self.bytes.len()).min(bytes.len());
        self.bytes.extend(bytes.iter().take(taken));
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
