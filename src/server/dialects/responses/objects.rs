//! The objects of the Responses API and of the Conversations API besides responses.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::encode::ItemText;
use agent::session::SessionHead;
use protocol::ids::SessionId;

/// A list of items.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ItemPage {
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
    pub(crate) fn of(items: Vec<ItemText>, has_more: bool) -> Self {
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

/// The number of tokens of an input.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct InputTokenCount {
    #[schemars(extend("const" = "response.input_tokens"))]
    object: &'static str,
    /// As the model server counts them, else an estimate: characters / 4.
    input_tokens: u64,
}

impl InputTokenCount {
    pub(crate) fn new(input_tokens: u64) -> Self {
        Self {
            object: "response.input_tokens",
            input_tokens,
        }
    }
}

/// A conversation.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ConversationObject {
    /// The id of the session.
    id: SessionId,
    #[schemars(extend("const" = "conversation"))]
    object: &'static str,
    /// When it was made, in seconds since 1970.
    created_at: i64,
    /// What the client has stored with it.
    metadata: Map<String, Value>,
}

/// The body of a new conversation.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct NewConversation {
    /// What it begins with.
    items: Option<Vec<Map<String, Value>>>,
    /// At most 16 texts of 512 characters, with keys of 64.
    #[schemars(extend("maxProperties" = 16, "propertyNames" = {"maxLength": 64}, "additionalProperties" = {"type": "string", "maxLength": 512}))]
    metadata: Option<Map<String, Value>>,
}

/// The body of a change of a conversation.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct ConversationUpdate {
    /// At most 16 texts of 512 characters, with keys of 64. They replace the earlier ones.
    #[schemars(extend("maxProperties" = 16, "propertyNames" = {"maxLength": 64}, "additionalProperties" = {"type": "string", "maxLength": 512}))]
    metadata: Map<String, Value>,
}

/// The body of new items.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct NewItems {
    #[schemars(length(min = 1))]
    items: Vec<Map<String, Value>>,
}

impl ConversationObject {
    /// A session as a conversation.
    pub(crate) fn new(id: SessionId, head: &SessionHead) -> Self {
        let metadata = head.metadata.as_deref();
        Self {
            id,
            object: "conversation",
            created_at: head.created_at,
            metadata: metadata
                .and_then(|metadata| serde_json::from_str(metadata).ok())
                .unwrap_or_default(),
        }
    }
}
