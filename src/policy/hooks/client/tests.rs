//! Chains of hooks against a service that answers by a script.

mod service;

use std::sync::Arc;
use std::time::Duration;

use ::http::HeaderMap;
use serde_json::json;

use self::service::{Act, Failures, Service};
use super::*;
use crate::hooks::HookRecord;
use crate::hooks::answer::ApproverAnswer;
use crate::hooks::approver::Approver;
use crate::hooks::settings::HookServiceSettings;
use net::CaCertificates;
use protocol::ids::{Owner, RequestId, RunId, SessionId};

/// A turn to be asked about.
struct Turn {
    session: SessionId,
    owner: Owner,
    request: RequestId,
    run: RunId,
    trace: HeaderMap,
    record: HookRecord,
}

impl Turn {
    fn new() -> Self {
        Self {
            session: SessionId::parse("s1").unwrap(),
            owner: Owner::key("alice"),
            request: RequestId::fresh(),
            run: RunId::fresh(),
            trace: HeaderMap::new(),
            record: HookRecord::default(),
        }
    }

    fn hooked(&self) -> HookedTurn<'_> {
        HookedTurn {
            session_id: Some(&self.session),
            owner: &self.owner,
            request_id: &self.request,
            run_id: &self.run,
            round: 2,
            model: "m",
            deadline: None,
            trace: &self.trace,
            record: &self.record,
        }
    }
}

fn output(members: &Value) -> Act {
    Act::Json(json!({"hookSpecificOutput": members}))
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// What the hooks say about a call with these arguments, of which those with `"bad"` fit no tool.
async fn before(hooks: &Hooks, turn: &Turn, arguments: Value) -> BeforeTool {
    let arguments = object(&arguments);
    let call = ToolUse {
        name: "charge",
        id: "call_1",
        arguments: &arguments,
    };
    let fits = |arguments: &Map<String, Value>| !arguments.contains_key("bad");
    hooks.before_tool(turn.hooked(), call, fits).await
}

async fn after(hooks: &Hooks, turn: &Turn, content: &str) -> AfterTool {
    let arguments = Map::new();
    let call = ToolUse {
        name: "charge",
        id: "call_1",
        arguments: &arguments,
    };
    let result = HookedOutput {
        content,
        status: "ok",
    };
    hooks.after_tool(turn.hooked(), call, result).await
}

const LENIENT: OnFailure = OnFailure::Continue;
const STRICT: OnFailure = OnFailure::Block;

#[tokio::test]
async fn each_hook_sees_what_the_one_before_has_changed() {
    let service = Service::start(vec![
        output(&json!({"updatedInput": {"a": 1}, "additionalContext": "one"})),
        output(&json!({"permissionDecision": "allow", "updatedInput": {"a": 1, "b": 2}, "additionalContext": "two"})),
    ])
    .await;
    let (hooks, _) = service.hooks(HookPoint::BeforeTool, &[LENIENT; 2]);
    let turn = Turn::new();
    let said = before(&hooks, &turn, json!({})).await;
    assert_eq!(said.arguments, Some(object(&json!({"a": 1, "b": 2}))));
    assert_eq!(said.decision, Some(ToolDecision::Allow));
    assert_eq!(said.context.as_deref(), Some("one\ntwo"));
    let seen = service.seen.lock().clone();
    assert_eq!(seen[0]["tool_input"], json!({}));
    assert_eq!(seen[1]["tool_input"], json!({"a": 1}));
    assert_ne!(seen[0]["arguments_sha256"], seen[1]["arguments_sha256"]);
    for (member, expected) in [
        ("hook_event_name", "PreToolUse"),
        ("tool_name", "charge"),
        ("tool_use_id", "call_1"),
        ("session_id", "s1"),
        ("owner", "alice"),
        ("run_id", turn.run.as_str()),
        ("request_id", turn.request.as_str()),
        ("model", "m"),
    ] {
        assert_eq!(seen[0][member], expected, "{member}");
    }
    assert_eq!(seen[0]["round"], 2);
    assert!(seen[0]["session_key"].is_string());
}

#[tokio::test]
async fn a_denial_ends_the_chain_and_the_strictest_word_counts() {
    let ask = output(&json!({"permissionDecision": "ask", "permissionDecisionReason": "why?"}));
    let allow = output(&json!({"permissionDecision": "allow", "permissionDecisionReason": "fine"}));
    let deny = Act::Json(json!({"continue": false, "stopReason": "enough"}));
    let service = Service::start(vec![ask, allow, deny, Act::Hang]).await;
    let turn = Turn::new();
    let (hooks, _) = service.hooks(HookPoint::BeforeTool, &[LENIENT; 2]);
    let said = before(&hooks, &turn, json!({})).await;
    assert_eq!(said.decision, Some(ToolDecision::Ask));
    assert_eq!(said.reason.as_deref(), Some("why?"));
    assert_eq!(turn.record.take_end(), None);

    let (hooks, _) = service.hooks(HookPoint::BeforeTool, &[LENIENT; 4]);
    let said = before(&hooks, &turn, json!({})).await;
    assert_eq!(said.decision, Some(ToolDecision::Deny));
    assert_eq!(turn.record.take_end().as_deref(), Some("enough"));
    assert_eq!(service.seen.lock().len(), 2 + 3);
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_a_denial() {
    let rewrite = output(&json!({"permissionDecision": "allow", "updatedInput": {"bad": 1}}));
    let service = Service::start(vec![rewrite, Act::Hang]).await;
    let (hooks, _) = service.hooks(HookPoint::BeforeTool, &[LENIENT; 2]);
    let said = before(&hooks, &Turn::new(), json!({})).await;
    assert_eq!(said.decision, Some(ToolDecision::Deny));
    assert_eq!(said.reason.as_deref(), Some(UNFIT));
    assert_eq!(said.arguments, None);
}

#[tokio::test]
async fn a_failure_is_passed_over_or_blocks() {
    for (act, reason) in [
        (Act::Hang, "timeout"),
        (Act::Status(500), "status"),
        (Act::Status(302), "status"),
        (Act::Raw("yes"), "invalid"),
        (Act::Raw("[]"), "invalid"),
        (Act::Long(20_000), "too_large"),
    ] {
        let service = Service::start(vec![act]).await;
        let turn = Turn::new();
        let (hooks, meter) = service.hooks(HookPoint::BeforeTool, &[LENIENT]);
        assert_eq!(before(&hooks, &turn, json!({})).await.decision, None);
        let failed = turn.record.take_failures();
        assert_eq!(failed.len(), 1, "{reason}");
        assert!(
            failed[0].starts_with("hooks[0] (PreToolUse) failed once"),
            "{failed:?}"
        );
        assert!(
            !failed[0].contains("127.0.0.1") && !failed[0].contains("t0p"),
            "{failed:?}"
        );
        assert_eq!(*meter.0.lock(), [("PreToolUse", reason)]);

        let (hooks, _) = service.hooks(HookPoint::BeforeTool, &[STRICT]);
        let said = before(&hooks, &turn, json!({})).await;
        assert_eq!(said.decision, Some(ToolDecision::Deny), "{reason}");
        assert_eq!(said.reason.as_deref(), Some(UNDECIDED));

        let (hooks, _) = service.hooks(HookPoint::AfterTool, &[LENIENT]);
        assert_eq!(after(&hooks, &turn, "r").await.content, None);
        let (hooks, _) = service.hooks(HookPoint::AfterTool, &[STRICT]);
        let withheld = after(&hooks, &turn, "r").await;
        assert_eq!(withheld.content.as_deref(), Some(UNSEEN_RESULT));
        assert_eq!(withheld.extent, ResultExtent::Whole);

        let (hooks, _) = service.hooks(HookPoint::BeforeModel, &[LENIENT]);
        let changed = hooks.before_model(turn.hooked(), Vec::new()).await;
        assert!(changed.unwrap().is_none());
        let (hooks, _) = service.hooks(HookPoint::BeforeModel, &[STRICT]);
        let changed = hooks.before_model(turn.hooked(), Vec::new()).await;
        assert_eq!(changed.unwrap_err().reason(), reason);

        turn.record.take_failures();
        let (hooks, _) = service.hooks(HookPoint::BeforeFinish, &[STRICT]);
        let blocks = hooks.before_finish(turn.hooked(), "a", false).await;
        assert_eq!(blocks, None, "it has no effect");
        assert_eq!(turn.record.take_failures().len(), 1);
    }
}

#[tokio::test]
async fn a_result_is_replaced_and_added_to() {
    let service = Service::start(vec![
        output(&json!({"updatedToolOutput": "short", "additionalContext": "note"})),
        Act::Json(json!({"terminate": true, "hookSpecificOutput": {"additionalContext": "more"}})),
        Act::Json(json!({"decision": "block", "reason": "not for you"})),
        Act::Hang,
    ])
    .await;
    let turn = Turn::new();
    let (hooks, _) = service.hooks(HookPoint::AfterTool, &[LENIENT; 2]);
    let found = after(&hooks, &turn, "long").await;
    assert_eq!(found.content.as_deref(), Some("short\nnote\nmore"));
    assert_eq!(found.extent, ResultExtent::Text);
    assert!(found.terminate);
    let seen = service.seen.lock().clone();
    assert_eq!(
        seen[1]["tool_response"],
        json!({"content": "short\nnote", "status": "ok"})
    );

    let (hooks, _) = service.hooks(HookPoint::AfterTool, &[LENIENT; 4]);
    let found = after(&hooks, &turn, "long").await;
    assert_eq!(found.content.as_deref(), Some("not for you"));
    assert_eq!(found.extent, ResultExtent::Whole);
}

#[tokio::test]
async fn messages_are_changed_and_added_to() {
    let user = |text: &str| json!({"role": "user", "content": text});
    let service = Service::start(vec![
        output(&json!({"updatedMessages": [user("b")]})),
        output(&json!({"additionalContext": "c"})),
        output(&json!({"updatedMessages": [{"content": "no role"}]})),
        Act::Json(json!({"continue": false})),
    ])
    .await;
    let turn = Turn::new();
    let sent = || vec![RawValue::from_string(user("a").to_string()).unwrap()];
    let (hooks, _) = service.hooks(HookPoint::BeforeModel, &[LENIENT; 3]);
    let changed = hooks
        .before_model(turn.hooked(), sent())
        .await
        .unwrap()
        .unwrap();
    let texts: Vec<Value> = changed
        .iter()
        .map(|message| serde_json::from_str(message.get()).unwrap())
        .collect();
    assert_eq!(texts, [user("b"), user("c")]);
    assert_eq!(
        service.seen.lock()[2]["messages"],
        json!([user("b"), user("c")])
    );
    assert_eq!(
        turn.record.take_failures().len(),
        1,
        "a message without a role"
    );

    let (hooks, _) = service.hooks(HookPoint::BeforeModel, &[LENIENT; 4]);
    assert!(
        hooks
            .before_model(turn.hooked(), sent())
            .await
            .unwrap()
            .is_none()
    );
    assert!(turn.record.take_end().is_some());
}

#[tokio::test]
async fn an_end_is_accepted_or_not() {
    let block = Act::Json(json!({"decision": "block", "reason": "run the tests"}));
    let service = Service::start(vec![Act::Raw(""), block, Act::Hang]).await;
    let turn = Turn::new();
    let (hooks, _) = service.hooks(HookPoint::BeforeFinish, &[LENIENT; 3]);
    let blocks = hooks.before_finish(turn.hooked(), "Done.", true).await;
    assert_eq!(blocks.as_deref(), Some("run the tests"));
    let seen = service.seen.lock().clone();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0]["last_assistant_message"], "Done.");
    assert_eq!(seen[0]["stop_hook_active"], true);
}

#[tokio::test]
async fn an_answer_after_the_deadline_is_too_late() {
    let service = Service::start(vec![Act::Hang]).await;
    let turn = Turn::new();
    let (hooks, _) = service.hooks(HookPoint::AfterTool, &[STRICT]);
    let (arguments, began) = (Map::new(), tokio::time::Instant::now());
    let call = ToolUse {
        name: "t",
        id: "c",
        arguments: &arguments,
    };
    let hooked = HookedTurn {
        deadline: Some(began + Duration::from_millis(20)),
        ..turn.hooked()
    };
    let result = HookedOutput {
        content: "r",
        status: "ok",
    };
    let withheld = hooks.after_tool(hooked, call, result).await;
    assert_eq!(withheld.extent, ResultExtent::Whole);
    assert!(began.elapsed() < Duration::from_millis(250));
}

#[tokio::test]
async fn an_approver_decides_or_leaves_it_to_a_person() {
    let deny = |reason: &str, ends: Option<&str>| ApproverAnswer::Deny {
        reason: Some(reason.to_owned()),
        ends_turn: ends.map(str::to_owned),
    };
    let allow = ApproverAnswer::Allow {
        updated_input: None,
    };
    let behavior = |word: &str| {
        output(
            &json!({"hookEventName": "PermissionRequest", "decision": {"behavior": word, "message": "no", "interrupt": true}}),
        )
    };
    let stopped = deny("no", Some("A hook ended the turn."));
    let failed = deny("the service that decides about it could not be asked", None);
    for (act, on_failure, expected) in [
        (behavior("allow"), LENIENT, allow),
        (behavior("deny"), LENIENT, stopped),
        (Act::Raw(""), STRICT, ApproverAnswer::Person),
        (Act::Hang, LENIENT, ApproverAnswer::Person),
        (Act::Status(500), STRICT, failed),
    ] {
        let service = Service::start(vec![act]).await;
        let meter: Arc<dyn HookMeter> = Arc::new(Arc::new(Failures::default()));
        let settings = service.settings(0, on_failure);
        let approver = Approver::new(&settings, &CaCertificates::default(), &meter).unwrap();
        let (turn, arguments) = (Turn::new(), object(&json!({"n": 1})));
        let call = ToolUse {
            name: "charge",
            id: "call_1",
            arguments: &arguments,
        };
        let answer = approver.ask(turn.hooked(), call).await;
        assert_eq!(answer, expected);
        let ends = matches!(
            answer,
            ApproverAnswer::Deny {
                ends_turn: Some(_),
                ..
            }
        );
        assert_eq!(turn.record.take_end().is_some(), ends);
        let event = service.seen.lock()[0].clone();
        assert_eq!(event["hook_event_name"], "PermissionRequest");
        assert_eq!(event["tool_input"], json!({"n": 1}));
    }
}

#[test]
fn tools_are_matched_by_their_names() {
    let hook = |on, tools: Option<&[&str]>| HookSettings {
        on,
        tools: tools.map(|tools| tools.iter().map(|&tool| tool.to_owned()).collect()),
        service: HookServiceSettings {
            url: "http://127.0.0.1:1/".parse().unwrap(),
            headers: HeaderMap::new(),
            secret: None,
            timeout: Duration::from_secs(1),
            max_answer_bytes: 1,
            on_failure: LENIENT,
        },
    };
    let settings = Settings {
        hooks: vec![
            hook(HookPoint::BeforeTool, Some(&["files__*", "charge"])),
            hook(HookPoint::BeforeTool, None),
            hook(HookPoint::AfterTool, None),
        ],
        ..Settings::default()
    };
    let hooks = Hooks::new(&settings, Arc::new(Failures::default())).unwrap();
    for (tool, expected) in [("files__read", 2), ("charge", 2), ("charges", 1)] {
        assert_eq!(hooks.about(HookPoint::BeforeTool, tool).count(), expected);
    }
    assert!(!hooks.has(HookPoint::BeforeModel));
}
