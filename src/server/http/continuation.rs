//! Runs that go on by themselves once all is decided that their turns wait for, or end before. The request with which one does
//! is stored with its turn: without messages, as the session has them, and without credentials.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::Request;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::chat::STAINLESS;
use super::error::ApiError;
use super::turn::{RunOrigin, SESSION_ID, TurnHead, TurnStart};
use super::{AppState, chat, responses};
use crate::dialects::chat::decode::PROGRESS_HEADER;
use agent::runs::{CancelMode, RunAnswer, RunRecordState, WaitingRun};
use agent::session::StoreError;
use agent::traces::TRACEPARENT;
use agent::turn::stored_request;
use protocol::ids::{Owner, RequestId, RunId};
use protocol::openai::raw::RawObject;

/// The path of responses. All other requests that are stored are of chat completions.
const RESPONSES: &str = "/v1/responses";
/// Pause between two looks for runs that can go on: those of which another process has been told, or whose time is up.
/// Tried by `alone::another_replica_goes_on_with_the_run`.
const LOOK_PAUSE: Duration = Duration::from_secs(2);
/// Most runs of one look. The next one finds the others.
const RUNS_OF_LOOK: usize = 100;
/// Members that the session has, or that name it.
const LEFT_OUT: [&str; 5] = [
    "messages",
    "input",
    "session_id",
    "previous_response_id",
    "conversation",
];

/// The header of a stored request that names the span of the request which began the run.
pub(super) const FIRST_SPAN: HeaderName = HeaderName::from_static("x-loopwright-first-span");

/// A request as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct StoredRequest {
    path: String,
    headers: Vec<(String, String)>,
    body: Box<RawValue>,
}

/// The request with which a run goes on by itself: the one that started it, without its messages. None for one that declares
/// MCP servers, whose credentials are not stored, and for one that has a member twice.
pub(super) fn of_request(path: &str, headers: &HeaderMap, body: &[u8]) -> Option<Arc<str>> {
    let object = RawObject::parse(std::str::from_utf8(body).ok()?).ok()?;
    let declares_servers = object.get_some("tools").is_some_and(declares_servers);
    if declares_servers || repeats_a_member(&object) {
        return None;
    }
    let messages = match path {
        RESPONSES => "input",
        _ => "messages",
    };
    let members = object.members_without(&LEFT_OUT);
    let body = format!("{{{members},\"{messages}\":[]}}");
    let host = HOST;
    let kept = [
        USER_AGENT,
        STAINLESS,
        HeaderName::from_static(PROGRESS_HEADER),
        HeaderName::from_static("x-forwarded-proto"),
        host,
    ];
    let (parent, first) = (TRACEPARENT, FIRST_SPAN);
    let kept = kept.iter().map(|name| (name, name));
    let kept = kept.chain([(&parent, &first)]);
    let kept = kept.filter_map(|(name, stored)| {
        let value = headers.get(name)?.to_str().ok()?;
        Some((stored.as_str().to_owned(), value.to_owned()))
    });
    let stored = StoredRequest {
        path: path.to_owned(),
        headers: kept.collect(),
        body: RawValue::from_string(body).ok()?,
    };
    serde_json::to_string(&stored).ok().map(Into::into)
}

/// Whether one of these tools is, or may be, an MCP server.
fn declares_servers(tools: &RawValue) -> bool {
    let Ok(tools) = serde_json::from_str::<Vec<RawObject<'_>>>(tools.get()) else {
        return true;
    };
    let kinds = tools.iter().flat_map(RawObject::iter);
    let mut kinds = kinds.filter(|(key, _)| *key == "type");
    kinds.any(
        |(_, kind)| !matches!(serde_json::from_str::<&str>(kind.get()), Ok(kind) if kind != "mcp"),
    )
}

/// Whether a member stands there twice.
fn repeats_a_member(object: &RawObject<'_>) -> bool {
    let mut seen = HashSet::new();
    object.iter().any(|(key, _)| !seen.insert(key))
}

/// Lets the runs go on for which all is decided, until the future is dropped.
pub async fn watch(state: AppState) {
    loop {
        let told = state.agent.gate().decisions().notified();
        match state.sessions.store.decided_runs(RUNS_OF_LOOK).await {
            Ok(decided) => {
                for (owner, run) in decided {
                    if let Err(error) = go_on(&state, &owner, &run, RunOrigin::ByItself).await {
                        tracing::error!(status = %error.status(), "a run that waited cannot go on");
                    }
                }
            }
            Err(error) => tracing::error!(%error, "runs that can go on cannot be looked for"),
        }
        let _told_or_not = tokio::time::timeout(LOOK_PAUSE, told).await;
    }
}

/// Cancels a run that runs here, or waits for decisions; says whether it did. One that waits has ended then.
///
/// # Errors
/// When another turn of the session runs, which may go on with the calls that wait, or the end cannot be stored.
pub(super) async fn cancel(
    state: &AppState,
    owner: &Owner,
    run: &RunId,
    mode: CancelMode,
) -> Result<bool, ApiError> {
    if state.runs.cancel(owner, run, mode) {
        return Ok(true);
    }
    // It may have just ended, to wait.
    state.runs.settled(owner, run).await;
    let Some(found) = state.runs.look_up(owner, run).await? else {
        return Ok(false);
    };
    if found.state != RunRecordState::Waiting {
        return Ok(state.runs.cancel(owner, run, mode));
    }
    if state.draining.is_cancelled() {
        return Err(ApiError::shutting_down());
    }
    let of_session = |session| state.runs.of_session(owner, &session);
    if found.session_id.and_then(of_session).is_some() {
        return Err(StoreError::Busy.into());
    }
    let waited = match go_on(state, owner, run, RunOrigin::Cancelled).await {
        // It has gone on by itself in between.
        Err(_) if state.runs.cancel(owner, run, mode) => return Ok(true),
        waited => waited?,
    };
    if !waited {
        return Ok(false);
    }
    let _ended_before = state.runs.wait_for(owner, run).await;
    state.runs.settled(owner, run).await;
    // Its answer may have left the memory.
    match state.runs.look_up(owner, run).await? {
        Some(found) if found.state == RunRecordState::Waiting => Err(StoreError::Busy.into()),
        Some(_) | None => Ok(true),
    }
}

/// Starts a run again that waited; says whether it did. An error that another attempt would have as well becomes its answer.
async fn go_on(
    state: &AppState,
    owner: &Owner,
    run: &RunId,
    origin: RunOrigin,
) -> Result<bool, ApiError> {
    let Some(waiting) = state.runs.take_waiting(owner, run).await? else {
        return Ok(false);
    };
    let head = TurnHead {
        owner: owner.clone(),
        request_id: RequestId::fresh(),
        start: TurnStart {
            began: Instant::now(),
            run: run.clone(),
            origin,
        },
    };
    let request = request_of(&waiting);
    let started = match request {
        // Its key was removed while the run waited.
        _ if !state.access.get().knows(owner) => {
            tracing::warn!(
                owner = owner.name(),
                "the API key of a run that waited was removed; it does not go on"
            );
            Err(ApiError::key_was_removed())
        }
        Some(request) if request.uri().path() == RESPONSES => {
            Box::pin(responses::answer(state, head, request)).await
        }
        Some(request) => Box::pin(chat::answer(state, head, request)).await,
        None => Err(ApiError::internal()),
    };
    let Err(error) = started else {
        return Ok(true);
    };
    let is_passing = [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::SERVICE_UNAVAILABLE,
    ];
    if is_passing.contains(&error.status()) {
        // The next look finds the run again.
        return Err(error);
    }
    let parts = error.into_parts();
    let answer = RunAnswer {
        status: parts.status,
        headers: parts.headers,
        body: parts.body.into(),
        ..RunAnswer::default()
    };
    let store = &state.sessions.store;
    store.end_run(run, owner, answer).await?;
    Ok(true)
}

/// The request of a run that waits, in the session of its turn.
fn request_of(waiting: &WaitingRun) -> Option<Request> {
    let stored: StoredRequest = serde_json::from_str(&stored_request(&waiting.turn)?).ok()?;
    let mut request = Request::new(Body::from(Box::<str>::from(stored.body).into_string()));
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = stored.path.parse().ok()?;
    let headers = request.headers_mut();
    for (name, value) in &stored.headers {
        let (name, value) = (HeaderName::try_from(name), HeaderValue::try_from(value));
        headers.insert(name.ok()?, value.ok()?);
    }
    let session = HeaderValue::try_from(waiting.session.as_str()).ok()?;
    headers.insert(SESSION_ID, session);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(body: &str) -> Option<String> {
        let stored = of_request(RESPONSES, &HeaderMap::new(), body.as_bytes());
        stored.map(|stored| stored.to_string())
    }

    #[test]
    fn requests_that_may_declare_mcp_servers_are_not_stored() {
        let functions = r#"[{"type":"function","name":"t"}]"#;
        let plain = format!(r#"{{"input":"a","tools":{functions},"previous_response_id":"r"}}"#);
        let kept = stored(&plain).unwrap();
        assert!(
            kept.contains(functions) && kept.contains(r#""input":[]"#),
            "{kept}"
        );
        assert!(!kept.contains("previous_response_id"));
        for tools in [
            r#"[{"type":"mcp","authorization":"s"}]"#,
            r#"[{"type":"mcp","type":"mcp","authorization":"s"}]"#,
            r#"[{"type":"function","type":"mcp","authorization":"s"}]"#,
            r#"[{"type":"mcp","type":"function","authorization":"s"}]"#,
            r#"[{"type":"m\u0063p","authorization":"s"}]"#,
            "[7]",
            "{}",
        ] {
            let body = format!(r#"{{"input":"a","tools":{tools}}}"#);
            assert_eq!(stored(&body), None, "{tools}");
        }
        let twice = r#"{"input":"a","tools":[{"type":"mcp","authorization":"s"}],"tools":[]}"#;
        assert_eq!(stored(twice), None);
    }
}
