//! The document of a schema: its references, and the limits that are checked before it is compiled.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use super::SchemaError;

/// Deepest nesting of a document, and longest chain of schemas that apply to one value, each nested in or referenced by
/// the previous one. A deeper one is not compiled, and arguments are not checked.
/// Tried by `schema::what_would_cost_too_much_is_refused`.
const MAX_DEPTH: usize = 64;
/// Most schemas that apply to one value. A chain of definitions that each reference the next one twice grows
/// exponentially; such a document is not compiled.
/// Tried by `schema::what_would_cost_too_much_is_refused`.
const MAX_IN_PLACE: usize = 2048;
/// Most patterns in a document. One with more is not compiled.
/// Tried by `schema::what_would_cost_too_much_is_refused`.
const MAX_PATTERNS: usize = 128;

/// A schema document within the limits.
#[derive(Debug)]
pub(super) struct SchemaDocument {
    pub(super) root: Value,
    /// The JSON pointer of each anchor.
    anchors: HashMap<String, String>,
    pub(super) patterns: usize,
    /// Most entries of one keyword.
    pub(super) widest: usize,
    /// The largest extent of any schema.
    pub(super) extent: SchemaExtent,
}

/// The schemas that apply to one value because of one schema.
#[derive(Debug, Clone, Copy)]
pub(super) struct SchemaExtent {
    /// Length of the longest chain.
    pub(super) chain: usize,
    /// Number of schemas, each counted as often as it applies.
    pub(super) schemas: usize,
}

impl SchemaExtent {
    const ONE: Self = Self {
        chain: 1,
        schemas: 1,
    };
}

impl SchemaDocument {
    /// Checks a document against the limits.
    ///
    /// # Errors
    /// When it exceeds a limit, or a reference is not a pointer or anchor into this document.
    pub(super) fn new(root: Value) -> Result<Self, SchemaError> {
        let mut document = Self {
            root: Value::Null,
            anchors: HashMap::new(),
            patterns: 0,
            widest: 0,
            extent: SchemaExtent::ONE,
        };
        document.scan(&root, "", 1, id_keyword(&root))?;
        document.root = root;
        document.extent = document.measure(&document.root, &mut HashMap::new())?;
        Ok(document)
    }

    /// Collects the anchors and counts what is limited.
    fn scan(
        &mut self,
        value: &Value,
        pointer: &str,
        depth: usize,
        id: &str,
    ) -> Result<(), SchemaError> {
        if depth > MAX_DEPTH {
            return Err(SchemaError::Depth);
        }
        match value {
            Value::Array(items) => {
                self.widest = self.widest.max(items.len());
                for (index, item) in items.iter().enumerate() {
                    self.scan(item, &format!("{pointer}/{index}"), depth + 1, id)?;
                }
            }
            Value::Object(node) => {
                self.widest = self.widest.max(node.len());
                self.scan_node(node, pointer, id)?;
                for (key, child) in node {
                    let key = key.replace('~', "~0").replace('/', "~1");
                    self.scan(child, &format!("{pointer}/{key}"), depth + 1, id)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn scan_node(
        &mut self,
        node: &Map<String, Value>,
        pointer: &str,
        id: &str,
    ) -> Result<(), SchemaError> {
        let text = |keyword| node.get(keyword).and_then(Value::as_str);
        let mut names = vec![text("$anchor"), text("$dynamicAnchor")];
        // A nested identifier changes the base of the references below it.
        if let Some(id) = text(id).filter(|_| !pointer.is_empty()) {
            names.push(Some(id.strip_prefix('#').ok_or(SchemaError::Reference)?));
        }
        for name in names.into_iter().flatten() {
            let other = self.anchors.insert(name.to_owned(), pointer.to_owned());
            if other.is_some_and(|other| other != pointer) {
                return Err(SchemaError::Reference);
            }
        }
        self.patterns += usize::from(text("pattern").is_some());
        if let Some(Value::Object(patterns)) = node.get("patternProperties") {
            self.patterns += patterns.len();
        }
        if self.patterns > MAX_PATTERNS {
            return Err(SchemaError::Patterns);
        }
        Ok(())
    }

    /// The largest extent of any object in the document. Objects that are not schemas can only make the result larger.
    fn measure<'a>(
        &'a self,
        value: &'a Value,
        known: &mut Extents<'a>,
    ) -> Result<SchemaExtent, SchemaError> {
        let mut largest = self.extent(value, 1, known)?;
        let mut add = |child| {
            let extent = self.measure(child, known)?;
            largest.chain = largest.chain.max(extent.chain);
            largest.schemas = largest.schemas.max(extent.schemas);
            Ok(())
        };
        match value {
            Value::Array(items) => items.iter().try_for_each(&mut add)?,
            Value::Object(node) => node.values().try_for_each(&mut add)?,
            _ => {}
        }
        Ok(largest)
    }

    fn extent<'a>(
        &'a self,
        schema: &'a Value,
        level: usize,
        known: &mut Extents<'a>,
    ) -> Result<SchemaExtent, SchemaError> {
        let Value::Object(node) = schema else {
            return Ok(SchemaExtent::ONE);
        };
        let address = std::ptr::from_ref(node);
        match known.get(&address) {
            Some(Some(extent)) => return Ok(*extent),
            Some(None) => return Err(SchemaError::Cycle),
            None => {}
        }
        if level > MAX_DEPTH {
            return Err(SchemaError::Alternatives);
        }
        known.insert(address, None);
        let mut extent = SchemaExtent::ONE;
        for (keyword, value) in node {
            for next in self.in_place(keyword, value)? {
                let below = self.extent(next, level + 1, known)?;
                extent.chain = extent.chain.max(1 + below.chain);
                extent.schemas = extent.schemas.saturating_add(below.schemas);
            }
        }
        if extent.chain > MAX_DEPTH || extent.schemas > MAX_IN_PLACE {
            return Err(SchemaError::Alternatives);
        }
        known.insert(address, Some(extent));
        Ok(extent)
    }

    /// The schemas that a keyword applies to the same value.
    ///
    /// # Errors
    /// When the keyword references something outside this document.
    pub(super) fn in_place<'a>(
        &'a self,
        keyword: &str,
        value: &'a Value,
    ) -> Result<Vec<&'a Value>, SchemaError> {
        Ok(match (keyword, value) {
            ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                vec![self.target(reference).ok_or(SchemaError::Reference)?]
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => schemas.iter().collect(),
            ("dependentSchemas" | "dependencies", Value::Object(schemas)) => {
                schemas.values().collect()
            }
            ("not" | "if" | "then" | "else", schema) => vec![schema],
            _ => Vec::new(),
        })
    }

    /// The schema that a reference names.
    pub(super) fn target(&self, reference: &str) -> Option<&Value> {
        let fragment = reference.strip_prefix('#')?;
        let pointer = percent_decode_str(fragment).decode_utf8().ok()?;
        self.root
            .pointer(&pointer)
            .or_else(|| self.root.pointer(self.anchors.get(fragment)?))
    }
}

/// Extents by the address of the schema; `None` while one is being measured.
type Extents<'a> = HashMap<*const Map<String, Value>, Option<SchemaExtent>>;

fn id_keyword(schema: &Value) -> &'static str {
    match schema.get("$schema").and_then(Value::as_str) {
        Some(draft) if draft.contains("draft-04") => "id",
        Some(_) | None => "$id",
    }
}
