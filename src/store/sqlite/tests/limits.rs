//! Limits: no free connection, a locked file, a full disk.

use std::time::Instant;

use futures_util::FutureExt;
use rusqlite::{Connection, TransactionBehavior};

use super::super::super::suite::system;
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

#[tokio::test(flavor = "current_thread")]
async fn a_file_that_another_process_has_locked_does_not_block_the_task() {
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
    let lease = store.acquire(&owner(), &session, LONG).await.unwrap();
    let change = Arc::new(append(1, &[user("b")]));
    let mut write = std::pin::pin!(store.write(lease.fence(), &change));
    // Each poll returns at once, however long the lock is held.
    let started = Instant::now();
    for _ in 0..100 {
        let polled = write.as_mut().now_or_never();
        assert!(polled.is_none());
        tokio::task::yield_now().await;
    }
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(loaded(&store, &session).await.messages, [user("a")]);
    drop(transaction);
    write.await.unwrap();
    assert_eq!(
        loaded(&store, &session).await.messages,
        [user("a"), user("b")]
    );
}

#[tokio::test]
async fn a_store_without_a_free_connection_is_an_error() {
    let TestStore { store, .. } = memory().await;
    let (entered, running) = tokio::sync::oneshot::channel();
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let (entered, wait) = (Mutex::new(Some(entered)), Mutex::new(wait));
    let writer = Arc::clone(&sqlite(&store).0.writer);
    let mut held = tokio::task::JoinSet::new();
    held.spawn(async move {
        writer
            .run(Owner::server(), Executor::Thread, move |_, _| {
                let _sent = entered.lock().take().map(|entered| entered.send(()));
                let _ended = wait.lock().recv();
                Ok(())
            })
            .await
    });
    running.await.unwrap();
    tokio::time::pause();
    let mut ping = std::pin::pin!(store.ping());
    assert!(ping.as_mut().now_or_never().is_none());
    tokio::time::advance(Duration::from_secs(31)).await;
    let error = ping.await.unwrap_err();
    tokio::time::resume();
    assert!(matches!(error, StoreError::Failed(_)), "{error:?}");
    drop(done);
    held.join_next().await.unwrap().unwrap().unwrap();
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
        assert_eq!(
            sqlite(store).count("SELECT count(*) FROM sessions").await,
            1
        );
    }
}

/// Keeps the only blocking thread of the runtime busy until the sender is dropped.
fn occupy_the_thread() -> std::sync::mpsc::Sender<()> {
    let (sender, receiver) = std::sync::mpsc::channel();
    drop(tokio::task::spawn_blocking(move || receiver.recv()));
    sender
}

#[test]
fn short_statements_run_in_the_task_and_long_ones_do_not() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        for subject in both().await {
            let (store, session, owner) = (&subject.store, id("s"), owner());
            let lease = store.acquire(&owner, &session, LONG).await.unwrap();
            let few: Vec<_> = (0..60).map(|number| user(&number.to_string())).collect();
            let occupied = occupy_the_thread();
            let change = Arc::new(Change {
                instructions: Some(vec![system(&"i".repeat(50_000)), system("j")]),
                ..append(0, &few)
            });
            let written = store.write(lease.fence(), &change).now_or_never();
            written.expect("short enough for the task").unwrap();
            let read = store.load(&owner, &session).now_or_never();
            read.expect("short enough for the task").unwrap();
            drop(occupied);
            // Too many rows, too many bytes, too many rows to remove.
            let bytes = user(&"x".repeat(TASK_LIMIT.bytes));
            for change in [
                append(60, &vec![user("x"); 70]),
                append(130, &[bytes]),
                append(1, &[]),
            ] {
                let occupied = occupy_the_thread();
                let change = Arc::new(change);
                let mut write = std::pin::pin!(store.write(lease.fence(), &change));
                assert!(write.as_mut().now_or_never().is_none());
                drop(occupied);
                write.await.unwrap();
                let occupied = occupy_the_thread();
                let mut read = std::pin::pin!(store.load(&owner, &session));
                let at_once = read.as_mut().now_or_never();
                assert_eq!(at_once.is_some(), change.keep == 1);
                drop(occupied);
                if at_once.is_none() {
                    read.await.unwrap();
                }
            }
        }
    });
}
