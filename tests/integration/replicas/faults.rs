//! Faults of the network between a replica and its database.

use std::time::Duration;

use http::Method;

use super::*;
use crate::support::collect::Collected;
use crate::support::events::EventReader;
use crate::support::fault_proxy::{FaultProxy, Network};
use crate::support::small_disk::SmallDisk;

/// A replica behind a network with faults, and a tool that answers its first call when the gate opens.
struct Stage {
    proxy: FaultProxy,
    app: TestApp,
    hook: Webhook,
    gate: Gate,
    upstream: ScriptedUpstream,
}

impl Stage {
    async fn start() -> Self {
        Self::with(&PostgresServer::shared().create_database().await, "r").await
    }

    /// The same with this database, and with this result of the call that the gate holds back.
    async fn with(database: &str, result: &str) -> Self {
        let proxy = FaultProxy::start(database).await;
        let upstream = ScriptedUpstream::answering(one_round).await;
        let gate = Gate::new();
        let hook = Webhook::start().await;
        let hook = hook
            .once("t", webhook::text("r"))
            .once("t", webhook::text(result).gated(&gate))
            .on("t", webhook::text("r"));
        let app = replica(&upstream, &hook, proxy.url()).await;
        Self {
            proxy,
            app,
            hook,
            gate,
            upstream,
        }
    }

    /// Has one turn acknowledged, and a second one wait for its tool.
    async fn in_a_turn(&self) -> EventReader {
        let before = self.app.post_chat(in_session("Before")).await;
        assert_eq!(before.content(), "re Before");
        let streamed = self.app.stream_chat(in_session("Go")).await;
        self.hook.called(2).await;
        streamed
    }

    /// The end of the turn that was in progress.
    async fn finished(&self, streamed: EventReader) -> Collected {
        self.gate.open();
        let streamed = streamed.collect().await;
        assert_eq!(streamed.text, "re Go");
        streamed
    }

    /// Waits until `/readyz` has a status. It may repeat an answer from before.
    async fn ready_status(&self, status: u16) {
        eventually("the status of /readyz", async || {
            (self.app.get("/readyz").await.status == status).then_some(())
        })
        .await;
    }

    /// Waits until turns are possible again; gives what users said in the session.
    async fn recovered(&self) -> Vec<String> {
        eventually("a turn after the fault", async || {
            let answer = self.app.post_chat(in_session("Again")).await;
            (answer.status == 200).then(|| assert_eq!(answer.content(), "re Again"))
        })
        .await;
        self.ready_status(200).await;
        let stored = self.app.get("/v1/sessions/s").await.json();
        let messages = stored["messages"].as_array().unwrap().iter();
        let said = messages.filter(|message| message["role"] == "user");
        said.map(|message| message["content"].as_str().unwrap().to_owned())
            .collect()
    }
}

fn has_store_notice(streamed: &Collected) -> bool {
    let notices = streamed.notices();
    notices
        .iter()
        .any(|notice| notice["kind"] == "session_store")
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_slow_network_only_makes_turns_slow() {
    let stage = Stage::start().await;
    stage.proxy.set(Network::Slow(Duration::from_millis(30)));
    let streamed = stage.in_a_turn().await;
    assert_eq!(stage.app.get("/healthz").await.status, 200);
    let streamed = stage.finished(streamed).await;
    assert!(!has_store_notice(&streamed), "{:?}", streamed.notices());
    assert_eq!(stage.recovered().await, ["Before", "Go", "Again"]);
    assert_eq!(whole_turns(stage.app.client()).await.len(), 3);
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_connection_that_is_cut_is_made_again_within_the_turn() {
    let stage = Stage::start().await;
    let streamed = stage.in_a_turn().await;
    stage.proxy.cut();
    assert_eq!(stage.app.get("/healthz").await.status, 200);
    let streamed = stage.finished(streamed).await;
    assert!(!has_store_notice(&streamed), "{:?}", streamed.notices());
    assert_eq!(stage.recovered().await, ["Before", "Go", "Again"]);
    assert_eq!(whole_turns(stage.app.client()).await.len(), 3);
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_database_that_refuses_connections_stops_no_stream() {
    let stage = Stage::start().await;
    let streamed = stage.in_a_turn().await;
    stage.proxy.set(Network::Refused);
    stage.ready_status(503).await;
    let streamed = stage.finished(streamed).await;
    assert!(has_store_notice(&streamed), "{:?}", streamed.notices());
    assert_eq!(stage.app.get("/healthz").await.status, 200);
    let refused = stage.app.post_chat(in_session("Meanwhile")).await;
    refused.assert_error(503, Some("session_store_unavailable"));
    stage.proxy.set(Network::Whole);
    assert_eq!(stage.recovered().await, ["Before", "Go", "Again"]);
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn connections_that_fall_silent_are_given_up_and_stop_no_stream() {
    let stage = Stage::start().await;
    let streamed = stage.in_a_turn().await;
    stage.proxy.set(Network::Silent);
    let ((), streamed) = tokio::join!(
        async {
            // While the statements of the turn wait.
            assert_eq!(stage.app.get("/healthz").await.status, 200);
            stage.ready_status(503).await;
        },
        stage.finished(streamed)
    );
    assert!(has_store_notice(&streamed), "{:?}", streamed.notices());
    // The connections from before stay silent; new ones are made.
    stage.proxy.set(Network::Whole);
    assert_eq!(stage.recovered().await, ["Before", "Go", "Again"]);
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_turn_that_has_lost_its_session_ends_with_an_error_and_writes_nothing() {
    let database = PostgresServer::shared().create_database().await;
    let stage = Stage::with(&database, "late").await;
    let other = replica(&stage.upstream, &stage.hook, &database).await;
    let streamed = stage.in_a_turn().await;
    let cut = Instant::now();
    stage.proxy.set(Network::Refused);
    // The other replica has the session before the lease has ended, because the database sees the end of the connection.
    let next = other.post_chat(in_session("Next")).await;
    assert_eq!(next.content(), "re Next");
    assert!(cut.elapsed() < AT_ONCE, "{:?}", cut.elapsed());
    let before = other.get("/v1/sessions/s").await.json();
    stage.proxy.set(Network::Whole);
    stage.ready_status(200).await;
    stage.gate.open();
    let error = streamed
        .collect()
        .await
        .error
        .expect("the turn has no session");
    assert_eq!(error["code"], "session_store_unavailable", "{error}");
    assert_eq!(other.get("/v1/sessions/s").await.json(), before);
    assert!(!before.to_string().contains("late"), "{before}");
    assert_eq!(stage.recovered().await, ["Before", "Go", "Next", "Again"]);
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_silent_replica_has_its_session_until_its_lease_ends() {
    const LEASE: u64 = 6;
    let database = PostgresServer::shared().create_database().await;
    let database = format!("{database}&lease_seconds={LEASE}");
    let stage = Stage::with(&database, "late").await;
    let other = replica(&stage.upstream, &stage.hook, &database).await;
    let streamed = stage.in_a_turn().await;
    let silent = Instant::now();
    stage.proxy.set(Network::Silent);
    let next = other.post_chat(in_session("Next")).await;
    assert_eq!(next.content(), "re Next");
    // It is renewed after a third of its time.
    let least = Duration::from_secs(LEASE * 2 / 3 - 1);
    assert!(silent.elapsed() >= least, "{:?}", silent.elapsed());
    drop(streamed);
}

/// A text that takes about this many bytes in the database, too, which compresses texts.
fn incompressible(bytes: usize) -> String {
    let mut state = 1u64;
    let letters = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        char::from(b'!' + u8::try_from(state >> 58).unwrap())
    });
    letters.take(bytes).collect()
}

#[tokio::test]
#[ignore = "needs root, namespaces and PostgreSQL"]
async fn a_full_disk_of_the_database_stops_no_stream_and_loses_nothing() {
    let mut disk = SmallDisk::start().await;
    let large = incompressible(60_000);
    let stage = Stage::with(&disk.database(), &large).await;
    let streamed = stage.in_a_turn().await;
    disk.fill().await;
    let streamed = stage.finished(streamed).await;
    assert!(has_store_notice(&streamed), "{:?}", streamed.notices());
    // A call that must be stored first is not made.
    let calls = stage.hook.calls().len();
    let new = with(in_session(&large), "session_id", json!("new"));
    let answer = stage.app.post_chat(new).await.completion();
    let notices = answer["agent"]["notices"].to_string();
    assert!(notices.contains("session_store"), "{notices}");
    assert_eq!(stage.hook.calls().len(), calls);
    let import = json!({"messages": [{"role": "user", "content": large}]});
    let import = || {
        stage
            .app
            .client()
            .send(Method::PUT, "/v1/sessions/imported", &import)
    };
    let message = import().await.assert_error(507, Some("storage_full"));
    assert!(message.contains("disk of the database"), "{message}");
    // What is stored can be read.
    let stored = stage.app.get("/v1/sessions/s").await;
    assert_eq!(stored.json()["messages"][0]["content"], "Before");
    disk.empty().await;
    assert_eq!(stage.recovered().await, ["Before", "Go", "Again"]);
    let imported = import().await;
    assert_eq!(imported.status, 201, "{}", imported.text());
}
