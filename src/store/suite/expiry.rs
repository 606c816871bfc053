//! What expires where the clock is wrong. A store is opened more than once.

use super::*;
use crate::file::FileRecord;

const DAY: i64 = 24 * 60 * 60;
const TEN_YEARS: i64 = 3_650 * DAY;

/// What a store holds: sessions with a name and without, records of runs, idempotency keys, files.
async fn held(store: &Store) -> [usize; 4] {
    let [runs, _, keys] = store.run_rows().await;
    let sessions = store.list(&owner(), 1_000, None).await.unwrap();
    let files = store.files(&owner(), &files::all()).await.unwrap();
    let count = |rows: i64| usize::try_from(rows).unwrap();
    [
        sessions.data.len(),
        count(runs),
        count(keys),
        files.data.len(),
    ]
}

/// A turn: a session, a run with a key, and a file.
async fn turn(store: &Store, name: &str, id_origin: IdOrigin) {
    let change = Change {
        id_origin,
        ..append(0, &[user("a")])
    };
    let (session, run) = (id(name), RunId::fresh());
    let lease = store.acquire(&owner(), &session, LONG).await.unwrap();
    store.write(lease.fence(), &Arc::new(change)).await.unwrap();
    store.release(lease).await;
    let key = store.claim_key(&owner(), name, &[1; 32], &run).await;
    assert_eq!(key.unwrap(), KeyClaim::New);
    store
        .begin_run(&run, &owner(), Some(&session))
        .await
        .unwrap();
    let answer = RunAnswer::default();
    store.end_run(&run, &owner(), answer).await.unwrap();
    let file: FileRecord = files::record(&owner(), name, 1);
    store.insert_file(file, u64::MAX).await.unwrap();
}

async fn expire(store: &Store) {
    let month = Duration::from_secs(30 * 86_400);
    let days = Duration::from_secs(2 * 86_400);
    store.expire(Some(month), Some(days)).await.unwrap();
    store.expire_files(days).await.unwrap();
    store.expire_runs(days).await.unwrap();
}

/// Nothing expires by a clock that is ten years ahead, whatever is written by it, and however often the store is opened.
pub(crate) async fn a_wrong_clock_deletes_nothing(open: impl AsyncFn() -> Store) {
    let store = open().await;
    for number in 0..5 {
        turn(&store, &format!("named{number}"), IdOrigin::Client).await;
        turn(&store, &format!("nameless{number}"), IdOrigin::Nameless).await;
    }
    expire(&store).await;
    assert_eq!(held(&store).await, [10; 4]);
    store.close().await;
    for start in 0..40 {
        let store = open().await;
        store.shift_clock(TEN_YEARS).await;
        if start % 20 == 0 {
            turn(&store, &format!("wrong{start}"), IdOrigin::Client).await;
        }
        expire(&store).await;
        let there = 11 + start / 20;
        assert_eq!(held(&store).await, [there; 4], "start {start}");
        let (owner, run) = (owner(), RunId::fresh());
        let key = store.claim_key(&owner, "named0", &[2; 32], &run).await;
        assert_eq!(key.unwrap(), KeyClaim::Reused, "start {start}");
        store.close().await;
    }
    let store = open().await;
    store.shift_clock(0).await;
    expire(&store).await;
    assert_eq!(held(&store).await, [12; 4]);
    store.close().await;
}

/// A store in which nothing was, whatever the clock was before, expires by the clock.
pub(crate) async fn an_empty_store_trusts_the_clock(open: impl AsyncFn() -> Store) {
    let store = open().await;
    store.shift_clock(-TEN_YEARS).await;
    expire(&store).await;
    store.shift_clock(0).await;
    store.close().await;
    let store = open().await;
    for name in ["old", "new"] {
        turn(&store, name, IdOrigin::Client).await;
    }
    let then = now() - 31 * DAY;
    store.set_updated_at(&owner(), &id("old"), then).await;
    expire(&store).await;
    assert_eq!(held(&store).await, [1, 2, 2, 2]);
    store.close().await;
}
