//! The call of a webhook tool, which loopwright sends.

use serde_json::{Value, json};

use super::Schemas;
use tools::webhook::{WebhookCall, WebhookResult};

const JSON: &str = "application/json";

/// The requests to the dispatch URL, and to the URLs of configured tools.
pub(super) fn calls(schemas: &mut Schemas) -> Value {
    let header = |name: &str, required: bool, description: &str| {
        json!({
            "in": "header", "name": name, "required": required, "description": description, "schema": {"type": "string"},
        })
    };
    let parameters = [
        header(
            "idempotency-key",
            true,
            "The same over all retries of a call.",
        ),
        header(
            "traceparent",
            true,
            "W3C Trace Context: that of the call, if it has a span; else the client's, or a new one.",
        ),
        header(
            "webhook-id",
            false,
            "With a secret: the id of the call, as Standard Webhooks has it.",
        ),
        header(
            "webhook-timestamp",
            false,
            "With a secret: when the request was signed.",
        ),
        header("webhook-signature", false, "With a secret: the signature."),
    ];
    let (call, result) = (
        schemas.answer::<WebhookCall<'_>>(),
        schemas.request::<WebhookResult>(),
    );
    let result = json!({"anyOf": [result, {"description": "The content.", "not": {"required": ["content"]}}]});
    let event = json!({
        "type": "string",
        "description": "Events with `{\"progress\": \"…\"}` as their data, then one with the result.",
    });
    json!({
        "callTool": {"post": {
            "operationId": "callTool",
            "summary": "Runs a call of a webhook tool",
            "description": "Sent to the dispatch URL, or to a tool's own URL with the method of its settings. A tool with the \
                method `GET` gets the arguments as its query, and no body. Headers of the settings come along.",
            "security": [],
            "parameters": parameters,
            "requestBody": {"required": true, "content": {JSON: {"schema": call}}},
            "responses": {
                "2XX": {
                    "description": "The result. An empty body is an empty content.",
                    "content": {
                        JSON: {"schema": result},
                        "text/event-stream": {"schema": event},
                        "text/*": {"schema": {"type": "string", "description": "The content."}},
                    },
                },
                "default": {
                    "description": "The call failed, and the model is told the status. 429, and 503 with `retry-after`, are \
                        retried; another 5xx only if the tool is `idempotent`.",
                },
            },
        }},
    })
}
