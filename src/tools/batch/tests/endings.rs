//! How calls end: time limits, the deadline, failures, panics and readers that leave.

use super::*;
use crate::OutputStatus;

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_too_long_times_out_alone() {
    let started = Arc::default();
    let mut tool = sleeper(&started);
    tool.policy.timeout = seconds(2);
    let events = outcome(calls(tool, &[5, 1, 2]), parallel(8)).await;
    let expected = [
        (1, "ok after 1: call_1"),
        // An answer in the very moment is an answer.
        (2, "ok after 2: call_2"),
        (0, "timeout after 2: the tool did not answer within 2 s"),
    ];
    let mut events = events;
    events[1..].sort_by_key(|(index, _)| 9 - index);
    assert_eq!(events, owned(&expected));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_cancels_what_runs_and_what_waits() {
    let started = Arc::default();
    let limits = BatchLimits {
        max_parallel: 2,
        deadline: Some(Instant::now() + seconds(4)),
    };
    let events = outcome(calls(sleeper(&started), &[1, 9, 9, 1]), limits).await;
    let text = |call| CallRefusal::out_of_time(call).text;
    let running = text(CancelledCall::Running);
    let cancelled = |took: u64| format!("cancelled after {took}: {running}");
    let not_started = format!("cancelled: {}", text(CancelledCall::NotStarted));
    let mut rest = events[1..].to_vec();
    rest.sort();
    assert_eq!(events[0], (0, "ok after 1: call_0".to_owned()));
    assert_eq!(
        rest,
        [(1, cancelled(4)), (2, cancelled(3)), (3, not_started)]
    );
    assert_eq!(begun(&started).len(), 3, "the last call was not made");
}

#[tokio::test(start_paused = true)]
async fn at_the_deadline_a_sequential_batch_tells_what_started_from_what_did_not() {
    for (read_only, call) in [
        (false, CancelledCall::Running),
        (true, CancelledCall::Reading),
    ] {
        let text = CallRefusal::out_of_time(call).text;
        assert_eq!(text.contains("may have taken effect"), !read_only);
        let started = Arc::default();
        let limits = BatchLimits {
            max_parallel: 8,
            deadline: Some(Instant::now() + seconds(4)),
        };
        let mut tool = sleeper(&started);
        tool.policy.sequential = true;
        tool.policy.read_only = read_only;
        let events = outcome(calls(tool, &[1, 9, 1, 1]), limits).await;
        let not_started = CallRefusal::out_of_time(CancelledCall::NotStarted).text;
        let not_started = format!("cancelled: {not_started}");
        let expected = [
            (0, "ok after 1: call_0".to_owned()),
            (1, format!("cancelled after 3: {text}")),
            (2, not_started.clone()),
            (3, not_started),
        ];
        assert_eq!(events, expected);
        assert_eq!(begun(&started), [0, 1]);
    }
}

#[tokio::test(start_paused = true)]
async fn failures_keep_to_their_call_and_tell_the_model_what_happened() {
    type Answer = fn(&str) -> Result<ToolOutput, ToolError>;
    let cases: [(Answer, &str); 5] = [
        (
            |_| Err(ToolError::Rejected("try again".into())),
            "error after 0: try again",
        ),
        (
            |_| {
                Err(ToolError::Failed {
                    message: "status 500".into(),
                    source: Some("http://secret".into()),
                })
            },
            "error after 0: status 500",
        ),
        (
            |_| Err(ToolError::TimedOut(seconds(7))),
            "timeout after 0: the tool did not answer within 7 s",
        ),
        (
            |content| {
                Ok(ToolOutput {
                    content: content.into(),
                    status: OutputStatus::Error,
                    ..ToolOutput::default()
                })
            },
            "error after 0: said so",
        ),
        (
            |_| panic!("secret"),
            "error after 0: the tool failed unexpectedly",
        ),
    ];
    for (act, expected) in cases {
        let started = Arc::default();
        let mut batch = calls(sleeper(&started), &[1, 0]);
        batch[1].tool = Arc::new(fake(move |_| async move { act("said so") }));
        let events = outcome(batch, parallel(8)).await;
        let expected = [(1, expected), (0, "ok after 1: call_0")];
        assert_eq!(events, owned(&expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_before_the_first_poll_and_one_after_a_wait_are_caught() {
    for early in [true, false] {
        let mut tool = fake(|_| async { answer("") });
        tool.act = Box::new(move |_| {
            assert!(!early, "while the future is made");
            Box::pin(async {
                sleep(seconds(1)).await;
                panic!("while it runs")
            })
        });
        let events = outcome(calls(tool, &[0]), parallel(8)).await;
        assert!(events[0].1.starts_with("error after"), "{events:?}");
        assert!(
            events[0].1.ends_with(&CallRefusal::panicked().text),
            "{events:?}"
        );
    }
}

fn hanging(dropped: &Arc<AtomicBool>) -> FakeTool {
    let dropped = dropped.clone();
    fake(move |_| {
        let flag = Flag(dropped.clone());
        async move {
            let _flag = flag;
            std::future::pending().await
        }
    })
}

#[tokio::test(start_paused = true)]
async fn dropping_the_stream_drops_the_calls() {
    let dropped = Arc::default();
    let mut events = Box::pin(run(
        calls(hanging(&dropped), &[0]),
        context(),
        Arc::default(),
        parallel(8),
    ));
    assert!(timeout(seconds(1), events.next()).await.is_err());
    assert!(!dropped.load(Ordering::SeqCst));
    drop(events);
    assert!(dropped.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn a_call_is_gone_when_its_end_is_reported() {
    let dropped = Arc::default();
    let mut tool = hanging(&dropped);
    tool.policy.timeout = seconds(2);
    let mut events = Box::pin(run(
        calls(tool, &[0]),
        context(),
        Arc::default(),
        parallel(8),
    ));
    assert!(matches!(
        events.next().await,
        Some(BatchEvent::Done { index: 0, .. })
    ));
    assert!(dropped.load(Ordering::SeqCst));
}
