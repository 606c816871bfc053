//! The messages of a turn's model calls: the history and the rounds, in the form that the called upstream takes.
//!
//! New messages follow the messages that were sent before, so that the server's prompt cache stays valid. All messages
//! are written anew only after a change of the upstream, or if the prompt is too long.

use std::sync::Arc;

use super::contents::NamedContents;
use super::conversation::is_long;
use super::truncation::Truncation;
use blobs::segments::SegmentedText;
use net::polling::block_in_place_if;
use protocol::openai::message::Message;
use upstream::memory::UpstreamMemory;
use upstream::router::Route;
use upstream::{Transcript, messages};

/// The messages of a turn.
#[derive(Debug)]
pub(super) struct Prompt {
    route: Arc<Route>,
    /// The candidate of the route that the transcript is for.
    candidate: usize,
    memory: UpstreamMemory,
    transcript: Transcript,
    /// The transcript that the next model call sends instead. It has the form for the current candidate; other
    /// candidates get the same.
    instead: Option<Transcript>,
    /// The messages from which the transcript is made again, if that may be necessary.
    kept: Option<Vec<MessageGroup>>,
    truncation: Option<Truncation>,
}

/// The history, or the messages of a round.
#[derive(Debug)]
struct MessageGroup {
    messages: Vec<Message>,
    contents: NamedContents,
}

impl MessageGroup {
    fn texts(&self, written: &[Message]) -> Vec<SegmentedText> {
        let written = written.iter().map(|message| self.contents.render(message));
        written.collect()
    }
}

impl Prompt {
    /// The prompt of a repaired history. With `truncates` its oldest turns can be left out.
    pub(super) fn new(
        route: Arc<Route>,
        history: Vec<Message>,
        contents: NamedContents,
        truncates: bool,
    ) -> Self {
        let may_change = truncates || route.upstreams().len() > 1;
        let mut prompt = Self {
            memory: memory_of(&route, 0),
            route,
            candidate: 0,
            transcript: Transcript::default(),
            instead: None,
            truncation: truncates.then(|| Truncation::new(&history)),
            kept: None,
        };
        let history = MessageGroup {
            messages: history,
            contents,
        };
        prompt.write_history(&history);
        prompt.kept = may_change.then(|| vec![history]);
        prompt
    }

    /// The messages for the upstream that was called last.
    pub(super) fn transcript(&self) -> &Transcript {
        &self.transcript
    }

    /// The messages for a candidate of the route.
    pub(super) fn for_candidate(&mut self, candidate: usize) -> Transcript {
        if candidate != self.candidate {
            self.candidate = candidate;
            self.write_all();
        }
        self.instead.as_ref().unwrap_or(&self.transcript).clone()
    }

    /// Makes model calls send other messages, until this is called again. The prompt itself is not changed.
    pub(super) fn send_instead(&mut self, messages: Option<Transcript>) {
        self.instead = messages;
    }

    /// Adds the messages of a round, and the contents that they name.
    pub(super) fn push_round(&mut self, messages: Vec<Message>, contents: NamedContents) {
        let round = MessageGroup { messages, contents };
        self.write_round(&round);
        if let Some(kept) = &mut self.kept {
            kept.push(round);
        }
    }

    /// Leaves the older half of the turns out. Returns whether there were any.
    pub(super) fn shorten(&mut self) -> bool {
        let shortened = self.truncation.as_mut().is_some_and(Truncation::shorten);
        if shortened {
            self.write_all();
        }
        shortened
    }

    fn write_all(&mut self) {
        let Some(kept) = self.kept.take() else {
            return;
        };
        self.memory = memory_of(&self.route, self.candidate);
        self.transcript = Transcript::default();
        let mut groups = kept.iter();
        if let Some(history) = groups.next() {
            self.write_history(history);
        }
        groups.for_each(|round| self.write_round(round));
        self.kept = Some(kept);
    }

    fn write_history(&mut self, history: &MessageGroup) {
        let bytes = history.messages.iter().map(|message| message.json().len());
        let long = is_long(history.messages.len(), bytes.sum());
        let texts = block_in_place_if(long, || {
            let all = history.messages.iter().enumerate();
            let sent = all.filter(|(index, _)| {
                let truncation = self.truncation.as_ref();
                truncation.is_none_or(|truncation| truncation.sends(*index))
            });
            let restored = sent.map(|(_, message)| self.memory.restored(message));
            let written = messages::of_history(restored.collect(), &self.route.quirks);
            history.texts(&written)
        });
        self.transcript.push(texts);
    }

    fn write_round(&mut self, round: &MessageGroup) {
        let restored = round.messages.iter();
        let restored: Vec<_> = restored.map(|one| self.memory.restored(one)).collect();
        let written = messages::of_round(&restored, &self.route.quirks);
        self.transcript.push(round.texts(&written));
    }
}

fn memory_of(route: &Route, candidate: usize) -> UpstreamMemory {
    let upstream = route.candidate(candidate);
    UpstreamMemory::new(upstream.name(), upstream.kind(), route.quirks.call_ids)
}
