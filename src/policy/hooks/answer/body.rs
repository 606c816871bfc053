//! The body of an answer as members with checked types.
//!
//! Owns the strict reading of the JSON. [`super`] owns the meaning of the members.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Value};

use super::HookAnswerError;

/// The members of an object, which are taken out one by one.
pub(super) struct HookMembers {
    members: Map<String, Value>,
    /// Stands before the names in errors, with a dot at its end.
    path: &'static str,
}

/// A value none of whose objects has a member twice. Parsers disagree about which of the two counts.
struct UniqueValue(Value);

struct UniqueVisitor;

/// The object in a body; `None` when the body is empty or blank.
pub(super) fn read_body(body: &[u8]) -> Result<Option<HookMembers>, HookAnswerError> {
    if body.trim_ascii().is_empty() {
        return Ok(None);
    }
    let value: UniqueValue =
        serde_json::from_slice(body).map_err(|error| match error.classify() {
            // A value is read whatever its type, so this is the fault of `UniqueVisitor::visit_map`.
            Category::Data => HookAnswerError::RepeatedMember,
            Category::Io | Category::Syntax | Category::Eof => HookAnswerError::NotJson {
                line: error.line(),
                column: error.column(),
            },
        })?;
    match value.0 {
        Value::Object(members) => Ok(Some(HookMembers { members, path: "" })),
        _ => Err(HookAnswerError::NotObject),
    }
}

impl HookMembers {
    /// Takes a member out; `null` is the same as no member.
    pub(super) fn take(&mut self, key: &str) -> Option<Value> {
        self.members.remove(key).filter(|value| !value.is_null())
    }

    /// A text; a blank one is the same as none.
    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>, HookAnswerError> {
        let text = self.string(key)?;
        Ok(text.filter(|text| !text.trim().is_empty()))
    }

    /// A string, whatever is in it.
    pub(super) fn string(&mut self, key: &str) -> Result<Option<String>, HookAnswerError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(key, "a string")),
        }
    }

    pub(super) fn word<T: Copy>(
        &mut self,
        key: &str,
        words: &[(&str, T)],
        expected: &'static str,
    ) -> Result<Option<T>, HookAnswerError> {
        let Some(value) = self.take(key) else {
            return Ok(None);
        };
        words
            .iter()
            .find(|(word, _)| value.as_str() == Some(word))
            .map(|(_, meaning)| Some(*meaning))
            .ok_or_else(|| self.wrong(key, expected))
    }

    /// A truth value.
    pub(super) fn flag(&mut self, key: &str) -> Result<Option<bool>, HookAnswerError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(_) => Err(self.wrong(key, "true or false")),
        }
    }

    pub(super) fn object(
        &mut self,
        key: &str,
    ) -> Result<Option<Map<String, Value>>, HookAnswerError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Object(members)) => Ok(Some(members)),
            Some(_) => Err(self.wrong(key, "an object")),
        }
    }

    /// A list of objects with at least one.
    pub(super) fn objects(&mut self, key: &str) -> Result<Option<Vec<Value>>, HookAnswerError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Array(entries))
                if !entries.is_empty() && entries.iter().all(Value::is_object) =>
            {
                Ok(Some(entries))
            }
            Some(_) => Err(self.wrong(key, "a list of objects with at least one")),
        }
    }

    /// The members of an object under `key`; `path` stands before their names in errors.
    pub(super) fn inner(
        &mut self,
        key: &str,
        path: &'static str,
    ) -> Result<Option<Self>, HookAnswerError> {
        let members = self.object(key)?;
        Ok(members.map(|members| Self { members, path }))
    }

    /// `hookSpecificOutput`, without members where there is none. The first of the events is the one that was sent.
    pub(super) fn output(&mut self, events: &[&'static str]) -> Result<Self, HookAnswerError> {
        let path = "hookSpecificOutput.";
        let output = self.inner("hookSpecificOutput", path)?;
        let mut output = output.unwrap_or_else(|| Self {
            members: Map::new(),
            path,
        });
        match output.string("hookEventName")? {
            Some(name) if !events.contains(&name.as_str()) => Err(HookAnswerError::OtherEvent {
                expected: events.first().copied().unwrap_or_default(),
            }),
            _ => Ok(output),
        }
    }

    fn wrong(&self, key: &str, expected: &'static str) -> HookAnswerError {
        HookAnswerError::WrongValue {
            member: format!("{}{key}", self.path),
            expected,
        }
    }
}

impl<'de> Deserialize<'de> for UniqueValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Self)
    }
}

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(UniqueValue(value)) = entries.next_element()? {
            list.push(value);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some((key, UniqueValue(value))) = entries.next_entry::<String, _>()? {
            if members.insert(key, value).is_some() {
                return Err(A::Error::custom("a member twice"));
            }
        }
        Ok(members.into())
    }
}
