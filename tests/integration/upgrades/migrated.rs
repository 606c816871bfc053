//! A file of the earlier version with many sessions and keys, whose migration is killed again and again.

use std::time::Duration;

use rusqlite::Connection;

use super::kept::{Engine, Kept, KeptSet};
use super::told;
use super::{model, people, server, tools};
use crate::support::upstream::ScriptedUpstream;

/// What lists the sessions that are added.
const LIST: &str = "alice /v1/sessions?limit=100";
/// Sessions that are added, each with the messages of one that has long ones.
const SESSIONS: usize = 60;
/// Idempotency keys that are added.
const KEYS: u32 = 50_000;
/// How many starts are killed.
const KILLS: u32 = 20;
/// Longest life of a start that is killed. Each lives a bit longer than the one before.
const LONGEST_LIFE: Duration = Duration::from_millis(400);

/// Adds to a file of schema 12.
fn add(connection: &Connection) {
    for number in 0..SESSIONS {
        let sql = format!(
            "CREATE TEMP TABLE head AS SELECT * FROM sessions WHERE owner = 'alice' AND session_id = 'rounds';
             CREATE TEMP TABLE rows AS SELECT * FROM messages WHERE session = (SELECT id FROM head);
             CREATE TEMP TABLE parts AS SELECT * FROM message_pieces WHERE session = (SELECT id FROM head);
             UPDATE head SET id = 1000 + {number}, session_id = 'copy-{number}';
             UPDATE rows SET session = 1000 + {number};
             UPDATE parts SET session = 1000 + {number};
             INSERT INTO sessions SELECT * FROM head;
             INSERT INTO messages SELECT * FROM rows;
             INSERT INTO message_pieces SELECT * FROM parts;
             DROP TABLE head; DROP TABLE rows; DROP TABLE parts;"
        );
        connection.execute_batch(&sql).unwrap();
    }
    let sql =
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?1)
        INSERT INTO idempotency_keys (owner, key, fingerprint, run, created_at, recorded)
        SELECT 'bob', 'key-' || n, k.fingerprint, 'run-' || n, k.created_at, 1
        FROM numbers, idempotency_keys k WHERE k.key = 'held-key'";
    let added = connection.execute(sql, [KEYS]).unwrap();
    assert_eq!(added, KEYS as usize);
}

#[tokio::test]
async fn a_migration_that_is_killed_again_and_again_is_made_in_the_end() {
    let upstream = ScriptedUpstream::answering(model).await;
    let hook = tools().await;
    let kept = Kept::of_earlier(Engine::Sqlite, KeptSet::Ended);
    let mut builder = kept.restored(server(&upstream, &hook)).await;
    let connection = Connection::open(builder.dir().join("sessions.db")).unwrap();
    add(&connection);
    connection.close().unwrap();
    for kill in 0..KILLS {
        builder.kill9_after(LONGEST_LIFE * kill / KILLS).await;
    }
    let app = builder.start().await;
    let before = kept.told();
    let mut told = told::of(&app, &before.ids).await;
    // The list of alice has the copies.
    told.retain(|path, _| before.told.contains_key(path));
    told.insert(LIST.to_owned(), before.told[LIST].clone());
    assert_eq!(told, before.told);
    let [alice, _] = people(&app);
    let source = alice.get("/v1/sessions/rounds").await.json();
    for number in 0..SESSIONS {
        let copy = alice.get(&format!("/v1/sessions/copy-{number}")).await;
        assert_eq!(copy.json()["messages"], source["messages"], "{number}");
    }
}
