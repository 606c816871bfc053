//! Titles of sessions.

use protocol::openai::message::Role;
use store::{StoredMessage, Title};

/// Longest title, in characters; the rest is cut.
/// Tried by `title::the_title_is_the_beginning_of_the_first_user_message`.
const MAX_CHARS: usize = 50;

/// The title of a session with these messages: the beginning of the first user message.
pub(super) fn of(messages: &[StoredMessage]) -> Option<Title> {
    let index = messages
        .iter()
        .position(|stored| *stored.message.role() == Role::User)?;
    let text = messages.get(index)?.message.content_text();
    let text = (!text.is_empty()).then(|| text.chars().take(MAX_CHARS).collect());
    Some(Title { index, text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::openai::message::Message;

    #[test]
    fn the_title_is_the_beginning_of_the_first_user_message() {
        let user = |text: &str| StoredMessage::visible(Message::text(Role::User, text));
        let parts = |json: &str| {
            let message = format!(r#"{{"role":"user","content":{json}}}"#);
            StoredMessage::visible(Message::parse(&message).unwrap())
        };
        let other = StoredMessage::visible(Message::text(Role::Assistant, "no user yet"));
        let long = "ä🦀漢".repeat(40);
        let cut: String = long.chars().take(50).collect();
        let image = r#"[{"type":"image_url","image_url":{"url":"data:,"}}]"#;
        let texts = r#"[{"type":"text","text":"pa"},{"type":"text","text":"rts"}]"#;
        let table = [
            (vec![], None),
            (vec![other.clone()], None),
            (
                vec![other, user(&long), user("second")],
                Some((1, Some(cut.as_str()))),
            ),
            (vec![parts(texts)], Some((0, Some("parts")))),
            (vec![parts(image), user("text")], Some((0, None))),
        ];
        for (messages, expected) in table {
            let title = of(&messages);
            let title = title.as_ref();
            let title = title.map(|title| (title.index, title.text.as_deref()));
            assert_eq!(title, expected);
        }
    }
}
