//! Requests that are sent again after their turn has failed: they continue the session of that turn, so that no tool
//! runs twice.
//!
//! Clients repeat a request on their own and name no session. An id that they send anyway confirms that it is the same request;
//! it never names a session, as several conversations may share it.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use memchr::memmem;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::super::AppState;
use super::super::error::ApiError;
use super::super::reads;
use super::items::response_of;
use agent::runs::RunRecordState;
use protocol::ids::{Owner, RunId, SessionId};
use protocol::openai::raw::RawObject;
use quota::heaviest;

/// How long a request may come again. Then it is a new one.
const RETRY_TTL: Duration = Duration::from_secs(600);
/// Most requests that are remembered. Of the owner that has most of them the oldest go first.
/// Tried by `retry::the_oldest_requests_of_whoever_has_most_are_forgotten_first`.
const MAX_REQUESTS: usize = 16 * 1024;
/// Headers that confirm a retry.
const CONFIRMING: [&str; 2] = ["x-claude-code-session-id", "session-id"];
/// The field that does too.
const CONFIRMING_FIELD: &str = "prompt_cache_key";
/// Headers that tell sub-agents apart, which share what confirms a retry.
const AGENTS: [&str; 2] = ["x-claude-code-agent-id", "x-claude-code-parent-agent-id"];

/// Digest of a request.
pub(in super::super) type RequestDigest = [u8; 32];

/// The runs of requests that may come again.
#[derive(Debug, Default)]
pub(in super::super) struct RetriedRequests(Mutex<RememberedRequests>);

/// A request that may come again.
#[derive(Debug)]
struct RememberedRequest {
    /// The run of its last attempt.
    run: RunId,
    /// The run whose rounds the last attempt continued.
    continued: Option<RunId>,
    at: Instant,
}

#[derive(Debug, Default)]
struct RememberedRequests {
    by_digest: HashMap<RequestDigest, RememberedRequest>,
    /// By owner, oldest first. An entry may have been replaced since.
    order: HashMap<Owner, VecDeque<(RequestDigest, Instant)>>,
    /// The entries of all owners.
    count: usize,
}

impl RememberedRequests {
    /// Forgets the oldest request of an owner if it satisfies the condition; says whether it did.
    fn forget_oldest(&mut self, owner: &Owner, condition: impl FnOnce(Instant) -> bool) -> bool {
        let Some(order) = self.order.get_mut(owner) else {
            return false;
        };
        let Some((digest, at)) = order.pop_front_if(|(_, at)| condition(*at)) else {
            return false;
        };
        if order.is_empty() {
            self.order.remove(owner);
        }
        self.count -= 1;
        let known = self.by_digest.get(&digest);
        if known.is_some_and(|known| known.at == at) {
            self.by_digest.remove(&digest);
        }
        true
    }
}

impl RetriedRequests {
    /// Remembers the run of an owner's request, and the run whose rounds it continues.
    pub(super) fn insert(
        &self,
        owner: &Owner,
        digest: RequestDigest,
        run: RunId,
        continued: Option<RunId>,
    ) {
        let now = Instant::now();
        let known = RememberedRequest {
            run,
            continued,
            at: now,
        };
        let mut requests = self.0.lock();
        requests.by_digest.insert(digest, known);
        let order = requests.order.entry(owner.clone()).or_default();
        order.push_back((digest, now));
        requests.count += 1;
        while requests.forget_oldest(owner, |at| now >= at + RETRY_TTL) {}
        while requests.count > MAX_REQUESTS {
            let counts = requests.order.iter();
            let counts = counts.map(|(owner, order)| (owner, order.len() as u64));
            let Some(owner) = heaviest(counts).cloned() else {
                return;
            };
            requests.forget_oldest(&owner, |_| true);
        }
    }

    /// The runs of a request, the last attempt first.
    fn find(&self, digest: &RequestDigest) -> Vec<RunId> {
        let requests = self.0.lock();
        let known = requests.by_digest.get(digest);
        let known = known.filter(|known| Instant::now() < known.at + RETRY_TTL);
        let runs = known.map(|known| [Some(known.run.clone()), known.continued.clone()]);
        runs.into_iter().flatten().flatten().collect()
    }
}

/// The digest of a request; `None` if the request has nothing that confirms a retry. A streamed request has the same
/// digest as one that is not streamed.
pub(super) fn digest(owner: &Owner, headers: &HeaderMap, body: &[u8]) -> Option<RequestDigest> {
    let header = CONFIRMING.iter().find_map(|name| headers.get(*name));
    if header.is_none() && memmem::find(body, CONFIRMING_FIELD.as_bytes()).is_none() {
        return None;
    }
    let object = RawObject::parse(std::str::from_utf8(body).ok()?).ok()?;
    let field = object.get_some(CONFIRMING_FIELD).map(RawValue::get);
    let confirming = match (header, field) {
        (Some(header), _) => header.as_bytes(),
        (None, Some(field)) => field.as_bytes(),
        (None, None) => return None,
    };
    let agent = |name| headers.get(name).map_or(&[][..], HeaderValue::as_bytes);
    let [agent, parent] = AGENTS.map(agent);
    let members = object.members_without(&["stream", "stream_options"]);
    let mut digest = Sha256::new();
    // The lengths distinguish parts whose joined texts are equal.
    let owner = owner.as_str().as_bytes();
    for part in [owner, confirming, agent, parent, members.as_bytes()] {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    Some(digest.finalize().into())
}

/// A failed turn whose completed rounds are in a session.
#[derive(Debug)]
pub(super) struct FailedTurn {
    pub(super) run: RunId,
    pub(super) session: SessionId,
}

/// The failed turn of the same request. An attempt that failed before its first round has left nothing: the turn that it
/// continued is still the one to continue.
///
/// # Errors
/// When the store fails.
pub(super) async fn failed_turn(
    state: &AppState,
    owner: &Owner,
    digest: &RequestDigest,
) -> Result<Option<FailedTurn>, ApiError> {
    for run in state.retried.find(digest) {
        match outcome(state, owner, &run).await? {
            Outcome::Failed(session) => return Ok(Some(FailedTurn { run, session })),
            Outcome::Open => return Ok(None),
            Outcome::Nothing => {}
        }
    }
    Ok(None)
}

/// What an attempt has led to.
enum Outcome {
    /// Its completed rounds are in this session.
    Failed(SessionId),
    /// It left nothing.
    Nothing,
    /// It has an answer, or goes on.
    Open,
}

async fn outcome(state: &AppState, owner: &Owner, run: &RunId) -> Result<Outcome, ApiError> {
    let ended = match state.runs.look_up_shown(owner, run).await? {
        Some(record) => matches!(record.state, RunRecordState::Ended { .. }),
        None => return Ok(Outcome::Nothing),
    };
    let read = match ended {
        true => reads::shown_answer(state, owner, run).await?,
        false => return Ok(Outcome::Open),
    };
    let Some(read) = read else {
        return Ok(Outcome::Nothing);
    };
    // Without a response, the answer is an error.
    let response = response_of(run, &read.answer).await;
    if response.is_some_and(|response| !is_broken_off(&response)) {
        return Ok(Outcome::Open);
    }
    let Some(session) = state.runs.session_of(owner, run).await? else {
        return Ok(Outcome::Nothing);
    };
    let head = state.sessions.store.head(owner, &session).await?;
    Ok(head.map_or(Outcome::Nothing, |_| Outcome::Failed(session)))
}

fn is_broken_off(response: &str) -> bool {
    let object = RawObject::parse(response).ok();
    let status = object.and_then(|object| object.get("status"));
    status.is_some_and(|status| matches!(status.get(), "\"failed\"" | "\"cancelled\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_confirmed_request_is_known_again() {
        let owner = Owner::key("a");
        let plain = HeaderMap::new();
        let of = |headers: &HeaderMap, body: &str| digest(&owner, headers, body.as_bytes());
        assert_eq!(of(&plain, r#"{"input":"a"}"#), None);
        let keyed = of(
            &plain,
            r#"{"input":"a","prompt_cache_key":"k","stream":true}"#,
        );
        assert!(keyed.is_some());
        assert_eq!(of(&plain, r#"{"input":"a","prompt_cache_key":"k"}"#), keyed);
        assert_ne!(of(&plain, r#"{"input":"b","prompt_cache_key":"k"}"#), keyed);
        let mut named = HeaderMap::new();
        named.insert("session-id", HeaderValue::from_static("s"));
        assert!(of(&named, r#"{"input":"a"}"#).is_some());
        assert_ne!(of(&named, r#"{"input":"a","prompt_cache_key":"k"}"#), keyed);
        let of_session = of(&named, r#"{"input":"a"}"#);
        named.insert("x-claude-code-agent-id", HeaderValue::from_static("one"));
        assert_ne!(of(&named, r#"{"input":"a"}"#), of_session);
        let other = digest(
            &Owner::key("b"),
            &plain,
            br#"{"input":"a","prompt_cache_key":"k"}"#,
        );
        assert_ne!(other, keyed);
    }

    #[test]
    fn the_oldest_requests_of_whoever_has_most_are_forgotten_first() {
        let requests = RetriedRequests::default();
        let (alice, bob) = (Owner::key("alice"), Owner::key("bob"));
        let digest = |number: usize| {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&(number as u64).to_le_bytes());
            digest
        };
        requests.insert(&alice, digest(0), RunId::fresh(), None);
        for number in 1..=20_000 {
            requests.insert(&bob, digest(number), RunId::fresh(), None);
        }
        assert!(!requests.find(&digest(0)).is_empty());
        let oldest = 20_000 - (MAX_REQUESTS - 1) + 1;
        assert!(requests.find(&digest(oldest - 1)).is_empty());
        assert!(!requests.find(&digest(oldest)).is_empty());
        // A request that comes again counts from then on.
        requests.insert(&bob, digest(oldest), RunId::fresh(), None);
        requests.insert(&bob, digest(0x1_0000), RunId::fresh(), None);
        assert!(!requests.find(&digest(oldest)).is_empty());
        let count = requests.0.lock().count;
        assert_eq!(count, MAX_REQUESTS);
    }
}
