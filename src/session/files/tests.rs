use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{join_all, poll_fn};
use tempfile::TempDir;

use super::super::settings::{Settings, StoreUrl};
use super::super::{Change, Sessions, StoredMessage, StoredSession};
use super::*;
use crate::openai::message::{Message, Role};

const MAX_FILE: u64 = 1000;
const MAX_TOTAL: u64 = 4000;

struct Fixture {
    sessions: Sessions,
    directory: TempDir,
}

impl Fixture {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sessions = open(directory.path()).await;
        Self {
            sessions,
            directory,
        }
    }

    fn files(&self) -> &FileStore {
        &self.sessions.files
    }

    /// Ends the process, as far as the files can tell, and starts the next one.
    async fn reopen(self) -> Self {
        let Self {
            sessions,
            directory,
        } = self;
        sessions.close().await;
        drop(sessions);
        let sessions = open(directory.path()).await;
        Self {
            sessions,
            directory,
        }
    }

    /// Everything on disk, the lock apart.
    fn on_disk(&self) -> BTreeSet<PathBuf> {
        contents(&self.directory.path().join("sessions-files"))
    }
}

fn contents(root: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_none_or(|ending| ending != "lock") {
                found.insert(path);
            }
        }
    }
    found
}

fn settings(store: StoreUrl) -> Settings {
    Settings {
        store,
        ttl: None,
        wait: Duration::from_secs(1),
        max_messages: 100,
        files_dir: None,
        max_file_bytes: MAX_FILE,
        max_total_file_bytes: MAX_TOTAL,
    }
}

async fn open(directory: &Path) -> Sessions {
    let store = StoreUrl::Sqlite(directory.join("sessions.db"));
    open_with(&settings(store)).await.unwrap()
}

async fn open_with(settings: &Settings) -> Result<Sessions, FileError> {
    let store = Store::open(&settings.store).await?;
    Sessions::open(store, settings).await
}

fn owner(name: &str) -> Owner {
    Owner::key(name)
}

fn session(id: &str) -> SessionId {
    SessionId::parse(id).unwrap()
}

fn named(name: &str) -> NewFile<'_> {
    NewFile {
        session: None,
        name,
        mime_type: None,
        purpose: Purpose::UserData,
        tool: None,
        round: None,
    }
}

fn of<'a>(session: &'a SessionId, name: &'a str) -> NewFile<'a> {
    NewFile {
        session: Some(session),
        ..named(name)
    }
}

async fn put(files: &FileStore, who: &str, name: &str, size: usize) -> StoredFile {
    let content = vec![b'x'; size];
    let source = FileSource::Bytes(&content);
    files.put(&owner(who), named(name), source).await.unwrap()
}

async fn delete(sessions: &Sessions, owner: &Owner, id: &SessionId) -> bool {
    let lease = sessions.lease(owner, id).await.unwrap();
    sessions.delete(&lease).await.unwrap()
}

async fn names(files: &FileStore, who: &str) -> Vec<String> {
    let page = files.list(&owner(who), &all()).await.unwrap();
    page.data.into_iter().map(|file| file.name).collect()
}

fn all() -> FileFilter<'static> {
    FileFilter {
        limit: 100,
        after: None,
        order: FileOrder::Ascending,
        purpose: None,
        session: None,
    }
}

async fn read(files: &FileStore, who: &str, id: &FileId) -> Vec<u8> {
    let (_, mut file) = files.open_content(&owner(who), id).await.unwrap();
    let mut content = Vec::new();
    file.read_to_end(&mut content).await.unwrap();
    content
}

async fn unused_for(files: &FileStore, file: &StoredFile, seconds: i64) {
    files.store().set_unused_for(&file.id, seconds).await;
}

#[tokio::test]
async fn a_file_is_what_was_put_until_it_is_deleted() {
    let fixture = Fixture::new().await;
    let files = fixture.files();
    let content: Vec<u8> = (0..900_u32)
        .map(|at| u8::try_from(at % 251).unwrap())
        .collect();
    let file = NewFile {
        mime_type: Some("application/x-own"),
        purpose: Purpose::AssistantsOutput,
        tool: Some("execute_python"),
        round: Some(3),
        ..named("../a\u{202e}b.bin")
    };
    let mut reader = &content[..];
    let stored = files
        .put(&owner("alice"), file, FileSource::Reader(&mut reader))
        .await
        .unwrap();
    let now = i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap();
    assert!((now - stored.created_at).abs() < 5);
    assert_eq!(
        serde_json::to_value(&stored).unwrap(),
        serde_json::json!({
            "id": stored.id, "object": "file", "bytes": 900, "created_at": stored.created_at, "filename": "ab.bin",
            "purpose": "assistants_output", "status": "processed", "name": "ab.bin", "mime_type": "application/x-own",
            "size": 900, "session_id": null, "tool": "execute_python", "round": 3,
        })
    );
    assert_eq!(
        files.get(&owner("alice"), &stored.id).await.unwrap(),
        stored
    );
    assert_eq!(read(files, "alice", &stored.id).await, content);
    assert_eq!(std::fs::read(files.path(&stored)).unwrap(), content);
    assert_eq!(
        files.usage().await.unwrap(),
        FileUsage {
            files: 1,
            bytes: 900
        }
    );

    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let path = files.path(&stored);
    assert_eq!(mode(&path), 0o600);
    let mut folder = path.parent().unwrap();
    while folder != fixture.directory.path() {
        assert_eq!(mode(folder), 0o700, "{}", folder.display());
        folder = folder.parent().unwrap();
    }

    // Who has it open reads on.
    let (_, mut opened) = files
        .open_content(&owner("alice"), &stored.id)
        .await
        .unwrap();
    assert!(files.delete(&owner("alice"), &stored.id).await.unwrap());
    assert!(!files.delete(&owner("alice"), &stored.id).await.unwrap());
    let mut rest = Vec::new();
    opened.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, content);
    assert_eq!(fixture.on_disk(), BTreeSet::new());
    assert_eq!(files.usage().await.unwrap(), FileUsage::default());
}

#[tokio::test]
async fn another_owners_file_does_not_exist() {
    let fixture = Fixture::new().await;
    let files = fixture.files();
    let bob = owner("bob");
    let id = put(files, "alice", "a", 1).await.id;
    let missing = |result: Result<(), FileError>| {
        assert!(matches!(result, Err(FileError::NotFound)), "{result:?}");
    };
    missing(files.get(&bob, &id).await.map(drop));
    missing(files.open_content(&bob, &id).await.map(drop));
    missing(files.attach(&bob, &id, &session("s")).await);
    let after = FileFilter {
        after: Some(&id),
        ..all()
    };
    missing(files.list(&bob, &after).await.map(drop));
    assert!(!files.delete(&bob, &id).await.unwrap());
    assert_eq!(names(files, "bob").await, [""; 0]);
    assert_eq!(files.of_session(&bob, &session("s")).await.unwrap(), []);
    assert!(
        fixture
            .sessions
            .load(&bob, &session("s"))
            .await
            .unwrap()
            .is_none()
    );
    files.get(&owner("alice"), &id).await.unwrap();
}

#[tokio::test]
async fn lists_come_in_pages_in_both_orders() {
    let fixture = Fixture::new().await;
    let files = fixture.files();
    let s = session("s");
    for name in ["a", "b", "c", "d"] {
        put(files, "alice", name, 1).await;
    }
    for name in ["e", "f"] {
        let file = NewFile {
            purpose: Purpose::Vision,
            ..of(&s, name)
        };
        let source = FileSource::Bytes(b"x");
        files.put(&owner("alice"), file, source).await.unwrap();
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
            let page = files.list(&owner("alice"), &filter).await.unwrap();
            last = page.data.last().map(|file| file.id.clone());
            seen.extend(page.data.into_iter().map(|file| file.name));
            if !page.has_more {
                break;
            }
        }
        assert_eq!(seen, expected);
    }
    for filter in [
        FileFilter {
            purpose: Some(Purpose::Vision),
            ..all()
        },
        FileFilter {
            session: Some(&s),
            ..all()
        },
    ] {
        let page = files.list(&owner("alice"), &filter).await.unwrap();
        let names: Vec<_> = page.data.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["e", "f"]);
        assert!(
            page.data
                .iter()
                .all(|file| file.session.as_ref() == Some(&s))
        );
    }
}

#[tokio::test]
async fn what_is_too_large_leaves_nothing() {
    let fixture = Fixture::new().await;
    let files = fixture.files();
    let content = vec![0; 1001];
    let alice = owner("alice");
    let mut reader = &content[..];
    let read = files.put(&alice, named("a"), FileSource::Reader(&mut reader));
    let inline = files.put_inline(&alice, named("a"), content.clone().into());
    for refused in [read.await, inline.await] {
        assert!(
            matches!(refused, Err(FileError::TooLarge { limit: MAX_FILE })),
            "{refused:?}"
        );
    }
    assert_eq!(fixture.on_disk(), BTreeSet::new());
    let mut broken = tokio_util::io::StreamReader::new(futures_util::stream::iter([
        Ok(&b"abc"[..]),
        Err(io::Error::other("gone")),
    ]));
    let refused = files
        .put(&alice, named("a"), FileSource::Reader(&mut broken))
        .await;
    assert!(matches!(refused, Err(FileError::Source(_))), "{refused:?}");
    assert_eq!(fixture.on_disk(), BTreeSet::new());
    assert_eq!(files.blobs().unfinished_bytes(), 0);
    put(files, "alice", "b", 1000).await;
}

#[tokio::test]
async fn files_being_written_are_bounded_together() {
    let fixture = Fixture::new().await;
    let files = fixture.files();
    let mut drafts = Vec::new();
    for _ in 0..4 {
        let mut draft = files.draft().await.unwrap();
        draft.write(&[0; 1000]).await.unwrap();
        drafts.push(draft);
    }
    let mut fifth = files.draft().await.unwrap();
    let refused = fifth.write(&[0; 1]).await;
    assert!(matches!(refused, Err(FileError::Full)), "{refused:?}");
    drop((fifth, drafts));
    assert_eq!(files.blobs().unfinished_bytes(), 0);
    assert_eq!(fixture.on_disk(), BTreeSet::new());
    put(files, "alice", "a", 1000).await;
}

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
    // A second session uses the same file, which outlives the first.
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
async fn lost_bytes_are_told_and_come_back_with_the_next_inline_copy() {
    let fixture = Fixture::new().await;
    let files = fixture.files();
    let alice = owner("alice");
    let bytes = Bytes::from_static(b"abc");
    let stored = files
        .put_inline(&alice, named("a"), bytes.clone())
        .await
        .unwrap();
    std::fs::remove_file(files.path(&stored)).unwrap();
    let lost = files.open_content(&alice, &stored.id).await;
    assert!(matches!(lost, Err(FileError::Lost)), "{lost:?}");
    files.put_inline(&alice, named("a"), bytes).await.unwrap();
    assert_eq!(read(files, "alice", &stored.id).await, b"abc");
    assert_eq!(
        files.usage().await.unwrap(),
        FileUsage { files: 1, bytes: 3 }
    );
}

#[tokio::test]
async fn files_go_with_the_last_session_that_uses_them() {
    let fixture = Fixture::new().await;
    let (sessions, files) = (&fixture.sessions, fixture.files());
    let (alice, s) = (owner("alice"), session("s"));
    let message = StoredMessage::visible(Message::text(Role::User, "hi"));
    let made = files
        .put(&alice, of(&s, "made"), FileSource::Bytes(b"1"))
        .await
        .unwrap();
    let change = Change {
        append: vec![message.clone()],
        ..Change::default()
    };
    let lease = sessions.lease(&alice, &s).await.unwrap();
    sessions.write(&lease, change).await.unwrap();
    drop(lease);
    assert_eq!(
        sessions.load(&alice, &s).await.unwrap().unwrap().messages,
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
    // Another owner's session of that name is another one.
    assert!(!delete(sessions, &owner("bob"), &s).await);
    // An import keeps them, a copy shares them.
    let replaced = StoredSession::default();
    let lease = sessions.lease(&alice, &s).await.unwrap();
    sessions.replace(&lease, replaced).await.unwrap();
    let t = sessions.fork(&lease, None, Some(session("t"))).await;
    let t = t.unwrap();
    drop(lease);
    assert_eq!(of_session(&t).await, ["made", "uploaded"]);
    assert!(delete(sessions, &alice, &s).await);
    assert_eq!(names(files, "alice").await, ["made", "uploaded"]);
    assert_eq!(fixture.on_disk().len(), 2);
    // What was not made for the session stays, for its own time.
    assert_eq!(files.expire(Duration::ZERO).await.unwrap(), 0);
    assert_eq!(sessions.expire(Duration::ZERO).await.unwrap(), 1);
    assert!(matches!(
        files.get(&alice, &made.id).await,
        Err(FileError::NotFound)
    ));
    assert_eq!(fixture.on_disk(), BTreeSet::from([files.path(&uploaded)]));
    assert_eq!(files.expire(Duration::from_secs(60)).await.unwrap(), 0);
    unused_for(files, &uploaded, 61).await;
    assert_eq!(files.expire(Duration::from_secs(60)).await.unwrap(), 1);
    assert_eq!(fixture.on_disk(), BTreeSet::new());
}

#[tokio::test]
async fn the_files_used_longest_ago_make_room() {
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
        files.usage().await.unwrap(),
        FileUsage {
            files: 5,
            bytes: 4000
        }
    );
    assert_eq!(fixture.on_disk().len(), 5);
}

#[tokio::test]
async fn who_has_more_than_the_average_makes_room_first() {
    let fixture = Fixture::new().await;
    let files = fixture.files();
    // Used longest ago, but by somebody who has little.
    put(files, "bob", "small", 300).await;
    for name in ["a", "b", "c"] {
        put(files, "alice", name, 1000).await;
    }
    put(files, "carol", "d", 1000).await;
    assert_eq!(names(files, "bob").await, ["small"]);
    assert_eq!(names(files, "alice").await, ["b", "c"]);
    assert_eq!(names(files, "carol").await, ["d"]);
    // A single file over the average does not go for itself.
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
        let stored = files
            .put(&owner(who), file, FileSource::Bytes(&content))
            .await
            .unwrap();
        assert_eq!(read(files, who, &stored.id).await, content);
    });
    join_all(puts).await;
    assert_eq!(
        files.usage().await.unwrap(),
        FileUsage {
            files: 40,
            bytes: 2000
        }
    );
    assert_eq!(fixture.on_disk().len(), 40);
}

#[tokio::test]
async fn a_write_that_is_dropped_at_any_moment_is_whole_or_leaves_nothing() {
    let fixture = Fixture::new().await;
    let files = fixture.files();
    let mut finished = false;
    let mut polls = 0;
    while !finished {
        polls += 1;
        {
            let (who, s) = (owner("alice"), session("s"));
            let file = of(&s, "a");
            let mut put = pin!(files.put(&who, file, FileSource::Bytes(b"abc")));
            for _ in 0..polls {
                let now = poll_fn(|context| Poll::Ready(put.as_mut().poll(context))).await;
                if now.is_ready() {
                    finished = true;
                    break;
                }
                // Lets the work on other threads go on, as far as it likes.
                tokio::task::yield_now().await;
            }
        }
        assert!(polls < 100_000, "never ends");
    }
    // What threads were still doing when nobody waited any more ends by itself.
    let settled = async {
        loop {
            files.reap().await.unwrap();
            let stored = files
                .of_session(&owner("alice"), &session("s"))
                .await
                .unwrap();
            let expected: BTreeSet<_> = stored.iter().map(|file| files.path(file)).collect();
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
    let (_, unfinished) = files.blobs().begin().unwrap();
    unfinished.abandon();
    let (file, mut placed) = files.blobs().begin().unwrap();
    placed.place(&file).unwrap();
    placed.abandon();
    let row = files
        .store()
        .delete_file(&owner("alice"), &deleted.id)
        .await;
    assert!(row.unwrap());
    // Not ours, whatever it looks like.
    let root = fixture.directory.path().join("sessions-files");
    let shard = files.path(&kept).parent().unwrap().to_owned();
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
    expected.insert(files.path(&kept));
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
            files_dir: Some(directory.path().join("deep/files")),
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
async fn in_memory_the_bytes_go_with_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings {
        files_dir: Some(directory.path().to_owned()),
        ..settings(StoreUrl::Memory)
    };
    for closed in [true, false] {
        let store = open_with(&settings).await.unwrap();
        let stored = put(&store.files, "alice", "a", 10).await;
        assert_eq!(read(&store.files, "alice", &stored.id).await.len(), 10);
        assert!(store.files.path(&stored).starts_with(directory.path()));
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
        files_dir: Some(occupied.clone()),
        ..settings(StoreUrl::Sqlite(directory.path().join("sessions.db")))
    };
    let error = open_with(&settings).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains(occupied.to_str().unwrap()), "{text}");
}
