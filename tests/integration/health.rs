//! `loopwright health` and `loopwright --version`, as an operator and a container use them.

use tokio::net::TcpListener;

use super::support::app::{Ended, TestApp, run_command};
use super::support::upstream::ScriptedUpstream;

const KEY: &str = "alice-key-0123456789";
const KEYS: &str = "[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"";

/// Runs the command with these words and variables.
async fn health(words: &[&str], variables: &[(&str, &str)]) -> Ended {
    run_command("health", words, variables).await
}

/// The one line of a failure.
fn cause(ended: &Ended) -> &str {
    assert_eq!((ended.code, &*ended.stdout), (Some(1), ""), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    let line = ended.stderr.trim_end();
    line.strip_prefix("loopwright: ").unwrap()
}

#[tokio::test]
async fn a_server_that_is_well_is_the_status_zero() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let address = app.origin().strip_prefix("http://").unwrap();
    let port = address.rsplit_once(':').unwrap().1;
    let any = format!("0.0.0.0:{port}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("listen = \"{any}\"\n")).unwrap();
    let file = file.path().to_str().unwrap();
    for (words, variables, path) in [
        (&["--url", app.origin()][..], &[][..], "/healthz"),
        (&["--url", app.origin(), "--ready"], &[], "/readyz"),
        (
            &["--listen", address, "--timeout", "500ms"],
            &[],
            "/healthz",
        ),
        (&["--listen", &any], &[], "/healthz"),
        (&["--config", file], &[], "/healthz"),
        (&[], &[("LOOPWRIGHT_LISTEN", &*any)], "/healthz"),
    ] {
        let ended = health(words, variables).await;
        assert_eq!(ended.code, Some(0), "{words:?}: {ended:?}");
        assert_eq!(ended.stdout, format!("{}{path}: ok\n", app.origin()));
        assert_eq!(ended.stderr, "");
    }
}

#[tokio::test]
async fn a_server_that_cannot_serve_is_alive_and_not_ready() {
    let builder = TestApp::builder().upstream_url("http://127.0.0.1:1/v1");
    let app = builder.env("ALICE", KEY).toml(KEYS).start().await;
    let url = ["--url", app.origin(), "--ready"];
    assert_eq!(health(&url[..2], &[]).await.code, Some(0));
    let ended = health(&url, &[]).await;
    assert!(
        cause(&ended).contains("is not ready: unavailable;"),
        "{ended:?}"
    );
    let ended = health(&url, &[("LOOPWRIGHT_API_KEY", KEY)]).await;
    let line = cause(&ended);
    assert!(
        line.contains("not ready: unavailable (upstream unreachable);"),
        "{line}"
    );
    assert!(!line.contains(KEY), "{line}");
}

#[tokio::test]
async fn what_is_no_well_server_is_the_status_one_with_the_cause() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("http://{}", listener.local_addr().unwrap());
    let upstream = ScriptedUpstream::start([]).await;
    let other = upstream.base_url();
    for (words, part) in [
        (
            &["--url", "http://127.0.0.1:1"][..],
            "cannot reach http://127.0.0.1:1: ",
        ),
        (
            &["--url", "http://127.0.0.1:1"],
            "name its address with --url",
        ),
        (
            &["--url", &silent, "--timeout", "0.2"],
            "does not answer within 0.2 s",
        ),
        (&["--url", &other], "does not answer as loopwright does"),
        (&["--url", "localhost"], "--url: is not the URL of a server"),
        (&["--timeout", "soon"], "--timeout: `soon` is not a time"),
        (&["--timeout", "0"], "--timeout: is no time to wait"),
        (&["--listen", "127.0.0.1:0"], "--listen: port 0"),
        (
            &["--config", "/nowhere.toml"],
            "--config: cannot read /nowhere.toml",
        ),
    ] {
        let ended = health(words, &[]).await;
        assert!(cause(&ended).contains(part), "{words:?}: {ended:?}");
    }
}

#[tokio::test]
async fn the_version_is_said() {
    let said = run_command("--version", &[], &[]).await.stdout;
    let version = format!("loopwright {}", env!("CARGO_PKG_VERSION"));
    assert!(said.starts_with(&version), "{said}");
}
