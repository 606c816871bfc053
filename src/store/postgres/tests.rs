//! Runs the conformance tests with PostgreSQL, and tests what is specific to it.

mod approvals;
mod presence;
#[path = "../../../tests/postgres/server.rs"]
mod server;

use sqlx::{AssertSqlSafe, Connection, PgConnection, query};
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::server::PostgresServer;
use super::super::engine::Engine;
use super::super::suite::{TestStore, append, expiry, id, owner, suite, user};
use super::super::{Change, OtherReplica, RunAnswer, RunRecordState, Store, StoreUrl};
use super::*;
use protocol::ids::RunId;

const LONG: Duration = Duration::from_secs(30);

suite!([ignore = "needs PostgreSQL"] empty);

async fn empty() -> TestStore {
    let url = PostgresServer::shared().create_database().await;
    TestStore {
        store: open(&url).await.unwrap(),
        directory: None,
    }
}

async fn open(url: &str) -> Result<Store, StoreError> {
    Store::open(&StoreUrl::Postgres(PostgresUrl::parse(url).unwrap())).await
}

impl Postgres {
    pub(crate) async fn shift_clock(&self, seconds: i64) {
        let sql = format!(
            "CREATE OR REPLACE FUNCTION micros_1() RETURNS bigint LANGUAGE sql VOLATILE AS
             $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + {seconds} * 1000000::bigint $$"
        );
        let replace = || query(AssertSqlSafe(sql.clone()));
        self.0.connections.server().rows(replace).await.unwrap();
    }
}

fn postgres(store: &Store) -> &Postgres {
    match &store.engine {
        Engine::Postgres(postgres) => postgres,
        Engine::Sqlite(_) => panic!("the store is not PostgreSQL"),
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn processes_that_start_at_once_make_one_schema() {
    let url = PostgresServer::shared().create_database().await;
    let stores = futures_util::future::join_all((0..5).map(|_| open(&url))).await;
    let mut names = Vec::new();
    for store in &stores {
        names.push(store.as_ref().unwrap().name().await.unwrap());
    }
    names.dedup();
    assert_eq!(names.len(), 1);
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn only_a_store_of_this_schema_is_copied() {
    let url = PostgresServer::shared().create_database().await;
    let readable = async || {
        let mut connection = PgConnection::connect(&url).await.unwrap();
        let checked = migrate::check_readable(&mut connection, "db").await;
        checked.map_err(|error| format!("{error:?}"))
    };
    let empty = readable().await.unwrap_err();
    assert!(empty.contains("db has no session store"), "{empty}");
    let store = open(&url).await.unwrap();
    readable().await.unwrap();
    let newest = "DELETE FROM loopwright_schema WHERE version = (SELECT max(version) FROM loopwright_schema)";
    assert_eq!(store.change_rows(newest).await, 1);
    let older = readable().await.unwrap_err();
    assert!(older.contains("the schema of an older version"), "{older}");
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_schema_of_a_newer_binary_is_refused() {
    let url = PostgresServer::shared().create_database().await;
    let store = open(&url).await.unwrap();
    let newer = "INSERT INTO loopwright_schema (version, checksum) VALUES (99, '')";
    assert_eq!(store.change_rows(newer).await, 1);
    let error = open(&url).await.unwrap_err();
    let StoreError::NewerSchema {
        found, location, ..
    } = &error
    else {
        panic!("{error:?}");
    };
    assert_eq!(*found, 99);
    assert!(location.starts_with("postgres:///test"), "{location}");
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_lease_is_taken_over_only_when_its_process_is_gone() {
    let url = PostgresServer::shared().create_database().await;
    let [first, second] = [open(&url).await.unwrap(), open(&url).await.unwrap()];
    let (key, session) = (owner(), id("s"));
    let lease = first.acquire(&key, &session, Duration::ZERO).await.unwrap();
    let busy = second
        .acquire(&key, &session, Duration::from_millis(600))
        .await;
    assert!(matches!(busy, Err(StoreError::Busy)), "{busy:?}");
    // A release is announced, so that the wait ends at once.
    let (next, ()) = tokio::join!(second.acquire(&key, &session, LONG), first.release(lease));
    let next = next.unwrap();
    let dying = postgres(&second);
    // As if it had not renewed its row.
    let expire =
        "UPDATE replicas SET expires_at = now() - interval '1 second' WHERE id =".to_owned();
    let expire = format!("{expire} '{}'", dying.0.replica);
    assert_eq!(first.change_rows(&expire).await, 1);
    let change = Arc::new(append(0, &[user("a")]));
    let late = second.write(next.fence(), &change).await;
    assert!(matches!(late, Err(StoreError::LeaseLost)), "{late:?}");
    let run = RunId::fresh();
    let taken = first.acquire(&key, &session, Duration::ZERO).await.unwrap();
    let change = Arc::new(Change {
        run: Some(run.clone()),
        ..append(0, &[user("b")])
    });
    first.write(taken.fence(), &change).await.unwrap();
    // The process that comes back has lost it.
    dying.renew_replica().await.unwrap();
    let change = Arc::new(append(0, &[user("c")]));
    let late = second.write(next.fence(), &change).await;
    assert!(matches!(late, Err(StoreError::LeaseLost)), "{late:?}");
    assert!(matches!(
        second.renew(&next).await,
        Err(StoreError::LeaseLost)
    ));
    second.release(next).await;
    first.renew(&taken).await.unwrap();
    let stored = second.load(&key, &session).await.unwrap().unwrap();
    assert_eq!(stored.messages, [user("b")]);
    let seen = second.run(&key, &run).await.unwrap().unwrap();
    assert_eq!(seen.state, RunRecordState::RunningElsewhere);
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_lost_connection_is_made_again() {
    let server = PostgresServer::start();
    let url = server.create_database().await;
    let store = open(&url).await.unwrap();
    let (key, session) = (owner(), id("s"));
    let lease = store.acquire(&key, &session, LONG).await.unwrap();
    let change = Arc::new(append(0, &[user("a")]));
    store.write(lease.fence(), &change).await.unwrap();
    server.kill().await;
    assert!(store.ping().await.is_err());
    server.restart().await;
    let change = Arc::new(append(1, &[user("b")]));
    store.write(lease.fence(), &change).await.unwrap();
    let stored = store.load(&key, &session).await.unwrap().unwrap();
    assert_eq!(stored.messages, [user("a"), user("b")]);
}

/// However many owners wait for connections, each with none: a process that does not renew its row counts as dead.
#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn statements_of_many_owners_do_not_delay_the_heartbeat() {
    const OWNERS: usize = 20;
    let subject = empty().await;
    let store = postgres(&subject.store);
    // Somebody waits for a lease, so that announcements are listened to.
    let lease = subject.store.acquire(&owner(), &id("s"), LONG).await;
    let (key, session) = (owner(), id("s"));
    let mut waiting = Box::pin(subject.store.acquire(&key, &session, LONG));
    assert!(
        timeout(Duration::from_millis(300), waiting.as_mut())
            .await
            .is_err()
    );
    let mut statements = JoinSet::new();
    for number in 0..OWNERS * 3 {
        let (store, owner) = (store.clone(), Owner::key(&format!("{}", number % OWNERS)));
        statements.spawn(async move {
            loop {
                let sleep = || query("SELECT pg_sleep(0.05)");
                store.0.connections.small(&owner).rows(sleep).await.unwrap();
            }
        });
    }
    for _ in 0..20 {
        let renewed = timeout(Duration::from_secs(2), store.renew_replica()).await;
        renewed.unwrap().unwrap();
    }
    statements.shutdown().await;
    drop(lease);
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_run_and_a_lease_lead_to_the_address_of_their_process() {
    let url = PostgresServer::shared().create_database().await;
    let [first, second] = [open(&url).await.unwrap(), open(&url).await.unwrap()];
    let (key, session, run) = (owner(), id("s"), RunId::fresh());
    let lease = first.acquire(&key, &session, Duration::ZERO).await.unwrap();
    first.begin_run(&run, &key, Some(&session)).await.unwrap();
    let found = async |key: &Owner| {
        let of_run = second.replica_of_run(key, &run).await.unwrap();
        let of_session = second.replica_of_session(key, &session).await.unwrap();
        (of_run, of_session)
    };
    let there = |address: Option<&str>| OtherReplica {
        address: address.map(str::to_owned),
        ended: false,
    };
    let silent = Some(there(None));
    assert_eq!(found(&key).await, (silent.clone(), silent));
    first.announce("http://first:1").await.unwrap();
    let dying = postgres(&first);
    dying.renew_replica().await.unwrap();
    let reachable = Some(there(Some("http://first:1")));
    assert_eq!(found(&key).await, (reachable.clone(), reachable.clone()));
    assert_eq!(found(&Owner::key("bob")).await, (None, None));
    assert_eq!(first.replica_of_run(&key, &run).await.unwrap(), None);
    assert_eq!(
        first.replica_of_session(&key, &session).await.unwrap(),
        None
    );
    first.release(lease).await;
    assert_eq!(found(&key).await, (reachable, None));
    let answer = RunAnswer::default();
    first.end_run(&run, &key, answer).await.unwrap();
    let ended = second.replica_of_run(&key, &run).await.unwrap();
    assert!(ended.unwrap().ended);
    // As if it had not renewed its row.
    let expire = "UPDATE replicas SET expires_at = now() - interval '1 second' WHERE id =";
    let expire = format!("{expire} '{}'", dying.0.replica);
    assert_eq!(first.change_rows(&expire).await, 1);
    assert_eq!(second.replica_of_run(&key, &run).await.unwrap(), None);
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn nothing_expires_by_a_wrong_clock() {
    for case in [0, 1] {
        let url = PostgresServer::shared().create_database().await;
        let open = async || open(&url).await.unwrap();
        match case {
            0 => expiry::a_wrong_clock_deletes_nothing(open).await,
            _ => expiry::an_empty_store_trusts_the_clock(open).await,
        }
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn time_that_several_processes_see_passes_once() {
    let url = PostgresServer::shared().create_database().await;
    let mut stores = Vec::new();
    let start = std::time::Instant::now();
    for _ in 0..5 {
        stores.push(open(&url).await.unwrap());
    }
    for store in stores.iter().cycle().take(50) {
        store.expire(None, None).await.unwrap();
    }
    let store = stores.first().unwrap();
    let elapsed = store.number("SELECT elapsed FROM expiry_time").await;
    let passed = i64::try_from(start.elapsed().as_micros()).unwrap();
    assert!(elapsed > 0 && elapsed <= passed, "{elapsed} of {passed}");
}
