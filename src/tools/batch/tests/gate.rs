//! Calls before the gate.

use super::*;
use crate::gate::TurnPermissions;
use policy::rules::{Effect, Level, LevelName, Permissions};

/// Takes 60 s for the first call.
fn slow_for_the_first() -> Arc<Gate> {
    Gate::scripted(|call_id, _| async move {
        if call_id == "call_0" {
            sleep(seconds(60)).await;
        }
        Verdict::Run
    })
}

async fn outcome_at(
    gate: Arc<Gate>,
    calls: Vec<BatchCall>,
    limits: BatchLimits,
) -> Vec<(usize, String)> {
    run(calls, context(), gate, limits)
        .map(shown)
        .collect()
        .await
}

#[tokio::test(start_paused = true)]
async fn a_call_at_the_gate_takes_no_slot_and_none_of_the_tools_time() {
    let started = Arc::default();
    let batch = calls(sleeper(&started), &[2, 1, 1]);
    let events = outcome_at(slow_for_the_first(), batch, parallel(1)).await;
    let expected = [
        (1, "ok after 1: call_1"),
        (2, "ok after 1: call_2"),
        (0, "ok after 2: call_0"),
    ];
    assert_eq!(events, owned(&expected));
    let started: Vec<u64> = started.lock().iter().map(|(_, moment)| *moment).collect();
    assert_eq!(started, [0, 1, 60]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_a_decision_ends_and_holds_no_other_up() {
    for sequential in [false, true] {
        let started = Arc::default();
        let mut tool = sleeper(&started);
        tool.policy.sequential = sequential;
        let gate = Gate::scripted(|call_id, _| async move {
            match &*call_id {
                "call_0" => Verdict::Wait(Box::new(GateWait::example(0))),
                _ => Verdict::Run,
            }
        });
        let events = outcome_at(gate, calls(tool, &[1, 1]), parallel(8)).await;
        let waits = format!("waits for {}", GateWait::example(0).id.as_str());
        let expected = [(0, &*waits), (1, "ok after 1: call_1")];
        assert_eq!(events, owned(&expected));
        assert_eq!(started.lock().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_does_not_run() {
    let started = Arc::default();
    let gate = Gate::scripted(|call_id, _| async move {
        match &*call_id {
            "call_0" => Verdict::Refuse(CallRefusal {
                status: ToolStatus::Denied,
                text: "not today".into(),
            }),
            _ => Verdict::Run,
        }
    });
    let events = outcome_at(gate, calls(sleeper(&started), &[1, 1]), parallel(8)).await;
    let expected = [(0, "denied: not today"), (1, "ok after 1: call_1")];
    assert_eq!(events, owned(&expected));
    assert_eq!(started.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_runs_with_the_arguments_that_the_gate_gives_it() {
    let gate = Gate::scripted(|_, _| async {
        let changed = serde_json::json!({"seconds": 3});
        Verdict::RunWith(changed.as_object().unwrap().clone())
    });
    let batch = calls(sleeper(&Arc::default()), &[1]);
    let events: Vec<_> = run(batch, context(), gate, parallel(8)).collect().await;
    let [BatchEvent::Done { result, .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(result.duration, seconds(3));
    assert_eq!(
        result.changed_arguments.as_deref(),
        Some(r#"{"seconds":3}"#)
    );
}

#[tokio::test(start_paused = true)]
async fn the_deadline_cancels_a_call_that_waits_at_the_gate() {
    let started = Arc::default();
    let limits = BatchLimits {
        max_parallel: 8,
        deadline: Some(Instant::now() + seconds(5)),
    };
    let begin = Instant::now();
    let batch = calls(sleeper(&started), &[1]);
    let events = outcome_at(slow_for_the_first(), batch, limits).await;
    let cancelled = CallRefusal::out_of_time(CancelledCall::NotStarted).text;
    let cancelled = format!("cancelled: {cancelled}");
    let expected = [(0, cancelled.as_str())];
    assert_eq!(events, owned(&expected));
    assert_eq!(begin.elapsed(), seconds(5));
    assert!(started.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn dropping_the_stream_withdraws_a_request_at_the_gate() {
    let dropped = Arc::default();
    let watched: Arc<AtomicBool> = Arc::clone(&dropped);
    let gate = Gate::scripted(move |_, _| {
        let flag = Flag(watched.clone());
        async move {
            let _flag = flag;
            std::future::pending().await
        }
    });
    let batch = calls(sleeper(&Arc::default()), &[1]);
    let mut events = Box::pin(run(batch, context(), gate, parallel(8)));
    assert!(timeout(seconds(1), events.next()).await.is_err());
    assert!(!dropped.load(Ordering::SeqCst));
    drop(events);
    assert!(dropped.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn the_gate_refuses_what_is_not_permitted() {
    let started = Arc::default();
    let context = Arc::new(CallContext {
        permissions: TurnPermissions::new(Permissions::new(vec![Level {
            word: Some(Effect::Deny),
            ..Level::silent(LevelName::Server)
        }])),
        ..CallContext::example()
    });
    let batch = calls(sleeper(&started), &[1]);
    let events = run(batch, context, Arc::default(), parallel(8)).map(shown);
    let text = "denied: This call of 't' is not permitted. Answer without it.";
    assert_eq!(events.collect::<Vec<_>>().await, owned(&[(0, text)]));
    assert!(started.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_announced_call_starts_once_that_is_allowed() {
    let started = Arc::default();
    let mut batch = calls(sleeper(&started), &[1, 1, 1]);
    for call in &mut batch {
        call.asks_to_start = true;
    }
    let mut events = Box::pin(run(batch, context(), Arc::default(), parallel(8)));
    let mut starts = Vec::new();
    for _ in 0..3 {
        let Some(BatchEvent::Starting { index, start, .. }) = events.next().await else {
            panic!("no announcement");
        };
        starts.push((index, start));
    }
    sleep(seconds(5)).await;
    assert!(started.lock().is_empty());
    for (index, start) in starts {
        if index != 1 {
            start.allow();
        }
    }
    let mut ended: Vec<_> = events.map(shown).collect().await;
    ended.sort_unstable();
    let refused = format!("error: {}", CallRefusal::unwritten().text);
    let expected = [
        (0, "ok after 1: call_0"),
        (1, refused.as_str()),
        (2, "ok after 1: call_2"),
    ];
    assert_eq!(ended, owned(&expected));
    assert_eq!(started.lock().len(), 2);
}
