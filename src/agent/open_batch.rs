//! The calls of a round, with the state of each. It is a value that can be stored, and a running batch is made of it.

use super::call::{Call, CallAnswer, CallState};
use super::contents::NamedContents;
use super::images::{ShownImage, image_message};
use crate::session::StoredMessage;
use protocol::openai::message::Message;
use protocol::openai::tool::ToolCall;
use tools::refusal::CallRefusal;

/// The calls of a round, and how far each of them is.
#[derive(Debug)]
pub(super) struct OpenBatch {
    /// The assistant message that asks for them.
    pub(super) message: Message,
    pub(super) calls: Vec<Call>,
}

/// What a round leaves, once every call of the server has its answer.
#[derive(Debug)]
pub(super) struct RoundResults {
    /// The messages for the history, in order.
    pub(super) messages: Vec<StoredMessage>,
    pub(super) images: NamedContents,
    /// Some of the images are of results that were stored, and have to be looked up again.
    pub(super) has_stored_images: bool,
    /// The texts of the results that have one, in the order of the calls.
    pub(super) contents: Vec<String>,
    /// The calls that the client is to run.
    pub(super) client_calls: Vec<ToolCall>,
}

impl OpenBatch {
    /// The message as the history has it.
    pub(super) fn stored_message(&self) -> StoredMessage {
        StoredMessage {
            hidden: !self.calls.iter().all(Call::is_of_client),
            ..StoredMessage::visible(self.message.clone())
        }
    }

    /// The call is run with other arguments than the model wrote. The history has those.
    pub(super) fn change_arguments(&mut self, index: usize, arguments: String) {
        let Some(call) = self.calls.get_mut(index) else {
            return;
        };
        call.call.arguments = arguments;
        let calls: Vec<ToolCall> = self.calls.iter().map(|call| call.call.clone()).collect();
        self.message = self.message.with_tool_calls(&calls);
    }

    /// Whether a call may still start.
    pub(super) fn may_start(&self) -> bool {
        let mut running = self.calls.iter().filter(|call| call.runs());
        running.any(|call| !call.state.has_started())
    }

    /// Whether a call waits for a decision.
    pub(super) fn waits(&self) -> bool {
        self.calls.iter().any(Call::waits)
    }

    /// About how many bytes its results have.
    pub(super) fn result_bytes(&self) -> usize {
        let answers = self.calls.iter().filter_map(Call::answer);
        let texts =
            answers.map(|one| one.content.len() + one.full_text.as_ref().map_or(0, String::len));
        texts.sum()
    }

    /// Answers every call that has no answer, because the conversation continues without the turn.
    pub(super) fn give_up(&mut self) {
        for call in &mut self.calls {
            if call.answer().is_none() {
                let refusal = match call.state.has_started() {
                    true => call.interrupted(),
                    false => CallRefusal::left(),
                };
                call.state = CallState::Answered(Box::new(CallAnswer::refused(&refusal)));
            }
        }
    }

    /// The messages and figures of the round.
    pub(super) fn into_results(self) -> RoundResults {
        let mut messages = vec![self.stored_message()];
        let (mut contents, mut images) = (Vec::new(), Vec::new());
        let mut client_calls = Vec::new();
        for call in self.calls {
            let is_of_client = call.is_of_client();
            let CallState::Answered(answer) = call.state else {
                client_calls.extend(is_of_client.then_some(call.call));
                continue;
            };
            let message = Message::tool_result(&call.call.id, &answer.content);
            messages.push(StoredMessage {
                full_text: answer.full_text,
                sources: answer.sources,
                ..StoredMessage::hidden(message)
            });
            let of_tool = |image| (call.call.name.clone(), image);
            images.extend(answer.images.into_iter().map(of_tool));
            if !answer.is_blank {
                contents.push(answer.content);
            }
        }
        if !client_calls.is_empty() {
            images.clear();
        }
        let is_stored = |(_, image): &(_, ShownImage)| matches!(image, ShownImage::Stored(_, None));
        let has_stored_images = images.iter().any(is_stored);
        let (message, images) = image_message(images).unzip();
        messages.extend(message.map(StoredMessage::hidden));
        RoundResults {
            messages,
            images: images.unwrap_or_default(),
            has_stored_images,
            contents,
            client_calls,
        }
    }
}
