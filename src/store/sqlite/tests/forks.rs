//! What forks share on the disk.

use super::super::super::StoredMessage;
use super::super::super::suite::system;
use super::sizes::check_counts;
use super::*;
use crate::openai::message::Message;

const MIB: usize = 1024 * 1024;

/// Messages of about 60 MiB.
fn large() -> Vec<StoredMessage> {
    vec![user(&"x".repeat(MIB / 2)); 120]
}

/// Rows of messages, and of sessions of which some are hidden.
async fn rows(store: &Store) -> [i64; 3] {
    let count = |sql: &'static str| sqlite(store).count(sql);
    [
        count("SELECT count(*) FROM messages").await,
        count("SELECT count(*) FROM sessions").await,
        count("SELECT count(*) FROM shared_messages").await,
    ]
}

async fn fork(store: &Store, source: &str, before: Option<usize>, new: &str) {
    let lease = store.acquire(&owner(), &id(source), LONG).await.unwrap();
    let forked = store.fork(lease.fence(), before, &id(new)).await;
    forked.unwrap();
}

async fn delete(store: &Store, session: &str) {
    let lease = store.acquire(&owner(), &id(session), LONG).await.unwrap();
    assert!(store.delete(lease.fence()).await.unwrap());
}

/// Runs the sweep that a write may have started in the background.
async fn swept(store: &Store) {
    sqlite(store).sweep().await.unwrap();
}

#[tokio::test]
async fn a_fork_writes_no_messages_and_little_else() {
    let TestStore { store, directory } = file().await;
    let change = Change {
        instructions: Some(vec![system(&"i".repeat(MIB))]),
        ..append(0, &large())
    };
    write(&store, &id("s"), change).await.unwrap();
    let pages = "SELECT page_count FROM pragma_page_count()";
    let before = sqlite(&store).count(pages).await;
    for number in 0..50 {
        fork(&store, "s", None, &format!("fork{number}")).await;
    }
    let after = sqlite(&store).count(pages).await;
    assert!(after - before < 100, "{before} pages became {after}");
    // The parent, 50 forks and one trunk, which has the messages and the instruction.
    assert_eq!(rows(&store).await, [121, 52, 102]);
    check_counts(&store).await;
    assert_eq!(loaded(&store, &id("fork7")).await.messages, large());
    drop(directory);
}

#[tokio::test]
async fn rows_go_when_no_session_uses_them() {
    for TestStore { store, .. } in both().await {
        let message = user(&"x".repeat(3_000));
        let messages = vec![message.clone(); 900];
        write(&store, &id("s"), append(0, &messages)).await.unwrap();
        fork(&store, "s", Some(700), "a").await;
        fork(&store, "a", None, "b").await;
        fork(&store, "s", Some(100), "c").await;
        // No second trunk: nobody wrote in between.
        assert_eq!(rows(&store).await, [900, 5, 4]);
        delete(&store, "s").await;
        assert_eq!(rows(&store).await, [700, 4, 3]);
        write(&store, &id("a"), append(300, &[])).await.unwrap();
        write(
            &store,
            &id("b"),
            append(650, std::slice::from_ref(&message)),
        )
        .await
        .unwrap();
        swept(&store).await;
        assert_eq!(rows(&store).await, [651, 4, 3]);
        check_counts(&store).await;
        // The fork of a session with few rows of its own copies those.
        fork(&store, "b", None, "d").await;
        assert_eq!(rows(&store).await, [652, 5, 4]);
        delete(&store, "b").await;
        write(&store, &id("d"), append(200, &[])).await.unwrap();
        swept(&store).await;
        assert_eq!(rows(&store).await, [300, 4, 3]);
        // A change in chunks goes on sharing what it keeps.
        write(&store, &id("d"), append(200, &vec![message; 600]))
            .await
            .unwrap();
        assert_eq!(rows(&store).await, [900, 4, 3]);
        assert_eq!(loaded(&store, &id("d")).await.messages.len(), 800);
        delete(&store, "d").await;
        delete(&store, "a").await;
        assert_eq!(rows(&store).await, [100, 2, 1]);
        check_counts(&store).await;
        delete(&store, "c").await;
        assert_eq!(rows(&store).await, [0, 0, 0]);
    }
}

#[tokio::test]
async fn instructions_go_when_no_session_uses_them() {
    for TestStore { store, .. } in both().await {
        let long = |text: &str| system(&text.repeat(3 * MIB));
        let with = |instructions: &[Message], keep, messages: &[StoredMessage]| Change {
            instructions: Some(instructions.to_vec()),
            ..append(keep, messages)
        };
        let all = [long("a"), long("b"), long("c"), system("d")];
        let messages = vec![user(&"x".repeat(3_000)); 200];
        write(&store, &id("s"), with(&all, 0, &messages))
            .await
            .unwrap();
        fork(&store, "s", Some(2), "two").await;
        fork(&store, "s", Some(100), "part").await;
        fork(&store, "two", Some(1), "one").await;
        let pieces = async || {
            swept(&store).await;
            check_counts(&store).await;
            let sql = "SELECT count(*) FROM message_pieces";
            sqlite(&store).count(sql).await
        };
        let of_one = 49;
        assert_eq!(pieces().await, 3 * of_one);
        // The parent, three forks and one trunk, of which all have the instructions and two the messages.
        assert_eq!(rows(&store).await, [204, 5, 6]);
        let new = [system("new")];
        write(&store, &id("s"), with(&new, 200, &[])).await.unwrap();
        assert_eq!(pieces().await, 3 * of_one);
        write(&store, &id("part"), with(&new, 96, &[]))
            .await
            .unwrap();
        assert_eq!(pieces().await, 2 * of_one);
        delete(&store, "two").await;
        assert_eq!(pieces().await, of_one);
        assert_eq!(rows(&store).await, [1 + 200 + 2, 4, 3]);
        assert_eq!(loaded(&store, &id("one")).await.instructions, all[..1]);
        // The last messages go before the instructions that are left.
        delete(&store, "s").await;
        delete(&store, "part").await;
        assert_eq!(rows(&store).await, [1, 2, 1]);
        write(&store, &id("one"), with(&[], 0, &[])).await.unwrap();
        assert_eq!(pieces().await, 0);
        assert_eq!(rows(&store).await, [0, 1, 0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_session_does_not_hold_up_writes_of_another_owner() {
    let TestStore { store, directory } = file().await;
    let done = std::sync::atomic::AtomicBool::new(false);
    let large_owner = async {
        let messages = large();
        let lease = store.acquire(&owner(), &id("s"), LONG).await.unwrap();
        let import = Arc::new(append(0, &messages));
        store.replace(lease.fence(), 0, &import).await.unwrap();
        for number in 0..20 {
            let new_id = id(&format!("fork{number}"));
            store.fork(lease.fence(), None, &new_id).await.unwrap();
            let more = Arc::new(append(120 + number, &[user("more")]));
            store.write(lease.fence(), &more).await.unwrap();
        }
        assert!(store.delete(lease.fence()).await.unwrap());
        assert!(store.expire(Some(Duration::ZERO), None).await.unwrap() >= 20);
        done.store(true, std::sync::atomic::Ordering::Release);
    };
    let small_owner = async {
        let bob = Owner::key("bob");
        let (mut longest, mut written) = (Duration::ZERO, 0);
        while !done.load(std::sync::atomic::Ordering::Acquire) {
            let started = std::time::Instant::now();
            let lease = store.acquire(&bob, &id("b"), LONG).await.unwrap();
            let change = Arc::new(append(written, &[user("b")]));
            store.write(lease.fence(), &change).await.unwrap();
            longest = longest.max(started.elapsed());
            written += 1;
            tokio::task::yield_now().await;
        }
        (longest, written)
    };
    let ((), (longest, written)) = tokio::join!(large_owner, small_owner);
    // An import of 60 MiB has 30 chunks; on a busy machine not every pause between two is used.
    assert!(written >= 20, "only {written} writes came in between");
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    drop(directory);
}
