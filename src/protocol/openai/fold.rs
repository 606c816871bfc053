//! Folds the pieces of the fields of a streamed message.
//!
//! The answer and the history use the same rules, so both equal what the server sends when it does not stream. Fields
//! that are known to be texts are concatenated, and any other value replaces the previous one. Objects are folded
//! member by member. Lists are concatenated, but elements that are pieces of one element are folded. `null` changes
//! nothing. The JSON text of values is not changed.

use std::collections::HashMap;

use serde_json::value::RawValue;

use super::raw::{RawObject, push_entry, quoted};

/// Deepest objects that are folded. Deeper ones are replaced, so that nesting cannot exhaust the stack.
/// Tried by `fold::deep_objects_are_replaced_instead_of_folded`.
const MAX_DEPTH: usize = 64;
/// Most of the last elements of a list that may still grow.
/// Tried by `fold::elements_that_come_in_pieces_are_whole_elements`.
const OPEN_ELEMENTS: usize = 64;
/// Fields that are streamed as pieces of a text.
const TEXTS: [&str; 8] = [
    "reasoning",
    "reasoning_content",
    "reasoning_text",
    "refusal",
    "summary",
    "text",
    "thinking",
    "transcript",
];
/// Lists of elements that are never streamed in pieces.
const LISTS_OF_WHOLE_ELEMENTS: [&str; 3] = ["annotations", "citations", "images"];
/// Types of elements that are streamed in pieces without an index: a piece belongs to the element before it.
const TYPES_IN_PIECES: [&str; 4] = [
    "reasoning",
    "reasoning.summary",
    "reasoning.text",
    "thinking",
];
/// Lists whose parts of the type `text` are streamed in pieces as well.
const LISTS_OF_TEXTS: [&str; 2] = ["content", "thinking"];

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
    List(FoldedList),
    Object(FoldedFields),
    /// A number, a literal, or a list or an object of a single piece.
    Json(Box<str>),
}

/// The elements of a list.
#[derive(Debug, Default)]
struct FoldedList {
    elements: Vec<Folded>,
    /// The elements before this position do not grow.
    closed: usize,
}

/// How the pieces of a field's text become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextRule {
    /// The pieces are concatenated.
    Pieces,
    /// The same, but some servers repeat the whole text.
    PiecesOrRepetitions,
    /// The last one counts.
    Last,
}

/// The place of a field.
#[derive(Debug, Clone, Copy)]
struct Place<'a> {
    depth: usize,
    /// The key of the object or list around it.
    within: &'a str,
}

impl FoldedFields {
    /// Folds a piece, given as JSON text, into the field of this key.
    pub fn push(&mut self, key: &str, json: &str) {
        let place = Place {
            depth: 0,
            within: "",
        };
        self.push_at(place, key, json);
    }

    /// Whether the field of this key is streamed as pieces of a text.
    pub fn is_text(key: &str) -> bool {
        TEXTS.contains(&key)
    }

    /// Whether there is a field of this key.
    pub fn contains(&self, key: &str) -> bool {
        self.positions.contains_key(key)
    }

    /// Whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Ends the current message: later fields belong to another message. Elements of its lists are not joined with
    /// later ones.
    pub fn end_message(&mut self) {
        for (_, value) in &mut self.entries {
            if let Some(list) = value.list() {
                list.closed = list.elements.len();
            }
        }
    }

    /// The fields: key and JSON text.
    pub fn into_entries(self) -> impl Iterator<Item = (String, Box<str>)> {
        self.entries
            .into_iter()
            .map(|(key, value)| (key, value.into_json()))
    }

    fn push_at(&mut self, place: Place<'_>, key: &str, json: &str) {
        let json = json.trim();
        let known = self.positions.get(key);
        match known.and_then(|position| self.entries.get_mut(*position)) {
            Some((_, value)) => value.append(place, key, json),
            None => {
                self.positions.insert(key.to_owned(), self.entries.len());
                self.entries.push((key.to_owned(), Folded::parse(json)));
            }
        }
    }

    fn of_object(place: Place<'_>, object: &RawObject<'_>) -> Self {
        let mut fields = Self::default();
        for (key, value) in object.iter() {
            fields.push_at(place, key, value.get());
        }
        fields
    }

    /// The text of a field that is a text or a number.
    fn text(&self, key: &str) -> Option<&str> {
        let (_, value) = self.entries.get(*self.positions.get(key)?)?;
        match value {
            Folded::Text(text) => Some(text),
            Folded::Json(json) => Some(&**json).filter(|json| *json != "null"),
            Folded::List(_) | Folded::Object(_) => None,
        }
    }
}

impl Folded {
    fn parse(json: &str) -> Self {
        match serde_json::from_str(json) {
            Ok(text) => Self::Text(text),
            Err(_) => Self::Json(json.into()),
        }
    }

    fn append(&mut self, place: Place<'_>, key: &str, json: &str) {
        if json == "null" {
            return;
        }
        let inside = Place {
            depth: place.depth + 1,
            within: key,
        };
        if json.starts_with('{')
            && let Some(fields) = self.object(inside)
            && let Ok(more) = RawObject::parse(json)
        {
            for (key, value) in more.iter() {
                fields.push_at(inside, key, value.get());
            }
            return;
        }
        if json.starts_with('[')
            && let Some(list) = self.list()
            && let Ok(more) = serde_json::from_str::<Vec<&RawValue>>(json)
        {
            for element in more {
                list.push(inside, element.get());
            }
            return;
        }
        match (self, Self::parse(json)) {
            (Self::Text(text), Self::Text(more)) => match TextRule::of(place, key) {
                TextRule::PiecesOrRepetitions if *text == more => {}
                TextRule::Pieces | TextRule::PiecesOrRepetitions => text.push_str(&more),
                TextRule::Last => *text = more,
            },
            (value, new) => *value = new,
        }
    }

    /// The fields of this object, if it is one that is folded.
    fn object(&mut self, inside: Place<'_>) -> Option<&mut FoldedFields> {
        if inside.depth > MAX_DEPTH {
            return None;
        }
        if let Self::Json(json) = &*self
            && json.starts_with('{')
            && let Ok(object) = RawObject::parse(json)
        {
            *self = Self::Object(FoldedFields::of_object(inside, &object));
        }
        match self {
            Self::Object(fields) => Some(fields),
            Self::Text(_) | Self::List(_) | Self::Json(_) => None,
        }
    }

    /// The elements of this list, if it is one.
    fn list(&mut self) -> Option<&mut FoldedList> {
        if let Self::Json(json) = &*self
            && json.starts_with('[')
            && let Ok(elements) = serde_json::from_str::<Vec<&RawValue>>(json)
        {
            let elements = elements.iter().map(|element| Self::parse(element.get()));
            *self = Self::List(FoldedList {
                elements: elements.collect(),
                closed: 0,
            });
        }
        match self {
            Self::List(list) => Some(list),
            Self::Text(_) | Self::Object(_) | Self::Json(_) => None,
        }
    }

    fn into_json(self) -> Box<str> {
        match self {
            Self::Text(text) => quoted(&text).into(),
            Self::Json(json) => json,
            Self::List(list) => {
                let elements: Vec<_> = list.elements.into_iter().map(Self::into_json).collect();
                format!("[{}]", elements.join(",")).into()
            }
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

impl FoldedList {
    /// Adds an element, or a piece of an existing element. `inside` names the list.
    fn push(&mut self, inside: Place<'_>, json: &str) {
        let piece = Some(json).filter(|_| !LISTS_OF_WHOLE_ELEMENTS.contains(&inside.within));
        let piece = piece.and_then(|json| RawObject::parse(json).ok());
        let piece = piece.map(|object| FoldedFields::of_object(inside, &object));
        let open = piece.and_then(|piece| self.open_element(inside, &piece));
        match open {
            Some(element) => element.append(inside, inside.within, json),
            None => self.elements.push(Folded::parse(json)),
        }
    }

    /// The element that a piece belongs to, if there is one.
    fn open_element(&mut self, inside: Place<'_>, piece: &FoldedFields) -> Option<&mut Folded> {
        let has_index = piece.contains("index");
        let open = self.elements.get_mut(self.closed..)?;
        let looked_at = if has_index { OPEN_ELEMENTS } else { 1 };
        let mut open = open.iter_mut().rev().take(looked_at);
        open.find_map(|element| {
            let grows = element.object(inside).is_some_and(|fields| {
                let agrees = |key| match (fields.text(key), piece.text(key)) {
                    (Some(one), Some(other)) => one == other,
                    (None, _) | (_, None) => true,
                };
                let same_kind = agrees("type") && agrees("id");
                match has_index {
                    true => same_kind && fields.text("index") == piece.text("index"),
                    false => same_kind && goes_on(fields, piece, inside.within),
                }
            });
            grows.then_some(element)
        })
    }
}

/// Whether a piece without an index belongs to the element before it in the list of this key: that is of a type that comes
/// in pieces, and has no signature yet, which is the end of it.
fn goes_on(element: &FoldedFields, piece: &FoldedFields, list: &str) -> bool {
    let has = |fields: &FoldedFields, key| fields.text(key).is_some_and(|text| !text.is_empty());
    let kind = element.text("type");
    let has_text = TEXTS.iter().any(|key| has(piece, key));
    let in_pieces = |kind: &str| {
        TYPES_IN_PIECES.contains(&kind) || (kind == "text" && LISTS_OF_TEXTS.contains(&list))
    };
    kind.is_some_and(in_pieces)
        && !element.contains("index")
        && (!has(element, "signature") || !has_text)
}

impl TextRule {
    fn of(place: Place<'_>, key: &str) -> Self {
        match key {
            "data" if place.within == "audio" => Self::Pieces,
            _ if TEXTS.contains(&key) => Self::Pieces,
            "data" | "encrypted_content" => Self::PiecesOrRepetitions,
            _ if key.ends_with("signature") => Self::PiecesOrRepetitions,
            _ => Self::Last,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold_as(key: &str, pieces: &[&str]) -> String {
        let mut fields = FoldedFields::default();
        for piece in pieces {
            fields.push(key, piece);
        }
        let (_, json) = fields.into_entries().next().unwrap();
        json.into()
    }

    fn fold(pieces: &[&str]) -> String {
        fold_as("key", pieces)
    }

    #[test]
    fn pieces_are_folded_by_their_type_and_keep_their_text() {
        for (pieces, expected) in [
            (&[r#""one""#, r#""other""#][..], r#""other""#),
            (&["[1.0, 2]"], "[1.0, 2]"),
            (&["[1.0, 2]", "[ ]", "[3e0]"], "[1.0,2,3e0]"),
            (&["[]", "[1]"], "[1]"),
            (&["1", "2.50"], "2.50"),
            (&["true", "\"x\""], "\"x\""),
            (&["null", "[1]"], "[1]"),
            (&["[1]", "null"], "[1]"),
            (&[r#"{ "b":1.0,"a" : [2] }"#], r#"{ "b":1.0,"a" : [2] }"#),
            (
                &[
                    r#"{"id":"a","text":"Hel","list":[1]}"#,
                    r#"{"text":"lo","list":[2],"id":null,"data":"AA"}"#,
                    r#"{"data":"BB","end":1.50}"#,
                ],
                r#"{"id":"a","text":"Hello","list":[1,2],"data":"AABB","end":1.50}"#,
            ),
            (
                &[r#"{"in":{"a":"x"}}"#, r#"{"in":{"a":"y","b":null}}"#],
                r#"{"in":{"a":"y","b":null}}"#,
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
        assert!(!fields.is_empty() && fields.contains("a") && !fields.contains("c"));
        let entries: Vec<(String, Box<str>)> = fields.into_entries().collect();
        assert_eq!(
            entries,
            [("b".into(), "\"2\"".into()), ("a".into(), "1".into())]
        );
    }

    #[test]
    fn only_texts_are_concatenated() {
        for (key, pieces, expected) in [
            (
                "refusal",
                &[r#""I ""#, r#""can""#, r#""can""#][..],
                r#""I cancan""#,
            ),
            (
                "channel",
                &[r#""analysis""#, r#""analysis""#],
                r#""analysis""#,
            ),
            ("channel", &[r#""analysis""#, r#""final""#], r#""final""#),
            ("thought_signature", &[r#""U0""#, r#""lH""#], r#""U0lH""#),
            (
                "thought_signature",
                &[r#""U0lH""#, r#""U0lH""#],
                r#""U0lH""#,
            ),
            (
                "audio",
                &[
                    r#"{"data":"AA","transcript":"Hi"}"#,
                    r#"{"data":"AA","transcript":" you"}"#,
                ],
                r#"{"data":"AAAA","transcript":"Hi you"}"#,
            ),
        ] {
            assert_eq!(fold_as(key, pieces), expected, "{key}");
        }
    }

    #[test]
    fn elements_that_come_in_pieces_are_whole_elements() {
        let details = |pieces: &[&str]| fold_as("reasoning_details", pieces);
        // With an index.
        let by_index = [
            r#"[{"type":"reasoning.text","text":"Let","format":"f","index":0}]"#,
            r#"[{"type":"reasoning.text","text":" me","format":"f","index":0}]"#,
            r#"[{"type":"reasoning.text","text":"Then","index":1}]"#,
            r#"[{"type":"reasoning.text","signature":"U0lH","format":"f","index":0}]"#,
            r#"[{"type":"reasoning.encrypted","data":"QUJD","index":0}]"#,
        ];
        assert_eq!(
            details(&by_index),
            r#"[{"type":"reasoning.text","text":"Let me","format":"f","index":0,"signature":"U0lH"},{"type":"reasoning.text","text":"Then","index":1},{"type":"reasoning.encrypted","data":"QUJD","index":0}]"#
        );
        // Without one: the signature ends a block.
        let without = [
            r#"[{"type":"thinking","thinking":"Let"}]"#,
            r#"[{"type":"thinking","thinking":" me","signature":""}]"#,
            r#"[{"type":"thinking","thinking":"","signature":"U0"}]"#,
            r#"[{"type":"thinking","signature":"lH"}]"#,
            r#"[{"type":"thinking","thinking":"Again"}]"#,
            r#"[{"type":"redacted_thinking","data":"QQ"}]"#,
            r#"[{"type":"redacted_thinking","data":"QQ"}]"#,
        ];
        assert_eq!(
            fold_as("thinking_blocks", &without),
            r#"[{"type":"thinking","thinking":"Let me","signature":"U0lH"},{"type":"thinking","thinking":"Again"},{"type":"redacted_thinking","data":"QQ"},{"type":"redacted_thinking","data":"QQ"}]"#
        );
        // Other ids are other elements, and some lists have whole elements only.
        let ids = [
            r#"[{"type":"reasoning.summary","summary":"a","id":"1"}]"#,
            r#"[{"type":"reasoning.summary","summary":"b","id":"2"}]"#,
        ];
        assert_eq!(details(&ids).matches("summary\":").count(), 2);
        let image = r#"[{"index":0,"type":"image_url"}]"#;
        assert_eq!(
            fold_as("images", &[image, image]).matches("index").count(),
            2
        );
    }

    #[test]
    fn the_blocks_of_two_messages_stay_apart() {
        let mut fields = FoldedFields::default();
        let block = r#"[{"type":"reasoning.text","text":"a","index":0}]"#;
        fields.push("reasoning_details", block);
        fields.end_message();
        fields.push("reasoning_details", block);
        fields.push("reasoning_details", block);
        let (_, json) = fields.into_entries().next().unwrap();
        assert_eq!(
            &*json,
            r#"[{"type":"reasoning.text","text":"a","index":0},{"type":"reasoning.text","text":"aa","index":0}]"#
        );
    }

    #[test]
    fn deep_objects_are_replaced_instead_of_folded() {
        let deep = |text: &str| format!("{}{text}{}", "{\"a\":".repeat(50_000), "}".repeat(50_000));
        let folded = fold(&[&deep("\"x\""), &deep("\"y\"")]);
        assert_eq!(folded, deep("\"y\""));
    }
}
