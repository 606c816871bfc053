//! Turns that wait for a decision.

use super::sizes::check_counts;
use super::*;

pub(in crate::store) async fn a_turn_stays_with_its_session_until_it_is_dropped(
    subject: TestStore,
) {
    let store = &subject.store;
    let session = id("s");
    subject.write(&session, append(0, &[user("a")])).await;
    let empty = store.head(&owner(), &session).await.unwrap().unwrap();
    for turn in ["{\"first\":1}", "{\"second\":\"\u{e9}\"}"] {
        let lease = subject.lease(&session).await;
        store.keep_turn(lease.fence(), turn, &[]).await.unwrap();
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

pub(in crate::store) async fn a_turn_goes_with_its_session(subject: TestStore) {
    let store = &subject.store;
    subject.write(&id("s"), append(0, &[user("a")])).await;
    let lease = subject.lease(&id("s")).await;
    store.keep_turn(lease.fence(), "{}", &[]).await.unwrap();
    store.release(lease).await;
    assert!(subject.delete(&id("s")).await);
    assert_eq!(store.rows_of(["parked_turns"]).await, [0]);
    // Nothing is kept of a session that does not exist, nor under a lease that has ended.
    let lease = subject.lease(&id("s")).await;
    let fence = lease.fence().clone();
    let kept = store.keep_turn(&fence, "{}", &[]).await;
    assert!(matches!(kept, Err(StoreError::NotFound)), "{kept:?}");
    store.release(lease).await;
    subject.write(&id("s"), append(0, &[user("a")])).await;
    let kept = store.keep_turn(&fence, "{}", &[]).await;
    assert!(matches!(kept, Err(StoreError::LeaseLost)), "{kept:?}");
}

pub(in crate::store) async fn a_replacement_ends_the_turn(subject: TestStore) {
    let store = &subject.store;
    subject.write(&id("s"), append(0, &[user("a")])).await;
    let lease = subject.lease(&id("s")).await;
    store.keep_turn(lease.fence(), "{}", &[]).await.unwrap();
    store.release(lease).await;
    subject.replace(&id("s"), 0, append(0, &[user("b")])).await;
    assert_eq!(subject.loaded(&id("s")).await.turn, None);
    check_counts(store).await;
}

pub(in crate::store) async fn a_refused_change_ends_no_turn(subject: TestStore) {
    let store = &subject.store;
    subject.write(&id("s"), append(0, &[user("a")])).await;
    let lease = subject.lease(&id("s")).await;
    store
        .keep_turn(lease.fence(), &"x".repeat(1_500), &[])
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
    // What the turn leaves counts for what ends it.
    store
        .write(lease.fence(), &change("x".repeat(1_500)))
        .await
        .unwrap();
    let written = subject.loaded(&id("s")).await;
    assert_eq!((written.turn, written.messages.len()), (None, 2));
    store.release(lease).await;
}

pub(in crate::store) async fn a_turn_counts_for_the_size_of_its_session(subject: TestStore) {
    let store = &subject.store;
    let limits = SessionLimits {
        session_bytes: 2_000,
        ..SessionLimits::default()
    };
    store.limit_sessions(limits).await;
    subject.write(&id("s"), append(0, &[user("a")])).await;
    let lease = subject.lease(&id("s")).await;
    let kept = store
        .keep_turn(lease.fence(), &"x".repeat(3_000), &[])
        .await;
    assert!(
        matches!(kept, Err(StoreError::SessionTooLarge { .. })),
        "{kept:?}"
    );
    store
        .keep_turn(lease.fence(), &"x".repeat(500), &[])
        .await
        .unwrap();
    store.release(lease).await;
    assert_eq!(subject.loaded(&id("s")).await.turn.unwrap().len(), 500);
}
