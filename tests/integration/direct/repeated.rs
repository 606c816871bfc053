//! Calls under an `idempotency-key`.

use super::*;

fn replayed(answer: &Answer) -> bool {
    answer.header("idempotency-replayed") == Some("true")
}

#[tokio::test]
async fn a_call_that_comes_again_is_made_once() {
    let gate = Gate::new();
    let held = gate.clone();
    let hook = Webhook::start()
        .await
        .on_call("t", move |_| webhook::text("r").gated(&held))
        .on("u", webhook::text("r"));
    let app = keyed(&hook, "").await.start().await;
    let client = app.client().key(ALICE).header("idempotency-key", "k");
    let body = json!({"arguments": {"a": 1}});
    let send = || {
        let (client, body) = (client.clone(), body.clone());
        tokio::spawn(async move { call(&client, "t", &body).await })
    };
    let first = send();
    hook.called(1).await;
    let second = send();
    gate.open();
    let first = first.await.unwrap();
    assert!(!replayed(&first));
    assert_eq!(first.json()["status"], "ok");
    assert_eq!(second.await.unwrap().json(), first.json());
    let third = call(&client, "t", &body).await;
    assert!(replayed(&third));
    assert_eq!((third.json(), hook.calls().len()), (first.json(), 1));
    // Another body, another tool, another key.
    let other = call(&client, "t", &json!({"arguments": {"a": 2}})).await;
    other.assert_error(422, Some("idempotency_key_reused"));
    let other = call(&client, "u", &body).await;
    other.assert_error(422, Some("idempotency_key_reused"));
    let bob = app.client().key(BOB).header("idempotency-key", "k");
    assert_eq!(call(&bob, "t", &body).await.json()["status"], "ok");
    let wrong = app.client().key(ALICE).header("idempotency-key", "a b");
    call(&wrong, "t", &body).await.assert_error(400, None);
}

#[tokio::test]
async fn a_call_under_a_key_goes_on_when_its_client_leaves() {
    let gate = Gate::new();
    let held = gate.clone();
    let hook = Webhook::start()
        .await
        .on_call("t", move |_| webhook::text("r").gated(&held));
    let app = builder(&hook).await.start().await;
    let client = app.client().header("idempotency-key", "k");
    let leaving = client.clone();
    let asking = tokio::spawn(async move { call(&leaving, "t", &json!({})).await });
    hook.called(1).await;
    asking.abort();
    gate.open();
    let answer = call(&client, "t", &json!({})).await;
    assert_eq!(answer.json()["status"], "ok", "{}", answer.text());
    assert_eq!(hook.calls().len(), 1);
}

#[tokio::test]
async fn a_call_that_the_end_of_the_process_broke_off_is_not_made_again_unless_it_only_reads() {
    let hook = Webhook::start().await.on("t", webhook::hang());
    let hook = hook
        .once("read", webhook::hang())
        .on("read", webhook::text("r"));
    let settings = configured(&hook, "read", "read_only = true");
    let mut app = builder(&hook).await.toml(&settings).start().await;
    let reading = json!({"arguments": {"path": "/x"}});
    for (tool, key, body) in [("t", "k", json!({})), ("read", "l", reading.clone())] {
        let client = app.client().header("idempotency-key", key);
        tokio::spawn(async move { call(&client, tool, &body).await });
    }
    hook.called(2).await;
    app.kill9().await;
    app.restart().await;
    let client = app.client().header("idempotency-key", "k");
    for _ in 0..2 {
        let answer = call(&client, "t", &json!({})).await;
        let message = answer.assert_error(410, Some("run_interrupted"));
        assert!(message.contains("may have taken effect"), "{message}");
    }
    let client = app.client().header("idempotency-key", "l");
    let answer = call(&client, "read", &reading).await;
    assert_eq!(answer.json()["status"], "ok", "{}", answer.text());
    assert_eq!(hook.calls().len(), 3);
}
