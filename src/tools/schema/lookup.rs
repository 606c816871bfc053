//! Finding the schema nodes that apply to a part of the arguments.

use serde_json::{Map, Value};

use super::limits::resolve;

/// Most nodes that are looked at for one place; more than any schema written by hand has.
const MAX_NODES: usize = 64;
/// Keywords whose schemas apply to the same value, surely or perhaps.
const IN_PLACE: [&str; 5] = ["allOf", "anyOf", "oneOf", "then", "else"];

/// The schema nodes that apply, surely or perhaps, to one place of the arguments.
///
/// Alternatives are all in it, so what is found is only ever a reason to try something; the validator decides.
#[derive(Debug, Clone)]
pub(in crate::tools) struct Nodes<'a> {
    root: &'a Value,
    nodes: Vec<&'a Value>,
}

/// The most that looking up and asking the nodes for one place costs, in units of about 20 ns.
///
/// `ways` is the most nodes that follow from one, `widest` the most entries that a node's keywords have.
pub(super) fn cost(ways: usize, widest: u64) -> u64 {
    let nodes = ways.min(MAX_NODES) as u64;
    // Each node is compared with those that are known; a place asks several times.
    nodes.saturating_mul(nodes / 8 + widest + 1)
}

impl<'a> Nodes<'a> {
    pub(super) fn root(schema: &'a Value) -> Self {
        let mut nodes = Self {
            root: schema,
            nodes: Vec::new(),
        };
        nodes.add(schema);
        nodes
    }

    /// Adds a node with everything that it refers to for the same place.
    fn add(&mut self, node: &'a Value) {
        if self.nodes.len() >= MAX_NODES
            || self.nodes.iter().any(|known| std::ptr::eq(*known, node))
        {
            return;
        }
        self.nodes.push(node);
        if let Some(target) = node
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|reference| resolve(self.root, reference))
        {
            self.add(target);
        }
        for keyword in IN_PLACE {
            match node.get(keyword) {
                Some(Value::Array(schemas)) => schemas.iter().for_each(|schema| self.add(schema)),
                Some(schema @ Value::Object(_)) => self.add(schema),
                Some(_) | None => {}
            }
        }
    }

    fn objects(&self) -> impl Iterator<Item = &'a Map<String, Value>> {
        self.nodes.iter().filter_map(|node| node.as_object())
    }

    fn descend(&self, step: impl Fn(&'a Map<String, Value>) -> Option<&'a Value>) -> Self {
        let mut below = Self {
            root: self.root,
            nodes: Vec::new(),
        };
        for child in self.objects().filter_map(step) {
            below.add(child);
        }
        below
    }

    /// The nodes for a property.
    pub(in crate::tools) fn property(&self, key: &str) -> Self {
        self.descend(|node| {
            node.get("properties")
                .and_then(|properties| properties.get(key))
                .or_else(|| node.get("additionalProperties"))
                .filter(|schema| schema.is_object())
        })
    }

    /// The nodes for an array's item.
    pub(in crate::tools) fn item(&self, index: usize) -> Self {
        self.descend(|node| {
            let listed = |keyword| node.get(keyword).and_then(|items: &Value| items.get(index));
            listed("prefixItems")
                .or_else(|| listed("items"))
                .or_else(|| node.get("items"))
                .filter(|schema| schema.is_object())
        })
    }

    /// Whether a property is named in any of the nodes.
    pub(in crate::tools) fn names(&self, key: &str) -> bool {
        self.requires(key)
            || self
                .objects()
                .filter_map(|node| node.get("properties"))
                .any(|properties| properties.get(key).is_some())
    }

    /// Whether any of the nodes requires the property.
    pub(in crate::tools) fn requires(&self, key: &str) -> bool {
        self.objects()
            .filter_map(|node| node.get("required")?.as_array())
            .flatten()
            .any(|name| name == key)
    }

    /// Whether any of the nodes refuses properties that it does not name.
    pub(in crate::tools) fn is_closed(&self) -> bool {
        self.objects().any(|node| {
            ["additionalProperties", "unevaluatedProperties"]
                .iter()
                .any(|keyword| node.get(*keyword) == Some(&Value::Bool(false)))
        })
    }

    /// Whether `null` is surely no value for this place: a node rules it out and none names it.
    pub(in crate::tools) fn rules_out_null(&self) -> bool {
        let mut ruled_out = false;
        for node in self.objects() {
            let named = [
                node.get("type")
                    .map(|types| contains(types, &Value::from("null"))),
                node.get("enum")
                    .map(|values| contains(values, &Value::Null)),
                node.get("const").map(Value::is_null),
            ];
            if named.contains(&Some(true)) {
                return false;
            }
            ruled_out |= named.contains(&Some(false));
        }
        ruled_out
    }

    /// Whether any of the nodes says that the value is a path.
    pub(in crate::tools) fn is_path(&self) -> bool {
        self.objects().any(|node| {
            let format = node.get("format").and_then(Value::as_str);
            matches!(format, Some("path" | "absolute_path" | "relative_path"))
                || node.iter().any(|(keyword, value)| {
                    keyword.starts_with("x-") && keyword.ends_with("-kind") && value == "path"
                })
        })
    }
}

/// Whether a keyword's value is this one or a list with it.
fn contains(keyword: &Value, wanted: &Value) -> bool {
    match keyword {
        Value::Array(values) => values.contains(wanted),
        value => value == wanted,
    }
}
