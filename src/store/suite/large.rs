//! Sessions and messages that are too large for one short statement.

use std::task::Poll;

use super::*;

pub(in crate::store) async fn a_long_change_is_atomic(subject: TestStore) {
    let session = id("long");
    let messages = many(2_500);
    subject.write(&session, append(0, &messages[..7])).await;
    let before = subject.loaded(&session).await;
    subject.write(&session, append(7, &messages[7..107])).await;
    let with_call = Change {
        instructions: Some(vec![system("i")]),
        client_calls: vec!["c".to_owned()],
        ..append(107, &messages[107..])
    };
    subject.write(&session, with_call).await;
    let stored = subject.loaded(&session).await;
    assert_eq!(stored.messages, messages);
    assert_eq!(stored.instructions, [system("i")]);
    assert_eq!(stored.created_at, before.created_at);
    assert_eq!(subject.session_of_call("c").await, Some(session.clone()));
    assert_eq!(subject.summary(&session).await.message_count, 2_501);
    assert_eq!(
        subject
            .store
            .list(&owner(), 10, None)
            .await
            .unwrap()
            .data
            .len(),
        1
    );
}

pub(in crate::store) async fn a_long_edit_keeps_the_messages_before_it(subject: TestStore) {
    let session = id("long");
    let messages = many(1_800);
    let first = Change {
        instructions: Some(vec![system("i")]),
        client_calls: vec!["c".to_owned()],
        title: Some(Title {
            index: 0,
            text: Some("0".to_owned()),
        }),
        ..append(0, &messages)
    };
    subject.write(&session, first).await;
    // Deletes more than fits one transaction, with and without new messages.
    for (keep, new) in [(1_700, 700), (600, 0), (1, 1)] {
        let new = vec![answer("new"); new];
        subject.write(&session, append(keep, &new)).await;
        let stored = subject.loaded(&session).await;
        assert_eq!(stored.messages[..keep.min(1_700)], messages[..keep]);
        assert_eq!(stored.messages[keep..], new);
        assert_eq!(stored.instructions, [system("i")]);
        let summary = subject.summary(&session).await;
        let count = u64::try_from(keep + new.len() + 1).unwrap();
        assert_eq!(
            (summary.message_count, summary.title.as_deref()),
            (count, Some("0"))
        );
        assert_eq!(subject.session_of_call("c").await, Some(session.clone()));
    }
}

pub(in crate::store) async fn large_messages_and_any_text_are_stored_unchanged(subject: TestStore) {
    let session = id("s");
    let large = "🦀\"\\\u{0}\u{2028}ß".repeat(300_000);
    assert!(large.len() > 3 * 1024 * 1024);
    let messages = [
        user(&large),
        StoredMessage {
            full_text: Some(large.clone()),
            ..hidden_result("cut")
        },
        answer(&large),
    ];
    subject.write(&session, append(0, &messages)).await;
    assert!(subject.loaded(&session).await.messages == messages);
    // Also with large instructions, which are in the same row as the count.
    let instructions = Change {
        instructions: Some(vec![system(&large)]),
        ..append(3, &[user("more")])
    };
    subject.write(&session, instructions).await;
    subject
        .write(&session, append(4, &[user("and more")]))
        .await;
    let stored = subject.loaded(&session).await;
    assert!(stored.instructions == [system(&large)]);
    assert_eq!(stored.messages[3..], [user("more"), user("and more")]);
}

pub(in crate::store) async fn long_sessions_are_replaced_copied_and_deleted(subject: TestStore) {
    let (session, copy) = (id("s"), id("copy"));
    let messages = many(1_500);
    subject.replace(&session, 5, append(0, &messages)).await;
    assert_eq!(subject.loaded(&session).await.messages, messages);
    let half = many(700);
    subject.fork(&session, Some(700), &copy).await.unwrap();
    assert_eq!(subject.loaded(&copy).await.messages, half);
    subject.replace(&session, 5, append(0, &half)).await;
    assert_eq!(subject.loaded(&session).await.messages, half);
    for gone in [&session, &copy] {
        assert!(subject.delete(gone).await);
        assert!(subject.is_gone(gone).await);
    }
    assert!(
        subject
            .store
            .list(&owner(), 10, None)
            .await
            .unwrap()
            .data
            .is_empty()
    );
}

pub(in crate::store) async fn a_session_is_read_consistently_while_it_is_written(
    subject: TestStore,
) {
    let session = id("s");
    // The text of each message is the number of messages in the state.
    let state = |count: usize| vec![user(&count.to_string()); count];
    subject.replace(&session, 0, append(0, &state(1_200))).await;
    let done = std::sync::atomic::AtomicBool::new(false);
    let write = async {
        for count in [1_400, 1_201, 1_000, 1_300, 1_100] {
            subject.replace(&session, 0, append(0, &state(count))).await;
        }
        done.store(true, std::sync::atomic::Ordering::Release);
    };
    let read = async {
        while !done.load(std::sync::atomic::Ordering::Acquire) {
            let messages = subject.loaded(&session).await.messages;
            assert_eq!(messages, state(messages.len()));
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(write, read);
    assert_eq!(subject.loaded(&session).await.messages.len(), 1_100);
}

pub(in crate::store) async fn short_writes_run_between_the_chunks_of_long_ones(subject: TestStore) {
    let messages = many(6_000);
    let done = std::sync::atomic::AtomicBool::new(false);
    let long = async {
        subject.replace(&id("long"), 0, append(0, &messages)).await;
        subject.fork(&id("long"), None, &id("copy")).await.unwrap();
        assert!(subject.delete(&id("long")).await);
        done.store(true, std::sync::atomic::Ordering::Release);
    };
    let short = async {
        let mut written = 0;
        while !done.load(std::sync::atomic::Ordering::Acquire) {
            subject
                .write(&id("short"), append(written, &[user("x")]))
                .await;
            written += 1;
            tokio::task::yield_now().await;
        }
        written
    };
    let ((), written) = tokio::join!(long, short);
    let least = subject.short_writes_between(10);
    assert!(
        written >= least,
        "only {written} short writes came in between"
    );
    assert_eq!(subject.loaded(&id("short")).await.messages.len(), written);
    assert_eq!(subject.loaded(&id("copy")).await.messages, messages);
}

/// A message whose text has this many bytes, which differ at every place.
fn of_length(bytes: usize) -> StoredMessage {
    let digits = (0..bytes / 8).map(|number| format!("{number:08}"));
    StoredMessage {
        full_text: Some(digits.clone().rev().collect()),
        ..user(&digits.collect::<String>())
    }
}

pub(in crate::store) async fn short_writes_run_between_the_pieces_of_a_long_message(
    subject: TestStore,
) {
    /// Writes that one transaction with 2 MiB lets in between.
    const LEAST: usize = (40 << 20) / (2 << 20);
    let other = Owner::key("other");
    let written = std::sync::atomic::AtomicUsize::new(0);
    let done = std::sync::atomic::AtomicBool::new(false);
    let long = [of_length(20 << 20), user("end")];
    // How many short writes of another owner are made during an operation on the long message.
    let between =
        async |operation: &str, least, work: std::pin::Pin<Box<dyn Future<Output = ()> + '_>>| {
            let before = written.load(std::sync::atomic::Ordering::Acquire);
            work.await;
            let count = written.load(std::sync::atomic::Ordering::Acquire) - before;
            assert!(
                count >= least,
                "{operation}: {count} short writes came in between"
            );
        };
    let operations = async {
        let (session, copy) = (id("long"), id("copy"));
        let import = async {
            subject.replace(&session, 0, append(0, &long)).await;
        };
        let least = |chunks| subject.short_writes_between(chunks);
        between("import", least(LEAST), Box::pin(import)).await;
        assert!(subject.loaded(&session).await.messages == long);
        // Longer than one transaction: the messages before it are copied.
        let change = subject.write(&session, append(2, &[user(&"x".repeat(3 << 20))]));
        between("write", least(LEAST), Box::pin(change)).await;
        let fork = async { subject.fork(&session, Some(1), &copy).await.unwrap() };
        between("fork", 0, Box::pin(fork)).await;
        assert!(subject.loaded(&copy).await.messages == long[..1]);
        let replace = async {
            subject
                .replace(&session, 0, append(0, &[user("short")]))
                .await;
            subject.replace(&copy, 0, append(0, &[user("short")])).await;
        };
        // The message is removed together with the last session that has it.
        between("removal", least(LEAST / 2), Box::pin(replace)).await;
        done.store(true, std::sync::atomic::Ordering::Release);
    };
    let short = async {
        while !done.load(std::sync::atomic::Ordering::Acquire) {
            let keep = written.load(std::sync::atomic::Ordering::Acquire);
            let lease = subject
                .store
                .acquire(&other, &id("short"), LONG)
                .await
                .unwrap();
            let change = Arc::new(append(keep, &[user("x")]));
            subject.store.write(lease.fence(), &change).await.unwrap();
            written.store(keep + 1, std::sync::atomic::Ordering::Release);
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(operations, short);
}

/// Drops the future after this number of polls, at once or when it is next woken; returns `None` then.
async fn dropped_at<T>(
    polls: usize,
    when_woken: bool,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let mut polled = 0;
    std::future::poll_fn(|context| {
        if polled == polls {
            return Poll::Ready(None);
        }
        polled += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polled == polls && !when_woken => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

pub(in crate::store) async fn a_write_dropped_at_any_point_is_atomic(subject: TestStore) {
    for count_of_new in [2, 200, 1_500] {
        for when_woken in [false, true] {
            check_dropped_writes(&subject, when_woken, count_of_new).await;
        }
    }
}

async fn check_dropped_writes(subject: &TestStore, when_woken: bool, count_of_new: usize) {
    let session = id("s");
    let before = append(0, &[user("a"), answer("b")]);
    subject.replace(&session, 0, before.clone()).await;
    let new = many(count_of_new);
    let change = Arc::new(Change {
        instructions: Some(vec![system("i")]),
        client_calls: vec!["c".to_owned()],
        ..append(1, &new)
    });
    let mut undone = 0;
    for polls in 0.. {
        let lease = subject.lease(&session).await;
        let write = subject.store.write(lease.fence(), &change);
        let finished = dropped_at(polls, when_woken, write).await;
        drop(lease);
        // The next lease is granted when a running write has ended.
        drop(subject.lease(&session).await);
        let stored = subject.loaded(&session).await;
        let count = subject.summary(&session).await.message_count;
        let found = subject.session_of_call("c").await;
        if stored.messages.len() == 2 && stored.instructions.is_empty() {
            assert_eq!(stored.messages, before.append);
            assert_eq!((count, found), (2, None));
            assert!(finished.is_none());
            undone += 1;
        } else {
            assert_eq!(stored.messages, [&before.append[..1], &new].concat());
            let count_after = u64::try_from(count_of_new + 2).unwrap();
            let whole = (vec![system("i")], count_after, Some(session.clone()));
            assert_eq!((stored.instructions, count, found), whole);
            subject.replace(&session, 0, before.clone()).await;
        }
        if let Some(result) = finished {
            result.unwrap();
            break;
        }
    }
    assert!(undone > 0, "a write that was never polled is not made");
}
