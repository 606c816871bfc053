//! Which files are deleted at the total limit, and concurrent writes.

use super::*;

#[tokio::test]
async fn the_least_recently_used_files_are_evicted() {
    let fixture = Fixture::new().await;
    let files = fixture.files();
    let mut stored = Vec::new();
    for name in ["a", "b", "c", "d"] {
        stored.push(put(files, "alice", name, 1000).await);
    }
    read(files, "alice", &stored[0].id).await;
    put(files, "alice", "e", 500).await;
    assert_eq!(names(files, "alice").await, ["a", "c", "d", "e"]);
    put(files, "alice", "f", 500).await;
    assert_eq!(names(files, "alice").await, ["a", "c", "d", "e", "f"]);
    put(files, "alice", "g", 1000).await;
    assert_eq!(names(files, "alice").await, ["a", "d", "e", "f", "g"]);
    assert_eq!(
        files.store().file_usage().await.unwrap(),
        FileUsage {
            files: 5,
            bytes: 4000
        }
    );
    assert_eq!(fixture.on_disk().len(), 5);
}

#[tokio::test]
async fn files_of_owners_above_the_average_are_evicted_first() {
    let fixture = Fixture::new().await;
    let files = fixture.files();
    // Least recently used, but of an owner with few bytes.
    put(files, "bob", "small", 300).await;
    for name in ["a", "b", "c"] {
        put(files, "alice", name, 1000).await;
    }
    put(files, "carol", "d", 1000).await;
    assert_eq!(names(files, "bob").await, ["small"]);
    assert_eq!(names(files, "alice").await, ["b", "c"]);
    assert_eq!(names(files, "carol").await, ["d"]);
    // A new file is not evicted, even if its owner is above the average.
    put(files, "alice", "e", 700).await;
    put(files, "dave", "f", 1000).await;
    assert_eq!(names(files, "dave").await, ["f"]);
    assert_eq!(names(files, "bob").await, ["small"]);
    assert_eq!(names(files, "alice").await, ["c", "e"]);
}

#[tokio::test]
async fn many_may_put_at_once() {
    let fixture = Fixture::new().await;
    let files = fixture.files();
    let puts = (0..40_u8).map(|at| async move {
        let (who, name) = (if at % 2 == 0 { "alice" } else { "bob" }, format!("{at}"));
        let content = vec![at; 50];
        let file = named(&name);
        let stored = files.put(&owner(who), file, &content).await.unwrap();
        assert_eq!(read(files, who, &stored.id).await, content);
    });
    join_all(puts).await;
    assert_eq!(
        files.store().file_usage().await.unwrap(),
        FileUsage {
            files: 40,
            bytes: 2000
        }
    );
    assert_eq!(fixture.on_disk().len(), 40);
}
