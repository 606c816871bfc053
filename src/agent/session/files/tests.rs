mod eviction;
mod recovery;
mod sharing;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{join_all, poll_fn};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;

use super::super::settings::{BlobLocation, SessionLimits, Settings, StoreUrl};
use super::super::{Change, Sessions, StoredMessage, StoredSession};
use super::*;
use protocol::openai::message::{Message, Role};
use store::FileUsage;

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

    /// Closes the store and opens it again, as a restart does.
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

    /// All files on disk except the lock.
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
        nameless_ttl: None,
        wait: Duration::from_secs(1),
        max_messages: 100,
        limits: SessionLimits::default(),
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
    files.put(&owner(who), named(name), &content).await.unwrap()
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
    let who = owner(who);
    let stored = files.get(&who, id).await.unwrap();
    let opened = files.open_content(&who, &stored, 0..stored.bytes).await;
    let mut file = opened.unwrap();
    let mut content = Vec::new();
    file.read_to_end(&mut content).await.unwrap();
    content
}

fn path_of(files: &FileStore, file: &StoredFile) -> PathBuf {
    files.content(file).as_file().unwrap().to_path_buf()
}

async fn unused_for(files: &FileStore, file: &StoredFile, seconds: i64) {
    assert_eq!(
        files
            .store()
            .set_unused_for(&file.id, seconds)
            .await
            .unwrap(),
        1
    );
}

#[tokio::test]
async fn a_stored_file_is_returned_unchanged_until_it_is_deleted() {
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
    let stored = files.put(&owner("alice"), file, &content).await.unwrap();
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
    assert_eq!(std::fs::read(path_of(files, &stored)).unwrap(), content);
    assert_eq!(
        files.store().file_usage().await.unwrap(),
        FileUsage {
            files: 1,
            bytes: 900
        }
    );

    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let path = path_of(files, &stored);
    assert_eq!(mode(&path), 0o600);
    let mut folder = path.parent().unwrap();
    while folder != fixture.directory.path() {
        assert_eq!(mode(folder), 0o700, "{}", folder.display());
        folder = folder.parent().unwrap();
    }

    // An open file can be read after its deletion.
    let mut opened = files
        .open_content(&owner("alice"), &stored, 0..stored.bytes)
        .await
        .unwrap();
    assert!(files.delete(&owner("alice"), &stored.id).await.unwrap());
    assert!(!files.delete(&owner("alice"), &stored.id).await.unwrap());
    let mut rest = Vec::new();
    opened.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, content);
    assert_eq!(fixture.on_disk(), BTreeSet::new());
    assert_eq!(
        files.store().file_usage().await.unwrap(),
        FileUsage::default()
    );
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
            .store
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
        files.put(&owner("alice"), file, b"x").await.unwrap();
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
async fn a_refused_file_leaves_nothing() {
    let fixture = Fixture::new().await;
    let files = fixture.files();
    let content = vec![0; 1001];
    let alice = owner("alice");
    let read = files.put(&alice, named("a"), &content);
    let inline = files.put_inline(&alice, named("a"), content.clone().into());
    for refused in [read.await, inline.await] {
        assert!(
            matches!(refused, Err(FileError::TooLarge { limit: MAX_FILE })),
            "{refused:?}"
        );
    }
    assert_eq!(fixture.on_disk(), BTreeSet::new());
    let mut broken_off = files.draft().await.unwrap();
    broken_off.write(b"abc").await.unwrap();
    drop(broken_off);
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
