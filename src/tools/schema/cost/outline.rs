//! A schema reduced to what checking against it costs.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::pattern::positions;
use super::types::Types;
use crate::tools::schema::limits::{IN_PLACE, REFERENCES, References, TooCostly};

/// What a byte of a text costs in units of [`super::BYTES_PER_UNIT`] for each position of a pattern.
const PER_POSITION: u64 = 16;
/// The same for the keywords that look at the text's bytes one after another.
const PER_LENGTH: u64 = 1;
const PER_FORMAT: u64 = 64;

/// Place of a node in the outline.
pub(super) type NodeId = usize;

/// A schema as far as it says what a check costs.
#[derive(Debug)]
pub(in crate::tools::schema) struct Outline {
    pub(super) nodes: Vec<Node>,
    /// `None` where everything fits.
    pub(super) root: Option<NodeId>,
    /// The most that looking up the nodes for one place of the arguments costs, in units.
    pub(in crate::tools::schema) lookup: u64,
}

/// One schema of the document.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// Units for a value whatever it is.
    pub(super) base: u64,
    /// Units for [`super::BYTES_PER_UNIT`] bytes of a text.
    pub(super) per_byte: u64,
    /// Schemas for the same value.
    pub(super) in_place: Vec<NodeId>,
    pub(super) properties: HashMap<Box<str>, NodeId>,
    pub(super) patterns: Vec<PatternNode>,
    /// Schemas for properties that no other names.
    pub(super) rest: Vec<NodeId>,
    /// The schema for the names of properties.
    pub(super) names: Option<NodeId>,
    pub(super) prefix: Vec<Option<NodeId>>,
    /// Schemas for items, whichever.
    pub(super) items: Vec<NodeId>,
    pub(super) unique: bool,
    /// Whether it asks for what other schemas looked at.
    pub(super) marks: bool,
    /// Whether gathering errors begins with finding out whether there are any.
    pub(super) rechecks: bool,
    /// Whether its error holds those of its alternatives.
    pub(super) has_context: bool,
    types: Option<Types>,
    required: Vec<Box<str>>,
    checks: Checks,
}

/// A pattern for property names with the schema for their values.
#[derive(Debug)]
pub(super) struct PatternNode {
    pub(super) per_byte: u64,
    pub(super) node: Option<NodeId>,
}

/// How many keywords can find fault with a value.
#[derive(Debug, Default)]
struct Checks {
    any: u64,
    strings: u64,
    numbers: u64,
    arrays: u64,
    objects: u64,
}

impl Node {
    /// The most errors that the node's own keywords can have about a value.
    pub(super) fn own_errors(&self, value: &Value) -> u64 {
        /// Bytes of the names that an error lists which count as one more error.
        const NAMES_BYTES: u64 = 512;
        let mistyped = u64::from(self.types.is_some_and(|types| !types.allow(value)));
        let checks = match value {
            Value::String(_) => self.checks.strings,
            Value::Number(_) => self.checks.numbers,
            Value::Array(_) => self.checks.arrays,
            Value::Object(entries) => {
                let missing: u64 = self
                    .required
                    .iter()
                    .filter(|name| !entries.contains_key(&***name))
                    .map(|name| 1 + name.len() as u64 / NAMES_BYTES)
                    .sum();
                let names = if self.checks.objects == 0 {
                    0
                } else {
                    let bytes: usize = entries.keys().map(|key| key.len() + 24).sum();
                    bytes as u64 / NAMES_BYTES
                };
                missing + names + self.checks.objects
            }
            Value::Null | Value::Bool(_) => 0,
        };
        mistyped + self.checks.any + checks
    }

    pub(super) fn is_shallow_for_objects(&self) -> bool {
        self.properties.is_empty()
            && self.patterns.is_empty()
            && self.rest.is_empty()
            && self.names.is_none()
            && !self.marks
            && self.checks.objects == 0
    }

    pub(super) fn is_shallow_for_arrays(&self) -> bool {
        self.prefix.is_empty() && self.items.is_empty() && !self.marks
    }
}

impl Outline {
    /// The outline of a schema whose cost was measured.
    ///
    /// # Errors
    /// When it refers to what is not in it.
    pub(in crate::tools::schema) fn new(
        schema: &Value,
        references: &References<'_>,
        ways: usize,
    ) -> Result<Self, TooCostly> {
        let mut builder = Builder {
            references,
            known: HashMap::new(),
            waiting: Vec::new(),
            nodes: Vec::new(),
            widest: 0,
        };
        let root = builder.place(schema);
        while let Some((id, schema)) = builder.waiting.pop() {
            let node = builder.node(schema)?;
            if let Some(slot) = builder.nodes.get_mut(id) {
                *slot = node;
            }
        }
        Ok(Self {
            lookup: super::super::lookup::cost(ways, builder.widest),
            nodes: builder.nodes,
            root,
        })
    }

    /// How many nodes there are.
    pub(in crate::tools::schema) fn len(&self) -> usize {
        self.nodes.len()
    }
}

struct Builder<'a, 'b> {
    references: &'b References<'a>,
    known: HashMap<*const Value, NodeId>,
    waiting: Vec<(NodeId, &'a Value)>,
    nodes: Vec<Node>,
    widest: u64,
}

impl<'a> Builder<'a, '_> {
    /// The node of a schema; `None` where it lets everything pass.
    fn place(&mut self, schema: &'a Value) -> Option<NodeId> {
        match schema {
            Value::Object(keywords) if keywords.is_empty() => None,
            Value::Object(_) | Value::Bool(false) => {
                let id = *self
                    .known
                    .entry(std::ptr::from_ref(schema))
                    .or_insert(self.nodes.len());
                if id == self.nodes.len() {
                    self.nodes.push(Node::default());
                    self.waiting.push((id, schema));
                }
                Some(id)
            }
            _ => None,
        }
    }

    fn node(&mut self, schema: &'a Value) -> Result<Node, TooCostly> {
        let Value::Object(keywords) = schema else {
            return Ok(Node {
                base: 1,
                types: Some(Types::NONE),
                ..Node::default()
            });
        };
        let mut node = Node {
            base: 1,
            ..Node::default()
        };
        for (keyword, value) in keywords {
            if REFERENCES.contains(&keyword.as_str()) {
                if let Value::String(reference) = value {
                    let target = self.references.target(reference)?;
                    node.in_place.extend(self.place(target));
                }
            } else if IN_PLACE.contains(&keyword.as_str()) {
                self.in_place(&mut node, keyword, value);
            } else if !self.parts(&mut node, keyword, value) {
                assertion(&mut node, keyword, value);
            }
        }
        self.widest = self.widest.max(width(keywords));
        Ok(node)
    }

    fn in_place(&mut self, node: &mut Node, keyword: &str, value: &'a Value) {
        node.rechecks |= keyword != "allOf";
        node.checks.any += match keyword {
            "anyOf" | "oneOf" => 1,
            // Its error holds a copy of the schema.
            "not" => weight(value, 1),
            _ => 0,
        };
        node.has_context |= matches!(keyword, "anyOf" | "oneOf");
        match value {
            Value::Array(schemas) => {
                for schema in schemas {
                    node.base += 1;
                    node.in_place.extend(self.place(schema));
                }
            }
            Value::Object(schemas) if keyword.starts_with("depend") => {
                for schema in schemas.values() {
                    node.base += weight(schema, 1);
                    node.checks.objects += schema.as_array().map_or(0, |names| names.len() as u64);
                    node.in_place.extend(self.place(schema));
                }
            }
            schema => node.in_place.extend(self.place(schema)),
        }
    }

    /// Reads a keyword whose schemas are for parts of a value; says whether it is one.
    fn parts(&mut self, node: &mut Node, keyword: &str, value: &'a Value) -> bool {
        match (keyword, value) {
            ("properties", Value::Object(schemas)) => {
                for (name, schema) in schemas {
                    node.base += 1;
                    if let Some(id) = self.place(schema) {
                        node.properties.insert(name.as_str().into(), id);
                    }
                }
            }
            ("patternProperties", Value::Object(schemas)) => {
                for (pattern, schema) in schemas {
                    node.patterns.push(PatternNode {
                        // Once for these properties, once more to find those that are none of them.
                        per_byte: positions(pattern).saturating_mul(2 * PER_POSITION),
                        node: self.place(schema),
                    });
                }
            }
            ("additionalProperties" | "unevaluatedProperties", schema) => {
                node.marks |= keyword == "unevaluatedProperties";
                node.rechecks |= keyword == "unevaluatedProperties";
                match schema {
                    // One error for all of them.
                    Value::Bool(false) => node.checks.objects += 1,
                    schema => node.rest.extend(self.place(schema)),
                }
            }
            ("propertyNames", schema) => {
                node.checks.objects += 1;
                node.rechecks = true;
                node.names = self.place(schema);
            }
            ("prefixItems" | "items", Value::Array(schemas)) => {
                for schema in schemas {
                    let id = self.place(schema);
                    node.prefix.push(id);
                }
            }
            ("items" | "additionalItems" | "contains" | "unevaluatedItems", schema) => {
                node.marks |= keyword == "unevaluatedItems";
                node.rechecks |= matches!(keyword, "unevaluatedItems" | "contains");
                node.checks.arrays += u64::from(keyword != "items");
                node.items.extend(self.place(schema));
            }
            _ => return false,
        }
        true
    }
}

/// Reads a keyword that finds fault with a value itself.
fn assertion(node: &mut Node, keyword: &str, value: &Value) {
    match keyword {
        "type" => node.types = Some(Types::read(value)),
        "required" => {
            if let Value::Array(names) = value {
                let names = names.iter().filter_map(Value::as_str);
                node.required = names.map(Into::into).collect();
            }
            node.base += weight(value, 1);
        }
        "enum" | "const" => {
            node.checks.any += 1;
            node.base += weight(value, 1);
        }
        "pattern" => {
            node.checks.strings += 1;
            let positions = value.as_str().map_or(1, positions);
            node.per_byte = node
                .per_byte
                .saturating_add(positions.saturating_mul(PER_POSITION));
        }
        "minLength" | "maxLength" => {
            node.checks.strings += 1;
            node.per_byte = node.per_byte.saturating_add(PER_LENGTH);
        }
        "format" | "contentEncoding" | "contentMediaType" => {
            node.checks.strings += 1;
            node.per_byte = node.per_byte.saturating_add(PER_FORMAT);
        }
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
            node.checks.numbers += 1;
        }
        "multipleOf" => {
            node.checks.numbers += 1;
            // Calculated with large whole numbers.
            node.base += 64;
        }
        "uniqueItems" => {
            node.unique = *value == Value::Bool(true);
            node.checks.arrays += 1;
        }
        "minItems" | "maxItems" | "minContains" | "maxContains" => node.checks.arrays += 1,
        "minProperties" | "maxProperties" => node.checks.objects += 1,
        "dependentRequired" => {
            node.base += weight(value, 1);
            node.checks.objects += weight(value, 1);
        }
        _ => {}
    }
}

/// Units for comparing something with a value of the schema: its parts and its texts.
fn weight(value: &Value, part: u64) -> u64 {
    match value {
        Value::Array(items) => part + items.iter().map(|item| weight(item, part)).sum::<u64>(),
        Value::Object(entries) => entries.iter().fold(part, |sum, (key, value)| {
            sum + key.len() as u64 / super::BYTES_PER_UNIT + weight(value, part)
        }),
        Value::String(text) => part + text.len() as u64 / super::BYTES_PER_UNIT,
        Value::Null | Value::Bool(_) | Value::Number(_) => part,
    }
}

/// What looking at all keywords of a node takes when the nodes for a place are looked up, in entries.
fn width(keywords: &Map<String, Value>) -> u64 {
    keywords
        .values()
        .map(|value| match value {
            Value::Array(items) => 1 + items.len() as u64,
            // A reference, which is read and followed.
            Value::String(text) => 1 + text.len() as u64 / 8,
            _ => 1,
        })
        .sum()
}
