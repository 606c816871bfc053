//! Live output of a call.

use futures_util::pin_mut;

use super::*;

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
