//! Mending the arguments that a model wrote.

use serde_json::{Map, Value};

use super::schema::CompiledSchema;

/// What was mended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Repair {
    TruncationFixed,
}

/// Arguments after repair.
#[derive(Debug, Clone, PartialEq)]
pub struct Repaired {
    /// The arguments, or why they cannot be used.
    pub arguments: Result<Map<String, Value>, ArgumentError>,
    /// The JSON text for the history: the model's own where nothing was mended.
    pub text: String,
    /// What was mended, in order.
    pub repairs: Vec<Repair>,
}

/// Why arguments cannot be used; the text is for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ArgumentError {
    /// What is wrong and what to do about it.
    pub message: String,
}

impl Repair {
    /// The word for the wire.
    pub fn as_str(self) -> &'static str {
        todo!()
    }
}

/// Mends arguments where that is safe, and checks them.
pub fn repair_arguments(raw: &str, schema: Option<&CompiledSchema>) -> Repaired {
    todo!()
}

/// The one known name that a misspelt one surely means.
pub fn match_name<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    todo!()
}
