//! The shape of a request, for the description of the API.

use schemars::JsonSchema;
use serde_json::{Map, Value};

/// The body of a request: OpenAI's members, and loopwright's extensions of a chat request. A member that is not named here
/// goes to the model server as it is. A member that is `null` counts as absent.
#[derive(Debug, JsonSchema)]
#[schemars(extend("additionalProperties" = true))]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct ResponseRequest {
    /// The id of a model that `GET /v1/models` lists. It may be left out with `previous_response_id`.
    model: Option<String>,
    /// A text of the user, or items.
    input: ResponseInput,
    /// `auto`: the oldest turns are left out of a prompt that is too long for the model. `disabled` is the default.
    truncation: Option<String>,
    /// Leading instructions of this turn alone.
    instructions: Option<String>,
    /// Whether the answer is streamed.
    stream: Option<bool>,
    /// Functions, custom tools, namespaces of functions, and hosted tools such as `code_interpreter` and `web_search`.
    tools: Option<Vec<Map<String, Value>>>,
    /// Binds the first round only, if it is `required` or names a tool.
    tool_choice: Option<Value>,
    /// What the response holds besides what it always holds.
    include: Option<Vec<String>>,
    /// Most tokens that the model writes in all rounds.
    max_output_tokens: Option<u64>,
    /// Most calls of server-side tools.
    max_tool_calls: Option<u64>,
    /// `false`: nothing of the turn is stored.
    store: Option<bool>,
    /// At most 16 texts, which come back in the response.
    metadata: Option<Map<String, Value>>,
    /// `format` and `verbosity`.
    text: Option<Map<String, Value>>,
    /// `effort` and `summary`.
    reasoning: Option<Map<String, Value>>,
    /// As in a chat request, except for `background` and `progress`: `auto` shows every call of a server-side tool, `declared`
    /// those of hosted tools that the request declares, `none` none; `named` adds events that OpenAI's API does not have.
    agent: Option<Map<String, Value>>,
}

#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum ResponseInput {
    Text(String),
    Items(Vec<Map<String, Value>>),
}
