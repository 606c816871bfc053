//! What `check-config` prints first: the values that were set, with the place of each.

use std::collections::BTreeMap;

use toml::de::DeTable;
use toml::{Table, Value};

use super::Origin;
use super::file::File;
use super::locate::KeyLines;
use super::source::Origins;

/// The values that a flag, a variable or the file sets, as TOML with comments.
pub(super) fn text(file: &File, origins: &Origins) -> String {
    let effective = Table::try_from(file).unwrap_or_default();
    let mut kept = set_in(&effective, "", origins);
    kept.extend(origins.short_forms().clone());
    let text = toml::to_string(&kept).unwrap_or_default();
    with_origins(&text, origins)
}

/// The part of a table that was set.
fn set_in(table: &Table, parent: &str, origins: &Origins) -> Table {
    let mut kept = Table::new();
    for (name, value) in table {
        let dot = if parent.is_empty() { "" } else { "." };
        let key = format!("{parent}{dot}{name}");
        if let Some(value) = set_value(value, &key, origins) {
            kept.insert(name.clone(), value);
        }
    }
    kept
}

fn set_value(value: &Value, key: &str, origins: &Origins) -> Option<Value> {
    match value {
        Value::Table(table) => {
            let kept = set_in(table, key, origins);
            (!kept.is_empty()).then_some(Value::Table(kept))
        }
        Value::Array(entries) if entries.first().is_some_and(Value::is_table) => {
            let entries = entries.iter().enumerate();
            let kept = entries
                .filter_map(|(index, entry)| set_value(entry, &format!("{key}[{index}]"), origins));
            let kept: Vec<Value> = kept.collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        other => origins.has(key).then(|| other.clone()),
    }
}

/// The text with the origin of each key as a comment at the end of its line.
fn with_origins(text: &str, origins: &Origins) -> String {
    let Ok(table) = DeTable::parse(text) else {
        return text.to_owned();
    };
    let keys = KeyLines::of(text, table.get_ref());
    let of_lines: BTreeMap<usize, Origin> = keys
        .iter()
        .filter(|(key, _)| origins.has(key))
        .map(|(key, line)| (line, origins.place(key)))
        .collect();
    let lines = text.lines().enumerate().map(|(index, line)| {
        // A text over several lines takes no comment.
        let is_whole = !line.contains("\"\"\"") && !line.contains("'''");
        match of_lines.get(&(index + 1)).filter(|_| is_whole) {
            Some(place) => format!("{line}  # {place}\n"),
            None => format!("{line}\n"),
        }
    });
    lines.collect()
}
