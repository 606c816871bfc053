//! Live output.

use super::*;

#[tokio::test]
async fn live_output_never_waits_and_a_slow_client_gets_it_joined() {
    let says = |stream, text: &str| (stream, text.to_owned());
    let scripted = Scripted {
        says: vec![
            says(OutputStream::Stdout, "1"),
            says(OutputStream::Stdout, "2"),
            says(OutputStream::Stdout, "3"),
            says(OutputStream::Stdout, "4"),
            says(OutputStream::Stderr, "5"),
        ],
        ..Scripted::new()
    };
    let code = CodeExecution::over(Interpreters::Scripted(Arc::new(scripted)));
    let (invocation, mut progress) = invocation(&json!({"code": "1"}));
    // Two pieces fit without a reader; the call ends nevertheless.
    tool(&code, EXECUTE_PYTHON).call(&invocation).await.unwrap();
    let mut seen = Vec::new();
    while let Ok(ToolProgress { text, stream }) = progress.try_recv() {
        seen.push(format!("{stream} {text}"));
    }
    assert_eq!(seen, ["stdout 1", "stdout 2"]);
}

#[test]
fn what_a_client_did_not_take_at_once_follows_joined_by_stream() {
    let (sender, mut progress) = mpsc::channel(1);
    let sender = ProgressSender(sender);
    let live = live::LiveOutput::new(&sender);
    for (stream, text) in [
        (OutputStream::Stdout, "a"),
        (OutputStream::Stdout, "b"),
        (OutputStream::Stdout, "c"),
        (OutputStream::Stderr, "d"),
    ] {
        live.output(stream, text);
    }
    let mut next = || {
        let ToolProgress { text, stream } = progress.try_recv().unwrap();
        live.flush();
        format!("{stream} {text}")
    };
    assert_eq!(
        [next(), next(), next()],
        ["stdout a", "stdout bc", "stderr d"]
    );
    assert!(progress.try_recv().is_err());
}

#[test]
fn live_output_is_bounded_and_says_so_once() {
    let (sender, mut progress) = mpsc::channel(16);
    let sender = ProgressSender(sender);
    let live = live::LiveOutput::new(&sender);
    for _ in 0..5 {
        live.output(OutputStream::Stdout, &"x".repeat(100 * 1024));
    }
    let mut text = String::new();
    while let Ok(piece) = progress.try_recv() {
        text.push_str(&piece.text);
    }
    assert_eq!(text.matches('x').count(), 256 * 1024);
    assert!(text.ends_with("x\n[more output is not shown live]\n"));
}
