use serde_json::json;

use super::*;

impl CompiledSchema {
    pub(crate) fn is_valid(&self, value: &Value) -> bool {
        self.checker().is_valid(value)
    }
}

fn compile(schema: &Value) -> Result<CompiledSchema, SchemaError> {
    CompiledSchema::compile(&schema.to_string())
}

#[track_caller]
fn refused(schema: &Value) {
    let cache = SchemaCache::default();
    assert!(cache.get(&schema.to_string()).is_none(), "{schema}");
}

/// `{"$defs": {"d0": …, "d1": …}}` where each definition is made from the reference to the next.
fn chain(length: usize, link: impl Fn(Value) -> Value) -> Value {
    let mut definitions = serde_json::Map::new();
    for i in 0..length {
        let next = if i + 1 == length {
            json!({"type": "object"})
        } else {
            json!({"$ref": format!("#/$defs/d{}", i + 1)})
        };
        definitions.insert(format!("d{i}"), link(next));
    }
    json!({"$defs": definitions, "$ref": "#/$defs/d0"})
}

#[test]
fn a_text_is_compiled_once() {
    let cache = SchemaCache::default();
    let text = json!({"type": "object", "required": ["a"]}).to_string();
    let first = cache.get(&text).unwrap();
    assert!(Arc::ptr_eq(&first, &cache.get(&text).unwrap()));
    assert!(first.is_valid(&json!({"a": 1})));
    assert!(!first.is_valid(&json!({})));
}

#[test]
fn a_schema_that_cannot_be_compiled_is_remembered_as_such() {
    let cache = SchemaCache::default();
    for text in [
        "{",
        "[]",
        "7",
        r#"{"type": "no such type"}"#,
        r#"{"type": 5}"#,
    ] {
        assert!(cache.get(text).is_none(), "{text}");
        assert!(cache.entries.read().by_text.contains_key(text), "{text}");
        assert!(cache.get(text).is_none(), "{text}");
    }
}

#[test]
fn a_schema_too_large_is_neither_compiled_nor_kept() {
    let cache = SchemaCache::default();
    let text = json!({"description": "x".repeat(MAX_SCHEMA_BYTES)}).to_string();
    assert!(cache.get(&text).is_none());
    assert!(cache.entries.read().by_text.is_empty());
}

#[test]
fn the_cache_is_bounded_and_drops_what_was_not_asked_for_the_longest() {
    let cache = SchemaCache::default();
    let text = |i: usize| json!({"minProperties": i}).to_string();
    for i in 0..MAX_ENTRIES {
        cache.get(&text(i));
    }
    cache.get(&text(0));
    cache.get(&text(MAX_ENTRIES));
    let kept = cache.entries.read();
    assert_eq!(kept.by_text.len(), MAX_ENTRIES);
    assert!(kept.by_text.contains_key(text(0).as_str()));
    assert!(!kept.by_text.contains_key(text(1).as_str()));
    let weight: usize = kept.by_text.values().map(|entry| entry.weight).sum();
    assert_eq!(kept.weight, weight);
}

#[test]
fn the_cache_is_bounded_by_weight() {
    let mut kept = Entries::default();
    for i in 0..40_u64 {
        let compiled = CompiledSchema {
            weight: MAX_WEIGHT / 10,
            ..compile(&json!({})).unwrap()
        };
        kept.insert(&i.to_string(), Some(Arc::new(compiled)), i);
        assert!(kept.weight <= MAX_WEIGHT);
    }
    assert_eq!(kept.by_text.len(), 10);
    assert!(kept.by_text.contains_key("39"));
}

#[test]
fn references_to_other_documents_are_refused() {
    for reference in [
        "http://127.0.0.1:1/schema.json",
        "https://example.com/schema.json#/a",
        "file:///etc/passwd",
        "other.json",
        "#/$defs/missing",
        "#missing",
    ] {
        refused(&json!({"properties": {"a": {"$ref": reference}}}));
    }
    refused(&json!({"$schema": "https://example.com/my-own-draft"}));
    // Two of one name.
    refused(&json!({"$defs": {"a": {"$anchor": "x"}, "b": {"$anchor": "x"}}, "$ref": "#x"}));
    refused(&json!({"properties": {"a": {"$id": "http://example.com/b", "type": "object"}}}));
}

#[test]
fn references_within_the_document_work() {
    for (reference, definition) in [
        ("#/$defs/a", json!({"$defs": {"a": {"type": "integer"}}})),
        (
            "#/$defs/a%3Cb%3E",
            json!({"$defs": {"a<b>": {"type": "integer"}}}),
        ),
        (
            "#here",
            json!({"$defs": {"a": {"$anchor": "here", "type": "integer"}}}),
        ),
    ] {
        let mut schema = definition;
        schema["properties"] = json!({"n": {"$ref": reference}});
        let compiled = compile(&schema).unwrap_or_else(|error| panic!("{reference}: {error}"));
        assert!(compiled.is_valid(&json!({"n": 1})), "{reference}");
        assert!(!compiled.is_valid(&json!({"n": "x"})), "{reference}");
    }
    compile(&json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}))
        .unwrap();
}

#[test]
fn a_hostile_pattern_does_not_hang() {
    let schema = json!({"properties": {"a": {"type": "string", "pattern": "^(a+)+(a+)+(a+)+$"}}});
    let compiled = compile(&schema).unwrap();
    let start = std::time::Instant::now();
    assert!(!compiled.is_valid(&json!({"a": format!("{}!", "a".repeat(5_000))})));
    assert!(start.elapsed() < std::time::Duration::from_secs(5));
    // Neither back references nor patterns that explode when compiled are to be had.
    refused(&json!({"properties": {"a": {"pattern": r"(a+)\1"}}}));
    refused(&json!({"properties": {"a": {"pattern": r"((\S{1000}){1000}){1000}"}}}));
}

#[test]
fn ordinary_patterns_are_cheap_and_large_ones_possible() {
    let weight = |pattern: &str| compile(&json!({"pattern": pattern})).unwrap().weight;
    assert!(weight(r"^[\w-]{1,64}$") < 2 * PATTERN_BYTES[0]);
    assert!(weight(r"^\S{1,300}$") > PATTERN_BYTES[1]);
}

#[test]
fn what_would_cost_too_much_is_refused() {
    let mut nested = json!({"type": "string"});
    for _ in 0..70 {
        nested = json!({"items": nested});
    }
    refused(&nested);
    let patterns: Vec<_> = (0..200)
        .map(|i| json!({"pattern": format!("{i}")}))
        .collect();
    refused(&json!({"anyOf": patterns}));
    // Endless, endless over two definitions, very long, and doubling at each step.
    refused(&json!({"$ref": "#"}));
    refused(&json!({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {
        "a": {"not": {"$ref": "#/$defs/b"}}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}}));
    refused(&chain(200, |next| json!({"allOf": [next]})));
    refused(&chain(30, |next| json!({"allOf": [next, next]})));
}

#[test]
fn recursive_schemas_are_used() {
    let tree = json!({"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"},
        "value": {"type": "integer"}}});
    let compiled = compile(&tree).unwrap();
    assert!(compiled.is_valid(&json!({"left": {"right": {"value": 1}}})));
    assert!(!compiled.is_valid(&json!({"left": {"right": {"value": "x"}}})));
    compile(&chain(300, |next| json!({"properties": {"next": next}}))).unwrap();
}

#[test]
fn the_deepest_check_fits_the_stack_of_a_task() {
    const STACK_BYTES: usize = 2 * 1024 * 1024;
    let steep = chain(28, |next| json!({"anyOf": [next, false]}));
    let mut endless = json!({"properties": {"a": {"$ref": "#"}}});
    for _ in 0..5 {
        endless = json!({"oneOf": [endless]});
    }
    // The reference leads back to the outermost alternative.
    for mut schema in [steep, endless] {
        schema["additionalProperties"] = json!({"$ref": "#"});
        let compiled = compile(&schema).unwrap();
        let mut value = json!({"a": 1});
        let mut checked = 0;
        while !compiled.is_too_deep(&value) && checked < 127 {
            checked += 1;
            value = json!({"a": value});
        }
        let value = value["a"].take();
        assert!(checked > 5, "{checked}");
        std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let _fits = compiled.validator.is_valid(&value);
                compiled.document.cost(&value, 1_000_000);
                compiled.validator.iter_errors(&value).count()
            })
            .unwrap()
            .join()
            .unwrap();
    }
}
