//! The rows of files.

use super::*;

const MAX_TOTAL: u64 = 4_000;

pub(super) fn record(owner: &Owner, name: &str, bytes: u64) -> FileRecord {
    FileRecord {
        id: FileId::fresh(),
        owner: owner.clone(),
        session: None,
        bound: false,
        name: name.to_owned(),
        mime_type: "text/plain".to_owned(),
        bytes,
        purpose: Purpose::UserData,
        tool: None,
        round: None,
        blob: protocol::ids::random_hex::<16>(),
    }
}

pub(super) fn all() -> FileFilter<'static> {
    FileFilter {
        limit: 100,
        after: None,
        order: FileOrder::Ascending,
        purpose: None,
        session: None,
    }
}

impl TestStore {
    async fn put(&self, record: FileRecord) -> StoredFile {
        let inserted = self.store.insert_file(record, MAX_TOTAL).await.unwrap();
        assert!(!inserted.known);
        inserted.file.unwrap()
    }

    async fn names(&self, owner: &Owner, filter: &FileFilter<'_>) -> Vec<String> {
        let page = self.store.files(owner, filter).await.unwrap();
        page.data.into_iter().map(|file| file.name).collect()
    }

    async fn of_session(&self, session: &SessionId) -> Vec<String> {
        let filter = FileFilter {
            session: Some(session),
            limit: 1_000,
            ..all()
        };
        self.names(&owner(), &filter).await
    }

    async fn dead_blobs(&self) -> Vec<String> {
        self.store.dead_blobs().await.unwrap()
    }
}

pub(crate) async fn a_file_is_known_to_its_owner_until_it_is_deleted(subject: TestStore) {
    let (store, bob) = (&subject.store, Owner::key("bob"));
    let record = FileRecord {
        purpose: Purpose::AssistantsOutput,
        tool: Some("execute_python".to_owned()),
        round: Some(3),
        ..record(&owner(), "a", 900)
    };
    let (id_of, blob) = (record.id.clone(), record.blob.clone());
    let stored = subject.put(record).await;
    assert_eq!(
        (stored.bytes, stored.round, stored.tool.as_deref()),
        (900, Some(3), Some("execute_python"))
    );
    assert_eq!(
        (stored.purpose, stored.session.clone()),
        (Purpose::AssistantsOutput, None)
    );
    assert!((now() - stored.created_at).abs() < 5);
    assert_eq!(store.file(&owner(), &id_of).await.unwrap(), Some(stored));
    assert_eq!(
        store.file_usage().await.unwrap(),
        FileUsage {
            files: 1,
            bytes: 900
        }
    );
    // For another owner it does not exist.
    assert_eq!(store.file(&bob, &id_of).await.unwrap(), None);
    assert!(subject.names(&bob, &all()).await.is_empty());
    let after = FileFilter {
        after: Some(&id_of),
        ..all()
    };
    for missing in [
        store.attach_file(&bob, &id_of, &id("s")).await,
        store.touch_file(&bob, &id_of).await,
        store.files(&bob, &after).await.map(drop),
    ] {
        assert!(matches!(missing, Err(StoreError::NotFound)), "{missing:?}");
    }
    assert!(store.load(&bob, &id("s")).await.unwrap().is_none());
    assert!(!store.delete_file(&bob, &id_of).await.unwrap());
    let unknown = "0".repeat(32);
    let blobs = vec![blob.clone(), unknown.clone()];
    assert_eq!(store.blobs_without_row(blobs).await.unwrap(), [unknown]);
    assert!(store.delete_file(&owner(), &id_of).await.unwrap());
    assert!(!store.delete_file(&owner(), &id_of).await.unwrap());
    assert_eq!(store.file_usage().await.unwrap(), FileUsage::default());
    assert_eq!(subject.dead_blobs().await, std::slice::from_ref(&blob));
    store.forget_blobs(vec![blob]).await.unwrap();
    assert!(subject.dead_blobs().await.is_empty());
}

pub(crate) async fn a_file_that_is_known_takes_no_second_row(subject: TestStore) {
    let first = record(&owner(), "a", 10);
    let again = FileRecord {
        blob: "other".to_owned(),
        session: Some(id("s")),
        ..first.clone()
    };
    subject.put(first.clone()).await;
    let inserted = subject.store.insert_file(again, MAX_TOTAL).await.unwrap();
    assert!(inserted.known);
    let file = inserted.file.unwrap();
    assert_eq!(
        (file.blob.as_str(), file.session),
        (first.blob.as_str(), Some(id("s")))
    );
    assert_eq!(subject.of_session(&id("s")).await, ["a"]);
    assert_eq!(subject.store.file_usage().await.unwrap().files, 1);
}

pub(crate) async fn files_are_deleted_with_the_last_session_that_uses_them(subject: TestStore) {
    let (store, s, t) = (&subject.store, id("s"), id("t"));
    let made = FileRecord {
        session: Some(s.clone()),
        ..record(&owner(), "made", 1)
    };
    let (made_id, blob) = (made.id.clone(), made.blob.clone());
    subject.put(made).await;
    // The file has created the session.
    assert_eq!(subject.loaded(&s).await.messages, []);
    subject.write(&s, append(0, &[user("a")])).await;
    let uploaded = subject.put(record(&owner(), "uploaded", 2)).await;
    for _ in 0..2 {
        store.attach_file(&owner(), &uploaded.id, &s).await.unwrap();
    }
    assert_eq!(subject.of_session(&s).await, ["made", "uploaded"]);
    // A replacement and a long change keep the files; a fork uses them too.
    subject.replace(&s, 0, append(0, &many(1_000))).await;
    subject.write(&s, append(0, &many(600))).await;
    assert_eq!(subject.of_session(&s).await, ["made", "uploaded"]);
    subject.fork(&s, None, &t).await.unwrap();
    assert_eq!(subject.of_session(&t).await, ["made", "uploaded"]);
    assert!(subject.delete(&s).await);
    assert_eq!(subject.of_session(&s).await, [""; 0]);
    let left = store.file(&owner(), &made_id).await.unwrap().unwrap();
    assert_eq!(left.session, Some(t.clone()));
    assert!(subject.dead_blobs().await.is_empty());
    assert!(subject.delete(&t).await);
    // A file that was not created for the session stays until it expires.
    assert_eq!(subject.names(&owner(), &all()).await, ["uploaded"]);
    assert_eq!(subject.dead_blobs().await, [blob]);
}

pub(crate) async fn a_bound_file_may_be_older_than_its_session(subject: TestStore) {
    let (store, s) = (&subject.store, id("s"));
    let bound = FileRecord {
        bound: true,
        ..record(&owner(), "bound", 1)
    };
    let bound = subject.put(bound).await;
    assert_eq!(bound.session, None);
    subject.write(&s, append(0, &[user("a")])).await;
    store.attach_file(&owner(), &bound.id, &s).await.unwrap();
    assert_eq!(subject.of_session(&s).await, ["bound"]);
    assert!(subject.delete(&s).await);
    assert_eq!(subject.names(&owner(), &all()).await, [""; 0]);
}

pub(crate) async fn lists_come_in_pages_in_both_orders(subject: TestStore) {
    for name in ["a", "b", "c", "d"] {
        subject.put(record(&owner(), name, 1)).await;
    }
    for name in ["e", "f"] {
        let record = FileRecord {
            purpose: Purpose::Vision,
            ..record(&owner(), name, 1)
        };
        subject.put(record).await;
    }
    for (order, expected) in [
        (FileOrder::Ascending, ["a", "b", "c", "d", "e", "f"]),
        (FileOrder::Descending, ["f", "e", "d", "c", "b", "a"]),
    ] {
        let mut seen = Vec::new();
        let mut last: Option<FileId> = None;
        loop {
            let filter = FileFilter {
                limit: 4,
                after: last.as_ref(),
                order,
                ..all()
            };
            let page = subject.store.files(&owner(), &filter).await.unwrap();
            last = page.data.last().map(|file| file.id.clone());
            seen.extend(page.data.into_iter().map(|file| file.name));
            if !page.has_more {
                break;
            }
        }
        assert_eq!(seen, expected);
    }
    let images = FileFilter {
        purpose: Some(Purpose::Vision),
        ..all()
    };
    assert_eq!(subject.names(&owner(), &images).await, ["e", "f"]);
}

pub(crate) async fn files_of_large_owners_are_evicted_first(subject: TestStore) {
    let (alice, bob) = (owner(), Owner::key("bob"));
    // Least recently used, but of an owner with few bytes.
    subject.put(record(&bob, "small", 300)).await;
    for name in ["a", "b", "c"] {
        subject.put(record(&alice, name, 1_000)).await;
    }
    let carol = Owner::key("carol");
    let inserted = subject
        .store
        .insert_file(record(&carol, "d", 1_000), MAX_TOTAL)
        .await
        .unwrap();
    assert_eq!(inserted.evicted, 1);
    assert_eq!(subject.names(&bob, &all()).await, ["small"]);
    assert_eq!(subject.names(&alice, &all()).await, ["b", "c"]);
    // More than one transaction deletes.
    for _ in 0..250 {
        subject.put(record(&alice, "x", 1)).await;
    }
    let inserted = subject
        .store
        .insert_file(record(&bob, "large", 4_000), MAX_TOTAL)
        .await
        .unwrap();
    assert_eq!(inserted.evicted, 254);
    assert_eq!(subject.names(&bob, &all()).await, ["large"]);
    let usage = subject.store.file_usage().await.unwrap();
    assert_eq!(
        usage,
        FileUsage {
            files: 1,
            bytes: 4_000
        }
    );
}

pub(crate) async fn a_session_may_use_more_files_than_one_batch(subject: TestStore) {
    let expected: Vec<String> = (0..150).map(|number| format!("{number}")).collect();
    for name in &expected {
        let record = FileRecord {
            session: Some(id("s")),
            ..record(&owner(), name, 1)
        };
        subject.put(record).await;
    }
    assert_eq!(subject.of_session(&id("s")).await, expected);
    assert!(subject.delete(&id("s")).await);
    assert_eq!(
        subject.store.file_usage().await.unwrap(),
        FileUsage::default()
    );
    assert_eq!(subject.dead_blobs().await.len(), 100);
}

pub(crate) async fn unused_files_expire(subject: TestStore) {
    let store = &subject.store;
    let attached = subject.put(record(&owner(), "attached", 1)).await;
    store
        .attach_file(&owner(), &attached.id, &id("s"))
        .await
        .unwrap();
    let (old, used) = (record(&owner(), "old", 1), record(&owner(), "used", 1));
    let (old, used) = (subject.put(old).await, subject.put(used).await);
    for file in [&attached, &old, &used] {
        assert_eq!(store.set_unused_for(&file.id, 100).await.unwrap(), 1);
    }
    store.touch_file(&owner(), &used.id).await.unwrap();
    assert_eq!(store.expire_files(Duration::MAX).await.unwrap(), 0);
    assert_eq!(
        store.expire_files(Duration::from_secs(50)).await.unwrap(),
        1
    );
    assert_eq!(subject.names(&owner(), &all()).await, ["attached", "used"]);
}
