//! Schemas written by other versions of the program, and damaged rows.

use rusqlite::{Connection, params};

use super::super::super::StoredMessage;
use super::super::super::suite::sizes::check_counts;
use super::super::super::suite::system;
use super::*;

/// The checksums in the databases of released binaries.
const CHECKSUMS: [&str; 18] = [
    "f70e4f2a430f9686e078a325bcd860808693efc84b355081cdd47b14dab79b7ab9a43fde6f5b8377a24b403ae0137cba",
    "e54d14e3f97b8c390594e3c506e104712ffcbd192ff26281222c484b2bd425d666736caf64db0a7fe3d55781cd03d635",
    "64b948cacf4d4cadcb17a0b6dff547025d175846bb3b8e2a0ed9294290b4f83d085545186af4ca4fa90340f513f98dff",
    "d5f2ac8a3904d0c0a433f20375687ed3cff4d950db4535aa77961ccb95498be192a7d52cdc56af65bef08ac7bc6121d9",
    "30b56e0358817bdf6b518e299d28e14e686c964babe702670f3713079c9b9a1ab4790ba90e70f5e6864809512d5e989a",
    "3fb6597969a1103a033199f4a0fe462fcbaf97d308c46755bc6c1a16fca8d390221128fd52ab6caa01a7ebca9843f3f0",
    "65cf20258daaff05b4fbd679ed0c55f80c7cec4cc54598a2e895224d5445ebd58d00c1bd5c648e89fac946fee5f08869",
    "c2ab40f2190871206e9cd744627c4234c4926ed47b4dbc5216379b07a0d5684f6372ab996033202f97c45bdfc300024d",
    "167d8152453c3f42e422ad447a6919db29245e5a186805e4b196e6fda124e22fcb5c4c7dc9eeb298e1c0201bbf3c6fcd",
    "730ec6f1096e5094dd90030a206695af8cd6bac4b712054f6fbc80ae885f07572cd25ec6eac5463bb8104f782aee5fe5",
    "9e6ac41194a2eba603e129b03cd188945727f0d0312a3633bdac83362f7ae7a6360a789df4ea3755b549ad53b72c38f9",
    "a69ae23c7f08f3191d419e72223c1259f46598144835de68895471a41813ceec192fc5eaa8ad4bbe8cce6317d22eb46f",
    "87ba56b50579469afa091717980099e7d0b339784f33a4546703d147041aa5d8a88f05be8c81d32ab600e4532315cbf6",
    "2a18d461003d13e2b9d55176c4a611970965bc3b1976f490b558db5dc96f922decf188fc987faa931d5e12a5bb5dd36e",
    "b5b98c688dda6f811b54d4819ba668dab0cc737b9bc2d20dbb5b3850ee7970f2e48e9c051797dbd5c329913f80e0203c",
    "0a15557d3ecb36799582bdec7ce94eb19f5131a7e514247c3ee2a7c41403c188c9b867afef59bc64a9bf6503dea6a48e",
    "bc595fe1687e6654bfa156fcc5b69c86415b33316d8daaf9bfe39f09313529afee8cd133204f1a58f3117396721ac8fe",
    "4a45a65e218aa863f123a2a7d72672b3af00c06a8a76eb75ca196dedb756b7d63ca4daa0c7514a05e6197e8b85e92977",
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
        (10, "instructions"),
        (11, "kept answers"),
        (12, "conversation metadata"),
        (13, "expiry time"),
        (14, "key usage"),
        (15, "whole messages"),
        (16, "parked turns"),
        (17, "approvals"),
        (18, "waiting runs"),
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
    check_counts(&store).await;
    write(&store, &id("s"), append(2, &[user("b")]))
        .await
        .unwrap();
    let messages = [user("a"), long, user("b")];
    assert!(loaded(&store, &id("s")).await.messages == messages);
    let lease = store.acquire(&owner(), &id("s"), LONG).await.unwrap();
    store.fork(lease.fence(), None, &id("f")).await.unwrap();
    assert!(store.delete(lease.fence()).await.unwrap());
    assert!(loaded(&store, &id("f")).await.messages == messages);
    check_counts(&store).await;
    let lease = store.acquire(&owner(), &id("f"), LONG).await.unwrap();
    assert!(store.delete(lease.fence()).await.unwrap());
}

/// A database of the version before instructions were rows: sessions and hidden sessions with what they have in common.
fn database_with_instruction_texts(path: &Path, long: &str) {
    let connection = Connection::open(path).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE _sqlx_migrations (
                version BIGINT PRIMARY KEY, description TEXT NOT NULL,
                installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
                success BOOLEAN NOT NULL, checksum BLOB NOT NULL, execution_time BIGINT NOT NULL
            );",
        )
        .unwrap();
    let migrations = [
        include_str!("../migrations/0001_sessions.sql"),
        include_str!("../migrations/0002_files.sql"),
        include_str!("../migrations/0003_sources.sql"),
        include_str!("../migrations/0004_runs.sql"),
        include_str!("../migrations/0005_session_sizes.sql"),
        include_str!("../migrations/0006_shared_messages.sql"),
        include_str!("../migrations/0007_chats.sql"),
        include_str!("../migrations/0008_pieces.sql"),
        include_str!("../migrations/0009_written_at.sql"),
    ];
    for (version, (sql, checksum)) in (1..).zip(migrations.into_iter().zip(CHECKSUMS)) {
        connection.execute_batch(sql).unwrap();
        let applied = format!(
            "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
             VALUES ({version}, '', TRUE, x'{checksum}', 1)"
        );
        assert_eq!(connection.execute(&applied, []).unwrap(), 1);
    }
    let short = r#"{"role":"system","content":"i"}"#;
    let long = format!(r#"{{"role":"system","content":"{long}"}}"#);
    let hidden = "\u{1}hidden";
    for (row, owner, session, instructions, count) in [
        (1, "alice", "none", "[]".to_owned(), 0),
        (2, "alice", "short", format!("[{short}, {short}]"), 2),
        (3, "alice", "long", format!("[{long},{short},{long}]"), 3),
        (4, hidden, "trunk-4", format!("[{short},{long}]"), 2),
        (5, "alice", "parent", String::new(), 2),
        (6, "bob", "fork", String::new(), 2),
        // What no session reads.
        (7, hidden, "trunk-7", format!("[{short}]"), 1),
        (8, "alice", "own", format!("[{short}]"), 1),
        (9, hidden, "deleted-9", format!("[{short}]"), 1),
        (10, "alice", "damaged", "[x]".to_owned(), 1),
    ] {
        let bytes = match (row, instructions.len()) {
            (5 | 6, _) => short.len() + long.len() + 3,
            (_, bytes) => bytes,
        };
        let bytes = i64::try_from(bytes).unwrap();
        let values = params![
            row,
            owner,
            session,
            instructions,
            count,
            bytes,
            row * 1_000_000
        ];
        connection
            .execute(
                "INSERT INTO sessions (id, owner, session_id, instructions, instruction_count, message_count, bytes,
                                       created_at, updated_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, ?7, ?7)",
                values,
            )
            .unwrap();
    }
    connection
        .execute_batch(
            "INSERT INTO messages (session, seq, json, hidden)
             SELECT id, 0, '{\"role\":\"user\",\"content\":\"a\"}', 0 FROM sessions WHERE id NOT IN (5, 6, 8);
             INSERT INTO shared_messages (session, first_seq, end_seq, trunk)
             VALUES (5, -1, 0, 4), (5, 0, 1, 4), (6, -1, 0, 4), (6, 0, 1, 4), (8, 0, 1, 7);
             UPDATE sessions SET shared = 1 WHERE id IN (5, 6, 8);
             UPDATE sessions SET message_count = instruction_count + 1,
                bytes = bytes + octet_length('{\"role\":\"user\",\"content\":\"a\"}')",
        )
        .unwrap();
}

#[tokio::test]
async fn instructions_of_an_older_database_become_rows() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("old.db");
    let text = "0123456789".repeat(300_000);
    database_with_instruction_texts(&path, &text);
    let store = Store::open(&StoreUrl::Sqlite(path)).await.unwrap();
    let (short, long) = (system("i"), system(&text));
    let bob = Owner::key("bob");
    let expected = [
        ("none", vec![]),
        ("short", vec![short.clone(); 2]),
        ("long", vec![long.clone(), short.clone(), long.clone()]),
        ("parent", vec![short.clone(), long.clone()]),
        ("own", vec![short.clone()]),
    ];
    for (session, instructions) in &expected {
        let stored = loaded(&store, &id(session)).await;
        assert!(stored.instructions == *instructions, "{session}");
        assert_eq!(stored.messages, [user("a")]);
    }
    let fork = store.load(&bob, &id("fork")).await.unwrap().unwrap();
    assert!(fork.instructions == [short.clone(), long.clone()]);
    let damaged = store.load(&owner(), &id("damaged")).await;
    assert!(matches!(damaged, Err(StoreError::Failed(_))), "{damaged:?}");
    check_counts(&store).await;
    // They are copied, replaced and removed as those of a new database.
    let lease = store.acquire(&owner(), &id("parent"), LONG).await.unwrap();
    store
        .fork(lease.fence(), Some(2), &id("again"))
        .await
        .unwrap();
    assert!(store.delete(lease.fence()).await.unwrap());
    let again = loaded(&store, &id("again")).await;
    assert!(again.instructions == [short.clone(), long]);
    for (session, _) in &expected[..3] {
        let change = Change {
            instructions: Some(vec![short.clone()]),
            ..append(1, &[user("b")])
        };
        write(&store, &id(session), change).await.unwrap();
        let stored = loaded(&store, &id(session)).await;
        assert_eq!(stored.instructions, std::slice::from_ref(&short));
        assert_eq!(stored.messages, [user("a"), user("b")]);
    }
    check_counts(&store).await;
    let left = ["none", "short", "long", "own", "damaged", "again"].map(|left| (owner(), left));
    for (owner, left) in left.into_iter().chain([(bob, "fork")]) {
        let lease = store.acquire(&owner, &id(left), LONG).await.unwrap();
        assert!(store.delete(lease.fence()).await.unwrap());
        check_counts(&store).await;
    }
    for sql in [
        "SELECT count(*) FROM sessions",
        "SELECT count(*) FROM messages",
        "SELECT count(*) FROM session_usage",
    ] {
        assert_eq!(store.number(sql).await, 0, "{sql}");
    }
}

#[tokio::test]
async fn a_schema_of_another_binary_is_refused() {
    let set = [
        (
            "INSERT INTO _sqlx_migrations SELECT 19, 'later', installed_on, TRUE, checksum, 1 FROM _sqlx_migrations LIMIT 1",
            "version 19",
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
                found: 19,
                known: 18,
                ..
            }
        );
        assert_eq!(newer, named == "version 19", "{error:?}");
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        let text = cause.unwrap_or_else(|| error.to_string());
        assert!(text.contains(named), "{text}");
    }
}

#[tokio::test]
async fn a_message_that_cannot_be_read_is_an_error() {
    for subject in both().await {
        write(&subject.store, &id("other"), append(0, &[user("a")]))
            .await
            .unwrap();
        let messages: Vec<_> = (0..3).map(|number| user(&number.to_string())).collect();
        let instructions = vec![system("i"), system("j")];
        let change = Change {
            instructions: Some(instructions.clone()),
            ..append(0, &messages)
        };
        write(&subject.store, &id("s"), change).await.unwrap();
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
                "UPDATE messages SET json = '!' || json WHERE seq < 0",
                "UPDATE messages SET json = substr(json, 2) WHERE seq < 0",
            ),
            (
                "UPDATE messages SET seq = -5 WHERE seq = -4294967296",
                "UPDATE messages SET seq = -4294967296 WHERE seq = -5",
            ),
            (
                "UPDATE messages SET seq = -5 WHERE seq = -4294967295",
                "UPDATE messages SET seq = -4294967295 WHERE seq = -5",
            ),
            (
                "UPDATE messages SET session = session - 1 WHERE seq = -4294967295",
                "UPDATE messages SET session = session + 1 WHERE seq = -4294967295",
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
            assert!(subject.store.change_rows(sql).await > 0);
            let error = subject.store.load(&owner(), &id("s")).await.unwrap_err();
            assert!(matches!(error, StoreError::Failed(_)), "{sql}: {error:?}");
            if undo.starts_with("UPDATE") {
                subject.store.change_rows(undo).await;
                let stored = loaded(&subject.store, &id("s")).await;
                assert_eq!(stored.instructions, instructions);
                assert_eq!(stored.messages, messages);
            }
        }
    }
}
