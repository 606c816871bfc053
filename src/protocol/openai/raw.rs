//! JSON objects with unparsed values.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The entries of a JSON object in their order, with unparsed values.
///
/// Parsing is a single pass over the text and copies only keys that contain escapes.
#[derive(Debug, Default, Clone)]
pub struct RawObject<'a> {
    entries: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl<'a> RawObject<'a> {
    /// Parses an object.
    ///
    /// # Errors
    /// When the text is not one JSON object.
    pub fn parse(json: &'a str) -> serde_json::Result<Self> {
        serde_json::from_str(json)
    }

    /// The value of a key; if the key is repeated, the last one, as usual for JSON parsers.
    pub fn get(&self, key: &str) -> Option<&'a RawValue> {
        self.entries
            .iter()
            .rev()
            .find(|(name, _)| name == key)
            .map(|(_, value)| *value)
    }

    /// The value of a key, unless it is absent or `null`.
    pub fn get_some(&self, key: &str) -> Option<&'a RawValue> {
        self.get(key).filter(|value| value.get() != "null")
    }

    /// The entries in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.entries
            .iter()
            .map(|(key, value)| (key.as_ref(), *value))
    }

    /// Keeps the entries for whose key `keep` returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.entries.retain(|(key, _)| keep(key));
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The members except the given ones, as JSON text without braces.
    pub fn members_without(&self, left_out: &[&str]) -> String {
        let mut members = String::new();
        for (key, value) in self.iter().filter(|(key, _)| !left_out.contains(key)) {
            if !members.is_empty() {
                members.push(',');
            }
            push_string(&mut members, key);
            members.push(':');
            members.push_str(value.get());
        }
        members
    }

    /// The object as JSON text, with unchanged values and without white space between the members.
    pub fn to_json(&self) -> String {
        let mut json = String::from("{");
        for (key, value) in self.iter() {
            push_entry(&mut json, key, value.get());
        }
        json.push('}');
        json
    }
}

/// Appends `"key":value` to the JSON text of an unfinished object, with a comma if it has members.
pub fn push_entry(object: &mut String, key: &str, value_json: &str) {
    if !object.ends_with('{') {
        object.push(',');
    }
    push_string(object, key);
    object.push(':');
    object.push_str(value_json);
}

/// Appends a text as a JSON string, with quotes.
///
/// It is written by hand because it runs for each piece of a streamed text, where serde would make two more copies.
pub fn push_string(json: &mut String, text: &str) {
    json.reserve(text.len() + 2);
    json.push('"');
    // Without an early end, so that the compiler can test many bytes in one step.
    let is_plain = text.bytes().fold(true, |plain, byte| {
        plain & (byte >= b' ') & (byte != b'"') & (byte != b'\\')
    });
    if is_plain {
        json.push_str(text);
        json.push('"');
        return;
    }
    let mut rest = text;
    while let Some((plain, escaped)) = rest
        .bytes()
        .position(|byte| byte < b' ' || byte == b'"' || byte == b'\\')
        .and_then(|place| rest.split_at_checked(place))
    {
        json.push_str(plain);
        let mut chars = escaped.chars();
        match chars.next() {
            Some('"') => json.push_str("\\\""),
            Some('\\') => json.push_str("\\\\"),
            Some('\n') => json.push_str("\\n"),
            Some('\r') => json.push_str("\\r"),
            Some('\t') => json.push_str("\\t"),
            Some('\u{8}') => json.push_str("\\b"),
            Some('\u{c}') => json.push_str("\\f"),
            Some(control) => json.push_str(&format!("\\u{:04x}", u32::from(control))),
            None => {}
        }
        rest = chars.as_str();
    }
    json.push_str(rest);
    json.push('"');
}

/// A part of a text as a slice of it; a copy if it is not a part.
pub fn slice_of(whole: &Bytes, part: &str) -> Bytes {
    let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr());
    let end = start.and_then(|start| start.checked_add(part.len()));
    match start
        .zip(end)
        .and_then(|(start, end)| whole.get(start..end))
    {
        Some(slice) => whole.slice_ref(slice),
        None => Bytes::copy_from_slice(part.as_bytes()),
    }
}

/// The text as a JSON string, with quotes.
pub fn quoted(text: &str) -> String {
    let mut json = String::new();
    push_string(&mut json, text);
    json
}

impl<'de: 'a, 'a> Deserialize<'de> for RawObject<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = RawObject<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::with_capacity(8);
                while let Some(ObjectKey(key)) = map.next_key()? {
                    entries.push((key, map.next_value()?));
                }
                Ok(RawObject { entries })
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

/// The key of an object, borrowed if it has no escapes. A plain `Cow` would always be deserialized as a copy.
#[derive(Debug)]
pub struct ObjectKey<'a>(pub Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for ObjectKey<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = ObjectKey<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(ObjectKey(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(ObjectKey(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_json_text() {
        let text =
            r#"{"a":1.50,"b": {"x":[1, 2]},"c":"\u00e4","big":123456789012345678901234567890}"#;
        let object = RawObject::parse(text).unwrap();
        assert_eq!(object.get("a").unwrap().get(), "1.50");
        assert_eq!(
            object.to_json(),
            r#"{"a":1.50,"b":{"x":[1, 2]},"c":"\u00e4","big":123456789012345678901234567890}"#
        );
    }

    #[test]
    fn texts_are_quoted_as_serde_does() {
        let controls: String = (0..0x90).filter_map(char::from_u32).collect();
        for text in ["", "a", "\"", "ä\\\"\n😀\u{2028}", &controls] {
            assert_eq!(quoted(text), serde_json::to_string(text).unwrap());
        }
    }

    #[test]
    fn the_last_of_a_repeated_key_counts() {
        assert_eq!(
            RawObject::parse(r#"{"a":1,"\u0061":2}"#)
                .unwrap()
                .get("a")
                .unwrap()
                .get(),
            "2"
        );
        assert!(RawObject::parse("[1]").is_err());
        assert!(RawObject::parse(r#"{"a":1} x"#).is_err());
    }
}
