//! Interrupted writes, leftovers of a crash and the directory of files.

use super::*;

#[tokio::test]
async fn a_write_dropped_at_any_point_is_complete_or_leaves_nothing() {
    let fixture = Fixture::new().await;
    let files = fixture.files();
    let mut finished = false;
    let mut polls = 0;
    while !finished {
        polls += 1;
        {
            let (who, s) = (owner("alice"), session("s"));
            let file = of(&s, "a");
            let mut put = pin!(files.put(&who, file, b"abc"));
            for _ in 0..polls {
                let now = poll_fn(|context| Poll::Ready(put.as_mut().poll(context))).await;
                if now.is_ready() {
                    finished = true;
                    break;
                }
                // Work on other threads may continue.
                tokio::task::yield_now().await;
            }
        }
        assert!(polls < 100_000, "never ends");
    }
    // Work that still runs on threads ends after a while.
    let settled = async {
        loop {
            files.reap().await.unwrap();
            let stored = files
                .of_session(&owner("alice"), &session("s"))
                .await
                .unwrap();
            let expected: BTreeSet<_> = stored.iter().map(|file| path_of(files, file)).collect();
            if fixture.on_disk() == expected {
                return expected.len();
            }
            tokio::task::yield_now().await;
        }
    };
    let left = tokio::time::timeout(Duration::from_secs(20), settled).await;
    assert!(left.unwrap() >= 1);
}

#[tokio::test]
async fn the_next_start_removes_what_a_crash_has_left() {
    let fixture = Fixture::new().await;
    let files = fixture.files();
    let kept = put(files, "alice", "kept", 10).await;
    let deleted = put(files, "alice", "deleted", 10).await;
    // A crash while writing, one before the row is written, and one after a row was deleted.
    let (_, unfinished) = files.blobs().create().unwrap();
    unfinished.abandon();
    let (file, mut placed) = files.blobs().create().unwrap();
    placed.place(file).await.unwrap();
    placed.abandon();
    let row = files
        .store()
        .delete_file(&owner("alice"), &deleted.id)
        .await;
    assert!(row.unwrap());
    // Files of other programs or databases.
    let root = fixture.directory.path().join("sessions-files");
    let shard = path_of(files, &kept).parent().unwrap().to_owned();
    let foreign = [
        root.join("readme.txt"),
        root.join("tmp/notes"),
        shard.join("0123456789abcdef-0123456789abcdef0123456789abcdef"),
        shard.join("report.csv"),
    ];
    for path in &foreign {
        std::fs::write(path, "x").unwrap();
    }
    assert_eq!(fixture.on_disk().len(), 4 + foreign.len());
    let mut expected = BTreeSet::from(foreign);
    expected.insert(path_of(files, &kept));
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.on_disk(), expected);
    assert_eq!(read(fixture.files(), "alice", &kept.id).await.len(), 10);
    let dead = fixture.files().store().dead_blobs().await.unwrap();
    assert_eq!(dead, [""; 0]);
}

#[tokio::test]
async fn databases_may_share_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let open = async |name: &str| {
        let settings = Settings {
            files_dir: Some(BlobLocation::Directory(directory.path().join("deep/files"))),
            ..settings(StoreUrl::Sqlite(directory.path().join(name)))
        };
        open_with(&settings).await.unwrap()
    };
    let (one, two) = (open("one.db").await, open("two.db").await);
    let stored = put(&one.files, "alice", "a", 10).await;
    put(&two.files, "alice", "b", 10).await;
    two.close().await;
    drop(two);
    let two = open("two.db").await;
    assert_eq!(names(&two.files, "alice").await, ["b"]);
    assert_eq!(read(&one.files, "alice", &stored.id).await.len(), 10);
}

#[tokio::test]
async fn files_of_a_store_in_memory_are_deleted_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings {
        files_dir: Some(BlobLocation::Directory(directory.path().to_owned())),
        ..settings(StoreUrl::Memory)
    };
    for closed in [true, false] {
        let store = open_with(&settings).await.unwrap();
        let stored = put(&store.files, "alice", "a", 10).await;
        assert_eq!(read(&store.files, "alice", &stored.id).await.len(), 10);
        assert!(path_of(&store.files, &stored).starts_with(directory.path()));
        assert_eq!(contents(directory.path()).len(), 1);
        if closed {
            store.close().await;
        } else {
            drop(store);
        }
        assert!(
            std::fs::read_dir(directory.path())
                .unwrap()
                .next()
                .is_none()
        );
    }
}

#[tokio::test]
async fn a_directory_that_cannot_be_used_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let occupied = directory.path().join("occupied");
    std::fs::write(&occupied, "x").unwrap();
    let settings = Settings {
        files_dir: Some(BlobLocation::Directory(occupied.clone())),
        ..settings(StoreUrl::Sqlite(directory.path().join("sessions.db")))
    };
    let error = open_with(&settings).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains(occupied.to_str().unwrap()), "{text}");
}
