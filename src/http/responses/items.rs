//! The items of a session: what requests brought, and what responses answered.
//!
//! Items are made piece by piece, so that a page takes no more memory than the session and the page.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

use schemars::JsonSchema;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::super::AppState;
use super::super::error::ApiError;
use super::super::extract::{Order, OrderedQuery, PageCollector};
use super::super::reads::{self, taking_apart};
use super::history::response_of;
use crate::ids::{Owner, RunId, SessionId, hex};
use crate::openai::message::{Message, Role};
use crate::quota::ReservedMemory;
use crate::responses::encode::{ItemText, answer_items, input_items, output_items};
use crate::runs::FoundRun;
use crate::session::{SessionError, StoredMessage, StoredSession};

/// A list of items.
#[derive(Debug, Serialize, JsonSchema)]
pub(in super::super) struct ItemPage {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    /// The items, in OpenAI's shapes.
    data: Vec<ItemText>,
    /// The id of the first item, empty if there is none.
    first_id: String,
    /// The id of the last item, empty if there is none.
    last_id: String,
    has_more: bool,
}

impl ItemPage {
    /// A list of these items.
    pub(super) fn of(items: Vec<ItemText>, has_more: bool) -> Self {
        let id = |item: Option<&ItemText>| item.map(|item| item.id.clone());
        // OpenAI's schema has strings here, not null.
        Self {
            object: "list",
            first_id: id(items.first()).unwrap_or_default(),
            last_id: id(items.last()).unwrap_or_default(),
            has_more,
            data: items,
        }
    }
}

/// The items of a session, or those that the request of one run brought; each is made when it is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionItems<'a> {
    pub(super) state: &'a AppState,
    pub(super) owner: &'a Owner,
    pub(super) id: &'a SessionId,
    pub(super) session: &'a StoredSession,
}

/// What becomes items together.
#[derive(Debug)]
struct Piece<'a> {
    kind: PieceKind<'a>,
    /// A text that stands for the run or the session in the ids of its items.
    scope: &'a str,
}

#[derive(Debug)]
enum PieceKind<'a> {
    Instruction(usize),
    /// What a request brought. `number` stands for the message in the ids.
    Input {
        stored: &'a StoredMessage,
        number: usize,
        index: usize,
    },
    /// What the model answered in a run.
    Answer(&'a Segment<'a>, &'a RunId),
    /// A message of the model that no run is known for.
    Unknown(&'a Segment<'a>, usize),
}

/// The items of a piece, with the memory of those that were read besides the session.
#[derive(Debug, Default)]
pub(super) struct PieceItems {
    pub(super) items: Vec<PlacedItem>,
    memory: Option<ReservedMemory>,
}

/// An item of a session, and where it comes from.
#[derive(Debug)]
pub(super) struct PlacedItem {
    pub(super) item: ItemText,
    pub(super) origin: ItemOrigin,
}

/// What of a session an item shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ItemOrigin {
    /// The instruction with this index.
    Instruction(usize),
    /// The content of the message with this index.
    Message(usize),
    /// A call of a message.
    Call { message: usize, call_id: String },
    /// An item of a stored response, whose messages these are.
    Output(Range<usize>),
}

impl SessionItems<'_> {
    /// The page of all items that a query asks for, in the order of the conversation, and the memory of what was read
    /// for it besides the session.
    ///
    /// # Errors
    /// When the query is not valid, the memory is in use for too long, or the store fails.
    pub(super) async fn page(
        self,
        query: &OrderedQuery,
        memory: &mut ReservedMemory,
    ) -> Result<ItemPage, ApiError> {
        let (segments, scope) = (Segment::all(self.session), scope(self.id));
        let pieces = pieces(self.session, &segments, &scope);
        self.page_of(pieces, query, memory).await
    }

    /// The page of the items that the request of a run brought.
    ///
    /// # Errors
    /// As [`Self::page`].
    pub(super) async fn page_of_input(
        self,
        run: &RunId,
        query: &OrderedQuery,
        memory: &mut ReservedMemory,
    ) -> Result<ItemPage, ApiError> {
        let segments = Segment::all(self.session);
        let pieces = input_pieces(self.session, &segments, run);
        self.page_of(pieces, query, memory).await
    }

    async fn page_of(
        self,
        mut pieces: Vec<Piece<'_>>,
        query: &OrderedQuery,
        memory: &mut ReservedMemory,
    ) -> Result<ItemPage, ApiError> {
        let mut page: PageCollector<ItemText> = query.collector(Order::Descending)?;
        let is_descending = page.order() == Order::Descending;
        if is_descending {
            pieces.reverse();
        }
        for piece in pieces {
            let mut made = self.made(&piece).await?;
            if is_descending {
                made.items.reverse();
            }
            let kept = page.len();
            let items = made.items.into_iter().map(|placed| placed.item);
            let ended = offer(&mut page, items);
            if let Some(more) = made.memory.filter(|_| page.len() > kept) {
                memory.absorb(more);
            }
            if ended.is_break() {
                break;
            }
        }
        let (items, has_more) = page.finish()?;
        Ok(ItemPage::of(items, has_more))
    }

    /// The items of all pieces of which `is_wanted` is true of one.
    ///
    /// # Errors
    /// When the memory is in use for too long, or the store fails.
    pub(super) async fn beside(
        self,
        is_wanted: impl Fn(&PlacedItem) -> bool,
    ) -> Result<Option<PieceItems>, ApiError> {
        let (segments, scope) = (Segment::all(self.session), scope(self.id));
        for piece in pieces(self.session, &segments, &scope) {
            let made = self.made(&piece).await?;
            if made.items.iter().any(&is_wanted) {
                return Ok(Some(made));
            }
        }
        Ok(None)
    }

    /// The items that show what the session did not hold when it had so many instructions and messages.
    ///
    /// # Errors
    /// As [`Self::beside`].
    pub(super) async fn after(
        self,
        instructions: usize,
        messages: usize,
    ) -> Result<Vec<ItemText>, ApiError> {
        let (segments, scope) = (Segment::all(self.session), scope(self.id));
        let mut items = Vec::new();
        for piece in pieces(self.session, &segments, &scope) {
            let is_new = match &piece.kind {
                PieceKind::Instruction(index) => *index >= instructions,
                PieceKind::Input { index, .. } | PieceKind::Unknown(_, index) => *index >= messages,
                PieceKind::Answer(segment, _) => segment.start >= messages,
            };
            if is_new {
                let made = self.made(&piece).await?.items;
                items.extend(made.into_iter().map(|placed| placed.item));
            }
        }
        Ok(items)
    }

    /// Gives each of its items to `visit`: those that the requests of `runs` brought, or without these all.
    ///
    /// # Errors
    /// As [`Self::beside`].
    pub(super) async fn visit(
        self,
        runs: Option<&BTreeSet<RunId>>,
        mut visit: impl FnMut(ItemText) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        let (segments, scope) = (Segment::all(self.session), scope(self.id));
        let pieces = match runs {
            Some(runs) => {
                let of_run = runs.iter();
                of_run
                    .flat_map(|run| input_pieces(self.session, &segments, run))
                    .collect()
            }
            None => pieces(self.session, &segments, &scope),
        };
        for piece in pieces {
            let made = self.made(&piece).await?;
            for placed in made.items {
                visit(placed.item)?;
            }
        }
        Ok(())
    }

    /// Makes the items of a piece.
    async fn made(self, piece: &Piece<'_>) -> Result<PieceItems, ApiError> {
        let scope = piece.scope;
        let items = match &piece.kind {
            PieceKind::Instruction(index) => {
                let message = self.session.instructions.get(*index);
                message.map_or_else(Vec::new, |message| instruction(message, scope, *index))
            }
            PieceKind::Input {
                stored,
                number,
                index,
            } => {
                let message = &stored.message;
                taking_apart(message.json().len(), || {
                    items_at(message, scope, *number, *index)
                })
            }
            PieceKind::Answer(segment, run) => return self.answer(segment, run).await,
            PieceKind::Unknown(segment, index) => segment.answer(*index, scope),
        };
        let memory = None;
        Ok(PieceItems { items, memory })
    }

    async fn answer(self, segment: &Segment<'_>, run: &RunId) -> Result<PieceItems, ApiError> {
        let known = self.state.runs.look_up_shown(self.owner, run).await;
        if let Some(FoundRun::Ended { bytes }) = known.map_err(SessionError::from)?
            && let Some(read) = reads::answer(self.state, self.owner, run, bytes).await?
            && let Some(response) = response_of(run, &read.answer).await
            && let Some(output) = taking_apart(response.len(), || output_items(&response))
        {
            let memory = Some(read.memory);
            let items = segment.answered(output);
            return Ok(PieceItems { items, memory });
        }
        // The response itself is gone.
        let answers = segment.messages.iter().enumerate().filter(|(_, stored)| {
            let is_answer = stored.hidden || stored.view.is_some();
            is_answer && *stored.message.role() == Role::Assistant
        });
        let items =
            answers.flat_map(|(index, _)| segment.answer(segment.start + index, run.as_str()));
        Ok(PieceItems {
            items: items.collect(),
            memory: None,
        })
    }
}

fn offer(
    page: &mut PageCollector<ItemText>,
    items: impl Iterator<Item = ItemText>,
) -> ControlFlow<()> {
    for item in items {
        page.offer(item, |item, id| item.id == id)?;
    }
    ControlFlow::Continue(())
}

/// The pieces of a session, in order.
fn pieces<'a>(
    session: &StoredSession,
    segments: &'a [Segment<'a>],
    scope: &'a str,
) -> Vec<Piece<'a>> {
    let instructions = 0..session.instructions.len();
    let mut pieces: Vec<Piece<'a>> = instructions
        .map(|index| Piece {
            kind: PieceKind::Instruction(index),
            scope,
        })
        .collect();
    for segment in segments {
        match &segment.run {
            Some(run) => {
                pieces.extend(segment.input(run.as_str()));
                pieces.push(Piece {
                    kind: PieceKind::Answer(segment, run),
                    scope: run.as_str(),
                });
            }
            // Of messages that no response is known for.
            None => pieces.extend(segment.rest(scope)),
        }
    }
    pieces
}

/// The pieces that the request of a run brought.
fn input_pieces<'a>(
    session: &StoredSession,
    segments: &'a [Segment<'a>],
    run: &'a RunId,
) -> Vec<Piece<'a>> {
    let mut of_run = segments
        .iter()
        .filter(|segment| segment.run.as_ref() == Some(run));
    let Some(segment) = of_run.next() else {
        return Vec::new();
    };
    let scope = run.as_str();
    let instructions = match segment.start {
        0 => 0..session.instructions.len(),
        _ => 0..0,
    };
    let instructions = instructions.map(|index| Piece {
        kind: PieceKind::Instruction(index),
        scope,
    });
    instructions.chain(segment.input(scope)).collect()
}

/// The messages of one turn, or those after the last one.
#[derive(Debug)]
struct Segment<'a> {
    /// Where the messages begin in the session.
    start: usize,
    messages: &'a [StoredMessage],
    run: Option<RunId>,
}

impl<'a> Segment<'a> {
    fn all(session: &'a StoredSession) -> Vec<Self> {
        let mut segments = Vec::new();
        let mut start = 0;
        let ended = session
            .messages
            .split_inclusive(|stored| stored.view.is_some());
        for messages in ended {
            let view = messages.last().and_then(|stored| stored.view.as_ref());
            let run = view.and_then(|view| view.run.as_deref());
            segments.push(Self {
                start,
                messages,
                run: run.and_then(|run| RunId::parse(&format!("resp_{run}")).ok()),
            });
            start += messages.len();
        }
        segments
    }

    /// What the request brought.
    fn input(&self, scope: &'a str) -> impl Iterator<Item = Piece<'a>> {
        let input = self.messages.iter().enumerate().filter(|(_, stored)| {
            !stored.hidden && (*stored.message.role() != Role::Assistant || stored.view.is_none())
        });
        input.map(move |(number, stored)| {
            let index = self.start + number;
            let kind = PieceKind::Input {
                stored,
                number,
                index,
            };
            Piece { kind, scope }
        })
    }

    /// All messages, of no known response.
    fn rest(&'a self, scope: &'a str) -> impl Iterator<Item = Piece<'a>> {
        let shown = self
            .messages
            .iter()
            .enumerate()
            .filter(|(_, stored)| *stored.message.role() == Role::Assistant || !stored.hidden);
        shown.map(move |(number, stored)| {
            let index = self.start + number;
            let kind = match stored.message.role() {
                Role::Assistant => PieceKind::Unknown(self, index),
                _ => PieceKind::Input {
                    stored,
                    number: index,
                    index,
                },
            };
            Piece { kind, scope }
        })
    }

    /// The items of the response, without those that were deleted.
    fn answered(&self, output: Vec<ItemText>) -> Vec<PlacedItem> {
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
    fn answer(&self, index: usize, scope: &str) -> Vec<PlacedItem> {
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

/// The items of a message that a request brought. `number` stands for the message in their ids.
fn items_at(message: &Message, scope: &str, number: usize, index: usize) -> Vec<PlacedItem> {
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
fn instruction(message: &Message, scope: &str, index: usize) -> Vec<PlacedItem> {
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

/// What stands for a call in the id of its item. The other calls of the message keep theirs when one is deleted.
fn call_suffix(call_id: &str) -> String {
    format!("x{}", digest_of(call_id.as_bytes()))
}

/// The beginning of a digest, in hexadecimal digits.
fn digest_of(bytes: &[u8]) -> String {
    hex(Sha256::digest(bytes).get(..6).unwrap_or_default())
}

/// A text that stands for a session in ids. It says nothing of the session's own id.
fn scope(id: &SessionId) -> String {
    let digest = Sha256::digest(id.as_str());
    hex(digest.get(..16).unwrap_or_default())
}
