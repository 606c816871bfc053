//! Headers of answers.

use serde_json::{Value, json};

/// A header of an answer: its name, schema and description.
pub(super) type HeaderOf = (&'static str, HeaderKind, &'static str);

/// What the value of a header is, and whether it is always there.
#[derive(Debug, Clone, Copy)]
pub(super) enum HeaderKind {
    /// A text that is always there.
    Text,
    /// A text that may be absent.
    OptionalText,
    /// A number that is always there.
    Number,
    /// A number that may be absent.
    OptionalNumber,
}

impl HeaderKind {
    /// The header in the document.
    pub(super) fn described(self, description: &str) -> Value {
        let (kind, required) = match self {
            Self::Text => ("string", true),
            Self::OptionalText => ("string", false),
            Self::Number => ("number", true),
            Self::OptionalNumber => ("number", false),
        };
        json!({"description": description, "required": required, "schema": {"type": kind}})
    }
}

/// The headers that several answers have.
pub(super) fn shared_headers() -> Value {
    json!({
        "Replica": HeaderKind::OptionalText.described(
            "The name of the replica that has answered, where there are several (`replica_name`)."
        ),
        "ErrorSource": HeaderKind::OptionalText.described(
            "`upstream` where the error is that of a model server, as it came; absent from errors of loopwright."
        ),
        "ShouldRetry": HeaderKind::OptionalText.described(
            "`false` where the request must not be sent again as it is; the OpenAI SDKs heed it."
        ),
"RequestId": HeaderKind::Text.described("The id of the request; of an answer that is passed on, the model server's.")})
}
