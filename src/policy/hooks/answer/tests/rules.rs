//! Each rule with its table.

use serde_json::{Value, json};

use super::*;

#[test]
fn nothing_said() {
    for body in [
        "",
        " \r\n\t",
        "{}",
        r#"{"hookSpecificOutput":{}}"#,
        r#"{"hookSpecificOutput":null,"decision":null,"reason":null,"continue":null}"#,
        r#"{"continue":true,"suppressOutput":true,"systemMessage":"hello","terminalSequence":"x"}"#,
        r#"{"suppressOutput":5,"systemMessage":[],"unknown":{"permissionDecision":"deny"}}"#,
        r#"{"stopReason":"not used","reason":"of nothing"}"#,
        r#"{"permissionDecision":"deny","updatedInput":5}"#,
    ] {
        assert_eq!(tool(body), Ok(ToolHookAnswer::default()), "{body}");
        assert_eq!(result(body), Ok(ResultHookAnswer::default()), "{body}");
        assert_eq!(model(body), Ok(ModelHookAnswer::default()), "{body}");
        assert_eq!(finish(body), Ok(FinishHookAnswer::default()), "{body}");
        assert_eq!(approver(body), Ok(ApproverAnswer::Person), "{body}");
    }
}

#[test]
fn words_of_pre_tool_use() {
    use ToolDecision::{Allow, Ask, Deny};
    for (current, old, expected) in [
        (json!("allow"), json!(null), Some(Allow)),
        (json!("ask"), json!(null), Some(Ask)),
        (json!("defer"), json!(null), Some(Ask)),
        (json!("deny"), json!(null), Some(Deny)),
        (json!(null), json!("approve"), Some(Allow)),
        (json!(null), json!("block"), Some(Deny)),
        (json!(null), json!(null), None),
        // The stricter form decides.
        (json!("allow"), json!("block"), Some(Deny)),
        (json!("ask"), json!("block"), Some(Deny)),
        (json!("defer"), json!("block"), Some(Deny)),
        (json!("ask"), json!("approve"), Some(Ask)),
        (json!("deny"), json!("approve"), Some(Deny)),
        (json!("allow"), json!("approve"), Some(Allow)),
    ] {
        let body = json!({"decision": old, "hookSpecificOutput": {"permissionDecision": current}});
        let answer = tool(&body.to_string()).unwrap();
        assert_eq!(answer.decision, expected, "{body}");
    }
}

#[test]
fn reasons_belong_to_their_decision() {
    for (body, expected) in [
        (
            json!({"decision": "block", "reason": "old", "hookSpecificOutput": {"permissionDecision": "deny",
            "permissionDecisionReason": "new"}}),
            some("new"),
        ),
        (
            json!({"decision": "block", "reason": "old", "hookSpecificOutput": {"permissionDecision": "allow",
            "permissionDecisionReason": "new"}}),
            some("old"),
        ),
        (
            json!({"decision": "approve", "reason": "old", "hookSpecificOutput": {"permissionDecision": "deny"}}),
            None,
        ),
        (
            json!({"decision": "block", "hookSpecificOutput": {"permissionDecision": "deny",
            "permissionDecisionReason": "new"}}),
            some("new"),
        ),
        (
            json!({"decision": "block", "hookSpecificOutput": {"permissionDecisionReason": "new"}}),
            some("new"),
        ),
        (
            json!({"reason": "old", "hookSpecificOutput": {"permissionDecision": "ask"}}),
            some("old"),
        ),
        (json!({"decision": "block", "reason": " \n"}), None),
        (json!({"continue": false, "reason": "loose"}), some("loose")),
        (
            json!({"continue": false, "hookSpecificOutput": {"permissionDecision": "allow",
            "permissionDecisionReason": "new"}}),
            None,
        ),
    ] {
        assert_eq!(tool(&body.to_string()).unwrap().reason, expected, "{body}");
    }
}

/// "For `defer`, ignored": the table of <https://code.claude.com/docs/en/hooks#pretooluse-decision-control>.
#[test]
fn defer_counts_alone() {
    let members = json!({"permissionDecision": "defer", "permissionDecisionReason": "later",
        "updatedInput": {"a": 1}, "additionalContext": "context"});
    let expected = ToolHookAnswer {
        decision: Some(ToolDecision::Ask),
        ..ToolHookAnswer::default()
    };
    assert_eq!(tool(&output(&members)), Ok(expected));
}

#[test]
fn rewritten_arguments() {
    let one = || json!({"a": 1}).as_object().cloned();
    for (word, expected) in [
        (json!(null), one()),
        (json!("allow"), one()),
        (json!("ask"), one()),
        (json!("deny"), None),
    ] {
        let body = output(&json!({"permissionDecision": word, "updatedInput": {"a": 1}}));
        assert_eq!(tool(&body).unwrap().updated_input, expected, "{body}");
    }
    let empty = tool(&output(&json!({"updatedInput": {}}))).unwrap();
    assert_eq!(empty.updated_input, Some(Map::new()));
}

#[test]
fn ended_turns() {
    for (body, text) in [
        (json!({"continue": false, "stopReason": "enough"}), "enough"),
        (json!({"continue": false}), STOPPED),
        (json!({"continue": false, "stopReason": "  "}), STOPPED),
        (
            json!({"continue": false, "stopReason": "enough", "hookSpecificOutput": {"permissionDecision": "allow"}}),
            "enough",
        ),
    ] {
        let body = body.to_string();
        let answer = tool(&body).unwrap();
        assert_eq!(answer.ends_turn, some(text), "{body}");
        assert_eq!(answer.decision, Some(ToolDecision::Deny), "{body}");
        assert_eq!(result(&body).unwrap().ends_turn, some(text), "{body}");
        assert_eq!(model(&body).unwrap().ends_turn, some(text), "{body}");
        let denied = ApproverAnswer::Deny {
            reason: None,
            ends_turn: some(text),
        };
        assert_eq!(approver(&body), Ok(denied), "{body}");
    }
}

#[test]
fn replaced_results() {
    let text = |updated: Value| {
        let body = output(&json!({"updatedToolOutput": updated}));
        result(&body).unwrap().updated_output
    };
    for (updated, expected) in [
        (json!("text"), some("text")),
        (json!(""), some("")),
        (json!(null), None),
        (json!(5), some("5")),
        (json!(["a", 1]), some(r#"["a",1]"#)),
        // As `tool_response` was sent.
        (json!({"content": "text", "status": "ok"}), some("text")),
        (json!({"content": "text"}), some("text")),
        (
            json!({"content": "text", "more": 1}),
            some(r#"{"content":"text","more":1}"#),
        ),
        (
            json!({"content": ["text"]}),
            some(r#"{"content":["text"]}"#),
        ),
        (json!({"status": "ok"}), some(r#"{"status":"ok"}"#)),
    ] {
        assert_eq!(text(updated.clone()), expected, "{updated}");
    }
    let both = output(&json!({"updatedToolOutput": "new", "updatedMCPToolOutput": "old"}));
    assert_eq!(result(&both).unwrap().updated_output, some("new"));
    let old = output(&json!({"updatedMCPToolOutput": "old"}));
    assert_eq!(result(&old).unwrap().updated_output, some("old"));
}

#[test]
fn blocked_results() {
    let body = json!({"decision": "block", "terminate": true, "hookSpecificOutput": {
        "updatedToolOutput": "new", "additionalContext": "context"}});
    let expected = ResultHookAnswer {
        replaced: some(WITHHELD),
        additional_context: some("context"),
        terminate: true,
        ..ResultHookAnswer::default()
    };
    assert_eq!(result(&body.to_string()), Ok(expected));
    let approved = result(r#"{"decision": "approve", "reason": "fine"}"#);
    assert_eq!(approved, Ok(ResultHookAnswer::default()));
}

#[test]
fn replaced_messages() {
    let body = output(
        &json!({"hookEventName": "PreModelCall", "additionalContext": "context",
        "updatedMessages": [{"role": "user", "content": "hi"}]}),
    );
    let expected = ModelHookAnswer {
        messages: Some(vec![json!({"role": "user", "content": "hi"})]),
        additional_context: some("context"),
        ends_turn: None,
    };
    assert_eq!(model(&body), Ok(expected));
}

#[test]
fn blocked_ends() {
    for (body, expected) in [
        (
            r#"{"decision":"block","reason":"run the tests"}"#,
            some("run the tests"),
        ),
        (r#"{"decision":"block"}"#, some(GO_ON)),
        (r#"{"decision":"approve","reason":"fine"}"#, None),
        (r#"{"reason":"fine"}"#, None),
        (
            r#"{"decision":"block","reason":"run the tests","continue":false}"#,
            None,
        ),
    ] {
        assert_eq!(finish(body).unwrap().blocks, expected, "{body}");
    }
}

/// Claude Code refuses such an answer as well: "Hook returned incorrect event name: expected Stop but got `PostToolUse`",
/// <https://github.com/open-gsd/gsd-core/issues/925>.
#[test]
fn answers_to_another_event() {
    let other = |expected| HookAnswerError::OtherEvent { expected };
    for name in [
        "PreToolUse",
        "PermissionRequest",
        "PostToolUse",
        "PreModelCall",
        "Stop",
        "",
        "pretooluse",
    ] {
        let body = output(&json!({"hookEventName": name}));
        assert_eq!(
            tool(&body).err(),
            (name != "PreToolUse").then(|| other("PreToolUse"))
        );
        assert_eq!(
            result(&body).err(),
            (name != "PostToolUse").then(|| other("PostToolUse"))
        );
        assert_eq!(
            model(&body).err(),
            (name != "PreModelCall").then(|| other("PreModelCall"))
        );
        assert_eq!(finish(&body).err(), (name != "Stop").then(|| other("Stop")));
        let heeded = ["PermissionRequest", "PreToolUse"].contains(&name);
        assert_eq!(
            approver(&body).err(),
            (!heeded).then(|| other("PermissionRequest"))
        );
    }
}
