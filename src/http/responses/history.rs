//! Finds what a request refers to: the response before it, its conversation, and items.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::super::AppState;
use super::super::error::ApiError;
use super::super::reads;
use super::items::{Item, input_of, items_of};
use crate::ids::{Owner, RunId, SessionId};
use crate::openai::raw::RawObject;
use crate::openai::request::RequestError;
use crate::responses::decode::{KnownHistory, NamedContainer, References};
use crate::responses::encode::as_response;
use crate::runs::{FoundRun, RunAnswer};
use crate::session::SessionError;

/// What is known of what a body refers to.
///
/// # Errors
/// When a reference leads to nothing of this owner.
pub(super) async fn known_history(
    state: &AppState,
    owner: &Owner,
    body: &[u8],
) -> Result<KnownHistory, ApiError> {
    let references = References::read(body, state.settings.max_messages)?;
    let mut known = KnownHistory::default();
    if references.is_empty() {
        return Ok(known);
    }
    if let Some(named) = &references.container {
        known.container = Some(container(state, owner, named).await?);
    }
    if let Some(previous) = &references.previous {
        let run = RunId::parse(previous).map_err(|_| ApiError::no_previous_response())?;
        let session = state.runs.session_of(owner, &run).await;
        let session = session.map_err(SessionError::from)?;
        known.session = Some(session.ok_or_else(ApiError::no_previous_response)?);
        if references.lacks_model {
            known.model = model_of(state, owner, &run).await?;
        }
        known.previous = Some(run);
        known.appends = true;
    } else if let Some(conversation) = &references.conversation {
        known.session = Some(session(state, owner, conversation).await?);
        known.appends = true;
    } else if let Some(run) = &references.newest {
        let session = state.runs.session_of(owner, run).await;
        known.session = match session.map_err(SessionError::from)? {
            Some(id) if state.sessions.head(owner, &id).await?.is_some() => Some(id),
            Some(_) | None => None,
        };
    }
    known.items = items(state, owner, &references.items, known.session.as_ref()).await?;
    Ok(known)
}

/// The model that a run was asked for.
async fn model_of(
    state: &AppState,
    owner: &Owner,
    run: &RunId,
) -> Result<Option<String>, ApiError> {
    let model = |response: &str| {
        let object = RawObject::parse(response).ok()?;
        serde_json::from_str(object.get_some("model")?.get()).ok()
    };
    let unfinished = state.runs.status(owner, run);
    if let Some(unfinished) = unfinished.and_then(|status| status.unfinished) {
        return Ok(std::str::from_utf8(&unfinished).ok().and_then(model));
    }
    let found = state.runs.look_up_shown(owner, run).await;
    Ok(match found.map_err(SessionError::from)? {
        Some(FoundRun::Ended(answer)) => {
            let response = response_of(run, &answer).await;
            response.and_then(|response| model(&response))
        }
        _ => None,
    })
}

/// The session of a conversation.
async fn session(state: &AppState, owner: &Owner, id: &str) -> Result<SessionId, ApiError> {
    let missing = || RequestError {
        code: Some("conversation_not_found"),
        missing: true,
        ..RequestError::invalid("conversation", "names no conversation; make one first")
    };
    let session = SessionId::parse(id).map_err(|_| missing())?;
    match state.sessions.head(owner, &session).await? {
        Some(_) => Ok(session),
        None => Err(missing().into()),
    }
}

/// The session of a container.
async fn container(
    state: &AppState,
    owner: &Owner,
    named: &NamedContainer,
) -> Result<SessionId, ApiError> {
    let mut session = None;
    if let Some(run) = RunId::of_container(&named.id) {
        let found = state.runs.session_of(owner, &run).await;
        session = found.map_err(SessionError::from)?;
    }
    if let Some(id) = &session
        && state.sessions.head(owner, id).await?.is_none()
    {
        session = None;
    }
    let problem = "names no container; send {\"type\": \"auto\"} for a new one";
    session.ok_or_else(|| {
        RequestError {
            code: Some("container_not_found"),
            missing: true,
            ..RequestError::invalid(&named.param, problem)
        }
        .into()
    })
}

/// The items with these ids that are stored: of responses, of what they were an answer to, and of the session that the
/// request names.
async fn items(
    state: &AppState,
    owner: &Owner,
    ids: &[String],
    named: Option<&SessionId>,
) -> Result<HashMap<String, Box<RawValue>>, ApiError> {
    let mut runs: Vec<RunId> = ids.iter().filter_map(|id| RunId::of_item(id)).collect();
    runs.sort_unstable();
    runs.dedup();
    let mut found = HashMap::new();
    for run in runs {
        let known = state.runs.look_up_shown(owner, &run).await;
        if let Some(FoundRun::Ended(answer)) = known.map_err(SessionError::from)?
            && let Some(response) = response_of(&run, &answer).await
        {
            collect(&response, &mut found);
        }
    }
    let wanted: HashSet<&String> = ids.iter().collect();
    found.retain(|id, _| wanted.contains(id));
    let missing = wanted.into_iter().filter(|id| !found.contains_key(*id));
    let missing: HashSet<&String> = missing.collect();
    if !missing.is_empty() {
        let of_session = of_sessions(state, owner, &missing, named).await?;
        for item in of_session {
            let id = item.get("id").and_then(Value::as_str).map(str::to_owned);
            if let Some(id) = id.filter(|id| missing.contains(id))
                && let Ok(json) = to_raw_value(&item)
            {
                found.insert(id, json);
            }
        }
    }
    Ok(found)
}

/// The items of the sessions in which these ones may be.
async fn of_sessions(
    state: &AppState,
    owner: &Owner,
    ids: &HashSet<&String>,
    named: Option<&SessionId>,
) -> Result<Vec<Item>, ApiError> {
    let runs: BTreeSet<RunId> = ids.iter().filter_map(|id| RunId::of_item(id)).collect();
    let mut by_session: BTreeMap<SessionId, Vec<RunId>> = BTreeMap::new();
    for run in runs {
        let session = state.runs.session_of(owner, &run).await;
        if let Some(id) = session.map_err(SessionError::from)? {
            by_session.entry(id).or_default().push(run);
        }
    }
    let mut items = Vec::new();
    for (id, runs) in by_session {
        if let Some(read) = reads::session(state, owner, &id, reads::ITEMS_FACTOR).await? {
            items.extend(runs.iter().flat_map(|run| input_of(&read.stored, run)));
        }
    }
    if let Some(id) = named
        && let Some(read) = reads::session(state, owner, id, reads::ITEMS_FACTOR).await?
    {
        items.extend(items_of(state, owner, id, &read.stored).await?);
    }
    Ok(items)
}

/// The response that a run has ended with; `None` after an error.
pub(super) async fn response_of(run: &RunId, answer: &RunAnswer) -> Option<String> {
    if !answer.status.is_success() {
        return None;
    }
    let body = answer
        .body
        .clone()
        .without_lost()
        .await
        .whole()
        .await
        .ok()?;
    as_response(run, std::str::from_utf8(&body).ok()?)
}

fn collect(response: &str, found: &mut HashMap<String, Box<RawValue>>) {
    let Ok(object) = RawObject::parse(response) else {
        return;
    };
    let items = object.get("output").map(RawValue::get);
    let items: Vec<&RawValue> = items
        .and_then(|items| serde_json::from_str(items).ok())
        .unwrap_or_default();
    for item in items {
        let id = RawObject::parse(item.get()).ok();
        let id = id.and_then(|item| serde_json::from_str(item.get("id")?.get()).ok());
        if let Some(id) = id {
            found.insert(id, item.to_owned());
        }
    }
}
