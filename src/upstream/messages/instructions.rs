//! Where instructions stand: most chat templates take one message of them, at the beginning.

use super::roles::joined;
use super::with_role;
use crate::openai::message::{Message, Role};

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
    let first = leading.into_iter().reduce(|first, next| {
        let role = first.role().clone();
        with_role(&joined(&first, &next), &role)
    });
    let rest = rest.into_iter().map(|message| match is_late(&message) {
        true => reminder(&message),
        false => message,
    });
    first.into_iter().chain(rest).collect()
}

/// Instructions as words of the user.
fn reminder(message: &Message) -> Message {
    let text = message.content_text();
    let text = format!("<system-reminder>\n{text}\n</system-reminder>");
    Message::text(Role::User, &text)
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
}
