//! The items of a session: which of its messages and answers become items together, and their ids.

mod removal;

use std::ops::Range;

use sha2::{Digest, Sha256};

pub(crate) use self::removal::without_item;
use super::encode::{ItemText, answer_items, input_items};
use agent::session::{StoredMessage, StoredSession};
use net::polling::taking_apart;
use protocol::ids::{RunId, SessionId, hex};
use protocol::openai::message::{Message, Role};

/// An item of a session, and where it comes from.
#[derive(Debug)]
pub(crate) struct PlacedItem {
    pub(crate) item: ItemText,
    pub(crate) origin: ItemOrigin,
}

/// What of a session an item shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ItemOrigin {
    /// The instruction with this index.
    Instruction(usize),
    /// The content of the message with this index.
    Message(usize),
    Call {
        message: usize,
        call_id: String,
    },
    /// An item of a stored response, whose messages these are.
    Output(Range<usize>),
}

/// What becomes items together.
#[derive(Debug)]
pub(crate) struct ItemSource<'a> {
    pub(crate) kind: ItemSourceKind<'a>,
    /// The run's or session's part of the ids of its items.
    pub(crate) scope: &'a str,
}

#[derive(Debug)]
pub(crate) enum ItemSourceKind<'a> {
    Instruction(usize),
    /// A message of a request. `number` is the message's part of the ids.
    Input {
        stored: &'a StoredMessage,
        number: usize,
        index: usize,
    },
    /// What the model answered in a run.
    Answer(&'a TurnMessages<'a>, &'a RunId),
    /// A message of the model that no run is known for.
    Unknown(&'a TurnMessages<'a>, usize),
}

/// What the items of a session are made of, in order.
pub(crate) fn sources<'a>(
    session: &StoredSession,
    turns: &'a [TurnMessages<'a>],
    scope: &'a str,
) -> Vec<ItemSource<'a>> {
    let instructions = 0..session.instructions.len();
    let mut sources: Vec<ItemSource<'a>> = instructions
        .map(|index| ItemSource {
            kind: ItemSourceKind::Instruction(index),
            scope,
        })
        .collect();
    for turn in turns {
        match &turn.run {
            Some(run) => {
                sources.extend(turn.input(run.as_str()));
                sources.push(ItemSource {
                    kind: ItemSourceKind::Answer(turn, run),
                    scope: run.as_str(),
                });
            }
            // Messages for which no response is stored.
            None => sources.extend(turn.rest(scope)),
        }
    }
    sources
}

/// The sources of the items in the request of a run.
pub(crate) fn input_sources<'a>(
    session: &StoredSession,
    turns: &'a [TurnMessages<'a>],
    run: &'a RunId,
) -> Vec<ItemSource<'a>> {
    let mut of_run = turns.iter().filter(|turn| turn.run.as_ref() == Some(run));
    let Some(turn) = of_run.next() else {
        return Vec::new();
    };
    let scope = run.as_str();
    let instructions = match turn.start {
        0 => 0..session.instructions.len(),
        _ => 0..0,
    };
    let instructions = instructions.map(|index| ItemSource {
        kind: ItemSourceKind::Instruction(index),
        scope,
    });
    instructions.chain(turn.input(scope)).collect()
}

/// The messages of one turn, or the messages after the last one.
#[derive(Debug)]
pub(crate) struct TurnMessages<'a> {
    /// The index in the session at which the messages begin.
    pub(crate) start: usize,
    pub(crate) messages: &'a [StoredMessage],
    pub(crate) run: Option<RunId>,
}

impl<'a> TurnMessages<'a> {
    pub(crate) fn all(session: &'a StoredSession) -> Vec<Self> {
        let mut turns = Vec::new();
        let mut start = 0;
        let ended = session
            .messages
            .split_inclusive(|stored| stored.view.is_some());
        for messages in ended {
            let view = messages.last().and_then(|stored| stored.view.as_ref());
            let run = view.and_then(|view| view.run.as_deref());
            turns.push(Self {
                start,
                messages,
                run: run.and_then(|run| RunId::parse(&format!("resp_{run}")).ok()),
            });
            start += messages.len();
        }
        turns
    }

    /// The messages of the request.
    fn input(&self, scope: &'a str) -> impl Iterator<Item = ItemSource<'a>> {
        let input = self.messages.iter().enumerate().filter(|(_, stored)| {
            !stored.hidden && (*stored.message.role() != Role::Assistant || stored.view.is_none())
        });
        input.map(move |(number, stored)| {
            let index = self.start + number;
            let kind = ItemSourceKind::Input {
                stored,
                number,
                index,
            };
            ItemSource { kind, scope }
        })
    }

    /// All messages, of no known response.
    fn rest(&'a self, scope: &'a str) -> impl Iterator<Item = ItemSource<'a>> {
        let shown = self
            .messages
            .iter()
            .enumerate()
            .filter(|(_, stored)| *stored.message.role() == Role::Assistant || !stored.hidden);
        shown.map(move |(number, stored)| {
            let index = self.start + number;
            let kind = match stored.message.role() {
                Role::Assistant => ItemSourceKind::Unknown(self, index),
                _ => ItemSourceKind::Input {
                    stored,
                    number: index,
                    index,
                },
            };
            ItemSource { kind, scope }
        })
    }

    /// The items of the response, without those that were deleted.
    pub(crate) fn answered(&self, output: Vec<ItemText>) -> Vec<PlacedItem> {
        let view = self.messages.last().and_then(|stored| stored.view.as_ref());
        let removed = view.map_or(&[][..], |view| &view.removed);
        let messages = self.start..self.start + self.messages.len();
        let kept = output
            .into_iter()
            .filter(|item| !removed.contains(&item.id));
        kept.map(|item| PlacedItem {
            item,
            origin: ItemOrigin::Output(messages.clone()),
        })
        .collect()
    }

    /// The items of the assistant message with this index in the session.
    pub(crate) fn answer(&self, index: usize, scope: &str) -> Vec<PlacedItem> {
        let place = index.checked_sub(self.start);
        let Some(stored) = place.and_then(|place| self.messages.get(place)) else {
            return Vec::new();
        };
        let message = &stored.message;
        let result = |call: &str| {
            let is_result = |result: &&StoredMessage| {
                result.hidden && result.message.tool_call_id() == Some(call)
            };
            let result = self.messages.iter().find(is_result);
            result.map(|result| &result.message)
        };
        let items = taking_apart(message.json().len(), || {
            answer_items(message, id_in(scope, index), result)
        });
        let mut calls = message.tool_calls().iter();
        let placed = |item: ItemText| PlacedItem {
            origin: match &*item.kind {
                "message" => ItemOrigin::Message(index),
                // The calls come in their order.
                _ => ItemOrigin::Call {
                    message: index,
                    call_id: calls.next().map(|call| call.id.clone()).unwrap_or_default(),
                },
            },
            item,
        };
        items.into_iter().map(placed).collect()
    }
}

/// The items of a message of a request. `number` is the message's part of their ids.
pub(crate) fn items_at(
    message: &Message,
    scope: &str,
    number: usize,
    index: usize,
) -> Vec<PlacedItem> {
    let placed = |item: ItemText| PlacedItem {
        origin: match &item.call_id {
            Some(call_id) if *message.role() == Role::Assistant => ItemOrigin::Call {
                message: index,
                call_id: call_id.clone(),
            },
            Some(_) | None => ItemOrigin::Message(index),
        },
        item,
    };
    let items = input_items(message, id_in(scope, number)).into_iter();
    items.map(placed).collect()
}

/// The items of an instruction of a session.
pub(crate) fn instruction(message: &Message, scope: &str, index: usize) -> Vec<PlacedItem> {
    // The others keep their ids when one is deleted.
    let number = format!("i{}", digest_of(message.json()));
    let id = |prefix: &str, _: Option<&str>| format!("{prefix}_{scope}_{number}");
    let placed = |item| PlacedItem {
        item,
        origin: ItemOrigin::Instruction(index),
    };
    let items = input_items(message, id).into_iter();
    items.map(placed).collect()
}

/// Makes the id of an item of a message from the prefix of its type and, for a call, the call's own id.
fn id_in(scope: &str, number: usize) -> impl Fn(&str, Option<&str>) -> String {
    move |prefix, call| {
        let call = call.map_or_else(String::new, call_suffix);
        format!("{prefix}_{scope}_{number}{call}")
    }
}

/// The call's part of an item id. It does not change when other calls of the message are deleted.
fn call_suffix(call_id: &str) -> String {
    format!("x{}", digest_of(call_id.as_bytes()))
}

/// The beginning of a digest, in hexadecimal digits.
fn digest_of(bytes: &[u8]) -> String {
    hex(Sha256::digest(bytes).get(..6).unwrap_or_default())
}

/// The session's part of item ids. It does not reveal the session's own id.
pub(crate) fn scope(id: &SessionId) -> String {
    let digest = Sha256::digest(id.as_str());
    hex(digest.get(..16).unwrap_or_default())
}
