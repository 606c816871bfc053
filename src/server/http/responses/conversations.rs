//! `/v1/conversations`: sessions in the shapes of OpenAI's Conversations API.

use axum::Json;
use axum::extract::{Extension, Request, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::super::deleted::DeletedObject;
use super::super::error::{ApiError, codes};
use super::super::extract::{OrderedQuery, Path, Query};
use super::super::openapi::cases;
use super::super::openapi::operation::Operation;
use super::super::reads::{self, ITEMS_FACTOR, ReadSession};
use super::super::routes::{ApiEndpoint, Group};
use super::super::{AppState, body};
use super::items::SessionItems;
use crate::dialects::answer::Dialect;
use crate::dialects::responses::conversation::change_of;
use crate::dialects::responses::decode::item_messages;
use crate::dialects::responses::encode::OutputItem;
use crate::dialects::responses::items::{PlacedItem, without_item};
use crate::dialects::responses::objects::{
    ConversationObject, ConversationUpdate, ItemPage, NewConversation, NewItems,
};
use agent::metrics::RouteLabel;
use agent::session::{Change, StoredSession};
use protocol::ids::{Owner, SessionId, WorkspaceId};
use protocol::openai::metadata::metadata;
use protocol::openai::request::{RequestError, body_object, refuse_unknown};

/// The routes of conversations.
pub(in crate::http) fn group() -> Group {
    const CONVERSATION: &str = "/v1/conversations/{id}";
    const ITEMS: &str = "/v1/conversations/{id}/items";
    const ITEM: &str = "/v1/conversations/{id}/items/{item_id}";
    Group {
        tag: "Conversations",
        label: RouteLabel::Responses,
        prefix: "/v1/conversations",
        is_probed: true,
        dialect: Some(Dialect::Responses),
        id: "The id of the conversation, which is that of its session.",
        endpoints: vec![
            ApiEndpoint::post("/v1/conversations", create, describe_create),
            ApiEndpoint::get(CONVERSATION, show, describe_show),
            ApiEndpoint::post(CONVERSATION, update, describe_update),
            ApiEndpoint::delete(CONVERSATION, delete, describe_delete),
            ApiEndpoint::get(ITEMS, items, describe_items),
            ApiEndpoint::post(ITEMS, add_items, describe_add_items),
            ApiEndpoint::get(ITEM, item, describe_item),
            ApiEndpoint::delete(ITEM, delete_item, describe_delete_item),
        ],
        ..Group::default()
    }
}

/// `POST /v1/conversations`
async fn create(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    request: Request,
) -> Result<Response, ApiError> {
    let (head, request_body) = request.into_parts();
    let bytes = body::read(&state, &owner, request_body, &head.headers).await?;
    let (mut messages, mut given) = (Vec::new(), None);
    if !bytes.is_empty() {
        body::require_json(&head.headers)?;
        let object = body_object(&bytes)?;
        refuse_unknown(&object, &["items", "metadata"])?;
        given = metadata(&object)?;
        messages = item_messages(&object)?;
    }
    let id = SessionId::fresh_conversation();
    let lease = state.sessions.lease(&owner, &id).await?;
    let change = Change {
        metadata: given.map(|given| Value::Object(given).to_string()),
        ..change_of(Vec::new(), 0, messages)
    };
    let written = state.sessions.write(&lease, change).await;
    written.map_err(|unwritten| unwritten.error)?;
    answer(&state, &owner, id).await
}

fn describe_create(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("createConversation", "Makes a conversation")
        .reads::<NewConversation>(false)
        .answers::<ConversationObject>(200, "The conversation.")
        .fails(&[codes::SESSION_BUSY, codes::SESSION_STORE_UNAVAILABLE])
        .fails(cases::STORAGE)
}

/// `GET /v1/conversations/{id}`
async fn show(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let id = session_id(&id)?;
    answer(&state, &owner, id).await
}

fn describe_show(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("getConversation", "A session as a conversation")
        .answers::<ConversationObject>(200, "The conversation.")
        .fails(&[
            codes::NOT_FOUND,
            codes::ANSWERS_OVERLOADED,
            codes::SESSION_STORE_UNAVAILABLE,
        ])
}

/// A session as a conversation.
async fn answer(state: &AppState, owner: &Owner, id: SessionId) -> Result<Response, ApiError> {
    let head = state.sessions.store.head(owner, &id).await?;
    let head = head.ok_or_else(not_found)?;
    Ok(Json(ConversationObject::new(id, &head)).into_response())
}

/// `POST /v1/conversations/{id}`
async fn update(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let id = session_id(&id)?;
    let (head, request_body) = request.into_parts();
    body::require_json(&head.headers)?;
    let bytes = body::read(&state, &owner, request_body, &head.headers).await?;
    let object = body_object(&bytes)?;
    refuse_unknown(&object, &["metadata"])?;
    let given = metadata(&object)?;
    let given =
        given.ok_or_else(|| RequestError::invalid("metadata", "is missing; send an object"))?;
    let lease = state.sessions.lease(&owner, &id).await?;
    let head = state.sessions.store.head(&owner, &id).await?;
    let change = Change {
        metadata: Some(Value::Object(given).to_string()),
        keep: head.ok_or_else(not_found)?.messages,
        ..Change::default()
    };
    let written = state.sessions.write(&lease, change).await;
    written.map_err(|unwritten| unwritten.error)?;
    answer(&state, &owner, id).await
}

fn describe_update(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("updateConversation", "Replaces the metadata")
        .reads::<ConversationUpdate>(true)
        .answers::<ConversationObject>(200, "The conversation.")
        .fails(&[
            codes::NOT_FOUND,
            codes::SESSION_BUSY,
            codes::SESSION_STORE_UNAVAILABLE,
        ])
        .fails(cases::STORAGE)
}

/// `DELETE /v1/conversations/{id}`
async fn delete(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let id = session_id(&id)?;
    let lease = state.sessions.lease(&owner, &id).await?;
    if !state.sessions.delete(&lease).await? {
        return Err(not_found());
    }
    let workspace = WorkspaceId::of(&owner, &id);
    state.sources.snapshot().session_deleted(&workspace);
    let deleted = DeletedObject::new("conversation.deleted", id.as_str());
    Ok(Json(deleted).into_response())
}

fn describe_delete(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("deleteConversation", "Deletes a session")
        .answers::<DeletedObject<'_>>(200, "It is deleted.")
        .fails(&[
            codes::NOT_FOUND,
            codes::SESSION_BUSY,
            codes::SESSION_STORE_UNAVAILABLE,
        ])
}

/// `GET /v1/conversations/{id}/items`
async fn items(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
    Query(query): Query<OrderedQuery>,
) -> Result<Response, ApiError> {
    let id = session_id(&id)?;
    let (stored, mut memory) = loaded(&state, &owner, &id).await?.into_parts();
    let items = items_of(&state, &owner, &id, &stored);
    let page = items.page(&query, &mut memory).await?;
    Ok(reads::json(&page, memory))
}

/// The parameters of a page of items.
fn describe_page(operation: Operation<'_>) -> Operation<'_> {
    operation
        .query(
            "limit",
            json!({"type": "integer", "minimum": 1, "maximum": 100, "default": 20}),
            "Most items.",
        )
        .query(
            "order",
            json!({"type": "string", "enum": ["asc", "desc"], "default": "desc"}),
            "The order of the items.",
        )
        .query(
            "after",
            json!({"type": "string"}),
            "The id of the last item that the client has.",
        )
}

fn describe_items(operation: Operation<'_>) -> Operation<'_> {
    describe_page(operation)
        .named("listConversationItems", "A session as items")
        .answers::<ItemPage>(200, "The items.")
        .fails(&[
            codes::INVALID,
            codes::NOT_FOUND,
            codes::ANSWERS_OVERLOADED,
            codes::SESSION_STORE_UNAVAILABLE,
        ])
}

/// `POST /v1/conversations/{id}/items`
async fn add_items(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let id = session_id(&id)?;
    let (head, request_body) = request.into_parts();
    body::require_json(&head.headers)?;
    let body = body::read(&state, &owner, request_body, &head.headers).await?;
    let object = body_object(&body)?;
    refuse_unknown(&object, &["items"])?;
    let messages = item_messages(&object)?;
    if messages.is_empty() {
        let problem = "is missing or empty; send a list of items";
        return Err(RequestError::invalid("items", problem).into());
    }
    let lease = state.sessions.lease(&owner, &id).await?;
    let head = state.sessions.store.head(&owner, &id).await?;
    let head = head.ok_or_else(not_found)?;
    // For the session that is written, before it is: it is not refused afterwards.
    let bytes = head.bytes.saturating_add(body.len() as u64);
    let memory = reads::reserve(&state, &owner, bytes.saturating_mul(ITEMS_FACTOR)).await?;
    // Behind a message no instructions are added.
    let instructions = match head.messages {
        0 => {
            let before = state.sessions.store.load(&owner, &id).await?;
            before.ok_or_else(not_found)?.instructions
        }
        _ => Vec::new(),
    };
    let known = instructions.len();
    let change = change_of(instructions, head.messages, messages);
    let with_new = change.instructions.as_ref();
    let new = with_new.map_or(0, |instructions| instructions.len() - known);
    let written = state.sessions.write(&lease, change).await;
    written.map_err(|unwritten| unwritten.error)?;
    let read = reads::session_within(&state, &owner, &id, memory).await?;
    let (stored, mut memory) = read.ok_or_else(not_found)?.into_parts();
    let items = items_of(&state, &owner, &id, &stored);
    let known = stored.instructions.len().saturating_sub(new);
    let added = items.after(known, head.messages, &mut memory).await?;
    Ok(reads::json(&ItemPage::of(added, false), memory))
}

fn describe_add_items(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("createConversationItems", "Adds items to a session")
        .reads::<NewItems>(true)
        .answers::<ItemPage>(200, "The items that were added.")
        .fails(&[
            codes::NOT_FOUND,
            codes::SESSION_BUSY,
            codes::SESSION_STORE_UNAVAILABLE,
        ])
        .fails(cases::STORAGE)
}

/// `GET /v1/conversations/{id}/items/{item_id}`
async fn item(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path((id, item)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let id = session_id(&id)?;
    let (stored, mut memory) = loaded(&state, &owner, &id).await?.into_parts();
    let items = items_of(&state, &owner, &id, &stored);
    let is_asked = |placed: &PlacedItem| placed.item.id == item;
    let beside = items.beside(is_asked, &mut memory).await?;
    let beside = beside.ok_or_else(no_item)?;
    let found = beside.iter().find(|placed| is_asked(placed));
    Ok(reads::json(&found.ok_or_else(no_item)?.item, memory))
}

fn describe_item(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("getConversationItem", "An item of a session")
        .path("item_id", "The id of the item.")
        .answers::<OutputItem>(200, "The item.")
        .fails(&[
            codes::NOT_FOUND,
            codes::ANSWERS_OVERLOADED,
            codes::SESSION_STORE_UNAVAILABLE,
        ])
}

/// `DELETE /v1/conversations/{id}/items/{item_id}`
async fn delete_item(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    Path((id, item)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let id = session_id(&id)?;
    let lease = state.sessions.lease(&owner, &id).await?;
    let (stored, mut memory) = loaded(&state, &owner, &id).await?.into_parts();
    let items = items_of(&state, &owner, &id, &stored);
    let is_asked = |placed: &PlacedItem| placed.item.id == item;
    let beside = items.beside(is_asked, &mut memory).await?;
    let beside = beside.ok_or_else(no_item)?;
    let removed = beside.iter().position(is_asked).ok_or_else(no_item)?;
    let change = without_item(&stored, &beside, removed).ok_or_else(|| {
        let problem = "names an item of a response that did not show all its calls, so that its message is not known; \
                       delete the conversation, or leave the item";
        RequestError::invalid("item_id", problem)
    })?;
    drop((beside, stored, memory));
    let written = state.sessions.write(&lease, change).await;
    written.map_err(|unwritten| unwritten.error)?;
    answer(&state, &owner, id).await
}

fn describe_delete_item(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("deleteConversationItem", "Deletes an item of a session")
        .path("item_id", "The id of the item.")
        .answers::<ConversationObject>(200, "The conversation without the item.")
        .fails(&[
            codes::INVALID,
            codes::NOT_FOUND,
            codes::SESSION_BUSY,
            codes::ANSWERS_OVERLOADED,
            codes::SESSION_STORE_UNAVAILABLE,
        ])
        .fails(cases::STORAGE)
}

fn items_of<'a>(
    state: &'a AppState,
    owner: &'a Owner,
    id: &'a SessionId,
    session: &'a StoredSession,
) -> SessionItems<'a> {
    SessionItems {
        state,
        owner,
        id,
        session,
    }
}

async fn loaded(state: &AppState, owner: &Owner, id: &SessionId) -> Result<ReadSession, ApiError> {
    let read = reads::session(state, owner, id, ITEMS_FACTOR).await?;
    read.ok_or_else(not_found)
}

fn session_id(text: &str) -> Result<SessionId, ApiError> {
    SessionId::parse(text).map_err(|_| not_found())
}

fn not_found() -> ApiError {
    codes::NOT_FOUND.with("no conversation has this id")
}

fn no_item() -> ApiError {
    codes::NOT_FOUND.with("no item of the conversation has this id")
}
