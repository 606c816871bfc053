//! Answers that are broken, or made to be misunderstood.

use serde_json::Value;

use super::*;

/// What every reader says about the body.
fn errors(body: &[u8]) -> [Option<HookAnswerError>; 5] {
    [
        ToolHookAnswer::parse(body).err(),
        ResultHookAnswer::parse(body).err(),
        ModelHookAnswer::parse(body).err(),
        FinishHookAnswer::parse(body).err(),
        ApproverAnswer::parse(body).err(),
    ]
}

fn is_not_json(error: Option<&HookAnswerError>) -> bool {
    matches!(error, Some(HookAnswerError::NotJson { .. }))
}

#[test]
fn no_object() {
    for body in [
        "[]",
        r#"[{"decision":"block"}]"#,
        r#"[false,"x"]"#,
        "5",
        "-0.0",
        r#""deny""#,
        "true",
        "null",
    ] {
        for error in errors(body.as_bytes()) {
            assert_eq!(error, Some(HookAnswerError::NotObject), "{body}");
        }
    }
}

#[test]
fn no_json() {
    let bodies: [&[u8]; 16] = [
        b"deny",
        b"{",
        b"{]",
        b"{} {}",
        b"{},",
        b"{'decision':'block'}",
        br#"{"decision":"block",}"#,
        br#"{"decision" "block"}"#,
        b"<html>502 Bad Gateway</html>",
        b"\xef\xbb\xbf{}",
        b"\0",
        b"{\"a\":\"\xff\"}",
        b"{\"a\":\"\xed\xa0\x80\"}",
        br#"{"a":"\ud800"}"#,
        br#"{"a":1e999}"#,
        br#"{"a":NaN}"#,
    ];
    for body in bodies {
        for error in errors(body) {
            assert!(is_not_json(error.as_ref()), "{}", body.escape_ascii());
        }
    }
}

/// An object may be as deep as `serde_json` reads, 127 levels with the one of the answer.
#[test]
fn deep_nesting() {
    let nested = |depth: usize| format!(r#"{{"a":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    assert_eq!(errors(nested(126).as_bytes()), [const { None }; 5]);
    for depth in [127, 1_000_000] {
        for error in errors(nested(depth).as_bytes()) {
            assert!(is_not_json(error.as_ref()), "{depth}");
        }
    }
    let objects = format!("{}1{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
    assert!(
        errors(objects.as_bytes())
            .iter()
            .all(|error| is_not_json(error.as_ref()))
    );
}

/// Parsers disagree about which of two members counts, so neither does.
#[test]
fn members_twice() {
    for body in [
        r#"{"decision":"block","decision":"approve"}"#,
        r#"{"decision":"block","\u0064ecision":"approve"}"#,
        r#"{"hookSpecificOutput":{"permissionDecision":"deny","permissionDecision":"allow"}}"#,
        r#"{"hookSpecificOutput":{"permissionDecision":"deny"},"hookSpecificOutput":{}}"#,
        r#"{"hookSpecificOutput":{"updatedInput":{"path":"/a","path":"/b"}}}"#,
        r#"{"hookSpecificOutput":{"updatedMessages":[{"role":"user","role":"system"}]}}"#,
        r#"{"unknown":1,"unknown":1}"#,
    ] {
        for error in errors(body.as_bytes()) {
            assert_eq!(error, Some(HookAnswerError::RepeatedMember), "{body}");
        }
    }
}

/// For each member that an event heeds: values that it cannot have.
#[test]
fn wrong_values() {
    const TOP: [&str; 4] = ["continue", "stopReason", "reason", "decision"];
    let tables: [(Reader, &[&str], &[&str]); 5] = [
        (
            |body| tool(body).err(),
            &TOP,
            &[
                "hookEventName",
                "permissionDecision",
                "permissionDecisionReason",
                "updatedInput",
                "additionalContext",
            ],
        ),
        (
            |body| result(body).err(),
            &["continue", "stopReason", "reason", "decision", "terminate"],
            &["hookEventName", "additionalContext"],
        ),
        (
            |body| model(body).err(),
            &["continue", "stopReason"],
            &["hookEventName", "updatedMessages", "additionalContext"],
        ),
        (|body| finish(body).err(), &TOP, &["hookEventName"]),
        (
            |body| approver(body).err(),
            &TOP,
            &[
                "hookEventName",
                "permissionDecision",
                "permissionDecisionReason",
                "updatedInput",
                "decision",
            ],
        ),
    ];
    for (read, top, output) in tables {
        for key in top.iter().chain(&["hookSpecificOutput"]) {
            check(read, key, |value| json!({*key: value}));
        }
        for key in output {
            let path = format!("hookSpecificOutput.{key}");
            check(
                read,
                &path,
                |value| json!({"hookSpecificOutput": {*key: value}}),
            );
        }
    }
    for key in ["behavior", "message", "interrupt", "updatedInput"] {
        let path = format!("hookSpecificOutput.decision.{key}");
        check(
            |body| approver(body).err(),
            &path,
            |value| json!({"hookSpecificOutput": {"decision": {"behavior": "allow", key: value}}}),
        );
    }
}

type Reader = fn(&str) -> Option<HookAnswerError>;

/// Every value of another type than the member has is an error that names the member.
fn check(read: Reader, path: &str, body: impl Fn(Value) -> Value) {
    for value in [
        json!(5),
        json!(1e300),
        json!(true),
        json!("SECRET"),
        json!([]),
        json!([1]),
        json!({"a": 1}),
    ] {
        let key = path.rsplit('.').next().unwrap();
        let right = match key {
            "continue" | "terminate" | "interrupt" => value.is_boolean(),
            "updatedInput" | "hookSpecificOutput" => value.is_object(),
            "decision" if path.contains('.') => value.is_object(),
            "updatedMessages" => false,
            _ => value.is_string(),
        };
        let body = body(value).to_string();
        match read(&body) {
            Some(HookAnswerError::WrongValue { member, .. }) => {
                assert_eq!(member, path, "{body}");
            }
            Some(HookAnswerError::OtherEvent { .. }) => assert_eq!(key, "hookEventName", "{body}"),
            Some(error) => panic!("{body}: {error}"),
            None => assert!(right, "{body} was taken"),
        }
    }
}

/// Words are matched whole and in their case; no number or list stands for one.
#[test]
fn words_that_are_none() {
    for word in [
        "maybe", "Allow", "allow ", "", "yes", "approve", "block", "true", "allow\0",
    ] {
        let body = json!({"hookSpecificOutput": {"permissionDecision": word}}).to_string();
        assert_eq!(
            tool(&body).unwrap_err().to_string(),
            "`hookSpecificOutput.permissionDecision` in the answer is not `allow`, `deny`, `ask` or `defer`"
        );
        assert_eq!(approver(&body), Ok(ApproverAnswer::Person));
    }
    for word in ["allow", "deny", "Block", "blocked", ""] {
        let body = json!({"decision": word}).to_string();
        assert!(tool(&body).is_err(), "{body}");
        assert!(result(&body).is_err(), "{body}");
        assert!(finish(&body).is_err(), "{body}");
    }
    let empty = r#"{"hookSpecificOutput":{"updatedMessages":[]}}"#;
    assert!(model(empty).is_err());
}

/// One member that cannot be understood spoils the rest, even beside an allowance.
#[test]
fn failures_as_a_whole() {
    for body in [
        r#"{"hookSpecificOutput":{"permissionDecision":"allow","updatedInput":"x"}}"#,
        r#"{"hookSpecificOutput":{"permissionDecision":"allow"},"decision":5}"#,
        r#"{"hookSpecificOutput":{"permissionDecision":"allow"},"continue":"false"}"#,
        r#"{"hookSpecificOutput":{"permissionDecision":"defer","updatedInput":[]}}"#,
        r#"{"decision":"approve","hookSpecificOutput":[]}"#,
    ] {
        assert!(tool(body).is_err(), "{body}");
        assert!(approver(body).is_err(), "{body}");
    }
}

#[test]
fn errors_quote_nothing() {
    for body in [
        "SECRET",
        r#"{"SECRET":"#,
        r#""SECRET""#,
        r#"{"SECRET":1,"SECRET":1}"#,
        r#"{"decision":"SECRET","hookSpecificOutput":"SECRET"}"#,
        r#"{"hookSpecificOutput":{"hookEventName":"SECRET"}}"#,
        r#"{"hookSpecificOutput":{"permissionDecision":"SECRET","updatedInput":"SECRET"}}"#,
    ] {
        for error in errors(body.as_bytes()).into_iter().flatten() {
            assert!(!format!("{error} {error:?}").contains("SECRET"), "{body}");
        }
    }
}

/// Numbers keep their value as far as JSON numbers have one here: 64 bits.
#[test]
fn big_numbers() {
    let body = r#"{"hookSpecificOutput":{"updatedInput":
        {"a":18446744073709551615,"b":-9223372036854775808,"c":123456789012345678901234567890,"d":1e308,"e":-0}}}"#;
    let input = tool(body).unwrap().updated_input.unwrap();
    let plain: Value = serde_json::from_str(body).unwrap();
    assert_eq!(
        Value::Object(input),
        plain["hookSpecificOutput"]["updatedInput"]
    );
}

/// A body that was cut off is never a decision.
#[test]
fn cut_answers() {
    for body in DOCUMENTED {
        let body = body.as_bytes();
        for length in 1..body.len() {
            for error in errors(&body[..length]) {
                assert!(is_not_json(error.as_ref()));
            }
        }
    }
}

/// The caller bounds the size; a large answer is read like any other.
#[test]
fn large_answers() {
    let text = "x".repeat(2 * 1024 * 1024);
    let body = json!({"decision": "block", "reason": text}).to_string();
    assert_eq!(tool(&body).unwrap().reason, Some(text));
    let members: Vec<String> = (0..100_000).map(|n| format!(r#""m{n}":{n}"#)).collect();
    let body = format!("{{{}}}", members.join(","));
    assert_eq!(tool(&body), Ok(ToolHookAnswer::default()));
}
