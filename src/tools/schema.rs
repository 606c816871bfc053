//! Compiled argument schemas, shared between requests.
//!
//! Owns what a schema may cost: it comes with a request, so its size, its nesting, its patterns and the work it can
//! cause are bounded here, and nothing that it refers to is ever fetched. Knows nothing of tools or of repair.

mod check;
mod cost;
mod limits;
mod lookup;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jsonschema::{PatternOptions, Retrieve, Uri, ValidationError, Validator};
use parking_lot::RwLock;
use serde_json::Value;

use cost::Outline;

pub(super) use check::Checker;
pub(super) use lookup::Nodes;

/// Longest schema text that is compiled, in bytes.
const MAX_SCHEMA_BYTES: usize = 256 * 1024;
/// Most schemas kept.
const MAX_ENTRIES: usize = 512;
/// Most memory that kept schemas may take, in bytes, as far as it can be estimated.
const MAX_WEIGHT: usize = 128 * 1024 * 1024;
/// Bytes of a compiled schema per byte of its text: the text, the parsed value and the validators.
const WEIGHT_PER_BYTE: usize = 16;
/// Bytes of one node of the outline.
const WEIGHT_PER_NODE: usize = 512;
/// Largest compiled form of one pattern in bytes, tried in turn: nearly all fit the first bound, and what a schema
/// weighs in the cache follows from the bound it needed.
const PATTERN_BYTES: [usize; 2] = [64 * 1024, 1024 * 1024];
/// Deepest recursion of the validator, in steps of a few hundred bytes of stack; tasks have 2 MiB.
const MAX_RECURSION: usize = 1024;

/// A schema ready to check arguments.
#[derive(Debug)]
pub struct CompiledSchema {
    validator: Validator,
    schema: Value,
    outline: Outline,
    /// Most schema nodes that follow one another at one place of the arguments.
    in_place: usize,
    weight: usize,
}

/// Compiled schemas by their text.
#[derive(Debug, Default)]
pub struct SchemaCache {
    kept: RwLock<Kept>,
    /// Counts look-ups, so that the entry that was not asked for the longest can be told.
    clock: AtomicU64,
}

#[derive(Debug, Default)]
struct Kept {
    entries: HashMap<Box<str>, Entry>,
    weight: usize,
}

#[derive(Debug)]
struct Entry {
    /// `None` where the schema cannot be compiled, so that this is found out once only.
    compiled: Option<Arc<CompiledSchema>>,
    weight: usize,
    used: AtomicU64,
}

impl SchemaCache {
    /// The compiled form of a schema; `None` where it cannot be compiled, so that nothing is checked.
    ///
    /// Compiles on the first use of a text, with no lock held.
    pub fn get(&self, schema: &str) -> Option<Arc<CompiledSchema>> {
        if schema.len() > MAX_SCHEMA_BYTES {
            tracing::warn!(
                bytes = schema.len(),
                "argument schema is too large, arguments are not checked"
            );
            return None;
        }
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        if let Some(entry) = self.kept.read().entries.get(schema) {
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
        let evicted = self.kept.write().insert(schema, compiled.clone(), now);
        // Freed only here, where the lock is free again.
        drop(evicted);
        compiled
    }
}

impl Kept {
    /// Keeps a schema and gives back what had to make room for it.
    fn insert(
        &mut self,
        schema: &str,
        compiled: Option<Arc<CompiledSchema>>,
        now: u64,
    ) -> Vec<Entry> {
        let mut evicted = Vec::new();
        // Two requests may have compiled the same text at the same time.
        if self.entries.contains_key(schema) {
            return evicted;
        }
        let weight = compiled
            .as_ref()
            .map_or(schema.len(), |compiled| compiled.weight);
        while self.entries.len() >= MAX_ENTRIES || self.weight.saturating_add(weight) > MAX_WEIGHT {
            let Some(oldest) = self.oldest() else { break };
            if let Some(entry) = self.entries.remove(&oldest) {
                self.weight -= entry.weight;
                evicted.push(entry);
            }
        }
        self.weight += weight;
        self.entries.insert(
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
        self.entries
            .iter()
            .min_by_key(|(_, entry)| entry.used.load(Ordering::Relaxed))
            .map(|(text, _)| text.clone())
    }
}

/// Why a schema is not used; for the log, so it names no part of the schema.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("not valid JSON")]
    NotJson(#[source] serde_json::Error),
    #[error(transparent)]
    TooCostly(#[from] limits::TooCostly),
    #[error("not a valid JSON Schema")]
    NotASchema,
}

impl CompiledSchema {
    fn compile(text: &str) -> Result<Self, Unusable> {
        let schema: Value = serde_json::from_str(text).map_err(Unusable::NotJson)?;
        let (cost, references) = limits::measure(&schema)?;
        let outline = Outline::new(&schema, &references, cost.ways)?;
        let weight = text.len() * WEIGHT_PER_BYTE + outline.len() * WEIGHT_PER_NODE;
        for pattern_bytes in PATTERN_BYTES {
            // The linear-time engine: no pattern can make a check take for ever. Look-around is not to be had with it.
            let patterns = PatternOptions::regex()
                .size_limit(pattern_bytes)
                .dfa_size_limit(pattern_bytes);
            let built = jsonschema::options()
                .with_retriever(NoRetrieval)
                .with_pattern_options(patterns)
                // Compiling what a model wrote as a pattern has a price of its own.
                .with_format("regex", |_: &str| true)
                .build(&schema);
            if let Ok(validator) = built {
                return Ok(Self {
                    validator,
                    schema,
                    outline,
                    in_place: cost.in_place,
                    weight: weight + cost.patterns * pattern_bytes,
                });
            }
            if cost.patterns == 0 {
                break;
            }
        }
        Err(Unusable::NotASchema)
    }

    /// Whether checking this value would take more of the stack than is sure to be there.
    fn is_too_deep(&self, value: &Value) -> bool {
        depth(value).saturating_mul(self.in_place) > MAX_RECURSION
    }

    /// What is wrong with a value that is not too deep; gathered all at once.
    fn errors<'a>(&'a self, value: &'a Value) -> impl Iterator<Item = ValidationError<'a>> {
        self.validator.iter_errors(value)
    }
}

/// Refuses to fetch what a schema refers to: a request must not make the server call an address of its choice.
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

/// How deep arrays and objects are nested; 1 for a plain value.
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
