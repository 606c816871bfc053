//! Accounts of owners: amounts that are reserved before they are used. The sums are exact, also if several processes
//! reserve at the same time.

use super::shares::StatementSize;
use super::tx::{Tx, values};
use super::{Store, StoreError, retrying};
use protocol::ids::Owner;

/// What an account counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Account {
    /// Bytes of sessions that are being written. Those that are written are counted by their rows.
    Sessions,
}

/// An amount that is reserved. It counts until it is settled or dropped, or until the process that reserved it has ended.
#[derive(Debug)]
#[must_use = "a reservation that is dropped reserves nothing"]
pub struct AccountReservation {
    id: String,
    owner: Owner,
    account: Account,
    /// `None` once it is settled.
    store: Option<Store>,
}

impl Account {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
        }
    }
}

impl AccountReservation {
    /// A reservation that is not stored; dropping it does nothing.
    pub(super) fn new(owner: &Owner, account: Account) -> Self {
        Self {
            id: uuid::Uuid::now_v7().to_string(),
            owner: owner.clone(),
            account,
            store: None,
        }
    }
}

impl Drop for AccountReservation {
    fn drop(&mut self) {
        let (Some(store), Ok(runtime)) = (self.store.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let (id, owner, account) = (self.id.clone(), self.owner.clone(), self.account);
        let tasks = store.engine.tasks().clone();
        let settling = async move {
            if let Err(error) = store.end_reservation(&id, &owner, account, 0).await {
                tracing::warn!(%error, "an amount stays reserved until this process ends");
            }
        };
        tasks.spawn_on(settling, &runtime);
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
        let sum = "SELECT CAST(coalesce(sum(amount), 0) AS bigint) FROM reservations WHERE owner = $1 AND account = $2";
        let reservation = &AccountReservation::new(owner, account);
        let reserved = retrying(|| async move {
            let mut tx = self.begin(owner, StatementSize::Small).await?;
            let used = lock(&mut tx, owner, account).await?;
            let key = values![owner.as_str(), account.as_str()];
            let reserved: i64 = tx.one(sum, key).await?.column(0)?;
            let fits = used.saturating_add(reserved).saturating_add(amount) <= limit;
            if fits {
                self.insert_reservation(&mut tx, reservation, amount)
                    .await?;
            }
            tx.commit().await?;
            Ok(fits)
        });
        Ok(reserved.await?.then(|| self.keep(reservation)))
    }

    /// Ends a reservation and adds the amount that was used to the account; returns the amount of the account.
    ///
    /// # Errors
    /// When the store fails; the amount may stay reserved until this process ends.
    pub async fn settle(
        &self,
        mut reservation: AccountReservation,
        used: i64,
    ) -> Result<i64, StoreError> {
        reservation.store = None;
        let AccountReservation {
            id, owner, account, ..
        } = &reservation;
        self.end_reservation(id, owner, *account, used).await
    }

    async fn end_reservation(
        &self,
        id: &str,
        owner: &Owner,
        account: Account,
        used: i64,
    ) -> Result<i64, StoreError> {
        let end = "DELETE FROM reservations WHERE id = $1 RETURNING 1";
        let add = "INSERT INTO accounts (owner, account, amount) VALUES ($1, $2, $3)
            ON CONFLICT (owner, account) DO UPDATE SET amount = accounts.amount + excluded.amount RETURNING amount";
        retrying(|| async move {
            let mut tx = self.begin(owner, StatementSize::Small).await?;
            let open = tx.count(end, values![id]).await?;
            // Settled before, by an attempt whose answer was lost.
            let used = if open > 0 { used } else { 0 };
            let values = values![owner.as_str(), account.as_str(), used];
            let amount = tx.one(add, values).await?.column(0)?;
            tx.commit().await?;
            Ok(amount)
        })
        .await
    }

    pub(super) fn keep(&self, made: &AccountReservation) -> AccountReservation {
        AccountReservation {
            id: made.id.clone(),
            owner: made.owner.clone(),
            account: made.account,
            store: Some(self.clone()),
        }
    }

    pub(super) async fn insert_reservation(
        &self,
        tx: &mut Tx,
        reservation: &AccountReservation,
        amount: i64,
    ) -> Result<(), StoreError> {
        // It may be there by an attempt whose answer was lost.
        let sql = "INSERT INTO reservations (id, owner, account, amount, replica) VALUES ($1, $2, $3, $4, $5)
            ON CONFLICT (id) DO NOTHING";
        let (owner, account) = (reservation.owner.as_str(), reservation.account.as_str());
        let replica = self.engine.replica();
        let values = values![&*reservation.id, owner, account, amount, replica];
        tx.rows(sql, values).await.map(drop)
    }
}

/// Locks an account, so that reservations are made one after the other, and removes the reservations of ended
/// processes; returns its amount.
pub(super) async fn lock(tx: &mut Tx, owner: &Owner, account: Account) -> Result<i64, StoreError> {
    let lock = "INSERT INTO accounts (owner, account, amount) VALUES ($1, $2, 0)
        ON CONFLICT (owner, account) DO UPDATE SET amount = accounts.amount RETURNING amount";
    let dead = "DELETE FROM reservations WHERE account = $1 AND NOT is_alive_1(replica)";
    let amount = tx
        .one(lock, values![owner.as_str(), account.as_str()])
        .await?
        .column(0)?;
    tx.rows(dead, values![account.as_str()]).await?;
    Ok(amount)
}
