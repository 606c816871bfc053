//! The answer of a turn before it waited for a person. It is stored with the turn, so that every later reader gets the
//! whole answer.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;

use super::event::{AgentEvent, KeptImage, Notice, ProducedFile};
use super::transcript::{BETWEEN_ROUNDS, SentText};
use crate::session::View;
use crate::session::files::FileStore;
use blobs::segments::BinaryContent;
use policy::hooks::FailedHook;
use protocol::ids::{FileId, Owner};
use protocol::openai::citation::CitationStyle;
use protocol::openai::usage::Usage;

/// The answer of a turn so far.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Said {
    /// The events of the answer, in order, without contents that files hold and without the texts of results, which the session
    /// has.
    pub(super) events: Vec<AgentEvent>,
    /// How many of the events belong to an earlier answer. The answer of the waiting run does not repeat them.
    pub(super) from: usize,
    /// The figures of that part, and of what follows it.
    pub(super) before: Figures,
    pub(super) own: Figures,
    /// The style of citations in the text.
    pub(super) citations: CitationStyle,
    pub(super) last_text_only: bool,
    /// Hooks that have failed. The end of the turn reports them.
    pub(super) failed_hooks: Vec<FailedHook>,
    /// The next text follows another one.
    #[serde(skip)]
    pub(super) joins: bool,
}

/// The sums of a turn and the text of its answer.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Figures {
    pub(super) usage: Option<Usage>,
    pub(super) usage_by_round: Vec<Option<Usage>>,
    pub(super) notices: Vec<Notice>,
    pub(super) text: SentText,
    /// Rounds of tools.
    pub(super) rounds: u32,
    pub(super) model_calls: u32,
}

impl Said {
    /// Adds an event, if it tells of the answer.
    pub(super) fn add(&mut self, event: &AgentEvent) {
        let event = match event {
            AgentEvent::Text(text) => {
                if std::mem::take(&mut self.joins) {
                    let between = AgentEvent::BetweenRounds(BETWEEN_ROUNDS.to_owned());
                    self.events.push(between);
                }
                if let Some(AgentEvent::Text(before)) = self.events.last_mut() {
                    return before.push_str(text);
                }
                AgentEvent::Text(text.clone())
            }
            AgentEvent::Reasoning { text, field } => {
                if let Some(AgentEvent::Reasoning {
                    text: before,
                    field: known,
                }) = self.events.last_mut()
                    && known == field
                {
                    return before.push_str(text);
                }
                AgentEvent::Reasoning {
                    text: text.clone(),
                    field: field.clone(),
                }
            }
            AgentEvent::Complete(record) => {
                let mut record = record.clone();
                record.content.clear();
                record.frames.clear();
                record.images.iter_mut().for_each(leave_out_stored);
                AgentEvent::Complete(record)
            }
            AgentEvent::File(file) => {
                let mut file = file.clone();
                if file.file.take().is_some() && file.data.is_some() {
                    file.data = Some(Bytes::new());
                }
                AgentEvent::File(file)
            }
            AgentEvent::Started { .. }
            | AgentEvent::ClientArguments(_)
            | AgentEvent::Waiting { .. }
            | AgentEvent::ToolOutput { .. }
            | AgentEvent::Annotations(_)
            | AgentEvent::Finished(_) => return,
            AgentEvent::BetweenRounds(_)
            | AgentEvent::Extra { .. }
            | AgentEvent::Model(_)
            | AgentEvent::RoundEnded(_)
            | AgentEvent::Calling(_)
            | AgentEvent::Notice(_) => event.clone(),
        };
        self.events.push(event);
    }

    /// About how many bytes it has.
    pub(super) fn bytes(&self) -> usize {
        let bytes = |event: &AgentEvent| match event {
            AgentEvent::Text(text) | AgentEvent::Reasoning { text, .. } => text.len(),
            AgentEvent::Complete(record) => {
                let images = record.images.iter().map(|image| image.bytes.len());
                images.sum()
            }
            AgentEvent::File(file) => file.data.as_ref().map_or(0, Bytes::len),
            _ => 0,
        };
        self.events.iter().map(bytes).sum()
    }

    /// What a client has of the turn so far.
    pub(super) fn view(&self) -> View {
        let whole = self.figures().text;
        View {
            text: whole.joined,
            final_text: whole.last_round,
            behind_wait: Some(self.own.text.joined.clone()),
            ..View::default()
        }
    }

    /// The figures of the whole turn.
    pub(super) fn figures(&self) -> Figures {
        self.before.clone().and(&self.own)
    }
}

/// Prepares events to be sent again: adds contents from files, and the texts of results by their calls. Leaves out what
/// was deleted since. Each call begins only once.
pub(super) async fn replayed(
    events: Vec<AgentEvent>,
    mut results: HashMap<String, String>,
    files: &FileStore,
    owner: &Owner,
) -> Vec<AgentEvent> {
    let mut begun = HashSet::new();
    let mut sent = Vec::with_capacity(events.len());
    for event in events {
        sent.push(match event {
            // No separator precedes the first text.
            AgentEvent::BetweenRounds(_)
                if !sent.iter().any(|one| matches!(one, AgentEvent::Text(_))) =>
            {
                continue;
            }
            AgentEvent::Calling(calling) if !begun.insert(calling.tool_call_id.clone()) => continue,
            AgentEvent::Complete(mut record) => {
                record.content = results.remove(&record.tool_call_id).unwrap_or_default();
                for image in std::mem::take(&mut record.images) {
                    record.images.extend(found_image(files, owner, image).await);
                }
                AgentEvent::Complete(record)
            }
            AgentEvent::File(file) => {
                AgentEvent::File(Box::new(found_file(files, owner, *file).await))
            }
            event => event,
        });
    }
    sent
}

impl Figures {
    /// These and what follows them.
    pub(super) fn and(self, later: &Self) -> Self {
        let mut usage = self.usage;
        match (&mut usage, &later.usage) {
            (Some(sum), Some(more)) => sum.add(more),
            (none @ None, more) => *none = more.clone(),
            (Some(_), None) => {}
        }
        Self {
            usage,
            usage_by_round: [self.usage_by_round, later.usage_by_round.clone()].concat(),
            notices: [self.notices, later.notices.clone()].concat(),
            text: self.text.and(&later.text),
            rounds: later.rounds,
            model_calls: later.model_calls,
        }
    }
}

fn leave_out_stored(image: &mut KeptImage) {
    if let Some(file) = &mut image.file {
        file.content = None;
        image.bytes = Bytes::new();
    }
}

/// An image with its content; `None` if its file was deleted.
async fn found_image(files: &FileStore, owner: &Owner, mut image: KeptImage) -> Option<KeptImage> {
    let Some(file) = &mut image.file else {
        return Some(image);
    };
    let (content, bytes) = found(files, owner, &file.id).await?;
    file.content = Some(content);
    image.bytes = bytes;
    Some(image)
}

/// A file with its content, if an answer carries it and it was not deleted.
async fn found_file(files: &FileStore, owner: &Owner, mut file: ProducedFile) -> ProducedFile {
    let is_left_out = file.data.as_ref().is_some_and(Bytes::is_empty) && file.size > 0;
    if let Some(id) = FileId::parse(&file.id).filter(|_| is_left_out) {
        let (content, data) = found(files, owner, &id).await.unzip();
        file.file = content;
        file.data = data;
    }
    file
}

async fn found(files: &FileStore, owner: &Owner, id: &FileId) -> Option<(BinaryContent, Bytes)> {
    let read = async {
        let stored = files.get(owner, id).await.ok()?;
        let range = 0..stored.bytes;
        let mut reader = files.open_content(owner, &stored, range).await.ok()?;
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).await.ok()?;
        Some((BinaryContent::Stored(files.content(&stored)), bytes.into()))
    };
    let found = read.await;
    if found.is_none() {
        tracing::warn!("a file of a turn that waited is gone; its answer lacks the content");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> AgentEvent {
        AgentEvent::Text(text.to_owned())
    }

    #[test]
    fn pieces_of_a_text_are_joined_and_can_be_stored() {
        let mut said = Said::default();
        for piece in ["Let ", "me ", "see."] {
            said.add(&text(piece));
        }
        said.add(&AgentEvent::BetweenRounds("\n\n".to_owned()));
        said.add(&text("Done."));
        said.add(&AgentEvent::Started {
            headers: http::HeaderMap::new(),
        });
        let stored = serde_json::to_string(&said).unwrap();
        let read: Said = serde_json::from_str(&stored).unwrap();
        let shown: Vec<String> = read
            .events
            .iter()
            .map(|event| format!("{event:?}"))
            .collect();
        let expected = [
            r#"Text("Let me see.")"#,
            r#"BetweenRounds("\n\n")"#,
            r#"Text("Done.")"#,
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn an_answer_of_a_later_version_can_be_read_as_far_as_it_is_known() {
        let read: Said =
            serde_json::from_str(r#"{"events":[],"own":{"rounds":2},"later":1}"#).unwrap();
        assert_eq!(read.figures().rounds, 2);
        assert!(read.events.is_empty());
    }

    #[test]
    fn figures_of_two_parts_are_those_of_the_whole() {
        let part = |json: &str, rounds| Figures {
            usage: Usage::parse(json),
            usage_by_round: vec![Usage::parse(json)],
            rounds,
            ..Figures::default()
        };
        let whole = part(r#"{"total_tokens":3}"#, 1).and(&part(r#"{"total_tokens":4}"#, 2));
        assert_eq!(whole.usage.unwrap().total_tokens(), 7);
        assert_eq!(whole.usage_by_round.len(), 2);
        assert_eq!(whole.rounds, 2);
    }
}
