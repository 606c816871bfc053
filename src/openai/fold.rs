//! Folds the pieces of the fields of a streamed message.
//!
//! The answer and the history use the same rules: strings and arrays are concatenated, objects are folded member by
//! member, `null` changes nothing, and any other value replaces the previous one. The JSON text of values is kept.

use std::collections::HashMap;

use super::raw::{RawObject, push_entry, quoted};

/// The depth up to which objects are folded. Deeper ones are replaced, so that nesting cannot exhaust the stack.
const MAX_DEPTH: usize = 64;

/// The folded fields, in the order of their first pieces.
#[derive(Debug, Default)]
pub struct FoldedFields {
    entries: Vec<(String, Folded)>,
    /// The position of each key in `entries`.
    positions: HashMap<String, usize>,
}

/// The value of one field so far.
#[derive(Debug)]
enum Folded {
    Text(String),
    /// The JSON text of an array without its brackets.
    List(String),
    Object(FoldedFields),
    /// A number, a literal, or an object of a single piece.
    Json(Box<str>),
}

impl FoldedFields {
    /// Folds a piece, given as JSON text, into the field of this key.
    pub fn push(&mut self, key: &str, json: &str) {
        self.push_at(0, key, json);
    }

    /// Whether there is a field of this key.
    pub fn contains(&self, key: &str) -> bool {
        self.positions.contains_key(key)
    }

    /// The fields: key and JSON text.
    pub fn into_entries(self) -> impl Iterator<Item = (String, Box<str>)> {
        self.entries
            .into_iter()
            .map(|(key, value)| (key, value.into_json()))
    }

    fn push_at(&mut self, depth: usize, key: &str, json: &str) {
        let json = json.trim();
        let known = self.positions.get(key);
        match known.and_then(|position| self.entries.get_mut(*position)) {
            Some((_, value)) => value.append(depth, json),
            None => {
                self.positions.insert(key.to_owned(), self.entries.len());
                self.entries.push((key.to_owned(), Folded::parse(json)));
            }
        }
    }
}

impl Folded {
    fn parse(json: &str) -> Self {
        if let Some(inside) = json.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            return Self::List(inside.trim().to_owned());
        }
        match serde_json::from_str(json) {
            Ok(text) => Self::Text(text),
            Err(_) => Self::Json(json.into()),
        }
    }

    fn append(&mut self, depth: usize, json: &str) {
        if json == "null" {
            return;
        }
        if let Some(fields) = self.fields(depth, json)
            && let Ok(more) = RawObject::parse(json)
        {
            for (key, value) in more.iter() {
                fields.push_at(depth + 1, key, value.get());
            }
            return;
        }
        match (self, Self::parse(json)) {
            (Self::Text(text), Self::Text(more)) => text.push_str(&more),
            (Self::List(list), Self::List(more)) => {
                if !list.is_empty() && !more.is_empty() {
                    list.push(',');
                }
                list.push_str(&more);
            }
            (value, new) => *value = new,
        }
    }

    /// The fields of this object, if it and the next piece are objects that are folded.
    fn fields(&mut self, depth: usize, next: &str) -> Option<&mut FoldedFields> {
        if depth >= MAX_DEPTH || !next.starts_with('{') {
            return None;
        }
        if let Self::Json(json) = &*self
            && json.starts_with('{')
            && let Ok(object) = RawObject::parse(json)
        {
            let mut fields = FoldedFields::default();
            for (key, value) in object.iter() {
                fields.push_at(depth + 1, key, value.get());
            }
            *self = Self::Object(fields);
        }
        match self {
            Self::Object(fields) => Some(fields),
            Self::Text(_) | Self::List(_) | Self::Json(_) => None,
        }
    }

    fn into_json(self) -> Box<str> {
        match self {
            Self::Text(text) => quoted(&text).into(),
            Self::List(inside) => format!("[{inside}]").into(),
            Self::Json(json) => json,
            Self::Object(fields) => {
                let mut object = String::from("{");
                for (key, value) in fields.into_entries() {
                    push_entry(&mut object, &key, &value);
                }
                object.push('}');
                object.into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold(pieces: &[&str]) -> String {
        let mut fields = FoldedFields::default();
        for piece in pieces {
            fields.push("key", piece);
        }
        let (_, json) = fields.into_entries().next().unwrap();
        json.into()
    }

    #[test]
    fn pieces_are_folded_by_their_type_and_keep_their_text() {
        for (pieces, expected) in [
            (&[r#""Hel""#, r#""lo""#][..], r#""Hello""#),
            (&["[1.0, 2]", "[ ]", "[3e0]"], "[1.0, 2,3e0]"),
            (&["[]", "[1]"], "[1]"),
            (&["1", "2.50"], "2.50"),
            (&["true", "\"x\""], "\"x\""),
            (&["null", "[1]"], "[1]"),
            (&["[1]", "null"], "[1]"),
            (&[r#"{ "b":1.0,"a" : [2] }"#], r#"{ "b":1.0,"a" : [2] }"#),
            (
                &[
                    r#"{"id":"a","words":"Hel","list":[1]}"#,
                    r#"{"words":"lo","list":[2],"id":null,"data":"AA"}"#,
                    r#"{"data":"BB","end":1.50}"#,
                ],
                r#"{"id":"a","words":"Hello","list":[1,2],"data":"AABB","end":1.50}"#,
            ),
            (
                &[r#"{"in":{"a":"x"}}"#, r#"{"in":{"a":"y","b":null}}"#],
                r#"{"in":{"a":"xy","b":null}}"#,
            ),
            (&[r#"{"a":1}"#, "2"], "2"),
            (&["2", r#"{"a":1}"#, r#"{"b":2}"#], r#"{"a":1,"b":2}"#),
        ] {
            assert_eq!(fold(pieces), expected, "{pieces:?}");
        }
    }

    #[test]
    fn fields_keep_the_order_of_their_first_pieces() {
        let mut fields = FoldedFields::default();
        for (key, json) in [("b", "\"1\""), ("a", "1"), ("b", "\"2\"")] {
            fields.push(key, json);
        }
        assert!(fields.contains("a") && !fields.contains("c"));
        let entries: Vec<(String, Box<str>)> = fields.into_entries().collect();
        assert_eq!(
            entries,
            [("b".into(), "\"12\"".into()), ("a".into(), "1".into())]
        );
    }

    #[test]
    fn deep_objects_are_replaced_instead_of_folded() {
        let deep = |text: &str| format!("{}{text}{}", "{\"a\":".repeat(50_000), "}".repeat(50_000));
        let folded = fold(&[&deep("\"x\""), &deep("\"y\"")]);
        assert_eq!(folded, deep("\"y\""));
    }
}
