//! `/v1/conversations`.

use serde_json::json;

use super::errors;
use super::operation::Operation;
use crate::dialects::responses::encode::OutputItem;
use crate::dialects::responses::objects::{
    ConversationObject, ConversationUpdate, ItemPage, NewConversation, NewItems,
};
use crate::http::deleted::DeletedObject;

const TAG: &str = "Conversations";
const ID: &str = "The id of the conversation, which is that of its session.";

pub(in crate::http) fn create(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(TAG, "createConversation", "Makes a conversation")
        .reads::<NewConversation>(false)
        .answers::<ConversationObject>(200, "The conversation.")
        .fails(errors::SESSION_BUSY)
        .fails(errors::STORAGE)
        .fails(errors::SESSION_STORE)
}

pub(in crate::http) fn show(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(TAG, "getConversation", "A session as a conversation")
        .path("id", ID)
        .answers::<ConversationObject>(200, "The conversation.")
        .fails(errors::NOT_FOUND)
        .fails(errors::READS)
        .fails(errors::SESSION_STORE)
}

pub(in crate::http) fn update(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(TAG, "updateConversation", "Replaces the metadata")
        .path("id", ID)
        .reads::<ConversationUpdate>(true)
        .answers::<ConversationObject>(200, "The conversation.")
        .fails(errors::NOT_FOUND)
        .fails(errors::SESSION_BUSY)
        .fails(errors::STORAGE)
        .fails(errors::SESSION_STORE)
}

pub(in crate::http) fn delete(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(TAG, "deleteConversation", "Deletes a session")
        .path("id", ID)
        .answers::<DeletedObject<'_>>(200, "It is deleted.")
        .fails(errors::NOT_FOUND)
        .fails(errors::SESSION_BUSY)
        .fails(errors::SESSION_STORE)
}

pub(in crate::http) fn items(operation: Operation<'_>) -> Operation<'_> {
    listed(operation)
        .named(TAG, "listConversationItems", "A session as items")
        .path("id", ID)
        .answers::<ItemPage>(200, "The items.")
        .fails(errors::INVALID)
        .fails(errors::NOT_FOUND)
        .fails(errors::READS)
        .fails(errors::SESSION_STORE)
}

pub(in crate::http) fn add_items(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(TAG, "createConversationItems", "Adds items to a session")
        .path("id", ID)
        .reads::<NewItems>(true)
        .answers::<ItemPage>(200, "The items that were added.")
        .fails(errors::NOT_FOUND)
        .fails(errors::SESSION_BUSY)
        .fails(errors::STORAGE)
        .fails(errors::SESSION_STORE)
}

pub(in crate::http) fn item(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(TAG, "getConversationItem", "An item of a session")
        .path("id", ID)
        .path("item_id", "The id of the item.")
        .answers::<OutputItem>(200, "The item.")
        .fails(errors::NOT_FOUND)
        .fails(errors::READS)
        .fails(errors::SESSION_STORE)
}

pub(in crate::http) fn delete_item(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named(
            TAG,
            "deleteConversationItem",
            "Deletes an item of a session",
        )
        .path("id", ID)
        .path("item_id", "The id of the item.")
        .answers::<ConversationObject>(200, "The conversation without the item.")
        .fails(errors::INVALID)
        .fails(errors::NOT_FOUND)
        .fails(errors::SESSION_BUSY)
        .fails(errors::STORAGE)
        .fails(errors::READS)
        .fails(errors::SESSION_STORE)
}

/// The parameters of a list of items.
pub(super) fn listed(operation: Operation<'_>) -> Operation<'_> {
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
