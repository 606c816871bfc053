//! The content of a message: a string, or a list of parts.

use serde_json::value::RawValue;

use super::text::{flat_text, lossy_string};
use protocol::openai::raw::{RawObject, quoted};

/// The texts of a `content` value, which is a string or a list of parts.
#[derive(Debug, Default)]
pub(super) struct ContentTexts {
    pub(super) text: String,
    pub(super) reasoning: String,
    /// All parts, if they are more than plain texts.
    pub(super) parts: Vec<Box<str>>,
}

impl ContentTexts {
    /// The texts of a list of parts.
    pub(super) fn of_parts(list: &RawValue) -> Self {
        let mut content = Self::default();
        let mut is_plain = true;
        for part in serde_json::from_str::<Vec<&RawValue>>(list.get()).unwrap_or_default() {
            if let Some(text) = lossy_string(part) {
                content.text.push_str(&text);
                content.parts.push(text_part(&text));
                continue;
            }
            let Ok(object) = RawObject::parse(part.get()) else {
                continue;
            };
            content.parts.push(part.get().into());
            is_plain &= is_plain_text(&object);
            if let Some(thinking) = object.get_some("thinking") {
                content.reasoning.push_str(&flat_text(thinking));
            } else if let Some(text) = object.get_some("text").and_then(lossy_string) {
                content.text.push_str(&text);
            }
        }
        if is_plain {
            content.parts.clear();
        }
        content
    }
}

/// Whether a part has a text and nothing else.
fn is_plain_text(part: &RawObject<'_>) -> bool {
    part.iter().all(|(key, value)| match key {
        "text" => value.get().starts_with('"'),
        "type" => matches!(value.get(), r#""text""# | r#""output_text""#),
        _ => matches!(value.get(), "null" | "[]" | "{}"),
    })
}

/// A part that is a text.
pub(super) fn text_part(text: &str) -> Box<str> {
    format!(r#"{{"type":"text","text":{}}}"#, quoted(text)).into()
}
