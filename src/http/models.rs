//! `GET /v1/models`, which merges the lists of all upstreams, and `GET /v1/agent/tools`.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde_json::json;

use super::error::ApiError;
use super::extract::Path;
use super::{AppState, forward};
use crate::tools::SharedTool;
use crate::tools::source::Source;
use crate::upstream::models::{ModelEntry, merged};

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
        ApiError::not_found("no model has this id; GET /v1/models lists the models")
    })?;
    Ok(json_answer(model.json.into()))
}

/// `GET /v1/agent/tools`: the server-side tools with their JSON Schemas.
pub(super) async fn tools(State(state): State<AppState>) -> Response {
    let permission = state.agent.permission().as_str();
    let entry = |source: &Source, tool: &SharedTool| {
        let definition = tool.definition();
        let parameters = definition.parameters.as_deref().unwrap_or("{}");
        json!({
            "name": definition.name,
            "source": tool.policy().source,
            "description": definition.description(),
            "parameters": serde_json::from_str::<serde_json::Value>(parameters).unwrap_or_default(),
            "permission": permission,
            "state": source.health().as_str(),
        })
    };
    let sources = state.sources.snapshot();
    let data: Vec<_> = sources
        .iter()
        .flat_map(|source| source.tools().iter().map(|tool| entry(source, tool)))
        .collect();
    Json(json!({"object": "list", "data": data})).into_response()
}

async fn all(state: &AppState, headers: HeaderMap) -> Result<Vec<ModelEntry>, ApiError> {
    let mut headers = forward::upstream_headers(state, headers);
    headers.remove(http::header::ACCEPT_ENCODING);
    Ok(merged(&state.router, &headers).await?)
}

fn json_answer(json: String) -> Response {
    ([(CONTENT_TYPE, "application/json")], json).into_response()
}
