//! The life of servers: slow and failing starts, crashes, ends.

use std::time::Instant;

use futures_util::future::join_all;
use serde_json::json;

use super::{fake, gone, in_state, is_alive, record, result, server, start};
use crate::support::app::TestApp;
use crate::support::ask::ask;
use crate::support::script::text;
use crate::support::upstream::ScriptedUpstream;
use crate::support::{AT_ONCE, eventually};

#[tokio::test]
async fn a_server_that_hangs_or_fails_delays_the_start_only_so_long_and_harms_no_other() {
    let toml = [
        "mcp_start_timeout = 2\n".to_owned(),
        fake::server("hangs", "silent", ""),
        fake::server("ends", "exit", ""),
        "[mcp_servers.absent]\ncommand = \"no-such-program\"\n".to_owned(),
        "[mcp_servers.far]\nurl = \"http://127.0.0.1:1/mcp\"\n".to_owned(),
        fake::server("fake", "", ""),
    ];
    let before = Instant::now();
    let (app, _upstream) = start(&toml.concat()).await;
    assert!(before.elapsed() < AT_ONCE, "{:?}", before.elapsed());
    for (name, part) in [
        ("hangs", "within 2 s"),
        ("ends", "status 7"),
        ("absent", "could not be started"),
        ("far", "cannot be reached"),
    ] {
        let down = in_state(app.client(), name, "down").await;
        // On a busy machine a process may also be too slow at first.
        eventually(&format!("the reason of {name}, {part}"), || async {
            let found = server(app.client(), name).await;
            found["reason"].as_str()?.contains(part).then_some(())
        })
        .await;
        assert_eq!(down["tools"], json!([]), "{down}");
    }
    in_state(app.client(), "fake", "ready").await;
    assert_eq!(
        result(app.client(), "fake__echo", json!({"text": "x"})).await,
        "x"
    );
    let ready = app.get("/readyz").await;
    assert_eq!(ready.status, 200);
    assert_eq!(ready.json()["mcp_servers"]["ends"]["state"], "down");
    assert!(app.logs().contains("no licence found"), "{}", app.logs());
}

#[tokio::test]
async fn a_server_that_crashes_comes_back() {
    let (app, _upstream) = start(&fake::server("fake", "", "")).await;
    for _ in 0..3 {
        let call = record(app.client(), "fake__crash", json!({})).await;
        assert_eq!(call["status"], "error", "{call}");
        let content = call["result_content"].as_str().unwrap();
        assert!(content.contains("status 3"), "{content}");
        // The next call waits until the server is there again.
        let echoed = eventually("the server to be back", || async {
            let echoed = result(app.client(), "fake__echo", json!({"text": "x"})).await;
            (echoed == "x").then_some(echoed)
        });
        assert_eq!(echoed.await, "x");
    }
}

#[tokio::test]
async fn nothing_is_left_of_a_server_when_the_process_is_killed() {
    let (mut app, _upstream) = start(&fake::server("fake", "stays", "")).await;
    let ids = result(app.client(), "fake__spawn", json!({})).await;
    let ids: Vec<&str> = ids.split(' ').collect();
    assert!(
        ids.len() == 2 && ids.iter().all(|id| is_alive(id)),
        "{ids:?}"
    );
    app.kill9().await;
    for id in ids {
        gone(id).await;
    }
}

#[tokio::test]
async fn nothing_is_left_of_a_server_when_the_process_is_asked_to_end() {
    let toml = format!("shutdown_grace = 1\n{}", fake::server("fake", "stays", ""));
    let (mut app, _upstream) = start(&toml).await;
    let ids = result(app.client(), "fake__spawn", json!({})).await;
    app.terminate().await;
    assert_eq!(app.wait_exit().await.code(), Some(0), "{}", app.logs());
    for id in ids.split(' ') {
        gone(id).await;
    }
}

#[tokio::test]
async fn a_configuration_that_cannot_work_is_refused() {
    for (toml, key, part) in [
        ("[mcp_servers.a]\n", "mcp_servers.a.command", "is missing"),
        (
            "[mcp_servers.a]\ncommand = \"x\"\nurl = \"http://h/\"\n",
            "mcp_servers.a.url",
            "remove one",
        ),
        (
            "[mcp_servers.a]\nurl = \"ftp://h/\"\n",
            "mcp_servers.a.url",
            "ftp",
        ),
        (
            "[mcp_servers.a]\ncommand = \"${NO_SUCH}\"\n",
            "mcp_servers.a.command",
            "NO_SUCH is not set",
        ),
        (
            "[mcp_servers.a]\ncommand = \"x\"\ntool_prefix = \"a b\"\n",
            "mcp_servers.a.tool_prefix",
            "letters",
        ),
        (
            "mcp_config = \"absent.json\"\n",
            "mcp_config",
            "absent.json",
        ),
    ] {
        let upstream = ScriptedUpstream::start([]).await;
        let ended = TestApp::builder()
            .upstream(&upstream)
            .toml(toml)
            .run("check-config")
            .await;
        assert_eq!(ended.code, Some(2), "{toml}");
        assert!(
            ended.stderr.contains(key) && ended.stderr.contains(part),
            "{toml}: {}",
            ended.stderr
        );
    }
}

#[tokio::test]
async fn the_file_that_every_client_has_is_read() {
    let exe = std::env::current_exe().unwrap();
    let arguments = json!([
        "--exact",
        "mcp::fake::serve",
        "--include-ignored",
        "--nocapture"
    ]);
    let file = json!({
        "mcpServers": {
            "second": {"command": exe, "args": arguments, "disabled": true, "autoApprove": ["x"]},
            "first": {"command": exe, "args": arguments, "env": {"FAKE_MODE": "${MODE:-noise}"}, "timeout_ms": 5000},
        },
        "servers": [
            {"name": "theirs", "source": {"type": "Process", "command": exe, "args": arguments}, "tool_prefix": "t"},
        ],
    });
    let upstream = ScriptedUpstream::answering(super::model).await;
    let mut builder = TestApp::builder().upstream(&upstream);
    std::fs::write(builder.dir().join("mcp.json"), file.to_string()).unwrap();
    let app = builder.args(["--mcp-config", "mcp.json"]).start().await;
    assert_eq!(
        result(app.client(), "first__echo", json!({"text": "x"})).await,
        "x"
    );
    assert_eq!(
        result(app.client(), "t_echo", json!({"text": "y"})).await,
        "y"
    );
    assert!(server(app.client(), "second").await.is_null());
    assert!(app.logs().contains("autoApprove"), "{}", app.logs());
}

#[tokio::test]
async fn a_server_that_is_down_offers_nothing() {
    let upstream = ScriptedUpstream::start([text("x")]).await;
    let toml = format!(
        "mcp_start_timeout = 0.5\n{}",
        fake::server("hangs", "silent", "")
    );
    let app = TestApp::builder()
        .upstream(&upstream)
        .toml(&toml)
        .start()
        .await;
    app.post_chat(ask("Go")).await.completion();
    assert_eq!(upstream.last().tool_names(), [""; 0]);
}

#[tokio::test]
async fn check_config_tries_the_servers() {
    let good = fake::server("fake", "", "allowed_tools = [\"echo\"]");
    let bad = fake::server("ends", "exit", "");
    for (toml, code, parts) in [
        (
            good.clone(),
            0,
            ["# fake: ready, 1 tools", "#   fake__echo"],
        ),
        (good + &bad, 1, ["# fake: ready, 1 tools", "# ends: down: "]),
    ] {
        let upstream = ScriptedUpstream::start([]).await;
        let builder = TestApp::builder().upstream(&upstream).toml(&toml);
        let ended = builder.args(["--connect"]).run("check-config").await;
        assert_eq!(ended.code, Some(code), "{}", ended.stderr);
        for part in parts {
            assert!(ended.stdout.contains(part), "{part}: {}", ended.stdout);
        }
    }
}

#[tokio::test]
async fn operators_see_states_and_restarts() {
    let toml = fake::server("fake", "", "") + &fake::server("ends", "exit", "");
    let (app, _upstream) = start(&toml).await;
    record(app.client(), "fake__crash", json!({})).await;
    eventually("the figures", || async {
        let page = app.get("/metrics").await.text();
        let has = |line: &str| page.lines().any(|found| found == line);
        let up = has("loopwright_mcp_server_up{server=\"fake\"} 1");
        let restarted = has("loopwright_mcp_server_restarts_total{server=\"fake\"} 1");
        (up && restarted && has("loopwright_mcp_server_up{server=\"ends\"} 0")).then_some(())
    })
    .await;
    // A tool that was not there at the start.
    record(app.client(), "fake__change", json!({})).await;
    eventually("the new tool", || async {
        let found = server(app.client(), "fake").await["tools"].to_string();
        found.contains("fake__extra").then_some(())
    })
    .await;
    record(app.client(), "fake__extra", json!({})).await;
    let page = app.get("/metrics").await.text();
    for series in [
        "loopwright_tool_calls_total{tool=\"fake__crash\",status=\"error\"} 1",
        "loopwright_tool_calls_total{tool=\"fake__extra\",status=\"ok\"} 1",
        "loopwright_tool_duration_seconds_count{tool=\"fake__extra\"} 1",
    ] {
        assert!(page.contains(series), "{series}: {page}");
    }
}

/// The processes that a process has started.
fn children(of: u32) -> usize {
    let stats = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = stats.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    let parents = stats.filter_map(|stat| {
        let (_, after) = stat.rsplit_once(") ")?;
        after.split(' ').nth(1)?.parse::<u32>().ok()
    });
    parents.filter(|parent| *parent == of).count()
}

/// Two hundred crashes of twenty-five servers, as each crash is followed by the delay before a start.
#[tokio::test]
async fn nothing_is_left_after_many_crashes() {
    let names: Vec<String> = (0..25).map(|number| format!("s{number}")).collect();
    let toml: Vec<String> = names
        .iter()
        .map(|name| fake::server(name, "", "allowed_tools = [\"spawn\", \"crash\"]"))
        .collect();
    let (app, _upstream) = start(&toml.concat()).await;
    let crash = async |name: &str| {
        let mut left = Vec::new();
        for _ in 0..8 {
            let spawn = format!("{name}__spawn");
            let ids = eventually("the server to be back", || async {
                let ids = result(app.client(), &spawn, json!({})).await;
                (ids.split(' ').count() == 2).then_some(ids)
            })
            .await;
            left.extend(ids.split(' ').map(ToOwned::to_owned));
            record(app.client(), &format!("{name}__crash"), json!({})).await;
        }
        left
    };
    let left = join_all(names.iter().map(|name| crash(name))).await;
    let left: Vec<String> = left.concat();
    assert_eq!(left.len(), 400);
    for id in left {
        gone(&id).await;
    }
    eventually("one process for each server", || async {
        (children(app.pid()) == names.len()).then_some(())
    })
    .await;
}
