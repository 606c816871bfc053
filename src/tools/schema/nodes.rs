//! The schema nodes that apply to a part of the arguments.

use serde_json::{Map, Value};

use super::document::SchemaDocument;

/// Most nodes for one part, more than hand-written schemas have; others are not repaired by.
const MAX_NODES: usize = 64;

/// The schema nodes that apply, certainly or possibly, to one part of the arguments.
///
/// All alternatives are included. A match therefore only suggests a repair; the validator decides whether it is valid.
#[derive(Debug, Clone)]
pub(crate) struct SchemaNodes<'a> {
    document: &'a SchemaDocument,
    nodes: Vec<&'a Value>,
}

impl<'a> SchemaNodes<'a> {
    pub(super) fn root(document: &'a SchemaDocument) -> Self {
        let mut nodes = Self {
            document,
            nodes: Vec::new(),
        };
        nodes.add(&document.root);
        nodes
    }

    /// The cost of looking up and querying the nodes of one part, in units of about 20 ns.
    pub(super) fn lookup_units(document: &SchemaDocument) -> u64 {
        let nodes = document.extent.schemas.min(MAX_NODES);
        // Each node is compared with the known ones and queried several times.
        (nodes * (nodes / 8 + document.widest + 1)) as u64
    }

    /// Adds a node with all nodes that it applies to the same value.
    fn add(&mut self, node: &'a Value) {
        if self.nodes.len() >= MAX_NODES
            || self.nodes.iter().any(|known| std::ptr::eq(*known, node))
        {
            return;
        }
        self.nodes.push(node);
        for (keyword, value) in node.as_object().into_iter().flatten() {
            if matches!(
                keyword.as_str(),
                "$ref" | "allOf" | "anyOf" | "oneOf" | "then" | "else"
            ) {
                let schemas = self.document.in_place(keyword, value);
                schemas
                    .into_iter()
                    .flatten()
                    .for_each(|schema| self.add(schema));
            }
        }
    }

    fn objects(&self) -> impl Iterator<Item = &'a Map<String, Value>> {
        self.nodes.iter().filter_map(|node| node.as_object())
    }

    fn descend(&self, step: impl Fn(&'a Map<String, Value>) -> Option<&'a Value>) -> Self {
        let mut below = Self {
            document: self.document,
            nodes: Vec::new(),
        };
        for child in self.objects().filter_map(step) {
            below.add(child);
        }
        below
    }

    pub(crate) fn property(&self, key: &str) -> Self {
        self.descend(|node| {
            node.get("properties")
                .and_then(|properties| properties.get(key))
                .or_else(|| node.get("additionalProperties"))
                .filter(|schema| schema.is_object())
        })
    }

    /// The nodes for an array's item.
    pub(crate) fn item(&self, index: usize) -> Self {
        self.descend(|node| {
            let listed = |keyword| node.get(keyword).and_then(|items: &Value| items.get(index));
            listed("prefixItems")
                .or_else(|| listed("items"))
                .or_else(|| node.get("items"))
                .filter(|schema| schema.is_object())
        })
    }

    /// Whether a property is named in any of the nodes.
    pub(crate) fn names(&self, key: &str) -> bool {
        self.requires(key)
            || self
                .objects()
                .filter_map(|node| node.get("properties"))
                .any(|properties| properties.get(key).is_some())
    }

    /// Whether any of the nodes requires the property.
    pub(crate) fn requires(&self, key: &str) -> bool {
        self.objects()
            .filter_map(|node| node.get("required")?.as_array())
            .flatten()
            .any(|name| name == key)
    }

    /// Whether any of the nodes forbids properties that it does not name.
    pub(crate) fn is_closed(&self) -> bool {
        self.objects().any(|node| {
            ["additionalProperties", "unevaluatedProperties"]
                .iter()
                .any(|keyword| node.get(*keyword) == Some(&Value::Bool(false)))
        })
    }

    /// Whether `null` is certainly invalid: a node excludes it and none names it.
    pub(crate) fn excludes_null(&self) -> bool {
        let mut excluded = false;
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
            excluded |= named.contains(&Some(false));
        }
        excluded
    }

    /// Whether any of the nodes says that the value is a path.
    pub(crate) fn is_path(&self) -> bool {
        self.objects().any(|node| {
            let format = node.get("format").and_then(Value::as_str);
            matches!(format, Some("path" | "absolute_path" | "relative_path"))
                || node.iter().any(|(keyword, value)| {
                    keyword.starts_with("x-") && keyword.ends_with("-kind") && value == "path"
                })
        })
    }
}

/// Whether a keyword's value is this one, or a list that contains it.
fn contains(keyword: &Value, wanted: &Value) -> bool {
    match keyword {
        Value::Array(values) => values.contains(wanted),
        value => value == wanted,
    }
}
