//! Sessions and messages that are too large for one short statement.

use std::task::Poll;

use super::*;

pub(crate) async fn a_long_change_is_atomic(subject: TestStore) {
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

pub(crate) async fn a_long_edit_keeps_the_messages_before_it(subject: TestStore) {
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

pub(crate) async fn large_messages_and_any_text_are_stored_unchanged(subject: TestStore) {
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

pub(crate) async fn long_sessions_are_replaced_copied_and_deleted(subject: TestStore) {
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

pub(crate) async fn a_session_is_read_consistently_while_it_is_written(subject: TestStore) {
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

pub(crate) async fn short_writes_are_made_beside_long_ones(subject: TestStore) {
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
        loop {
            subject
                .write(&id("short"), append(written, &[user("x")]))
                .await;
            written += 1;
            if done.load(std::sync::atomic::Ordering::Acquire) {
                return written;
            }
            tokio::task::yield_now().await;
        }
    };
    let ((), written) = tokio::join!(long, short);
    assert_eq!(subject.loaded(&id("short")).await.messages.len(), written);
    assert_eq!(subject.loaded(&id("copy")).await.messages, messages);
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

pub(crate) async fn a_write_dropped_at_any_point_is_atomic(subject: TestStore) {
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
