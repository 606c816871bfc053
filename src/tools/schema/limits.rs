//! What checking against a schema can cost, found out before it is compiled.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// Deepest nesting of a schema.
const MAX_DEPTH: usize = 64;
/// Most schema nodes that may follow one another at one place of the arguments.
const MAX_IN_PLACE: usize = 64;
/// Most ways through the schema at one place of the arguments; each is walked, so doubling definitions grow fast.
/// What a check of given arguments comes to is found out when they are there; this bounds what compiling takes.
const MAX_WAYS: usize = 2048;
/// Most patterns in a schema.
const MAX_PATTERNS: usize = 128;
/// Keywords whose schemas, one or several, apply to the same value as the schema around them.
pub(super) const IN_PLACE: [&str; 9] = [
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependencies",
];
/// Keywords that refer to another schema for the same value.
pub(super) const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// What a usable schema costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cost {
    /// Most schema nodes that follow one another at one place of the arguments.
    pub(super) in_place: usize,
    /// Most ways through the schema at one place of the arguments.
    pub(super) ways: usize,
    /// How many patterns there are.
    pub(super) patterns: usize,
}

/// What the references of a schema can name.
#[derive(Debug)]
pub(super) struct References<'a> {
    root: &'a Value,
    anchors: HashMap<&'a str, &'a Value>,
}

impl<'a> References<'a> {
    /// The schema that a reference names.
    ///
    /// # Errors
    /// When it is not a part of this document.
    pub(super) fn target(&self, reference: &str) -> Result<&'a Value, TooCostly> {
        resolve(self.root, reference)
            .or_else(|| self.anchors.get(reference.strip_prefix('#')?).copied())
            .ok_or(TooCostly::Reference)
    }

    fn name(&mut self, anchor: &'a str, schema: &'a Value) -> Result<(), TooCostly> {
        // Which of two schemas of the same name is meant, the validator may see otherwise.
        match self.anchors.insert(anchor, schema) {
            Some(other) if !std::ptr::eq(other, schema) => Err(TooCostly::Reference),
            Some(_) | None => Ok(()),
        }
    }
}

/// Why a schema is not compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum TooCostly {
    #[error("nested too deep")]
    Depth,
    #[error("too many patterns")]
    Patterns,
    #[error("too many combinations of alternatives")]
    Ways,
    #[error("a definition refers to itself without end")]
    Cycle,
    #[error("refers to what is not in it")]
    Reference,
}

/// Finds out what a schema costs.
///
/// # Errors
/// When it costs too much, or refers to anything but its own parts by pointer or anchor.
pub(super) fn measure(schema: &Value) -> Result<(Cost, References<'_>), TooCostly> {
    let mut walk = Walk {
        references: References {
            root: schema,
            anchors: HashMap::new(),
        },
        id_keyword: id_keyword(schema),
        nodes: Vec::new(),
        patterns: 0,
        reach: HashMap::new(),
    };
    walk.collect(schema, 1)?;
    let mut most = Reach { depth: 1, ways: 1 };
    for node in std::mem::take(&mut walk.nodes) {
        let reach = walk.reach(node, 1)?;
        most.depth = most.depth.max(reach.depth);
        most.ways = most.ways.max(reach.ways);
    }
    let cost = Cost {
        in_place: most.depth,
        ways: most.ways,
        patterns: walk.patterns,
    };
    Ok((cost, walk.references))
}

/// The schema that a reference names; `None` where it is not a part of this document.
pub(super) fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let fragment = reference.strip_prefix('#')?;
    if fragment.contains('%') {
        root.pointer(&percent_decoded(fragment)?)
    } else {
        root.pointer(fragment)
    }
}

struct Walk<'a> {
    references: References<'a>,
    id_keyword: &'static str,
    /// Every object of the document. Some are not schemas; that only makes the estimate higher.
    nodes: Vec<&'a Map<String, Value>>,
    patterns: usize,
    /// By address; `None` while a node is being measured.
    reach: HashMap<*const Map<String, Value>, Option<Reach>>,
}

/// What follows from one node at the same place of the arguments.
#[derive(Debug, Clone, Copy)]
struct Reach {
    depth: usize,
    ways: usize,
}

impl<'a> Walk<'a> {
    fn collect(&mut self, value: &'a Value, depth: usize) -> Result<(), TooCostly> {
        if depth > MAX_DEPTH {
            return Err(TooCostly::Depth);
        }
        match value {
            Value::Array(items) => items
                .iter()
                .try_for_each(|item| self.collect(item, depth + 1)),
            Value::Object(node) => {
                self.note(value, node)?;
                node.values()
                    .try_for_each(|child| self.collect(child, depth + 1))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    fn note(&mut self, value: &'a Value, node: &'a Map<String, Value>) -> Result<(), TooCostly> {
        self.nodes.push(node);
        for keyword in ["$anchor", "$dynamicAnchor"] {
            if let Some(Value::String(name)) = node.get(keyword) {
                self.references.name(name, value)?;
            }
        }
        // An identifier inside the document changes what the references below it mean.
        match node.get(self.id_keyword).and_then(Value::as_str) {
            Some(id) if !std::ptr::eq(value, self.references.root) => match id.strip_prefix('#') {
                Some(name) => self.references.name(name, value)?,
                None => return Err(TooCostly::Reference),
            },
            Some(_) | None => {}
        }
        self.patterns += usize::from(node.get("pattern").is_some_and(Value::is_string));
        if let Some(Value::Object(patterns)) = node.get("patternProperties") {
            self.patterns += patterns.len();
        }
        if self.patterns > MAX_PATTERNS {
            return Err(TooCostly::Patterns);
        }
        Ok(())
    }

    fn reach(&mut self, node: &'a Map<String, Value>, level: usize) -> Result<Reach, TooCostly> {
        let address = std::ptr::from_ref(node);
        match self.reach.get(&address) {
            Some(Some(reach)) => return Ok(*reach),
            Some(None) => return Err(TooCostly::Cycle),
            None => {}
        }
        if level > MAX_IN_PLACE {
            return Err(TooCostly::Ways);
        }
        self.reach.insert(address, None);
        let mut reach = Reach { depth: 1, ways: 1 };
        for next in self.followers(node)? {
            let below = self.reach(next, level + 1)?;
            reach.depth = reach.depth.max(1 + below.depth);
            reach.ways = reach.ways.saturating_add(below.ways);
        }
        if reach.depth > MAX_IN_PLACE || reach.ways > MAX_WAYS {
            return Err(TooCostly::Ways);
        }
        self.reach.insert(address, Some(reach));
        Ok(reach)
    }

    fn followers(
        &self,
        node: &'a Map<String, Value>,
    ) -> Result<Vec<&'a Map<String, Value>>, TooCostly> {
        let mut followers = Vec::new();
        for keyword in REFERENCES {
            if let Some(Value::String(reference)) = node.get(keyword) {
                followers.extend(self.references.target(reference)?.as_object());
            }
        }
        for keyword in IN_PLACE {
            match node.get(keyword) {
                Some(Value::Array(schemas)) => {
                    followers.extend(schemas.iter().filter_map(Value::as_object));
                }
                Some(Value::Object(schemas)) if keyword.starts_with("depend") => {
                    followers.extend(schemas.values().filter_map(Value::as_object));
                }
                Some(Value::Object(schema)) => followers.push(schema),
                Some(_) | None => {}
            }
        }
        Ok(followers)
    }
}

fn id_keyword(schema: &Value) -> &'static str {
    match schema.get("$schema").and_then(Value::as_str) {
        Some(draft) if draft.contains("draft-04") => "id",
        Some(_) | None => "$id",
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            let code = digit()? * 16 + digit()?;
            bytes.push(u8::try_from(code).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}
