//! Checking arguments on a budget.
//!
//! Schemas come with requests and arguments from models, so what one repair may cost is bounded here whatever they are.

use std::cell::Cell;

use jsonschema::ValidationError;
use serde_json::Value;

use super::cost::Cost;
use super::{CompiledSchema, Nodes};

/// Most work for saying whether values fit, in units of about 20 ns.
const CHECK_UNITS: u64 = 1_000_000;
/// Most work for gathering errors, in the same units.
const COLLECT_UNITS: u64 = 500_000;
/// What making one error costs, in units.
const ERROR_UNITS: u64 = 20;
/// Most memory of the errors about one value, in bytes.
const ERROR_MEMORY: u64 = 4 * 1024 * 1024;
/// Most work for looking up the schema nodes for parts of values, in units.
const LOOKUP_UNITS: u64 = 1_000_000;

/// A schema with what may still be spent on checking against it.
#[derive(Debug)]
pub(in crate::tools) struct Checker<'a> {
    schema: &'a CompiledSchema,
    check: Cell<u64>,
    collect: Cell<u64>,
    lookup: Cell<u64>,
    gave_up: Cell<bool>,
}

impl CompiledSchema {
    /// Begins the repair of one call's arguments.
    pub(in crate::tools) fn checker(&self) -> Checker<'_> {
        Checker {
            schema: self,
            check: Cell::new(CHECK_UNITS),
            collect: Cell::new(COLLECT_UNITS),
            lookup: Cell::new(LOOKUP_UNITS),
            gave_up: Cell::new(false),
        }
    }
}

impl<'a> Checker<'a> {
    /// Whether the value fits; one that is too deep or would cost too much to be checked does not.
    pub(in crate::tools) fn is_valid(&self, value: &Value) -> bool {
        if self.schema.is_too_deep(value) {
            return false;
        }
        let cost = self.schema.outline.cost(value, self.check.get());
        let Some(cost) = cost else {
            self.check.set(0);
            self.gave_up.set(true);
            return false;
        };
        spend(&self.check, cost.valid.max(1));
        self.schema.validator.is_valid(value)
    }

    /// Whether a value was not checked because that would have cost too much.
    pub(in crate::tools) fn gave_up(&self) -> bool {
        self.gave_up.get()
    }

    /// Whether checking this value would take more of the stack than is sure to be there.
    pub(in crate::tools) fn is_too_deep(&self, value: &Value) -> bool {
        self.schema.is_too_deep(value)
    }

    /// What is wrong with a value that is not too deep: all of it, the first error where all could be too many, or
    /// nothing where even that one could hold too many others.
    pub(in crate::tools) fn errors<'v>(&'v self, value: &'v Value) -> Vec<ValidationError<'v>> {
        let left = self.collect.get();
        let Some(cost) = self.schema.outline.cost(value, left) else {
            self.collect.set(0);
            return Vec::new();
        };
        let pointer = longest_pointer(value);
        let affordable = |errors: u64| {
            let units = errors
                .saturating_mul(ERROR_UNITS)
                .saturating_add(cost.collect);
            (units <= left && Cost::memory(errors, pointer) <= ERROR_MEMORY).then_some(units)
        };
        if let Some(units) = affordable(cost.errors) {
            spend(&self.collect, units);
            self.schema.errors(value).collect()
        } else if let Some(units) = affordable(cost.first) {
            spend(&self.collect, units);
            self.schema
                .validator
                .validate(value)
                .err()
                .into_iter()
                .collect()
        } else {
            Vec::new()
        }
    }

    /// Takes looking up nodes for so many parts of the arguments from the budget; says whether that could be had.
    pub(in crate::tools) fn may_look_up(&self, parts: usize) -> bool {
        let units = self.schema.outline.lookup.saturating_mul(parts as u64);
        let enough = units <= self.lookup.get();
        if enough {
            spend(&self.lookup, units);
        }
        enough
    }

    /// The schema nodes that apply to the arguments as a whole.
    pub(in crate::tools) fn root(&self) -> Nodes<'a> {
        Nodes::root(&self.schema.schema)
    }

    /// The part of the schema at a JSON pointer.
    pub(in crate::tools) fn at(&self, pointer: &str) -> Option<&'a Value> {
        self.schema.schema.pointer(pointer)
    }
}

fn spend(budget: &Cell<u64>, units: u64) {
    budget.set(budget.get().saturating_sub(units));
}

/// How many bytes the longest pointer to a part of the value takes at most.
fn longest_pointer(value: &Value) -> u64 {
    /// An index and its slash; more digits do not fit into a text of the size that is mended.
    const INDEX: u64 = 8;
    match value {
        Value::Array(items) => items
            .iter()
            .map(|item| INDEX + longest_pointer(item))
            .max()
            .unwrap_or_default(),
        Value::Object(entries) => entries
            .iter()
            // A slash or tilde in a name takes two bytes.
            .map(|(key, value)| 1 + 2 * key.len() as u64 + longest_pointer(value))
            .max()
            .unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}
