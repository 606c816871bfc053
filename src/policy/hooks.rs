//! Hooks: policy servers that are asked about the calls, results, model calls and ends of turns.
//!
//! The form is that of [Claude Code's HTTP hooks](https://code.claude.com/docs/en/hooks), with additional members, so
//! that a policy server written for it works unchanged. [`event`] and [`answer`] own the members, their names and their
//! meaning; [`client`] asks the hooks of the settings one after another. The callers decide what follows from an
//! answer: the gate of the tools, and the driver of the loop.

pub mod answer;
pub mod approver;
pub mod client;
pub(crate) mod digest;
pub mod event;
mod failure;
mod record;
mod service;
pub mod settings;
pub mod webhook;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::client::Hooks;
pub use self::record::{FailedHook, HookRecord, HookedTurn};
pub use self::service::HookSetupError;

/// The point of a turn at which a hook is asked; `on` in the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookPoint {
    /// Before a tool call runs, ahead of the permission rules.
    BeforeTool,
    /// After a tool call has run, before the model sees its result.
    AfterTool,
    /// Before a model call.
    BeforeModel,
    /// Before the answer of the turn is final.
    BeforeFinish,
}

/// What a failed hook means; `on_failure` in the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The answer counts as no decision.
    #[default]
    Continue,
    /// The hook counts as a refusal.
    Block,
}

/// Counts the requests to hooks, for the operator.
pub trait HookMeter: std::fmt::Debug + Send + Sync {
    /// A hook was asked about an event and has answered or failed after this time. `failure` is its
    /// class, such as `timeout`.
    fn hook_asked(&self, event: &'static str, duration: Duration, failure: Option<&'static str>);
}

impl HookPoint {
    /// The event that is sent at this point; the value of `hook_event_name`.
    pub(crate) fn event_name(self) -> &'static str {
        match self {
            Self::BeforeTool => event::PRE_TOOL_USE,
            Self::AfterTool => event::POST_TOOL_USE,
            Self::BeforeModel => event::PRE_MODEL_CALL,
            Self::BeforeFinish => event::STOP,
        }
    }

    /// Whether it is about a tool call.
    pub fn is_of_tools(self) -> bool {
        match self {
            Self::BeforeTool | Self::AfterTool => true,
            Self::BeforeModel | Self::BeforeFinish => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_snake_case() {
        let points: Vec<HookPoint> = serde_json::from_str(
            r#"["before_tool", "after_tool", "before_model", "before_finish"]"#,
        )
        .unwrap();
        let names: Vec<&str> = points.iter().map(|point| point.event_name()).collect();
        assert_eq!(names, ["PreToolUse", "PostToolUse", "PreModelCall", "Stop"]);
        let failures: Vec<OnFailure> = serde_json::from_str(r#"["continue", "block"]"#).unwrap();
        assert_eq!(failures, [OnFailure::Continue, OnFailure::Block]);
        assert_eq!(OnFailure::default(), OnFailure::Continue);
        serde_json::from_str::<HookPoint>(r#""PreToolUse""#).unwrap_err();
        serde_json::from_str::<OnFailure>(r#""deny""#).unwrap_err();
    }
}
