//! Servers that send too much, or what they should not.

use std::time::Instant;

use serde_json::json;

use super::{fake, in_state, record, result, server, start};
use crate::support::app::TestApp;
use crate::support::ask::ask;

#[tokio::test]
async fn endless_pages_and_floods_of_tools_are_cut() {
    let toml = fake::server("pages", "pages", "")
        + &fake::server("flood", "flood", "")
        + &fake::server("many", "many", "");
    let (app, _upstream) = start(&toml).await;
    let count = async |name| {
        let found = in_state(app.client(), name, "ready").await;
        found["tools"].as_array().unwrap().len()
    };
    assert_eq!(count("pages").await, 100);
    assert_eq!(count("flood").await, 1000);
    assert_eq!(count("many").await, 200);
    assert_eq!(
        result(app.client(), "many__tool_199", json!({})).await,
        "called tool_199"
    );
    assert!(app.logs().contains("too many pages"), "{}", app.logs());
}

#[tokio::test]
async fn huge_and_malformed_tools_are_left_out_and_the_others_stay() {
    let (app, _upstream) = start(&fake::server("fake", "huge", "")).await;
    let found = in_state(app.client(), "fake", "ready").await;
    assert_eq!(
        found["tools"],
        json!(["fake__echo", "fake__a_name_with_signs"])
    );
}

#[tokio::test]
async fn names_that_are_taken_get_a_number() {
    let settings =
        "[[tools]]\nname = \"x_echo\"\ndescription = \"d\"\nurl = \"http://127.0.0.1:1/\"\n";
    let toml = [
        settings.to_owned(),
        fake::server(
            "a",
            "",
            "tool_prefix = \"x_\"\nallowed_tools = [\"echo\", \"read\"]",
        ),
        fake::server(
            "b",
            "",
            "tool_prefix = \"x_\"\nallowed_tools = [\"read\", \"echo\"]",
        ),
    ];
    let (app, upstream) = start(&toml.concat()).await;
    assert_eq!(
        result(app.client(), "x_echo_3", json!({"text": "b"})).await,
        "b"
    );
    let names = upstream.request(0).tool_names();
    assert_eq!(
        names,
        ["x_echo", "x_echo_2", "x_read", "x_echo_3", "x_read_2"]
    );
}

#[tokio::test]
async fn an_answer_that_is_too_large_fails_its_call_alone() {
    let (app, _upstream) = start(&fake::server("fake", "", "")).await;
    let before = result(app.client(), "fake__remember", json!({"fact": "a"})).await;
    let call = record(
        app.client(),
        "fake__big",
        json!({"bytes": 10 * 1024 * 1024}),
    )
    .await;
    assert_eq!(call["status"], "error", "{}", call["result_content"]);
    let content = call["result_content"].as_str().unwrap();
    assert!(content.contains("larger than 4194304 bytes"), "{content}");
    let call = record(app.client(), "fake__big", json!({"bytes": 1024 * 1024})).await;
    assert_eq!(call["status"], "ok");
    // The same process, with what it knows.
    assert_eq!(
        result(app.client(), "fake__remember", json!({})).await,
        before
    );
}

#[tokio::test]
async fn endless_progress_and_repeated_ids_do_no_harm() {
    let (app, _upstream) = start(&fake::server("fake", "", "")).await;
    let collected = app
        .stream_chat(ask("fake__endless {}"))
        .await
        .collect()
        .await;
    let chunks = collected.progress.iter().map(|progress| &progress.chunk);
    let outputs = chunks.filter(|chunk| chunk["type"] == "agentic_tool_output");
    assert!(outputs.count() < 1000);
    assert_eq!(
        result(app.client(), "fake__twice", json!({})).await,
        "first"
    );
    assert_eq!(
        result(app.client(), "fake__echo", json!({"text": "x"})).await,
        "x"
    );
    assert_eq!(server(app.client(), "fake").await["state"], "ready");
}

/// The memory of the process, in MiB.
fn resident(app: &TestApp) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", app.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() / 1024
}

#[tokio::test]
async fn servers_that_never_stop_printing_harm_no_other_and_take_no_memory() {
    let toml = fake::server("noise", "noise_flood", "")
        + &fake::server("notices", "notice_flood", "")
        + &fake::server("fake", "", "");
    let (app, _upstream) = start(&toml).await;
    for name in ["noise", "notices", "fake"] {
        in_state(app.client(), name, "ready").await;
    }
    let before = resident(&app);
    let began = Instant::now();
    for _ in 0..3 {
        for name in ["fake__echo", "noise__echo", "notices__echo"] {
            let echoed = result(app.client(), name, json!({"text": "x"})).await;
            assert_eq!(echoed, "x", "{name}");
        }
    }
    let after = resident(&app);
    assert!(after < before + 64, "from {before} to {after} MiB");
    let lists = result(app.client(), "notices__lists", json!({})).await;
    let lists: u64 = lists.parse().unwrap();
    // One in a second.
    let most = 20 + began.elapsed().as_secs();
    assert!((1..most).contains(&lists), "{lists} lists");
    // Once for each server: the runner of the tests prints some lines too.
    let said = app.logs().matches("standard output").count();
    assert_eq!(said, 3, "{}", app.logs());
}
