//! The rules of the approver.

use serde_json::json;

use super::*;

const PERSON: ApproverAnswer = ApproverAnswer::Person;
const ALLOW: ApproverAnswer = ApproverAnswer::Allow {
    updated_input: None,
};
const DENY: ApproverAnswer = ApproverAnswer::Deny {
    reason: None,
    ends_turn: None,
};

#[test]
fn words_of_the_approver() {
    for (members, expected) in [
        (json!({"permissionDecision": "allow"}), ALLOW),
        (json!({"permissionDecision": "deny"}), DENY),
        (json!({"permissionDecision": "ask"}), PERSON),
        (json!({"permissionDecision": "defer"}), PERSON),
        (json!({"permissionDecision": "maybe"}), PERSON),
        (json!({"decision": {"behavior": "allow"}}), ALLOW),
        (json!({"decision": {"behavior": "deny"}}), DENY),
        (json!({"decision": {"behavior": "ask"}}), PERSON),
        (json!({"decision": {}}), PERSON),
    ] {
        let body = output(&members);
        assert_eq!(approver(&body), Ok(expected), "{body}");
    }
}

/// The stricter form decides. The old form decides nothing, but keeps a person in.
#[test]
fn forms_that_disagree() {
    for (top, current, behavior, expected) in [
        (None, Some("allow"), Some("deny"), DENY),
        (None, Some("deny"), Some("allow"), DENY),
        (None, Some("ask"), Some("allow"), PERSON),
        (None, Some("allow"), Some("ask"), PERSON),
        (None, Some("allow"), Some("allow"), ALLOW),
        (Some("approve"), None, None, PERSON),
        (Some("block"), None, None, PERSON),
        (Some("approve"), Some("allow"), None, ALLOW),
        (Some("block"), Some("allow"), Some("allow"), PERSON),
        (Some("block"), Some("deny"), None, DENY),
    ] {
        let decision = behavior.map(|word| json!({"behavior": word}));
        let body = json!({"decision": top,
            "hookSpecificOutput": {"permissionDecision": current, "decision": decision}});
        assert_eq!(approver(&body.to_string()), Ok(expected), "{body}");
    }
}

#[test]
fn reasons_of_the_approver() {
    for (body, expected) in [
        (
            json!({"reason": "loose", "hookSpecificOutput": {"permissionDecision": "deny"}}),
            some("loose"),
        ),
        (
            json!({"decision": "approve", "reason": "fine", "hookSpecificOutput": {"permissionDecision": "deny"}}),
            None,
        ),
        (
            json!({"hookSpecificOutput": {"permissionDecision": "allow", "permissionDecisionReason": "fine",
            "decision": {"behavior": "deny"}}}),
            None,
        ),
        (
            json!({"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "no",
            "decision": {"behavior": "allow", "message": "fine"}}}),
            some("no"),
        ),
    ] {
        let denied = ApproverAnswer::Deny {
            reason: expected,
            ends_turn: None,
        };
        assert_eq!(approver(&body.to_string()), Ok(denied), "{body}");
    }
}

/// `message` and `interrupt` belong to `deny`, `updatedInput` to `allow`: the table of
/// <https://code.claude.com/docs/en/hooks#permissionrequest-decision-control>.
#[test]
fn more_words_of_the_approver() {
    for (decision, expected) in [
        (
            json!({"behavior": "deny", "message": "no", "interrupt": true, "updatedInput": {"a": 1}}),
            ApproverAnswer::Deny {
                reason: some("no"),
                ends_turn: some(STOPPED),
            },
        ),
        (
            json!({"behavior": "deny", "message": "no", "interrupt": false}),
            ApproverAnswer::Deny {
                reason: some("no"),
                ends_turn: None,
            },
        ),
        (
            json!({"behavior": "allow", "message": "no", "interrupt": true, "updatedInput": {"a": 1}}),
            ApproverAnswer::Allow {
                updated_input: json!({"a": 1}).as_object().cloned(),
            },
        ),
    ] {
        let body = output(&json!({"decision": decision}));
        assert_eq!(approver(&body), Ok(expected), "{body}");
    }
    let body = output(
        &json!({"hookEventName": "PreToolUse", "permissionDecision": "allow",
        "permissionDecisionReason": "fine", "updatedInput": {"a": 1}}),
    );
    let expected = ApproverAnswer::Allow {
        updated_input: json!({"a": 1}).as_object().cloned(),
    };
    assert_eq!(approver(&body), Ok(expected));
}
