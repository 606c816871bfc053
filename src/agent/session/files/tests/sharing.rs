//! Repeated files, and files that several sessions use.

use super::*;

#[tokio::test]
async fn a_repeated_inline_file_is_the_same_file() {
    let fixture = Fixture::new().await;
    let files = fixture.files();
    let (alice, s, t) = (owner("alice"), session("s"), session("t"));
    let bytes = Bytes::from_static(b"a,b\n");
    let first = files
        .put_inline(&alice, of(&s, "a.csv"), bytes.clone())
        .await
        .unwrap();
    assert_eq!(first.mime_type, "text/csv");
    let again = files
        .put_inline(&alice, of(&s, "x/a.csv"), bytes.clone())
        .await
        .unwrap();
    assert_eq!(again, first);
    for (who, name, content) in [
        ("bob", "a.csv", "a,b\n"),
        ("alice", "b.csv", "a,b\n"),
        ("alice", "a.csv", "a;b\n"),
    ] {
        let content = Bytes::from_static(content.as_bytes());
        let other = files
            .put_inline(&owner(who), named(name), content)
            .await
            .unwrap();
        assert_ne!(other.id, first.id);
    }
    assert_eq!(fixture.on_disk().len(), 4);
    // A second session uses the same file, which is kept when the first session is deleted.
    files
        .put_inline(&alice, of(&t, "a.csv"), bytes.clone())
        .await
        .unwrap();
    assert!(delete(&fixture.sessions, &alice, &s).await);
    let left = files.get(&alice, &first.id).await.unwrap();
    assert_eq!(left.session, Some(t.clone()));
    assert!(delete(&fixture.sessions, &alice, &t).await);
    assert!(matches!(
        files.get(&alice, &first.id).await,
        Err(FileError::NotFound)
    ));
    assert_eq!(fixture.on_disk().len(), 3);
    // The same again at the same time.
    let puts = (0..8).map(|_| files.put_inline(&alice, named("a.csv"), bytes.clone()));
    for put in join_all(puts).await {
        assert_eq!(put.unwrap().id, first.id);
    }
    assert_eq!(fixture.on_disk().len(), 4);
}

#[tokio::test]
async fn missing_content_is_an_error_until_the_next_inline_copy() {
    let fixture = Fixture::new().await;
    let files = fixture.files();
    let alice = owner("alice");
    let bytes = Bytes::from_static(b"abc");
    let stored = files
        .put_inline(&alice, named("a"), bytes.clone())
        .await
        .unwrap();
    std::fs::remove_file(path_of(files, &stored)).unwrap();
    let lost = files.open_content(&alice, &stored, 0..3).await;
    assert!(matches!(lost, Err(FileError::ContentMissing)), "{lost:?}");
    files.put_inline(&alice, named("a"), bytes).await.unwrap();
    assert_eq!(read(files, "alice", &stored.id).await, b"abc");
    assert_eq!(
        files.store().file_usage().await.unwrap(),
        FileUsage { files: 1, bytes: 3 }
    );
}

#[tokio::test]
async fn files_go_with_the_last_session_that_uses_them() {
    let fixture = Fixture::new().await;
    let (sessions, files) = (&fixture.sessions, fixture.files());
    let (alice, s) = (owner("alice"), session("s"));
    let message = StoredMessage::visible(Message::text(Role::User, "hi"));
    let made = files.put(&alice, of(&s, "made"), b"1").await.unwrap();
    let change = Change {
        append: vec![message.clone()],
        ..Change::default()
    };
    let lease = sessions.lease(&alice, &s).await.unwrap();
    sessions.write(&lease, change).await.unwrap();
    drop(lease);
    assert_eq!(
        sessions
            .store
            .load(&alice, &s)
            .await
            .unwrap()
            .unwrap()
            .messages,
        [message]
    );
    let uploaded = put(files, "alice", "uploaded", 2).await;
    files.attach(&alice, &uploaded.id, &s).await.unwrap();
    files.attach(&alice, &uploaded.id, &s).await.unwrap();
    let of_session = async |session: &SessionId| -> Vec<String> {
        let files = files.of_session(&alice, session).await.unwrap();
        files.into_iter().map(|file| file.name).collect()
    };
    assert_eq!(of_session(&s).await, ["made", "uploaded"]);
    // A session of another owner with the same id is another session.
    assert!(!delete(sessions, &owner("bob"), &s).await);
    // An import keeps them, a copy shares them.
    let replaced = StoredSession::default();
    let lease = sessions.lease(&alice, &s).await.unwrap();
    sessions.replace(&lease, replaced).await.unwrap();
    let t = sessions
        .store
        .fork(lease.fence(), None, &session("t"))
        .await;
    let t = t.unwrap().id;
    drop(lease);
    assert_eq!(of_session(&t).await, ["made", "uploaded"]);
    assert!(delete(sessions, &alice, &s).await);
    assert_eq!(names(files, "alice").await, ["made", "uploaded"]);
    assert_eq!(fixture.on_disk().len(), 2);
    // A file that was not created for the session stays until it expires.
    assert_eq!(files.expire(Duration::ZERO).await.unwrap(), 0);
    assert_eq!(
        sessions.expire(Some(Duration::ZERO), None).await.unwrap(),
        1
    );
    assert!(matches!(
        files.get(&alice, &made.id).await,
        Err(FileError::NotFound)
    ));
    assert_eq!(
        fixture.on_disk(),
        BTreeSet::from([path_of(files, &uploaded)])
    );
    assert_eq!(files.expire(Duration::from_secs(60)).await.unwrap(), 0);
    unused_for(files, &uploaded, 61).await;
    assert_eq!(files.expire(Duration::from_secs(60)).await.unwrap(), 1);
    assert_eq!(fixture.on_disk(), BTreeSet::new());
}
