//! Headers of requests and answers.

use serde_json::{Value, json};

/// A header of an answer: its name, schema and description.
pub(in crate::http) type HeaderOf = (&'static str, HeaderKind, &'static str);

/// What the value of a header is, and whether it is always there.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) enum HeaderKind {
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

pub(in crate::http) const SESSION: HeaderOf = (
    "x-session-id",
    HeaderKind::OptionalText,
    "The session that the request names.",
);
pub(in crate::http) const REPLAYED: HeaderOf = (
    "idempotency-replayed",
    HeaderKind::OptionalText,
    "`true` if an earlier request with the same `idempotency-key` led to the answer.",
);
const PROCESSING: HeaderOf = (
    "openai-processing-ms",
    HeaderKind::OptionalNumber,
    "How long the request took, unless the answer is streamed.",
);
const OVERHEAD: HeaderOf = (
    "x-loopwright-overhead-ms",
    HeaderKind::OptionalNumber,
    "The part of that in which neither a model nor a tool was waited for.",
);
/// Of answers of the loop, errors included.
pub(in crate::http) const OF_LOOP: [HeaderOf; 5] = [
    (
        "x-completion-id",
        HeaderKind::OptionalText,
        "The id of a streamed answer.",
    ),
    SESSION,
    PROCESSING,
    OVERHEAD,
    REPLAYED,
];
/// Of answers to calls outside of a turn, errors included.
pub(in crate::http) const OF_CALL: [HeaderOf; 3] = [PROCESSING, OVERHEAD, REPLAYED];

/// When a client should ask again for an answer that is being made.
pub(in crate::http) const RETRY: HeaderOf = (
    "retry-after",
    HeaderKind::Number,
    "Seconds after which the answer may be there.",
);

/// The headers that every answer may have.
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

/// The parameters that every operation has.
pub(super) fn shared_parameters() -> Value {
    let parameter = |name: &str, description: &str| {
        json!({
            "in": "header", "name": name, "required": false, "description": description, "schema": {"type": "string"},
        })
    };
    json!({
        "RequestId": parameter(
            "x-request-id",
            "The id of the request, in the answer and in the log: 1 to 128 visible ASCII characters. By default, and \
             for another text, a fresh one."
        ),
        "ClientRequestId": parameter("x-client-request-id", "The same, if there is no `x-request-id`."),
    })
}
