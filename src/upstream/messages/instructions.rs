//! The place of instructions: most chat templates accept one message of them, at the beginning.

use super::roles::joined;
use super::with_role;
use protocol::openai::content::{enclosed, rewritten};
use protocol::openai::message::{Message, Role};

/// The messages with one leading message of instructions. Later ones are words of the user in `<system-reminder>` tags, unless
/// the server takes them where they are.
pub(super) fn placed(messages: Vec<Message>, mid_system: bool) -> Vec<Message> {
    let count = |messages: &[Message]| messages.iter().take_while(|it| it.is_instruction()).count();
    let leading = count(&messages);
    let is_late = |message: &Message| !mid_system && message.is_instruction();
    if leading <= 1 && !messages.iter().skip(leading).any(is_late) {
        return messages;
    }
    let mut leading = messages;
    let rest = leading.split_off(count(&leading));
    let first = as_one(leading);
    let rest = rest.into_iter().map(|message| match is_late(&message) {
        true => reminder(&message),
        false => message,
    });
    first.into_iter().chain(rest).collect()
}

/// A history with a text of instructions before its own. They are one message.
pub fn with_instructions(text: &str, mut history: Vec<Message>) -> Vec<Message> {
    let leading = history.iter().take_while(|it| it.is_instruction()).count();
    let rest = history.split_off(leading);
    history.insert(0, Message::text(Role::System, text));
    as_one(history).into_iter().chain(rest).collect()
}

/// Messages of instructions as one of the first one's role.
fn as_one(leading: Vec<Message>) -> Option<Message> {
    leading.into_iter().reduce(|first, next| {
        let role = first.role().clone();
        with_role(&joined(&first, &next), &role)
    })
}

/// Instructions as words of the user.
fn reminder(message: &Message) -> Message {
    let content = enclosed(message, "<system-reminder>\n", "\n</system-reminder>");
    rewritten(message, &Role::User, &content, |_| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(role: Role, text: &str) -> Message {
        Message::text(role, text)
    }

    #[test]
    fn leading_instructions_are_joined_and_later_ones_are_words_of_the_user() {
        let given = vec![
            say(Role::System, "a"),
            say(Role::Developer, "b"),
            say(Role::User, "c"),
            say(Role::System, "d"),
        ];
        let leading = say(Role::System, "a\n\nb");
        let late = say(Role::User, "<system-reminder>\nd\n</system-reminder>");
        let user = say(Role::User, "c");
        assert_eq!(
            placed(given.clone(), false),
            [leading.clone(), user.clone(), late]
        );
        let kept = say(Role::System, "d");
        assert_eq!(placed(given, true), [leading, user, kept]);
        let plain = vec![say(Role::Developer, "a"), say(Role::User, "b")];
        assert_eq!(placed(plain.clone(), false), plain);
    }

    #[test]
    fn a_reminder_keeps_what_is_not_text() {
        let late = r#"{"content":[{"type":"text","text":"d","cache_control":{"type":"ephemeral"}},{"type":"image_url","image_url":{"url":"data:,"}}],"role":"developer","name":"n"}"#;
        let given = vec![say(Role::User, "c"), Message::parse(late).unwrap()];
        let expected = r#"{"role":"user","content":[{"type":"text","text":"<system-reminder>\nd","cache_control":{"type":"ephemeral"}},{"type":"image_url","image_url":{"url":"data:,"}},{"type":"text","text":"\n</system-reminder>"}],"name":"n"}"#;
        assert_eq!(placed(given, false)[1].json_str(), expected);
        let marked = r#"{"role":"system","content":"d","cache_control":{"type":"ephemeral"}}"#;
        let given = vec![say(Role::User, "c"), Message::parse(marked).unwrap()];
        let expected = r#"{"role":"user","content":"<system-reminder>\nd\n</system-reminder>","cache_control":{"type":"ephemeral"}}"#;
        assert_eq!(placed(given, false)[1].json_str(), expected);
    }

    #[test]
    fn instructions_of_a_turn_come_first_and_leave_the_marks_of_the_others() {
        let given = vec![say(Role::Developer, "b"), say(Role::User, "c")];
        let expected = [say(Role::System, "a\n\nb"), say(Role::User, "c")];
        assert_eq!(with_instructions("a", given), expected);
        assert_eq!(with_instructions("a", Vec::new()), [say(Role::System, "a")]);
        let marked = r#"{"role":"system","content":"b","cache_control":{"type":"ephemeral"}}"#;
        let given = vec![Message::parse(marked).unwrap()];
        let expected = r#"{"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":{"type":"ephemeral"}}]}"#;
        assert_eq!(with_instructions("a", given)[0].json_str(), expected);
    }
}
