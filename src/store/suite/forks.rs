//! Forks and replacements.

use super::*;

pub(in crate::store) async fn a_fork_copies_up_to_the_index(subject: TestStore) {
    let instructions = vec![system("i0"), system("i1")];
    let messages = [user("m2"), hidden_result("m3"), answer("m4"), user("m5")];
    let source = Change {
        instructions: Some(instructions.clone()),
        client_calls: vec!["call_x".to_owned()],
        title: Some(Title {
            index: 0,
            text: Some("m2".to_owned()),
        }),
        ..append(0, &messages)
    };
    subject.write(&id("source"), source).await;
    let before = subject.loaded(&id("source")).await;
    for index in [None, Some(6), Some(5), Some(3), Some(2), Some(1), Some(0)] {
        let fork = id(&format!("fork{}", index.unwrap_or(7)));
        subject.fork(&id("source"), index, &fork).await.unwrap();
        let copied = subject.loaded(&fork).await;
        let total = index.unwrap_or(6);
        assert_eq!(copied.instructions, instructions[..total.min(2)]);
        assert_eq!(copied.messages, messages[..total.saturating_sub(2)]);
        assert!((now() - copied.created_at).abs() < 5);
        let entry = subject.summary(&fork).await;
        assert_eq!(entry.message_count, u64::try_from(total).unwrap());
        let title = (total > 2).then(|| "m2".to_owned());
        assert_eq!(entry.title, title);
        // The fork can be written independently.
        let keep = copied.messages.len();
        subject.write(&fork, append(keep, &[user("on")])).await;
        assert_eq!(subject.loaded(&fork).await.messages.len(), keep + 1);
    }
    assert_eq!(subject.loaded(&id("source")).await, before);
    assert_eq!(subject.session_of_call("call_x").await, Some(id("source")));
}

pub(in crate::store) async fn a_refused_fork_has_a_specific_error(subject: TestStore) {
    let source = id("source");
    subject.write(&source, append(0, &[user("a")])).await;
    subject.fork(&source, None, &id("named")).await.unwrap();
    for taken in ["named", "source"] {
        let error = subject.fork(&source, None, &id(taken)).await;
        assert!(matches!(error, Err(StoreError::Exists)), "{error:?}");
    }
    assert_eq!(subject.loaded(&id("named")).await.messages, [user("a")]);
    let error = subject.fork(&id("none"), None, &id("x")).await;
    assert!(matches!(error, Err(StoreError::NotFound)), "{error:?}");
    for index in [2, usize::MAX] {
        let error = subject.fork(&source, Some(index), &id("x")).await;
        assert!(
            matches!(error, Err(StoreError::PastEnd { messages: 1 })),
            "{error:?}"
        );
    }
    let page = subject.store.list(&owner(), 10, None).await.unwrap();
    assert_eq!(page.data.len(), 2);
}

pub(in crate::store) async fn a_replacement_replaces_everything(subject: TestStore) {
    let session = id("s");
    let new = Change {
        instructions: Some(vec![system("i")]),
        title: Some(Title {
            index: 0,
            text: Some("new".to_owned()),
        }),
        ..append(0, &[user("new"), answer("n")])
    };
    let first = subject.replace(&session, 1_234, new.clone()).await;
    assert_eq!(first, Replaced::Created);
    let more = Change {
        client_calls: vec!["c".to_owned()],
        ..append(2, &vec![user("more"); 5])
    };
    subject.write(&session, more).await;
    let second = subject.replace(&session, 1_234, new.clone()).await;
    assert_eq!(second, Replaced::Replaced);
    let stored = subject.loaded(&session).await;
    assert_eq!(stored.messages, new.append);
    assert_eq!(Some(stored.instructions), new.instructions);
    assert_eq!(stored.created_at, 1_234);
    assert!((now() - stored.updated_at).abs() < 5);
    let entry = subject.summary(&session).await;
    assert_eq!(
        (entry.message_count, entry.title.as_deref()),
        (3, Some("new"))
    );
    assert_eq!(subject.session_of_call("c").await, None);
    subject.replace(&session, 0, new).await;
    assert!((now() - subject.loaded(&session).await.created_at).abs() < 5);
    let page = subject.store.list(&owner(), 10, None).await.unwrap();
    assert_eq!(page.data.len(), 1);
}
