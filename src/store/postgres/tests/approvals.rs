//! Approvals of several processes, and of databases that are copied or were made by an older version.

use super::super::super::suite::{approvals, decisions};
use super::*;

fn url_of(url: &str) -> StoreUrl {
    StoreUrl::Postgres(PostgresUrl::parse(url).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn of_several_processes_one_decides() {
    let url = PostgresServer::shared().create_database().await;
    let [first, second] = [open(&url).await.unwrap(), open(&url).await.unwrap()];
    decisions::one_decides(&[&first, &second]).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn they_are_in_a_copy_of_each_kind() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| StoreUrl::Sqlite(directory.path().join(name));
    let server = PostgresServer::shared();
    let [first, second] = [
        server.create_database().await,
        server.create_database().await,
    ];
    approvals::they_are_copied(&file("source.db"), &url_of(&first)).await;
    approvals::they_are_copied(&url_of(&second), &file("target.db")).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_database_of_the_version_before_gets_them() {
    let url = PostgresServer::shared().create_database().await;
    let undo = async || {
        let mut connection = PgConnection::connect(&url).await.unwrap();
        for sql in [
            "DROP TABLE approvals",
            "DROP FUNCTION write_turn_9",
            "ALTER TABLE parked_turns DROP COLUMN run_id",
            "DELETE FROM loopwright_schema WHERE version > 8",
        ] {
            query(sql).execute(&mut connection).await.unwrap();
        }
    };
    approvals::an_older_store_gets_them(&url_of(&url), undo).await;
}
