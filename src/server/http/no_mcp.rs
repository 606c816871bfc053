//! Stands for the MCP server in a program that is built without the feature `mcp`: there is none.

use super::error::ApiError;

/// Refuses every message.
pub(super) async fn answer() -> ApiError {
    ApiError::not_found(
        "this program was built without the feature `mcp`; call tools with POST /v1/agent/tools/{name}/call",
    )
}
