//! Settings that a change of behaviour concerns, for the log. The manual page *Changes that you may notice* lists every
//! change; this module finds those that matter with the settings at hand.

use std::time::Duration;

use super::file::File;
use super::validation::Validation;
use crate::http::settings::PARSE_FACTOR;
use sandbox::settings::Network;

/// One line for each setting that means something else than before, or beside which a new limit matters.
pub(super) fn notes(file: &File, checks: &Validation<'_>) -> Vec<String> {
    let rules = [
        (session_headers(file), "session_headers"),
        (session_ttl(checks), "session_ttl"),
        (large_bodies(file), "max_body_bytes"),
        (large_answers(file), "max_turn_bytes"),
        (body_timeout(file), "body_timeout"),
        (forward(file, checks), "forward"),
        (readiness(file), "api_keys"),
        (upstreams(file), "upstreams"),
        (repeat_threshold(file), "repeat_threshold"),
        (network(file), "sandbox.network"),
    ];
    let notes = rules.into_iter();
    let notes = notes.filter_map(|(note, key)| Some((note?, checks.origins.of(key))));
    notes.map(|(note, key)| format!("{key} {note}")).collect()
}

fn session_headers(file: &File) -> Option<String> {
    let note = "names headers of chats, not of sessions; x-session-id carries a session id";
    (!file.session_headers.is_empty()).then(|| note.to_owned())
}

fn session_ttl(checks: &Validation<'_>) -> Option<String> {
    let given = |key| checks.origins.is_given(key);
    let note = "does not concern sessions without an id of the client's; `nameless_session_ttl` does, and is 24 hours by \
                default";
    (given("session_ttl") && !given("nameless_session_ttl")).then(|| note.to_owned())
}

fn large_bodies(file: &File) -> Option<String> {
    let body = u64::from(file.max_body_bytes);
    let (session, parsed) = (
        u64::from(file.session_max_bytes),
        u64::from(file.max_parsed_bytes),
    );
    if body > session {
        let note =
            format!("is more than a session may hold (`session_max_bytes`, {session} bytes)");
        return Some(note);
    }
    (body.saturating_mul(PARSE_FACTOR) > parsed).then(|| {
        format!(
            "allows a body that takes all memory for bodies (`max_parsed_bytes`, {parsed} bytes, of which a body takes \
             {PARSE_FACTOR} times its length); others wait meanwhile"
        )
    })
}

fn large_answers(file: &File) -> Option<String> {
    let tools = file.tools.iter().filter_map(|tool| tool.max_answer_bytes);
    let own = tools.map(u64::from).max().unwrap_or(0);
    let most = own.max(file.dispatch_max_answer_bytes.into());
    (most > u64::from(file.max_turn_bytes)).then(|| {
        format!("is less than the answer of a tool may be ({most} bytes); images and files beyond it come as ids only")
    })
}

fn body_timeout(file: &File) -> Option<String> {
    let note = "bounds a whole body too: all of it may take this time and a second for each 64 KiB";
    let default = Duration::from(File::default().body_timeout);
    (Duration::from(file.body_timeout) != default).then(|| note.to_owned())
}

fn forward(file: &File, checks: &Validation<'_>) -> Option<String> {
    let mut keys = file.api_keys.iter();
    let by_default = !checks.origins.is_given("forward") && keys.any(|key| key.forward.is_none());
    let note = "lists the only paths below /v1/ that holders of API keys are forwarded; [\"**\"] forwards all";
    by_default.then(|| note.to_owned())
}

fn readiness(file: &File) -> Option<String> {
    let note = "keeps the details of /readyz to requests with a key; its status is for anybody";
    (!file.api_keys.is_empty()).then(|| note.to_owned())
}

fn upstreams(file: &File) -> Option<String> {
    let note = "are several: embeddings and other forwarded requests go to the one that has their `model`, no longer to the \
                first";
    (file.upstreams.len() > 1).then(|| note.to_owned())
}

fn repeat_threshold(file: &File) -> Option<String> {
    let note =
        "counts identical calls only where their results were the same, among the last 8 calls";
    let default = u64::from(File::default().repeat_threshold);
    let threshold = u64::from(file.repeat_threshold);
    (threshold != default && threshold > 0).then(|| note.to_owned())
}

fn network(file: &File) -> Option<String> {
    let sandbox = file.sandbox.as_ref()?;
    let full = sandbox.network == Network::Full;
    let note = "lets code connect, but not listen";
    (full && sandbox.command.0.is_empty()).then(|| note.to_owned())
}
