//! Accounts of owners: amounts that are reserved before they are used, exactly also where several processes do that at once.

use super::shares::StatementSize;
use super::tx::values;
use super::{Store, StoreError, retrying};
use crate::ids::Owner;

/// What an account counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Account {
    /// Bytes of sessions that are being written. Those that are written are counted by their rows.
    Sessions,
}

/// An amount that is reserved. It counts until it is settled, or until the process that reserved it has ended.
#[derive(Debug)]
#[must_use = "an amount counts until it is settled"]
pub struct AccountReservation {
    num: i64,
    owner: Owner,
    account: Account,
}

impl Account {
    fn as_str(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
        }
    }
}

impl Store {
    /// Reserves an amount of an account of an owner, if its amount and all that is reserved of it stay within `limit`.
    ///
    /// # Errors
    /// When the store fails.
    ///
    /// # Cancel safety
    /// If the future is dropped, the amount may be reserved until this process ends.
    pub async fn reserve(
        &self,
        owner: &Owner,
        account: Account,
        amount: i64,
        limit: i64,
    ) -> Result<Option<AccountReservation>, StoreError> {
        // Locks the account: one reservation is made after the other.
        let lock = "INSERT INTO accounts (owner, account, amount) VALUES ($1, $2, 0)
            ON CONFLICT (owner, account) DO UPDATE SET amount = accounts.amount RETURNING amount";
        let dead = "DELETE FROM reservations WHERE owner = $1 AND account = $2 AND NOT is_alive_1(replica)";
        let sum = "SELECT CAST(coalesce(sum(amount), 0) AS bigint) FROM reservations WHERE owner = $1 AND account = $2";
        let insert = "INSERT INTO reservations (owner, account, amount, replica) VALUES ($1, $2, $3, $4) RETURNING num";
        let key = values![owner.as_str(), account.as_str()];
        retrying(|| async move {
            let mut tx = self.begin(owner, StatementSize::Small).await?;
            let used: i64 = tx.one(lock, key).await?.take(0)?;
            tx.rows(dead, key).await?;
            let reserved: i64 = tx.one(sum, key).await?.take(0)?;
            if used.saturating_add(reserved).saturating_add(amount) > limit {
                return Ok(None);
            }
            let (name, replica) = (owner.as_str(), self.engine.replica());
            let values = values![name, account.as_str(), amount, replica];
            let num = tx.one(insert, values).await?.take(0)?;
            tx.commit().await?;
            let owner = owner.clone();
            Ok(Some(AccountReservation {
                num,
                owner,
                account,
            }))
        })
        .await
    }

    /// Ends a reservation and adds what was used to the account; returns the amount of the account.
    ///
    /// # Errors
    /// When the store fails; the amount stays reserved.
    pub async fn settle(
        &self,
        reservation: AccountReservation,
        used: i64,
    ) -> Result<i64, StoreError> {
        let end = "DELETE FROM reservations WHERE num = $1 RETURNING 1";
        let add = "UPDATE accounts SET amount = amount + $3 WHERE owner = $1 AND account = $2 RETURNING amount";
        let reservation = &reservation;
        retrying(|| async move {
            let AccountReservation {
                num,
                owner,
                account,
            } = reservation;
            let mut tx = self.begin(owner, StatementSize::Small).await?;
            let open = tx.count(end, values![*num]).await?;
            // Settled before, by an attempt whose answer was lost.
            let used = if open > 0 { used } else { 0 };
            let values = values![owner.as_str(), account.as_str(), used];
            let amount = tx.one(add, values).await?.take(0)?;
            tx.commit().await?;
            Ok(amount)
        })
        .await
    }
}
