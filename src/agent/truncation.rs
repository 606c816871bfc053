//! Leaving the oldest turns out of a prompt that is too long for the model.
//!
//! Only the refusal of a server shows the length of prompt that its model accepts. Each refusal leaves out the older
//! half of the remaining turns, except instructions and the last turn. The stored history is not changed.

use protocol::openai::message::{Message, Role};

/// Which messages of a history are sent.
#[derive(Debug, Clone, Default)]
pub(super) struct Truncation {
    /// How many of them are instructions at the beginning.
    leading: usize,
    /// Where the second and each later turn that is sent begins.
    starts: Vec<usize>,
    /// Where the first turn that is sent begins.
    first: usize,
}

impl Truncation {
    pub(super) fn new(history: &[Message]) -> Self {
        let is_user = |message: &Message| *message.role() == Role::User;
        let leading = history.iter().take_while(|it| it.is_instruction()).count();
        let pairs = history.iter().zip(history.iter().skip(1)).enumerate();
        let starts = pairs.filter(|(index, (before, next))| {
            *index >= leading && is_user(next) && !is_user(before)
        });
        Self {
            leading,
            starts: starts.map(|(index, _)| index + 1).collect(),
            first: leading,
        }
    }

    /// Whether the message with this index is sent.
    pub(super) fn sends(&self, index: usize) -> bool {
        index < self.leading || index >= self.first
    }

    /// Leaves out the older half of the turns. Returns whether there was more than the last turn.
    pub(super) fn shorten(&mut self) -> bool {
        let left_out = self.starts.len().div_ceil(2);
        let Some(first) = self.starts.drain(..left_out).next_back() else {
            return false;
        };
        self.first = first;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_half_of_the_turns_is_left_out_each_time() {
        let say = |role: Role, text: &str| Message::text(role, text);
        let mut history = vec![say(Role::System, "s")];
        for turn in ["a", "b", "c", "d"] {
            history.push(say(Role::User, turn));
            history.push(say(Role::User, "more"));
            history.push(say(Role::Assistant, turn));
        }
        history.push(say(Role::User, "e"));
        let mut truncation = Truncation::new(&history);
        let mut sent = Vec::new();
        while truncation.shorten() {
            let shown = history.iter().enumerate();
            let shown = shown.filter(|(index, _)| truncation.sends(*index));
            let contents: Vec<String> = shown.map(|(_, one)| one.content_text()).collect();
            sent.push(contents.join(" "));
        }
        assert_eq!(sent, ["s c more c d more d e", "s d more d e", "s e"]);
    }
}
