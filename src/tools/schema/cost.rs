//! What one check of given arguments can cost, found out before it is made.
//!
//! The validator takes no budget, gathers every error before it gives the first one back, and walks all alternatives at
//! every level of the arguments. So the arguments are walked along an outline of the schema first: the same ways with
//! a plain number for the work at each stop, and an end as soon as the budget is used up.

mod outline;
mod pattern;
mod types;

use serde_json::{Map, Value};

pub(super) use outline::Outline;
use outline::{Node, NodeId};

/// Bytes of a text that are dealt with in one unit of work where a keyword looks at each of them.
const BYTES_PER_UNIT: u64 = 64;
/// What an array of few items costs in units for each unit of its content when all are compared with all.
const PAIRS: u64 = 16;
/// Memory of one error without its pointer, in bytes: measured at 300 to 500.
const ERROR_BYTES: u64 = 640;

/// The most that a check can cost, each in units of about 20 ns or in errors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// Saying whether the value fits.
    pub(super) valid: u64,
    /// Finding out which properties or items were looked at, for `unevaluatedProperties` and `unevaluatedItems`.
    mark: u64,
    /// Gathering all errors.
    pub(super) collect: u64,
    /// How many errors there can be, those inside of others included.
    pub(super) errors: u64,
    /// How many there can be in the first one alone.
    pub(super) first: u64,
}

impl Cost {
    /// Adds what is checked at the same place or below it.
    fn add(&mut self, other: Self) {
        self.valid = self.valid.saturating_add(other.valid);
        self.collect = self.collect.saturating_add(other.collect);
        self.errors = self.errors.saturating_add(other.errors);
        self.first = self.first.max(other.first);
    }

    /// The memory of `errors` errors about a value whose longest pointer has so many bytes.
    pub(super) fn memory(errors: u64, pointer_bytes: u64) -> u64 {
        errors.saturating_mul(ERROR_BYTES.saturating_add(pointer_bytes))
    }
}

/// Counts steps down to nothing.
struct Steps(u64);

impl Steps {
    fn take(&mut self, count: u64) -> Option<()> {
        self.0 = self.0.checked_sub(count)?;
        Some(())
    }
}

impl Outline {
    /// What checking a value costs; `None` where that is more than the budget, in units.
    pub(super) fn cost(&self, value: &Value, budget: u64) -> Option<Cost> {
        let Some(root) = self.root else {
            return Some(Cost::default());
        };
        let cost = self.visit(root, value, &mut Steps(budget))?;
        (cost.valid <= budget).then_some(cost)
    }

    fn visit(&self, id: NodeId, value: &Value, steps: &mut Steps) -> Option<Cost> {
        let node = self.nodes.get(id)?;
        // What must be there is looked up here too.
        steps.take(node.base)?;
        let mut cost = Cost {
            valid: node.base,
            mark: node.base,
            collect: node.base,
            errors: node.own_errors(value),
            first: 1,
        };
        for next in &node.in_place {
            let below = self.visit(*next, value, steps)?;
            cost.add(below);
            cost.mark = cost
                .mark
                .saturating_add(below.valid)
                .saturating_add(below.mark);
        }
        match value {
            Value::Object(entries) => self.entries(node, entries, &mut cost, steps)?,
            Value::Array(items) => {
                if node.unique {
                    cost.work(size(value, steps)?.saturating_mul(PAIRS));
                }
                self.items(node, items, &mut cost, steps)?;
            }
            Value::String(text) => {
                cost.work((text.len() as u64).saturating_mul(node.per_byte) / BYTES_PER_UNIT);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        if node.marks {
            cost.valid = cost.valid.saturating_add(cost.mark);
            cost.collect = cost.collect.saturating_add(cost.mark);
        }
        if node.rechecks {
            cost.collect = cost.collect.saturating_add(cost.valid);
        }
        if node.has_context {
            cost.first = cost.first.max(cost.errors);
        }
        Some(cost)
    }

    fn entries(
        &self,
        node: &Node,
        entries: &Map<String, Value>,
        cost: &mut Cost,
        steps: &mut Steps,
    ) -> Option<()> {
        if node.is_shallow_for_objects() {
            return Some(());
        }
        for (key, value) in entries {
            steps.take(1)?;
            let bytes = key.len() as u64;
            cost.work(2 + bytes / BYTES_PER_UNIT);
            if let Some(names) = node.names {
                let name = Value::from(key.as_str());
                cost.add(self.visit(names, &name, steps)?);
            }
            for pattern in &node.patterns {
                steps.take(1)?;
                cost.work(1 + bytes.saturating_mul(pattern.per_byte) / BYTES_PER_UNIT);
                self.child(pattern.node, value, cost, steps)?;
            }
            if let Some(named) = node.properties.get(key.as_str()) {
                self.child(Some(*named), value, cost, steps)?;
            } else {
                for rest in &node.rest {
                    self.child(Some(*rest), value, cost, steps)?;
                }
            }
        }
        Some(())
    }

    fn items(
        &self,
        node: &Node,
        items: &[Value],
        cost: &mut Cost,
        steps: &mut Steps,
    ) -> Option<()> {
        if node.is_shallow_for_arrays() {
            return Some(());
        }
        for (index, item) in items.iter().enumerate() {
            steps.take(1)?;
            cost.work(1);
            self.child(node.prefix.get(index).copied().flatten(), item, cost, steps)?;
            for next in &node.items {
                self.child(Some(*next), item, cost, steps)?;
            }
        }
        Some(())
    }

    /// Adds what a part of the value costs.
    fn child(
        &self,
        node: Option<NodeId>,
        value: &Value,
        cost: &mut Cost,
        steps: &mut Steps,
    ) -> Option<()> {
        let Some(node) = node else { return Some(()) };
        let below = self.visit(node, value, steps)?;
        cost.add(below);
        // Marking looks into parts only by saying whether they fit.
        cost.mark = cost.mark.saturating_add(below.valid);
        Some(())
    }
}

impl Cost {
    /// Adds work that every kind of check does.
    fn work(&mut self, units: u64) {
        self.valid = self.valid.saturating_add(units);
        self.mark = self.mark.saturating_add(units);
        self.collect = self.collect.saturating_add(units);
    }
}

/// The size of a value: one for each part, and its texts.
fn size(value: &Value, steps: &mut Steps) -> Option<u64> {
    steps.take(1)?;
    let mut total = 1;
    match value {
        Value::Array(items) => {
            for item in items {
                total += size(item, steps)?;
            }
        }
        Value::Object(entries) => {
            for (key, value) in entries {
                total += size(value, steps)? + key.len() as u64 / BYTES_PER_UNIT;
            }
        }
        Value::String(text) => total += text.len() as u64 / BYTES_PER_UNIT,
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Some(total)
}
