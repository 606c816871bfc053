//! Accounts and reservations.

use tokio::task::JoinSet;

use super::*;

/// What the tests use; sessions count in it while they are written.
const ACCOUNT: Account = Account::Sessions;

pub(crate) async fn no_more_is_reserved_than_the_limit(subject: TestStore) {
    const LIMIT: i64 = 100;
    let mut tasks = JoinSet::new();
    for _ in 0..20 {
        let store = subject.store.clone();
        tasks.spawn(async move { store.reserve(&owner(), ACCOUNT, 30, LIMIT).await.unwrap() });
    }
    let reserved = tasks.join_all().await;
    let reserved: Vec<AccountReservation> = reserved.into_iter().flatten().collect();
    assert_eq!(reserved.len(), 3);
    let store = &subject.store;
    // Another owner has its own account.
    let other = Owner::key("bob");
    let of_other = store.reserve(&other, ACCOUNT, 100, LIMIT).await.unwrap();
    assert!(of_other.is_some());
    assert!(
        store
            .reserve(&owner(), ACCOUNT, 11, LIMIT)
            .await
            .unwrap()
            .is_none()
    );
    for reservation in reserved {
        store.settle(reservation, 0).await.unwrap();
    }
    let whole = store
        .reserve(&owner(), ACCOUNT, LIMIT, LIMIT)
        .await
        .unwrap();
    assert!(whole.is_some());
}

pub(crate) async fn a_settled_amount_counts(subject: TestStore) {
    let store = &subject.store;
    let reserved = store.reserve(&owner(), ACCOUNT, 60, 100).await.unwrap();
    // Less was used than reserved.
    let used = store.settle(reserved.unwrap(), 40).await.unwrap();
    assert_eq!(used, 40);
    assert!(
        store
            .reserve(&owner(), ACCOUNT, 61, 100)
            .await
            .unwrap()
            .is_none()
    );
    let rest = store.reserve(&owner(), ACCOUNT, 60, 100).await.unwrap();
    assert_eq!(store.settle(rest.unwrap(), 60).await.unwrap(), 100);
    assert!(
        store
            .reserve(&owner(), ACCOUNT, 1, 100)
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(store.number("SELECT count(*) FROM reservations").await, 0);
}

pub(crate) async fn a_dropped_reservation_ends(subject: TestStore) {
    let store = &subject.store;
    let owner = owner();
    let whole = || store.reserve(&owner, ACCOUNT, 100, 100);
    let reserved = whole().await.unwrap();
    assert!(reserved.is_some() && whole().await.unwrap().is_none());
    drop(reserved);
    let again = async {
        while whole().await.unwrap().is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, again).await.unwrap();
}
