//! An earlier report, read from what `--json` printed.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::report::Layout;

/// An earlier report.
#[derive(Debug)]
pub(crate) struct Earlier(Value);

impl Earlier {
    /// Reads a report from a file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("reading the earlier report {}", path.display()))?;
        let report = serde_json::from_str(&text)
            .with_context(|| format!("{} is not what `--json` prints", path.display()))?;
        Ok(Self(report))
    }

    /// The figure of the same row and column.
    pub(crate) fn figure(&self, layout: &Layout, labels: &[String], column: &str) -> Option<f64> {
        let tables = self.0["tables"].as_array()?;
        let table = tables.iter().find(|it| it["title"] == layout.title)?;
        let same = |row: &&Value| {
            let mut pairs = layout.labels.iter().zip(labels);
            pairs.all(|(name, label)| row[*name] == label.as_str())
        };
        table["rows"].as_array()?.iter().find(same)?[column].as_f64()
    }
}
