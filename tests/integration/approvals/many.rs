//! Many turns that wait at once: nothing is held for them, and they survive a restart.

use futures_util::future::join_all;

use super::{
    Client, ScriptedUpstream, ask_with, calls, charge, decided, go_on, hook, json, pay, question,
    server, text, with,
};

/// Turns that wait.
const TURNS: usize = 200;

#[tokio::test]
#[expect(clippy::print_stdout, reason = "the figure is reported")]
async fn two_hundred_turns_wait_without_a_model_and_survive_a_restart() {
    let upstream = ScriptedUpstream::answering(|request| match request.messages().len() {
        1 => calls([charge(5)]),
        _ => text("Paid."),
    })
    .await;
    let hook = hook().await;
    let mut app = server(&upstream, &hook, "").start().await;
    let of_session = |number: usize, body| with(body, "session_id", json!(format!("s{number}")));
    let before = memory(app.pid());
    let waiting = async |client: &Client, number| {
        let mut stream = client.stream_chat(of_session(number, pay())).await;
        let asked = question(&mut stream).await;
        (stream, asked)
    };
    let client = app.client().clone();
    let streams = join_all((0..TURNS).map(|number| waiting(&client, number))).await;
    let each = memory(app.pid()).saturating_sub(before) / TURNS;
    println!("{each} KiB for each turn that waits in its stream");
    assert!(each < 1024, "{each} KiB for each turn");
    assert_eq!(upstream.requests().len(), TURNS);
    // Another turn has the model at once.
    let other = with(
        ask_with("Read", ["read"]),
        "messages",
        json!([
        {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]),
    );
    assert_eq!(client.post_chat(other).await.content(), "Paid.");
    app.kill9().await;
    app.restart().await;
    let listed = app.get("/v1/agent/approvals").await.json();
    assert_eq!(listed["data"].as_array().unwrap().len(), TURNS);
    for number in [0, TURNS - 1] {
        decided(
            app.client(),
            &streams[number].1,
            json!({"decision": "approve"}),
        )
        .await;
        let answer = app.post_chat(of_session(number, go_on())).await;
        assert_eq!(answer.content(), "Paid.");
    }
    assert_eq!(hook.calls().len(), 2);
}

/// The memory of a process in KiB.
fn memory(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
