//! Several replicas: how they name themselves, and behind nginx with the configuration that comes with loopwright.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::support::app::TestApp;
use super::support::ask::{ask, with};
use super::support::client::Client;
use super::support::eventually;
use super::support::script::text;
use super::support::server::Gate;
use super::support::upstream::ScriptedUpstream;

const REPLICA: &str = "x-loopwright-replica";

/// A request for the loop, which is not passed through.
fn in_session() -> Value {
    with(ask("x"), "session_id", json!("s"))
}

async fn replica(upstream: &ScriptedUpstream, name: &str) -> TestApp {
    let builder = TestApp::builder().args(["--replica-name", name]);
    builder.upstream(upstream).start().await
}

#[tokio::test]
async fn every_answer_names_its_replica_if_it_has_a_name() {
    let replies = || [text("One."), text("Two.")];
    let upstream = ScriptedUpstream::start(replies()).await;
    let app = replica(&upstream, "gpu-1.a_b").await;
    let stream = app.stream_chat(in_session()).await;
    assert_eq!(stream.headers()[REPLICA], "gpu-1.a_b");
    stream.collect().await;
    for answer in [
        app.post_chat(ask("x")).await,
        app.get("/readyz").await,
        app.get("/v1/files/none").await,
        app.get("/nowhere").await,
    ] {
        assert_eq!(
            answer.header(REPLICA),
            Some("gpu-1.a_b"),
            "{}",
            answer.text()
        );
    }
    let upstream = ScriptedUpstream::start(replies()).await;
    let app = TestApp::with_upstream(&upstream).await;
    assert_eq!(app.post_chat(ask("x")).await.header(REPLICA), None);
}

/// Nothing of nginx is left behind when this process is killed.
const ONE_PROCESS: &str = "daemon off; master_process off;";

/// nginx with the configuration of docker/nginx.conf; it ends with this handle.
struct Balancer {
    client: Client,
    _process: Child,
    _folder: TempDir,
}

impl Balancer {
    async fn start(replicas: [&TestApp; 2]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docker/nginx.conf");
        let mut config = std::fs::read_to_string(file).unwrap();
        // Free a moment ago; nginx cannot choose a port of its own.
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let own = format!("{}/", folder.path().display());
        let hosts = replicas.map(|app| app.origin().trim_start_matches("http://").to_owned());
        for (ours, theirs) in [
            ("/tmp/", own.as_str()),
            ("listen 8080", &format!("listen {address}")),
            ("replica-1:8080", &hosts[0]),
            ("replica-2:8080", &hosts[1]),
        ] {
            assert!(config.contains(ours), "no {ours} in the configuration");
            config = config.replace(ours, theirs);
        }
        let path = folder.path().join("nginx.conf");
        std::fs::write(&path, config).unwrap();
        let process = Command::new("nginx")
            .args(["-e", "stderr", "-g", ONE_PROCESS, "-p", &own, "-c"])
            .arg(&path)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        eventually("nginx to listen", async || {
            tokio::net::TcpStream::connect(address).await.ok()
        })
        .await;
        Self {
            client: Client::new(&format!("http://{address}")),
            _process: process,
            _folder: folder,
        }
    }
}

#[tokio::test]
#[ignore = "needs nginx"]
async fn behind_nginx_events_come_at_once() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::start([text("One. Two.").gate_before(2, &gate)]).await;
    let replicas = [
        replica(&upstream, "one").await,
        replica(&upstream, "two").await,
    ];
    let balancer = Balancer::start(replicas.each_ref()).await;
    let mut stream = balancer.client.stream_chat(in_session()).await;
    // The rest is not there yet, so that nothing could wait for it.
    stream.next_chunk().await;
    gate.reached(1).await;
    gate.open();
    let collected = stream.collect().await;
    assert!(collected.transcript().contains("stop"));
}

#[tokio::test]
#[ignore = "needs nginx"]
async fn behind_nginx_a_session_stays_on_its_replica_until_that_is_gone() {
    let upstream =
        ScriptedUpstream::start((0..24).map(|_| text("Hello.")).collect::<Vec<_>>()).await;
    let [mut one, two] = [
        replica(&upstream, "one").await,
        replica(&upstream, "two").await,
    ];
    let balancer = Balancer::start([&one, &two]).await;
    let mut used = BTreeSet::new();
    let mut of_one = None;
    for number in 0..8 {
        let id = format!("session-{number}");
        let client = balancer.client.header("x-session-id", &id);
        let mut names = BTreeSet::new();
        for _ in 0..2 {
            let answer = client.post_chat(ask("x")).await;
            names.insert(answer.header(REPLICA).unwrap().to_owned());
        }
        // Found on that replica, though only the path names it.
        let stored = balancer.client.get(&format!("/v1/sessions/{id}")).await;
        assert_eq!(stored.status, 200, "{}", stored.text());
        names.insert(stored.header(REPLICA).unwrap().to_owned());
        assert_eq!(names.len(), 1, "{id} was on {names:?}");
        if names.contains("one") {
            of_one = Some(id);
        }
        used.extend(names);
    }
    assert_eq!(used.len(), 2, "all sessions were on {used:?}");
    // A browser is kept by its cookie.
    let first = balancer.client.get("/v1/sessions").await;
    let cookie = first
        .header("set-cookie")
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let name = {
        let kept = balancer.client.header("cookie", &cookie);
        let answer = kept.get("/v1/sessions").await;
        assert_eq!(answer.header("set-cookie"), None);
        answer.header(REPLICA).unwrap().to_owned()
    };
    assert_eq!(first.header(REPLICA), Some(name.as_str()));
    // Only a connection that is just being closed can fail a request.
    one.kill9().await;
    let client = balancer.client.header("x-session-id", &of_one.unwrap());
    eventually("the other replica to answer", async || {
        let answer = client.get("/v1/sessions").await;
        (answer.header(REPLICA) == Some("two")).then_some(())
    })
    .await;
}
