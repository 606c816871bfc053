//! Lists, titles and expiry.

use std::collections::HashSet;

use super::*;

pub(crate) async fn pages_cover_all_sessions_once_last_written_first(subject: TestStore) {
    let names: Vec<SessionId> = (0..25).map(|number| id(&format!("s{number}"))).collect();
    for name in &names {
        subject.write(name, append(0, &[user("t")])).await;
    }
    // Half of them at the same time.
    for name in &names[..12] {
        subject.store.set_updated_at(&owner(), name, 1_000).await;
    }
    let list = async |limit: usize, after: Option<&SessionId>| {
        subject.store.list(&owner(), limit, after).await
    };
    let mut seen = Vec::new();
    let mut pages = 0;
    let mut after: Option<SessionId> = None;
    loop {
        let page = list(4, after.as_ref()).await.unwrap();
        pages += 1;
        assert_eq!(page.has_more, pages < 7);
        after = page.data.last().map(|entry| entry.id.clone());
        seen.extend(page.data.into_iter().map(|entry| entry.id));
        if !page.has_more {
            break;
        }
    }
    assert_eq!(pages, 7);
    assert_eq!(seen.iter().collect::<HashSet<_>>().len(), 25);
    let expected: Vec<SessionId> = names.iter().rev().cloned().collect();
    assert_eq!(seen, expected);
    // A write moves a session to the front.
    subject.write(&names[3], append(1, &[])).await;
    assert_eq!(list(1, None).await.unwrap().data[0].id, names[3]);
    let missing = list(4, Some(&id("none"))).await;
    assert!(matches!(missing, Err(StoreError::NotFound)));
    let last = list(4, seen.last()).await.unwrap();
    assert!(last.data.is_empty() && !last.has_more);
    assert!(!list(usize::MAX, None).await.unwrap().has_more);
}

fn titled(keep: usize, messages: &[StoredMessage], title: Option<(usize, Option<&str>)>) -> Change {
    Change {
        title: title.map(|(index, text)| Title {
            index,
            text: text.map(str::to_owned),
        }),
        ..append(keep, messages)
    }
}

pub(crate) async fn titles_follow_the_messages_that_give_them(subject: TestStore) {
    let session = id("s");
    let title = async || subject.summary(&session).await.title;
    let change = async |change: Change| subject.write(&session, change).await;
    change(titled(0, &[answer("no user yet")], None)).await;
    assert_eq!(title().await, None);
    let (first, second) = (user("first"), user("second"));
    change(titled(1, &[first, second], Some((0, Some("first"))))).await;
    assert_eq!(title().await.as_deref(), Some("first"));
    // Later messages do not change the title; a new first user message does.
    change(titled(2, &[user("third")], Some((0, Some("third"))))).await;
    assert_eq!(title().await.as_deref(), Some("first"));
    change(titled(
        1,
        &[answer("x"), user("edited")],
        Some((1, Some("edited"))),
    ))
    .await;
    assert_eq!(title().await.as_deref(), Some("edited"));
    change(titled(2, &[], None)).await;
    assert_eq!(title().await, None);
    // The first message may have no text.
    change(titled(2, &[user(""), user("text")], Some((0, None)))).await;
    assert_eq!(title().await, None);
    change(titled(4, &[user("more")], Some((0, Some("more"))))).await;
    assert_eq!(title().await, None);
}

pub(crate) async fn sessions_that_were_not_written_expire(subject: TestStore) {
    let store = &subject.store;
    let with_call = |call: String| Change {
        client_calls: vec![call],
        ..append(0, &[user("a")])
    };
    // More than one batch.
    for number in 0..150 {
        let session = id(&format!("old{number}"));
        subject
            .write(&session, with_call(format!("call_{number}")))
            .await;
        store.set_updated_at(&owner(), &session, now() - 100).await;
    }
    subject
        .write(&id("new"), with_call("call_new".to_owned()))
        .await;
    let expire = async |ttl| store.expire(Some(ttl), None).await.unwrap();
    assert_eq!(store.expire(None, Some(Duration::ZERO)).await.unwrap(), 0);
    assert_eq!(expire(Duration::from_secs(1_000)).await, 0);
    assert_eq!(expire(Duration::MAX).await, 0);
    assert_eq!(expire(Duration::from_secs(50)).await, 150);
    assert_eq!(subject.session_of_call("call_3").await, None);
    assert_eq!(subject.session_of_call("call_new").await, Some(id("new")));
    assert!(subject.is_gone(&id("old3")).await);
    assert_eq!(expire(Duration::ZERO).await, 1);
    assert!(subject.is_gone(&id("new")).await);
    assert!(
        store
            .list(&owner(), 10, None)
            .await
            .unwrap()
            .data
            .is_empty()
    );
    assert_eq!(expire(Duration::ZERO).await, 0);
}

pub(crate) async fn nameless_sessions_expire_after_their_own_time(subject: TestStore) {
    let store = &subject.store;
    let nameless = Change {
        id_origin: IdOrigin::Nameless,
        ..append(0, &[user("a")])
    };
    // The session keeps the mark of the first write, also when a later write is large.
    subject.write(&id("nameless"), nameless.clone()).await;
    subject
        .write(&id("nameless"), append(1, &many(1_000)))
        .await;
    subject.write(&id("named"), append(0, &[user("a")])).await;
    subject.write(&id("named"), nameless.clone()).await;
    let large = Change {
        append: many(1_000),
        ..nameless
    };
    subject.write(&id("large"), large).await;
    let chat = Change {
        id_origin: IdOrigin::Chat,
        ..append(0, &[user("a")])
    };
    subject.write(&id("chat"), chat).await;
    subject.write(&id("chat"), append(1, &many(1_000))).await;
    for name in ["nameless", "named", "large", "chat"] {
        let then = now() - 100;
        store.set_updated_at(&owner(), &id(name), then).await;
    }
    let (short, long) = (Duration::from_secs(50), Duration::from_secs(1_000));
    assert_eq!(store.expire(None, None).await.unwrap(), 0);
    assert_eq!(store.expire(Some(long), Some(long)).await.unwrap(), 0);
    assert_eq!(store.expire(None, Some(short)).await.unwrap(), 2);
    assert!(subject.is_gone(&id("nameless")).await);
    assert!(subject.is_gone(&id("large")).await);
    assert!(!subject.is_gone(&id("chat")).await);
    assert_eq!(store.expire(Some(short), None).await.unwrap(), 2);
    assert!(subject.is_gone(&id("named")).await);
    assert!(subject.is_gone(&id("chat")).await);
}
