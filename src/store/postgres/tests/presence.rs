//! The lock by which others notice at once that a process has ended.

use super::*;

const ALICE: &str = "alice";

/// Adds a process that renews its row in an hour, with this lock that nobody holds, and a lease of a session.
async fn add_holder(store: &Store, name: &str, lock: &str, server: &str) {
    let replica = format!(
        "INSERT INTO replicas (id, expires_at, lock, lock_server)
         VALUES ('{name}', now() + interval '1 hour', {lock}, {server})"
    );
    let lease = format!(
        "INSERT INTO leases (owner, session_id, token, replica)
         VALUES ('{ALICE}', '{name}', nextval('lease_tokens'), '{name}')"
    );
    for sql in [replica, lease] {
        assert_eq!(store.change_rows(&sql).await, 1);
    }
}

/// Waits until a process that ended now is noticed.
async fn end_is_noticed(store: &Store, name: &str) {
    add_holder(store, name, "7", "server_6()").await;
    let lease = store.acquire(&Owner::key(ALICE), &id(name), LONG).await;
    store.release(lease.unwrap()).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn only_a_lock_of_this_server_tells_that_a_process_has_ended() {
    let subject = empty().await;
    let store = &subject.store;
    // One of an earlier version, and one that has not connected since the server was started.
    add_holder(store, "earlier", "NULL", "NULL").await;
    add_holder(store, "elsewhere", "8", "server_6() - 1").await;
    end_is_noticed(&subject.store, "ended").await;
    end_is_noticed(&subject.store, "ended-too").await;
    for name in ["earlier", "elsewhere"] {
        let (owner, session) = (Owner::key(ALICE), id(name));
        let busy = subject.store.acquire(&owner, &session, Duration::ZERO);
        assert!(matches!(busy.await, Err(StoreError::Busy)), "{name}");
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_process_whose_connections_are_cut_keeps_its_leases() {
    let url = PostgresServer::shared().create_database().await;
    let first = open(&format!("{url}&application_name=first"))
        .await
        .unwrap();
    let second = open(&url).await.unwrap();
    let (key, session) = (owner(), id("s"));
    let lease = first.acquire(&key, &session, LONG).await.unwrap();
    for round in 0..3 {
        let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = 'first'";
        assert!(second.number(cut).await > 0);
        end_is_noticed(&second, &format!("ended-{round}")).await;
        let busy = second.acquire(&key, &session, Duration::ZERO).await;
        assert!(matches!(busy, Err(StoreError::Busy)), "{busy:?}");
        let change = Arc::new(append(round, &[user("a")]));
        first.write(lease.fence(), &change).await.unwrap();
    }
    // It holds a lock again, so that its end is noticed.
    let locks = "SELECT count(lock) FROM replicas";
    assert_eq!(second.number(locks).await, 2);
    first.release(lease).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_connection_knows_which_locks_it_holds() {
    let url = PostgresServer::shared().create_database().await;
    drop(open(&url).await.unwrap());
    let mut connection = PgConnection::connect(&url).await.unwrap();
    for number in [0, 7, 1_i64 << 32, i64::MAX] {
        let mut held = Vec::new();
        for change in [
            "SELECT $1",
            "SELECT pg_advisory_lock($1)",
            "SELECT pg_advisory_unlock($1)",
        ] {
            let change = query(change).bind(number).execute(&mut connection).await;
            change.unwrap();
            let row = query("SELECT holds_lock_6($1)").bind(number);
            let row = row.fetch_one(&mut connection).await.unwrap();
            held.push(column::<bool>(&row, 0).unwrap());
        }
        assert_eq!(held, [false, true, false], "{number}");
    }
}
