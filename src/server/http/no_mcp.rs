//! Replaces the MCP server in a program that is built without the feature `mcp`. It refuses every message.

use super::error::{ApiError, codes};

/// Refuses every message.
pub(super) async fn answer() -> ApiError {
    codes::NOT_FOUND.with(
        "this program was built without the feature `mcp`; call tools with POST /v1/agent/tools/{name}/call",
    )
}
