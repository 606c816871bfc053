//! The JSON structure of a chunk. The values of fields that loopwright does not act on stay raw JSON text.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::repeat::TextKind;
use super::text::is_falsy;
use crate::assemble::MAX_CALLS;
use protocol::openai::message::REASONING_FIELDS;
use protocol::openai::raw::ObjectKey;

/// Unknown fields in their order.
pub(super) type Entries<'a> = Vec<(Cow<'a, str>, &'a RawValue)>;

/// Most unknown fields of one object, and most different unknown fields of one response. A response with more is
/// malformed.
/// Tried by `decode::refusals::unknown_fields_and_calls_of_one_response_are_bounded`.
pub(super) const MAX_UNKNOWN_KEYS: usize = 256;

/// Fields of a chunk that are dropped. Clients recognise data of loopwright by most of them, and an upstream must not
/// forge it. `obfuscation` is random padding.
const RESERVED_KEYS: [&str; 18] = [
    "agent",
    "agentic_tool_calls",
    "data",
    "duration_ms",
    "file",
    "file_ids",
    "files",
    "notice",
    "obfuscation",
    "phase",
    "round",
    "session_id",
    "status",
    "stream",
    "text",
    "tool_call_id",
    "tool_name",
    "type",
];

/// A chunk, or a response that was not streamed.
#[derive(Debug, Default)]
pub(super) struct Chunk<'a> {
    pub(super) choice: Option<Choice<'a>>,
    /// Further choices. The loop asks for one answer, so they are parts of it.
    pub(super) more_choices: Vec<Choice<'a>>,
    pub(super) usage: Option<&'a RawValue>,
    pub(super) model: Option<&'a RawValue>,
    pub(super) id: Option<&'a RawValue>,
    pub(super) error: Option<&'a RawValue>,
    pub(super) extra: Entries<'a>,
    object: Option<&'a RawValue>,
}

/// An entry of `choices`.
#[derive(Debug, Default)]
pub(super) struct Choice<'a> {
    pub(super) delta: Option<Delta<'a>>,
    pub(super) message: Option<Delta<'a>>,
    pub(super) finish_reason: Option<&'a RawValue>,
    pub(super) extra: Entries<'a>,
    error: Option<&'a RawValue>,
}

/// A delta, or the whole message of a response that was not streamed.
#[derive(Debug, Default)]
pub(super) struct Delta<'a> {
    pub(super) content: Option<&'a RawValue>,
    pub(super) tool_calls: Option<&'a RawValue>,
    pub(super) function_call: Option<&'a RawValue>,
    pub(super) extra: Entries<'a>,
    error: Option<&'a RawValue>,
    reasoning: [Option<&'a RawValue>; 4],
}

/// Parses a chunk. Some servers send an error as the only element of a list.
pub(super) fn parse(data: &str) -> serde_json::Result<Chunk<'_>> {
    if data.starts_with('[') {
        let list: Vec<&RawValue> = serde_json::from_str(data)?;
        let first = list.first().map_or("null", |first| first.get());
        let chunk = serde_json::from_str::<Object<Chunk<'_>>>(first)?.0;
        return match chunk.reported_error(first) {
            Some(_) => Ok(chunk),
            None => Err(serde_json::Error::custom("a list")),
        };
    }
    serde_json::from_str::<Object<Chunk<'_>>>(data).map(|object| object.0)
}

impl<'a> Chunk<'a> {
    /// The text of a chunk whose only content is one text.
    pub(super) fn only_text(&self) -> Option<(TextKind, &'a RawValue)> {
        let choice = self.choice.as_ref().filter(|choice| {
            self.usage.is_none()
                && self.more_choices.is_empty()
                && choice.extra.is_empty()
                && choice.finish_reason.is_none()
        })?;
        let delta = choice.delta.as_ref().filter(|delta| {
            delta.extra.is_empty() && delta.tool_calls.is_none() && delta.function_call.is_none()
        })?;
        let reasoning = delta
            .reasoning
            .iter()
            .zip(REASONING_FIELDS)
            .filter_map(|(value, field)| Some((TextKind::Reasoning(field), (*value)?)));
        let mut texts = delta
            .content
            .map(|content| (TextKind::Text, content))
            .into_iter()
            .chain(reasoning)
            .filter(|(_, value)| value.get() != "\"\"");
        let only = texts.next().filter(|_| texts.next().is_none());
        only.filter(|(_, value)| value.get().starts_with('"'))
    }

    pub(super) fn choices(&self) -> impl Iterator<Item = &Choice<'a>> {
        self.choice.iter().chain(&self.more_choices)
    }

    /// The error that the chunk reports, as JSON text: in a member of its own, in a choice or in a message, or the chunk is the
    /// error itself. `data` is the text of the chunk.
    pub(super) fn reported_error<'b>(&self, data: &'b str) -> Option<&'b str>
    where
        'a: 'b,
    {
        let in_choices = self.choices().flat_map(|choice| {
            let messages = [choice.delta.as_ref(), choice.message.as_ref()];
            let in_messages = messages.into_iter().flatten().map(|message| message.error);
            [choice.error].into_iter().chain(in_messages)
        });
        let mut errors = [self.error].into_iter().chain(in_choices).flatten();
        let reported = errors.find(|error| !is_falsy(error));
        let itself = || self.is_error_object().then_some(data);
        reported.map(RawValue::get).or_else(itself)
    }

    /// Whether the object itself is an error, as vLLM and web frameworks send it.
    fn is_error_object(&self) -> bool {
        let says = |key: &str, value: &RawValue| match key {
            "message" | "msg" => value.get().starts_with('"'),
            "detail" | "errors" => !is_falsy(value),
            _ => false,
        };
        let named = self.object.is_some_and(|word| word.get() == "\"error\"");
        self.choice.is_none()
            && self.usage.is_none()
            && (named || self.extra.iter().any(|(key, value)| says(key, value)))
    }
}

impl<'a> Choice<'a> {
    /// The unknown fields of the choice and of its message.
    pub(super) fn unknown_fields(&self) -> impl Iterator<Item = &Entries<'a>> {
        let messages = [self.delta.as_ref(), self.message.as_ref()];
        let messages = messages.into_iter().flatten().map(|message| &message.extra);
        [&self.extra].into_iter().chain(messages)
    }
}

impl Delta<'_> {
    /// Whether it has no text, no calls and no unknown fields.
    pub(super) fn is_empty(&self) -> bool {
        self.content.is_none()
            && self.tool_calls.is_none()
            && self.function_call.is_none()
            && self.extra.is_empty()
            && self.error.is_none()
            && self.reasoning.iter().all(Option::is_none)
    }

    /// The reasoning and its field: the first one that is not empty, because some servers send the same text in two fields;
    /// else one that is empty.
    pub(super) fn reasoning(&self) -> Option<(&RawValue, &'static str)> {
        let fields = self.reasoning.iter().zip(REASONING_FIELDS);
        let mut present = fields.filter_map(|(value, field)| Some(((*value)?, field)));
        let first = present.next()?;
        let is_empty = |(value, _): &(&RawValue, &str)| matches!(value.get(), "\"\"" | "[]");
        match is_empty(&first) {
            true => present.find(|other| !is_empty(other)).or(Some(first)),
            false => Some(first),
        }
    }
}

/// An object that is filled field by field.
trait Fields<'a>: Default {
    fn field<A: MapAccess<'a>>(&mut self, key: Cow<'a, str>, map: &mut A) -> Result<(), A::Error>;
}

impl<'a> Fields<'a> for Chunk<'a> {
    fn field<A: MapAccess<'a>>(&mut self, key: Cow<'a, str>, map: &mut A) -> Result<(), A::Error> {
        match &*key {
            "choices" => {
                let choices = map.next_value::<Choices<'a>>()?;
                (self.choice, self.more_choices) = (choices.first, choices.more);
            }
            "usage" => self.usage = value(map)?,
            "model" => self.model = value(map)?,
            "error" => self.error = value(map)?,
            "object" => self.object = value(map)?,
            "id" => self.id = value(map)?,
            "created" => skip(map)?,
            name if RESERVED_KEYS.contains(&name) => skip(map)?,
            _ => keep(&mut self.extra, key, map)?,
        }
        Ok(())
    }
}

impl<'a> Fields<'a> for Choice<'a> {
    fn field<A: MapAccess<'a>>(&mut self, key: Cow<'a, str>, map: &mut A) -> Result<(), A::Error> {
        match &*key {
            "delta" => {
                self.delta = map
                    .next_value::<Option<Object<Delta<'a>>>>()?
                    .map(|it| it.0);
            }
            "message" => {
                self.message = map
                    .next_value::<Option<Object<Delta<'a>>>>()?
                    .map(|it| it.0);
            }
            "finish_reason" => self.finish_reason = value(map)?,
            "error" => self.error = value(map)?,
            "index" | "obfuscation" => skip(map)?,
            _ => keep(&mut self.extra, key, map)?,
        }
        Ok(())
    }
}

impl<'a> Fields<'a> for Delta<'a> {
    fn field<A: MapAccess<'a>>(&mut self, key: Cow<'a, str>, map: &mut A) -> Result<(), A::Error> {
        match &*key {
            "content" => self.content = value(map)?,
            "tool_calls" => self.tool_calls = value(map)?,
            "function_call" => self.function_call = value(map)?,
            "error" => self.error = value(map)?,
            "role" | "obfuscation" => skip(map)?,
            name => {
                let place = REASONING_FIELDS.iter().position(|field| *field == name);
                match place.and_then(|place| self.reasoning.get_mut(place)) {
                    Some(slot) => *slot = value(map)?,
                    None => keep(&mut self.extra, key, map)?,
                }
            }
        }
        Ok(())
    }
}

/// The value of a field, unless it is `null`.
fn value<'a, A: MapAccess<'a>>(map: &mut A) -> Result<Option<&'a RawValue>, A::Error> {
    let value = map.next_value::<&RawValue>()?;
    Ok((value.get() != "null").then_some(value))
}

fn skip<'a, A: MapAccess<'a>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<IgnoredAny>().map(|_| ())
}

fn keep<'a, A: MapAccess<'a>>(
    extra: &mut Entries<'a>,
    key: Cow<'a, str>,
    map: &mut A,
) -> Result<(), A::Error> {
    if let Some(value) = value(map)? {
        if extra.len() >= MAX_UNKNOWN_KEYS {
            return Err(A::Error::custom("too many unknown fields"));
        }
        extra.push((key, value));
    }
    Ok(())
}

struct Object<T>(T);

impl<'de, T: Fields<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit<T>(PhantomData<T>);

        impl<'de, T: Fields<'de>> Visitor<'de> for Visit<T> {
            type Value = T;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
                let mut object = T::default();
                while let Some(ObjectKey(key)) = map.next_key()? {
                    object.field(key, &mut map)?;
                }
                Ok(object)
            }
        }

        deserializer.deserialize_map(Visit(PhantomData)).map(Self)
    }
}

/// The list of choices.
#[derive(Default)]
struct Choices<'a> {
    first: Option<Choice<'a>>,
    more: Vec<Choice<'a>>,
}

impl<'de> Deserialize<'de> for Choices<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;

        impl<'de> Visitor<'de> for List {
            type Value = Choices<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list of choices")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Choices::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut choices = Choices::default();
                while let Some(Object(choice)) = list.next_element::<Object<Choice<'de>>>()? {
                    match choices.first {
                        None => choices.first = Some(choice),
                        Some(_) if choices.more.len() >= MAX_CALLS => {
                            return Err(A::Error::custom("too many choices"));
                        }
                        Some(_) => choices.more.push(choice),
                    }
                }
                Ok(choices)
            }
        }

        deserializer.deserialize_any(List)
    }
}

/// A list of at most `MOST` values.
pub(super) struct BoundedList<'a, const MOST: usize>(pub(super) Vec<&'a RawValue>);

impl<'de: 'a, 'a, const MOST: usize> Deserialize<'de> for BoundedList<'a, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<const MOST: usize>;

        impl<'de, const MOST: usize> Visitor<'de> for List<MOST> {
            type Value = Vec<&'de RawValue>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "a list of at most {MOST} values")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = list.next_element()? {
                    if values.len() >= MOST {
                        return Err(A::Error::invalid_length(MOST + 1, &self));
                    }
                    values.push(value);
                }
                Ok(values)
            }
        }

        deserializer.deserialize_seq(List::<MOST>).map(Self)
    }
}
