mod endings;
mod gate;
mod live_output;

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use super::*;
use crate::gate::Verdict;
use crate::refusal::CancelledCall;
use crate::{Tool, ToolError, ToolInvocation, ToolPolicy, ToolSource};
use protocol::openai::tool::ToolDefinition;

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
        policy: ToolPolicy::new(ToolSource::Dispatch, seconds(30)),
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
        hook_context: None,
        trace: None,
        started: Arc::default(),
        asks_to_start: false,
    };
    waits.iter().enumerate().map(call).collect()
}

/// Notes that it was dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
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
        BatchEvent::Starting { index, .. } => (index, "starts".to_owned()),
        BatchEvent::Waiting { index, wait, .. } => (index, format!("waits for {}", wait.id)),
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

#[tokio::test]
async fn work_grows_with_the_calls_and_no_faster() {
    const CALLS: usize = 3000;
    const POLLS: usize = 3;
    for at_a_time in [1, 8, usize::MAX] {
        let polls = Arc::new(AtomicUsize::new(0));
        let counter = polls.clone();
        let tool = fake(move |_| {
            let polls = counter.clone();
            async move {
                for _ in 0..POLLS {
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
        assert_eq!(polls.load(Ordering::Relaxed), CALLS * POLLS);
        // This takes far less. It would take longer if each call polled all others, which is ten million steps.
        assert!(started.elapsed() < seconds(20), "{:?}", started.elapsed());
    }
}
