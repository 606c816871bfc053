//! From a position in a TOML text to the line and the key that stand there, so that errors can name them.

use std::ops::Range;
use std::sync::Arc;

use toml::de::{DeTable, DeValue};

use super::ConfigError;

/// Longest list of possible keys that an error repeats, in characters.
const MAX_KEY_LIST_CHARS: usize = 300;

/// Turns an error of the TOML reader into one line that names the key.
pub(super) fn explain(text: &str, file: Arc<str>, error: &toml::de::Error) -> ConfigError {
    let offset = error.span().map_or(0, |span| span.start);
    let before = text.get(..offset).unwrap_or(text);
    ConfigError::Shape {
        file,
        line: before.matches('\n').count() + 1,
        key: key_at(text, offset).unwrap_or_default(),
        problem: reword(error.message()),
    }
}

/// The path of the key at a position; nothing where the text is no TOML.
fn key_at(text: &str, offset: usize) -> Option<String> {
    let table = DeTable::parse(text).ok()?;
    in_table(table.get_ref(), offset, "")
}

fn in_table(table: &DeTable<'_>, offset: usize, path: &str) -> Option<String> {
    table.iter().find_map(|(key, value)| {
        let path = if path.is_empty() {
            key.get_ref().to_string()
        } else {
            format!("{path}.{}", key.get_ref())
        };
        let here = holds(&key.span(), offset) || holds(&value.span(), offset);
        in_value(value.get_ref(), offset, &path).or_else(|| here.then_some(path))
    })
}

fn in_value(value: &DeValue<'_>, offset: usize, path: &str) -> Option<String> {
    match value {
        DeValue::Table(table) => in_table(table, offset, path),
        DeValue::Array(entries) => entries.iter().enumerate().find_map(|(index, entry)| {
            let path = format!("{path}[{index}]");
            let here = holds(&entry.span(), offset);
            in_value(entry.get_ref(), offset, &path).or_else(|| here.then_some(path))
        }),
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_) => None,
    }
}

fn holds(span: &Range<usize>, offset: usize) -> bool {
    span.start <= offset && offset < span.end.max(span.start + 1)
}

/// The reader's message in the words of this program, on one line.
fn reword(message: &str) -> String {
    let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((_, known)) = message
        .strip_prefix("unknown field ")
        .and_then(|rest| rest.split_once(", "))
    {
        return if known.len() <= MAX_KEY_LIST_CHARS {
            format!("unknown key, {known}")
        } else {
            "unknown key; `config/loopwright.toml` of the source lists the keys of this version"
                .to_owned()
        };
    }
    match message.strip_prefix("missing field ") {
        Some(name) => format!("the key {name} is missing; add it"),
        None => message,
    }
}
