mod gate;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::pin_mut;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use super::*;
use crate::openai::tool::ToolDefinition;
use crate::tools::{OutputStatus, Tool, ToolKind, ToolPolicy, ToolSource};

type Act =
    dyn Fn(ToolInvocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> + Send + Sync;

/// A tool that does what a test tells it to.
struct FakeTool {
    definition: ToolDefinition,
    policy: ToolPolicy,
    act: Box<Act>,
}

impl std::fmt::Debug for FakeTool {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("FakeTool")
    }
}

impl Tool for FakeTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn policy(&self) -> &ToolPolicy {
        &self.policy
    }

    fn call<'a>(
        &'a self,
        invocation: &'a ToolInvocation,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        (self.act)(invocation.clone())
    }
}

fn fake<F>(act: impl Fn(ToolInvocation) -> F + Send + Sync + 'static) -> FakeTool
where
    F: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    FakeTool {
        definition: ToolDefinition::function("t", "", "{}"),
        policy: ToolPolicy {
            timeout: seconds(30),
            sequential: false,
            idempotent: false,
            source: ToolSource::Dispatch,
            kind: ToolKind::Custom,
        },
        act: Box::new(move |invocation| Box::pin(act(invocation))),
    }
}

fn answer(content: &str) -> Result<ToolOutput, ToolError> {
    Ok(ToolOutput {
        content: content.to_owned(),
        ..ToolOutput::default()
    })
}

/// A tool that answers after as many seconds as its argument says, and notes when it began.
fn sleeper(started: &Arc<Mutex<Vec<(String, u64)>>>) -> FakeTool {
    let (begin, started) = (Instant::now(), started.clone());
    fake(move |invocation| {
        let started = started.clone();
        async move {
            started
                .lock()
                .push((invocation.call_id.clone(), begin.elapsed().as_secs()));
            sleep(seconds(invocation.arguments["seconds"].as_u64().unwrap())).await;
            answer(&invocation.call_id)
        }
    })
}

fn calls(tool: FakeTool, waits: &[u64]) -> Vec<BatchCall> {
    let tool: SharedTool = Arc::new(tool);
    let call = |(index, wait): (usize, &u64)| BatchCall {
        index,
        tool: tool.clone(),
        name: "t".into(),
        arguments: [("seconds".to_owned(), (*wait).into())]
            .into_iter()
            .collect(),
        call_id: format!("call_{index}"),
    };
    waits.iter().enumerate().map(call).collect()
}

fn context() -> Arc<CallContext> {
    Arc::new(CallContext {
        round: 3,
        user: Some("u".into()),
        ..CallContext::example()
    })
}

fn parallel(max_parallel: usize) -> BatchLimits {
    BatchLimits {
        max_parallel,
        deadline: None,
    }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Runs to the end: of each event the call and what happened.
async fn outcome(calls: Vec<BatchCall>, limits: BatchLimits) -> Vec<(usize, String)> {
    let events = run(calls, context(), Arc::default(), limits);
    events.map(shown).collect().await
}

fn shown(event: BatchEvent) -> (usize, String) {
    match event {
        BatchEvent::Waiting { index, wait } => (index, format!("waits for {}", wait.id)),
        BatchEvent::Refused { index, refusal } => {
            let (status, text) = (refusal.status.as_str(), refusal.text);
            (index, format!("{status}: {text}"))
        }
        BatchEvent::Progress { index, progress } => (index, progress.text),
        BatchEvent::Done { index, result } => {
            let (status, output) = (result.status.as_str(), result.output.content);
            let took = result.duration.as_secs();
            (index, format!("{status} after {took}: {output}"))
        }
    }
}

fn owned(events: &[(usize, &str)]) -> Vec<(usize, String)> {
    events
        .iter()
        .map(|(index, text)| (*index, (*text).to_owned()))
        .collect()
}

fn begun(started: &Mutex<Vec<(String, u64)>>) -> Vec<u64> {
    let started = started.lock();
    for (index, (call_id, _)) in started.iter().enumerate() {
        assert_eq!(*call_id, format!("call_{index}"), "{started:?}");
    }
    started.iter().map(|(_, moment)| *moment).collect()
}

#[tokio::test(start_paused = true)]
async fn calls_start_in_order_and_end_as_they_finish() {
    let started = Arc::default();
    let events = outcome(calls(sleeper(&started), &[3, 1, 2]), parallel(8)).await;
    let expected = [
        (1, "ok after 1: call_1"),
        (2, "ok after 2: call_2"),
        (0, "ok after 3: call_0"),
    ];
    assert_eq!(events, owned(&expected));
    assert_eq!(begun(&started), [0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_run_at_a_time_than_allowed() {
    let started = Arc::default();
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, seen) = (running.clone(), most.clone());
    let inner = Arc::new(sleeper(&started));
    let tool = fake(move |invocation| {
        let (now, seen, inner) = (now.clone(), seen.clone(), inner.clone());
        async move {
            seen.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let answer = inner.call(&invocation).await;
            now.fetch_sub(1, Ordering::SeqCst);
            answer
        }
    });
    let events = outcome(calls(tool, &[5, 1, 1, 1, 1]), parallel(2)).await;
    assert_eq!(events.len(), 5);
    assert_eq!(most.load(Ordering::SeqCst), 2);
    assert_eq!(begun(&started), [0, 0, 1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn one_sequential_tool_makes_the_whole_batch_sequential() {
    let started = Arc::default();
    let mut batch = calls(sleeper(&started), &[3, 1, 2]);
    let mut alone = sleeper(&started);
    alone.policy.sequential = true;
    batch[2].tool = Arc::new(alone);
    let events = outcome(batch, parallel(8)).await;
    let order: Vec<usize> = events.iter().map(|(index, _)| *index).collect();
    assert_eq!(order, [0, 1, 2]);
    assert_eq!(begun(&started), [0, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn no_calls_are_no_events_and_a_limit_of_zero_is_one() {
    let started = Arc::default();
    assert_eq!(outcome(Vec::new(), parallel(8)).await, []);
    let events = outcome(calls(sleeper(&started), &[1, 1]), parallel(0)).await;
    assert_eq!(events.len(), 2);
    assert_eq!(begun(&started), [0, 1]);
}

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
    let cancelled = |took: u64| format!("cancelled after {took}: {CANCELLED_TEXT}");
    let mut rest = events[1..].to_vec();
    rest.sort();
    assert_eq!(events[0], (0, "ok after 1: call_0".to_owned()));
    assert_eq!(
        rest,
        [(1, cancelled(4)), (2, cancelled(3)), (3, cancelled(0))]
    );
    assert_eq!(begun(&started).len(), 3, "the last call was not made");
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
        assert!(events[0].1.ends_with(PANICKED_TEXT), "{events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_knows_what_it_belongs_to() {
    let tool = fake(|invocation| async move {
        let ToolInvocation { name, call_id, .. } = &invocation;
        let CallContext {
            round, model, user, ..
        } = &*invocation.context;
        answer(&format!("{name} {call_id} {round} {model} {user:?}"))
    });
    let events = outcome(calls(tool, &[0]), parallel(8)).await;
    let expected = [(0, r#"ok after 0: t call_0 3 m Some("u")"#)];
    assert_eq!(events, owned(&expected));
}

/// Says as many lines as its argument says, without a pause.
fn talker(sent: &Arc<AtomicUsize>) -> FakeTool {
    let sent = sent.clone();
    fake(move |invocation| {
        let sent = sent.clone();
        async move {
            for line in 0..invocation.arguments["seconds"].as_u64().unwrap() {
                let (text, stream) = (line.to_string(), "stdout");
                invocation
                    .progress
                    .send(ToolProgress { text, stream })
                    .await;
                sent.fetch_add(1, Ordering::SeqCst);
            }
            answer("end")
        }
    })
}

#[tokio::test(start_paused = true)]
async fn live_output_comes_whole_in_order_and_before_the_result() {
    let lines = 3 * PROGRESS_BUFFER as u64 + 1;
    let events = outcome(calls(talker(&Arc::default()), &[lines, 2]), parallel(8)).await;
    for (call, lines) in [(0, lines), (1, 2)] {
        let of_call = events.iter().filter(|(index, _)| *index == call);
        let texts: Vec<&str> = of_call.map(|(_, text)| text.as_str()).collect();
        let mut expected: Vec<String> = (0..lines).map(|line| line.to_string()).collect();
        expected.push("ok after 0: end".into());
        assert_eq!(texts, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_holds_the_tool_up() {
    let sent = Arc::default();
    let events = run(
        calls(talker(&sent), &[1000]),
        context(),
        Arc::default(),
        parallel(8),
    );
    pin_mut!(events);
    let mut read = 0;
    while let Some(event) = events.next().await {
        let ahead = sent.load(Ordering::SeqCst) - read;
        assert!(ahead <= PROGRESS_BUFFER + 1, "{ahead} lines ahead");
        if matches!(event, BatchEvent::Progress { .. }) {
            read += 1;
        }
        sleep(seconds(1)).await;
        if read == 20 {
            break;
        }
    }
    assert_eq!(read, 20);
}

#[tokio::test(start_paused = true)]
async fn live_output_from_elsewhere_does_not_outlive_the_call() {
    let kept = Arc::new(Mutex::new(None));
    let keep = kept.clone();
    let tool = fake(move |invocation| {
        *keep.lock() = Some(invocation.progress.clone());
        async { answer("end") }
    });
    let end = timeout(seconds(5), outcome(calls(tool, &[0]), parallel(8))).await;
    assert_eq!(end.unwrap(), owned(&[(0, "ok after 0: end")]));
    let sender = kept.lock().take().unwrap();
    let (text, stream) = (String::new(), "stdout");
    let sent = timeout(seconds(5), sender.send(ToolProgress { text, stream })).await;
    assert!(sent.is_ok(), "a late sender waits for nobody");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_waits_for_a_reader_still_times_out() {
    let mut tool = talker(&Arc::default());
    tool.policy.timeout = seconds(2);
    let events = run(
        calls(tool, &[u64::MAX]),
        context(),
        Arc::default(),
        parallel(8),
    );
    pin_mut!(events);
    let mut last = None;
    while let Some(event) = events.next().await {
        sleep(Duration::from_millis(100)).await;
        last = Some(event);
    }
    match last {
        Some(BatchEvent::Done { result, .. }) => assert_eq!(result.status, ToolStatus::Timeout),
        other => panic!("{other:?}"),
    }
}

/// Notes that it was dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
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

#[tokio::test]
async fn work_grows_with_the_calls_and_no_faster() {
    const CALLS: usize = 3000;
    const TURNS: usize = 3;
    for at_a_time in [1, 8, usize::MAX] {
        let polls = Arc::new(AtomicUsize::new(0));
        let counter = polls.clone();
        let tool = fake(move |_| {
            let polls = counter.clone();
            async move {
                for _ in 0..TURNS {
                    polls.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
                answer("")
            }
        });
        let done = run(
            calls(tool, &[0; CALLS]),
            context(),
            Arc::default(),
            parallel(at_a_time),
        )
        .filter(|event| std::future::ready(matches!(event, BatchEvent::Done { .. })))
        .count();
        let started = std::time::Instant::now();
        assert_eq!(done.await, CALLS);
        assert_eq!(polls.load(Ordering::Relaxed), CALLS * TURNS);
        // Next to nothing; ten million steps, should each call look at each other, take longer.
        assert!(started.elapsed() < seconds(20), "{:?}", started.elapsed());
    }
}
