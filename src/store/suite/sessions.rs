//! Written sessions are read unchanged, and only by their owner.

use futures_util::FutureExt;
use futures_util::future::try_join_all;

use super::*;

pub(crate) async fn a_change_appends_and_keeps_messages_unchanged(subject: TestStore) {
    let session = id("s");
    assert!(subject.is_gone(&session).await);
    let developer = r#"{ "role":"developer","content":[{"type":"text","text":"x"}],"y":1.0 }"#;
    let first = Change {
        instructions: Some(vec![system("be brief"), Message::parse(developer).unwrap()]),
        ..append(0, &[user("hi"), hidden_result("r")])
    };
    subject.write(&session, first.clone()).await;
    subject.write(&session, append(2, &[answer("hello")])).await;
    let stored = subject.loaded(&session).await;
    assert_eq!(
        stored.messages,
        [user("hi"), hidden_result("r"), answer("hello")]
    );
    assert_eq!(Some(stored.instructions), first.instructions);
    assert!((now() - stored.created_at).abs() < 5);
    assert!((now() - stored.updated_at).abs() < 5);
    assert_eq!(subject.summary(&session).await.message_count, 5);
}

pub(crate) async fn a_head_says_how_large_a_session_is(subject: TestStore) {
    let session = id("s");
    let head = async || subject.store.head(&owner(), &session).await.unwrap();
    assert_eq!(head().await, None);
    subject.write(&session, append(0, &[user("hi")])).await;
    let small = head().await.unwrap();
    let large = user(&"x".repeat(100_000));
    subject.write(&session, append(1, &[large])).await;
    let found = head().await.unwrap();
    let stored = subject.loaded(&session).await;
    assert_eq!(
        (found.created_at, found.updated_at),
        (stored.created_at, stored.updated_at)
    );
    assert!(
        found.bytes > small.bytes + 100_000 && found.bytes < 110_000,
        "{found:?}"
    );
    let others = subject.store.head(&Owner::key("b"), &session).await;
    assert_eq!(others.unwrap(), None);
}

pub(crate) async fn a_change_deletes_messages_that_it_does_not_keep(subject: TestStore) {
    let session = id("s");
    let all = [user("a"), answer("b"), user("c"), answer("d")];
    subject.write(&session, append(0, &all)).await;
    let edit = Change {
        instructions: Some(vec![system("new")]),
        ..append(2, &[user("c2")])
    };
    subject.write(&session, edit).await;
    let stored = subject.loaded(&session).await;
    assert_eq!(stored.messages, [user("a"), answer("b"), user("c2")]);
    assert_eq!(stored.instructions, [system("new")]);
    assert_eq!(subject.summary(&session).await.message_count, 4);
    // A change can remove instructions and only delete messages.
    let cut = Change {
        instructions: Some(Vec::new()),
        keep: 1,
        ..Change::default()
    };
    subject.write(&session, cut).await;
    let stored = subject.loaded(&session).await;
    assert_eq!(
        (stored.instructions, stored.messages),
        (vec![], vec![user("a")])
    );
    assert_eq!(subject.summary(&session).await.message_count, 1);
}

pub(crate) async fn a_change_that_keeps_more_than_is_stored_leaves_no_gap(subject: TestStore) {
    for stored in [0, 2] {
        let session = id(&format!("s{stored}"));
        let there = vec![user("there"); stored];
        if stored > 0 {
            subject.write(&session, append(0, &there)).await;
        }
        let new = [user("new"), answer("answer")];
        subject.write(&session, append(usize::MAX, &new)).await;
        let expected = [there.as_slice(), &new].concat();
        assert_eq!(subject.loaded(&session).await.messages, expected);
        let count = u64::try_from(stored + 2).unwrap();
        assert_eq!(subject.summary(&session).await.message_count, count);
        // The next change uses the count as its index.
        subject
            .write(&session, append(stored + 2, &[user("next")]))
            .await;
        assert_eq!(subject.loaded(&session).await.messages.len(), stored + 3);
    }
}

pub(crate) async fn an_empty_session_can_be_kept(subject: TestStore) {
    let session = id("s");
    subject.write(&session, Change::default()).await;
    let stored = subject.loaded(&session).await;
    assert_eq!((stored.instructions, stored.messages), (vec![], vec![]));
}

pub(crate) async fn an_owner_sees_and_changes_only_what_is_its_own(subject: TestStore) {
    let session = id("same");
    let other = Owner::key("bob");
    let store = &subject.store;
    let with_call = |text: &str| Change {
        client_calls: vec!["call_x".to_owned()],
        ..append(0, &[user(text)])
    };
    subject.write(&session, with_call("alice's")).await;
    assert!(store.load(&other, &session).await.unwrap().is_none());
    assert!(
        store
            .waiting_turn(&other, "call_x")
            .await
            .unwrap()
            .is_none()
    );
    assert!(store.list(&other, 10, None).await.unwrap().data.is_empty());
    let lease = store.acquire(&other, &session, LONG).await.unwrap();
    assert!(!store.delete(lease.fence()).await.unwrap());
    for error in [
        store.fork(lease.fence(), None, &id("new")).await.map(drop),
        store.list(&other, 10, Some(&session)).await.map(drop),
    ] {
        assert!(matches!(error, Err(StoreError::NotFound)), "{error:?}");
    }
    // The same ids of another owner are other records.
    let replaced = store.replace(lease.fence(), 0, &Arc::default()).await;
    assert_eq!(replaced.unwrap(), Replaced::Created);
    subject
        .write_as(&other, &id("bobs"), with_call("bob's"))
        .await;
    assert_eq!(subject.loaded(&session).await.messages, [user("alice's")]);
    assert_eq!(
        subject.session_of_call("call_x").await,
        Some(session.clone())
    );
    let found = store.waiting_turn(&other, "call_x").await.unwrap();
    assert!(matches!(found, Some(WaitingTurn::Stored(found)) if found == id("bobs")));
    let everybody = Owner::everybody();
    assert!(store.load(&everybody, &session).await.unwrap().is_none());
}

pub(crate) async fn many_sessions_are_written_and_read_at_once(subject: TestStore) {
    let turns = (0..20).map(|number| {
        let store = subject.store.clone();
        async move {
            let session = id(&format!("s{number}"));
            for turn in 0..10 {
                let lease = store.acquire(&owner(), &session, LONG).await?;
                let change = append(turn * 2, &[user(&format!("{number}.{turn}")), answer("ok")]);
                store.write(lease.fence(), &Arc::new(change)).await?;
                let stored = store.load(&owner(), &session).await?.unwrap();
                assert_eq!(stored.messages.len(), turn * 2 + 2);
            }
            Ok::<_, StoreError>(())
        }
    });
    try_join_all(turns).await.unwrap();
    let page = subject.store.list(&owner(), 100, None).await.unwrap();
    assert_eq!(page.data.len(), 20);
    assert!(page.data.iter().all(|entry| entry.message_count == 20));
}

pub(crate) async fn dropped_reads_have_no_effect(subject: TestStore) {
    let session = id("s");
    let messages = many(200);
    subject.write(&session, append(0, &messages)).await;
    for _ in 0..50 {
        drop(subject.store.load(&owner(), &session).now_or_never());
        drop(subject.store.list(&owner(), 1, None).now_or_never());
        tokio::task::yield_now().await;
    }
    assert_eq!(subject.loaded(&session).await.messages, messages);
}

pub(crate) async fn a_closed_store_refuses_everything(subject: TestStore) {
    let lease = subject.lease(&id("s")).await;
    subject.store.ping().await.unwrap();
    subject.store.close().await;
    assert!(subject.store.ping().await.is_err());
    assert!(subject.store.load(&owner(), &id("s")).await.is_err());
    let written = subject.store.write(lease.fence(), &Arc::default()).await;
    assert!(matches!(written, Err(StoreError::Failed(_))), "{written:?}");
    subject.store.close().await;
}
