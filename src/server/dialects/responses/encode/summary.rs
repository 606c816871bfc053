//! How a response ends, and the members that follow from it.

use serde_json::{Value, json};

use crate::dialects::chat::encode::{AgentSummary, FileEntry};
use agent::event::{Outcome, ProducedFile};
use agent::options::OnLimit;
use agent::stop::StopReason;
use agent::unix_seconds;
use protocol::openai::usage::{FinishReason, Usage};

/// How a response ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ResponseEnding {
    pub(super) status: &'static str,
    /// Why it is incomplete.
    reason: Option<&'static str>,
}

impl ResponseEnding {
    pub(super) fn of(outcome: &Outcome, on_limit: OnLimit) -> Self {
        let incomplete = |reason| Self {
            status: "incomplete",
            reason: Some(reason),
        };
        let reason = outcome.stop_reason;
        match (reason, &outcome.finish_reason) {
            (StopReason::Cancelled, _) => Self {
                status: "cancelled",
                reason: None,
            },
            (StopReason::ContentFilter, _) | (_, FinishReason::ContentFilter) => {
                incomplete("content_filter")
            }
            (StopReason::Length, _) | (_, FinishReason::Length) => incomplete("max_output_tokens"),
            _ if reason.limit().is_some() && on_limit == OnLimit::Stop => {
                incomplete(reason.as_str())
            }
            _ => Self {
                status: "completed",
                reason: None,
            },
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.status == "completed"
    }

    /// The last event.
    pub(super) fn event(&self) -> &'static str {
        match self.is_complete() {
            true => "response.completed",
            false => "response.incomplete",
        }
    }
}

/// The members of a response that has ended, after a comma.
pub(super) fn members_of(
    ending: &ResponseEnding,
    outcome: &Outcome,
    files: &[ProducedFile],
) -> String {
    let completed = match ending.is_complete() {
        true => unix_seconds().to_string(),
        false => "null".to_owned(),
    };
    let details = ending.reason.map(|reason| json!({"reason": reason}));
    let usage = outcome.usage.as_ref().map(usage);
    let agent = serde_json::to_string(&AgentSummary::from(outcome));
    let agent = agent.unwrap_or_else(|_| "null".to_owned());
    let mut members = format!(
        ",\"completed_at\":{completed},\"incomplete_details\":{},\"error\":null,\"usage\":{},\"agent\":{agent}",
        json!(details),
        json!(usage),
    );
    if !files.is_empty() {
        let files: Vec<FileEntry<'_>> = files.iter().map(FileEntry::from).collect();
        let files = serde_json::to_string(&files).unwrap_or_else(|_| "[]".to_owned());
        members.push_str(",\"files\":");
        members.push_str(&files);
    }
    members
}

/// The members of a response that failed, after a comma. `error` holds the members of its error.
pub(super) fn failed_members(error: &str) -> String {
    format!(
        ",\"completed_at\":null,\"incomplete_details\":null,\"error\":{{{error}}},\"usage\":null"
    )
}

fn usage(usage: &Usage) -> Value {
    let chat = usage.to_value();
    let number = |path: &str| chat.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    json!({
        "input_tokens": usage.prompt_tokens(),
        "input_tokens_details": {
            "cached_tokens": number("/prompt_tokens_details/cached_tokens"),
            "cache_write_tokens": number("/prompt_tokens_details/cache_write_tokens"),
        },
        "output_tokens": usage.completion_tokens(),
        "output_tokens_details": {
            "reasoning_tokens": number("/completion_tokens_details/reasoning_tokens"),
        },
        "total_tokens": usage.total_tokens(),
    })
}
