//! What is deleted by time while a server runs.

use std::time::Duration;

use agent::metrics::Metrics;
use agent::runs::Runs;
use agent::runs::settings::Settings as RunSettings;
use agent::session::Sessions;
use agent::session::settings::Settings as SessionSettings;

/// How often idle sessions and files, and old records of runs are looked for.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(600);
/// How often turns are looked for that wait for a client which does not come back.
const WAITING_INTERVAL: Duration = Duration::from_secs(30);

/// Drops expired unstored turns with their interpreters, and logs of ended runs.
/// Counts the approvals that wait.
pub(super) async fn expire_waiting(sessions: Sessions, runs: Runs, metrics: Metrics) {
    let mut interval = tokio::time::interval(WAITING_INTERVAL);
    loop {
        interval.tick().await;
        sessions.store.expire_waiting();
        runs.expire();
        match sessions.store.count_waiting_approvals().await {
            Ok(waiting) => metrics.approvals_waiting(waiting),
            Err(error) => tracing::warn!(%error, "the waiting approvals cannot be counted"),
        }
    }
}

/// How long sessions and answers are stored; `None` is for ever.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lifetimes {
    session: Option<Duration>,
    nameless_session: Option<Duration>,
    answer: Duration,
}

impl Lifetimes {
    pub(super) fn new(sessions: &SessionSettings, runs: &RunSettings) -> Self {
        Self {
            session: sessions.ttl,
            nameless_session: sessions.nameless_ttl,
            answer: runs.answer_ttl,
        }
    }
}

/// Deletes idle sessions and files, old records of runs, and the contents of deleted files on the disk, for ever.
pub(super) async fn expire(sessions: Sessions, lifetimes: Lifetimes) {
    let Lifetimes {
        session: ttl,
        nameless_session: nameless_ttl,
        answer: answer_ttl,
    } = lifetimes;
    let ttls = [ttl, nameless_ttl, Some(answer_ttl)].into_iter().flatten();
    let interval = ttls.fold(EXPIRY_INTERVAL, Duration::min);
    let mut interval = tokio::time::interval(interval);
    let files = &sessions.files;
    loop {
        interval.tick().await;
        report("idle sessions", sessions.expire(ttl, nameless_ttl).await);
        if let Some(ttl) = ttl {
            report("unused files", files.expire(ttl).await);
        }
        report(
            "records of runs",
            sessions.store.expire_runs(answer_ttl).await,
        );
        report("contents of deleted files", files.reap().await);
        report("leftovers of files", files.sweep().await);
    }
}

/// Logs how many were deleted.
fn report(what: &str, deleted: Result<u64, impl std::fmt::Display>) {
    match deleted {
        Ok(0) => {}
        Ok(deleted) => tracing::info!(deleted, "{what} deleted"),
        Err(error) => tracing::error!(%error, "{what} could not be deleted"),
    }
}
