//! Leaving the oldest turns out of a prompt that is too long for the model.
//!
//! What a model can take is known only by the refusal of its server. Each refusal leaves out the older half of the turns
//! that are left, instructions and the last turn excepted. The stored history stays as it is.

use crate::openai::message::{Message, Role};
use crate::parted::PartedText;
use crate::upstream::Transcript;

/// The messages of a prompt, of which the oldest turns can be left out.
#[derive(Debug, Clone, Default)]
pub(super) struct Truncation {
    /// As the upstream is sent them.
    messages: Vec<PartedText>,
    /// How many of them are instructions at the beginning.
    leading: usize,
    /// Where the turns after the first one that is sent begin.
    starts: Vec<usize>,
    /// Where the first turn that is sent begins.
    first: usize,
}

impl Truncation {
    /// The prompt of these messages, given with their texts.
    pub(super) fn new(history: &[Message], texts: &[PartedText]) -> Self {
        let is_user = |message: &Message| *message.role() == Role::User;
        let leading = history.iter().take_while(|it| it.is_instruction()).count();
        let pairs = history.iter().zip(history.iter().skip(1)).enumerate();
        let starts = pairs.filter(|(index, (before, next))| {
            *index >= leading && is_user(next) && !is_user(before)
        });
        Self {
            messages: texts.to_vec(),
            leading,
            starts: starts.map(|(index, _)| index + 1).collect(),
            first: leading,
        }
    }

    /// Adds messages of the last turn.
    pub(super) fn push(&mut self, texts: &[PartedText]) {
        self.messages.extend_from_slice(texts);
    }

    /// Leaves out the older half of the turns. Returns what is sent then; `None` if only the last turn is left.
    pub(super) fn shorten(&mut self) -> Option<Transcript> {
        let left_out = self.starts.len().div_ceil(2);
        let last = left_out.checked_sub(1)?;
        self.first = self.starts.drain(..left_out).nth(last)?;
        let instructions = self.messages.iter().take(self.leading);
        let rest = self.messages.iter().skip(self.first);
        let mut transcript = Transcript::default();
        transcript.push(instructions.chain(rest).cloned());
        Some(transcript)
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
        let texts: Vec<PartedText> = history
            .iter()
            .map(|one| one.json().clone().into())
            .collect();
        let mut truncation = Truncation::new(&history, &texts);
        truncation.push(&[say(Role::Assistant, "call").json().clone().into()]);
        let mut sent = Vec::new();
        while let Some(transcript) = truncation.shorten() {
            let text = transcript.text().in_one_piece().unwrap();
            let text = std::str::from_utf8(&text).unwrap();
            let messages: Vec<serde_json::Value> =
                serde_json::from_str(&format!("[{text}]")).unwrap();
            let contents: Vec<&str> = messages
                .iter()
                .map(|one| one["content"].as_str().unwrap())
                .collect();
            sent.push(contents.join(" "));
        }
        assert_eq!(
            sent,
            [
                "s c more c d more d e call",
                "s d more d e call",
                "s e call"
            ]
        );
    }
}
