//! Every path below `/v1` that has no route of its own.

use axum::extract::{Extension, Request, State};
use axum::response::{IntoResponse, Response};

use super::super::AppState;
use super::super::error::{ApiError, codes};
use super::super::openapi::cases;
use super::super::openapi::operation::Operation;
use super::super::path::{self, PathClass};
use super::super::routes::{ApiEndpoint, Group};
use super::forward_routed;
use agent::metrics::RouteLabel;
use protocol::ids::Owner;

/// The routes of forwarded paths, and the probes of dialects that are forwarded until they are built.
pub(in crate::http) fn groups() -> [Group; 3] {
    let probed = |prefix, head_probes| Group {
        prefix,
        is_forwarded: true,
        is_probed: true,
        head_probes,
        ..Group::default()
    };
    [
        Group {
            tag: "Forwarded",
            label: RouteLabel::Forwarded,
            endpoints: vec![ApiEndpoint::any("/v1/{*path}", forward, describe)],
            ..Group::default()
        },
        probed(
            "/v1/messages",
            &["/v1/messages", "/v1/messages/count_tokens"],
        ),
        probed(
            "/v1/ai-sdk/chat",
            &["/v1/ai-sdk/chat", "/v1/ai-sdk/chat/{id}/stream"],
        ),
    ]
}

/// Forwards a request to any endpoint that loopwright does not implement.
pub(in crate::http) async fn forward(
    State(state): State<AppState>,
    Extension(owner): Extension<Owner>,
    request: Request,
) -> Result<Response, ApiError> {
    let path = request.uri().path();
    let refused = match path::classify(path, &state.routes) {
        PathClass::Forward => {
            let allowed = state
                .access
                .get()
                .forward_rules
                .check(&owner, &path::below_root(path));
            match allowed {
                Ok(()) => return forward_routed(&state, &owner, request).await,
                Err(reason) => codes::NOT_FOUND.with(reason),
            }
        }
        PathClass::Reserved => {
            codes::NOT_FOUND.with("this endpoint is not available in this version of loopwright")
        }
        PathClass::Ambiguous => codes::NOT_FOUND.with(
            "this path has more than one reading; send it without empty or dot segments, a trailing slash, encoded slashes or invalid percent-encoding",
        ),
    };
    let mut answer = refused.into_response();
    answer.extensions_mut().insert(RouteLabel::Other);
    Ok(answer)
}

fn describe(operation: Operation<'_>) -> Operation<'_> {
    let operation = operation
        .named("forward", "Forwarded to the model server, byte for byte")
        .described(
            "Every path below `/v1` that this document does not describe is forwarded with all methods: `embeddings`, \
             `completions`, `audio/…`, `images/…`, `moderations`, `rerank`, `responses` and so on; with API keys, only \
             what `forward` lists. The request goes to a model server that has its `model`, or to the first one if it \
             names none. Answers are streamed, and so are bodies that are no JSON.",
        )
        .of_each_method()
        .path("path", "The path below `/v1`, which may hold slashes.");
    describe_forwarding(operation)
}

/// What all forwarded requests have in common.
pub(in crate::http) fn describe_forwarding(operation: Operation<'_>) -> Operation<'_> {
    operation
        .forwards()
        .fails(&[
            codes::BODY_BROKEN,
            codes::NOT_FORWARDED,
            codes::MODEL_NOT_FOUND,
            codes::SHUTTING_DOWN,
        ])
        .fails(cases::BODY)
        .fails(cases::UPSTREAM)
        .passes_on_answers()
}
