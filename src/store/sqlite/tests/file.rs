//! The database file: names, permissions, the lock, the content after a crash.

use std::error::Error;
use std::path::PathBuf;

use super::super::super::suite::expiry;
use super::*;

#[tokio::test]
async fn a_file_that_is_opened_again_holds_everything() {
    let TestStore { store, directory } = file().await;
    let directory = directory.unwrap();
    let session = id("s");
    let change = Change {
        instructions: Some(vec![protocol::openai::message::Message::text(
            protocol::openai::message::Role::System,
            "i",
        )]),
        client_calls: vec!["call_9".to_owned()],
        ..append(0, &[user("a"), user("b"), user("c")])
    };
    write(&store, &session, change.clone()).await.unwrap();
    let before = loaded(&store, &session).await;
    // The state after a crash: committed data is in the log.
    let copy = tempfile::tempdir().unwrap();
    for name in ["sessions.db", "sessions.db-wal"] {
        std::fs::copy(directory.path().join(name), copy.path().join(name)).unwrap();
    }
    let path = copy.path().join("sessions.db");
    let second = Store::open(&StoreUrl::Sqlite(path)).await.unwrap();
    assert_eq!(loaded(&second, &session).await, before);
    second.close().await;
    store.close().await;
    assert!(write(&store, &session, change).await.is_err());
    let path = directory.path().join("sessions.db");
    let log = path.with_extension("db-wal");
    assert!(log.metadata().map_or(0, |log| log.len()) == 0);
    // The lock was released with the store.
    let third = Store::open(&StoreUrl::Sqlite(path)).await.unwrap();
    assert_eq!(loaded(&third, &session).await, before);
    let found = third.waiting_turn(&owner(), "call_9").await.unwrap();
    assert!(matches!(found, Some(WaitingTurn::Stored(found)) if found == session));
}

#[tokio::test]
async fn a_file_can_be_opened_only_once_whatever_its_name() {
    let TestStore { store, directory } = file().await;
    let directory = directory.unwrap();
    let path = directory.path().join("sessions.db");
    let link = directory.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for name in [&path, &link, &directory.path().join("./sessions.db")] {
        let error = Store::open(&StoreUrl::Sqlite(name.clone()))
            .await
            .unwrap_err();
        assert!(matches!(error, StoreError::InUse { .. }), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains("sessions.db is in use") && text.contains("--session-store"),
            "{text}"
        );
    }
    drop(store);
    Store::open(&StoreUrl::Sqlite(link)).await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn a_new_file_is_readable_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let TestStore { store, directory } = file().await;
    write(&store, &id("s"), append(0, &[user("a")]))
        .await
        .unwrap();
    let mut names = Vec::new();
    for entry in directory.unwrap().path().read_dir().unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", entry.file_name());
        names.push(entry.file_name());
    }
    assert!(
        names.len() >= 3,
        "the log and the lock are looked at too: {names:?}"
    );
}

#[tokio::test]
async fn a_path_that_is_not_a_database_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("text.db");
    std::fs::write(
        &text,
        "no database, but long enough to have a header. ".repeat(10),
    )
    .unwrap();
    for path in [
        directory.path().join("missing/secret/sessions.db"),
        directory.path().to_owned(),
        text,
        PathBuf::new(),
    ] {
        let error = Store::open(&StoreUrl::Sqlite(path.clone()))
            .await
            .unwrap_err();
        assert!(
            matches!(error, StoreError::Failed(_)),
            "{path:?}: {error:?}"
        );
        assert!(error.source().is_some());
    }
}

#[tokio::test]
async fn special_file_names_are_file_names() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["file:x?mode=memory", ":memory:", "ä b%20.db"] {
        let path = directory.path().join(name);
        let store = Store::open(&StoreUrl::Sqlite(path.clone())).await.unwrap();
        write(&store, &id("s"), Change::default()).await.unwrap();
        store.close().await;
        assert!(path.is_file(), "{name}");
    }
}

#[tokio::test]
async fn a_deleted_session_leaves_no_rows() {
    for subject in both().await {
        let change = Change {
            client_calls: vec!["c".to_owned()],
            ..append(0, &[user("a")])
        };
        write(&subject.store, &id("s"), change).await.unwrap();
        let lease = subject
            .store
            .acquire(&owner(), &id("s"), LONG)
            .await
            .unwrap();
        assert!(subject.store.delete(lease.fence()).await.unwrap());
        for sql in [
            "SELECT count(*) FROM sessions",
            "SELECT count(*) FROM messages",
            "SELECT count(*) FROM client_calls",
        ] {
            assert_eq!(subject.store.number(sql).await, 0, "{sql}");
        }
    }
}

#[tokio::test]
async fn the_log_is_written_back_while_the_store_is_open() {
    let TestStore { store, directory } = file().await;
    let text = "x".repeat(100_000);
    let log = directory.as_ref().unwrap().path().join("sessions.db-wal");
    for number in 0..300 {
        write(&store, &id("s"), append(number % 10, &[user(&text)]))
            .await
            .unwrap();
        // The next checkpoint starts when the current one has ended.
        tokio::task::yield_now().await;
    }
    let length = log.metadata().unwrap().len();
    assert!(
        length < 25_000_000,
        "30 MB were written, {length} bytes are in the log"
    );
    assert_eq!(loaded(&store, &id("s")).await.messages.len(), 10);
}

#[tokio::test]
async fn nothing_expires_by_a_wrong_clock() {
    for case in [0, 1] {
        let directory = tempfile::tempdir().unwrap();
        let url = StoreUrl::Sqlite(directory.path().join("sessions.db"));
        let open = async || Store::open(&url).await.unwrap();
        match case {
            0 => expiry::a_wrong_clock_deletes_nothing(open).await,
            _ => expiry::an_empty_store_trusts_the_clock(open).await,
        }
    }
}
