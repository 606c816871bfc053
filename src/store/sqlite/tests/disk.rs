//! A disk without free space.

use super::super::super::{Growth, SessionLimits, StorageFull};
use super::*;

#[tokio::test]
async fn a_full_disk_refuses_new_sessions_only() {
    let [memory, file] = both().await;
    let limits = SessionLimits {
        min_free_disk: u64::MAX,
        ..SessionLimits::default()
    };
    write(&file.store, &id("old"), append(0, &[user("a")]))
        .await
        .unwrap();
    for subject in [&memory, &file] {
        subject.store.limit_sessions(limits).await;
    }
    write(&memory.store, &id("new"), append(0, &[user("a")]))
        .await
        .unwrap();
    let store = &file.store;
    write(store, &id("old"), append(1, &[user("b")]))
        .await
        .unwrap();
    let lease = store.acquire(&owner(), &id("old"), LONG).await.unwrap();
    let fork = store.fork(lease.fence(), None, &id("fork")).await;
    let new = store.acquire(&owner(), &id("new"), LONG).await.unwrap();
    let change = Arc::new(append(0, &[user("a")]));
    let import = store.replace(new.fence(), 0, &change).await.map(drop);
    let written = store.write(new.fence(), &change).await;
    let growth = Growth {
        before: None,
        after: 10,
    };
    let checked = store.check_growth(&owner(), &id("new"), growth).await;
    for refused in [fork.map(drop), import, written, checked] {
        match refused {
            Err(StoreError::Full(StorageFull::Disk { free, least })) => {
                assert!(free > 0 && least == u64::MAX);
            }
            other => panic!("{other:?}"),
        }
    }
    store.replace(lease.fence(), 0, &change).await.unwrap();
    assert_eq!(ids(store, &owner()).await, ["old"]);
}

async fn ids(store: &Store, owner: &Owner) -> Vec<String> {
    let page = store.list(owner, 1000, None).await.unwrap();
    let ids = page.data.iter().map(|entry| entry.id.as_str().to_owned());
    ids.collect()
}
