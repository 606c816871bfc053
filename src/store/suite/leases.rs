//! At most one run per session, and no write without a lease.

use futures_util::FutureExt;
use futures_util::future::join_all;
use parking_lot::Mutex;

use super::*;

/// How long a test waits for a lease that it does not get.
const SHORT: Duration = Duration::from_millis(50);

pub(crate) async fn a_write_under_a_lease_that_ended_is_refused(subject: TestStore) {
    let (store, session) = (&subject.store, id("s"));
    let first = subject.lease(&session).await;
    let old = first.fence().clone();
    let change = Arc::new(append(0, &[user("first")]));
    store.write(&old, &change).await.unwrap();
    store.release(first).await;
    let refused = async || {
        let late = Arc::new(append(1, &[user("late")]));
        for refused in [
            store.write(&old, &late).await,
            store.replace(&old, 0, &late).await.map(drop),
            store.fork(&old, None, &id("copy")).await.map(drop),
            store.delete(&old).await.map(drop),
        ] {
            assert!(matches!(refused, Err(StoreError::LeaseLost)), "{refused:?}");
        }
    };
    refused().await;
    // It is also refused while the next lease is held.
    let second = subject.lease(&session).await;
    refused().await;
    let change = Arc::new(append(1, &[user("second")]));
    store.write(second.fence(), &change).await.unwrap();
    let stored = subject.loaded(&session).await;
    assert_eq!(stored.messages, [user("first"), user("second")]);
    assert_eq!(store.list(&owner(), 10, None).await.unwrap().data.len(), 1);
}

pub(crate) async fn a_lease_waits_in_order_and_at_most_the_given_time(subject: TestStore) {
    let (store, session) = (&subject.store, id("s"));
    let first = subject.lease(&session).await;
    for wait in [Duration::ZERO, SHORT] {
        let busy = store.acquire(&owner(), &session, wait).await;
        assert!(matches!(busy, Err(StoreError::Busy)), "{busy:?}");
    }
    let (key, mut order) = (owner(), Vec::new());
    let mut second = Box::pin(store.acquire(&key, &session, LONG));
    assert!(second.as_mut().now_or_never().is_none());
    let mut third = Box::pin(store.acquire(&key, &session, LONG));
    assert!(third.as_mut().now_or_never().is_none());
    drop(first);
    // A later caller does not overtake the waiters.
    let late = store.acquire(&key, &session, Duration::ZERO).await;
    assert!(matches!(late, Err(StoreError::Busy)));
    let hold = async |number: usize, lease: Result<Lease, StoreError>, order: &mut Vec<usize>| {
        order.push(number);
        store.release(lease.unwrap()).await;
    };
    hold(2, second.await, &mut order).await;
    hold(3, third.await, &mut order).await;
    assert_eq!(order, [2, 3]);
    store
        .acquire(&owner(), &session, Duration::ZERO)
        .await
        .unwrap();
}

pub(crate) async fn leases_of_other_sessions_and_owners_do_not_wait(subject: TestStore) {
    let store = &subject.store;
    let leases = [
        (owner(), id("s")),
        (Owner::key("bob"), id("s")),
        (owner(), id("t")),
    ];
    let leases = leases.map(|(owner, id)| async move {
        store.acquire(&owner, &id, Duration::ZERO).await.unwrap()
    });
    let leases = join_all(leases).await;
    assert_eq!(leases.len(), 3);
}

pub(crate) async fn a_lease_can_be_renewed_until_it_ends(subject: TestStore) {
    let lease = subject.lease(&id("s")).await;
    for _ in 0..3 {
        subject.store.renew(&lease).await.unwrap();
    }
    let change = Arc::new(append(0, &[user("a")]));
    subject.store.write(lease.fence(), &change).await.unwrap();
}

pub(crate) async fn a_dropped_write_delays_the_next_lease(subject: TestStore) {
    let session = id("s");
    let messages = many(2_000);
    let lease = subject.lease(&session).await;
    let change = Arc::new(append(0, &messages));
    {
        let mut write = Box::pin(subject.store.write(lease.fence(), &change));
        drop(write.as_mut().now_or_never());
    }
    drop(lease);
    let _next = subject.lease(&session).await;
    let stored = subject.store.load(&owner(), &session).await.unwrap();
    let stored = stored.map_or_else(Vec::new, |session| session.messages);
    assert!(stored.is_empty() || stored == messages, "{}", stored.len());
    assert_eq!(
        subject
            .store
            .list(&owner(), 10, None)
            .await
            .unwrap()
            .data
            .len(),
        usize::from(!stored.is_empty())
    );
}

pub(crate) async fn the_list_says_which_sessions_are_leased(subject: TestStore) {
    for name in ["s", "t"] {
        subject.write(&id(name), append(0, &[user("a")])).await;
    }
    let lease = subject.lease(&id("s")).await;
    assert!(subject.summary(&id("s")).await.running);
    assert!(!subject.summary(&id("t")).await.running);
    subject.store.release(lease).await;
    assert!(!subject.summary(&id("s")).await.running);
}

pub(crate) async fn turns_of_a_session_never_overlap(subject: TestStore) {
    let inside = Arc::new(Mutex::new([0_usize; 3]));
    let mut turns = tokio::task::JoinSet::new();
    for number in 0..150 {
        let (store, inside) = (subject.store.clone(), Arc::clone(&inside));
        turns.spawn(async move {
            let session = id(&format!("s{}", number % 3));
            let lease = store.acquire(&owner(), &session, LONG).await.unwrap();
            inside.lock()[number % 3] += 1;
            tokio::task::yield_now().await;
            {
                let mut inside = inside.lock();
                assert_eq!(inside[number % 3], 1);
                inside[number % 3] -= 1;
            }
            store.release(lease).await;
        });
    }
    while let Some(turn) = turns.join_next().await {
        turn.unwrap();
    }
}
