//! Tables of figures, as aligned text or JSON.
//!
//! Knows how figures are laid out, and nothing of how they came about.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// Figures of one scenario.
#[derive(Debug)]
pub(crate) struct Table {
    title: &'static str,
    note: &'static str,
    labels: &'static [&'static str],
    columns: &'static [&'static str],
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    labels: Vec<String>,
    figures: Vec<Option<f64>>,
}

impl Table {
    /// An empty table. `note` says what its figures mean.
    pub(crate) fn new(
        title: &'static str,
        note: &'static str,
        labels: &'static [&'static str],
        columns: &'static [&'static str],
    ) -> Self {
        Self {
            title,
            note,
            labels,
            columns,
            rows: Vec::new(),
        }
    }

    /// Adds a row. A figure that does not apply, or could not be had, is `None`.
    pub(crate) fn row(&mut self, labels: &[&str], figures: &[Option<f64>]) {
        self.rows.push(Row {
            labels: labels.iter().map(|&label| label.to_owned()).collect(),
            figures: figures.to_vec(),
        });
    }
}

/// The whole report.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// What was measured, and where.
    pub(crate) context: Vec<String>,
    /// The figures.
    pub(crate) tables: Vec<Table>,
    /// What could not be measured as meant, and why.
    pub(crate) remarks: Vec<String>,
}

impl Report {
    /// Adds a remark unless it has been made before.
    pub(crate) fn remark(&mut self, remark: String) {
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    /// Lays the report out for reading.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        for line in &self.context {
            out.push_str(line);
            out.push('\n');
        }
        for table in self.tables.iter().filter(|table| !table.rows.is_empty()) {
            table.write_text(&mut out);
        }
        for remark in &self.remarks {
            out.push_str("\nnote: ");
            out.push_str(remark);
        }
        if !self.remarks.is_empty() {
            out.push('\n');
        }
        out
    }

    /// The report for programs.
    pub(crate) fn json(&self) -> String {
        let tables: Vec<Value> = self
            .tables
            .iter()
            .map(|table| json!({"title": table.title, "note": table.note, "rows": table.json_rows()}))
            .collect();
        json!({"context": self.context, "tables": tables, "remarks": self.remarks}).to_string()
    }
}

impl Table {
    fn write_text(&self, out: &mut String) {
        let head = self.labels.iter().chain(self.columns);
        let head: Vec<String> = head.map(|&name| name.to_owned()).collect();
        let body = self.rows.iter().map(|row| {
            let figures = row.figures.iter().map(|figure| number(*figure));
            row.labels.iter().cloned().chain(figures).collect()
        });
        let lines: Vec<Vec<String>> = std::iter::once(head).chain(body).collect();
        let widths: Vec<usize> = (0..self.labels.len() + self.columns.len())
            .map(|column| {
                let cells = lines.iter().filter_map(|line| line.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        // Writing to a string does not fail.
        let _ = write!(out, "\n{}\n", self.title);
        for line in &lines {
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                let _ = if column < self.labels.len() {
                    write!(out, "  {cell:<width$}")
                } else {
                    write!(out, "  {cell:>width$}")
                };
            }
            out.truncate(out.trim_end().len());
            out.push('\n');
        }
        let _ = writeln!(out, "  {}", self.note.replace('\n', "\n  "));
    }

    fn json_rows(&self) -> Vec<Value> {
        self.rows
            .iter()
            .map(|row| {
                let labels = self.labels.iter().zip(&row.labels);
                let labels = labels.map(|(&name, label)| (name.to_owned(), json!(label)));
                let figures = self.columns.iter().zip(&row.figures);
                let figures = figures.map(|(&name, figure)| (name.to_owned(), json!(figure)));
                Value::Object(labels.chain(figures).collect::<Map<_, _>>())
            })
            .collect()
    }
}

/// Three digits that mean something.
fn number(figure: Option<f64>) -> String {
    match figure {
        None => "-".to_owned(),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}
