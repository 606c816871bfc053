//! Checks the arguments of one call within a budget.

use std::cell::Cell;

use jsonschema::ValidationError;
use serde_json::Value;

use super::{CompiledSchema, SchemaNodes};

/// Most work for deciding whether the values of a call are valid, for collecting errors, and for looking up schema
/// nodes, in units of about 20 ns each. Beyond it the arguments are not checked, the model gets no list of errors, or
/// nothing is repaired.
/// Tried by `repair::cost::validation_is_not_walked_without_bound`.
const CHECK_UNITS: u64 = 1_000_000;
/// Most memory of the errors about one value, in bytes. Beyond it the model gets no list of them.
/// Tried by `repair::cost::errors_are_not_gathered_without_bound`.
const MAX_ERROR_BYTES: u64 = 8 * 1024 * 1024;

/// A schema with the remaining budget of one call.
#[derive(Debug)]
pub(crate) struct ArgumentChecker<'a> {
    schema: &'a CompiledSchema,
    validity: Cell<u64>,
    report: Cell<u64>,
    lookup: Cell<u64>,
    gave_up: Cell<bool>,
}

impl CompiledSchema {
    /// A checker with a full budget.
    pub(crate) fn checker(&self) -> ArgumentChecker<'_> {
        ArgumentChecker {
            schema: self,
            validity: Cell::new(CHECK_UNITS),
            report: Cell::new(CHECK_UNITS),
            lookup: Cell::new(CHECK_UNITS),
            gave_up: Cell::new(false),
        }
    }
}

impl<'a> ArgumentChecker<'a> {
    /// Whether a value is valid. `false` also if it is nested too deep or its check exceeds the budget.
    pub(crate) fn is_valid(&self, value: &Value) -> bool {
        if self.is_too_deep(value) {
            return false;
        }
        let cost = self.schema.document.cost(value, self.validity.get());
        let affordable = cost.is_some_and(|cost| spend(&self.validity, cost.validity));
        if !affordable {
            self.validity.set(0);
            self.gave_up.set(true);
        }
        affordable && self.schema.validator.is_valid(value)
    }

    /// Whether a value was not checked because its check exceeds the budget.
    pub(crate) fn gave_up(&self) -> bool {
        self.gave_up.get()
    }

    /// Whether checking a value may need more stack than a task has.
    pub(crate) fn is_too_deep(&self, value: &Value) -> bool {
        self.schema.is_too_deep(value)
    }

    /// The errors of a value that is not too deep: all of them, or only the first, or none, as the budget allows.
    pub(crate) fn errors<'v>(&'v self, value: &'v Value) -> Vec<ValidationError<'v>> {
        let budget = if self.gave_up() { 0 } else { self.report.get() };
        let Some(cost) = self.schema.document.cost(value, budget) else {
            self.report.set(0);
            return Vec::new();
        };
        let affordable =
            |bytes| bytes <= MAX_ERROR_BYTES && spend(&self.report, cost.report(bytes));
        if affordable(cost.all_errors) {
            self.schema.validator.iter_errors(value).collect()
        } else if affordable(cost.first_error) {
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

    /// Takes the cost of looking up the nodes of `parts` parts from the budget; `false` if the budget is too small.
    pub(crate) fn may_look_up(&self, parts: usize) -> bool {
        let units = SchemaNodes::lookup_units(&self.schema.document);
        spend(&self.lookup, units.saturating_mul(parts as u64))
    }

    /// The schema nodes that apply to the arguments as a whole.
    pub(crate) fn root(&self) -> SchemaNodes<'a> {
        SchemaNodes::root(&self.schema.document)
    }

    /// The part of the schema at a JSON pointer.
    pub(crate) fn at(&self, pointer: &str) -> Option<&'a Value> {
        self.schema.document.root.pointer(pointer)
    }
}

/// Takes units from a budget. If it is too small, leaves it unchanged and returns `false`.
fn spend(budget: &Cell<u64>, units: u64) -> bool {
    match budget.get().checked_sub(units) {
        Some(rest) => {
            budget.set(rest);
            true
        }
        None => false,
    }
}
