//! The key that replicas have in common: who may ask at the internal address, and what others learn of it.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use standardwebhooks::Webhook as Signer;

use super::*;
use crate::support::server::{Arrived, HttpReply, Outgoing, Server};

/// What a replica is asked, as another one signs it.
#[derive(Clone)]
struct Asked<'a> {
    key: &'a str,
    method: &'a str,
    path: &'a str,
    address: &'a str,
    owner: &'a str,
    body: &'a str,
    seconds_ago: u64,
}

impl Asked<'_> {
    /// The headers of the signature.
    fn headers(&self) -> [(&'static str, String); 5] {
        let Self {
            method,
            path,
            address,
            owner,
            ..
        } = self;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let time = now.as_secs() - self.seconds_ago;
        let digest = STANDARD.encode(Sha256::digest(self.body));
        let digest = format!("sha-256=:{digest}:");
        let text = format!("request\n{method}\n{path}\n{address}\n{owner}\n{digest}");
        let signer = Signer::from_bytes(self.key.as_bytes().to_vec()).unwrap();
        let signature = signer.sign("msg_1", i64::try_from(time).unwrap(), text.as_bytes());
        [
            ("x-loopwright-owner", (*owner).to_owned()),
            ("content-digest", digest),
            ("webhook-id", "msg_1".to_owned()),
            ("webhook-timestamp", time.to_string()),
            ("webhook-signature", signature.unwrap()),
        ]
    }

    fn client(&self, client: &Client) -> Client {
        with_headers(client, &self.headers())
    }
}

fn with_headers(client: &Client, headers: &[(&str, String)]) -> Client {
    let add = |client: Client, (name, value): &(&str, String)| client.header(name, value);
    headers.iter().fold(client.clone(), add)
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn the_internal_address_is_for_replicas_with_the_key_alone() {
    let (upstream, hook) = hanging().await;
    let fleet = Fleet::new(upstream, hook).await;
    let settings = format!("{CLUSTER}{KEYS}");
    let first = fleet.member("first", &settings).start().await;
    let second = fleet.member("second", &settings);
    let second = second
        .env("CLUSTER_KEY", "another-key-0123456789")
        .start()
        .await;
    let stream = first.client().key(ALICE);
    let stream = stream.stream_chat(finishing(in_session("Go"))).await;
    let run = stream.run_id();
    fleet.hook.called(1).await;
    // It has another key, and says so to the operator alone.
    assert_unreachable(&no_events(&second.client().key(ALICE), &run).await);
    eventually("the cause in the log", || async {
        let logs = second.logs();
        logs.contains("refuses the signature").then_some(())
    })
    .await;

    let address = internal(&first).await;
    let state = path(&run);
    let right = Asked {
        key: CLUSTER_KEY,
        method: "GET",
        path: &state,
        address: address.origin(),
        owner: "alice",
        body: "",
        seconds_ago: 0,
    };
    // Signed for one owner, and sent for another.
    let mut headers = Asked {
        owner: "bob",
        ..right.clone()
    }
    .headers();
    headers[0].1 = "alice".to_owned();
    let for_alice = with_headers(&address, &headers);
    let alice = |client: &Client| client.header("x-loopwright-owner", "alice");
    for stranger in [
        alice(&address),
        alice(&address.key(ALICE)),
        alice(&address.key(CLUSTER_KEY)),
        Asked {
            key: "another-key-0123456789",
            ..right.clone()
        }
        .client(&address),
        Asked {
            method: "DELETE",
            ..right.clone()
        }
        .client(&address),
        Asked {
            path: "/healthz",
            ..right.clone()
        }
        .client(&address),
        Asked {
            address: "http://127.0.0.1:1",
            ..right.clone()
        }
        .client(&address),
        Asked {
            seconds_ago: 400,
            ..right.clone()
        }
        .client(&address),
        for_alice,
    ] {
        for path in [state.as_str(), "/v1/models", "/metrics"] {
            let refused = stranger.get(path).await;
            refused.assert_error(401, Some("invalid_cluster_key"));
        }
    }
    // Another body than was signed.
    let cancel = format!("{state}/cancel");
    let asked = Asked {
        method: "POST",
        path: &cancel,
        body: "[]",
        ..right.clone()
    };
    let refused = asked.client(&address).post(&cancel, &json!({})).await;
    refused.assert_error(401, Some("invalid_cluster_key"));

    let bob = Asked {
        owner: "bob",
        ..right.clone()
    }
    .client(&address);
    bob.get(&state).await.assert_error(404, Some("not_found"));
    let answer = right.client(&address).get(&state).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    for path in ["/v1/models", "/v1/sessions", "/healthz", "/metrics"] {
        let absent = Asked {
            path,
            ..right.clone()
        }
        .client(&address)
        .get(path)
        .await;
        absent.assert_error(404, Some("not_found"));
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn whoever_answers_for_a_replica_learns_no_key_and_is_not_believed() {
    let (upstream, hook) = hanging().await;
    let fleet = Fleet::new(upstream, hook).await;
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = heads.clone();
    let foreign = Server::start(Arc::new(move |arrived: Arrived| {
        seen.lock().push(format!("{:?}", arrived.request));
        let reply = HttpReply::whole(200, "application/json", r#"{"id":"of a foreigner"}"#);
        Box::pin(async move { Outgoing::Scripted(reply) })
    }))
    .await;
    // The store names an address at which somebody else answers.
    let settings = format!(
        "cluster_url = \"http://{}\"\n{CLUSTER}{KEYS}",
        foreign.addr()
    );
    let first = fleet.member("first", &settings).start().await;
    let second = fleet.member("second", &format!("{CLUSTER}{KEYS}"));
    let second = second.start().await;
    let stream = first.client().key(ALICE);
    let stream = stream.stream_chat(finishing(in_session("Go"))).await;
    let run = stream.run_id();
    fleet.hook.called(1).await;
    let alice = second.client().key(ALICE);
    assert_unreachable(&no_events(&alice, &run).await);
    let state = alice.get(&path(&run)).await;
    assert_eq!(state.status, 202, "{}", state.text());
    assert!(!state.text().contains("foreigner"), "{}", state.text());
    let cancel = format!("{}/cancel", path(&run));
    assert_unreachable(&alice.post(&cancel, &json!({})).await);
    let heads = heads.lock();
    assert_eq!(heads.len(), 3);
    for head in heads.iter() {
        assert!(
            !head.contains(CLUSTER_KEY) && !head.contains(ALICE),
            "{head}"
        );
    }
}
