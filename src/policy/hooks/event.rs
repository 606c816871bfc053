//! What is sent to a hook.
//!
//! The names of the members are Claude Code's where it has them. Its `cwd`, `transcript_path`, `permission_mode` and
//! `prompt_id` are not sent: loopwright has nothing like them, and no example of its documentation reads them. An
//! absent value is left out.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The event before a tool call.
pub(crate) const PRE_TOOL_USE: &str = "PreToolUse";
/// The event of a call that needs a permission.
pub(crate) const PERMISSION_REQUEST: &str = "PermissionRequest";
/// The event after a tool call.
pub(crate) const POST_TOOL_USE: &str = "PostToolUse";
/// The event before a model call. Claude Code has none.
pub(crate) const PRE_MODEL_CALL: &str = "PreModelCall";
/// The event before the end of a turn.
pub(crate) const STOP: &str = "Stop";

/// The body of a request to a hook.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct HookCall<'a> {
    /// The session, which is the caller's own word. Two API keys may use the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session_id: Option<&'a str>,
    /// What has happened, with `hook_event_name`.
    #[serde(flatten)]
    pub(crate) event: HookEvent<'a>,
    /// The name of the caller's API key: the only field to authorise by, because it is not the caller's own word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<&'a str>,
    /// Names the session uniquely among the sessions of all API keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session_key: Option<&'a str>,
    /// The id of the client's request.
    pub(crate) request_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run_id: Option<&'a str>,
    /// The round, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) round: Option<u32>,
    /// The model of the turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<&'a str>,
}

/// What a hook is asked about. The name of the variant is the value of `hook_event_name`.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(tag = "hook_event_name")]
pub(crate) enum HookEvent<'a> {
    /// A tool call is about to run.
    PreToolUse(HookedCall<'a>),
    /// A tool call needs a permission; for the approver.
    PermissionRequest(HookedCall<'a>),
    /// A tool call has run.
    PostToolUse(HookedResult<'a>),
    /// The model is about to be called.
    PreModelCall {
        /// The messages of the call, each as its JSON text.
        messages: &'a [&'a RawValue],
    },
    /// The turn is about to end.
    Stop {
        /// The text of the answer.
        last_assistant_message: &'a str,
        /// Whether the turn already continues because a hook wanted it.
        stop_hook_active: bool,
    },
}

/// A tool call, as hooks see it.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct HookedCall<'a> {
    pub(crate) tool_name: &'a str,
    /// The arguments, as the hooks before this one left them.
    pub(crate) tool_input: &'a Map<String, Value>,
    pub(crate) tool_use_id: &'a str,
    /// The digest of `tool_input`; see [`super::digest::arguments_sha256`].
    pub(crate) arguments_sha256: &'a str,
}

/// A tool call that has run, as hooks see it.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct HookedResult<'a> {
    #[serde(flatten)]
    pub(crate) call: HookedCall<'a>,
    /// What the tool returned.
    pub(crate) tool_response: HookedOutput<'a>,
}

/// The result of a tool call, as hooks see it.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct HookedOutput<'a> {
    /// The text of the result.
    pub content: &'a str,
    /// The status of the call, such as `ok` or `error`.
    pub status: &'a str,
}

impl HookEvent<'_> {
    /// The value of `hook_event_name`.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::PreToolUse(_) => PRE_TOOL_USE,
            Self::PermissionRequest(_) => PERMISSION_REQUEST,
            Self::PostToolUse(_) => POST_TOOL_USE,
            Self::PreModelCall { .. } => PRE_MODEL_CALL,
            Self::Stop { .. } => STOP,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::hooks::digest::arguments_sha256;

    fn call(event: HookEvent<'_>) -> HookCall<'_> {
        HookCall {
            session_id: Some("abc123"),
            event,
            owner: Some("alice"),
            session_key: Some("sk_1"),
            request_id: "req_1",
            run_id: Some("run_1"),
            round: Some(2),
            model: Some("qwen"),
        }
    }

    /// What [`call`] adds to every event.
    fn with_common(mut event: Value) -> Value {
        let common = json!({
            "session_id": "abc123", "owner": "alice", "session_key": "sk_1", "request_id": "req_1",
            "run_id": "run_1", "round": 2, "model": "qwen",
        });
        let members = event.as_object_mut().unwrap();
        members.extend(common.as_object().unwrap().clone());
        event
    }

    /// The call of "Common input fields", <https://code.claude.com/docs/en/hooks#common-input-fields>.
    #[test]
    fn tool_events() {
        let input = json!({
            "command": "npm test", "description": "Run test suite", "timeout": 120_000, "run_in_background": false,
        });
        let input = input.as_object().unwrap();
        let digest = arguments_sha256(input);
        let hooked = HookedCall {
            tool_name: "Bash",
            tool_input: input,
            tool_use_id: "toolu_01ABC123...",
            arguments_sha256: &digest,
        };
        let result = HookedResult {
            call: hooked,
            tool_response: HookedOutput {
                content: "ok",
                status: "ok",
            },
        };
        for (event, name, response) in [
            (HookEvent::PreToolUse(hooked), PRE_TOOL_USE, None),
            (
                HookEvent::PermissionRequest(hooked),
                PERMISSION_REQUEST,
                None,
            ),
            (
                HookEvent::PostToolUse(result),
                POST_TOOL_USE,
                Some(json!({"content": "ok", "status": "ok"})),
            ),
        ] {
            let mut expected = with_common(json!({
                "hook_event_name": name, "tool_name": "Bash", "tool_input": input,
                "tool_use_id": "toolu_01ABC123...", "arguments_sha256": digest,
            }));
            if let Some(response) = response {
                expected["tool_response"] = response;
            }
            assert_eq!(serde_json::to_value(call(event)).unwrap(), expected);
        }
    }

    /// The text of a message is sent as it is, big numbers and the order of its members included.
    #[test]
    fn model_event() {
        let text = r#"{"role":"user", "content":"hi","x":123456789012345678901234567890}"#;
        let message: &RawValue = serde_json::from_str(text).unwrap();
        let messages = [message];
        let sent = serde_json::to_string(&call(HookEvent::PreModelCall {
            messages: &messages,
        }))
        .unwrap();
        assert_eq!(
            sent,
            format!(
                r#"{{"session_id":"abc123","hook_event_name":"{PRE_MODEL_CALL}","messages":[{text}],"owner":"alice","session_key":"sk_1","request_id":"req_1","run_id":"run_1","round":2,"model":"qwen"}}"#
            )
        );
    }

    #[test]
    fn finish_event() {
        let event = HookEvent::Stop {
            last_assistant_message: "I've completed the refactoring. Here's a summary...",
            stop_hook_active: true,
        };
        assert_eq!(
            serde_json::to_value(call(event)).unwrap(),
            with_common(json!({
                "hook_event_name": STOP,
                "last_assistant_message": "I've completed the refactoring. Here's a summary...",
                "stop_hook_active": true,
            }))
        );
    }

    #[test]
    fn what_is_absent_is_left_out() {
        let sent = HookCall {
            session_id: None,
            event: HookEvent::Stop {
                last_assistant_message: "",
                stop_hook_active: false,
            },
            owner: None,
            session_key: None,
            request_id: "req_1",
            run_id: None,
            round: None,
            model: None,
        };
        assert_eq!(
            serde_json::to_value(sent).unwrap(),
            json!({
                "hook_event_name": "Stop", "last_assistant_message": "", "stop_hook_active": false,
                "request_id": "req_1",
            })
        );
    }
}
