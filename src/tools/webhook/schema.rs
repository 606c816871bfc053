//! The shape of the answer to a call, for the description of the API.

use schemars::JsonSchema;
use serde_json::Value;

use super::parts::MAX_ENTRIES;

/// The answer to a call. Any other JSON is the content as it stands, and so is a text.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub struct WebhookResult {
    /// A text, a list of content parts such as `{"type": "text", "text": "…"}`, or any other JSON, which the model sees as
    /// text.
    content: Value,
    /// The call failed, and the model is told so.
    is_error: Option<bool>,
    /// When every result of a batch says `true`, the model is not called again.
    terminate: Option<bool>,
    /// Images: base64 of PNG, or `data:` URLs.
    #[schemars(length(max = MAX_ENTRIES))]
    images: Option<Vec<String>>,
    /// Files for the client.
    #[schemars(length(max = MAX_ENTRIES))]
    files: Option<Vec<WebhookFile>>,
}

/// A file that a call has made.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct WebhookFile {
    name: String,
    mime_type: Option<String>,
    /// The content as base64.
    data: String,
}
