//! Compiled argument schemas, shared between requests.
//!
//! Requests bring the schemas, so the size, nesting, patterns and evaluation cost of a schema are limited here, and
//! references to other documents are not followed. Does not depend on tools or repair.

mod check;
mod cost;
mod document;
mod nodes;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jsonschema::{PatternOptions, Retrieve, Uri, Validator};
use parking_lot::RwLock;
use serde_json::Value;

use document::SchemaDocument;

pub(super) use check::ArgumentChecker;
pub(super) use nodes::SchemaNodes;

/// Longest schema that is compiled, in bytes; arguments for a longer one are not checked.
/// Tried by `schema::a_schema_too_large_is_neither_compiled_nor_kept`.
const MAX_SCHEMA_BYTES: usize = 256 * 1024;
/// Most schemas in the cache; the one that was not asked for the longest goes first.
/// Tried by `schema::the_cache_is_bounded_and_drops_what_was_not_asked_for_the_longest`.
const MAX_ENTRIES: usize = 512;
/// Most memory of the cache, in bytes, estimated; the schema that was not asked for the longest goes first.
/// Tried by `schema::the_cache_is_bounded_by_weight`.
const MAX_WEIGHT: usize = 128 * 1024 * 1024;
/// Memory of a compiled schema per byte of its text, estimated: the text, the parsed value and the validators.
const WEIGHT_PER_BYTE: usize = 24;
/// Largest compiled form of one pattern, in bytes. The second limit is tried only if the first is too small, because
/// the limit counts as the memory of each pattern in the cache. A schema with a larger one is not compiled.
/// Tried by `schema::ordinary_patterns_are_cheap_and_large_ones_possible`.
const PATTERN_BYTES: [usize; 2] = [64 * 1024, 1024 * 1024];
/// Deepest recursion of the validator, in steps of a few hundred bytes of stack; tasks have 2 MiB. Deeper arguments are
/// not checked.
/// Tried by `schema::the_deepest_check_fits_the_stack_of_a_task`.
const MAX_RECURSION: usize = 1024;

/// A schema that arguments can be checked against.
#[derive(Debug)]
pub(crate) struct CompiledSchema {
    validator: Validator,
    document: SchemaDocument,
    weight: usize,
}

/// Compiled schemas by their text.
#[derive(Debug, Default)]
pub(crate) struct SchemaCache {
    entries: RwLock<Entries>,
    /// Counts look-ups, to order the entries by their last use.
    clock: AtomicU64,
}

#[derive(Debug, Default)]
struct Entries {
    by_text: HashMap<Box<str>, Entry>,
    weight: usize,
}

#[derive(Debug)]
struct Entry {
    /// `None` if the schema cannot be compiled; cached to avoid another attempt.
    compiled: Option<Arc<CompiledSchema>>,
    weight: usize,
    used: AtomicU64,
}

impl SchemaCache {
    /// The compiled form of a schema; `None` if it cannot be compiled. Arguments are then not checked.
    ///
    /// Compiles on the first use of a text, without a lock.
    pub(crate) fn get(&self, schema: &str) -> Option<Arc<CompiledSchema>> {
        if schema.len() > MAX_SCHEMA_BYTES {
            tracing::warn!(
                bytes = schema.len(),
                "argument schema is too large, arguments are not checked"
            );
            return None;
        }
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        if let Some(entry) = self.entries.read().by_text.get(schema) {
            entry.used.store(now, Ordering::Relaxed);
            return entry.compiled.clone();
        }
        let compiled = match CompiledSchema::compile(schema) {
            Ok(compiled) => Some(Arc::new(compiled)),
            Err(reason) => {
                tracing::warn!(%reason, "argument schema cannot be used, arguments are not checked");
                None
            }
        };
        let evicted = self.entries.write().insert(schema, compiled.clone(), now);
        // Freed here, after the lock is released.
        drop(evicted);
        compiled
    }
}

impl Entries {
    /// Adds a schema and returns the entries that it displaces.
    fn insert(
        &mut self,
        schema: &str,
        compiled: Option<Arc<CompiledSchema>>,
        now: u64,
    ) -> Vec<Entry> {
        let mut evicted = Vec::new();
        // Two requests may have compiled the same text at the same time.
        if self.by_text.contains_key(schema) {
            return evicted;
        }
        let weight = compiled
            .as_ref()
            .map_or(schema.len(), |compiled| compiled.weight);
        while self.by_text.len() >= MAX_ENTRIES || self.weight.saturating_add(weight) > MAX_WEIGHT {
            let Some(oldest) = self.oldest() else { break };
            if let Some(entry) = self.by_text.remove(&oldest) {
                self.weight -= entry.weight;
                evicted.push(entry);
            }
        }
        self.weight += weight;
        self.by_text.insert(
            schema.into(),
            Entry {
                compiled,
                weight,
                used: AtomicU64::new(now),
            },
        );
        evicted
    }

    fn oldest(&self) -> Option<Box<str>> {
        self.by_text
            .iter()
            .min_by_key(|(_, entry)| entry.used.load(Ordering::Relaxed))
            .map(|(text, _)| text.clone())
    }
}

/// Why a schema is not compiled. The text goes to the log, so it quotes no part of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum SchemaError {
    #[error("not valid JSON")]
    NotJson,
    #[error("nested too deep")]
    Depth,
    #[error("too many patterns")]
    Patterns,
    #[error("too many combinations of alternatives")]
    Alternatives,
    #[error("a definition refers to itself without end")]
    Cycle,
    #[error("a reference names no part of the schema")]
    Reference,
    #[error("not a valid JSON Schema")]
    NotASchema,
}

impl CompiledSchema {
    fn compile(text: &str) -> Result<Self, SchemaError> {
        let root = serde_json::from_str(text).map_err(|_| SchemaError::NotJson)?;
        let document = SchemaDocument::new(root)?;
        for pattern_bytes in PATTERN_BYTES {
            // This engine matches in linear time. It supports neither look-around nor back references.
            let patterns = PatternOptions::regex()
                .size_limit(pattern_bytes)
                .dfa_size_limit(pattern_bytes);
            let built = jsonschema::options()
                .with_retriever(NoRetrieval)
                .with_pattern_options(patterns)
                // This check would compile the model's text as a pattern, without a limit.
                .with_format("regex", |_: &str| true)
                .build(&document.root);
            if let Ok(validator) = built {
                return Ok(Self {
                    validator,
                    weight: text.len() * WEIGHT_PER_BYTE + document.patterns * pattern_bytes,
                    document,
                });
            }
            if document.patterns == 0 {
                break;
            }
        }
        Err(SchemaError::NotASchema)
    }

    /// Whether checking a value may need more stack than a task has.
    fn is_too_deep(&self, value: &Value) -> bool {
        depth(value).saturating_mul(self.document.extent.chain) > MAX_RECURSION
    }
}

/// Refuses every fetch: a request must not make the server call an address of the client's choice.
#[derive(Debug)]
struct NoRetrieval;

impl Retrieve for NoRetrieval {
    fn retrieve(
        &self,
        _uri: &Uri<String>,
    ) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err("references to other documents are not followed".into())
    }
}

/// The nesting of arrays and objects; 1 for a scalar.
fn depth(value: &Value) -> usize {
    let below = match value {
        Value::Array(items) => items.iter().map(depth).max(),
        Value::Object(entries) => entries.values().map(depth).max(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    };
    1 + below.unwrap_or(0)
}

#[cfg(test)]
mod tests;
