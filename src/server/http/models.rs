//! `/v1/models`, which merges the lists of all upstreams.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use schemars::JsonSchema;

use super::error::{ApiError, codes};
use super::extract::Path;
use super::openapi::cases;
use super::openapi::operation::Operation;
use super::routes::{ApiEndpoint, Group};
use super::{AppState, forward};
use agent::metrics::RouteLabel;
use upstream::models::{ModelEntry, merged};

/// The routes of models.
pub(super) fn group() -> Group {
    const MODEL: &str = "/v1/models/{*id}";
    Group {
        tag: "Models",
        label: RouteLabel::Models,
        prefix: "/v1/models",
        id: "The name of the model, which may hold slashes.",
        endpoints: vec![
            ApiEndpoint::get("/v1/models", list, describe_list),
            ApiEndpoint::get(MODEL, show, describe_show),
            // Fine-tuned models are deleted at the upstream.
            ApiEndpoint::any(MODEL, forward::forward, describe_forwarded)
                .labelled(RouteLabel::Forwarded),
        ],
        ..Group::default()
    }
}

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

/// `GET /v1/models`
async fn list(State(state): State<AppState>, headers: HeaderMap) -> Result<Response, ApiError> {
    let models = all(&state, headers).await?;
    let entries: Vec<&str> = models.iter().map(|model| &*model.json).collect();
    Ok(json_answer(format!(
        r#"{{"object":"list","data":[{}]}}"#,
        entries.join(",")
    )))
}

fn describe_list(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("listModels", "The models of all model servers")
        .answers::<ModelList>(200, "The models, each once.")
        .fails(cases::UPSTREAM)
        .passes_on_answers()
}

/// `GET /v1/models/{id}`; an id may contain slashes.
async fn show(
    State(state): State<AppState>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let models = all(&state, headers).await?;
    let model = models.into_iter().find(|model| model.id == id);
    let model = model.ok_or_else(|| {
        let message = format!("no model has the id '{id}'; GET /v1/models lists the models");
        codes::MODEL_NOT_FOUND.with(message).about("model")
    })?;
    Ok(json_answer(model.json.into()))
}

fn describe_show(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("getModel", "A model")
        .answers::<Model>(200, "The model.")
        .fails(&[codes::MODEL_NOT_FOUND, codes::NOT_FOUND])
        .fails(cases::UPSTREAM)
        .passes_on_answers()
}

fn describe_forwarded(operation: Operation<'_>) -> Operation<'_> {
    let operation = operation
        .named("forwardModel", "Forwarded to the model server")
        .described(
            "Fine-tuned models, for example, are deleted at the model server. With API keys, only if `forward` has the \
             path.",
        )
        .of_each_method();
    forward::describe_forwarding(operation)
}

async fn all(state: &AppState, headers: HeaderMap) -> Result<Vec<ModelEntry>, ApiError> {
    let mut headers = forward::upstream_headers(state, headers);
    headers.remove(http::header::ACCEPT_ENCODING);
    Ok(merged(&state.router, &headers).await?)
}

fn json_answer(json: String) -> Response {
    ([(CONTENT_TYPE, "application/json")], json).into_response()
}
