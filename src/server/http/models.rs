//! `GET /v1/models`, which merges the lists of all upstreams, and `GET /v1/agent/tools`.

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::error::ApiError;
use super::extract::Path;
use super::{AppState, forward, permissions};
use protocol::ids::Owner;
use protocol::openai::request::RequestError;
use tools::mcp_offer::McpOffer;
use tools::source::{Health, Source};
use tools::{SharedTool, ToolSource};
use upstream::models::{ModelEntry, merged};

/// A list of models.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct ModelList {
    #[schemars(extend("const" = "list"))]
    object: String,
    /// The models of all model servers, each once.
    data: Vec<Model>,
}

/// A model, with the members that its server gives it.
#[derive(Debug, JsonSchema)]
#[schemars(extend("additionalProperties" = true))]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct Model {
    /// The name that requests use.
    id: String,
}

/// The server-side tools.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct OfferedTools {
    data: Vec<OfferedTool>,
    /// The MCP servers that the caller may use, also those without any tool; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mcp_servers: Vec<OfferedMcpServer>,
    #[schemars(extend("const" = "list"))]
    object: &'static str,
}

/// An MCP server.
#[derive(Debug, Serialize, JsonSchema)]
struct OfferedMcpServer {
    name: String,
    /// Why calls cannot run; absent if they can.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Whether calls can run at this moment.
    state: Health,
    /// The names of its tools.
    tools: Vec<String>,
}

/// A server-side tool.
#[derive(Debug, Serialize, JsonSchema)]
struct OfferedTool {
    description: String,
    name: String,
    /// Whether a request has to ask for the tool; if not, every request is offered it.
    on_request: bool,
    /// The JSON Schema of the arguments.
    parameters: Value,
    /// Whether calls may run: `ask` if some need an approval, `deny` if all are refused.
    #[schemars(extend("enum" = ["auto", "ask", "deny"]))]
    permission: &'static str,
    /// Where the tool comes from.
    source: ToolSource,
    /// Whether calls can run at this moment.
    state: Health,
}

impl From<&McpOffer> for OfferedMcpServer {
    fn from(offer: &McpOffer) -> Self {
        let tools = offer.tools.iter();
        Self {
            name: offer.server.to_string(),
            reason: offer.reason.clone(),
            state: offer.health,
            tools: tools.map(|tool| tool.definition().name.clone()).collect(),
        }
    }
}

/// `GET /v1/models`
pub(super) async fn list(
    State(state): State<AppState>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let models = all(&state, headers).await?;
    let entries: Vec<&str> = models.iter().map(|model| &*model.json).collect();
    Ok(json_answer(format!(
        r#"{{"object":"list","data":[{}]}}"#,
        entries.join(",")
    )))
}

/// `GET /v1/models/{id}`; an id may contain slashes.
pub(super) async fn show(
    State(state): State<AppState>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let models = all(&state, headers).await?;
    let model = models.into_iter().find(|model| model.id == id);
    let model = model.ok_or_else(|| {
        let message = format!("no model has the id '{id}'; GET /v1/models lists the models");
        RequestError {
            missing: true,
            ..RequestError::field("model", message)
        }
    })?;
    Ok(json_answer(model.json.into()))
}

/// `GET /v1/agent/tools`: the server-side tools with their JSON Schemas.
pub(super) async fn tools(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
) -> Response {
    let permissions = permissions::of_owner(&state, &owner);
    let entry = |source: &Source, tool: &SharedTool| {
        let definition = tool.definition();
        let parameters = definition.parameters.as_deref().unwrap_or("{}");
        OfferedTool {
            description: definition.description(),
            name: definition.name.clone(),
            on_request: source.is_on_request(),
            parameters: serde_json::from_str(parameters).unwrap_or_default(),
            permission: permissions
                .of_tool(&definition.name, tool.policy().classes())
                .word(),
            source: tool.policy().source,
            state: source.health(),
        }
    };
    let sources = state.sources.snapshot_for(&owner);
    let data = sources
        .iter()
        .flat_map(|source| source.tools().iter().map(|tool| entry(source, tool)))
        .collect();
    let servers = sources.iter().filter_map(|source| match source {
        Source::Mcp(mcp) => Some(OfferedMcpServer::from(mcp)),
        _ => None,
    });
    let list = OfferedTools {
        data,
        mcp_servers: servers.collect(),
        object: "list",
    };
    Json(list).into_response()
}

async fn all(state: &AppState, headers: HeaderMap) -> Result<Vec<ModelEntry>, ApiError> {
    let mut headers = forward::upstream_headers(state, headers);
    headers.remove(http::header::ACCEPT_ENCODING);
    Ok(merged(&state.router, &headers).await?)
}

fn json_answer(json: String) -> Response {
    ([(CONTENT_TYPE, "application/json")], json).into_response()
}
