//! Limits: no free connection, a locked file, a full disk.

use futures_util::FutureExt;
use rusqlite::{Connection, TransactionBehavior};
use tokio::task::JoinSet;

use super::*;

#[tokio::test]
async fn a_read_sees_the_last_commit_while_a_write_is_under_way() {
    let TestStore { store, directory } = file().await;
    let session = id("s");
    write(&store, &session, append(0, &[user("a")]))
        .await
        .unwrap();
    let path = directory.as_ref().unwrap().path().join("sessions.db");
    let mut other = Connection::open(path).unwrap();
    let transaction = other
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    transaction.execute("DELETE FROM messages", []).unwrap();
    assert_eq!(loaded(&store, &session).await.messages, [user("a")]);
    drop(transaction);
    write(&store, &session, append(1, &[user("b")]))
        .await
        .unwrap();
    assert_eq!(
        loaded(&store, &session).await.messages,
        [user("a"), user("b")]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_file_that_another_process_has_locked_does_not_block_other_tasks() {
    let TestStore { store, directory } = file().await;
    let session = id("s");
    write(&store, &session, append(0, &[user("a")]))
        .await
        .unwrap();
    let path = directory.as_ref().unwrap().path().join("sessions.db");
    let mut other = Connection::open(path).unwrap();
    let transaction = other
        .transaction_with_behavior(TransactionBehavior::Exclusive)
        .unwrap();
    let (writer, written) = (store.clone(), session.clone());
    let mut writing = JoinSet::new();
    writing.spawn(async move { write(&writer, &written, append(1, &[user("b")])).await });
    // The only worker serves other tasks while the write waits for the lock.
    for _ in 0..100 {
        let (store, session) = (store.clone(), session.clone());
        let mut reading = JoinSet::new();
        reading.spawn(async move { loaded(&store, &session).await.messages });
        assert_eq!(reading.join_all().await, [[user("a")]]);
    }
    assert!(writing.try_join_next().is_none());
    drop(transaction);
    writing.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(
        loaded(&store, &session).await.messages,
        [user("a"), user("b")]
    );
}

#[tokio::test]
async fn a_store_without_a_free_connection_is_an_error() {
    let TestStore { store, .. } = memory().await;
    let server = Owner::server();
    let writer = &sqlite(&store).0.writer;
    let held = writer.checkout(&server, StatementSize::Small).await;
    tokio::time::pause();
    let mut ping = std::pin::pin!(store.ping());
    assert!(ping.as_mut().now_or_never().is_none());
    tokio::time::advance(Duration::from_secs(31)).await;
    let error = ping.await.unwrap_err();
    tokio::time::resume();
    assert!(matches!(error, StoreError::Failed(_)), "{error:?}");
    drop(held);
    store.ping().await.unwrap();
}

#[tokio::test]
async fn writes_succeed_again_after_a_full_disk() {
    for subject in both().await {
        let (store, session) = (&subject.store, id("s"));
        write(store, &session, append(0, &[user("a")]))
            .await
            .unwrap();
        let before = loaded(store, &session).await;
        // One statement, one transaction, and a write in chunks that fails after the first one.
        let one = vec![user(&"x".repeat(200_000))];
        let many = [vec![user("y"); 70], vec![user(&"x".repeat(1_000_000))]].concat();
        let pieces = [vec![user("y"); 1_000], vec![user(&"x".repeat(3_000_000))]].concat();
        for new in [one, many, pieces] {
            sqlite(store).pragma("PRAGMA max_page_count = 1").await;
            let large = append(1, &new);
            for _ in 0..2 {
                let error = write(store, &session, large.clone()).await.unwrap_err();
                let cause = std::error::Error::source(&error).unwrap().to_string();
                assert!(cause.contains("full"), "{error:?}");
                assert_eq!(loaded(store, &session).await.messages, before.messages);
            }
            sqlite(store)
                .pragma("PRAGMA max_page_count = 1000000")
                .await;
            write(store, &session, large).await.unwrap();
            assert_eq!(loaded(store, &session).await.messages.len(), 1 + new.len());
            write(store, &session, append(1, &[])).await.unwrap();
        }
        assert_eq!(store.number("SELECT count(*) FROM sessions").await, 1);
    }
}
