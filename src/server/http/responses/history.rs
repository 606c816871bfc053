//! Finds what a request refers to: the response before it, its conversation, and items.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::json;
use serde_json::value::RawValue;

use super::super::AppState;
use super::super::body::HeldBody;
use super::super::error::{ApiError, codes};
use super::super::reads;
use super::items::{SessionItems, response_of};
use crate::dialects::responses::decode::{KnownHistory, NamedContainer, References};
use crate::dialects::responses::encode::{ItemText, output_items};
use net::polling::taking_apart;
use protocol::ids::{ApprovalId, Owner, RunId, SessionId};
use protocol::openai::raw::RawObject;

/// What is known of what a body refers to.
///
/// # Errors
/// When a reference leads to nothing of this owner.
pub(super) async fn known_history(
    state: &AppState,
    owner: &Owner,
    body: &mut HeldBody,
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
        let session = state.runs.session_of(owner, &run).await?;
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
        known.session = match state.runs.session_of(owner, run).await? {
            Some(id) if state.sessions.store.head(owner, &id).await?.is_some() => Some(id),
            Some(_) | None => None,
        };
    }
    if known.session.is_none()
        && let Some(id) = &references.approval
    {
        let store = &state.sessions.store;
        let found = store.find_approval(Some(owner), id).await?;
        known.session = found.map(|found| found.session);
        known.appends = known.session.is_some() && !references.has_questions;
    }
    let named = known.session.as_ref();
    known.items = items(state, owner, &references.items, named, body).await?;
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
    let Some(read) = reads::shown_answer(state, owner, run).await? else {
        return Ok(None);
    };
    let response = response_of(run, &read.answer).await;
    Ok(response.and_then(|response| model(&response)))
}

/// The session of a conversation.
async fn session(state: &AppState, owner: &Owner, id: &str) -> Result<SessionId, ApiError> {
    let missing = || {
        let problem = "names no conversation; make one first";
        codes::CONVERSATION_NOT_FOUND.of_field("conversation", problem)
    };
    let session = SessionId::parse(id).map_err(|_| missing())?;
    match state.sessions.store.head(owner, &session).await? {
        Some(_) => Ok(session),
        None => Err(missing()),
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
        session = state.runs.session_of(owner, &run).await?;
    }
    if let Some(id) = &session
        && state.sessions.store.head(owner, id).await?.is_none()
    {
        session = None;
    }
    let problem = "names no container; send {\"type\": \"auto\"} for a new one";
    session.ok_or_else(|| codes::CONTAINER_NOT_FOUND.of_field(&named.param, problem))
}

/// The items that a request refers to by their ids.
struct ReferredItems<'a> {
    /// How often each of them is named that was not found yet.
    missing: HashMap<&'a str, usize>,
    found: HashMap<String, Box<RawValue>>,
    bytes: usize,
    /// Most bytes.
    most: usize,
}

impl ReferredItems<'_> {
    /// Takes an item if it is one of them.
    fn take(&mut self, item: ItemText) -> Result<(), ApiError> {
        if let Some(times) = self.missing.remove(&*item.id) {
            // Each mention becomes a message.
            let bytes = item.json().get().len().saturating_mul(times);
            self.bytes = self.bytes.saturating_add(bytes);
            if self.bytes > self.most {
                let message = format!(
                    "the items that 'input' refers to are larger than the {} bytes that the body leaves for them; refer \
                     to fewer, or go on from their response with 'previous_response_id'",
                    self.most
                );
                return Err(codes::REQUEST_TOO_LARGE.with(message).about("input"));
            }
            self.found.insert(item.id.clone(), item.into_json());
        }
        Ok(())
    }
}

/// The items with these ids that are stored: of responses, of what they were an answer to, and of the session that the
/// request names. They count as a part of the body.
async fn items(
    state: &AppState,
    owner: &Owner,
    ids: &[String],
    named: Option<&SessionId>,
    body: &mut HeldBody,
) -> Result<HashMap<String, Box<RawValue>>, ApiError> {
    let mut missing: HashMap<&str, usize> = HashMap::new();
    for id in ids {
        *missing.entry(id).or_default() += 1;
    }
    let mut referred = ReferredItems {
        missing,
        found: HashMap::new(),
        bytes: 0,
        most: state.settings.max_body_bytes.saturating_sub(body.len()),
    };
    for item in questions(state, owner, ids).await? {
        referred.take(item)?;
    }
    let runs: BTreeSet<RunId> = ids.iter().filter_map(|id| RunId::of_item(id)).collect();
    // One after another, so that no more than one of them is in memory.
    for run in runs {
        if let Some(read) = reads::shown_answer(state, owner, &run).await?
            && let Some(response) = response_of(&run, &read.answer).await
        {
            let items = taking_apart(response.len(), || output_items(&response));
            for item in items.unwrap_or_default() {
                referred.take(item)?;
            }
            drop((read, response));
            body.refer_to(referred.bytes).await?;
        }
    }
    let of_items = referred.missing.keys().filter_map(|id| RunId::of_item(id));
    let mut by_session: BTreeMap<SessionId, BTreeSet<RunId>> = BTreeMap::new();
    for run in of_items.collect::<BTreeSet<_>>() {
        if let Some(id) = state.runs.session_of(owner, &run).await? {
            by_session.entry(id).or_default().insert(run);
        }
    }
    let of_runs = by_session.iter().map(|(id, runs)| (id, Some(runs)));
    for (id, runs) in of_runs.chain(named.map(|id| (id, None))) {
        if referred.missing.is_empty() {
            break;
        }
        let Some(read) = reads::session(state, owner, id, reads::ITEMS_FACTOR).await? else {
            continue;
        };
        let (stored, mut memory) = read.into_parts();
        let items = SessionItems {
            state,
            owner,
            id,
            session: &stored,
        };
        let take = |item| referred.take(item);
        items.visit(runs, &mut memory, take).await?;
        drop((stored, memory));
        body.refer_to(referred.bytes).await?;
    }
    Ok(referred.found)
}

/// The questions about calls among the items with these ids. Of a question only its id counts.
async fn questions(
    state: &AppState,
    owner: &Owner,
    ids: &[String],
) -> Result<Vec<ItemText>, ApiError> {
    let mut questions = Vec::new();
    for id in ids.iter().filter_map(|id| ApprovalId::of_item(id)) {
        let store = &state.sessions.store;
        if store.find_approval(Some(owner), &id).await?.is_some() {
            let item = json!({"type": "mcp_approval_request", "id": id.item_id()});
            let item = RawValue::from_string(item.to_string()).ok();
            questions.extend(item.and_then(ItemText::new));
        }
    }
    Ok(questions)
}
