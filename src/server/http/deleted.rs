//! Answers that several endpoints share.

use schemars::JsonSchema;
use serde::Serialize;

/// The answer to a request that has deleted something.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Deleted")]
pub(super) struct DeletedObject<'a> {
    #[schemars(extend("const" = true))]
    deleted: bool,
    /// The id of what is deleted.
    id: &'a str,
    /// What it was.
    #[schemars(extend("enum" = ["chat.completion.deleted", "conversation.deleted", "file", "response", "session.deleted"]))]
    object: &'static str,
}

impl<'a> DeletedObject<'a> {
    /// Says that the object with this id is deleted.
    pub(super) fn new(object: &'static str, id: &'a str) -> Self {
        Self {
            deleted: true,
            id,
            object,
        }
    }
}
