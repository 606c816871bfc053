//! The positions of keys in a TOML text, so that errors can name line and key.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::hints;

/// The line of each key of a text.
#[derive(Debug, Default)]
pub(super) struct KeyLines(Vec<KeyLine>);

#[derive(Debug)]
struct KeyLine {
    key: String,
    line: usize,
    spans: [Range<usize>; 2],
}

impl KeyLines {
    /// The positions of all keys of `table`, which was read from `text`.
    pub(super) fn of(text: &str, table: &DeTable<'_>) -> Self {
        let mut lines = Self::default();
        lines.add_table(text, table, "");
        lines
    }

    fn add_table(&mut self, text: &str, table: &DeTable<'_>, parent: &str) {
        for (name, value) in table {
            let dot = if parent.is_empty() { "" } else { "." };
            let key = format!("{parent}{dot}{}", name.get_ref());
            self.add(text, key, name.span(), value);
        }
    }

    fn add(&mut self, text: &str, key: String, span: Range<usize>, value: &Spanned<DeValue<'_>>) {
        match value.get_ref() {
            DeValue::Table(table) => self.add_table(text, table, &key),
            DeValue::Array(entries) => {
                for (index, entry) in entries.iter().enumerate() {
                    self.add(text, format!("{key}[{index}]"), entry.span(), entry);
                }
            }
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_) => {}
        }
        let line = line_of(text, span.start);
        let spans = [span, value.span()];
        self.0.push(KeyLine { key, line, spans });
    }

    /// The line of a key, or of the table or list that it would be in.
    pub(super) fn line(&self, key: &str) -> Option<usize> {
        let found = self.0.iter().find(|known| known.key == key);
        match (found, key.rfind(['.', '['])) {
            (Some(found), _) => Some(found.line),
            (None, Some(end)) => self.line(key.get(..end)?),
            (None, None) => None,
        }
    }

    /// Each key with its line. Keys come after those inside them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, usize)> {
        self.0.iter().map(|known| (known.key.as_str(), known.line))
    }

    /// The innermost key at a position. Keys come after those inside them.
    pub(super) fn key_at(&self, offset: usize) -> Option<&str> {
        let holds =
            |span: &Range<usize>| span.start <= offset && offset < span.end.max(span.start + 1);
        let found = self.0.iter().find(|known| known.spans.iter().any(holds));
        found.map(|known| known.key.as_str())
    }
}

/// The line of a position, from 1.
pub(super) fn line_of(text: &str, offset: usize) -> usize {
    let before = text.get(..offset).unwrap_or(text);
    before.matches('\n').count() + 1
}

/// The message of an error of the TOML reader, on one line and with a remedy. `table` is where the key is; empty for the top
/// level.
pub(super) fn reworded(error: &toml::de::Error, table: &str) -> String {
    let message = error.message();
    let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some(problem) = hints::unknown_key(&message, table) {
        return problem;
    }
    match message.strip_prefix("missing field ") {
        Some(name) => format!("the key {name} is missing; add it"),
        None => message,
    }
}
