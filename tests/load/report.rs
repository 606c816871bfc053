//! Tables of figures, as aligned text or JSON.
//!
//! Knows how figures are laid out, and nothing of how they came about.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::earlier::Earlier;

/// Stands for any label where a figure is looked up.
pub(crate) const ANY: &str = "*";

/// What a table is called, what its figures mean and what its columns are.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The first line; also its name in JSON.
    pub(crate) title: &'static str,
    /// What the figures mean.
    pub(crate) note: &'static str,
    /// Columns that tell the rows apart.
    pub(crate) labels: &'static [&'static str],
    /// Columns of figures.
    pub(crate) columns: &'static [&'static str],
}

/// Figures of one scenario.
#[derive(Debug)]
struct Table {
    layout: &'static Layout,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    labels: Vec<String>,
    figures: Vec<Option<f64>>,
    verdict: &'static str,
}

/// The whole report.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// What was measured, and where.
    pub(crate) context: Vec<String>,
    /// An earlier report that this one is compared with.
    pub(crate) earlier: Option<Earlier>,
    tables: Vec<Table>,
    /// What went wrong, so that the load test fails.
    pub(crate) failures: Vec<String>,
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

    /// Adds a failure.
    pub(crate) fn fail(&mut self, failure: String) {
        self.failures.push(failure);
    }

    /// Adds a row. A figure that does not apply, or could not be had, is `None`.
    pub(crate) fn row(
        &mut self,
        layout: &'static Layout,
        labels: &[&str],
        figures: &[Option<f64>],
    ) {
        self.judged_row(layout, (labels, figures), "");
    }

    /// Adds a row that ends with a verdict.
    pub(crate) fn judged_row(
        &mut self,
        layout: &'static Layout,
        (labels, figures): (&[&str], &[Option<f64>]),
        verdict: &'static str,
    ) {
        let row = Row {
            labels: labels.iter().map(|&label| label.to_owned()).collect(),
            figures: figures.to_vec(),
            verdict,
        };
        let table = self
            .tables
            .iter_mut()
            .find(|it| it.layout.title == layout.title);
        match table {
            Some(table) => table.rows.push(row),
            None => self.tables.push(Table {
                layout,
                rows: vec![row],
            }),
        }
    }

    /// The figure in a row and column, where it was measured.
    pub(crate) fn figure(&self, layout: &Layout, labels: &[&str], column: &str) -> Option<f64> {
        let table = self
            .tables
            .iter()
            .find(|it| it.layout.title == layout.title)?;
        let same = |row: &&Row| {
            let mut pairs = row.labels.iter().zip(labels);
            pairs.all(|(label, wanted)| label == wanted || *wanted == ANY)
        };
        let row = table.rows.iter().find(same)?;
        let at = layout.columns.iter().position(|name| *name == column)?;
        *row.figures.get(at)?
    }

    /// Lays the report out for reading.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        for line in &self.context {
            out.push_str(line);
            out.push('\n');
        }
        for table in &self.tables {
            table.write_text(self.earlier.as_ref(), &mut out);
        }
        for remark in &self.remarks {
            out.push_str("\nnote: ");
            out.push_str(remark);
        }
        for failure in &self.failures {
            out.push_str("\nFAILED: ");
            out.push_str(failure);
        }
        if !self.remarks.is_empty() || !self.failures.is_empty() {
            out.push('\n');
        }
        out
    }

    /// The report for programs.
    pub(crate) fn json(&self) -> String {
        let tables: Vec<Value> = self
            .tables
            .iter()
            .map(|table| json!({"title": table.layout.title, "note": table.layout.note, "rows": table.json_rows()}))
            .collect();
        json!({"context": self.context, "tables": tables, "remarks": self.remarks, "failures": self.failures}).to_string()
    }
}

impl Table {
    fn write_text(&self, earlier: Option<&Earlier>, out: &mut String) {
        let Layout {
            title,
            note,
            labels,
            columns,
        } = self.layout;
        let head = labels.iter().chain(*columns);
        let head: Vec<String> = head.map(|&name| name.to_owned()).collect();
        let body = self.rows.iter().map(|row| {
            let figures = row.figures.iter().zip(*columns).map(|(figure, column)| {
                let before = earlier.and_then(|it| it.figure(self.layout, &row.labels, column));
                number(*figure) + &change(*figure, before)
            });
            let verdict = std::iter::once(row.verdict.to_owned());
            row.labels
                .iter()
                .cloned()
                .chain(figures)
                .chain(verdict)
                .collect()
        });
        let lines: Vec<Vec<String>> = std::iter::once(head).chain(body).collect();
        let widths: Vec<usize> = (0..=labels.len() + columns.len())
            .map(|column| {
                let cells = lines.iter().filter_map(|line| line.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        // Writing to a string does not fail.
        let _ = write!(out, "\n{title}\n");
        for line in &lines {
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                let _ = if column < labels.len() {
                    write!(out, "  {cell:<width$}")
                } else {
                    write!(out, "  {cell:>width$}")
                };
            }
            out.truncate(out.trim_end().len());
            out.push('\n');
        }
        let _ = writeln!(out, "  {}", note.replace('\n', "\n  "));
    }

    fn json_rows(&self) -> Vec<Value> {
        self.rows
            .iter()
            .map(|row| {
                let labels = self.layout.labels.iter().zip(&row.labels);
                let labels = labels.map(|(&name, label)| (name.to_owned(), json!(label)));
                let figures = self.layout.columns.iter().zip(&row.figures);
                let figures = figures.map(|(&name, figure)| (name.to_owned(), json!(figure)));
                let verdict =
                    (!row.verdict.is_empty()).then(|| ("verdict".to_owned(), json!(row.verdict)));
                Value::Object(labels.chain(figures).chain(verdict).collect::<Map<_, _>>())
            })
            .collect()
    }
}

/// Three digits that mean something.
pub(crate) fn number(figure: Option<f64>) -> String {
    match figure {
        None => "-".to_owned(),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

/// How a figure differs from an earlier one.
fn change(figure: Option<f64>, before: Option<f64>) -> String {
    match (figure, before) {
        (Some(figure), Some(before)) if before.abs() > 1e-9 => {
            format!(" {:+.0}%", (figure - before) / before.abs() * 100.0)
        }
        _ => String::new(),
    }
}
