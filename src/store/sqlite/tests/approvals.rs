//! Approvals of files that are copied, or were made by an older version.

use rusqlite::Connection;

use super::super::super::suite::approvals;
use super::*;

#[tokio::test]
async fn they_are_in_a_copy() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| StoreUrl::Sqlite(directory.path().join(name));
    approvals::they_are_copied(&file("source.db"), &file("target.db")).await;
}

#[tokio::test]
async fn a_file_of_the_version_before_gets_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("old.db");
    let undo = async || {
        let connection = Connection::open(&path).unwrap();
        let sql = "DROP TABLE approvals; DROP INDEX parked_turns_run; ALTER TABLE parked_turns DROP COLUMN run_id;
            DELETE FROM _sqlx_migrations WHERE version > 16";
        connection.execute_batch(sql).unwrap();
    };
    approvals::an_older_store_gets_them(&StoreUrl::Sqlite(path.clone()), undo).await;
}
