//! What an operator reads when a server starts, or does not start.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::time::{Instant, timeout};

use super::support::app::{Builder, TestApp};
use super::support::eventually;
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::Webhook;

/// What the log says of a store that was migrated.
const UPGRADED: &str = "the session store was brought up to date";

fn app() -> Builder {
    TestApp::builder().upstream_url("http://127.0.0.1:9/v1")
}

/// The file of the shipped database, in the directory of the server.
fn with_earlier_database(mut builder: Builder) -> Builder {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/integration/golden/database/sessions.sqlite");
    let place = builder.dir().join("sessions.db");
    std::fs::copy(kept, place).unwrap();
    builder
}

#[tokio::test]
async fn a_store_that_cannot_be_opened_is_named_with_its_setting() {
    for (store, make) in [("missing/deep/s.db", None), ("folder", Some("folder"))] {
        let mut builder = app().toml(&format!("session_store = \"sqlite:{store}\""));
        let dir = builder.dir().canonicalize().unwrap();
        make.iter()
            .for_each(|name| std::fs::create_dir(dir.join(name)).unwrap());
        let ended = builder.run("serve").await;
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        let path = dir.join(store).display().to_string();
        for part in [path.as_str(), "--session-store"] {
            assert!(ended.stderr.contains(part), "{}", ended.stderr);
        }
    }
    let mut builder = app();
    std::fs::write(
        builder.dir().join("sessions.db"),
        "this is no database, and long enough",
    )
    .unwrap();
    let ended = builder.run("serve").await;
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("sessions.db; set another one"),
        "{}",
        ended.stderr
    );
}

#[tokio::test]
async fn an_address_that_is_taken_is_named_with_its_setting() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    for (key, setting) in [("listen", "--listen"), ("metrics_listen", "metrics_listen")] {
        let ended = app()
            .toml(&format!("{key} = \"{address}\""))
            .run("serve")
            .await;
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        let part = format!("cannot listen on {address}; set another address with {setting}");
        assert!(ended.stderr.contains(&part), "{}", ended.stderr);
    }
}

#[tokio::test]
async fn the_log_says_what_a_server_starts_with_and_no_secret() {
    let upstream = ScriptedUpstream::start([]).await;
    let hook = Webhook::start().await;
    let tool = "enable_search = true\nsearch_url = \"http://127.0.0.1:9\"\ndispatch_tools = [\"crm_*\", \"get_*\"]\n\
                [[tools]]\nname = \"look\"\ndescription = \"Looks.\"\nurl = \"http://127.0.0.1:9/look?token=s3cret\"";
    let mut builder = TestApp::builder().upstream(&upstream);
    builder = builder
        .dispatch_url(&format!("{}?token=s3cret", hook.url()))
        .toml(tool);
    let store = builder.dir().canonicalize().unwrap().join("sessions.db");
    let app = builder.start().await;
    let line = eventually("the line of the log", || async {
        let logs = app.logs();
        logs.lines()
            .find(|line| line.contains("starting"))
            .map(ToOwned::to_owned)
    })
    .await;
    for part in [
        env!("CARGO_PKG_VERSION"),
        &format!("default {}", upstream.base_url()),
        &store.display().to_string(),
        "sessions-files",
        &hook.url(),
        "crm_*, get_*",
        "look",
        "searxng",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(!app.logs().contains("s3cret"), "{}", app.logs());
    assert!(
        !line.contains("mcp_servers") && !line.contains("code_isolation"),
        "{line}"
    );
}

#[tokio::test]
async fn an_upgraded_store_is_logged_once() {
    let fresh = app().start().await;
    assert!(fresh.logs().contains("starting"), "{}", fresh.logs());
    assert!(!fresh.logs().contains(UPGRADED), "{}", fresh.logs());
    let mut app = with_earlier_database(app()).start().await;
    assert!(app.logs().contains(UPGRADED), "{}", app.logs());
    // Only once: the database is of this version then.
    app.terminate().await;
    app.wait_exit().await;
    app.restart().await;
    assert!(!app.logs().contains(UPGRADED), "{}", app.logs());
}

#[tokio::test]
#[cfg_attr(not(feature = "mcp"), ignore = "needs the feature")]
async fn a_signal_ends_the_wait_for_mcp_servers() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("server.sh");
    std::fs::write(&script, "touch begun\nexec sleep 600\n").unwrap();
    let config = "upstream = \"http://127.0.0.1:9/v1\"\nlisten = \"127.0.0.1:0\"\nmcp_start_timeout = 300\n\
                  [mcp_servers.slow]\ncommand = \"/bin/sh\"\nargs = [\"server.sh\"]\n";
    std::fs::write(dir.path().join("loopwright.toml"), config).unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_loopwright"))
        .args(["serve", "--config", "loopwright.toml"])
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let begun = dir.path().join("begun");
    eventually("the MCP server", || async { begun.exists().then_some(()) }).await;
    let asked = Instant::now();
    let pid = server.id().unwrap().to_string();
    let killed = Command::new("/bin/sh")
        .args(["-c", &format!("kill -TERM {pid}")])
        .status()
        .await;
    assert!(killed.unwrap().success());
    let status = timeout(Duration::from_secs(60), server.wait())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(status.code(), Some(0), "after {:?}", asked.elapsed());
}

#[tokio::test]
#[cfg_attr(not(feature = "mcp"), ignore = "needs the feature")]
async fn an_mcp_server_that_cannot_be_started_is_named_with_its_program() {
    let server = "[mcp_servers.tickets]\ncommand = \"no-such-program\"";
    let app = app().toml(server).start().await;
    let line = eventually("the line of the log", || async {
        let logs = app.logs();
        let line = logs
            .lines()
            .find(|line| line.contains("MCP server is down"));
        line.map(ToOwned::to_owned)
    })
    .await;
    assert!(
        line.contains("tickets") && line.contains("no-such-program"),
        "{line}"
    );
}
