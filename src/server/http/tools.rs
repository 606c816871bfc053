//! The endpoints of tools: which there are, calls of them, the calls that wait for a person, and the MCP server.

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::error::codes;
use super::openapi::cases;
use super::openapi::operation::Operation;
use super::routes::{ApiEndpoint, Group};
use super::{AppState, approvals, mcp, permissions, tool_call};
use agent::metrics::RouteLabel;
use protocol::ids::Owner;
use tools::mcp_offer::McpOffer;
use tools::source::{Health, Source};
use tools::{SharedTool, ToolSource};

/// The routes of tools.
pub(super) fn group() -> Group {
    Group {
        tag: "Tools",
        label: RouteLabel::Agent,
        prefix: "/v1/agent",
        endpoints: vec![
            ApiEndpoint::get("/v1/agent/tools", list, describe_list),
            tool_call::endpoint(),
            approvals::list_endpoint(),
            approvals::decision::endpoint(),
            ApiEndpoint::post("/mcp", mcp::answer, describe_mcp),
        ],
        ..Group::default()
    }
}

/// The server-side tools.
#[derive(Debug, Serialize, JsonSchema)]
struct OfferedTools {
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

/// `GET /v1/agent/tools`: the server-side tools with their JSON Schemas.
async fn list(State(state): State<AppState>, Extension(owner): Extension<Owner>) -> Response {
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

fn describe_list(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("listTools", "The server-side tools")
        .answers::<OfferedTools>(200, "The tools, with the JSON Schemas of their arguments.")
}

fn describe_mcp(operation: Operation<'_>) -> Operation<'_> {
    let message = json!({
        "type": "object",
        "required": ["jsonrpc"],
        "properties": {"jsonrpc": {"const": "2.0"}},
        "description": "A JSON-RPC message of the Model Context Protocol.",
    });
    operation
        .named("mcp", "The tools as an MCP server")
        .described(
            "Streamable HTTP of the Model Context Protocol, versions 2025-03-26 and later, without sessions. Clients are to \
             use an SDK. What is wrong with a message can also be a JSON-RPC error with the status 400.",
        )
        .reads_as("application/json", message.clone(), true)
        .answers_as(200, "application/json", message, "The answer to a request.")
        .answers_as(
            200,
            "text/event-stream",
            json!({"type": "string"}),
            "The answer to a request with a `progressToken`, after its progress.",
        )
        .answers_nothing(202, "A notification was taken.")
        .fails(&[codes::INVALID, codes::NOT_ACCEPTED, codes::PAGE_NOT_ALLOWED, codes::SHUTTING_DOWN])
        .fails(cases::BODY)
        .fails(cases::MEDIA_TYPE)
}
