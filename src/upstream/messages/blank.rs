//! Texts without a word, which many servers refuse.

use serde_json::value::RawValue;

use protocol::openai::message::{FieldChange, Message, Role};
use protocol::openai::raw::RawObject;

/// Whether a message is more than a blank instruction, or a blank answer without calls.
pub(super) fn says_something(message: &Message) -> bool {
    let may_be_left_out = match message.role() {
        Role::System | Role::Developer => true,
        Role::Assistant => message.tool_calls().is_empty(),
        Role::User | Role::Tool | Role::Other(_) => false,
    };
    if !may_be_left_out {
        return true;
    }
    let Ok(object) = RawObject::parse(message.json_str()) else {
        return true;
    };
    let has = |key: &str| object.get_some(key).is_some();
    let content = object.get("content");
    has("refusal") || has("audio") || content.is_some_and(|content| !is_blank(content.get()))
}

/// Whether the JSON text of a content has no words and no part of another kind.
pub(super) fn is_blank(content: &str) -> bool {
    match content.as_bytes().first() {
        Some(b'"') => is_blank_text(content),
        Some(b'[') => parts(content).is_some_and(|parts| parts.into_iter().all(is_blank_part)),
        _ => content == "null",
    }
}

/// A message whose content has other parts beside blank texts, without these. White space between texts stays.
pub(super) fn without_blank_parts(message: Message) -> Message {
    // The parts of a content without text parts need not be parsed.
    if memchr::memmem::find(message.json(), b"\"text\"").is_none() {
        return message;
    }
    let kept = RawObject::parse(message.json_str())
        .ok()
        .and_then(|object| kept_parts(object.get("content")?.get()));
    let Some(kept) = kept else {
        return message;
    };
    message.with_fields(|key| match key {
        "content" => FieldChange::Set(kept.clone()),
        _ => FieldChange::Keep,
    })
}

/// The list of the parts that stay; `None` if all do, or none would.
fn kept_parts(content: &str) -> Option<String> {
    let parts = parts(content)?;
    let is_text = |part: &&RawValue| text_of(part).is_some();
    let has_words = parts
        .iter()
        .any(|part| is_text(part) && !is_blank_part(part));
    let kept: Vec<&str> = parts
        .iter()
        .filter(|part| match has_words {
            true => text_of(part) != Some("\"\""),
            false => !is_blank_part(part),
        })
        .map(|part| part.get())
        .collect();
    (!kept.is_empty() && kept.len() < parts.len()).then(|| format!("[{}]", kept.join(",")))
}

fn parts(content: &str) -> Option<Vec<&RawValue>> {
    let is_list = content.starts_with('[');
    is_list
        .then(|| serde_json::from_str(content).ok())
        .flatten()
}

/// The JSON text of a text part's text.
fn text_of(part: &RawValue) -> Option<&str> {
    let part = RawObject::parse(part.get()).ok()?;
    (part.get("type")?.get() == "\"text\"").then(|| part.get("text").map(RawValue::get))?
}

fn is_blank_part(part: &RawValue) -> bool {
    text_of(part).is_some_and(is_blank_text)
}

fn is_blank_text(json: &str) -> bool {
    // Most texts begin with a word, and need not be decoded.
    let may_be = |first: char| first == '"' || first == '\\' || first.is_whitespace();
    json.strip_prefix('"')
        .is_some_and(|rest| rest.starts_with(may_be))
        && serde_json::from_str::<String>(json).is_ok_and(|text| text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_content(content: &str) -> Message {
        Message::parse(&format!(r#"{{"role":"user","content":{content}}}"#)).unwrap()
    }

    #[test]
    fn blank_parts_are_left_out_beside_others() {
        let text = |text: &str| format!(r#"{{"type":"text","text":"{text}"}}"#);
        let image = r#"{"type":"image_url","image_url":{"url":"data:,"}}"#.to_owned();
        let list = |parts: &[&String]| {
            let parts: Vec<&str> = parts.iter().map(|part| part.as_str()).collect();
            format!("[{}]", parts.join(","))
        };
        let (empty, space, word) = (text(""), text(" \\n"), text("a"));
        for (given, expected) in [
            (list(&[&empty, &image]), list(&[&image])),
            (list(&[&space, &image]), list(&[&image])),
            (list(&[&word, &empty, &word]), list(&[&word, &word])),
            // Such a part belongs to the text.
            (list(&[&word, &space, &word]), list(&[&word, &space, &word])),
            (list(&[&empty, &space]), list(&[&empty, &space])),
            (list(&[&image]), list(&[&image])),
            (r#""""#.to_owned(), r#""""#.to_owned()),
        ] {
            assert_eq!(
                without_blank_parts(with_content(&given)),
                with_content(&expected)
            );
        }
    }

    #[test]
    fn blank_is_what_has_no_word_and_no_other_part() {
        for (content, blank) in [
            (r#""""#, true),
            (r#"" \r\n\t""#, true),
            ("\"\u{a0}\"", true),
            ("null", true),
            ("[]", true),
            (r#"[{"type":"text","text":" "}]"#, true),
            (r#"[{"type":"text","text":"a"}]"#, false),
            (r#"[{"type":"image_url","image_url":{}}]"#, false),
            (r#""a""#, false),
            (r#""\u0061""#, false),
            ("7", false),
        ] {
            assert_eq!(is_blank(content), blank, "{content}");
        }
    }
}
