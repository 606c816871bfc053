//! Error texts for the model about its arguments.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, ValidationError};
use serde_json::Value;

use crate::cap::first_chars;
use crate::schema::ArgumentChecker;

/// Most errors that are listed; the others are counted.
/// Tried by `repair::errors::an_error_text_is_bounded`.
const MAX_LISTED: usize = 5;
/// Longest part of the model's own text, of a value, a pointer or a schema that is shown, in characters; the rest is
/// cut.
/// Tried by `repair::errors::an_error_text_is_bounded`.
const MAX_SHOWN_CHARS: usize = 200;

/// For a text that is not JSON.
pub(super) fn not_json(error: &serde_json::Error, text: &str) -> String {
    format!(
        "The arguments are not valid JSON: {error}. The tool was not run.\n\
         The arguments began: {}\n\
         Call the tool again with one complete JSON object as arguments.",
        cut(text.trim())
    )
}

/// For JSON that is not an object.
pub(super) fn not_an_object(kind: &str, text: &str) -> String {
    format!(
        "The arguments must be a JSON object, not {kind}. The tool was not run.\n\
         The arguments were: {}\n\
         Call the tool again with one JSON object as arguments.",
        cut(text.trim())
    )
}

/// For a text that ends early and is not completed.
pub(super) fn cut_off(text: &str) -> String {
    let error = match serde_json::from_str::<Value>(text) {
        Ok(_) => "an object in it ends too early".to_owned(),
        Err(error) => error.to_string(),
    };
    format!(
        "The arguments are not valid JSON, they were cut off before they were complete: {error}. The tool was not \
         run.\n\
         The arguments began: {}\n\
         Call the tool again with complete arguments; if they are long, split the work into smaller calls.",
        cut(text.trim())
    )
}

/// For a text that takes too much memory to be parsed.
pub(super) fn too_many_values() -> String {
    "The arguments hold too many values. The tool was not run.\n\
     Call the tool again with fewer; split the work into smaller calls."
        .to_owned()
}

/// For an object that does not fit. `rest` is the object after repairs, if any;
/// errors that these removed are not reported.
pub(super) fn mismatch(
    value: &Value,
    rest: Option<&Value>,
    schema: &ArgumentChecker<'_>,
) -> String {
    if schema.is_too_deep(value) || rest.is_some_and(|rest| schema.is_too_deep(rest)) {
        return "The arguments are nested too deep. The tool was not run.\n\
                Call the tool again with flatter arguments."
            .to_owned();
    }
    let remaining: Option<BTreeSet<String>> = rest.map(|rest| {
        let errors = schema.errors(rest);
        let pointers = errors.iter().map(|error| error.instance_path().to_string());
        pointers.collect()
    });
    let errors = schema.errors(value);
    if errors.is_empty() {
        return unlisted(schema);
    }
    let remains = |error: &&ValidationError<'_>| {
        let pointer = error.instance_path().as_str();
        remaining
            .as_ref()
            .is_none_or(|remaining| has_at_or_below(remaining, pointer))
    };
    let mut real: Vec<_> = errors.iter().filter(remains).collect();
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

/// For an object whose errors exceed the budget.
fn unlisted(schema: &ArgumentChecker<'_>) -> String {
    if schema.gave_up() {
        return "The arguments are too large or too deep to be checked against the tool's schema. The tool was not run.\n\
                Call the tool again with smaller or flatter arguments; if they are long, split the work into smaller calls."
            .to_owned();
    }
    let expected = schema.at("").map(compact);
    format!(
        "The arguments do not fit the tool's schema. They are too large for a list of the errors. The tool was not \
         run.\n  expected: {}\nCall the tool again with corrected arguments; if they are long, split the work into \
         smaller calls.",
        expected.unwrap_or_default()
    )
}

/// Whether one of the pointers names the given part or a part of it.
fn has_at_or_below(paths: &BTreeSet<String>, pointer: &str) -> bool {
    let below = format!("{pointer}/");
    paths.contains(pointer)
        || paths
            .range(below.clone()..)
            .next()
            .is_some_and(|path| path.starts_with(&below))
}

fn describe(error: &ValidationError<'_>, schema: &ArgumentChecker<'_>, message: &mut String) {
    let pointer = error.instance_path().as_str();
    let pointer = if pointer.is_empty() {
        "the arguments as a whole".to_owned()
    } else {
        cut(pointer)
    };
    let problem = cut(&error.masked_with("the value").to_string());
    let value = compact(error.instance());
    let _ok = write!(message, "\n- at {pointer}: {problem}");
    if let Some(node) = expected(error, schema) {
        let _ok = write!(message, "\n  expected: {}", compact(node));
    }
    let _ok = write!(message, "\n  value: {value}\n  hint: {}", hint(error));
}

/// The part of the schema that the value violates.
fn expected<'a>(error: &ValidationError<'_>, schema: &ArgumentChecker<'a>) -> Option<&'a Value> {
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
            return format!("add the missing field {}", compact(property));
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

/// The text, or its beginning and `…`, within the limit.
fn cut(text: &str) -> String {
    if text.len() <= MAX_SHOWN_CHARS || text.chars().count() <= MAX_SHOWN_CHARS {
        return text.to_owned();
    }
    format!("{}…", first_chars(text, MAX_SHOWN_CHARS - 1))
}

/// A value as compact JSON, cut; a large value is not written in full first.
fn compact(value: &Value) -> String {
    let mut buffer = Bounded {
        bytes: Vec::new(),
        capacity: (MAX_SHOWN_CHARS + 1) * char::MAX.len_utf8(),
    };
    // The only possible error is a full writer.
    let _full = serde_json::to_writer(&mut buffer, value);
    // A character that is split at the end is not shown.
    cut(&String::from_utf8_lossy(&buffer.bytes))
}

/// A writer that accepts a bounded number of bytes.
#[derive(Debug)]
struct Bounded {
    bytes: Vec<u8>,
    capacity: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self
            .capacity
            .saturating_sub(self.bytes.len())
            .min(bytes.len());
        self.bytes.extend(bytes.iter().take(taken));
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
