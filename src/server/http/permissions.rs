//! `POST /v1/permissions/explain`: what the rules of the server and of the caller's key say of a call.

use axum::Json;
use axum::extract::{Extension, Request, State};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde_json::{Map, Value};

use super::error::{ApiError, codes};
use super::openapi::operation::Operation;
use super::routes::{ApiEndpoint, Group};
use super::{AppState, body};
use policy::rules::{CallCounts, Permissions, RuleDecision, RuledCall};
use protocol::ids::{Owner, shown};
use protocol::openai::request::{RequestError, body_member, body_object, refuse_unknown};
use tools::repair::Repaired;

/// The route of permissions.
pub(super) fn group() -> Group {
    Group {
        tag: "Tools",
        prefix: "/v1/permissions",
        endpoints: vec![ApiEndpoint::post(
            "/v1/permissions/explain",
            explain,
            describe_explain,
        )],
        ..Group::default()
    }
}

/// The body of `POST /v1/permissions/explain`.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct ExplainRequest {
    /// The name of a server-side tool, as the model sees it.
    tool: String,
    /// The arguments of the call. Without them: `{}`.
    arguments: Option<Map<String, Value>>,
}

/// What a turn of this owner may do, if its request has no rules of its own.
pub(super) fn of_owner(state: &AppState, owner: &Owner) -> Permissions {
    let server = state.agent.permissions().clone();
    let key = state.access.get().defaults(owner).permissions;
    Permissions::new(vec![server, key])
}

/// Explains the decision about the first call of a turn.
async fn explain(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    request: Request,
) -> Result<Response, ApiError> {
    let (head, request_body) = request.into_parts();
    body::require_json(&head.headers)?;
    let bytes = body::read(&state, &owner, request_body, &head.headers).await?;
    let body = body_object(&bytes)?;
    refuse_unknown(&body, &["tool", "arguments"])?;
    let name: Option<String> = body_member(&body, "tool", "the name of a tool")?;
    let name = name.ok_or_else(|| RequestError::invalid("tool", "is missing"))?;
    let arguments: Option<Map<String, Value>> = body_member(&body, "arguments", "an object")?;
    let tool = state.sources.snapshot_for(&owner).tool_named(&name);
    let tool = tool.ok_or_else(|| {
        let problem = format!(
            "'tool' names '{}', which is no server-side tool of this caller; GET /v1/agent/tools lists the tools",
            shown(&name)
        );
        codes::NOT_FOUND.with(problem).about("tool")
    })?;
    let permissions = of_owner(&state, &owner);
    let classes = tool.policy().classes();
    if let Some(decision) = permissions.denies_whatever(&name, classes) {
        return Ok(Json(decision).into_response());
    }
    let text = Value::Object(arguments.unwrap_or_default()).to_string();
    // A turn decides about the arguments as they are repaired, and not about any that cannot be used.
    let Repaired { arguments, .. } = state.agent.gate().prepare(&*tool, &text);
    let arguments = arguments.map_err(|error| RequestError::field("arguments", error.message))?;
    let call = RuledCall {
        call_id: "",
        tool: &name,
        classes,
        arguments: &arguments,
    };
    let decision = permissions.decide(&call, &mut CallCounts::default());
    Ok(Json(decision).into_response())
}

fn describe_explain(operation: Operation<'_>) -> Operation<'_> {
    operation
        .named("explainPermission", "Which rule decides about a call")
        .described(
            "The decision about the first call of a turn whose request has no rules of its own. No call is made.",
        )
        .reads::<ExplainRequest>(true)
        .answers::<RuleDecision>(200, "The decision, and what each level says.")
        .fails(&[codes::NOT_FOUND])
}
