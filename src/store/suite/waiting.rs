//! Turns that wait for their client.

use std::time::Instant;

use super::super::waiting::{MAX_WAITING, MAX_WAITING_OF_OWNER};
use super::*;

pub(crate) async fn a_call_belongs_to_the_session_that_wrote_it_last(subject: TestStore) {
    let change = Change {
        client_calls: vec!["c1".to_owned(), "c2".to_owned(), "c1".to_owned()],
        ..append(0, &[user("a")])
    };
    subject.write(&id("one"), change.clone()).await;
    subject.write(&id("two"), change).await;
    assert_eq!(subject.session_of_call("c2").await, Some(id("two")));
    assert_eq!(subject.session_of_call("c3").await, None);
    assert!(subject.delete(&id("two")).await);
    assert!(!subject.delete(&id("two")).await);
    assert_eq!(subject.session_of_call("c2").await, None);
    assert!(subject.is_gone(&id("two")).await);
    assert!(!subject.is_gone(&id("one")).await);
}

pub(crate) async fn an_unstored_turn_waits_for_any_of_its_calls(subject: TestStore) {
    let store = &subject.store;
    let calls = ["c1".to_owned(), "c2".to_owned()];
    let session = StoredSession {
        messages: vec![user("a")],
        ..StoredSession::default()
    };
    let soon = || Instant::now() + Duration::from_secs(60);
    let turn = |session: &StoredSession| UnstoredTurn {
        session: session.clone(),
        attached: None,
    };
    store.put_waiting(&owner(), &calls, turn(&session), soon());
    assert_eq!(unstored(store, &Owner::key("bob"), "c1").await, None);
    assert_eq!(unstored(store, &owner(), "c3").await, None);
    for call in ["c2", "c1", "c1"] {
        assert_eq!(unstored(store, &owner(), call).await, Some(session.clone()));
    }
    // A later turn that waits for the same call replaces the earlier one.
    store.put_waiting(&owner(), &calls[..1], UnstoredTurn::default(), soon());
    assert_eq!(unstored(store, &owner(), "c2").await, None);
    assert_eq!(
        unstored(store, &owner(), "c1").await,
        Some(StoredSession::default())
    );
    // It has priority over a stored session with the same call.
    let stored = Change {
        client_calls: vec!["c1".to_owned()],
        ..Change::default()
    };
    subject.write(&id("s"), stored).await;
    assert_eq!(subject.session_of_call("c1").await, None);
    // Expired.
    store.put_waiting(&owner(), &calls[..1], turn(&session), Instant::now());
    assert_eq!(subject.session_of_call("c1").await, Some(id("s")));
}

pub(crate) async fn unstored_turns_are_bounded_in_time_and_number(subject: TestStore) {
    let store = &subject.store;
    let put_waiting = |call: String, until: Instant| {
        store.put_waiting(&owner(), &[call], UnstoredTurn::default(), until);
    };
    put_waiting("late".to_owned(), Instant::now());
    assert_eq!(unstored(store, &owner(), "late").await, None);
    let until = Instant::now() + Duration::from_secs(60);
    for number in 0..=MAX_WAITING_OF_OWNER {
        put_waiting(format!("c{number}"), until);
    }
    assert_eq!(unstored(store, &owner(), "c0").await, None);
    assert!(unstored(store, &owner(), "c1").await.is_some());
    let last = format!("c{MAX_WAITING_OF_OWNER}");
    assert!(unstored(store, &owner(), &last).await.is_some());
}

pub(crate) async fn an_owner_with_few_unstored_turns_keeps_them(subject: TestStore) {
    let store = &subject.store;
    let until = Instant::now() + Duration::from_secs(60);
    let [few, many, most] = ["few", "many", "most"].map(Owner::key);
    let put_waiting = |owner: &Owner, number: usize| {
        store.put_waiting(
            owner,
            &[format!("c{number}")],
            UnstoredTurn::default(),
            until,
        );
    };
    put_waiting(&few, 0);
    for number in 0..MAX_WAITING_OF_OWNER - 1 {
        put_waiting(&many, number);
    }
    for number in 0..MAX_WAITING - MAX_WAITING_OF_OWNER {
        put_waiting(&most, number);
    }
    // One more than there may be.
    put_waiting(&few, 1);
    for call in ["c0", "c1"] {
        assert!(unstored(store, &few, call).await.is_some());
    }
    assert!(unstored(store, &many, "c0").await.is_some());
    assert_eq!(unstored(store, &most, "c0").await, None);
}

pub(crate) async fn attachments_are_dropped_when_detached_or_expired(subject: TestStore) {
    let store = &subject.store;
    let until = Instant::now() + Duration::from_secs(60);
    let put_waiting = |call: &str, until: Instant| {
        let attached: Attachment = Arc::new(());
        let weak = Arc::downgrade(&attached);
        let turn = UnstoredTurn {
            session: StoredSession::default(),
            attached: Some(attached),
        };
        store.put_waiting(&owner(), &[call.to_owned()], turn, until);
        weak
    };
    let detached = put_waiting("c1", until);
    let kept = put_waiting("c2", until);
    match store.waiting_turn(&owner(), "c1").await.unwrap() {
        Some(WaitingTurn::Unstored(turn)) => assert!(turn.attached.is_some()),
        other => panic!("{other:?}"),
    }
    store.detach(&Owner::key("bob"), "c1");
    store.detach(&owner(), "c3");
    assert_eq!(detached.strong_count(), 1);
    store.detach(&owner(), "c1");
    assert_eq!(detached.strong_count(), 0);
    // The turn itself stays.
    assert!(unstored(store, &owner(), "c1").await.is_some());
    assert_eq!(kept.strong_count(), 1);
    let late = put_waiting("c4", Instant::now());
    store.expire_waiting();
    assert_eq!((late.strong_count(), kept.strong_count()), (0, 1));
}

async fn unstored(store: &Store, owner: &Owner, call: &str) -> Option<StoredSession> {
    match store.waiting_turn(owner, call).await.unwrap()? {
        WaitingTurn::Unstored(turn) => Some(turn.session),
        WaitingTurn::Stored(_) => None,
    }
}
