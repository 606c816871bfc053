//! Schemas written by other versions of the program, and damaged rows.

use rusqlite::Connection;

use super::super::super::StoredMessage;
use super::*;

/// The checksums in the databases of released binaries.
const CHECKSUMS: [&str; 9] = [
    "f70e4f2a430f9686e078a325bcd860808693efc84b355081cdd47b14dab79b7ab9a43fde6f5b8377a24b403ae0137cba",
    "e54d14e3f97b8c390594e3c506e104712ffcbd192ff26281222c484b2bd425d666736caf64db0a7fe3d55781cd03d635",
    "64b948cacf4d4cadcb17a0b6dff547025d175846bb3b8e2a0ed9294290b4f83d085545186af4ca4fa90340f513f98dff",
    "d5f2ac8a3904d0c0a433f20375687ed3cff4d950db4535aa77961ccb95498be192a7d52cdc56af65bef08ac7bc6121d9",
    "30b56e0358817bdf6b518e299d28e14e686c964babe702670f3713079c9b9a1ab4790ba90e70f5e6864809512d5e989a",
    "3fb6597969a1103a033199f4a0fe462fcbaf97d308c46755bc6c1a16fca8d390221128fd52ab6caa01a7ebca9843f3f0",
    "65cf20258daaff05b4fbd679ed0c55f80c7cec4cc54598a2e895224d5445ebd58d00c1bd5c648e89fac946fee5f08869",
    "c2ab40f2190871206e9cd744627c4234c4926ed47b4dbc5216379b07a0d5684f6372ab996033202f97c45bdfc300024d",
    "167d8152453c3f42e422ad447a6919db29245e5a186805e4b196e6fda124e22fcb5c4c7dc9eeb298e1c0201bbf3c6fcd",
];

async fn closed_file() -> (tempfile::TempDir, StoreUrl, Connection) {
    let TestStore { store, directory } = file().await;
    write(&store, &id("s"), append(0, &[user("a")]))
        .await
        .unwrap();
    store.close().await;
    let directory = directory.unwrap();
    let path = directory.path().join("sessions.db");
    let connection = Connection::open(&path).unwrap();
    (directory, StoreUrl::Sqlite(path), connection)
}

#[tokio::test]
async fn migrations_are_recorded_as_in_released_binaries() {
    let (_directory, _, connection) = closed_file().await;
    let mut statement = connection
        .prepare("SELECT version, description, success, lower(hex(checksum)) FROM _sqlx_migrations ORDER BY version")
        .unwrap();
    let rows = statement.query_map([], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
    });
    let rows: Vec<(i64, String, bool, String)> = rows.unwrap().map(Result::unwrap).collect();
    let expected: Vec<_> = [
        (1, "sessions"),
        (2, "files"),
        (3, "sources"),
        (4, "runs"),
        (5, "session sizes"),
        (6, "shared messages"),
        (7, "chats"),
        (8, "pieces"),
        (9, "written at"),
    ]
    .into_iter()
    .zip(CHECKSUMS)
    .map(|((version, description), checksum)| {
        (version, description.to_owned(), true, checksum.to_owned())
    })
    .collect();
    assert_eq!(rows, expected);
}

#[tokio::test]
async fn a_database_of_the_first_version_is_brought_up_to_date() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("old.db");
    let connection = Connection::open(&path).unwrap();
    let first = include_str!("../migrations/0001_sessions.sql");
    connection
        .execute_batch(&format!(
            "CREATE TABLE _sqlx_migrations (
                version BIGINT PRIMARY KEY, description TEXT NOT NULL,
                installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
                success BOOLEAN NOT NULL, checksum BLOB NOT NULL, execution_time BIGINT NOT NULL
            );
            {first}
            INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
            VALUES (1, 'sessions', TRUE, x'{}', 1);
            INSERT INTO sessions (owner, session_id, message_count, created_at, updated_at)
            VALUES ('alice', 's', 2, 5000000, 6000000);
            INSERT INTO messages (session, seq, json, hidden, full_text)
            VALUES (1, 0, '{{\"role\":\"user\",\"content\":\"a\"}}', FALSE, NULL),
                   (1, 1, '{{\"role\":\"user\",\"content\":\"{}\"}}', FALSE, '{}');",
            CHECKSUMS[0],
            "x".repeat(3_000_000),
            "y".repeat(50_000),
        ))
        .unwrap();
    drop(connection);
    let store = Store::open(&StoreUrl::Sqlite(path)).await.unwrap();
    let stored = loaded(&store, &id("s")).await;
    let long = StoredMessage {
        full_text: Some("y".repeat(50_000)),
        ..user(&"x".repeat(3_000_000))
    };
    assert!(stored.messages == [user("a"), long.clone()]);
    assert_eq!((stored.created_at, stored.updated_at), (5, 6));
    sizes::check_counts(&store).await;
    write(&store, &id("s"), append(2, &[user("b")]))
        .await
        .unwrap();
    let messages = [user("a"), long, user("b")];
    assert!(loaded(&store, &id("s")).await.messages == messages);
    let lease = store.acquire(&owner(), &id("s"), LONG).await.unwrap();
    store.fork(lease.fence(), None, &id("f")).await.unwrap();
    assert!(store.delete(lease.fence()).await.unwrap());
    assert!(loaded(&store, &id("f")).await.messages == messages);
    sizes::check_counts(&store).await;
    let lease = store.acquire(&owner(), &id("f"), LONG).await.unwrap();
    assert!(store.delete(lease.fence()).await.unwrap());
    let pieces = "SELECT count(*) FROM message_pieces";
    assert_eq!(sqlite(&store).count(pieces).await, 0);
}

#[tokio::test]
async fn a_schema_of_another_binary_is_refused() {
    let set = [
        (
            "INSERT INTO _sqlx_migrations SELECT 10, 'later', installed_on, TRUE, checksum, 1 FROM _sqlx_migrations LIMIT 1",
            "version 10",
        ),
        (
            "UPDATE _sqlx_migrations SET checksum = x'00' WHERE version = 2",
            "migration 2",
        ),
        (
            "UPDATE _sqlx_migrations SET success = FALSE WHERE version = 3",
            "migration 3",
        ),
    ];
    for (sql, named) in set {
        let (_directory, url, connection) = closed_file().await;
        connection.execute(sql, []).unwrap();
        drop(connection);
        let error = Store::open(&url).await.unwrap_err();
        let newer = matches!(
            error,
            StoreError::NewerSchema {
                found: 10,
                known: 9,
                ..
            }
        );
        assert_eq!(newer, named == "version 10", "{error:?}");
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        let text = cause.unwrap_or_else(|| error.to_string());
        assert!(text.contains(named), "{text}");
    }
}

#[tokio::test]
async fn a_message_that_cannot_be_read_is_an_error() {
    for subject in both().await {
        let messages: Vec<_> = (0..3).map(|number| user(&number.to_string())).collect();
        write(&subject.store, &id("s"), append(0, &messages))
            .await
            .unwrap();
        for (sql, undo) in [
            (
                "UPDATE messages SET view = 'x'",
                "UPDATE messages SET view = NULL",
            ),
            (
                "UPDATE messages SET sources = 'x'",
                "UPDATE messages SET sources = NULL",
            ),
            (
                "UPDATE sessions SET instructions = 'x'",
                "UPDATE sessions SET instructions = '[]'",
            ),
            (
                "UPDATE messages SET seq = 7 WHERE seq = 0",
                "UPDATE messages SET seq = 0 WHERE seq = 7",
            ),
            (
                "UPDATE messages SET seq = 7 WHERE seq = 1",
                "UPDATE messages SET seq = 1 WHERE seq = 7",
            ),
            ("UPDATE messages SET json = '[]'", "SELECT 1 WHERE 0"),
        ] {
            assert!(sqlite(&subject.store).execute(sql).await > 0);
            let error = subject.store.load(&owner(), &id("s")).await.unwrap_err();
            assert!(matches!(error, StoreError::Failed(_)), "{sql}: {error:?}");
            if undo.starts_with("UPDATE") {
                sqlite(&subject.store).execute(undo).await;
                assert_eq!(loaded(&subject.store, &id("s")).await.messages, messages);
            }
        }
    }
}

#[tokio::test]
async fn hidden_rows_of_a_crash_are_removed_by_the_next_start() {
    let (_directory, url, connection) = closed_file().await;
    connection
        .execute_batch(&format!(
            "INSERT INTO sessions (id, owner, session_id, created_at, updated_at)
             VALUES (10, '{hidden}', 'draft-1', 1, 1), (11, '{hidden}', 'deleted-11', 1, 1);
             WITH RECURSIVE n (value) AS (SELECT 0 UNION ALL SELECT value + 1 FROM n WHERE value < 2000)
             INSERT INTO messages (session, seq, json, hidden)
             SELECT s.id, n.value, '{{}}', 0 FROM sessions s, n WHERE s.id >= 10;",
            hidden = write::HIDDEN,
        ))
        .unwrap();
    drop(connection);
    let store = Store::open(&url).await.unwrap();
    // Closing waits for the removal that started at opening.
    store.close().await;
    let StoreUrl::Sqlite(path) = &url else {
        panic!()
    };
    let connection = Connection::open(path).unwrap();
    let count = |sql: &str| -> i64 { connection.query_row(sql, [], |row| row.get(0)).unwrap() };
    assert_eq!(count("SELECT count(*) FROM sessions"), 1);
    assert_eq!(count("SELECT count(*) FROM messages"), 1);
}
