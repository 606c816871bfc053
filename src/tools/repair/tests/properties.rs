//! Properties that hold for any arguments and any schema.

use proptest::prelude::*;

use super::*;

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c\\[\\]{}\"0-9]{0,6}".prop_map(Value::from),
        prop::sample::select(vec!["", "3", "true", "[1]", "{}", "[x](http://x)"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            any_object_of(inner),
        ]
    })
}

fn any_object_of(values: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    let keys = prop::sample::select(vec!["a", "b", "path", "input", "arguments"]);
    prop::collection::btree_map(keys, values, 0..4).prop_map(|entries| {
        Value::Object(
            entries
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
        )
    })
}

fn any_schema() -> impl Strategy<Value = Value> {
    let types = vec![
        "null", "boolean", "integer", "number", "string", "array", "object",
    ];
    let leaf = prop_oneof![
        Just(json!({})),
        prop::sample::select(types.clone()).prop_map(|name| json!({"type": name})),
        prop::sample::subsequence(types, 1..3).prop_map(|names| json!({"type": names})),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let object = (
            any_object_of(inner.clone()),
            any::<bool>(),
            prop::sample::subsequence(vec!["a", "b"], 0..=2),
        )
            .prop_map(|(properties, open, required)| {
                json!({"type": "object", "properties": properties, "required": required,
                    "additionalProperties": open})
            });
        prop_oneof![
            4 => object,
            1 => inner.clone().prop_map(|items| json!({"type": "array", "items": items})),
            1 => prop::collection::vec(inner, 1..3).prop_map(|branches| json!({"anyOf": branches})),
        ]
    })
}

/// A schema that the value surely fits.
fn schema_of(value: &Value) -> Value {
    match value {
        Value::Object(entries) => {
            let properties: Map<_, _> = entries
                .iter()
                .map(|(key, value)| (key.clone(), schema_of(value)))
                .collect();
            json!({"type": "object", "properties": properties, "additionalProperties": false})
        }
        Value::Array(_) => json!({"type": "array"}),
        other => json!({"enum": [other]}),
    }
}

proptest! {
    #[test]
    fn usable_objects_never_change(
        object in any_object_of(any_value()), other in any_schema(), own in any::<bool>(), pretty in any::<bool>(),
    ) {
        let schema = if own { schema_of(&object) } else { other };
        let compiled = compiled(&schema);
        let raw = if pretty { serde_json::to_string_pretty(&object).unwrap() } else { object.to_string() };
        let repaired = repair_arguments(&raw, Some(&compiled));
        if compiled.is_valid(&object) {
            prop_assert_eq!(repaired.arguments.map(Value::Object), Ok(object));
            prop_assert_eq!(repaired.text, raw);
            prop_assert_eq!(repaired.repairs, []);
        } else {
            prop_assert!(!own, "the schema is one that the object fits");
            // Changed or not, what is accepted fits and is what the history holds; what is refused stays.
            match repaired.arguments {
                Ok(arguments) => {
                    let value = Value::Object(arguments);
                    prop_assert!(compiled.is_valid(&value));
                    prop_assert!(!repaired.repairs.is_empty());
                    prop_assert_eq!(value.to_string(), repaired.text);
                }
                Err(_) => {
                    prop_assert_eq!(repaired.text, raw);
                    prop_assert_eq!(repaired.repairs, []);
                }
            }
        }
    }

    #[test]
    fn any_text_gives_the_text_of_an_object(
        raw in prop_oneof![".*", "[\\[\\]{}\"\\\\:,`a1 \\n]{0,40}", "```(json)?\\PC{0,20}"], schema in any_schema(),
    ) {
        for schema in [None, Some(compiled(&schema))] {
            let repaired = repair_arguments(&raw, schema.as_deref());
            let text: Result<Map<String, Value>, _> = serde_json::from_str(&repaired.text);
            prop_assert!(text.is_ok(), "{}", repaired.text);
            let words: std::collections::HashSet<_> = repaired.repairs.iter().collect();
            prop_assert_eq!(words.len(), repaired.repairs.len());
            if let Ok(arguments) = repaired.arguments {
                prop_assert_eq!(Ok(arguments), text.map_err(|error| error.to_string()));
            }
        }
    }

    #[test]
    fn a_text_cut_anywhere_is_never_made_into_something_unfit(
        object in any_object_of(any_value()), at in any::<prop::sample::Index>(), schema in any_schema(),
    ) {
        let whole = object.to_string();
        let raw: String = whole.chars().take(at.index(whole.chars().count())).collect();
        let compiled = compiled(&schema);
        let repaired = repair_arguments(&raw, Some(&compiled));
        match repaired.arguments {
            Ok(arguments) => prop_assert!(compiled.is_valid(&Value::Object(arguments))),
            Err(_) => prop_assert_eq!(repaired.text, "{}"),
        }
    }

    #[test]
    fn nothing_but_brackets_is_added_to_a_text_cut_anywhere(
        object in any_object_of(any_value()), at in any::<prop::sample::Index>(),
    ) {
        let whole = object.to_string();
        let raw: String = whole.chars().take(at.index(whole.chars().count())).collect();
        let repaired = repair_arguments(&raw, None);
        if repaired.arguments.is_ok() && !raw.is_empty() {
            let rest = repaired.text.strip_prefix(&raw);
            prop_assert!(rest.is_some_and(|rest| rest.chars().all(|c| "]}".contains(c))), "{}", raw);
        }
    }
}
