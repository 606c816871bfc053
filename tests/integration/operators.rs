//! What operators may see: the metrics of all keys, and why a server is not ready.

use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::json;
use tokio::sync::watch;

use crate::support::app::TestApp;
use crate::support::client::Client;
use crate::support::eventually;
use crate::support::server::{Arrived, HttpReply, Outgoing, Part, Server};
use crate::support::upstream::ScriptedUpstream;

const ALICE: &str = "alice-alice-alice";
const BOB: &str = "bob-bob-bob-bob-bob";

/// Two keys; `more` is added to the second.
fn keys(more: &str) -> String {
    format!(
        "[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"\n[[api_keys]]\nname = \"bob\"\nenv = \"BOB\"\n{more}"
    )
}

async fn start(upstream: &ScriptedUpstream, toml: &str) -> TestApp {
    let builder = TestApp::builder().upstream(upstream).toml(toml);
    builder.env("ALICE", ALICE).env("BOB", BOB).start().await
}

#[tokio::test]
async fn metrics_are_for_operators() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = start(&upstream, &keys("operator = true")).await;
    app.get("/metrics")
        .await
        .assert_error(401, Some("invalid_api_key"));
    let refused = app.client().key(ALICE).get("/metrics").await;
    let message = refused.assert_error(403, Some("operator_required"));
    assert!(message.contains("operator = true"), "{message}");
    let page = app.client().key(BOB).get("/metrics").await;
    assert_eq!(page.status, 200);
    assert!(page.text().contains("loopwright_requests_total"));
    assert!(!app.logs().contains("every API key"), "{}", app.logs());
}

#[tokio::test]
async fn while_no_key_is_an_operator_every_key_may_read_metrics_and_the_log_says_so() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = start(&upstream, &keys("")).await;
    assert_eq!(app.get("/metrics").await.status, 401);
    for key in [ALICE, BOB] {
        assert_eq!(app.client().key(key).get("/metrics").await.status, 200);
    }
    eventually("the warning in the log", || async {
        let logs = app.logs();
        logs.contains("every API key can read /metrics")
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_address_of_its_own_serves_metrics_without_a_key() {
    let upstream = ScriptedUpstream::start([]).await;
    let toml = format!(
        "metrics_listen = \"127.0.0.1:0\"\n{}",
        keys("operator = true")
    );
    let app = start(&upstream, &toml).await;
    let origin = eventually("the address in the log", || async {
        let logs = app.logs();
        let (_, rest) = logs.split_once("http://127.0.0.1:")?;
        let port = rest.split_once("/metrics")?.0;
        Some(format!("http://127.0.0.1:{port}"))
    })
    .await;
    let metrics = Client::new(&origin);
    let page = metrics.get("/metrics").await;
    assert_eq!(page.status, 200);
    assert!(page.text().contains("loopwright_requests_total"));
    for path in ["/v1/models", "/readyz", "/"] {
        metrics.get(path).await.assert_error(404, Some("not_found"));
    }
    metrics
        .post("/metrics", &json!({}))
        .await
        .assert_error(405, Some("method_not_allowed"));
    // The other address still asks for a key.
    assert_eq!(app.get("/metrics").await.status, 401);
    assert_eq!(app.client().key(ALICE).get("/metrics").await.status, 403);
}

#[tokio::test]
async fn details_of_readiness_are_for_those_who_may_send_requests() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = start(&upstream, &keys("")).await;
    let ready = json!({"status": "ok"});
    assert_eq!(app.get("/readyz").await.json(), ready);
    let wrong = app.client().key("wrong-wrong-wrong").get("/readyz").await;
    assert_eq!((wrong.status.as_u16(), wrong.json()), (200, ready.clone()));
    let mut details = json!({
        "status": "ok", "upstream": "ok", "session_store": "ok", "file_store": "ok",
        "upstreams": {"default": {"state": "ok", "url": upstream.base_url()}}, "version": env!("CARGO_PKG_VERSION"),
    });
    let right = app.client().key(ALICE).get("/readyz").await;
    assert_eq!(right.json(), details);

    // Without keys a page of another origin could read them through DNS rebinding.
    let app = start(&upstream, "").await;
    assert_eq!(app.get("/readyz").await.json(), details);
    let rebound = app.client().header("host", "evil.example");
    assert_eq!(rebound.get("/readyz").await.json(), ready);

    // If a key is marked as an operator's, the addresses are for such keys.
    let app = start(&upstream, &keys("operator = true")).await;
    let operator = app.client().key(BOB).get("/readyz").await;
    assert_eq!(operator.json(), details);
    let other = app.client().key(ALICE).get("/readyz").await;
    let facts = details["upstreams"]["default"].as_object_mut().unwrap();
    facts.remove("url");
    assert_eq!(other.json(), details);
}

/// The probe of a hanging upstream does not hold those who ask meanwhile, however many there are.
#[tokio::test]
async fn while_a_probe_runs_the_last_result_is_the_answer() {
    let (hangs, hanging) = (Arc::new(watch::channel(false).0), watch::channel(0).0);
    let (flag, reached) = (Arc::clone(&hangs), hanging.clone());
    let server = Server::start(Arc::new(move |arrived: Arrived| {
        drop(arrived);
        let models = r#"{"object":"list","data":[{"id":"m","object":"model"}]}"#;
        let mut reply = HttpReply::whole(200, "application/json", models);
        if *flag.borrow() {
            reply.before_head = vec![Part::Hang];
            reached.send_modify(|count| *count += 1);
        }
        async move { Outgoing::Scripted(reply) }.boxed()
    }))
    .await;
    let app = TestApp::builder()
        .upstream_url(&format!("http://{}/v1", server.addr()))
        .start()
        .await;
    assert_eq!(app.get("/readyz").await.status, 200);
    hangs.send_replace(true);
    let mut arrived = hanging.subscribe();
    let probing = loop {
        let client = app.client().clone();
        let mut asked = tokio::spawn(async move { client.get("/readyz").await });
        tokio::select! {
            found = arrived.wait_for(|count| *count > 0) => {
                found.unwrap();
                break asked;
            }
            early = &mut asked => assert_eq!(early.unwrap().status, 200),
        }
    };
    for _ in 0..20 {
        assert_eq!(app.get("/readyz").await.status, 200);
    }
    assert!(!probing.is_finished(), "the probe had ended");
    assert_eq!(probing.await.unwrap().status, 503);
    // The result of the probe is the answer from then on.
    assert_eq!(app.get("/readyz").await.status, 503);
}
