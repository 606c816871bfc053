//! Changes that tests make in a store, also the tests of other members.

use protocol::ids::{FileId, Owner};

use super::shares::StatementSize;
use super::{Store, StoreError};

impl Store {
    /// Moves the time of last use of a file into the past; returns how many files that are.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn set_unused_for(&self, id: &FileId, seconds: i64) -> Result<usize, StoreError> {
        let (id, micros) = (id.as_str(), seconds * 1_000_000);
        let sql = format!(
            "UPDATE files SET last_used_at = last_used_at - CAST({micros} AS bigint) WHERE id = '{id}' RETURNING 1"
        );
        let mut tx = self.single(&Owner::server(), StatementSize::Large).await?;
        Ok(tx.dynamic(&sql, &[]).await?.len())
    }
}
