//! Turns that wait for a decision.

use http::StatusCode;

use super::approvals::{approve, ends, question};
use super::sizes::check_counts;
use super::*;

pub(crate) async fn a_turn_stays_with_its_session_until_it_is_dropped(subject: TestStore) {
    let store = &subject.store;
    let session = id("s");
    subject.write(&session, append(0, &[user("a")])).await;
    let empty = store.head(&owner(), &session).await.unwrap().unwrap();
    for turn in ["{\"first\":1}", "{\"second\":\"\u{e9}\"}"] {
        let lease = subject.lease(&session).await;
        store.suspend_turn(lease.fence(), turn, &[]).await.unwrap();
        store.release(lease).await;
        assert_eq!(subject.loaded(&session).await.turn.as_deref(), Some(turn));
        let head = store.head(&owner(), &session).await.unwrap().unwrap();
        assert_eq!(head.bytes, empty.bytes + turn.len() as u64);
    }
    // A write of the session leaves it, a fork has none.
    subject.write(&session, append(1, &[user("b")])).await;
    subject.fork(&session, None, &id("fork")).await.unwrap();
    assert!(subject.loaded(&session).await.turn.is_some());
    assert_eq!(subject.loaded(&id("fork")).await.turn, None);
    let ends = Change {
        turn: TurnChange::End,
        ..append(2, &[])
    };
    for _ in 0..2 {
        subject.write(&session, ends.clone()).await;
        assert_eq!(subject.loaded(&session).await.turn, None);
        let bytes = async |id| store.head(&owner(), id).await.unwrap().unwrap().bytes;
        assert_eq!(bytes(&session).await, bytes(&id("fork")).await);
    }
}

pub(crate) async fn a_turn_goes_with_its_session(subject: TestStore) {
    let store = &subject.store;
    subject.write(&id("s"), append(0, &[user("a")])).await;
    let lease = subject.lease(&id("s")).await;
    store.suspend_turn(lease.fence(), "{}", &[]).await.unwrap();
    store.release(lease).await;
    assert!(subject.delete(&id("s")).await);
    assert_eq!(store.rows_of(["parked_turns"]).await, [0]);
    // No turn is stored for a session that does not exist, nor under a lease that has ended.
    let lease = subject.lease(&id("s")).await;
    let fence = lease.fence().clone();
    let kept = store.suspend_turn(&fence, "{}", &[]).await;
    assert!(matches!(kept, Err(StoreError::NotFound)), "{kept:?}");
    store.release(lease).await;
    subject.write(&id("s"), append(0, &[user("a")])).await;
    let kept = store.suspend_turn(&fence, "{}", &[]).await;
    assert!(matches!(kept, Err(StoreError::LeaseLost)), "{kept:?}");
}

pub(crate) async fn a_replacement_ends_the_turn(subject: TestStore) {
    let store = &subject.store;
    subject.write(&id("s"), append(0, &[user("a")])).await;
    let lease = subject.lease(&id("s")).await;
    store.suspend_turn(lease.fence(), "{}", &[]).await.unwrap();
    store.release(lease).await;
    subject.replace(&id("s"), 0, append(0, &[user("b")])).await;
    assert_eq!(subject.loaded(&id("s")).await.turn, None);
    check_counts(store).await;
}

pub(crate) async fn a_refused_change_ends_no_turn(subject: TestStore) {
    let store = &subject.store;
    subject.write(&id("s"), append(0, &[user("a")])).await;
    let lease = subject.lease(&id("s")).await;
    store
        .suspend_turn(lease.fence(), &"x".repeat(1_500), &[])
        .await
        .unwrap();
    let limits = SessionLimits {
        session_bytes: 2_000,
        ..SessionLimits::default()
    };
    store.limit_sessions(limits).await;
    let change = |text: String| {
        Arc::new(Change {
            turn: TurnChange::End,
            ..append(1, &[user(&text)])
        })
    };
    let refused = store.write(lease.fence(), &change("x".repeat(3_000))).await;
    assert!(
        matches!(refused, Err(StoreError::SessionTooLarge { .. })),
        "{refused:?}"
    );
    assert!(subject.loaded(&id("s")).await.turn.is_some());
    // The bytes that the turn frees are available to the change that ends it.
    store
        .write(lease.fence(), &change("x".repeat(1_500)))
        .await
        .unwrap();
    let written = subject.loaded(&id("s")).await;
    assert_eq!((written.turn, written.messages.len()), (None, 2));
    store.release(lease).await;
}

pub(crate) async fn a_turn_counts_for_the_size_of_its_session(subject: TestStore) {
    let store = &subject.store;
    let limits = SessionLimits {
        session_bytes: 2_000,
        ..SessionLimits::default()
    };
    store.limit_sessions(limits).await;
    subject.write(&id("s"), append(0, &[user("a")])).await;
    let lease = subject.lease(&id("s")).await;
    let kept = store
        .suspend_turn(lease.fence(), &"x".repeat(3_000), &[])
        .await;
    assert!(
        matches!(kept, Err(StoreError::SessionTooLarge { .. })),
        "{kept:?}"
    );
    store
        .suspend_turn(lease.fence(), &"x".repeat(500), &[])
        .await
        .unwrap();
    store.release(lease).await;
    assert_eq!(subject.loaded(&id("s")).await.turn.unwrap().len(), 500);
}

pub(crate) async fn a_run_goes_on_with_its_turn_once_all_is_decided(subject: TestStore) {
    let store = &subject.store;
    let (run, session) = (RunId::fresh(), id("s"));
    store
        .begin_run(&run, &owner(), Some(&session))
        .await
        .unwrap();
    let turn = format!("{{\"run\":\"{}\",\"request\":\"r\"}}", run.as_str());
    let asked = question("charge");
    subject.write(&session, append(0, &[user("a")])).await;
    let lease = subject.lease(&session).await;
    store
        .suspend_turn(lease.fence(), &turn, std::slice::from_ref(&asked))
        .await
        .unwrap();
    store.release(lease).await;
    let waits = async || subject.record(&run).await.unwrap().is_suspended;
    let decided = async || store.decided_runs(10).await.unwrap();
    assert!(waits().await);
    assert_eq!(decided().await, []);
    store
        .decide_approval(None, &asked.id, &approve(None))
        .await
        .unwrap();
    assert_eq!(decided().await, [(owner(), run.clone())]);
    let other = Owner::key("other");
    assert_eq!(store.take_suspended_run(&other, &run).await.unwrap(), None);
    // The answer that lists the waiting calls is deleted when the run resumes.
    let answer = |text: &str, status| RunAnswer {
        status,
        body: bytes::Bytes::copy_from_slice(text.as_bytes()).into(),
        ..RunAnswer::default()
    };
    let waiting = answer("waits", StatusCode::OK);
    store.end_run(&run, &owner(), waiting).await.unwrap();
    assert!(waits().await);
    let taken = store.take_suspended_run(&owner(), &run).await.unwrap();
    assert_eq!(
        taken,
        Some(SuspendedRun {
            session: session.clone(),
            turn: turn.clone()
        })
    );
    assert_eq!(store.answer(&owner(), &run).await.unwrap(), None);
    let last = answer("done", StatusCode::OK);
    store.end_run(&run, &owner(), last.clone()).await.unwrap();
    assert_eq!(store.answer(&owner(), &run).await.unwrap(), Some(last));
    check_counts(store).await;
    // A run that failed waits no longer, nor one whose turn is ended.
    store
        .take_suspended_run(&owner(), &run)
        .await
        .unwrap()
        .unwrap();
    let failed = answer("no", StatusCode::BAD_REQUEST);
    store.end_run(&run, &owner(), failed).await.unwrap();
    assert!(!waits().await);
    assert_eq!(decided().await, []);
    assert_eq!(
        store.take_suspended_run(&owner(), &run).await.unwrap(),
        None
    );
    let next = RunId::fresh();
    store
        .begin_run(&next, &owner(), Some(&session))
        .await
        .unwrap();
    let lease = subject.lease(&session).await;
    let turn = turn.replace(run.as_str(), next.as_str());
    store.suspend_turn(lease.fence(), &turn, &[]).await.unwrap();
    store.release(lease).await;
    assert_eq!(decided().await, [(owner(), next.clone())]);
    subject.write(&session, ends(1)).await;
    assert_eq!(decided().await, []);
    assert!(!subject.record(&next).await.unwrap().is_suspended);
    check_counts(store).await;
}

pub(crate) async fn of_each_owner_a_run_goes_on(subject: TestStore) {
    let (store, other) = (&subject.store, Owner::key("other"));
    let mut runs = Vec::new();
    for (owner, session) in [(owner(), "s"), (owner(), "t"), (other, "s")] {
        let (run, session) = (RunId::fresh(), id(session));
        store.begin_run(&run, &owner, Some(&session)).await.unwrap();
        subject
            .write_as(&owner, &session, append(0, &[user("a")]))
            .await;
        let lease = store.acquire(&owner, &session, LONG).await.unwrap();
        let turn = format!("{{\"run\":\"{}\",\"request\":\"r\"}}", run.as_str());
        store.suspend_turn(lease.fence(), &turn, &[]).await.unwrap();
        store.release(lease).await;
        runs.push((owner, run));
    }
    // The second run of an owner comes after the first one of each.
    runs.swap(1, 2);
    for most in 1..=3 {
        let found = store.decided_runs(most).await.unwrap();
        assert_eq!(found, runs[..most]);
    }
}

pub(crate) async fn a_turn_says_which_run_goes_on_at_its_beginning_only(subject: TestStore) {
    let store = &subject.store;
    subject.write(&id("s"), append(0, &[user("a")])).await;
    let run = RunId::fresh();
    store
        .begin_run(&run, &owner(), Some(&id("s")))
        .await
        .unwrap();
    let named = format!("\"run\":\"{}\"", run.as_str());
    for turn in [
        format!("{{\"form\":2,{named}}}"),
        format!(" {{{named}}}"),
        "{\"run\":\"".to_owned(),
        "{\"run\":".to_owned(),
        format!("{{\"run\":\"{}\"}}", "\u{e9}".repeat(200)),
        String::new(),
    ] {
        let lease = subject.lease(&id("s")).await;
        store.suspend_turn(lease.fence(), &turn, &[]).await.unwrap();
        store.release(lease).await;
        assert_eq!(store.decided_runs(10).await.unwrap(), [], "{turn}");
        assert!(!subject.record(&run).await.unwrap().is_suspended);
    }
}
