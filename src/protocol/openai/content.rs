//! Writes messages again with other content. All other members stay unchanged.

use serde_json::value::RawValue;

use super::message::{Message, Role};
use super::raw::{RawObject, push_entry, quoted};

/// The member that marks where a prompt cache may end: of a part, or of a message for its whole content.
const CACHE_MARK: &str = "cache_control";

/// The message with another role and content, as JSON text, and with the other members for which `keeps` returns true.
#[must_use]
pub fn rewritten(
    message: &Message,
    role: &Role,
    content: &str,
    keeps: impl Fn(&str) -> bool,
) -> Message {
    let Ok(object) = RawObject::parse(message.json_str()) else {
        return message.clone();
    };
    let mut json = format!("{{\"role\":{},\"content\":{content}", quoted(role.as_str()));
    for (key, value) in object.iter() {
        if !matches!(key, "role" | "content") && keeps(key) {
            push_entry(&mut json, key, value.get());
        }
    }
    json.push('}');
    Message::parse(&json).unwrap_or_else(|_| message.clone())
}

/// The content of a message with a text before and after its own, as JSON text. Of a list, only the texts at the ends are
/// changed; where there is none, a part is added.
pub fn enclosed(message: &Message, before: &str, after: &str) -> String {
    let object = RawObject::parse(message.json_str()).unwrap_or_default();
    let content = object.get_some("content");
    let mut parts = content.and_then(parts_of).unwrap_or_default();
    if parts.is_empty() {
        let text = content.and_then(|content| serde_json::from_str::<String>(content.get()).ok());
        return quoted(&format!("{before}{}{after}", text.unwrap_or_default()));
    }
    let first = parts.first_mut().filter(|_| !before.is_empty());
    if first.is_some_and(|part| !change_text(part, |text| format!("{before}{text}"))) {
        parts.insert(0, text_part(&quoted(before)));
    }
    let last = parts.last_mut().filter(|_| !after.is_empty());
    if last.is_some_and(|part| !change_text(part, |text| format!("{text}{after}"))) {
        parts.push(text_part(&quoted(after)));
    }
    format!("[{}]", parts.join(","))
}

/// Joins two messages into one that has the second one's role and the content of both. If both have a member, the
/// second one's is used. A message's mark for a prompt cache moves to the last part of its own content.
#[must_use]
pub fn joined(first: &Message, second: &Message, separator: &str) -> Message {
    let objects = (
        RawObject::parse(first.json_str()),
        RawObject::parse(second.json_str()),
    );
    let (Ok(before), Ok(after)) = objects else {
        return second.clone();
    };
    let is_marked = [&before, &after].map(|object| object.get_some(CACHE_MARK).is_some());
    let content = match (before.get_some("content"), after.get_some("content")) {
        _ if is_marked.contains(&true) => {
            let parts: Vec<String> = marked_parts(&before).chain(marked_parts(&after)).collect();
            format!("[{}]", parts.join(","))
        }
        (Some(before), Some(after)) => joined_content(before, after, separator),
        (Some(one), None) | (None, Some(one)) => one.get().to_owned(),
        (None, None) => "null".to_owned(),
    };
    let mut json = format!(
        "{{\"role\":{},\"content\":{content}",
        quoted(second.role().as_str())
    );
    let left = before.iter().filter(|(key, _)| after.get(key).is_none());
    for (key, value) in after.iter().chain(left) {
        if !matches!(key, "role" | "content" | CACHE_MARK) {
            push_entry(&mut json, key, value.get());
        }
    }
    json.push('}');
    Message::parse(&json).unwrap_or_else(|_| second.clone())
}

/// Two contents as one: a text if both are texts, otherwise a list of parts.
fn joined_content(before: &RawValue, after: &RawValue, separator: &str) -> String {
    let text = |value: &RawValue| serde_json::from_str::<String>(value.get()).ok();
    match (text(before), text(after)) {
        (Some(before), Some(after)) if before.is_empty() || after.is_empty() => {
            quoted(&(before + &after))
        }
        (Some(before), Some(after)) => quoted(&[before, after].join(separator)),
        _ => format!("[{}]", [list(before), list(after)].concat().join(",")),
    }
}

/// The parts of a message's content, the last one with the mark of the message unless it has its own. An empty text is none.
fn marked_parts(message: &RawObject<'_>) -> impl Iterator<Item = String> {
    let content = message.get_some("content").filter(|it| it.get() != "\"\"");
    let mut parts = content.map(list).unwrap_or_default();
    if let (Some(mark), Some(last)) = (message.get_some(CACHE_MARK), parts.last_mut())
        && RawObject::parse(last).is_ok_and(|part| part.get_some(CACHE_MARK).is_none())
    {
        set_member(last, CACHE_MARK, mark.get());
    }
    parts.into_iter()
}

/// The parts of a content that is a list.
fn parts_of(content: &RawValue) -> Option<Vec<String>> {
    let parts: Vec<&RawValue> = serde_json::from_str(content.get()).ok()?;
    Some(parts.iter().map(|part| part.get().to_owned()).collect())
}

/// The parts of a content; a text is one.
fn list(content: &RawValue) -> Vec<String> {
    parts_of(content).unwrap_or_else(|| vec![text_part(content.get())])
}

fn text_part(text: &str) -> String {
    format!("{{\"type\":\"text\",\"text\":{text}}}")
}

/// Changes the text of a part; says whether it has one.
fn change_text(part: &mut String, change: impl FnOnce(&str) -> String) -> bool {
    let text = || -> Option<String> {
        let object = RawObject::parse(part).ok()?;
        serde_json::from_str(object.get_some("text")?.get()).ok()
    };
    let Some(text) = text() else { return false };
    set_member(part, "text", &quoted(&change(&text)));
    true
}

/// Sets a member of a part. A new one comes last.
fn set_member(part: &mut String, member: &str, value: &str) {
    let Ok(object) = RawObject::parse(part) else {
        return;
    };
    let mut json = String::from("{");
    for (key, old) in object.iter() {
        let value = if key == member { value } else { old.get() };
        push_entry(&mut json, key, value);
    }
    if object.get(member).is_none() {
        push_entry(&mut json, member, value);
    }
    json.push('}');
    *part = json;
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn message(json: &Value) -> Message {
        Message::parse(&json.to_string()).unwrap()
    }

    fn value(json: &str) -> Value {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn texts_stand_around_a_content_of_any_form() {
        let image = json!({"type": "image_url", "image_url": {"url": "data:,"}});
        let text = |text: &str| json!({"type": "text", "text": text, "x": {"a": 1}});
        let added = |text: &str| json!({"type": "text", "text": text});
        for (content, expected) in [
            (json!("a"), json!("<a>")),
            (json!(null), json!("<>")),
            (json!([]), json!("<>")),
            (json!([text("a")]), json!([text("<a>")])),
            (
                json!([text("a"), image, text("b")]),
                json!([text("<a"), image, text("b>")]),
            ),
            (json!([image]), json!([added("<"), image, added(">")])),
        ] {
            let given = message(&json!({"role": "system", "content": content}));
            assert_eq!(value(&enclosed(&given, "<", ">")), expected, "{content}");
        }
    }

    #[track_caller]
    fn check_joined(first: &Value, second: &Value, expected: &Value) {
        let joined = joined(&message(first), &message(second), "\n\n");
        assert_eq!(value(joined.json_str()), *expected);
    }

    #[test]
    fn a_mark_stays_where_the_marked_text_ends() {
        let mark = json!({"type": "ephemeral", "ttl": "1h"});
        let part = |text: &str| json!({"type": "text", "text": text});
        let marked = |text: &str| json!({"type": "text", "text": text, "cache_control": mark});
        let plain = json!({"role": "system", "content": "a"});
        let of_message = json!({"role": "system", "content": "b", "cache_control": mark});
        let of_part = json!({"role": "system", "content": [marked("c"), part("d")]});
        let of_both =
            json!({"role": "system", "content": [marked("e")], "cache_control": {"type": "x"}});
        let empty = json!({"role": "system", "content": "", "cache_control": mark});
        let expected = |parts: Value| json!({"role": "system", "content": parts});
        for (first, second, parts) in [
            (&plain, &of_message, json!([part("a"), marked("b")])),
            (&of_message, &plain, json!([marked("b"), part("a")])),
            (&of_message, &of_message, json!([marked("b"), marked("b")])),
            (&of_part, &plain, json!([marked("c"), part("d"), part("a")])),
            (&of_both, &plain, json!([marked("e"), part("a")])),
            (&empty, &plain, json!([part("a")])),
        ] {
            check_joined(first, second, &expected(parts));
        }
    }

    #[test]
    fn the_members_of_both_messages_stay() {
        check_joined(
            &json!({"role": "user", "content": "a", "name": "n", "x": 1}),
            &json!({"role": "user", "content": "b", "x": 2, "y": 3}),
            &json!({"role": "user", "content": "a\n\nb", "x": 2, "y": 3, "name": "n"}),
        );
        let plain = |text: &str| Message::text(Role::System, text);
        assert_eq!(joined(&plain("a"), &plain("b"), "\n\n"), plain("a\n\nb"));
    }
}
