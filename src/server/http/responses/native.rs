//! Requests that a model server answers itself: it supports the Responses API, and the loop has no part in them.
//!
//! A request is answered so if no server-side tool is offered, no extension is used, no state of this server is asked
//! for, and nothing is referred to that this server has issued.

use std::sync::Arc;

use axum::response::Response;
use http::request::Parts;

use super::super::AppState;
use super::super::body::HeldBody;
use super::super::caller;
use super::super::error::ApiError;
use super::super::forward::{self, StartOfBody};
use crate::dialects::fields::head::RequestHead;
use crate::dialects::responses::decode::{IssuedIds, plain_draft};
use agent::session::files::FileError;
use agent::turn::{Caller, Route};
use protocol::ids::{FileId, Owner, RequestId, RunId};
use protocol::openai::request::body_object;
use upstream::settings::{NativeApi, Quirks};

/// What becomes of a request.
pub(super) enum NativeDecision {
    /// A model server has answered it.
    Answered(Box<Response>),
    /// It is run as a turn.
    Turn(HeldBody),
}

/// Forwards a request if a model server is to answer it.
pub(super) async fn answered(
    state: &AppState,
    owner: &Owner,
    request_id: RequestId,
    head: &Parts,
    body: HeldBody,
) -> Result<NativeDecision, ApiError> {
    let all = state.router.all();
    if !all
        .upstreams()
        .iter()
        .any(|upstream| speaks(upstream.quirks()))
    {
        return Ok(NativeDecision::Turn(body));
    }
    let request_head = caller::request_head(state, &head.headers)?;
    let caller = caller::caller(state, owner.clone(), request_id);
    let Some(route) = route(state, caller, &request_head, &body) else {
        return Ok(NativeDecision::Turn(body));
    };
    if is_known(state, owner, &IssuedIds::read(&body)).await? {
        return Ok(NativeDecision::Turn(body));
    }
    let body = StartOfBody::of_json(body.into_forwardable());
    let response = forward::native(state, owner, route, head, body).await?;
    Ok(NativeDecision::Answered(Box::new(response)))
}

fn speaks(quirks: &Quirks) -> bool {
    quirks.native.contains(&NativeApi::Responses)
}

/// The model servers that can answer a request in which the loop has no part; `None` if it has one.
fn route(
    state: &AppState,
    caller: Caller,
    head: &RequestHead,
    body: &HeldBody,
) -> Option<Arc<Route>> {
    let object = body_object(body).ok()?;
    let model: Option<String> = match object.get_some("model") {
        Some(model) => Some(serde_json::from_str(model.get()).ok()?),
        None => None,
    };
    let route = match &model {
        Some(model) => state.agent.route(model).ok()?,
        None => state.router.all(),
    };
    if !speaks(&route.quirks) {
        return None;
    }
    let draft = plain_draft(&object, model.as_deref().unwrap_or_default(), head)?;
    let passes = state.agent.passes_through(draft, caller);
    passes.then_some(route)
}

/// Whether one of these ids is of this server, and of this owner.
async fn is_known(state: &AppState, owner: &Owner, ids: &IssuedIds) -> Result<bool, ApiError> {
    let runs = ids.previous.iter().filter_map(|id| RunId::parse(id).ok());
    let containers = ids.containers.iter();
    let runs = runs.chain(containers.filter_map(|id| RunId::of_container(id)));
    if ids.has_items {
        return Ok(true);
    }
    for run in runs {
        if state.runs.look_up_shown(owner, &run).await?.is_some() {
            return Ok(true);
        }
    }
    for id in ids.files.iter().filter_map(|id| FileId::parse(id)) {
        match state.sessions.files.get(owner, &id).await {
            Ok(_) => return Ok(true),
            Err(FileError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match &ids.answered_call {
        Some(call) => Ok(state.agent.waits_for(owner, call).await),
        None => Ok(false),
    }
}
