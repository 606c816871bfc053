//! An upper bound for the cost of one check, found before the check is made.
//!
//! The validator has no limit of its own: it visits every alternative at every level of the arguments, and collects all
//! errors before it returns the first. This walk visits the same schemas and values, only counts, and stops when its
//! budget is used up.

use serde_json::{Map, Value};

use super::document::SchemaDocument;

/// Memory of one error without its pointer, in bytes: measured at 300 to 500.
const ERROR_BYTES: u64 = 640;
/// Weight: bytes of errors that are made in one unit.
const ERROR_BYTES_PER_UNIT: u64 = 32;
/// Weight: bytes of a text that a plain pass over it handles in one unit.
const BYTES_PER_UNIT: u64 = 64;
/// Weight: bytes of a text that one position of a pattern handles in one unit.
const PATTERN_BYTES_PER_UNIT: u64 = 4;
/// Weight of each part of an array whose items are compared with each other, in units.
const UNIQUE_UNITS: u64 = 16;
/// Weight of a division by `multipleOf`, which is exact, in units.
const DIVISION_UNITS: u64 = 64;
/// Weight of one schema and one value, in steps of the walk, which take as long as so many units.
const VISIT_STEPS: u64 = 3;
/// Memory of an index in a pointer, and of the quotes around a name in an error, in bytes.
const INDEX_BYTES: u64 = 8;

/// Keywords without errors of their own: only the schemas in them report errors.
#[rustfmt::skip]
const COUNTED_ELSEWHERE: [&str; 16] = [
    "$ref", "allOf", "if", "then", "else", "properties", "patternProperties", "items", "prefixItems", "required",
    "title", "description", "default", "examples", "$defs", "definitions",
];

/// The highest possible cost of a check: work in units of about 20 ns, memory in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CheckCost {
    /// Work to tell whether the value is valid.
    pub(super) validity: u64,
    /// Memory of all errors.
    pub(super) all_errors: u64,
    /// Memory of the first error with the errors of its alternatives.
    pub(super) first_error: u64,
}

impl CheckCost {
    /// Work to report errors of this size.
    pub(super) fn report(&self, error_bytes: u64) -> u64 {
        self.validity
            .saturating_add(error_bytes / ERROR_BYTES_PER_UNIT)
    }

    fn error(&mut self, bytes: u64) {
        self.all_errors = self.all_errors.saturating_add(bytes);
        self.first_error = self.first_error.max(bytes);
    }

    fn add(&mut self, other: Self) {
        self.validity = self.validity.saturating_add(other.validity);
        self.all_errors = self.all_errors.saturating_add(other.all_errors);
        self.first_error = self.first_error.max(other.first_error);
    }
}

impl SchemaDocument {
    /// The cost of checking a value; `None` where validity alone takes more than the budget, in units.
    pub(super) fn cost(&self, value: &Value, budget: u64) -> Option<CheckCost> {
        let mut walk = Walk {
            document: self,
            left: budget,
        };
        walk.visit(&self.root, value, 0)
            .filter(|cost| cost.validity <= budget)
    }
}

struct Walk<'a> {
    document: &'a SchemaDocument,
    /// Steps that the walk itself may still take.
    left: u64,
}

impl Walk<'_> {
    fn spend(&mut self, steps: u64) -> Option<()> {
        self.left = self.left.checked_sub(steps)?;
        Some(())
    }

    /// The cost of one schema for one value; `pointer` is the length of its JSON pointer in bytes.
    fn visit(&mut self, schema: &Value, value: &Value, pointer: u64) -> Option<CheckCost> {
        self.spend(VISIT_STEPS)?;
        let error = ERROR_BYTES + pointer;
        let mut cost = CheckCost {
            validity: 1,
            ..CheckCost::default()
        };
        let Value::Object(keywords) = schema else {
            cost.error(error);
            return Some(cost);
        };
        let (mut alternatives, mut unevaluated) = (false, false);
        for (keyword, argument) in keywords {
            for next in self.document.in_place(keyword, argument).ok()? {
                cost.add(self.visit(next, value, pointer)?);
            }
            for (next, key, part) in parts(keywords, keyword, argument, value) {
                // A slash or tilde takes two bytes in a pointer.
                let key = 1 + key.map_or(INDEX_BYTES, |key| 2 * key.len() as u64);
                cost.add(self.visit(next, part, pointer + key)?);
            }
            if let ("propertyNames", Value::Object(entries)) = (keyword.as_str(), value) {
                for key in entries.keys() {
                    cost.add(self.visit(argument, &Value::from(key.as_str()), pointer)?);
                }
            }
            let units = self.units(keyword, argument, value)?;
            self.spend(units)?;
            cost.validity = cost.validity.saturating_add(units);
            cost.error(own_error(keyword, argument, value, error));
            match keyword.as_str() {
                "anyOf" | "oneOf" => alternatives = true,
                "unevaluatedProperties" | "unevaluatedItems" => unevaluated = true,
                // Its error holds a copy of the schema.
                "not" => cost.error(self.size(argument)?.saturating_mul(ERROR_BYTES)),
                _ => {}
            }
        }
        if unevaluated {
            // All schemas for this value are asked once more which parts they evaluated.
            let chain = self.document.extent.chain as u64;
            cost.validity = cost.validity.saturating_mul(1 + chain);
        }
        if alternatives {
            cost.first_error = cost.first_error.max(cost.all_errors);
        }
        Some(cost)
    }

    /// The work of a keyword, without the work of the schemas in it.
    fn units(&mut self, keyword: &str, argument: &Value, value: &Value) -> Option<u64> {
        Some(match (keyword, argument, value) {
            ("enum" | "const" | "required" | "dependentRequired" | "dependencies", _, _) => {
                self.size(argument)?
            }
            ("pattern", Value::String(pattern), Value::String(text)) => {
                pattern_units(pattern, text)
            }
            ("minLength" | "maxLength", _, Value::String(text)) => {
                text.len() as u64 / BYTES_PER_UNIT
            }
            ("format" | "contentEncoding" | "contentMediaType", _, Value::String(text)) => {
                text.len() as u64
            }
            ("multipleOf", _, Value::Number(_)) => DIVISION_UNITS,
            ("uniqueItems", Value::Bool(true), Value::Array(_)) => {
                self.size(value)?.saturating_mul(UNIQUE_UNITS)
            }
            ("properties", Value::Object(schemas), Value::Object(entries)) => {
                (schemas.len() + entries.len()) as u64
            }
            ("patternProperties", Value::Object(schemas), Value::Object(entries)) => {
                self.spend((schemas.len() * entries.len()) as u64)?;
                // Once for the property, once more to find those that no pattern names.
                schemas.keys().fold(0, |units, pattern| {
                    let matches = entries.keys().map(|key| 2 * pattern_units(pattern, key));
                    matches.fold(units, u64::saturating_add)
                })
            }
            ("additionalProperties" | "unevaluatedProperties", _, Value::Object(entries)) => {
                entries.len() as u64
            }
            _ => 0,
        })
    }

    /// The size of a value: one for each part, and its texts.
    fn size(&mut self, value: &Value) -> Option<u64> {
        self.spend(1)?;
        let mut total = 1;
        match value {
            Value::Array(items) => {
                for item in items {
                    total += self.size(item)?;
                }
            }
            Value::Object(entries) => {
                for (key, value) in entries {
                    total += self.size(value)? + key.len() as u64 / BYTES_PER_UNIT;
                }
            }
            Value::String(text) => total += text.len() as u64 / BYTES_PER_UNIT,
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        Some(total)
    }
}

/// The schemas that a keyword applies to parts of a value, each with the part's key and the part.
fn parts<'a>(
    keywords: &'a Map<String, Value>,
    keyword: &str,
    argument: &'a Value,
    value: &'a Value,
) -> Box<dyn Iterator<Item = (&'a Value, Option<&'a String>, &'a Value)> + 'a> {
    match (keyword, argument, value) {
        ("properties", Value::Object(schemas), Value::Object(entries)) => Box::new(
            entries
                .iter()
                .filter_map(|(key, part)| Some((schemas.get(key)?, Some(key), part))),
        ),
        ("patternProperties", Value::Object(schemas), Value::Object(entries)) => {
            Box::new(entries.iter().flat_map(|(key, part)| {
                let schemas = schemas.values();
                schemas.map(move |schema| (schema, Some(key), part))
            }))
        }
        ("additionalProperties" | "unevaluatedProperties", schema, Value::Object(entries)) => {
            let named = keywords.get("properties");
            Box::new(
                entries
                    .iter()
                    .filter(move |(key, _)| named.and_then(|named| named.get(*key)).is_none())
                    .map(move |(key, part)| (schema, Some(key), part)),
            )
        }
        ("items" | "prefixItems", Value::Array(schemas), Value::Array(items)) => Box::new(
            schemas
                .iter()
                .zip(items)
                .map(|(schema, item)| (schema, None, item)),
        ),
        (
            "items" | "additionalItems" | "contains" | "unevaluatedItems",
            schema,
            Value::Array(items),
        ) => Box::new(items.iter().map(move |item| (schema, None, item))),
        _ => Box::new(std::iter::empty()),
    }
}

/// Memory of the errors that a keyword itself has about a value; `error` is the size of one.
fn own_error(keyword: &str, argument: &Value, value: &Value, error: u64) -> u64 {
    match (keyword, argument, value) {
        ("required", Value::Array(names), Value::Object(entries)) => names
            .iter()
            .filter_map(Value::as_str)
            .filter(|name| !entries.contains_key(*name))
            .fold(0, |sum, name| sum + error + name.len() as u64),
        // One error names all properties.
        ("additionalProperties" | "unevaluatedProperties", _, Value::Object(entries)) => entries
            .keys()
            .fold(error, |sum, key| sum + INDEX_BYTES + key.len() as u64),
        (keyword, ..) if COUNTED_ELSEWHERE.contains(&keyword) => 0,
        _ => error,
    }
}

/// Units for matching a pattern against a text.
fn pattern_units(pattern: &str, text: &str) -> u64 {
    1 + positions(pattern).saturating_mul(text.len() as u64) / PATTERN_BYTES_PER_UNIT
}

/// Positions of a pattern whose counted repeats are written out; each may be live at every byte of a text.
///
/// Never too low for what the engine compiles; unknown syntax counts as one position a character.
fn positions(pattern: &str) -> u64 {
    let mut outer = Vec::new();
    // Positions of the group so far, and of its last part.
    let mut group = (0_u64, 0_u64);
    let add = |group: &mut (u64, u64), last: u64| *group = (group.0.saturating_add(last), last);
    let mut chars = pattern.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\\' => {
                chars.next();
                add(&mut group, 1);
            }
            '(' => outer.push(std::mem::take(&mut group)),
            ')' => {
                let inner = group.0;
                group = outer.pop().unwrap_or_default();
                add(&mut group, inner);
            }
            '{' => {
                let is_count = |char: &char| char.is_ascii_digit() || *char == ',';
                let mut counts = String::new();
                while let Some(char) = chars.next_if(is_count) {
                    counts.push(char);
                }
                chars.next_if_eq(&'}');
                let count = |text: &str| match text {
                    "" => 1,
                    digits => digits.parse().unwrap_or(u64::MAX),
                };
                let times = counts.split(',').map(count).max().unwrap_or(1).max(1);
                let repeated = group.1.saturating_mul(times);
                group.0 -= group.1;
                add(&mut group, repeated);
            }
            _ => add(&mut group, 1),
        }
    }
    let open = outer.iter().map(|group| group.0);
    open.fold(group.0, u64::saturating_add).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_repeats_are_written_out() {
        for (pattern, expected) in [
            ("", 1),
            ("abc", 3),
            (r"\d{3}", 3),
            ("a{2,5}b", 6),
            ("(ab){10}", 20),
            ("((a{9}){9}){5}", 405),
            ("x{,}y", 2),
            ("(((a", 1),
        ] {
            assert_eq!(positions(pattern), expected, "{pattern}");
        }
        assert!(positions("[a-z]{64}") >= 64);
        assert_eq!(positions(&"(a{999999999}".repeat(9)), 9 * 999_999_999);
        assert_eq!(
            positions(&format!("{}a{}", "(".repeat(9), "){99999}".repeat(9))),
            u64::MAX
        );
    }
}
