//! Items that are added to a conversation, as messages of its session.

use agent::session::{Change, StoredMessage, View};
use protocol::ids::RunId;
use protocol::openai::message::{Message, Role};

/// The change that appends messages to a session that has `stored_messages`. Leading instructions are added to the
/// instructions of the session.
pub(crate) fn change_of(
    mut instructions: Vec<Message>,
    stored_messages: usize,
    mut messages: Vec<Message>,
) -> Change {
    let leading = match stored_messages {
        0 => messages
            .iter()
            .take_while(|message| message.is_instruction())
            .count(),
        _ => 0,
    };
    let rest = messages.split_off(leading);
    instructions.extend(messages);
    let mut append: Vec<StoredMessage> = rest.into_iter().map(StoredMessage::visible).collect();
    if !append.is_empty() {
        append.push(end_of_items());
    }
    Change {
        instructions: (leading > 0).then_some(instructions),
        keep: stored_messages,
        append,
        ..Change::default()
    }
}

/// An empty answer. It separates the items before it from the items of the next turn, so that they keep their ids. The
/// model does not see it.
fn end_of_items() -> StoredMessage {
    StoredMessage {
        view: Some(View {
            run: Some(RunId::fresh().as_str().to_owned()),
            ..View::default()
        }),
        ..StoredMessage::hidden(Message::text(Role::Assistant, ""))
    }
}
