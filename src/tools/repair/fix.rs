//! Makes an object fit its schema.
//!
//! Works on a copy; only a result that the validator accepts is used.

use std::collections::BTreeMap;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{JsonType, JsonTypeSet, ValidationError};
use serde::de::IgnoredAny;
use serde_json::{Map, Number, Value};

use super::read::inner_value;
use super::{MAX_REPAIRED_WEIGHT, Repair, RepairedObject};
use crate::schema::{ArgumentChecker, SchemaNodes};

/// Most passes, as fixing a value can reveal errors inside it. After them the arguments are refused if they are not
/// valid.
const MAX_PASSES: usize = 3;
/// Names of fields that hold paths.
const PATH_FIELDS: [&str; 5] = ["path", "file_path", "filename", "paths", "dir"];

/// Makes an object fit; on failure returns the object as far as it was repaired.
pub(super) fn fit(
    mut object: RepairedObject,
    schema: &ArgumentChecker<'_>,
) -> Result<RepairedObject, Value> {
    if schema.is_too_deep(&object.value) {
        return Err(object.value);
    }
    // Both steps look up each part once.
    if schema.may_look_up(2 * parts(&object.value)) {
        let root = schema.root();
        if strip_nulls(&mut object.value, &root) {
            object.note(Repair::NullStripped);
        }
        if unwrap_links(&mut object.value, &root, false) {
            object.note(Repair::MdLinkUnwrapped);
        }
    }
    for _ in 0..MAX_PASSES {
        if schema.is_valid(&object.value) {
            return Ok(object);
        }
        if schema.is_too_deep(&object.value) || !fix_types(&mut object, schema) {
            return Err(object.value);
        }
    }
    if schema.is_valid(&object.value) {
        Ok(object)
    } else {
        Err(object.value)
    }
}

/// The number of parts of a value, itself included.
fn parts(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(parts).sum::<usize>(),
        Value::Object(entries) => 1 + entries.values().map(parts).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

/// Removes nulls that the schema certainly excludes and does not require.
fn strip_nulls(value: &mut Value, nodes: &SchemaNodes<'_>) -> bool {
    match value {
        Value::Object(entries) => {
            let before = entries.len();
            entries.retain(|key, value| !value.is_null() || !is_removable_null(key, nodes));
            let mut stripped = entries.len() < before;
            for (key, value) in entries.iter_mut().filter(|(_, value)| is_container(value)) {
                stripped |= strip_nulls(value, &nodes.property(key));
            }
            stripped
        }
        Value::Array(items) => {
            let mut stripped = false;
            let containers = items.iter_mut().enumerate();
            for (index, item) in containers.filter(|(_, item)| is_container(item)) {
                stripped |= strip_nulls(item, &nodes.item(index));
            }
            stripped
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn is_removable_null(key: &str, parent: &SchemaNodes<'_>) -> bool {
    if parent.names(key) {
        !parent.requires(key) && parent.property(key).excludes_null()
    } else {
        parent.is_closed() || parent.property(key).excludes_null()
    }
}

fn is_container(value: &Value) -> bool {
    value.is_object() || value.is_array()
}

/// Replaces Markdown links, made by a chat front end or the model, by the paths in them.
fn unwrap_links(value: &mut Value, nodes: &SchemaNodes<'_>, is_path: bool) -> bool {
    let is_path = is_path || nodes.is_path();
    match value {
        Value::String(text) if is_path => {
            let Some(path) = linked_path(text).map(str::to_owned) else {
                return false;
            };
            *text = path;
            true
        }
        Value::Object(entries) => {
            let mut unwrapped = false;
            for (key, value) in entries {
                let named = PATH_FIELDS.contains(&key.as_str());
                unwrapped |= unwrap_links(value, &nodes.property(key), named);
            }
            unwrapped
        }
        Value::Array(items) if is_path || items.iter().any(is_container) => {
            let mut unwrapped = false;
            for (index, item) in items.iter_mut().enumerate() {
                unwrapped |= unwrap_links(item, &nodes.item(index), is_path);
            }
            unwrapped
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            false
        }
    }
}

/// `x` of `[x](http://x)` or `[x](http://host/x)`.
fn linked_path(text: &str) -> Option<&str> {
    let (path, url) = text
        .trim()
        .strip_prefix('[')?
        .strip_suffix(')')?
        .split_once("](")?;
    let target = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"))?;
    let is_same = target == path
        || target
            .strip_suffix(path)
            .is_some_and(|before| before.ends_with('/'));
    (is_same && !path.is_empty()).then_some(path)
}

/// Converts values to the types that the errors ask for; says whether anything changed.
fn fix_types(object: &mut RepairedObject, schema: &ArgumentChecker<'_>) -> bool {
    let mut wanted = BTreeMap::new();
    let value = std::mem::take(&mut object.value);
    for error in &schema.errors(&value) {
        collect_wanted(error, &mut wanted);
    }
    object.value = value;
    let mut changed = false;
    // The arguments as a whole remain an object.
    wanted.remove("");
    // Values inside of strings do not count as memory of the arguments.
    let mut budget = MAX_REPAIRED_WEIGHT;
    for (pointer, types) in wanted {
        let Some(value) = object.value.pointer_mut(&pointer) else {
            continue;
        };
        let repair = match converted(value, types, &mut budget) {
            Some((converted, repair)) => {
                *value = converted;
                repair
            }
            None if is_empty_string(value)
                && (types.contains(JsonType::Object) || types.contains(JsonType::Array))
                && remove_optional(&mut object.value, &pointer, schema) =>
            {
                Repair::EmptyStringRemoved
            }
            None => continue,
        };
        object.note(repair);
        changed = true;
    }
    changed
}

/// Collects the wanted types by pointer, including the types of alternatives.
fn collect_wanted(error: &ValidationError<'_>, wanted: &mut BTreeMap<String, JsonTypeSet>) {
    match error.kind() {
        ValidationErrorKind::Type { kind } => {
            use jsonschema::error::TypeKind;
            let types = match kind {
                TypeKind::Single(one) => JsonTypeSet::empty().insert(*one),
                TypeKind::Multiple(several) => *several,
            };
            let pointer = error.instance_path().as_str().to_owned();
            let entry = wanted.entry(pointer).or_insert(JsonTypeSet::empty());
            *entry = entry.union(types);
        }
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            for error in context.iter().flatten() {
                collect_wanted(error, wanted);
            }
        }
        _ => {}
    }
}

/// The value as one of the wanted types, if that is unambiguous.
fn converted(value: &Value, wanted: JsonTypeSet, budget: &mut usize) -> Option<(Value, Repair)> {
    let text = match value {
        Value::Object(entries) if entries.is_empty() && wanted.contains(JsonType::Array) => {
            return Some((Value::Array(Vec::new()), Repair::ObjectToArray));
        }
        Value::String(text) => text.trim(),
        _ => return None,
    };
    if wanted.contains(JsonType::Array)
        && text.starts_with('[')
        && let Some(array @ Value::Array(_)) = inner_value(text, budget)
    {
        return Some((array, Repair::JsonStringToArray));
    }
    if wanted.contains(JsonType::Object)
        && text.starts_with('{')
        && let Some(object @ Value::Object(_)) = inner_value(text, budget)
    {
        return Some((object, Repair::DoubleEncodingRemoved));
    }
    let number = if wanted.contains(JsonType::Number) {
        canonical_number(text)
    } else if wanted.contains(JsonType::Integer) {
        canonical_integer(text)
    } else {
        None
    };
    if let Some(number) = number {
        return Some((Value::Number(number), Repair::StringToNumber));
    }
    if wanted.contains(JsonType::Boolean) && matches!(text, "true" | "false") {
        return Some((Value::Bool(text == "true"), Repair::StringToBoolean));
    }
    let is_bracketed = text.starts_with('[') && (text.ends_with(']') || is_cut(text));
    (wanted.contains(JsonType::Array) && !text.is_empty() && !is_bracketed)
        .then(|| (Value::Array(vec![value.clone()]), Repair::BareStringToArray))
}

/// Whether a text is the beginning of JSON.
fn is_cut(text: &str) -> bool {
    let parsed = serde_json::from_str::<IgnoredAny>(text);
    parsed.is_err_and(|error| error.is_eof())
}

/// A whole number as JSON writes it; `007`, `1e5` and `5.0` are ambiguous.
fn canonical_integer(text: &str) -> Option<Number> {
    let number = text
        .parse::<i64>()
        .map(Number::from)
        .or_else(|_| text.parse::<u64>().map(Number::from))
        .ok()?;
    (number.to_string() == text).then_some(number)
}

/// A number without an exponent that parsing does not change.
fn canonical_number(text: &str) -> Option<Number> {
    if let Some(integer) = canonical_integer(text) {
        return Some(integer);
    }
    let (whole, fraction) = text.split_once('.')?;
    if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = text.parse::<f64>().ok()?;
    let shortest = format!("{number}");
    let significant = match fraction.trim_end_matches('0') {
        "" => whole.to_owned(),
        digits => format!("{whole}.{digits}"),
    };
    (shortest == significant)
        .then(|| Number::from_f64(number))
        .flatten()
}

fn is_empty_string(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.trim().is_empty())
}

/// Removes a property that no schema requires; says whether it did.
fn remove_optional(root: &mut Value, pointer: &str, schema: &ArgumentChecker<'_>) -> bool {
    let Some((parent, key)) = pointer.rsplit_once('/') else {
        return false;
    };
    if !schema.may_look_up(pointer.split('/').count()) {
        return false;
    }
    let key = key.replace("~1", "/").replace("~0", "~");
    let Some(nodes) = nodes_at(root, parent, schema) else {
        return false;
    };
    match root.pointer_mut(parent).and_then(Value::as_object_mut) {
        Some(entries) if !nodes.requires(&key) => remove(entries, &key),
        Some(_) | None => false,
    }
}

fn remove(entries: &mut Map<String, Value>, key: &str) -> bool {
    entries.remove(key).is_some()
}

/// The schema nodes for the part that a pointer names.
fn nodes_at<'a>(
    root: &Value,
    pointer: &str,
    schema: &ArgumentChecker<'a>,
) -> Option<SchemaNodes<'a>> {
    let mut nodes = schema.root();
    let mut value = root;
    for step in pointer.split('/').skip(1) {
        let key = step.replace("~1", "/").replace("~0", "~");
        (nodes, value) = match value {
            Value::Array(items) => {
                let index: usize = key.parse().ok()?;
                (nodes.item(index), items.get(index)?)
            }
            other => (nodes.property(&key), other.get(&key)?),
        };
    }
    Some(nodes)
}
