//! The examples of Claude Code's documentation, word for word, and what they mean here.

mod approver;
mod hostile;
mod rules;

use serde_json::json;

use super::*;

fn tool(body: &str) -> Result<ToolHookAnswer, HookAnswerError> {
    ToolHookAnswer::parse(body.as_bytes())
}

fn result(body: &str) -> Result<ResultHookAnswer, HookAnswerError> {
    ResultHookAnswer::parse(body.as_bytes())
}

fn model(body: &str) -> Result<ModelHookAnswer, HookAnswerError> {
    ModelHookAnswer::parse(body.as_bytes())
}

fn finish(body: &str) -> Result<FinishHookAnswer, HookAnswerError> {
    FinishHookAnswer::parse(body.as_bytes())
}

fn approver(body: &str) -> Result<ApproverAnswer, HookAnswerError> {
    ApproverAnswer::parse(body.as_bytes())
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// An answer whose `hookSpecificOutput` has these members.
fn output(members: &Value) -> String {
    json!({"hookSpecificOutput": members}).to_string()
}

/// "How a hook resolves", <https://code.claude.com/docs/en/hooks#how-a-hook-resolves>.
const RESOLVES: &str = r#"{
      "hookSpecificOutput": {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": "Destructive command blocked by hook"
      }
    }"#;

/// "Decision control", <https://code.claude.com/docs/en/hooks#decision-control>.
const DENIES: &str = r#"{
      "hookSpecificOutput": {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": "Database writes are not allowed"
      }
    }"#;

/// "Decision control", <https://code.claude.com/docs/en/hooks#decision-control>.
const BLOCKS: &str = r#"{
      "decision": "block",
      "reason": "Test suite must pass before proceeding"
    }"#;

/// "Decision control", and "`PermissionRequest` decision control",
/// <https://code.claude.com/docs/en/hooks#permissionrequest-decision-control>.
const PERMITS: &str = r#"{
      "hookSpecificOutput": {
        "hookEventName": "PermissionRequest",
        "decision": {
          "behavior": "allow",
          "updatedInput": {
            "command": "npm run lint"
          }
        }
      }
    }"#;

/// "Auto-approve specific permission prompts", <https://code.claude.com/docs/en/hooks-guide>.
const PERMITS_ALL: &str = r#"{
  "hookSpecificOutput": {
    "hookEventName": "PermissionRequest",
    "decision": {
      "behavior": "allow",
      "updatedPermissions": [
        { "type": "setMode", "mode": "acceptEdits", "destination": "session" }
      ]
    }
  }
}"#;

/// "`PreToolUse` decision control", <https://code.claude.com/docs/en/hooks#pretooluse-decision-control>.
const REWRITES: &str = r#"{
  "hookSpecificOutput": {
    "hookEventName": "PreToolUse",
    "permissionDecision": "allow",
    "permissionDecisionReason": "My reason here",
    "updatedInput": {
      "field_to_modify": "new value"
    },
    "additionalContext": "Current environment: production. Proceed with caution."
  }
}"#;

/// "JSON output", <https://code.claude.com/docs/en/hooks#json-output>.
const STOPS: &str =
    r#"{ "continue": false, "stopReason": "Build failed, fix errors before continuing" }"#;

/// "Add context for Claude", <https://code.claude.com/docs/en/hooks#add-context-for-claude>.
const ADDS: &str = r#"{
  "hookSpecificOutput": {
    "hookEventName": "PostToolUse",
    "additionalContext": "This file is generated. Edit src/schema.ts and run `bun generate` instead."
  }
}"#;

/// "`PostToolUse` decision control", <https://code.claude.com/docs/en/hooks#posttooluse-decision-control>.
const REPLACES: &str = r#"{
  "hookSpecificOutput": {
    "hookEventName": "PostToolUse",
    "additionalContext": "Additional information for Claude",
    "updatedToolOutput": {
      "stdout": "[redacted]",
      "stderr": "",
      "interrupted": false,
      "isImage": false
    }
  }
}"#;

/// "Annotate a result for the auto mode classifier", <https://code.claude.com/docs/en/hooks#posttooluse>.
const ANNOTATES: &str = r#"{
  "hookSpecificOutput": {
    "hookEventName": "PostToolUse",
    "classifierContext": "This query ran against the staging database, not production."
  }
}"#;

/// "Stop decision control", <https://code.claude.com/docs/en/hooks#stop-decision-control>.
const GOES_ON: &str = r#"{
  "decision": "block",
  "reason": "Must be provided when Claude is blocked from stopping"
}"#;

/// "Stop decision control", <https://code.claude.com/docs/en/hooks#stop-decision-control>.
const FEEDBACK: &str = r#"{
  "hookSpecificOutput": {
    "hookEventName": "Stop",
    "additionalContext": "Please run the test suite before finishing"
  }
}"#;

/// All of the above.
const DOCUMENTED: [&str; 12] = [
    RESOLVES,
    DENIES,
    BLOCKS,
    PERMITS,
    PERMITS_ALL,
    REWRITES,
    STOPS,
    ADDS,
    REPLACES,
    ANNOTATES,
    GOES_ON,
    FEEDBACK,
];

/// The old form is that of the note in "`PreToolUse` decision control": `approve` and `block` map to `allow` and `deny`.
#[test]
fn documented_answers_to_pre_tool_use() {
    let deny = |reason| ToolHookAnswer {
        decision: Some(ToolDecision::Deny),
        reason: some(reason),
        ..ToolHookAnswer::default()
    };
    for (body, expected) in [
        (RESOLVES, deny("Destructive command blocked by hook")),
        (DENIES, deny("Database writes are not allowed")),
        (BLOCKS, deny("Test suite must pass before proceeding")),
        (
            REWRITES,
            ToolHookAnswer {
                decision: Some(ToolDecision::Allow),
                reason: some("My reason here"),
                updated_input: json!({"field_to_modify": "new value"}).as_object().cloned(),
                additional_context: some("Current environment: production. Proceed with caution."),
                ends_turn: None,
            },
        ),
        (
            STOPS,
            ToolHookAnswer {
                decision: Some(ToolDecision::Deny),
                ends_turn: some("Build failed, fix errors before continuing"),
                ..ToolHookAnswer::default()
            },
        ),
    ] {
        assert_eq!(tool(body), Ok(expected), "{body}");
    }
}

#[test]
fn documented_answers_to_permission_request() {
    for (body, expected) in [
        (
            PERMITS,
            ApproverAnswer::Allow {
                updated_input: json!({"command": "npm run lint"}).as_object().cloned(),
            },
        ),
        (
            PERMITS_ALL,
            ApproverAnswer::Allow {
                updated_input: None,
            },
        ),
        (
            DENIES,
            ApproverAnswer::Deny {
                reason: some("Database writes are not allowed"),
                ends_turn: None,
            },
        ),
        (
            STOPS,
            ApproverAnswer::Deny {
                reason: None,
                ends_turn: some("Build failed, fix errors before continuing"),
            },
        ),
    ] {
        assert_eq!(approver(body), Ok(expected), "{body}");
    }
}

#[test]
fn documented_answers_to_post_tool_use() {
    for (body, expected) in [
        (
            BLOCKS,
            ResultHookAnswer {
                replaced: some("Test suite must pass before proceeding"),
                ..ResultHookAnswer::default()
            },
        ),
        (
            ADDS,
            ResultHookAnswer {
                additional_context: some(
                    "This file is generated. Edit src/schema.ts and run `bun generate` instead.",
                ),
                ..ResultHookAnswer::default()
            },
        ),
        (
            REPLACES,
            ResultHookAnswer {
                additional_context: some("Additional information for Claude"),
                updated_output: some(
                    r#"{"interrupted":false,"isImage":false,"stderr":"","stdout":"[redacted]"}"#,
                ),
                ..ResultHookAnswer::default()
            },
        ),
        (ANNOTATES, ResultHookAnswer::default()),
        (
            STOPS,
            ResultHookAnswer {
                ends_turn: some("Build failed, fix errors before continuing"),
                ..ResultHookAnswer::default()
            },
        ),
    ] {
        assert_eq!(result(body), Ok(expected), "{body}");
    }
}

#[test]
fn documented_answers_to_stop() {
    let blocks = some("Must be provided when Claude is blocked from stopping");
    assert_eq!(finish(GOES_ON), Ok(FinishHookAnswer { blocks }));
    for body in [FEEDBACK, STOPS] {
        assert_eq!(finish(body), Ok(FinishHookAnswer::default()), "{body}");
    }
}
