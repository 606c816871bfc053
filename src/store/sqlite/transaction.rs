//! Write transactions, whose statements are prepared once.

use std::ops::Deref;

use rusqlite::Connection;

use super::connections::StatementError;

/// A write transaction, which is rolled back when it is dropped.
#[derive(Debug)]
pub(super) struct WriteTransaction<'a>(&'a Connection);

/// Begins a write transaction. It takes the write lock at once, because upgrading a read lock can fail with
/// `SQLITE_BUSY`.
pub(super) fn begin(connection: &mut Connection) -> Result<WriteTransaction<'_>, StatementError> {
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    Ok(WriteTransaction(connection))
}

impl WriteTransaction<'_> {
    /// Commits. If this fails, the transaction is rolled back.
    pub(super) fn commit(self) -> Result<(), StatementError> {
        self.0.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }
}

impl Deref for WriteTransaction<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.0
    }
}

impl Drop for WriteTransaction<'_> {
    fn drop(&mut self) {
        // Some errors roll back by themselves.
        if !self.0.is_autocommit()
            && let Err(error) = self.0.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a transaction cannot be rolled back");
        }
    }
}
