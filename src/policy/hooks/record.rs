//! The facts about a turn that hooks get, and the record of what they have done in it.

use std::sync::Arc;

use ::http::HeaderMap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::failure::HookFailure;
use protocol::ids::{Owner, RequestId, RunId, SessionId};

/// The facts about a turn that hooks get.
#[derive(Debug, Clone, Copy)]
pub struct HookedTurn<'a> {
    /// The conversation, if it is stored.
    pub session_id: Option<&'a SessionId>,
    /// The owner of the request.
    pub owner: &'a Owner,
    /// The client's request.
    pub request_id: &'a RequestId,
    /// The run.
    pub run_id: &'a RunId,
    /// The round, from 0.
    pub round: u32,
    /// The model.
    pub model: &'a str,
    /// When no answer is awaited any more: one that comes later is too late.
    pub deadline: Option<Instant>,
    /// `traceparent` and `tracestate` of the span that asks.
    pub trace: &'a HeaderMap,
    /// The record of what the hooks have done.
    pub record: &'a HookRecord,
}

/// What the hooks of a turn have done; clones are of the same turn.
#[derive(Debug, Clone, Default)]
pub struct HookRecord(Arc<Mutex<Recorded>>);

#[derive(Debug, Default)]
struct Recorded {
    failures: Vec<FailedHook>,
    /// The text with which a hook ends the turn.
    end: Option<String>,
    has_ended: bool,
}

/// A hook that failed without an effect.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FailedHook {
    name: Arc<str>,
    times: u32,
    last: String,
}

impl HookRecord {
    /// The record of a turn in which these hooks have failed.
    pub fn with(failures: Vec<FailedHook>) -> Self {
        let record = Self::default();
        record.0.lock().failures = failures;
        record
    }

    /// The hooks that have failed and were not reported to the client yet.
    pub fn failures(&self) -> Vec<FailedHook> {
        self.0.lock().failures.clone()
    }

    /// A hook failed, and counts as having said nothing.
    pub(super) fn passed_over(&self, name: &Arc<str>, failure: &HookFailure) {
        let last = failure.to_string();
        let failures = &mut self.0.lock().failures;
        match failures.iter_mut().find(|known| known.name == *name) {
            Some(known) => {
                known.times = known.times.saturating_add(1);
                known.last = last;
            }
            None => failures.push(FailedHook {
                name: name.clone(),
                times: 1,
                last,
            }),
        }
    }

    /// A hook ends the turn with a text. The first one counts.
    pub(super) fn end_turn(&self, text: String) {
        let mut recorded = self.0.lock();
        recorded.end.get_or_insert(text);
        recorded.has_ended = true;
    }

    /// Whether a hook ends the turn: no call starts any more.
    pub fn has_ended(&self) -> bool {
        self.0.lock().has_ended
    }

    /// The text with which a hook ends the turn. It is returned once.
    pub fn take_end(&self) -> Option<String> {
        self.0.lock().end.take()
    }

    /// A sentence for the client about each hook that failed and was passed over. Each is returned once.
    pub fn take_failures(&self) -> Vec<String> {
        let failures = std::mem::take(&mut self.0.lock().failures);
        let sentence = |FailedHook { name, times, last }| {
            let times = match times {
                1 => "once".to_owned(),
                times => format!("{times} times"),
            };
            format!("{name} failed {times} and counts as having said nothing: {last}")
        };
        failures.into_iter().map(sentence).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hook_that_failed_has_one_sentence_with_a_count() {
        let record = HookRecord::default();
        let names: [Arc<str>; 2] = ["hooks[0]".into(), "hooks[1]".into()];
        for (name, status) in [(0, 500), (1, 404), (0, 503)] {
            record.passed_over(&names[name], &HookFailure::Status(status));
        }
        let said = record.clone().take_failures();
        assert_eq!(
            said,
            [
                "hooks[0] failed 2 times and counts as having said nothing: it answered with status 503",
                "hooks[1] failed once and counts as having said nothing: it answered with status 404",
            ]
        );
        assert!(record.take_failures().is_empty());
    }

    #[test]
    fn the_first_text_ends_the_turn() {
        let record = HookRecord::default();
        record.end_turn("one".to_owned());
        record.end_turn("two".to_owned());
        assert_eq!(record.take_end().as_deref(), Some("one"));
        assert_eq!(record.take_end(), None);
    }
}
