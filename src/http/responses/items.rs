//! The items of a session: what requests brought, and what responses answered.

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::super::AppState;
use super::super::error::ApiError;
use super::super::extract::{Order, OrderedQuery};
use super::history::response_of;
use crate::ids::{Owner, RunId, SessionId, hex};
use crate::openai::message::{Message, Role};
use crate::responses::encode::{answer_parts, input_items};
use crate::runs::FoundRun;
use crate::session::{SessionError, StoredMessage, StoredSession};

/// An item, in OpenAI's shape of its type.
pub(super) type Item = Map<String, Value>;

/// A list of items.
#[derive(Debug, Serialize, JsonSchema)]
pub(in super::super) struct ItemPage {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    /// The items, in OpenAI's shapes.
    data: Vec<Item>,
    /// The id of the first item, empty if there is none.
    first_id: String,
    /// The id of the last item, empty if there is none.
    last_id: String,
    has_more: bool,
}

impl ItemPage {
    /// The page of the items that a query asks for. They come in the order of the conversation.
    ///
    /// # Errors
    /// When the query is not valid.
    pub(super) fn of(items: Vec<Item>, query: &OrderedQuery) -> Result<Self, ApiError> {
        let is_item = |item: &Item, id: &str| item["id"] == id;
        let (items, has_more) = query.page(items, Order::Descending, is_item)?;
        Ok(Self {
            has_more,
            ..Self::whole(items)
        })
    }

    /// A list of all these items.
    pub(super) fn whole(items: Vec<Item>) -> Self {
        let id = |item: Option<&Item>| Some(item?.get("id")?.as_str()?.to_owned());
        // OpenAI's schema has strings here, not null.
        Self {
            object: "list",
            first_id: id(items.first()).unwrap_or_default(),
            last_id: id(items.last()).unwrap_or_default(),
            has_more: false,
            data: items,
        }
    }
}

/// The items that the request of a run brought.
pub(super) fn input_of(session: &StoredSession, run: &RunId) -> Vec<Item> {
    let segments = Segment::all(session);
    let segment = segments
        .into_iter()
        .find(|segment| segment.run.as_ref() == Some(run));
    let Some(segment) = segment else {
        return Vec::new();
    };
    let first = (segment.start == 0).then(|| instructions(session, run.as_str()));
    let items = first.into_iter().flatten();
    let items = items.chain(segment.input(run.as_str()));
    items.map(|placed| placed.item).collect()
}

/// The items of a session, in order.
///
/// # Errors
/// When the store fails.
pub(super) async fn items_of(
    state: &AppState,
    owner: &Owner,
    id: &SessionId,
    session: &StoredSession,
) -> Result<Vec<Item>, ApiError> {
    let placed = placed_items(state, owner, id, session).await?;
    Ok(placed.into_iter().map(|placed| placed.item).collect())
}

/// The items of a session, in order, with what they show.
///
/// # Errors
/// When the store fails.
pub(super) async fn placed_items(
    state: &AppState,
    owner: &Owner,
    id: &SessionId,
    session: &StoredSession,
) -> Result<Vec<PlacedItem>, ApiError> {
    // Of messages that no response is known for.
    let scope = scope(id);
    let mut items: Vec<PlacedItem> = instructions(session, &scope).collect();
    for segment in Segment::all(session) {
        let Some(run) = &segment.run else {
            segment.rest(&scope, &mut items);
            continue;
        };
        items.extend(segment.input(run.as_str()));
        let known = state.runs.look_up_shown(owner, run).await;
        let response = match known.map_err(SessionError::from)? {
            Some(FoundRun::Ended(answer)) => response_of(run, &answer).await,
            _ => None,
        };
        match response.and_then(|response| output_of(&response)) {
            Some(output) => segment.answered(output, &mut items),
            None => segment.output(run.as_str(), &mut items),
        }
    }
    Ok(items)
}

/// An item of a session, and where it comes from.
#[derive(Debug)]
pub(super) struct PlacedItem {
    pub(super) item: Item,
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

impl PlacedItem {
    /// The id of the item.
    pub(super) fn id(&self) -> Option<&str> {
        self.item.get("id")?.as_str()
    }

    /// Whether it shows something that the session did not hold before.
    pub(super) fn is_after(&self, before: &StoredSession) -> bool {
        match &self.origin {
            ItemOrigin::Instruction(index) => *index >= before.instructions.len(),
            ItemOrigin::Message(index) | ItemOrigin::Call { message: index, .. } => {
                *index >= before.messages.len()
            }
            ItemOrigin::Output(messages) => messages.start >= before.messages.len(),
        }
    }
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
    fn input(&self, scope: &str) -> Vec<PlacedItem> {
        let input = self.messages.iter().enumerate().filter(|(_, stored)| {
            !stored.hidden && (*stored.message.role() != Role::Assistant || stored.view.is_none())
        });
        let items = |(index, stored): (usize, &StoredMessage)| {
            items_at(&stored.message, scope, index, self.start + index)
        };
        input.flat_map(items).collect()
    }

    /// The items of the response, without those that were deleted.
    fn answered(&self, output: Vec<Item>, items: &mut Vec<PlacedItem>) {
        let view = self.messages.last().and_then(|stored| stored.view.as_ref());
        let removed = view.map_or(&[][..], |view| &view.removed);
        let messages = self.start..self.start + self.messages.len();
        let placed = output.into_iter().map(|item| PlacedItem {
            item,
            origin: ItemOrigin::Output(messages.clone()),
        });
        let is_kept = |placed: &PlacedItem| {
            placed
                .id()
                .is_none_or(|id| !removed.iter().any(|removed| removed == id))
        };
        items.extend(placed.filter(is_kept));
    }

    /// What the model answered, where the response itself is gone.
    fn output(&self, scope: &str, items: &mut Vec<PlacedItem>) {
        for (index, stored) in self.messages.iter().enumerate() {
            let is_answer = stored.hidden || stored.view.is_some();
            if is_answer && *stored.message.role() == Role::Assistant {
                self.answer(stored, scope, self.start + index, items);
            }
        }
    }

    /// All messages, of no known response.
    fn rest(&self, scope: &str, items: &mut Vec<PlacedItem>) {
        for (index, stored) in self.messages.iter().enumerate() {
            let place = self.start + index;
            match stored.message.role() {
                Role::Assistant => self.answer(stored, scope, place, items),
                _ if stored.hidden => {}
                _ => items.extend(items_at(&stored.message, scope, place, place)),
            }
        }
    }

    /// The items of an assistant message.
    fn answer(
        &self,
        stored: &StoredMessage,
        scope: &str,
        place: usize,
        items: &mut Vec<PlacedItem>,
    ) {
        let message = &stored.message;
        let parts = answer_parts(message);
        if !parts.is_empty() {
            items.push(PlacedItem {
                item: object(json!({
                    "type": "message", "id": format!("msg_{scope}_{place}"), "role": "assistant", "status": "completed",
                    "content": parts,
                })),
                origin: ItemOrigin::Message(place),
            });
        }
        for call in message.tool_calls() {
            let result = self.messages.iter().find(|result| {
                result.hidden && result.message.tool_call_id() == Some(call.id.as_str())
            });
            let suffix = format!("{scope}_{place}{}", call_suffix(&call.id));
            let item = match result {
                Some(result) => json!({
                    "type": "mcp_call", "id": format!("mcp_{suffix}"), "status": "completed",
                    "server_label": "loopwright", "name": call.name, "arguments": call.arguments,
                    "output": result.message.content_text(),
                }),
                None => json!({
                    "type": "function_call", "id": format!("fc_{suffix}"), "status": "completed",
                    "call_id": call.id, "name": call.name, "arguments": call.arguments,
                }),
            };
            items.push(PlacedItem {
                item: object(item),
                origin: ItemOrigin::Call {
                    message: place,
                    call_id: call.id.clone(),
                },
            });
        }
    }
}

/// The items of a message that a request brought. `number` stands for the message in their ids.
fn items_at(message: &Message, scope: &str, number: usize, place: usize) -> Vec<PlacedItem> {
    let id = |prefix: &str, call: Option<&str>| {
        let call = call.map_or_else(String::new, call_suffix);
        format!("{prefix}_{scope}_{number}{call}")
    };
    let items = input_items(message, id).into_iter().map(object);
    let placed = |item: Item| PlacedItem {
        origin: match item.get("call_id").and_then(Value::as_str) {
            Some(call_id) if *message.role() == Role::Assistant => ItemOrigin::Call {
                message: place,
                call_id: call_id.to_owned(),
            },
            Some(_) | None => ItemOrigin::Message(place),
        },
        item,
    };
    items.map(placed).collect()
}

/// The items of the instructions of a session.
fn instructions(session: &StoredSession, scope: &str) -> impl Iterator<Item = PlacedItem> {
    let messages = session.instructions.iter().enumerate();
    messages.flat_map(move |(index, message)| {
        // The others keep their ids when one is deleted.
        let number = format!("i{}", digest_of(message.json()));
        let id = |prefix: &str, _: Option<&str>| format!("{prefix}_{scope}_{number}");
        let items = input_items(message, id).into_iter().map(object);
        let placed = |item| PlacedItem {
            item,
            origin: ItemOrigin::Instruction(index),
        };
        items.map(placed).collect::<Vec<_>>()
    })
}

/// What stands for a call in the id of its item. The other calls of the message keep theirs when one is deleted.
fn call_suffix(call_id: &str) -> String {
    format!("x{}", digest_of(call_id.as_bytes()))
}

/// The beginning of a digest, in hexadecimal digits.
fn digest_of(bytes: &[u8]) -> String {
    hex(Sha256::digest(bytes).get(..6).unwrap_or_default())
}

/// The items of a response.
fn output_of(response: &str) -> Option<Vec<Item>> {
    #[derive(Deserialize)]
    struct Output {
        output: Vec<Item>,
    }
    serde_json::from_str::<Output>(response)
        .ok()
        .map(|response| response.output)
}

/// A text that stands for a session in ids. It says nothing of the session's own id.
fn scope(id: &SessionId) -> String {
    let digest = Sha256::digest(id.as_str());
    hex(digest.get(..16).unwrap_or_default())
}

fn object(value: Value) -> Item {
    match value {
        Value::Object(object) => object,
        _ => Item::new(),
    }
}
